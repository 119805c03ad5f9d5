#include "ckpt/values.h"

trireme_status parameter_values_write(const struct parameter_values *values, size_t number, int64_t row, int64_t rows,
                                      int64_t columns, struct safetensors_writer *writer, size_t tensor,
                                      trireme_error *error) {
    const int64_t size = dtype_size(values->dtype), most = MAX(1, VALUES_WINDOW / columns);
    for (int64_t done = 0; done < rows; done += most) {
        const struct parameter_window window = {row + done, MIN(most, rows - done), 0, columns};
        const void *data;
        int64_t stride;
        TRY(values->get(values, number, columns, &window, &data, &stride, error));
        CHECK(stride == columns);
        TRY(safetensors_writer_add(writer, tensor, data, (uint64_t)(window.rows * columns * size), error));
    }
    return TRIREME_OK;
}

// ---- in memory

static char *values_at(const struct parameter_values *values, size_t number, int64_t element) {
    return ((char *const *)values->user)[number] + element * dtype_size(values->dtype);
}

static trireme_status values_get(const struct parameter_values *values, size_t number, int64_t columns,
                                 const struct parameter_window *window, const void **data, int64_t *stride,
                                 trireme_error *error) {
    (void)error;
    *data = values_at(values, number, window->row * columns + window->column);
    *stride = columns;
    return TRIREME_OK;
}

static bool values_begin(const struct parameter_values *values, size_t number, size_t bytes) {
    memset(values_at(values, number, 0), 0, bytes);
    return true;
}

static void values_put(const struct parameter_values *values, size_t number, size_t first, size_t bytes,
                       const void *from) {
    memcpy(values_at(values, number, 0) + first, from, bytes);
}

struct parameter_values parameter_values_at(enum dtype dtype, void *const *data) {
    return (struct parameter_values){dtype, (void *)data, values_get, values_begin, values_put};
}
