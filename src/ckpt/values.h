// Whole parameters of a table on their way between files and wherever their values are, one at a time: memory beside
// the model's own stays that of one parameter.
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "program/ops.h"

// Parameters are contiguous and row-major, with their padding.
struct parameter_values {
    enum dtype dtype;
    void *user;
    // Saving: where parameter `number` lies, until the next call. Pieces of one are asked for one after the other.
    trireme_status (*get)(void *user, size_t number, const void **data, trireme_error *error);
    // Loading: room for parameter `number`, until the next call (NULL: it is not wanted); then, when it is filled, put.
    void *(*room)(void *user, size_t number);
    void (*put)(void *user, size_t number);
};

// All in memory: data[number], which must outlive it.
struct parameter_values parameter_values_at(enum dtype dtype, void *const *data);

#endif
