// What attention does differently on matrix units (amx.h), in bf16. These multiply bf16 alone, but probabilities and
// their gradients are to stay f32: each becomes the sum of two bf16, its upper half and what that lacks, 15 to 16 bits
// of it in all, and is multiplied twice. Tiles are AMX_SIDE queries high, and what is summed over queries or keys is in
// pairs too.
#ifndef KERNELS_CPU_ATTENTION_MATRIX_H
#define KERNELS_CPU_ATTENTION_MATRIX_H

#include "kernels/cpu/attention.h"

#ifdef ISA_HAS_AMX

// The two parts of a matrix, side by side.
struct halves {
    float *high, *low;
};

static inline struct halves halves_at(float *p, int64_t floats) {
    return (struct halves){p, p + floats};
}

// The upper half of each float, with zeros below: a bf16. The difference from x is exact as a float.
VEC_INLINE vec_f32 upper(vec_f32 x) {
    return (vec_f32)((vec_u32)x & 0xffff0000u);
}

// Stores two vectors of floats as one of bf16, rounded to nearest.
VEC_INLINE void store_along(float *to, vec_f32 first, vec_f32 second) {
    const __m512bh x = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    memcpy(to, &x, sizeof x);
}

// 2 * LANES neighbours of row i of a tile, from a multiple of 2 * LANES on, into squares.
VEC_INLINE void split_along(int64_t i, int64_t column, const vec_f32 x[2], struct halves to) {
    const int64_t at = column / 2 * AMX_SIDE + i * AMX_SIDE;
    const vec_f32 high[2] = {upper(x[0]), upper(x[1])};
    store_along(to.high + at, high[0], high[1]);
    store_along(to.low + at, x[0] - high[0], x[1] - high[1]);
}

// LANES columns of two rows as pairs, as pack_b has them. The lower parts are rounded by adding half of what is cut.
VEC_INLINE void split_pairs(int64_t at, vec_f32 x, vec_f32 next, struct halves to) {
    const vec_f32 high = upper(x), next_high = upper(next);
    const vec_u32 low = (vec_u32)(x - high) + 0x8000u, next_low = (vec_u32)(next - next_high) + 0x8000u;
    vec_store(to.high + at, (vec_f32)((vec_u32)high >> 16 | (vec_u32)next_high));
    vec_store(to.low + at, (vec_f32)(low >> 16 | (next_low & 0xffff0000u)));
}

// out[AMX_SIDE][columns] = or += a b, or (a + low) b where `low` is not NULL; a and low in squares.
struct row_product {
    int64_t units;
    const float *a, *low, *b;
    int64_t b_row, columns;
    float *out;
    int64_t out_row;
    bool add;
};

// Such products, one after another, in steps between parts of work on vectors: a step takes the matrix units 16 or 32
// cycles, and they go on with it by themselves, as far as the CPU looks ahead.
struct beside {
    struct row_product queue[3];
    int queued, at;
    int64_t column, unit; // of the product at hand: where its next step is
    int vec;              // of up to four from `column` on, whose sums are in registers
    int64_t steps, done;  // of all that is queued
    int64_t part, parts;  // of the work on vectors
};

static inline void beside_add(struct beside *b, struct row_product p) {
    b->steps += p.columns / LANES * (p.units / AMX_SIDE);
    b->queue[b->queued++] = p;
}

VEC_INLINE void beside_step(struct beside *b) {
    const struct row_product *p = &b->queue[b->at];
    const int64_t as = 4 * AMX_SIDE, bs = 4 * p->b_row, os = 4 * p->out_row, c = b->column + b->vec * LANES;
    const bool first = b->unit == 0, last = b->unit + AMX_SIDE == p->units;
    const float *from = p->b + b->unit * p->b_row + c;
    float *out = p->out + c;
    amx_fence();
    if (b->vec == 0) {
        _tile_loadd(4, p->a + b->unit * AMX_SIDE, as);
        if (p->low)
            _tile_loadd(5, p->low + b->unit * AMX_SIDE, as);
    }
#define BESIDE_CASE(v, r)             \
    case v:                           \
        if (first && p->add)          \
            _tile_loadd(v, out, os);  \
        else if (first)               \
            _tile_zero(v);            \
        _tile_loadd(r, from, bs);     \
        _tile_dpbf16ps(v, 4, r);      \
        if (p->low)                   \
            _tile_dpbf16ps(v, 5, r);  \
        if (last)                     \
            _tile_stored(v, out, os); \
        break
    switch (b->vec) {
        BESIDE_CASE(0, 6);
        BESIDE_CASE(1, 7);
        BESIDE_CASE(2, 6);
        BESIDE_CASE(3, 7);
    }
#undef BESIDE_CASE
    b->done++;
    if (++b->vec < 4 && c + LANES < p->columns)
        return;
    b->vec = 0;
    b->unit += AMX_SIDE;
    if (b->unit < p->units)
        return;
    b->unit = 0;
    b->column += 4 * LANES;
    if (b->column < p->columns)
        return;
    b->column = 0;
    b->at++;
}

// Runs the steps that are due before the next of `parts` equal parts of the work on vectors.
VEC_INLINE void beside_more(struct beside *b) {
    b->part++;
    while (b->done * b->parts < b->steps * b->part && b->done < b->steps)
        beside_step(b);
}

// Runs the rest of the queue, which is empty then.
static inline void beside_end(struct beside *b) {
    while (b->done < b->steps)
        beside_step(b);
    *b = (struct beside){0};
}

// out[tiles * AMX_SIDE][2 * LANES] += a (b.high + b.low), for 1 or 2 tiles, a_tile apart; b's rows are b_row apart.
VEC_INLINE void add_halves(int tiles, int64_t units, const float *a, int64_t a_tile, struct halves b, int64_t b_row,
                           float *out, int64_t out_row) {
    const int64_t as = 4 * AMX_SIDE, bs = 4 * b_row, os = 4 * out_row;
    float *below = out + AMX_SIDE * out_row;
    amx_fence();
    _tile_loadd(0, out, os);
    _tile_loadd(1, out + AMX_SIDE, os);
    if (tiles == 2) {
        _tile_loadd(2, below, os);
        _tile_loadd(3, below + AMX_SIDE, os);
    }
#define ADD_HALVES(r, v, under, from)    \
    do {                                 \
        _tile_loadd(r, from, bs);        \
        _tile_dpbf16ps(v, 4, r);         \
        if (tiles == 2)                  \
            _tile_dpbf16ps(under, 5, r); \
    } while (0)
    for (int64_t k = 0; k < units; k += AMX_SIDE, a += AMX_SQUARE) {
        const float *high = b.high + k * b_row, *low = b.low + k * b_row;
        _tile_loadd(4, a, as);
        if (tiles == 2)
            _tile_loadd(5, a + a_tile, as);
        ADD_HALVES(6, 0, 2, high);
        ADD_HALVES(7, 1, 3, high + AMX_SIDE);
        ADD_HALVES(6, 0, 2, low);
        ADD_HALVES(7, 1, 3, low + AMX_SIDE);
    }
#undef ADD_HALVES
    _tile_stored(0, out, os);
    _tile_stored(1, out + AMX_SIDE, os);
    if (tiles == 2) {
        _tile_stored(2, below, os);
        _tile_stored(3, below + AMX_SIDE, os);
    }
}

// out[rows][columns] += a (b.high + b.low); rows are a multiple of AMX_SIDE, columns of 2 * LANES.
static inline void matrix_add_halves(int64_t rows, int64_t columns, int64_t units, const float *a, struct halves b,
                                     int64_t b_row, float *out, int64_t out_row) {
    for (int64_t i = 0; i < rows; i += 2 * AMX_SIDE)
        for (int64_t c = 0; c < columns; c += 2 * LANES) {
            const struct halves at = {b.high + c, b.low + c};
            float *to = out + i * out_row + c;
            if (rows - i > AMX_SIDE)
                add_halves(2, units, a + i * units, AMX_SIDE * units, at, b_row, to, out_row);
            else
                add_halves(1, units, a + i * units, AMX_SIDE * units, at, b_row, to, out_row);
        }
}

// Sets columns [from, to) of a tile of pairs of rows, from row i0 on, to 0.
static inline void clear_pairs(struct halves x, int64_t i0, int64_t from, int64_t to) {
    for (int64_t i = i0 / 2; i < (i0 + AMX_SIDE) / 2 && from < to; i++) {
        memset(x.high + i * ATTENTION_KEYS + from, 0, (size_t)(to - from) * sizeof *x.high);
        memset(x.low + i * ATTENTION_KEYS + from, 0, (size_t)(to - from) * sizeof *x.low);
    }
}

// Transposes [columns, ATTENTION_KEYS] into [ATTENTION_KEYS, columns] at `to`.
static inline void transpose_keys(int64_t columns, const float *from, float *to) {
    for (int64_t c = 0; c < columns; c += LANES)
        for (int64_t j = 0; j < ATTENTION_KEYS; j += LANES) {
            vec_f32 square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = vec_load(from + (c + i) * ATTENTION_KEYS + j);
            tile_transpose(square);
            for (int i = 0; i < LANES; i++)
                vec_store(to + (j + i) * columns + c, square[i]);
        }
}

#endif

// out[rows of a tile][columns] = a b, where a and b are packed along the width.
VEC_INLINE void attention_scores(bool pairs, int64_t columns, int64_t units, const float *a, const float *b,
                                 float *out) {
#ifdef ISA_HAS_AMX
    if (pairs) {
        struct beside beside = {0};
        beside_add(&beside, (struct row_product){units, a, NULL, b, ATTENTION_KEYS, columns, out, SCORE_ROW, false});
        beside_end(&beside);
        return;
    }
#endif
    attention_multiply(pairs, columns, units, a, units + LANES, 1, b, ATTENTION_KEYS, out, SCORE_ROW, false);
}

#endif
