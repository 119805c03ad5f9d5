// Whole parameters of a table on their way between files and wherever their values are, piece by piece: saving and
// loading take memory for a few MiB of one, or a row, beside the model's own.
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "ckpt/safetensors.h"
#include "model/model.h"

// Parameters are row-major, with their padding. All functions take the struct itself.
struct parameter_values {
    enum dtype dtype;
    void *user;
    // Saving: the window's elements of parameter `number`, of `columns` in all, at *data until the next call, its rows
    // *stride elements apart.
    trireme_status (*get)(const struct parameter_values *values, size_t number, int64_t columns,
                          const struct parameter_window *window, const void **data, int64_t *stride,
                          trireme_error *error);
    // Loading: whether parameter `number`, of so many bytes, is wanted; if so it becomes zero. Then bytes [at, at +
    // bytes) of it, in any order.
    bool (*begin)(const struct parameter_values *values, size_t number, size_t bytes);
    void (*put)(const struct parameter_values *values, size_t number, size_t at, size_t bytes, const void *from);
};

enum { VALUES_WINDOW = 1 << 20 }; // elements that are asked for at once, unless one row has more

// Adds rows [row, row + rows) of parameter `number`, which has so many columns, to a tensor.
trireme_status parameter_values_write(const struct parameter_values *values, size_t number, int64_t row, int64_t rows,
                                      int64_t columns, struct safetensors_writer *writer, size_t tensor,
                                      trireme_error *error);

// All in memory, contiguous: data[number], which must outlive it.
struct parameter_values parameter_values_at(enum dtype dtype, void *const *data);

#endif
