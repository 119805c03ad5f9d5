// RMS norm of rows of which several ranks have parts (row_squares, row_norm): the sums of squares `s` are those of
// whole rows, `width` wide. With r = 1 / sqrt(s / width + eps):
//   y = x r w;  dx = dy w r;  ds = -r^3 / (2 width) sum(dy w x);  dw = sum over rows of dy x r;  of squares: dx = 2 ds
//   x
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { COLUMN_GROUP = 64 }; // columns of dw that one thread sums at a time: whole cache lines

struct row_norm {
    bool bf16, accumulate;
    int64_t count, columns;
    float width, eps;
    struct rows x, y, dy; // y: also dx
    const void *w;
    float *s, *ds, *dw;
};

static struct row_norm row_norm_of(const struct call *call) {
    const struct tensor *x = &call->in[0];
    return (struct row_norm){.bf16 = x->dtype == DTYPE_BF16,
                             .accumulate = call->accumulate,
                             .count = x->dim[0],
                             .columns = x->dim[1],
                             .width = (float)call->attribute[0].i,
                             .eps = (float)call->attribute[1].f,
                             .x = rows_of(x)};
}

static void row_norm_run(const struct call *call, const struct row_norm *n,
                         void (*body)(const void *args, int64_t from, int64_t to)) {
    run_split(call, n->count, n->count * n->columns, body, n);
}

static float row_scale(const struct row_norm *n, int64_t r) {
    return 1 / sqrtf(n->s[r] / n->width + n->eps);
}

// ---- sums of squares

VEC_INLINE void square_sum_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, bool bf16) {
    const vec_f32 v = row_load(x, i, count, bf16);
    sum[slot] += v * v;
}

static void row_squares_rows(const void *args, int64_t from, int64_t to) {
    const struct row_norm *n = args;
    for (int64_t r = from; r < to; r++) {
        vec_f32 sum[SLOTS] = {0};
        if (n->bf16)
            ROW_SUM(n->columns, square_sum_lanes, sum, row_at(n->x, r), true);
        else
            ROW_SUM(n->columns, square_sum_lanes, sum, row_at(n->x, r), false);
        n->s[r] = slots_sum(sum);
    }
}

void ISA(cpu_row_squares)(const struct call *call) {
    struct row_norm n = row_norm_of(call);
    n.s = call->out[0].data;
    row_norm_run(call, &n, row_squares_rows);
}

VEC_INLINE void multiple_lanes(int64_t i, int count, void *y, const void *x, float factor, bool add, bool bf16) {
    vec_f32 v = row_load(x, i, count, bf16) * factor;
    if (add)
        v += row_load(y, i, count, bf16);
    row_store(y, i, count, v, bf16);
}

static void row_squares_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct row_norm *n = args;
    for (int64_t r = from; r < to; r++) {
        const float factor = 2 * n->ds[r];
        if (n->bf16)
            ROW_EACH(n->columns, multiple_lanes, row_at(n->y, r), row_at(n->x, r), factor, n->accumulate, true);
        else
            ROW_EACH(n->columns, multiple_lanes, row_at(n->y, r), row_at(n->x, r), factor, n->accumulate, false);
    }
}

void ISA(cpu_row_squares_dx)(const struct call *call) {
    struct row_norm n = row_norm_of(call);
    n.ds = call->in[1].data;
    n.y = rows_of(&call->out[0]);
    row_norm_run(call, &n, row_squares_dx_rows);
}

// ---- norm

VEC_INLINE void normed_lanes(int64_t i, int count, void *y, const void *x, float scale, const void *w, bool bf16) {
    row_store(y, i, count, row_load(x, i, count, bf16) * scale * row_load(w, i, count, bf16), bf16);
}

static void row_norm_rows(const void *args, int64_t from, int64_t to) {
    const struct row_norm *n = args;
    for (int64_t r = from; r < to; r++) {
        const float scale = row_scale(n, r);
        if (n->bf16)
            ROW_EACH(n->columns, normed_lanes, row_at(n->y, r), row_at(n->x, r), scale, n->w, true);
        else
            ROW_EACH(n->columns, normed_lanes, row_at(n->y, r), row_at(n->x, r), scale, n->w, false);
    }
}

void ISA(cpu_row_norm)(const struct call *call) {
    struct row_norm n = row_norm_of(call);
    n.s = call->in[1].data;
    n.w = call->in[2].data;
    n.y = rows_of(&call->out[0]);
    row_norm_run(call, &n, row_norm_rows);
}

VEC_INLINE void product_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *dy, const void *w,
                              const void *x, bool bf16) {
    sum[slot] += row_load(dy, i, count, bf16) * row_load(w, i, count, bf16) * row_load(x, i, count, bf16);
}

VEC_INLINE void row_norm_dx_row(const struct row_norm *n, int64_t r, bool bf16) {
    const float scale = row_scale(n, r);
    vec_f32 sum[SLOTS] = {0};
    ROW_SUM(n->columns, product_lanes, sum, row_at(n->dy, r), n->w, row_at(n->x, r), bf16);
    n->ds[r] = -scale * scale * scale * slots_sum(sum) / (2 * n->width);
    ROW_EACH(n->columns, normed_lanes, row_at(n->y, r), row_at(n->dy, r), scale, n->w, bf16);
}

static void row_norm_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct row_norm *n = args;
    for (int64_t r = from; r < to; r++) {
        if (n->bf16)
            row_norm_dx_row(n, r, true);
        else
            row_norm_dx_row(n, r, false);
    }
}

void ISA(cpu_row_norm_dx)(const struct call *call) {
    struct row_norm n = row_norm_of(call);
    n.s = call->in[1].data;
    n.w = call->in[2].data;
    n.dy = rows_of(&call->in[3]);
    n.y = rows_of(&call->out[0]);
    n.ds = call->out[1].data;
    row_norm_run(call, &n, row_norm_dx_rows);
}

VEC_INLINE void weight_lanes(int64_t i, int count, float *dw, const void *dy, const void *x, float scale, bool bf16) {
    const vec_f32 term = row_load(dy, i, count, bf16) * (row_load(x, i, count, bf16) * scale);
    row_store(dw, i, count, row_load(dw, i, count, false) + term, false);
}

static void row_norm_dw_groups(const void *args, int64_t from, int64_t to) {
    const struct row_norm *n = args;
    const int64_t column = from * COLUMN_GROUP, columns = MIN(to * COLUMN_GROUP, n->columns) - column;
    float *dw = n->dw + column;
    if (!n->accumulate)
        memset(dw, 0, (size_t)columns * sizeof *dw);
    for (int64_t r = 0; r < n->count; r++) {
        const void *dy = row_part(row_at(n->dy, r), column, n->bf16), *x = row_part(row_at(n->x, r), column, n->bf16);
        if (n->bf16)
            ROW_EACH(columns, weight_lanes, dw, dy, x, row_scale(n, r), true);
        else
            ROW_EACH(columns, weight_lanes, dw, dy, x, row_scale(n, r), false);
    }
}

void ISA(cpu_row_norm_dw)(const struct call *call) {
    struct row_norm n = row_norm_of(call);
    n.s = call->in[1].data;
    n.dy = rows_of(&call->in[2]);
    n.dw = call->out[0].data;
    run_split(call, divide_up(n.columns, COLUMN_GROUP), n.count * n.columns, row_norm_dw_groups, &n);
}
