// Puts blocks of a and b into the order in which the tile reads them (tile.h has its units).
#ifndef KERNELS_CPU_PACK_H
#define KERNELS_CPU_PACK_H

#include "base/bf16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile.h"

// Elements of the summed dimension in one unit, for operands that are bf16 or f32.
static inline int64_t pack_unit(bool bf16) {
    return bf16 && TILE_PAIRS ? 2 : 1;
}

// Units of `k` elements; matrix units take them in vectors, of which the last is filled with zeros.
static inline int64_t pack_units(bool bf16, int64_t k) {
    const int64_t units = divide_up(k, pack_unit(bf16));
    return bf16 && TILE_MATRIX ? round_up(units, LANES) : units;
}

// LANES units from p on, where neighbouring elements lie along the summed dimension.
VEC_INLINE vec_f32 pack_load_along(bool bf16, const char *p) {
    if (bf16 && !TILE_PAIRS)
        return vec_load_bf16((const uint16_t *)p);
    return vec_load((const float *)p);
}

// One unit, of which only `elements` elements exist, perhaps none; the others are zero.
VEC_INLINE uint32_t pack_unit_along(bool bf16, const char *p, int64_t elements) {
    uint32_t unit = 0;
    if (elements <= 0)
        return 0;
    if (!bf16)
        memcpy(&unit, p, 4);
    else if (TILE_PAIRS)
        memcpy(&unit, p, 2 * (size_t)(elements < 2 ? elements : 2));
    else {
        uint16_t x;
        memcpy(&x, p, 2);
        unit = (uint32_t)x << 16;
    }
    return unit;
}

// A unit vector for LANES neighbours across the summed dimension: row p, and for pairs the row after it (NULL: zeros).
VEC_INLINE vec_f32 pack_load_across(bool bf16, const char *p, const char *next) {
    if (!bf16)
        return vec_load((const float *)p);
    vec_u16 low, high = {0};
    memcpy(&low, p, sizeof low);
    if (!TILE_PAIRS)
        return vec_from_bf16(low);
    if (next)
        memcpy(&high, next, sizeof high);
    return (vec_f32)(__builtin_convertvector(low, vec_u32) | __builtin_convertvector(high, vec_u32) << 16);
}

VEC_INLINE uint32_t pack_unit_across(bool bf16, const char *p, const char *next) {
    uint16_t low, high = 0;
    uint32_t unit;
    if (!bf16) {
        memcpy(&unit, p, 4);
        return unit;
    }
    memcpy(&low, p, 2);
    if (next)
        memcpy(&high, next, 2);
    return TILE_PAIRS ? (uint32_t)high << 16 | low : (uint32_t)low << 16;
}

// Packs `k` elements of the summed dimension from k0 on and `columns` columns of b from j0 on, as rows of `vecs`
// vectors, one for each unit; missing columns are zero.
void ISA(pack_b)(bool bf16, const struct matrix *b, int64_t k0, int64_t k, int64_t j0, int64_t columns, int vecs,
                 float *out);
// Packs `rows` rows of a from i0 on and `k` elements of the summed dimension from k0 on, as tiles of TILE_ROWS rows,
// pack_a_units apart, or for matrix units as squares of LANES rows and units (amx.h); missing rows are zero. To `sums`
// (NULL or [rows rounded up to tiles]) it adds the rows' sums.
void ISA(pack_a)(bool bf16, const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k, float *out,
                 float *sums);

// Prefetches, into the second-level cache, part `part` of `parts` of what pack_a or pack_b will read: `rows` rows of
// the matrix from i0 on, and of these `columns` columns from j0 on.
void ISA(pack_ask)(bool bf16, const struct matrix *m, int64_t i0, int64_t rows, int64_t j0, int64_t columns,
                   int64_t part, int64_t parts);

// The tile's strides (in units) over what pack_a made: rows that lie along the summed dimension are copied as they are,
// others are interleaved.
static inline void pack_a_strides(const struct matrix *a, int64_t units, int64_t *row, int64_t *step) {
    bool along = a->column == 1;
    *row = along ? units + LANES : 1; // + LANES: rows a power of two apart would fight for the same cache sets
    *step = along ? 1 : TILE_ROWS;
}

// The units that a tile of TILE_ROWS rows of a takes.
static inline int64_t pack_a_units(int64_t units) {
    return TILE_ROWS * (units + LANES);
}

// Where row i begins of what pack_a made of rows that lie along the summed dimension.
static inline int64_t pack_a_row(bool bf16, int64_t units, int64_t i) {
    return bf16 && TILE_MATRIX ? i / LANES * LANES * units + i % LANES * LANES : i * (units + LANES);
}

#endif
