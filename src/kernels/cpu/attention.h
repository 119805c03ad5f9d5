// Flash attention (Dao et al., "FlashAttention", NeurIPS 2022; Dao, "FlashAttention-2", 2023) on the register tile:
// scores exist for a tile of queries and a block of keys at a time, never as a T x T matrix.
//
// A query sees a range of the rows of keys (struct range), and neither end of it decreases from one query to the next:
// so it is with whole sequences and with any two parts of one (program/places.h), since rows are in the order of their
// tokens. So the keys that a tile of queries sees lie in one range too; only columns in it are computed, rounded
// outward to whole vectors, and those that some query of the tile does not see are masked. Blocks of keys lie at
// multiples of ATTENTION_KEYS whatever the thread count, and every sum runs over them in ascending order.
//
// Everything is packed for the tile: operand a as rows along the summed dimension, operand b as rows across it,
// `columns` (the width rounded up to vectors) wide. bf16 operands that are summed over the width are multiplied in
// pairs where the CPU can; those that are summed over keys or queries are widened, since probabilities and their
// gradients stay f32: rounded, they would be the greatest error of a step in bf16. Sums are f32. On matrix units this
// is different (attention_matrix.h).
//
// Keys that a query does not see have the probability 0, which keeps out every finite value; but 0 times infinity or
// NaN is NaN. If an output is not finite, everything that was computed with it is computed once more, row by row: each
// row then sums only over what it sees, in the same order as before.
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pack.h"
#include "program/places.h"

#include <math.h>

enum { ATTENTION_KEYS = 288 }; // per block: a multiple of TILE_COLUMNS everywhere
// Floats between the rows of scores: rows a power of two apart would fight for the same cache sets.
enum { SCORE_ROW = ATTENTION_KEYS + LANES };

// The rows of keys [low, high) that a query sees; none if low >= high.
struct range {
    int32_t low, high;
};

struct attention {
    int64_t batch, length, heads, groups, width; // groups: heads of keys and values
    int64_t keys;                                // rows of a sequence
    const struct tensor *q, *k, *v, *o;
    const int32_t *starts; // of each query, the place of the first token that it may see; NULL: all 0
    int64_t starts_row;
    struct places places;        // which tokens rows are
    int64_t first;               // where all is one part, the place of the first query
    int64_t q_part, k_part;      // whose rows queries and keys are
    const struct range *range;   // [batch, length]
    const struct tensor *before; // what queries have seen elsewhere, or NULL
    const float *before_lse;
    float *lse;        // [batch, heads, length], or NULL
    float *sunk;       // the same: what sinks take of the softmax
    const void *sinks; // [heads], in the dtype of q, or NULL: scores of value zero
    float scale, cap;  // scores stay within (-cap, cap); 0: no cap
    int64_t window;
    bool bf16;
    int64_t units;   // of the width
    int64_t columns; // width rounded up to vectors
};

static inline bool attention_is_block(const struct call *call) {
    return call->op == OP_ATTENTION_BLOCK || call->op == OP_ATTENTION_BLOCK_BWD;
}

// But for what data says: that is attention_place's, since whoever prepares has none to look at.
static inline struct attention attention_of(const struct call *call, const struct tensor *o, float *lse) {
    const struct tensor *q = &call->in[0], *starts = &call->in[3];
    const bool bf16 = q->dtype == DTYPE_BF16, forward = call->op == OP_ATTENTION || call->op == OP_ATTENTION_BLOCK;
    _Static_assert((int)INPUT(ATTENTION, sinks) == (int)INPUT(ATTENTION_BLOCK, sinks), "alike");
    return (struct attention){
        .batch = q->dim[0],
        .length = q->dim[1],
        .heads = q->dim[2],
        .groups = call->in[1].dim[2],
        .width = q->dim[3],
        .keys = call->in[1].dim[1],
        .q = q,
        .k = &call->in[1],
        .v = &call->in[2],
        .o = o,
        .starts = starts->data,
        .starts_row = starts->stride[0],
        .places.parts = 1,
        .lse = lse,
        .sinks = forward ? call->in[INPUT(ATTENTION, sinks)].data : NULL, // backward knows them from lse
        .scale = (float)call->attribute[0].f,
        .window = call->attribute[1].i,
        .cap = (float)call->attribute[2].f,
        .bf16 = bf16,
        .units = pack_units(bf16, q->dim[3]),
        .columns = round_up(q->dim[3], LANES),
    };
}

// Sets which tokens the rows of queries and keys are.
static inline void attention_place(struct attention *s, const struct call *call) {
    const int32_t first = call->in[4].data ? *(const int32_t *)call->in[4].data : 0;
    if (!attention_is_block(call)) {
        s->first = first;
        return;
    }
    const int64_t parts = call->attribute[ATTRIBUTE(ATTENTION_BLOCK, parts)].i, own = first / s->length;
    s->places = (struct places){call->attribute[ATTRIBUTE(ATTENTION_BLOCK, layout)].i, parts, s->length};
    const int64_t inner = call->attribute[ATTRIBUTE(ATTENTION_BLOCK, inner)].i;
    s->q_part = places_before(&s->places, own, call->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i, inner);
    s->k_part = places_before(&s->places, own, call->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i, inner);
}

// The floats of `range`.
static inline int64_t attention_range_floats(const struct attention *s) {
    return s->batch * s->length * (int64_t)(sizeof(struct range) / sizeof(float));
}

// What query row t sees.
static inline struct range attention_find_range(const struct attention *s, int64_t b, int64_t t) {
    const bool whole = s->places.parts == 1; // then rows are places
    const int64_t place = whole ? s->first + t : place_of(&s->places, s->q_part, t);
    const int64_t start = s->starts ? s->starts[b * s->starts_row + t] : 0;
    const int64_t from = s->window > 0 ? MAX(start, place - s->window + 1) : start;
    if (whole)
        return (struct range){(int32_t)MIN(from, s->keys), (int32_t)MIN(place + 1, s->keys)};
    return (struct range){(int32_t)MIN(places_below(&s->places, s->k_part, from), s->keys),
                          (int32_t)MIN(places_below(&s->places, s->k_part, place + 1), s->keys)};
}

// All threads of a team call this, before they look at ranges.
static inline void attention_find_ranges(const struct attention *s, struct range *range) {
#pragma omp for collapse(2) schedule(static)
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = 0; t < s->length; t++)
            range[b * s->length + t] = attention_find_range(s, b, t);
}

static inline struct range attention_range(const struct attention *s, int64_t b, int64_t t) {
    return s->range[b * s->length + t];
}

// The first of the queries [t0, t1) whose range ends, or begins, behind key j; t1 where none does.
enum attention_end { RANGE_LOW, RANGE_HIGH };
static inline int64_t attention_behind(const struct attention *s, enum attention_end end, int64_t b, int64_t t0,
                                       int64_t t1, int64_t j) {
    while (t0 < t1) {
        const int64_t t = t0 + (t1 - t0) / 2;
        const struct range range = attention_range(s, b, t);
        if ((end == RANGE_LOW ? range.low : range.high) > j)
            t1 = t;
        else
            t0 = t + 1;
    }
    return t0;
}

// Whether queries of [t0, t1) see any of the keys [j0, j1).
static inline bool attention_meets(const struct attention *s, int64_t b, int64_t t0, int64_t t1, int64_t j0,
                                   int64_t j1) {
    const int64_t t = attention_behind(s, RANGE_HIGH, b, t0, t1, j0);
    return t < t1 && attention_range(s, b, t).low < MIN(j1, attention_range(s, b, t1 - 1).high);
}

// Whether matrix units do the products (attention_matrix.h).
static inline bool attention_matrix(const struct attention *s) {
    return s->bf16 && TILE_MATRIX;
}

// The number of queries in a tile.
static inline int64_t attention_height(const struct attention *s) {
    return attention_matrix(s) ? LANES : TILE_ROWS;
}

// -infinity: the head has none.
static inline float attention_sink(const struct attention *s, int64_t head) {
    return s->sinks ? float_at(s->bf16, s->sinks, head) : -INFINITY;
}

// Rows t of one head as a matrix [length, width].
static inline struct matrix attention_rows(const struct tensor *x, int64_t b, int64_t head) {
    int64_t offset = b * x->stride[0] + head * x->stride[2];
    return (struct matrix){(const char *)x->data + offset * dtype_size(x->dtype), x->stride[1], 1};
}

// The same, transposed: [width, length].
static inline struct matrix attention_columns(const struct tensor *x, int64_t b, int64_t head) {
    struct matrix m = attention_rows(x, b, head);
    return (struct matrix){m.data, 1, m.row};
}

VEC_INLINE float attention_dot(bool bf16, const char *a, const char *b, int64_t width) {
    vec_f32 sum = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
        sum += vec_at(bf16, a, c) * vec_at(bf16, b, c);
    float total = vec_sum(sum);
    for (; c < width; c++)
        total += float_at(bf16, a, c) * float_at(bf16, b, c);
    return total;
}

// delta[batch, heads, length]: sum(do o). All threads of a team call this.
static inline void attention_find_deltas(const struct tensor *o, const struct tensor *d_o, float *delta) {
    const int64_t size = dtype_size(o->dtype), heads = o->dim[2], length = o->dim[1];
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < o->dim[0] * heads; i++) {
        const struct matrix a = attention_rows(o, i / heads, i % heads), b = attention_rows(d_o, i / heads, i % heads);
        for (int64_t t = 0; t < length; t++) {
            const char *x = (const char *)a.data + size * t * a.row, *y = (const char *)b.data + size * t * b.row;
            delta[i * length + t] =
                o->dtype == DTYPE_BF16 ? attention_dot(true, x, y, o->dim[3]) : attention_dot(false, x, y, o->dim[3]);
        }
    }
}

// The part of a block of keys that the queries of one tile see, counted from the block's first key.
struct visible {
    int64_t low, high; // seen by some; empty if low >= high
    int64_t c0, c1;    // rounded outward to vectors, for matrix units to two; if empty, of where it would be
};

// For the queries [t0, t1) and the keys [j0, j0 + keys).
static inline struct visible attention_span(const struct attention *s, int64_t b, int64_t t0, int64_t t1, int64_t j0,
                                            int64_t keys) {
    const int64_t step = attention_matrix(s) ? 2 * LANES : LANES;
    const int64_t low = MIN(MAX(attention_range(s, b, t0).low - j0, 0), ATTENTION_KEYS);
    const int64_t high = MIN(attention_range(s, b, t1 - 1).high - j0, keys);
    return (struct visible){low, high, low / step * step, round_up(MAX(low, high), step)};
}

// A mask of the lanes whose columns, from c on, lie in [low, high).
VEC_INLINE vec_i32 span_mask(int64_t c, int64_t low, int64_t high) {
    vec_i32 at;
    for (int i = 0; i < LANES; i++)
        at[i] = i;
    return (at >= vec_splat_i32((int32_t)(low - c))) & (at < vec_splat_i32((int32_t)(high - c)));
}

// e^(scale score - base) for LANES scores from column c on; with `masked`, 0 for columns outside [low, high).
VEC_INLINE vec_f32 attention_probability(bool masked, const float *score, int64_t c, int64_t low, int64_t high,
                                         float scale, float base) {
    const vec_f32 p = vec_exp(vec_load(score + c) * scale - base);
    return masked ? vec_select(span_mask(c, low, high), p, (vec_f32){0}) : p;
}

// Caps scores [c0, c1) of a row: what they become, times scale, is cap tanh(scale score / cap).
static inline void attention_cap_row(const struct attention *s, int64_t c0, int64_t c1, float *score) {
    const float in = s->scale / s->cap, out = s->cap / s->scale;
    for (int64_t c = c0; c < c1; c += LANES)
        vec_store(score + c, vec_tanh(vec_load(score + c) * in) * out);
}

// out[TILE_ROWS][columns] = or += a b, as tile_multiply has it, for any number of columns (a multiple of LANES).
VEC_INLINE void attention_multiply(bool pairs, int64_t columns, int64_t units, const void *a, int64_t a_row,
                                   int64_t a_step, const float *b, int64_t b_row, float *out, int64_t out_row,
                                   bool add) {
    int64_t c = 0, left = columns / LANES;
    // Threes, but two twos rather than a three and a one.
    for (; left >= 3 && left != 4; left -= 3, c += 3 * LANES)
        tile_multiply_3(pairs, units, a, a_row, a_step, b + c, b_row, NULL, out + c, out_row, add);
    for (; left >= 2; left -= 2, c += 2 * LANES)
        tile_multiply_2(pairs, units, a, a_row, a_step, b + c, b_row, NULL, out + c, out_row, add);
    if (left)
        tile_multiply_1(pairs, units, a, a_row, a_step, b + c, b_row, NULL, out + c, out_row, add);
}

// The sum of attention_multiply for one row, added in the same order: for rows that sum over units of their own.
VEC_INLINE void attention_add_row(int64_t columns, int64_t units, const float *a, int64_t a_step, const float *b,
                                  int64_t b_row, float *out) {
    for (int64_t c = 0; c < columns; c += LANES) {
        vec_f32 sum = {0};
        for (int64_t k = 0; k < units; k++)
            sum = sum + a[k * a_step] * vec_load(b + k * b_row + c);
        vec_store(out + c, sum + vec_load(out + c));
    }
}

// Whether all of x[floats] are finite; `floats` is a multiple of LANES.
VEC_INLINE bool attention_finite(const float *x, int64_t floats) {
    vec_f32 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * LANES <= floats; i += 4 * LANES)
        for (int k = 0; k < 4; k++)
            sum[k] += vec_load(x + i + k * LANES) * 0;
    for (; i < floats; i += LANES)
        sum[0] += vec_load(x + i) * 0;
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) == 0;
}

// Stores a row of `width` floats as `dtype` (f32 or bf16).
VEC_INLINE void attention_store(void *to, enum dtype dtype, const float *from, int64_t width) {
    if (dtype == DTYPE_F32) {
        memcpy(to, from, (size_t)width * sizeof *from);
        return;
    }
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
        vec_store_bf16((uint16_t *)to + c, vec_load(from + c));
    for (; c < width; c++)
        ((uint16_t *)to)[c] = bf16_from_float(from[c]);
}

// Rows [first, first + rows) of m as floats, `columns` apart, with zeros after the width.
VEC_INLINE void attention_widen(const struct matrix *m, bool bf16, int64_t first, int64_t rows, int64_t width,
                                int64_t columns, float *out) {
    for (int64_t i = 0; i < rows; i++, out += columns) {
        const char *row = (const char *)m->data + (bf16 ? 2 : 4) * (first + i) * m->row;
        int64_t c = 0;
        for (; c + LANES <= width; c += LANES)
            vec_store(out + c, vec_at(bf16, row, c));
        if (c < columns)
            vec_store(out + c, (vec_f32){0});
        for (; c < width; c++)
            out[c] = float_at(bf16, row, c);
    }
}

// The next `floats` of a workspace, whose bytes so far are *bytes; with base NULL it only counts.
static inline float *attention_take(char *base, int64_t *bytes, int64_t floats) {
    float *p = base ? (float *)(base + *bytes) : NULL;
    *bytes += round_up(4 * floats, 64);
    return p;
}

// Computes o and lse of all queries (attention.c), in a workspace as large as attention_forward_workspace says for the
// same sizes and threads.
void ISA(attention_forward)(const struct attention *s, int threads, char *workspace);
int64_t ISA(attention_forward_workspace)(const struct attention *s, int threads);

#endif
