// Gates: the log of a sigmoid, and the RMS norm of heads times swish(gate) = gate sigmoid(gate), with their gradients.
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

// ---- log(sigmoid(x)) / divisor

struct log_sigmoid {
    bool bf16;
    float share; // 1 / divisor
    int64_t columns;
    struct rows x, y, dx; // y: f32, its gradient where dx is made
};

// log(1 + e) for 0 <= e <= 1: 2 artanh(s), s = e / (2 + e) <= 1/3, whose series is within 2e-9 of itself after eight
// terms.
VEC_INLINE vec_f32 vec_log_1_plus(vec_f32 e) {
    const vec_f32 s = e / (e + 2.0f), square = s * s;
    vec_f32 p = vec_splat(1.0f / 15);
    for (int n = 13; n >= 1; n -= 2)
        p = p * square + 1.0f / (float)n;
    return 2.0f * s * p;
}

VEC_INLINE void log_sigmoid_lanes(int64_t i, int count, void *y, const void *x, float share, bool bf16) {
    const vec_f32 value = row_load(x, i, count, bf16), size = (vec_f32)((vec_i32)value & 0x7fffffff);
    row_store(y, i, count, (vec_min((vec_f32){0}, value) - vec_log_1_plus(vec_exp(-size))) * share, false);
}

static void log_sigmoid_rows(const void *args, int64_t from, int64_t to) {
    const struct log_sigmoid *e = args;
    for (int64_t r = from; r < to; r++)
        if (e->bf16)
            ROW_EACH(e->columns, log_sigmoid_lanes, row_at(e->y, r), row_at(e->x, r), e->share, true);
        else
            ROW_EACH(e->columns, log_sigmoid_lanes, row_at(e->y, r), row_at(e->x, r), e->share, false);
}

VEC_INLINE void log_sigmoid_dx_lanes(int64_t i, int count, void *dx, const void *dy, const void *x, float share,
                                     bool bf16) {
    const vec_f32 closed = share / (1.0f + vec_exp(row_load(x, i, count, bf16)));
    row_store(dx, i, count, row_load(dy, i, count, false) * closed, bf16);
}

static void log_sigmoid_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct log_sigmoid *e = args;
    for (int64_t r = from; r < to; r++) {
        void *dx = row_at(e->dx, r);
        const void *dy = row_at(e->y, r), *x = row_at(e->x, r);
        if (e->bf16)
            ROW_EACH(e->columns, log_sigmoid_dx_lanes, dx, dy, x, e->share, true);
        else
            ROW_EACH(e->columns, log_sigmoid_dx_lanes, dx, dy, x, e->share, false);
    }
}

void ISA(cpu_log_sigmoid)(const struct call *call) {
    const struct tensor *x = &call->in[0];
    const struct log_sigmoid e = {.bf16 = x->dtype == DTYPE_BF16,
                                  .share = 1 / (float)call->attribute[0].f,
                                  .columns = x->dim[1],
                                  .x = rows_of(x),
                                  .y = rows_of(&call->out[0])};
    run_split(call, x->dim[0], x->dim[0] * e.columns, log_sigmoid_rows, &e);
}

void ISA(cpu_log_sigmoid_dx)(const struct call *call) {
    const struct tensor *x = &call->in[0];
    const struct log_sigmoid e = {.bf16 = x->dtype == DTYPE_BF16,
                                  .share = 1 / (float)call->attribute[0].f,
                                  .columns = x->dim[1],
                                  .x = rows_of(x),
                                  .y = rows_of(&call->in[1]),
                                  .dx = rows_of(&call->out[0])};
    run_split(call, x->dim[0], x->dim[0] * e.columns, log_sigmoid_dx_rows, &e);
}

// ---- gated RMS norm of heads

enum { BLOCK_ROWS = 32, MAX_BLOCKS = 256 }; // for dw

// Rows of [m, h, D] operands; heads lie `step` bytes apart.
struct headed {
    struct rows rows;
    int64_t step;
};

struct gated {
    bool bf16;
    int64_t count, heads, width;
    float eps;
    struct headed x, gate, y, dy, dx, dgate;
    const void *w;
    float *rstd; // [m, h]
    int64_t blocks, block_rows;
    float *partial; // [blocks, width]: dw
};

static struct headed headed_of(const struct tensor *t) {
    return (struct headed){rows_of(t), t->stride[1] * dtype_size(t->dtype)};
}

VEC_INLINE void *head_at(const struct headed *h, int64_t row, int64_t head) {
    return (char *)row_at(h->rows, row) + head * h->step;
}

VEC_INLINE vec_f32 swish(vec_f32 x) {
    return x / (1.0f + vec_exp(-x));
}

VEC_INLINE void square_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, bool bf16) {
    const vec_f32 value = row_load(x, i, count, bf16);
    sum[slot] += value * value;
}

VEC_INLINE void gated_lanes(int64_t i, int count, void *y, const void *x, const void *gate, const void *w, float rstd,
                            bool bf16) {
    row_store(y, i, count,
              row_load(x, i, count, bf16) * rstd * row_load(w, i, count, bf16) * swish(row_load(gate, i, count, bf16)),
              bf16);
}

VEC_INLINE void gated_head(const struct gated *g, int64_t r, int64_t h, bool bf16) {
    const void *x = head_at(&g->x, r, h), *gate = head_at(&g->gate, r, h);
    vec_f32 sum[SLOTS] = {0};
    ROW_SUM(g->width, square_lanes, sum, x, bf16);
    const float rstd = 1 / sqrtf(slots_sum(sum) / (float)g->width + g->eps);
    g->rstd[r * g->heads + h] = rstd;
    ROW_EACH(g->width, gated_lanes, head_at(&g->y, r, h), x, gate, g->w, rstd, bf16);
}

static void gated_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *g = args;
    for (int64_t r = from; r < to; r++)
        for (int64_t h = 0; h < g->heads; h++)
            g->bf16 ? gated_head(g, r, h, true) : gated_head(g, r, h, false);
}

// With n = x rstd and d = dy w swish(gate): the sum of d n, times 1 / rstd.
VEC_INLINE void gated_sum_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *dy, const void *w,
                                const void *gate, const void *x, bool bf16) {
    sum[slot] += row_load(dy, i, count, bf16) * row_load(w, i, count, bf16) * swish(row_load(gate, i, count, bf16)) *
                 row_load(x, i, count, bf16);
}

struct gated_terms {
    const void *x, *gate, *w, *dy;
    void *dx, *dgate;
    float rstd, average; // of d n
};

VEC_INLINE void gated_dx_lanes(int64_t i, int count, const struct gated_terms *t, bool bf16) {
    const vec_f32 d = row_load(t->dy, i, count, bf16) * row_load(t->w, i, count, bf16),
                  n = row_load(t->x, i, count, bf16) * t->rstd, gate = row_load(t->gate, i, count, bf16),
                  open = 1.0f / (1.0f + vec_exp(-gate));
    row_store(t->dx, i, count, (d * gate * open - n * t->average) * t->rstd, bf16);
    row_store(t->dgate, i, count, d * n * open * (1.0f + gate * (1.0f - open)), bf16);
}

VEC_INLINE void gated_dx_head(const struct gated *g, int64_t r, int64_t h, bool bf16) {
    struct gated_terms t = {
        head_at(&g->x, r, h),     head_at(&g->gate, r, h),   g->w, head_at(&g->dy, r, h), head_at(&g->dx, r, h),
        head_at(&g->dgate, r, h), g->rstd[r * g->heads + h], 0};
    vec_f32 sum[SLOTS] = {0};
    ROW_SUM(g->width, gated_sum_lanes, sum, t.dy, t.w, t.gate, t.x, bf16);
    t.average = slots_sum(sum) * t.rstd / (float)g->width;
    ROW_EACH(g->width, gated_dx_lanes, &t, bf16);
}

static void gated_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *g = args;
    for (int64_t r = from; r < to; r++)
        for (int64_t h = 0; h < g->heads; h++)
            g->bf16 ? gated_dx_head(g, r, h, true) : gated_dx_head(g, r, h, false);
}

VEC_INLINE void gated_dw_lanes(int64_t i, int count, float *dw, const void *dy, const void *gate, const void *x,
                               float rstd, bool bf16) {
    const vec_f32 term =
        row_load(dy, i, count, bf16) * swish(row_load(gate, i, count, bf16)) * (row_load(x, i, count, bf16) * rstd);
    row_store(dw, i, count, row_load(dw, i, count, false) + term, false);
}

static void gated_dw_blocks(const void *args, int64_t from, int64_t to) {
    const struct gated *g = args;
    for (int64_t block = from; block < to; block++) {
        float *dw = g->partial + block * g->width;
        memset(dw, 0, (size_t)g->width * sizeof *dw);
        const int64_t end = MIN((block + 1) * g->block_rows, g->count);
        for (int64_t r = block * g->block_rows; r < end; r++)
            for (int64_t h = 0; h < g->heads; h++) {
                const void *x = head_at(&g->x, r, h), *gate = head_at(&g->gate, r, h), *dy = head_at(&g->dy, r, h);
                const float rstd = g->rstd[r * g->heads + h];
                if (g->bf16)
                    ROW_EACH(g->width, gated_dw_lanes, dw, dy, gate, x, rstd, true);
                else
                    ROW_EACH(g->width, gated_dw_lanes, dw, dy, gate, x, rstd, false);
            }
    }
}

static struct gated gated_of(const struct call *call) {
    const struct tensor *x = &call->in[0];
    return (struct gated){.bf16 = x->dtype == DTYPE_BF16,
                          .count = x->dim[0],
                          .heads = x->dim[1],
                          .width = x->dim[2],
                          .x = headed_of(x),
                          .gate = headed_of(&call->in[1])};
}

void ISA(cpu_gated_rmsnorm)(const struct call *call) {
    struct gated g = gated_of(call);
    g.eps = (float)call->attribute[0].f;
    g.w = call->in[2].data;
    g.y = headed_of(&call->out[0]);
    g.rstd = call->out[1].data;
    run_split(call, g.count, g.count * g.heads * g.width, gated_rows, &g);
}

void ISA(cpu_gated_rmsnorm_dx)(const struct call *call) {
    struct gated g = gated_of(call);
    g.w = call->in[2].data;
    g.rstd = call->in[3].data;
    g.dy = headed_of(&call->in[4]);
    g.dx = headed_of(&call->out[0]);
    g.dgate = headed_of(&call->out[1]);
    run_split(call, g.count, g.count * g.heads * g.width, gated_dx_rows, &g);
}

void ISA(cpu_gated_rmsnorm_dw)(const struct call *call) {
    struct gated g = gated_of(call);
    float *dw = call->out[0].data;
    g.rstd = call->in[2].data;
    g.dy = headed_of(&call->in[3]);
    g.blocks = blocks_of(g.count, BLOCK_ROWS, MAX_BLOCKS, &g.block_rows);
    g.partial = call->workspace;
    run_split(call, g.blocks, g.count * g.heads * g.width, gated_dw_blocks, &g);
    if (!call->accumulate)
        memset(dw, 0, (size_t)g.width * sizeof *dw);
    for (int64_t block = 0; block < g.blocks; block++)
        for (int64_t i = 0; i < g.width; i++)
            dw[i] += g.partial[block * g.width + i];
}

trireme_status ISA(cpu_gated_rmsnorm_dw_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                 trireme_error *error) {
    (void)error;
    int64_t block_rows, blocks = blocks_of(call->in[0].dim[0], BLOCK_ROWS, MAX_BLOCKS, &block_rows);
    *prepared = NULL;
    *workspace_bytes = blocks * call->out[0].dim[0] * (int64_t)sizeof(float);
    return TRIREME_OK;
}
