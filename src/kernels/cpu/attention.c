// Forward: for each block of queries, an online softmax over the blocks of keys (attention.h). Also for queries that
// follow a cache of keys, unless they are few, and over the keys of one part of a sequence: there the softmax begins
// with what queries have seen of other parts, as one score that is their log-sum-exp and whose value is their output.
#include "kernels/cpu/attention_matrix.h"

#include <math.h>
#include <omp.h>

// One thread's workspace, for a block of `rows` queries.
struct forward_space {
    int64_t rows;
    float *q;       // packed as a
    float *o, *sum; // [rows, columns]; [rows, LANES]: partial sums of the softmax's denominator
    float *base;    // [rows]: what the softmax is relative to
    float *k, *v;   // a block of keys, transposed, packed as b, and of values, as floats
    float *score;   // of a tile, rows SCORE_ROW apart; on matrix units of two
    float *split;   // on matrix units: their probabilities in two parts; and v is in pairs of keys
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
    w.base = attention_take(base, &w.bytes, w.rows);
    w.k = attention_take(base, &w.bytes, s->units * ATTENTION_KEYS);
    w.v = attention_take(base, &w.bytes, ATTENTION_KEYS * s->columns);
    w.score = attention_take(base, &w.bytes, 2 * LANES * SCORE_ROW);
    w.split = attention_take(base, &w.bytes, attention_matrix(s) ? 2 * LANES * ATTENTION_KEYS : 0);
    return w;
}

// What a query sees of a block of keys: the columns [low, high); `masked` if its tile computes more than these.
struct sight {
    int64_t low, high;
    bool masked;
};

static struct sight sight_of(const struct attention *s, int64_t b, int64_t t, int64_t j0, struct visible span) {
    const int64_t low = attention_range(s, b, t).low - j0, high = attention_range(s, b, t).high - j0;
    return (struct sight){low, high, low > span.c0 || high < span.c1};
}

// The greatest of one row's scores.
VEC_INLINE float greatest_score(bool masked, struct visible span, struct sight sight, float scale, const float *score) {
    vec_f32 top = vec_splat(-INFINITY);
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        const vec_f32 x = vec_load(score + c) * scale;
        top = vec_max(masked ? vec_select(span_mask(c, sight.low, sight.high), x, vec_splat(-INFINITY)) : x, top);
    }
    return vec_max_lane(top);
}

// The score that the probabilities of one row are relative to: no score so far exceeds it by more than RISE. It changes
// only when one does, and what has been summed is then scaled down: seldom after the first block of keys.
static float softmax_base(const struct attention *s, const struct forward_space *w, int64_t row, struct visible span,
                          struct sight sight, const float *score) {
    enum { RISE = 8 };
    float *base = w->base + row, *sum = w->sum + row * LANES, *o = w->o + row * s->columns;
    const float greatest = sight.masked ? greatest_score(true, span, sight, s->scale, score)
                                        : greatest_score(false, span, sight, s->scale, score);
    if (greatest > *base + RISE) {
        const vec_f32 shrink = vec_exp(vec_splat(*base - greatest));
        vec_store(sum, vec_load(sum) * shrink);
        for (int64_t c = 0; c < s->columns; c += LANES)
            vec_store(o + c, vec_load(o + c) * shrink);
        *base = greatest;
    }
    return *base;
}

// Turns the scores of one row into probabilities, which are added to `sum`.
VEC_INLINE void softmax_row(bool masked, struct visible span, struct sight sight, float scale, float base, float *score,
                            float *sum) {
    vec_f32 total = vec_load(sum);
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        const vec_f32 p = attention_probability(masked, score, c, sight.low, sight.high, scale, base);
        total += p;
        vec_store(score + c, p);
    }
    vec_store(sum, total);
}

// Adds to o the values of the keys that row i of a tile sees, and of these alone, times their probabilities.
static void attention_add_seen(const struct attention *s, const struct forward_space *w, int64_t i, struct sight sight,
                               struct visible span, int64_t row) {
    const int64_t low = MAX(sight.low, span.low), high = MIN(sight.high, span.high);
    attention_add_row(s->columns, high - low, w->score + i * SCORE_ROW + low, 1, w->v + low * s->columns, s->columns,
                      w->o + row * s->columns);
}

// Queries [t, t1) of a block from t0 on against one block of keys from j0 on.
VEC_INLINE void forward_tile(const struct attention *s, bool pairs, bool careful, const struct forward_space *w,
                             int64_t b, int64_t t0, int64_t t, int64_t t1, int64_t j0, int64_t keys) {
    const struct visible span = attention_span(s, b, t, t1, j0, keys);
    if (span.low >= span.high)
        return;
    const float *q = w->q + pack_a_row(s->bf16, s->units, t - t0);
    attention_scores(pairs, span.c1 - span.c0, s->units, q, w->k + span.c0, w->score + span.c0);
    for (int64_t i = 0; i < t1 - t && s->cap > 0; i++)
        attention_cap_row(s, span.c0, span.c1, w->score + i * SCORE_ROW);
    for (int64_t i = 0; i < t1 - t; i++) {
        const int64_t row = t - t0 + i;
        float *score = w->score + i * SCORE_ROW, *sum = w->sum + row * LANES;
        const struct sight sight = sight_of(s, b, t + i, j0, span);
        const float base = softmax_base(s, w, row, span, sight, score);
        if (sight.masked)
            softmax_row(true, span, sight, s->scale, base, score, sum);
        else
            softmax_row(false, span, sight, s->scale, base, score, sum);
        if (careful)
            attention_add_seen(s, w, i, sight, span, row);
    }
    if (!careful)
        attention_multiply(false, s->columns, MIN(span.c1, keys) - span.c0, w->score + span.c0, SCORE_ROW, 1,
                           w->v + span.c0 * s->columns, s->columns, w->o + (t - t0) * s->columns, s->columns, true);
}

#ifdef ISA_HAS_AMX
// A tile of queries [t, end) and the keys that it sees. Neighbouring tiles alternate between two sets of scores and of
// probabilities.
struct tile {
    int64_t t, end;
    struct visible span;
    float *score;
    struct halves p;
};

// The first tile from t on that sees some of the block of keys; one with t = t1 where there is none.
static struct tile tile_from(const struct attention *s, const struct forward_space *w, int64_t b, int64_t t, int64_t t1,
                             int64_t j0, int64_t keys, int set) {
    enum { HALF = AMX_SIDE * ATTENTION_KEYS / 2 };
    for (; t < t1; t += AMX_SIDE) {
        const int64_t end = MIN(t + AMX_SIDE, t1);
        const struct visible span = attention_span(s, b, t, end, j0, keys);
        if (span.low < span.high)
            return (struct tile){t, end, span, w->score + set * AMX_SIDE * SCORE_ROW,
                                 halves_at(w->split + 2 * set * HALF, HALF)};
    }
    return (struct tile){.t = t1};
}

static struct row_product scores_of(const struct attention *s, const struct forward_space *w, const struct tile *tile,
                                    int64_t t0) {
    const struct visible span = tile->span;
    return (struct row_product){.units = s->units,
                                .a = w->q + pack_a_row(true, s->units, tile->t - t0),
                                .b = w->k + span.c0,
                                .b_row = ATTENTION_KEYS,
                                .columns = span.c1 - span.c0,
                                .out = tile->score + span.c0,
                                .out_row = SCORE_ROW};
}

// The product of a tile's probabilities and values, which is added to o.
static struct row_product values_of(const struct attention *s, const struct forward_space *w, const struct tile *tile,
                                    int64_t t0) {
    return (struct row_product){.units = (tile->span.c1 - tile->span.c0) / 2,
                                .a = tile->p.high,
                                .low = tile->p.low,
                                .b = w->v + tile->span.c0 / 2 * s->columns,
                                .b_row = s->columns,
                                .columns = s->columns,
                                .out = w->o + (tile->t - t0) * s->columns,
                                .out_row = s->columns,
                                .add = true};
}

// softmax_row for row i of a tile, with probabilities in two parts.
VEC_INLINE void softmax_row_matrix(bool masked, const struct tile *tile, int64_t i, struct sight sight, float scale,
                                   float base, float *sum, struct beside *beside) {
    const float *score = tile->score + i * SCORE_ROW;
    vec_f32 total = vec_load(sum);
    for (int64_t c = tile->span.c0; c < tile->span.c1; c += 2 * LANES) {
        vec_f32 p[2];
        beside_more(beside);
        for (int k = 0; k < 2; k++) {
            p[k] = attention_probability(masked, score, c + k * LANES, sight.low, sight.high, scale, base);
            total += p[k];
        }
        split_along(i, c - tile->span.c0, p, tile->p);
    }
    vec_store(sum, total);
}

// Queries [t0, t1) against one block of keys, on matrix units: while the softmax of a tile is computed, they make the
// scores of the next and what the one before adds to o.
static void forward_tiles_matrix(const struct attention *s, const struct forward_space *w, int64_t b, int64_t t0,
                                 int64_t t1, int64_t j0, int64_t keys) {
    int set = 0;
    struct tile tile = tile_from(s, w, b, t0, t1, j0, keys, set);
    struct beside beside = {0};
    if (tile.t < t1)
        beside_add(&beside, scores_of(s, w, &tile, t0));
    beside_end(&beside);
    while (tile.t < t1) {
        set = !set;
        const struct tile next = tile_from(s, w, b, tile.end, t1, j0, keys, set);
        if (next.t < t1)
            beside_add(&beside, scores_of(s, w, &next, t0));
        beside.parts = (tile.end - tile.t) * ((tile.span.c1 - tile.span.c0) / (2 * LANES));
        for (int64_t i = 0; i < tile.end - tile.t; i++) {
            const int64_t row = tile.t - t0 + i;
            const struct sight sight = sight_of(s, b, tile.t + i, j0, tile.span);
            if (s->cap > 0)
                attention_cap_row(s, tile.span.c0, tile.span.c1, tile.score + i * SCORE_ROW);
            const float base = softmax_base(s, w, row, tile.span, sight, tile.score + i * SCORE_ROW);
            float *sum = w->sum + row * LANES;
            if (sight.masked)
                softmax_row_matrix(true, &tile, i, sight, s->scale, base, sum, &beside);
            else
                softmax_row_matrix(false, &tile, i, sight, s->scale, base, sum, &beside);
        }
        beside_end(&beside);
        beside_add(&beside, values_of(s, w, &tile, t0));
        tile = next;
    }
    beside_end(&beside);
}
#endif

// Where row t of one head of x is.
static char *forward_row(const struct tensor *x, int64_t b, int64_t head, int64_t t) {
    return (char *)x->data + (b * x->stride[0] + t * x->stride[1] + head * x->stride[2]) * dtype_size(x->dtype);
}

// The softmax of a block of queries before the first key: of the sink and of what has been seen before.
static void forward_begin(const struct attention *s, const struct forward_space *w, int64_t b, int64_t head, int64_t t0,
                          int64_t t1) {
    const float sink = attention_sink(s, head);
    memset(w->o, 0, (size_t)(w->rows * s->columns) * sizeof *w->o);
    memset(w->sum, 0, (size_t)(w->rows * LANES) * sizeof *w->sum);
    for (int64_t i = 0; i < w->rows; i++) {
        const bool merges = s->before && i < t1 - t0;
        const float lse = merges ? s->before_lse[(b * s->heads + head) * s->length + t0 + i] : -INFINITY;
        w->base[i] = fmaxf(fmaxf(sink, lse), -1e30f); // finite: a row may see no key of a block before its first
        w->sum[i * LANES] = expf(sink - w->base[i]);
        if (!merges)
            continue;
        const float part = expf(lse - w->base[i]), *row = (const float *)forward_row(s->before, b, head, t0 + i);
        float *o = w->o + i * s->columns;
        int64_t c = 0;
        w->sum[i * LANES] += part;
        for (; c + LANES <= s->width; c += LANES)
            vec_store(o + c, vec_load(row + c) * part);
        for (; c < s->width; c++)
            o[c] = row[c] * part;
    }
}

// The denominator of a row's softmax; of one that has seen nothing, whose sums are 0, it is 1.
static float forward_divisor(const struct attention *s, const struct forward_space *w, int64_t b, int64_t t,
                             int64_t row) {
    const float sum = vec_sum(vec_load(w->sum + row * LANES));
    return sum == 0 && attention_range(s, b, t).low >= attention_range(s, b, t).high ? 1 : sum;
}

// Whether all outputs of a block will be finite.
static bool forward_finite(const struct attention *s, const struct forward_space *w, int64_t b, int64_t t0,
                           int64_t t1) {
    vec_f32 all = {0};
    for (int64_t t = t0; t < t1; t++) {
        const float divisor = forward_divisor(s, w, b, t, t - t0);
        for (int64_t c = 0; c < s->columns; c += LANES)
            all += vec_load(w->o + (t - t0) * s->columns + c) / divisor * 0; // stays 0, or becomes NaN
    }
    return vec_sum(all) == 0;
}

// Divides by the softmax's denominator and stores o and lse; returns whether o is finite.
static bool forward_finish(const struct attention *s, const struct forward_space *w, int64_t b, int64_t head,
                           int64_t t0, int64_t t1) {
    const float sink = attention_sink(s, head);
    vec_f32 all = {0};
    for (int64_t t = t0; t < t1; t++) {
        float *row = w->o + (t - t0) * s->columns;
        const float sum = vec_sum(vec_load(w->sum + (t - t0) * LANES)), divisor = forward_divisor(s, w, b, t, t - t0);
        const int64_t at = (b * s->heads + head) * s->length + t;
        for (int64_t c = 0; c < s->columns; c += LANES) {
            const vec_f32 x = vec_load(row + c) / divisor;
            vec_store(row + c, x);
            all += x * 0; // stays 0, or becomes NaN
        }
        attention_store(forward_row(s->o, b, head, t), s->o->dtype, row, s->width);
        if (s->lse)
            s->lse[at] = w->base[t - t0] + logf(sum);
        if (s->sunk)
            s->sunk[at] = expf(sink - w->base[t - t0]) / sum;
    }
    return vec_sum(all) == 0;
}

// Queries [t0, t1) of one head against one block of keys.
static void forward_keys(const struct attention *s, const struct forward_space *w, bool careful, int64_t b,
                         int64_t head, int64_t t0, int64_t t1, int64_t j0, int64_t keys) {
    const int64_t group = head / (s->heads / s->groups);
    const struct matrix k = attention_columns(s->k, b, group), v = attention_rows(s->v, b, group);
    ISA(pack_b)(s->bf16, &k, 0, s->width, j0, keys, ATTENTION_KEYS / LANES, w->k);
#ifdef ISA_HAS_AMX
    if (s->bf16 && !careful) {
        ISA(pack_b)(true, &v, j0, keys, 0, s->width, (int)(s->columns / LANES), w->v);
        forward_tiles_matrix(s, w, b, t0, t1, j0, keys);
        return;
    }
#endif
    attention_widen(&v, s->bf16, j0, keys, s->width, s->columns, w->v);
    for (int64_t t = t0, end; t < t1; t = end) {
        end = MIN(t + attention_height(s), t1);
        if (s->bf16 && TILE_PAIRS)
            forward_tile(s, true, careful, w, b, t0, t, end, j0, keys);
        else
            forward_tile(s, false, careful, w, b, t0, t, end, j0, keys);
    }
}

// One block of queries of one head, row by row if `careful` (attention.h); returns whether the outputs are finite.
// Where they are not, what was seen before is still needed: it is not overwritten then.
static bool forward_block(const struct attention *s, const struct forward_space *w, bool careful, int64_t b,
                          int64_t head, int64_t t0, int64_t t1) {
    const int64_t low = attention_range(s, b, t0).low, high = attention_range(s, b, t1 - 1).high;
    const bool in_place = s->before && s->before->data == s->o->data;
    if (low >= high && in_place && !s->sinks)
        return true;
    forward_begin(s, w, b, head, t0, t1);
    if (low < high) {
        const struct matrix q = attention_rows(s->q, b, head);
        ISA(pack_a)(s->bf16, &q, t0, t1 - t0, 0, s->width, w->q, NULL);
    }
    for (int64_t j0 = low / ATTENTION_KEYS * ATTENTION_KEYS; j0 < high; j0 += ATTENTION_KEYS)
        if (attention_meets(s, b, t0, t1, j0, j0 + ATTENTION_KEYS))
            forward_keys(s, w, careful, b, head, t0, t1, j0, MIN(ATTENTION_KEYS, high - j0));
    if (in_place && !careful && !forward_finite(s, w, b, t0, t1))
        return false;
    return forward_finish(s, w, b, head, t0, t1);
}

static int64_t ranges_bytes(const struct attention *s) {
    int64_t bytes = 0;
    attention_take(NULL, &bytes, attention_range_floats(s));
    return bytes;
}

int64_t ISA(attention_forward_workspace)(const struct attention *s, int threads) {
    return ranges_bytes(s) + threads * forward_space(s, threads, NULL).bytes;
}

void ISA(attention_forward)(const struct attention *given, int threads, char *workspace) {
    struct attention s = *given;
    const struct forward_space sizes = forward_space(&s, threads, NULL);
    const int64_t rows = sizes.rows, blocks = divide_up(s.length, rows);
    struct range *range = (struct range *)workspace;
    s.range = range;
    workspace += ranges_bytes(&s);
#pragma omp parallel num_threads(threads)
    {
        tile_begin(s.bf16);
        const struct forward_space w = forward_space(&s, threads, workspace + omp_get_thread_num() * sizes.bytes);
        attention_find_ranges(&s, range);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < blocks * s.batch * s.heads; i++) { // of a head the longest first
            const int64_t b = i / blocks / s.heads, head = i / blocks % s.heads;
            const int64_t t = (blocks - 1 - i % blocks) * rows, t1 = MIN(t + rows, s.length);
            if (!forward_block(&s, &w, false, b, head, t, t1))
                forward_block(&s, &w, true, b, head, t, t1);
        }
        tile_end(s.bf16);
    }
}

void ISA(cpu_attention)(const struct call *call) {
    struct attention s = attention_of(call, &call->out[0], call->out[1].data);
    attention_place(&s, call);
    if (call->op == OP_ATTENTION)
        s.sunk = call->out[OUTPUT(ATTENTION, sunk)].data;
    else if (call->in[INPUT(ATTENTION_BLOCK, before)].data) {
        s.before = &call->in[INPUT(ATTENTION_BLOCK, before)];
        s.before_lse = call->in[INPUT(ATTENTION_BLOCK, before_lse)].data;
    }
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
