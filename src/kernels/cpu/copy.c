// Kernels that move bytes and compute nothing.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

struct copy {
    char *to;
    const char *from; // NULL: zeros
    int64_t size;     // of one element
};

static void copy_elements(const void *args, int64_t from, int64_t to) {
    const struct copy *copy = args;
    const size_t bytes = (size_t)((to - from) * copy->size);
    if (copy->from)
        memcpy(copy->to + from * copy->size, copy->from + from * copy->size, bytes);
    else
        memset(copy->to + from * copy->size, 0, bytes);
}

static void copy_run(const struct call *call, const void *from) {
    const struct tensor *y = &call->out[0];
    const struct copy copy = {.to = y->data, .from = from, .size = dtype_size(y->dtype)};
    run_split(call, y->dim[0], y->dim[0], copy_elements, &copy);
}

// y may be x.
void ISA(cpu_fan_out)(const struct call *call) {
    if (call->out[0].data != call->in[0].data)
        copy_run(call, call->in[0].data);
}

struct keep {
    const struct tensor *x, *y;
    int64_t end; // columns, at most all
};

static void keep_rows(const void *args, int64_t from, int64_t to) {
    const struct keep *keep = args;
    const struct tensor *x = keep->x, *y = keep->y;
    int64_t size = dtype_size(y->dtype);
    for (int64_t m = from; m < to; m++) {
        char *row = (char *)y->data + m * y->stride[0] * size;
        if (x->data != y->data)
            memcpy(row, (const char *)x->data + m * x->stride[0] * size, (size_t)(keep->end * size));
        memset(row + keep->end * size, 0, (size_t)((y->dim[1] - keep->end) * size));
    }
}

// y may be x.
void ISA(cpu_keep_columns)(const struct call *call) {
    const struct tensor *y = &call->out[0];
    const int32_t end = *(const int32_t *)call->in[1].data;
    const struct keep keep = {&call->in[0], y, MAX(0, MIN(end, y->dim[1]))};
    run_split(call, y->dim[0], y->dim[0] * y->dim[1], keep_rows, &keep);
}

struct move {
    const struct tensor *x, *y;
    bool accumulate;
};

static void move_rows(const void *args, int64_t from, int64_t to) {
    const struct move *move = args;
    const struct tensor *x = move->x, *y = move->y;
    const int64_t size = dtype_size(y->dtype), n = y->dim[2];
    const bool bf16 = y->dtype == DTYPE_BF16;
    for (int64_t row = from; row < to; row++) {
        const int64_t i = row / y->dim[1], j = row % y->dim[1];
        const char *source = (const char *)x->data + (i * x->stride[0] + j * x->stride[1]) * size;
        char *target = (char *)y->data + (i * y->stride[0] + j * y->stride[1]) * size;
        if (!move->accumulate) {
            memcpy(target, source, (size_t)(n * size));
            continue;
        }
        for (int64_t k = 0; k < n; k += LANES) {
            const int count = (int)MIN(LANES, n - k);
            row_store(target, k, count, row_load(target, k, count, bf16) + row_load(source, k, count, bf16), bf16);
        }
    }
}

void ISA(cpu_copy)(const struct call *call) {
    const struct move move = {&call->in[0], &call->out[0], call->accumulate};
    const int64_t rows = move.y->dim[0] * move.y->dim[1];
    run_split(call, rows, rows * move.y->dim[2], move_rows, &move);
}

static void zero_column_rows(const void *args, int64_t from, int64_t to) {
    const struct tensor *y = args;
    const int64_t size = dtype_size(y->dtype);
    for (int64_t m = from; m < to; m++)
        memset((char *)y->data + m * y->stride[0] * size, 0, (size_t)(y->dim[1] * size));
}

void ISA(cpu_zero_columns)(const struct call *call) {
    const struct tensor *y = &call->out[0];
    run_split(call, y->dim[0], y->dim[0] * y->dim[1], zero_column_rows, y);
}

void ISA(cpu_zero)(const struct call *call) {
    copy_run(call, NULL);
}
