// Whole parameters of a table on their way between files and wherever their values are. Saving takes memory for one
// parameter beside the model's own, where its values do not lie together; loading, for a piece of one.
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "program/ops.h"

// Parameters are contiguous and row-major, with their padding.
struct parameter_values {
    enum dtype dtype;
    void *user;
    // Saving: where parameter `number` lies, until the next call. Pieces of one are asked for one after the other.
    trireme_status (*get)(void *user, size_t number, const void **data, trireme_error *error);
    // Loading: whether parameter `number`, of so many bytes, is wanted; if so it becomes zero. Then bytes [at, at +
    // bytes) of it, in any order.
    bool (*begin)(void *user, size_t number, size_t bytes);
    void (*put)(void *user, size_t number, size_t at, size_t bytes, const void *from);
};

// All in memory: data[number], which must outlive it.
struct parameter_values parameter_values_at(enum dtype dtype, void *const *data);

#endif
