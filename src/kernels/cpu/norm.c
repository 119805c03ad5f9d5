// Layer norm (Ba et al., "Layer Normalization", 2016) and RMS norm (Zhang and Sennrich, "Root Mean Square Layer
// Normalization", 2019), forward and backward. RMS norm is layer norm with the mean taken as zero, so one body serves
// both: `centered` tells them apart. With xhat = (x - mean) * rstd and u = dy * (w + plus):
//   dx = rstd * (u - average(u) - xhat * average(u * xhat)) + res;  RMS norm has no average(u)
//   dw = sum over rows of dy * xhat;  db = sum over rows of dy
// A row is read several times but stays in the cache, so memory sees each operand once.
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"
#include "kernels/heads.h"

// Blocks of rows for dw and db, and columns that one thread adds up over the blocks at a time.
enum { BLOCK_ROWS = 32, MAX_BLOCKS = 256, COLUMN_GROUP = 64 };

struct norm {
    bool bf16, centered;
    int64_t count, columns;
    float eps, plus;
    struct rows x, y, dy, res, dx; // res.data may be NULL
    const void *w, *b;             // b may be NULL
    float *mean, *rstd;
    int64_t block_rows, blocks, padded; // padded: columns up to the next multiple of COLUMN_GROUP
    float *partial;                     // [blocks, 2, padded]: dw and db of each block
    float *dw, *db;                     // db may be NULL
    bool accumulate;
};

// ---- forward

VEC_INLINE void sum_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, bool bf16) {
    sum[slot] += row_load(x, i, count, bf16);
}

VEC_INLINE void square_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, float mean, bool bf16) {
    vec_f32 d = vec_first(row_load(x, i, count, bf16) - mean, count);
    sum[slot] += d * d;
}

VEC_INLINE void scale_lanes(int64_t i, int count, void *y, const void *x, float mean, float rstd, const void *w,
                            float plus, const void *b, bool bf16) {
    vec_f32 v = (row_load(x, i, count, bf16) - mean) * rstd * (row_load(w, i, count, bf16) + plus);
    if (b)
        v += row_load(b, i, count, bf16);
    row_store(y, i, count, v, bf16);
}

VEC_INLINE void norm_row(const struct norm *n, int64_t r, bool centered, bool bf16) {
    const void *x = row_at(n->x, r);
    float mean = 0;
    if (centered) {
        vec_f32 sum[SLOTS] = {0};
        ROW_SUM(n->columns, sum_lanes, sum, x, bf16);
        mean = slots_sum(sum) / (float)n->columns;
        n->mean[r] = mean;
    }
    vec_f32 square[SLOTS] = {0};
    ROW_SUM(n->columns, square_lanes, square, x, mean, bf16);
    float rstd = 1 / sqrtf(slots_sum(square) / (float)n->columns + n->eps);
    n->rstd[r] = rstd;
    if (n->b)
        ROW_EACH(n->columns, scale_lanes, row_at(n->y, r), x, mean, rstd, n->w, n->plus, n->b, bf16);
    else
        ROW_EACH(n->columns, scale_lanes, row_at(n->y, r), x, mean, rstd, n->w, n->plus, NULL, bf16);
}

static void norm_rows(const void *args, int64_t from, int64_t to) {
    const struct norm *n = args;
    for (int64_t r = from; r < to; r++) {
        if (n->centered)
            n->bf16 ? norm_row(n, r, true, true) : norm_row(n, r, true, false);
        else
            n->bf16 ? norm_row(n, r, false, true) : norm_row(n, r, false, false);
    }
}

static void norm_forward(const struct call *call, bool centered) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    struct norm n = {
        .bf16 = x->dtype == DTYPE_BF16,
        .centered = centered,
        .count = x->dim[0],
        .columns = x->dim[1],
        .eps = (float)call->attribute[0].f,
        .plus = centered ? 0 : (float)call->attribute[1].f,
        .x = rows_of(x),
        .y = rows_of(y),
        .w = call->in[1].data,
        .b = centered ? call->in[2].data : NULL,
        .mean = centered ? call->out[1].data : NULL,
        .rstd = call->out[centered ? 2 : 1].data,
    };
    run_split(call, n.count, n.count * n.columns, norm_rows, &n);
}

void ISA(cpu_layernorm)(const struct call *call) {
    norm_forward(call, true);
}

void ISA(cpu_rmsnorm)(const struct call *call) {
    norm_forward(call, false);
}

// ---- backward

VEC_INLINE void average_lanes(int64_t i, int count, int slot, vec_f32 *sum, vec_f32 *sum_xhat, const void *dy,
                              const void *w, float plus, const void *x, float mean, float rstd, bool bf16) {
    vec_f32 u = row_load(dy, i, count, bf16) * (row_load(w, i, count, bf16) + plus);
    sum[slot] += u;
    sum_xhat[slot] += u * ((row_load(x, i, count, bf16) - mean) * rstd);
}

// One row's terms of the backward pass. `dx`, `res` and `dw` are NULL where not wanted.
struct norm_terms {
    float mean, rstd, plus, average, average_xhat;
    const void *x, *w, *dy, *res;
    void *dx;
    float *dw, *db;
};

VEC_INLINE void backward_lanes(int64_t i, int count, const struct norm_terms *t, bool centered, bool bf16) {
    vec_f32 xhat = row_load(t->x, i, count, bf16);
    xhat = centered ? (xhat - t->mean) * t->rstd : xhat * t->rstd;
    vec_f32 dy = row_load(t->dy, i, count, bf16);
    if (t->dw) {
        row_store(t->dw, i, count, row_load(t->dw, i, count, false) + dy * xhat, false);
        if (centered)
            row_store(t->db, i, count, row_load(t->db, i, count, false) + dy, false);
    }
    if (t->dx) {
        vec_f32 dx = dy * (row_load(t->w, i, count, bf16) + t->plus) - xhat * t->average_xhat;
        dx = centered ? (dx - t->average) * t->rstd : dx * t->rstd;
        if (t->res)
            dx += row_load(t->res, i, count, bf16);
        row_store(t->dx, i, count, dx, bf16);
    }
}

VEC_INLINE void backward_row(const struct norm *n, int64_t r, float *dw, bool centered, bool bf16) {
    struct norm_terms t = {
        .mean = centered ? n->mean[r] : 0,
        .rstd = n->rstd[r],
        .plus = n->plus,
        .x = row_at(n->x, r),
        .dy = row_at(n->dy, r),
        .w = n->w,
    };
    if (!n->dx.data) {
        t.dw = dw;
        t.db = dw + n->padded;
        ROW_EACH(n->columns, backward_lanes, &t, centered, bf16);
        return;
    }
    vec_f32 sum[SLOTS] = {0}, sum_xhat[SLOTS] = {0};
    ROW_SUM(n->columns, average_lanes, sum, sum_xhat, t.dy, t.w, t.plus, t.x, t.mean, t.rstd, bf16);
    t.average = slots_sum(sum) / (float)n->columns;
    t.average_xhat = slots_sum(sum_xhat) / (float)n->columns;
    t.dx = row_at(n->dx, r);
    if (n->res.data)
        t.res = row_at(n->res, r);
    if (dw) {
        t.dw = dw;
        t.db = dw + n->padded;
        ROW_EACH(n->columns, backward_lanes, &t, centered, bf16);
    } else {
        ROW_EACH(n->columns, backward_lanes, &t, centered, bf16);
    }
}

static void backward_blocks(const void *args, int64_t from, int64_t to) {
    const struct norm *n = args;
    for (int64_t block = from; block < to; block++) {
        float *dw = n->partial ? n->partial + block * 2 * n->padded : NULL;
        if (dw)
            memset(dw, 0, 2 * (size_t)n->padded * sizeof *dw);
        int64_t end = MIN((block + 1) * n->block_rows, n->count);
        for (int64_t r = block * n->block_rows; r < end; r++) {
            if (n->centered)
                n->bf16 ? backward_row(n, r, dw, true, true) : backward_row(n, r, dw, true, false);
            else
                n->bf16 ? backward_row(n, r, dw, false, true) : backward_row(n, r, dw, false, false);
        }
    }
}

VEC_INLINE void add_blocks_lanes(int64_t i, int count, float *out, const float *partial, const struct norm *n) {
    vec_f32 sum = n->accumulate ? row_load(out, i, count, false) : (vec_f32){0};
    for (int64_t block = 0; block < n->blocks; block++)
        sum += row_load(partial + block * 2 * n->padded, i, count, false);
    row_store(out, i, count, sum, false);
}

// Threads split the columns into groups: first those of dw, then those of db.
static void add_blocks(const void *args, int64_t from, int64_t to) {
    const struct norm *n = args;
    int64_t groups = n->padded / COLUMN_GROUP;
    for (int64_t group = from; group < to; group++) {
        int64_t column = group % groups * COLUMN_GROUP;
        float *out = group < groups ? n->dw : n->db;
        ROW_EACH(MIN(COLUMN_GROUP, n->columns - column), add_blocks_lanes, out + column,
                 n->partial + group * COLUMN_GROUP, n);
    }
}

static int64_t padded_of(int64_t columns) {
    return round_up(columns, COLUMN_GROUP);
}

static void norm_backward(const struct call *call, bool centered, bool dx, bool dw) {
    const struct tensor *in = call->in, *x = in++;
    struct norm n = {
        .bf16 = x->dtype == DTYPE_BF16,
        .centered = centered,
        .count = x->dim[0],
        .columns = x->dim[1],
        .x = rows_of(x),
        .padded = padded_of(x->dim[1]),
        .accumulate = call->accumulate,
    };
    n.blocks = blocks_of(n.count, BLOCK_ROWS, MAX_BLOCKS, &n.block_rows);
    if (dx) {
        n.w = in++->data;
        n.plus = centered ? 0 : (float)call->attribute[0].f;
    }
    if (centered)
        n.mean = in++->data;
    n.rstd = in++->data;
    n.dy = rows_of(in++);
    if (dx) {
        n.res = rows_of(in);
        n.dx = rows_of(&call->out[0]);
    }
    if (dw) {
        n.partial = call->workspace;
        n.dw = call->out[dx].data;
        n.db = centered ? call->out[dx + 1].data : NULL;
    }
    run_split(call, n.blocks, n.count * n.columns, backward_blocks, &n);
    if (dw)
        run_split(call, (n.db ? 2 : 1) * n.padded / COLUMN_GROUP, n.blocks * n.columns, add_blocks, &n);
}

trireme_status ISA(cpu_norm_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                     trireme_error *error) {
    (void)error;
    int64_t block_rows, blocks = blocks_of(call->in[0].dim[0], BLOCK_ROWS, MAX_BLOCKS, &block_rows);
    *prepared = NULL;
    *workspace_bytes = blocks * 2 * padded_of(call->in[0].dim[1]) * (int64_t)sizeof(float);
    return TRIREME_OK;
}

void ISA(cpu_layernorm_dx)(const struct call *call) {
    norm_backward(call, true, true, false);
}

void ISA(cpu_layernorm_dw)(const struct call *call) {
    norm_backward(call, true, false, true);
}

void ISA(cpu_layernorm_bwd)(const struct call *call) {
    norm_backward(call, true, true, true);
}

void ISA(cpu_rmsnorm_dx)(const struct call *call) {
    norm_backward(call, false, true, false);
}

void ISA(cpu_rmsnorm_dw)(const struct call *call) {
    norm_backward(call, false, false, true);
}

void ISA(cpu_rmsnorm_bwd)(const struct call *call) {
    norm_backward(call, false, true, true);
}

// ---- of heads

void ISA(cpu_layernorm_heads)(const struct call *call) {
    for_heads(call, ISA(cpu_layernorm));
}

void ISA(cpu_layernorm_heads_dx)(const struct call *call) {
    for_heads(call, ISA(cpu_layernorm_dx));
}

void ISA(cpu_layernorm_heads_dw)(const struct call *call) {
    for_heads(call, ISA(cpu_layernorm_dw));
}

trireme_status ISA(cpu_norm_heads_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                           trireme_error *error) {
    const struct call one = head_call(call, 0);
    return ISA(cpu_norm_prepare)(&one, prepared, workspace_bytes, error);
}
