// Forward: for each block of queries, an online softmax over the blocks of keys (attention.h). Also for queries that
// follow a cache of keys, unless they are few.
#include "kernels/cpu/attention_matrix.h"

#include <math.h>
#include <omp.h>

// What one thread works in, for a block of `rows` queries.
struct forward_space {
    int64_t rows;
    float *q;       // packed as a
    float *o, *sum; // [rows, columns]; [rows, LANES]: partial sums of the softmax's denominator
    float *max;     // [rows]
    float *k, *v;   // a block of keys, transposed, packed as b, and of values, as floats
    float *score;   // of a tile, rows SCORE_ROW apart
    float *split;   // on matrix units: its probabilities in two parts; and v is in pairs of keys
    int64_t bytes;
};

// Queries of one block: enough to pay for the packing of keys, few enough to stay in the second-level cache and to give
// every thread a fair share.
static int64_t forward_rows(const struct attention *s, int threads) {
    int64_t rows = 512;
    while (rows > 64 && (rows * s->columns > 32768 || s->batch * s->heads * s->length < 4 * threads * rows))
        rows /= 2;
    return rows;
}

static struct forward_space forward_space(const struct attention *s, int threads, char *base) {
    struct forward_space w = {.rows = forward_rows(s, threads)};
    w.q = attention_take(base, &w.bytes, w.rows * (s->units + LANES));
    w.o = attention_take(base, &w.bytes, w.rows * s->columns);
    w.sum = attention_take(base, &w.bytes, w.rows * LANES);
    w.max = attention_take(base, &w.bytes, w.rows);
    w.k = attention_take(base, &w.bytes, s->units * ATTENTION_KEYS);
    w.v = attention_take(base, &w.bytes, ATTENTION_KEYS * s->columns);
    w.score = attention_take(base, &w.bytes, attention_height(s) * SCORE_ROW);
    w.split = attention_take(base, &w.bytes, attention_matrix(s) ? attention_height(s) * ATTENTION_KEYS : 0);
    return w;
}

// Scores of one row to probabilities relative to the greatest so far; what was summed before shrinks to match.
VEC_INLINE void softmax_row(const struct attention *s, bool masked, struct span span, int64_t low, int64_t high,
                            float *score, float *max, float *sum, float *o) {
    vec_f32 top = vec_splat(*max);
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        vec_f32 x = vec_load(score + c) * s->scale;
        if (masked)
            x = vec_select(span_mask(c, low, high), x, vec_splat(-INFINITY));
        vec_store(score + c, x);
        top = vec_max(x, top);
    }
    float greatest = vec_max_lane(top);
    vec_f32 total = vec_load(sum);
    if (greatest > *max) {
        vec_f32 shrink = vec_exp(vec_splat(*max - greatest));
        total *= shrink;
        for (int64_t c = 0; c < s->columns; c += LANES)
            vec_store(o + c, vec_load(o + c) * shrink);
        *max = greatest;
    }
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        vec_f32 p = vec_exp(vec_load(score + c) - greatest);
        total += p;
        vec_store(score + c, p);
    }
    vec_store(sum, total);
}

// One tile of queries [t0, t1) against one block of keys from j0 on.
VEC_INLINE void forward_tile(const struct attention *s, bool pairs, const struct forward_space *w, int64_t b,
                             int64_t row, int64_t t0, int64_t t1, int64_t j0, int64_t keys) {
    struct span span = attention_span(s, b, t0, t1, j0, keys);
    if (span.low >= span.high)
        return;
    const int64_t columns = span.c1 - span.c0;
    float *o = w->o + row * s->columns;
    const float *q = w->q + pack_a_row(s->bf16, s->units, row);
#ifdef __AMX_BF16__
    if (pairs)
        matrix_multiply_row(1, &(struct amx_product){s->units, q, 0, w->k + span.c0, ATTENTION_KEYS}, columns,
                            w->score + span.c0, SCORE_ROW, false);
    else
#endif
        attention_multiply(pairs, columns, s->units, q, s->units + LANES, 1, w->k + span.c0, ATTENTION_KEYS,
                           w->score + span.c0, SCORE_ROW, false);
    for (int64_t t = t0; t < t1; t++) {
        int64_t i = t - t0, low = attention_low(s, b, t) - j0, high = t + 1 - j0;
        float *score = w->score + i * SCORE_ROW;
        float *max = w->max + row + i, *sum = w->sum + (row + i) * LANES;
        if (low <= span.c0 && high >= span.c1)
            softmax_row(s, false, span, low, high, score, max, sum, o + i * s->columns);
        else
            softmax_row(s, true, span, low, high, score, max, sum, o + i * s->columns);
    }
#ifdef __AMX_BF16__
    if (pairs) {
        const struct halves p = {w->split, w->split + AMX_SIDE * ATTENTION_KEYS / 2};
        const float *v = w->v + span.c0 / 2 * s->columns;
        for (int64_t i = 0; i < t1 - t0; i++)
            split_row(w->score + i * SCORE_ROW + span.c0, i, columns, p);
        matrix_multiply_row(
            2, (struct amx_product[]){{columns / 2, p.high, 0, v, s->columns}, {columns / 2, p.low, 0, v, s->columns}},
            s->columns, o, s->columns, true);
        return;
    }
#endif
    attention_multiply(false, s->columns, MIN(span.c1, keys) - span.c0, w->score + span.c0, SCORE_ROW, 1,
                       w->v + span.c0 * s->columns, s->columns, o, s->columns, true);
}

static void forward_finish(const struct attention *s, const struct forward_space *w, int64_t b, int64_t head,
                           int64_t t0, int64_t t1) {
    const struct tensor *o = s->o;
    for (int64_t t = t0; t < t1; t++) {
        float *row = w->o + (t - t0) * s->columns;
        float sum = vec_sum(vec_load(w->sum + (t - t0) * LANES));
        for (int64_t c = 0; c < s->columns; c += LANES)
            vec_store(row + c, vec_load(row + c) / sum);
        int64_t at = b * o->stride[0] + (t - s->first) * o->stride[1] + head * o->stride[2];
        attention_store((char *)o->data + at * dtype_size(o->dtype), o->dtype, row, s->width);
        if (s->lse)
            s->lse[(b * s->heads + head) * s->length + t] = w->max[t - t0] + logf(sum);
    }
}

static void forward_block(const struct attention *s, const struct forward_space *w, int64_t b, int64_t head, int64_t t0,
                          int64_t t1) {
    int64_t group = head / (s->heads / s->groups);
    const struct matrix q = attention_rows(s->q, b, head), v = attention_rows(s->v, b, group);
    const struct matrix k = attention_columns(s->k, b, group);
    ISA(pack_a)(s->bf16, &q, t0 - s->first, t1 - t0, 0, s->width, w->q, NULL);
    memset(w->o, 0, (size_t)(w->rows * s->columns) * sizeof *w->o);
    memset(w->sum, 0, (size_t)(w->rows * LANES) * sizeof *w->sum);
    for (int64_t i = 0; i < w->rows; i++)
        w->max[i] = -1e30f; // finite: a row may see no key of a block before its first
    for (int64_t j0 = attention_low(s, b, t0) / ATTENTION_KEYS * ATTENTION_KEYS; j0 < t1; j0 += ATTENTION_KEYS) {
        int64_t keys = MIN(ATTENTION_KEYS, s->first + s->length - j0);
        ISA(pack_b)(s->bf16, &k, 0, s->width, j0, keys, ATTENTION_KEYS / LANES, w->k);
        if (attention_matrix(s))
            ISA(pack_b)(true, &v, j0, keys, 0, s->width, (int)(s->columns / LANES), w->v);
        else
            attention_widen(&v, s->bf16, j0, keys, s->width, s->columns, w->v);
        for (int64_t t = t0; t < t1; t += attention_height(s))
            if (s->bf16 && TILE_PAIRS)
                forward_tile(s, true, w, b, t - t0, t, MIN(t + attention_height(s), t1), j0, keys);
            else
                forward_tile(s, false, w, b, t - t0, t, MIN(t + TILE_ROWS, t1), j0, keys);
    }
    forward_finish(s, w, b, head, t0, t1);
}

// Blocks of keys that the queries before t1 in the block of queries from t0 on see, documents aside.
static int64_t forward_cost(const struct attention *s, int64_t t0, int64_t t1) {
    int64_t first = s->window > 0 ? MAX(t0 - s->window + 1, 0) : 0;
    return (t1 - t0) * (t1 - first);
}

// Deals out consecutive items of known cost: whether the one that comes after `before` of `total` is this thread's.
static bool mine(int64_t before, int64_t total, int thread, int threads) {
    return (int)((double)before / (double)total * threads) == thread;
}

int64_t ISA(attention_forward_workspace)(const struct attention *s, int threads) {
    return threads * forward_space(s, threads, NULL).bytes;
}

void ISA(attention_forward)(const struct attention *s, int threads, char *workspace) {
    const int64_t bytes = forward_space(s, threads, NULL).bytes, rows = forward_space(s, threads, NULL).rows;
    const int64_t end = s->first + s->length;
    int64_t total = 0;
    for (int64_t t = s->first; t < end; t += rows)
        total += forward_cost(s, t, MIN(t + rows, end)) * s->batch * s->heads;
#pragma omp parallel num_threads(threads)
    {
        tile_begin(s->bf16);
        int thread = omp_get_thread_num(), team = omp_get_num_threads();
        const struct forward_space w = forward_space(s, threads, workspace + thread * bytes);
        int64_t before = 0;
        for (int64_t i = 0; i < s->batch * s->heads; i++)
            for (int64_t t = s->first; t < end; t += rows) {
                int64_t t1 = MIN(t + rows, end);
                if (mine(before, total, thread, team))
                    forward_block(s, &w, i / s->heads, i % s->heads, t, t1);
                before += forward_cost(s, t, t1);
            }
        tile_end(s->bf16);
    }
}

void ISA(cpu_attention)(const struct call *call) {
    const struct attention s = attention_of(call, &call->out[0], call->out[1].data);
    ISA(attention_forward)(&s, call->threads, call->workspace);
}

trireme_status ISA(cpu_attention_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error) {
    (void)error;
    const struct attention s = attention_of(call, &call->out[0], NULL);
    *prepared = NULL;
    *workspace_bytes = ISA(attention_forward_workspace)(&s, call->threads);
    return TRIREME_OK;
}
