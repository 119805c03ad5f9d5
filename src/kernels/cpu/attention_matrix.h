// What attention does otherwise on matrix units (amx.h), of bf16. These multiply bf16 alone, but probabilities and
// their gradients are to stay f32: each becomes a sum of two bf16, what it rounds to and what that lacks, 16 bits of it
// in all, and is multiplied twice. Tiles are AMX_SIDE queries high, and what is summed over queries or keys is in
// pairs.
#ifndef KERNELS_CPU_ATTENTION_MATRIX_H
#define KERNELS_CPU_ATTENTION_MATRIX_H

#include "kernels/cpu/attention.h"

#ifdef __AMX_BF16__

// The two parts of a matrix, side by side.
struct halves {
    float *high, *low;
};

// Both parts of LANES floats, as bf16.
VEC_INLINE void split(vec_f32 x, vec_u16 *high, vec_u16 *low) {
    *high = vec_to_bf16(x);
    *low = vec_to_bf16(x - vec_from_bf16(*high));
}

// Row i of a tile, of `columns` floats (a multiple of 2 * LANES), into squares.
VEC_INLINE void split_row(const float *row, int64_t i, int64_t columns, struct halves to) {
    for (int64_t c = 0; c < columns; c += LANES) {
        vec_u16 high, low;
        split(vec_load(row + c), &high, &low);
        const int64_t at = c / (2 * LANES) * AMX_SQUARE + i * LANES + c % (2 * LANES) / 2;
        memcpy(to.high + at, &high, sizeof high);
        memcpy(to.low + at, &low, sizeof low);
    }
}

VEC_INLINE void store_pairs(float *to, vec_u16 first, vec_u16 second) {
    vec_store(to, (vec_f32)(__builtin_convertvector(first, vec_u32) | __builtin_convertvector(second, vec_u32) << 16));
}

// Rows in pairs, as pack_b has them: `rows` (a multiple of 2) of `columns` floats, row_step apart; a row of pairs
// to_row units behind another.
VEC_INLINE void split_pairs(const float *from, int64_t row_step, int64_t rows, int64_t columns, int64_t to_row,
                            struct halves to) {
    for (int64_t i = 0; i < rows; i += 2, from += 2 * row_step)
        for (int64_t c = 0; c < columns; c += LANES) {
            vec_u16 high[2], low[2];
            split(vec_load(from + c), &high[0], &low[0]);
            split(vec_load(from + row_step + c), &high[1], &low[1]);
            store_pairs(to.high + i / 2 * to_row + c, high[0], high[1]);
            store_pairs(to.low + i / 2 * to_row + c, low[0], low[1]);
        }
}

// One tile of AMX_SIDE rows of the sum of `count` products, `columns` wide.
static inline void matrix_multiply_row(int count, const struct amx_product *product, int64_t columns, float *out,
                                       int64_t out_row, bool add) {
    int64_t c = 0;
    struct amx_product p[2];
    memcpy(p, product, (size_t)count * sizeof *p);
    for (; c + 4 * LANES <= columns; c += 4 * LANES) {
        amx_multiply_wide(count, p, out + c, out_row, add);
        for (int i = 0; i < count; i++)
            p[i].b += 4 * LANES;
    }
    for (; c < columns; c += LANES) {
        amx_multiply(1, 1, count, p, NULL, out + c, out_row, add);
        for (int i = 0; i < count; i++)
            p[i].b += LANES;
    }
}

// out[rows][columns] += a (b.high + b.low); rows and columns are multiples of AMX_SIDE.
static inline void matrix_multiply_halves(int64_t rows, int64_t columns, int64_t units, const float *a, struct halves b,
                                          int64_t b_row, float *out, int64_t out_row) {
    const int64_t a_tile = AMX_SIDE * units;
    for (int64_t i = 0; i < rows; i += AMX_ROWS)
        for (int64_t c = 0; c < columns; c += AMX_VECS * LANES) {
            const struct amx_product p[2] = {{units, a + i * units, a_tile, b.high + c, b_row},
                                             {units, a + i * units, a_tile, b.low + c, b_row}};
            amx_multiply_some(rows - i, columns - c, 2, p, NULL, out + i * out_row + c, out_row, true);
        }
}

#endif
#endif
