// One row times weights that lie along the summed dimension, as generation of a token makes it: bound by reading the
// weights, which are therefore used where they lie. Each element of c is a dot product over vectors; the sums of LANES
// dot products become one vector by a transposition.
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
    for (int64_t u = 0; u * unit < left; u++) {
        uint32_t x = pack_unit_along(bf16, p + u * unit * size, left - u * unit);
        memcpy((char *)&v + 4 * u, &x, 4);
    }
    return v;
}

// LANES elements of c from column j0 on; those outside c repeat its last and are dropped.
VEC_INLINE void row_block(const struct gemm *g, bool bf16, int64_t j0) {
    const int64_t size = bf16 ? 2 : 4, step = LANES * pack_unit(bf16), whole = g->k / step * step;
    const char *a = g->a.data, *b[LANES];
    vec_f32 sum[LANES], square[LANES]; // two arrays, so that the sums are kept in registers
    for (int j = 0; j < LANES; j++) {
        b[j] = (const char *)g->b.data + size * MIN(j0 + j, g->n - 1) * g->b.column;
        sum[j] = (vec_f32){0};
    }
    for (int64_t k = 0; k < whole; k += step) {
        vec_f32 x = pack_load_along(bf16, a + k * size);
        for (int j = 0; j < LANES; j++)
            sum[j] = dot_step(bf16 && TILE_PAIRS, x, pack_load_along(bf16, b[j] + k * size), sum[j]);
    }
    for (int j = 0; j < LANES; j++)
        square[j] = sum[j];
    if (whole < g->k) {
        vec_f32 x = load_rest(bf16, a + whole * size, g->k - whole);
        for (int j = 0; j < LANES; j++)
            square[j] = dot_step(bf16 && TILE_PAIRS, x, load_rest(bf16, b[j] + whole * size, g->k - whole), square[j]);
    }
    tile_transpose(square);
    vec_f32 total = square[0];
    for (int l = 1; l < LANES; l++)
        total += square[l];
    for (int j = 0; j < LANES && j0 + j < g->n; j++)
        ISA(gemm_element)(g, 0, j0 + j, total[j], g->accumulate);
}

void ISA(gemm_row)(const struct gemm *g) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int64_t j = 0; j < g->n; j += LANES)
        if (g->bf16)
            row_block(g, true, j);
        else
            row_block(g, false, j);
}
