// RMS norm of each query and key head of a packed [q heads | k heads | v heads] row, forward and backward; values are
// copied.
// The formulas are those of RMS norm (norm.c), over the D elements of a head; all q heads share wq, all k heads wk.
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { BLOCK_ROWS = 32, MAX_BLOCKS = 256 };

struct qknorm {
    bool bf16;
    int64_t count, columns, width;  // rows, elements of a row, D
    int64_t queries, heads;         // q heads; q and k heads
    float eps, plus;                // `plus` is added to the weights
    struct rows x, y, dy, dx, rstd; // rstd: f32 [count, heads]
    const void *wq, *wk;
    int64_t block_rows, blocks;
    float *partial; // [blocks, 2, width]: dwq and dwk of each block
};

static struct qknorm qknorm_of(const struct call *call) {
    const struct tensor *x = &call->in[0];
    return (struct qknorm){
        .bf16 = x->dtype == DTYPE_BF16,
        .count = x->dim[0],
        .columns = x->dim[1],
        .queries = call->attribute[0].i,
        .heads = call->attribute[0].i + call->attribute[1].i,
        .x = rows_of(x),
    };
}

VEC_INLINE void copy_values(const struct qknorm *q, void *to, const void *from, bool bf16) {
    int64_t packed = q->heads * q->width;
    if (to != from)
        memcpy(row_part(to, packed, bf16), row_part(from, packed, bf16),
               (size_t)(q->columns - packed) * (bf16 ? 2 : 4));
}

// ---- forward

VEC_INLINE void square_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, bool bf16) {
    vec_f32 v = row_load(x, i, count, bf16);
    sum[slot] += v * v;
}

VEC_INLINE void scale_lanes(int64_t i, int count, void *y, const void *x, float rstd, const void *w, float plus,
                            bool bf16) {
    row_store(y, i, count, row_load(x, i, count, bf16) * rstd * (row_load(w, i, count, bf16) + plus), bf16);
}

VEC_INLINE void qknorm_row(const struct qknorm *q, int64_t r, bool bf16) {
    const void *x = row_at(q->x, r);
    void *y = row_at(q->y, r);
    float *rstd = row_at(q->rstd, r);
    row_prefetch(row_at(q->x, r + 1), q->columns, bf16);
    for (int64_t h = 0; h < q->heads; h++) {
        const void *head = row_part(x, h * q->width, bf16);
        vec_f32 sum[SLOTS] = {0};
        ROW_SUM(q->width, square_lanes, sum, head, bf16);
        rstd[h] = 1 / sqrtf(slots_sum(sum) / (float)q->width + q->eps);
        ROW_EACH(q->width, scale_lanes, row_part(y, h * q->width, bf16), head, rstd[h], h < q->queries ? q->wq : q->wk,
                 q->plus, bf16);
    }
    copy_values(q, y, x, bf16);
}

static void qknorm_rows(const void *args, int64_t from, int64_t to) {
    const struct qknorm *q = args;
    for (int64_t r = from; r < to; r++) {
        if (q->bf16)
            qknorm_row(q, r, true);
        else
            qknorm_row(q, r, false);
    }
}

void ISA(cpu_qknorm)(const struct call *call) {
    struct qknorm q = qknorm_of(call);
    q.wq = call->in[1].data;
    q.wk = call->in[2].data;
    q.width = call->in[1].dim[0];
    q.eps = (float)call->attribute[2].f;
    q.plus = (float)call->attribute[3].f;
    q.y = rows_of(&call->out[0]);
    q.rstd = rows_of(&call->out[1]);
    run_split(call, q.count, q.count * q.columns, qknorm_rows, &q);
}

// ---- gradient of the input

VEC_INLINE void average_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *dy, const void *w, float plus,
                              const void *x, bool bf16) {
    sum[slot] += row_load(dy, i, count, bf16) * (row_load(w, i, count, bf16) + plus) * row_load(x, i, count, bf16);
}

// `average` is that of u * xhat, times rstd.
VEC_INLINE void dx_lanes(int64_t i, int count, void *dx, const void *dy, const void *w, float plus, const void *x,
                         float rstd, float average, bool bf16) {
    vec_f32 u = row_load(dy, i, count, bf16) * (row_load(w, i, count, bf16) + plus);
    row_store(dx, i, count, (u - row_load(x, i, count, bf16) * average) * rstd, bf16);
}

VEC_INLINE void dx_row(const struct qknorm *q, int64_t r, bool bf16) {
    const void *x = row_at(q->x, r), *dy = row_at(q->dy, r);
    void *dx = row_at(q->dx, r);
    const float *rstd = row_at(q->rstd, r);
    row_prefetch(row_at(q->x, r + 1), q->columns, bf16);
    row_prefetch(row_at(q->dy, r + 1), q->columns, bf16);
    for (int64_t h = 0; h < q->heads; h++) {
        const void *w = h < q->queries ? q->wq : q->wk;
        const void *x_head = row_part(x, h * q->width, bf16), *dy_head = row_part(dy, h * q->width, bf16);
        vec_f32 sum[SLOTS] = {0};
        ROW_SUM(q->width, average_lanes, sum, dy_head, w, q->plus, x_head, bf16);
        float average = slots_sum(sum) / (float)q->width * rstd[h] * rstd[h];
        ROW_EACH(q->width, dx_lanes, row_part(dx, h * q->width, bf16), dy_head, w, q->plus, x_head, rstd[h], average,
                 bf16);
    }
    copy_values(q, dx, dy, bf16);
}

static void dx_rows(const void *args, int64_t from, int64_t to) {
    const struct qknorm *q = args;
    for (int64_t r = from; r < to; r++) {
        if (q->bf16)
            dx_row(q, r, true);
        else
            dx_row(q, r, false);
    }
}

void ISA(cpu_qknorm_dx)(const struct call *call) {
    struct qknorm q = qknorm_of(call);
    q.wq = call->in[1].data;
    q.wk = call->in[2].data;
    q.width = call->in[1].dim[0];
    q.plus = (float)call->attribute[2].f;
    q.rstd = rows_of(&call->in[3]);
    q.dy = rows_of(&call->in[4]);
    q.dx = rows_of(&call->out[0]);
    run_split(call, q.count, q.count * q.columns, dx_rows, &q);
}

// ---- gradients of the weights

VEC_INLINE void dw_lanes(int64_t i, int count, float *dw, const void *dy, const void *x, float rstd, bool bf16) {
    vec_f32 term = row_load(dy, i, count, bf16) * (row_load(x, i, count, bf16) * rstd);
    row_store(dw, i, count, row_load(dw, i, count, false) + term, false);
}

VEC_INLINE void dw_row(const struct qknorm *q, int64_t r, float *dw, bool bf16) {
    const void *x = row_at(q->x, r), *dy = row_at(q->dy, r);
    const float *rstd = row_at(q->rstd, r);
    row_prefetch(row_at(q->x, r + 1), q->columns, bf16);
    row_prefetch(row_at(q->dy, r + 1), q->columns, bf16);
    for (int64_t h = 0; h < q->heads; h++)
        ROW_EACH(q->width, dw_lanes, h < q->queries ? dw : dw + q->width, row_part(dy, h * q->width, bf16),
                 row_part(x, h * q->width, bf16), rstd[h], bf16);
}

static void dw_blocks(const void *args, int64_t from, int64_t to) {
    const struct qknorm *q = args;
    for (int64_t block = from; block < to; block++) {
        float *dw = q->partial + block * 2 * q->width;
        memset(dw, 0, 2 * (size_t)q->width * sizeof *dw);
        int64_t end = MIN((block + 1) * q->block_rows, q->count);
        for (int64_t r = block * q->block_rows; r < end; r++) {
            if (q->bf16)
                dw_row(q, r, dw, true);
            else
                dw_row(q, r, dw, false);
        }
    }
}

void ISA(cpu_qknorm_dw)(const struct call *call) {
    struct qknorm q = qknorm_of(call);
    q.width = call->out[0].dim[0];
    q.rstd = rows_of(&call->in[1]);
    q.dy = rows_of(&call->in[2]);
    q.blocks = blocks_of(q.count, BLOCK_ROWS, MAX_BLOCKS, &q.block_rows);
    q.partial = call->workspace;
    run_split(call, q.blocks, q.count * q.columns, dw_blocks, &q);
    for (int k = 0; k < 2; k++) {
        float *dw = call->out[k].data;
        if (!call->accumulate)
            memset(dw, 0, (size_t)q.width * sizeof *dw);
        for (int64_t block = 0; block < q.blocks; block++)
            for (int64_t i = 0; i < q.width; i++)
                dw[i] += q.partial[(block * 2 + k) * q.width + i];
    }
}

trireme_status ISA(cpu_qknorm_dw_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error) {
    (void)error;
    int64_t block_rows, blocks = blocks_of(call->in[0].dim[0], BLOCK_ROWS, MAX_BLOCKS, &block_rows);
    *prepared = NULL;
    *workspace_bytes = blocks * 2 * call->out[0].dim[0] * (int64_t)sizeof(float);
    return TRIREME_OK;
}
