// Products of a few rows with weights that lie along the summed dimension, as generation makes them: bound by reading
// the weights, which are therefore used where they lie. Each element of c is a dot product over vectors; the sums of
// LANES dot products become one vector by a transposition.
#include "kernels/cpu/pack.h"

// Vectors of units of row i from p on; `left` elements exist.
VEC_INLINE vec_f32 load_some(bool bf16, const char *p, int64_t left) {
    const int64_t unit = pack_unit(bf16);
    if (left >= LANES * unit)
        return pack_load_along(bf16, p);
    vec_f32 v = {0};
    const int64_t size = bf16 ? 2 : 4;
    for (int64_t u = 0; u * unit < left; u++) {
        uint32_t x = pack_unit_along(bf16, p + u * unit * size, left - u * unit);
        memcpy((char *)&v + 4 * u, &x, 4);
    }
    return v;
}

VEC_INLINE vec_f32 dot_step(bool pairs, vec_f32 a, vec_f32 b, vec_f32 acc) {
#ifdef __AVX512BF16__
    if (pairs)
        return (vec_f32)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#else
    (void)pairs;
#endif
    return acc + a * b;
}

// rows x (LANES / rows) elements of c from (i0, j0) on; what lies outside c reads c's last row or column and is
// dropped.
VEC_INLINE void few_block(const struct gemm *g, bool bf16, int rows, int64_t i0, int64_t j0) {
    const int columns = LANES / rows;
    const int64_t size = bf16 ? 2 : 4, step = LANES * pack_unit(bf16);
    const char *a[LANES], *b[LANES];
    for (int i = 0; i < rows; i++)
        a[i] = (const char *)g->a.data + size * MIN(i0 + i, g->m - 1) * g->a.row;
    for (int j = 0; j < columns; j++)
        b[j] = (const char *)g->b.data + size * MIN(j0 + j, g->n - 1) * g->b.column;
    vec_f32 acc[LANES] = {{0}};
    for (int64_t k = 0; k < g->k; k += step) {
        vec_f32 x[LANES], y[LANES];
        for (int i = 0; i < rows; i++)
            x[i] = load_some(bf16, a[i] + k * size, g->k - k);
        for (int j = 0; j < columns; j++)
            y[j] = load_some(bf16, b[j] + k * size, g->k - k);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                acc[i * columns + j] = dot_step(bf16 && TILE_PAIRS, x[i], y[j], acc[i * columns + j]);
    }
    tile_transpose(acc);
    vec_f32 sum = acc[0];
    for (int l = 1; l < LANES; l++)
        sum += acc[l];
    for (int i = 0; i < rows && i0 + i < g->m; i++)
        for (int j = 0; j < columns && j0 + j < g->n; j++)
            ISA(gemm_element)(g, i0 + i, j0 + j, sum[i * columns + j], g->accumulate);
}

#define FEW_BLOCKS(rows)                                                                                             \
    do {                                                                                                             \
        enum { ROWS = (rows), COLUMNS = LANES / ROWS };                                                              \
        _Pragma(                                                                                                     \
            "omp parallel for num_threads(g->threads) schedule(static)") for (int64_t j = 0; j < g->n;               \
                                                                              j +=                                   \
                                                                              COLUMNS) for (int64_t i = 0; i < g->m; \
                                                                                            i += ROWS) if (g->bf16)  \
            few_block(g, true, ROWS, i, j);                                                                          \
        else few_block(g, false, ROWS, i, j);                                                                        \
    } while (0)

void ISA(gemm_few)(const struct gemm *g) {
    if (g->m == 1)
        FEW_BLOCKS(1);
    else
        FEW_BLOCKS(LANES / 4);
}
