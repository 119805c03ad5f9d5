// Few rows times weights that lie along the summed dimension, as in generating a token: bound by reading the weights,
// which are therefore used where they lie instead of being packed. Each element of c is a dot product over vectors.
#include "kernels/cpu/pack.h"

VEC_INLINE vec_f32 dot_step(bool pairs, vec_f32 a, vec_f32 b, vec_f32 acc) {
#ifdef __AVX512BF16__
    if (pairs)
        return (vec_f32)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#else
    (void)pairs;
#endif
    return acc + a * b;
}

// The last units from p on, of which `left` elements exist.
VEC_INLINE vec_f32 load_rest(bool bf16, const char *p, int64_t left) {
    const int64_t unit = pack_unit(bf16), size = bf16 ? 2 : 4;
    vec_f32 v = {0};
    for (int64_t u = 0; u < LANES && u * unit < left; u++) {
        uint32_t x = pack_unit_along(bf16, p + u * unit * size, left - u * unit);
        memcpy((char *)&v + 4 * u, &x, 4);
    }
    return v;
}

VEC_INLINE const char *row_of(const struct gemm *g, bool bf16, int64_t i) {
    return (const char *)g->a.data + (bf16 ? 2 : 4) * MIN(i, g->m - 1) * g->a.row;
}

VEC_INLINE const char *column_of(const struct gemm *g, bool bf16, int64_t j) {
    return (const char *)g->b.data + (bf16 ? 2 : 4) * MIN(j, g->n - 1) * g->b.column;
}

// Adds to a block the elements of the summed dimension from `from` on, less than a vector.
static __attribute__((noinline)) void rest_add(const struct gemm *g, int rows, int64_t i, int64_t j, int64_t from,
                                               vec_f32 *total) {
    const int64_t skipped = from * (g->bf16 ? 2 : 4);
    const int columns = LANES / rows;
    vec_f32 sum[LANES];
    for (int q = 0; q < LANES; q++)
        sum[q] = dot_step(
            g->bf16 && TILE_PAIRS, load_rest(g->bf16, row_of(g, g->bf16, i + q / columns) + skipped, g->k - from),
            load_rest(g->bf16, column_of(g, g->bf16, j + q % columns) + skipped, g->k - from), (vec_f32){0});
    *total += tile_sums(sum);
}

// The most groups of b's columns, far apart, that are read side by side: one after another they come at half the speed,
// since memory is kept busy only if the hardware sees several streams. The sums must stay in registers.
enum { STREAMS_MOST = 4 };

VEC_INLINE int streams_of(int rows) {
    return LANES >= 16 ? STREAMS_MOST : rows == 4 ? 2 : 3;
}

// Bytes of a stream that are asked for ahead: the hardware alone asks too late where a group's columns end.
enum { FEW_AHEAD = 2048 };

typedef float few_tile[GEMM_FEW * TILE_COLUMNS];

// Computes, in the tile of each stream t, `rows` (1, 2 or 4) by LANES / rows elements of c from (i, first[t] + at) on;
// those outside c repeat its last row or column.
VEC_INLINE void dot_block(const struct gemm *g, bool bf16, int rows, int64_t i, const int64_t *first, int at,
                          few_tile *tile) {
    const int columns = LANES / rows, streams = streams_of(rows);
    const int64_t size = bf16 ? 2 : 4, step = LANES * pack_unit(bf16), whole = g->k / step * step;
    const char *a[LANES];
    vec_f32 sum[STREAMS_MOST][LANES];
    for (int r = 0; r < rows; r++)
        a[r] = row_of(g, bf16, i + r);
    for (int c = 0; c < columns; c++) {
        const char *b[STREAMS_MOST];
        vec_f32 part[STREAMS_MOST][LANES];
        for (int t = 0; t < streams; t++) {
            b[t] = column_of(g, bf16, first[t] + at + c);
            for (int r = 0; r < rows; r++)
                part[t][r] = (vec_f32){0};
        }
        for (int64_t k = 0; k < whole; k += step) {
            vec_f32 x[LANES];
            for (int r = 0; r < rows; r++)
                x[r] = pack_load_along(bf16, a[r] + k * size);
            for (int t = 0; t < streams; t++) {
                __builtin_prefetch(b[t] + k * size + FEW_AHEAD);
                vec_f32 y = pack_load_along(bf16, b[t] + k * size);
                for (int r = 0; r < rows; r++)
                    part[t][r] = dot_step(bf16 && TILE_PAIRS, x[r], y, part[t][r]);
            }
        }
        for (int t = 0; t < streams; t++)
            for (int r = 0; r < rows; r++)
                sum[t][r * columns + c] = part[t][r];
    }
    for (int t = 0; t < streams; t++) {
        vec_f32 total = tile_sums(sum[t]);
        if (whole < g->k)
            rest_add(g, rows, i, first[t] + at, whole, &total);
        for (int r = 0; r < rows; r++)
            memcpy(tile[t] + (i + r) * TILE_COLUMNS + at, (const char *)&total + 4 * r * columns, 4 * (size_t)columns);
    }
}

typedef void block_function(const struct gemm *g, int64_t i, const int64_t *first, int at, few_tile *tile);

// Functions of their own, since the compiler then keeps all sums in registers.
#define DOT_BLOCK(name, bf16, rows)                                                                           \
    static __attribute__((noinline)) void name(const struct gemm *g, int64_t i, const int64_t *first, int at, \
                                               few_tile *tile) {                                              \
        dot_block(g, bf16, rows, i, first, at, tile);                                                         \
    }
DOT_BLOCK(dot_1_f32, false, 1)
DOT_BLOCK(dot_2_f32, false, 2)
DOT_BLOCK(dot_4_f32, false, 4)
DOT_BLOCK(dot_1_bf16, true, 1)
DOT_BLOCK(dot_2_bf16, true, 2)
DOT_BLOCK(dot_4_bf16, true, 4)

void ISA(gemm_few)(const struct gemm *g) {
    CHECK(g->m <= GEMM_FEW);
    const int rows = g->m == 1 ? 1 : g->m == 2 ? 2 : 4, streams = streams_of(rows);
    block_function *const block = rows == 1   ? g->bf16 ? dot_1_bf16 : dot_1_f32
                                  : rows == 2 ? g->bf16 ? dot_2_bf16 : dot_2_f32
                                  : g->bf16   ? dot_4_bf16
                                              : dot_4_f32;
    const int64_t tiles = divide_up(g->n, LANES), apart = divide_up(tiles, streams);
#pragma omp parallel for num_threads(g->threads) schedule(dynamic)
    for (int64_t j = 0; j < apart; j++) {
        few_tile tile[STREAMS_MOST];
        int64_t first[STREAMS_MOST];
        for (int t = 0; t < streams; t++)
            first[t] = LANES * (j + t * apart);
        for (int c = 0; c < LANES; c += LANES / rows) // groups of rows take turns at the same columns of b
            for (int64_t i = 0; i < g->m; i += rows)
                block(g, i, first, c, tile);
        for (int t = 0; t < streams; t++)
            if (first[t] < g->n)
                ISA(gemm_finish)(g, tile[t], g->m, first[t], MIN(LANES, g->n - first[t]));
    }
}
