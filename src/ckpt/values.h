// Moves whole parameters of a table between files and wherever their values are, piece by piece: besides the model's
// own memory, saving and loading take a few MiB, or one row where a row is longer.
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "ckpt/safetensors.h"
#include "model/model.h"

// Parameters are row-major, with their padding. All functions take the struct itself.
struct parameter_values {
    enum dtype dtype;
    void *user;
    // Saving: sets *data to the window's elements of parameter `number`, which has `columns` columns; rows are *stride
    // elements apart. Valid until the next call.
    trireme_status (*get)(const struct parameter_values *values, size_t number, int64_t columns,
                          const struct parameter_window *window, const void **data, int64_t *stride,
                          trireme_error *error);
    // Loading: `begin` returns whether parameter `number`, of `bytes` bytes, is wanted, and if so sets it to zero. Then
    // `put` stores bytes [at, at + bytes) of it, in any order.
    bool (*begin)(const struct parameter_values *values, size_t number, size_t bytes);
    void (*put)(const struct parameter_values *values, size_t number, size_t at, size_t bytes, const void *from);
};

enum { VALUES_WINDOW = 1 << 20 }; // the most elements of one `get`, unless a single row has more

// Adds rows [row, row + rows) of parameter `number`, which has `columns` columns, to the data of `tensor`.
trireme_status parameter_values_write(const struct parameter_values *values, size_t number, int64_t row, int64_t rows,
                                      int64_t columns, struct safetensors_writer *writer, size_t tensor,
                                      trireme_error *error);

// Values that lie in memory, each parameter contiguous at data[number]; `data` must outlive the result.
struct parameter_values parameter_values_at(enum dtype dtype, void *const *data);

#endif
