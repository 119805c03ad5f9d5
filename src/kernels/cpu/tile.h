// The innermost loop of every matrix product here: a tile of TILE_ROWS rows and up to TILE_VECS vectors of columns,
// held in registers while it runs along the summed dimension. And the transposition that puts operands into its order.
//
// A *unit* is 32 bits of the summed dimension: one f32, or, where the instruction set multiplies pairs of bf16, two
// consecutive bf16 of it (the first in the lower half). b(k, j) lies as rows of vectors, one row per unit; a(i, k)
// anywhere, since it is read one unit at a time: 8 rows by 3 vectors reads 11 times for 24 multiply-adds, with
// AVX-512's 32 registers.
#ifndef KERNELS_CPU_TILE_H
#define KERNELS_CPU_TILE_H

#include "kernels/cpu/amx.h"

#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECS = 3 };
#else
enum { TILE_ROWS = 4, TILE_VECS = 3 };
#endif
enum { TILE_COLUMNS = TILE_VECS * LANES };
enum { TILE_AHEAD = 16 }; // units between reading b and prefetching it

#ifdef __AVX512BF16__
enum { TILE_PAIRS = 1 }; // bf16 operands are multiplied in pairs
#else
enum { TILE_PAIRS = 0 }; // bf16 operands are widened to f32 first
#endif

// Whether bf16 operands are multiplied by matrix units (amx.h), and rows and vectors of columns of a product's tile.
#ifdef ISA_HAS_AMX
enum { TILE_MATRIX = 1, TILE_MATRIX_ROWS = AMX_ROWS, TILE_MATRIX_VECS = AMX_VECS };
#else
enum { TILE_MATRIX = 0, TILE_MATRIX_ROWS = TILE_ROWS, TILE_MATRIX_VECS = TILE_VECS };
#endif
static inline int64_t tile_rows(bool bf16) {
    return bf16 ? TILE_MATRIX_ROWS : TILE_ROWS;
}
static inline int64_t tile_vecs(bool bf16) {
    return bf16 ? TILE_MATRIX_VECS : TILE_VECS;
}

// A thread calls these around its products.
VEC_INLINE void tile_begin(bool bf16) {
#ifdef ISA_HAS_AMX
    if (bf16)
        amx_begin();
#else
    (void)bf16;
#endif
}

VEC_INLINE void tile_end(bool bf16) {
#ifdef ISA_HAS_AMX
    if (bf16)
        amx_end();
#else
    (void)bf16;
#endif
}

// acc += a * b for one unit.
VEC_INLINE vec_f32 tile_multiply_add(bool pairs, uint32_t a, vec_f32 b, vec_f32 acc) {
#ifdef __AVX512BF16__
    if (pairs)
        return (vec_f32)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
#else
    (void)pairs;
#endif
    float x;
    memcpy(&x, &a, sizeof x);
    return acc + x * b;
}

VEC_INLINE uint32_t tile_unit(const char *p) {
    uint32_t unit;
    memcpy(&unit, p, sizeof unit);
    return unit;
}

// out[i * out_row + j] = or += sum over `units` k of a(i, k) b(k, j), for TILE_ROWS i and vecs * LANES j.
// Strides are in units for a and b: a(i, k) at a[i * a_row + k * a_step], b(k, j) at b[k * b_step + j]; out in floats.
// `ask`: what to prefetch besides b, which is prefetched into the first-level cache TILE_AHEAD units ahead; NULL where
// nothing needs to be prefetched.
VEC_INLINE void tile_multiply(int vecs, bool pairs, int64_t units, const void *a, int64_t a_row, int64_t a_step,
                              const void *b, int64_t b_step, const struct ask *ask, float *out, int64_t out_row,
                              bool add) {
    vec_f32 acc[TILE_ROWS][TILE_VECS];
    for (int i = 0; i < TILE_ROWS; i++)
        for (int j = 0; j < TILE_VECS; j++)
            acc[i][j] = (vec_f32){0};
    const char *pa = a;
    const float *pb = b;
    // Multiples of the row stride that the addressing modes cannot form.
    int64_t s = 4 * a_row, s3 = 3 * s, s5 = 5 * s, s7 = 7 * s;
    struct ask asked = ask ? *ask : (struct ask){0};
    for (int64_t k = 0; k < units; k++) {
        vec_f32 column[TILE_VECS];
        for (int j = 0; j < vecs; j++)
            column[j] = vec_load(pb + j * LANES);
        if (ask) {
            if (k % ASK_UNITS == 0)
                ask_more(&asked);
            for (int j = 0; j < vecs; j++)
                if (j * LANES % (ASK_LINE / 4) == 0)
                    __builtin_prefetch(pb + TILE_AHEAD * b_step + j * LANES, 0, 3);
        }
#define TILE_ROW(i, offset)        \
    for (int j = 0; j < vecs; j++) \
    acc[i][j] = tile_multiply_add(pairs, tile_unit(pa + (offset)), column[j], acc[i][j])
        TILE_ROW(0, 0);
        TILE_ROW(1, s);
        TILE_ROW(2, 2 * s);
        TILE_ROW(3, s3);
        if (TILE_ROWS == 8) {
            TILE_ROW(TILE_ROWS - 4, 4 * s);
            TILE_ROW(TILE_ROWS - 3, s5);
            TILE_ROW(TILE_ROWS - 2, 2 * s3);
            TILE_ROW(TILE_ROWS - 1, s7);
        }
#undef TILE_ROW
        pa += 4 * a_step;
        pb += b_step;
    }
    for (int i = 0; i < TILE_ROWS; i++)
        for (int j = 0; j < vecs; j++) {
            float *p = out + i * out_row + j * LANES;
            vec_store(p, add ? acc[i][j] + vec_load(p) : acc[i][j]);
        }
}

// The same for one, two and three vectors. With 16 registers, compilers keep the tile in them only if the loop is a
// function of its own; inlined, it writes to memory in every turn and takes twice as long. 32 registers always suffice.
#ifdef __AVX512F__
#define TILE_FUNCTION VEC_INLINE
#else
#define TILE_FUNCTION static __attribute__((noinline, unused))
#endif
#define TILE_VECTORS(name, vecs)                                                                                    \
    TILE_FUNCTION void name(bool pairs, int64_t units, const void *a, int64_t a_row, int64_t a_step, const void *b, \
                            int64_t b_step, const struct ask *ask, float *out, int64_t out_row, bool add) {         \
        tile_multiply(vecs, pairs, units, a, a_row, a_step, b, b_step, ask, out, out_row, add);                     \
    }
TILE_VECTORS(tile_multiply_1, 1)
TILE_VECTORS(tile_multiply_2, 2)
TILE_VECTORS(tile_multiply_3, 3)
#undef TILE_VECTORS

#if defined(__AVX512F__)
#define TILE_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TILE_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define TILE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TILE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define TILE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define TILE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

// Transposes a square of LANES x LANES: log2(LANES) rounds, each of which interleaves the upper half of the rows with
// the lower.
VEC_INLINE void tile_transpose(vec_f32 row[LANES]) {
    for (int round = 1; round < LANES; round *= 2) {
        vec_f32 next[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = TILE_LOW(row[i], row[i + LANES / 2]);
            next[2 * i + 1] = TILE_HIGH(row[i], row[i + LANES / 2]);
        }
        memcpy(row, next, sizeof next);
    }
}

VEC_INLINE void tile_halve(vec_f32 *row, int count) {
    for (int i = 0; i < count; i++)
        row[i] = TILE_LOW(row[i], row[i + count]) + TILE_HIGH(row[i], row[i + count]);
}

// The sums of the lanes of each of LANES vectors, as one vector: rounds like those of a transposition, each of which
// leaves half as many vectors. (Written out, so that all stay in registers.)
VEC_INLINE vec_f32 tile_sums(vec_f32 row[LANES]) {
    if (LANES >= 16)
        tile_halve(row, 8);
    if (LANES >= 8)
        tile_halve(row, 4);
    tile_halve(row, 2);
    tile_halve(row, 1);
    return row[0];
}

#endif
