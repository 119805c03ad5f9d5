#include "kernels/cpu/peak.h"
#include "kernels/cpu/tile.h"

// As many independent sums as the tile has: enough to hide the latency of a multiply-add, few enough for the registers.
VEC_INLINE void run(bool pairs, int64_t iterations) {
    enum { SUMS = TILE_ROWS * TILE_VECS };
    vec_f32 sum[SUMS], b = vec_splat(0x1p-60f); // far from what overflows or underflows
    for (int i = 0; i < SUMS; i++)
        sum[i] = (vec_f32){0};
    uint32_t a = pairs ? 0x3f803f80u : 0x3f800000u;
    __asm__ volatile("" : "+r"(a));
    for (int64_t n = 0; n < iterations; n++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sum[i] = tile_multiply_add(pairs, a, b, sum[i]);
    for (int i = 0; i < SUMS; i++)
        __asm__ volatile("" : : "m"(sum[i]));
}

int64_t ISA(peak_loop)(bool bf16, int64_t iterations) {
    if (bf16 && TILE_PAIRS)
        run(true, iterations);
    else
        run(false, iterations);
    return 2 * TILE_ROWS * TILE_VECS * LANES * (bf16 && TILE_PAIRS ? 2 : 1);
}
