// The loop whose speed is taken for the peak of an instruction set: multiply-adds that stay in registers.
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

#ifdef ISA_HAS_AMX
// Four products that need not wait for one another, of operands whose bits vary as in a model: with zeros they take so
// much less power that the clock runs a third faster than it ever does in a step.
static int64_t run_matrix(int64_t iterations) {
    uint16_t operand[4][2 * AMX_SQUARE];
    for (int i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 2 * AMX_SQUARE; k++)
            operand[i][k] = (uint16_t)((k * 2654435761u + (uint32_t)i * 40503u) >> 16 & 0x83ff) | 0x3c00;
    amx_begin();
    amx_fence();
    _tile_loadd(4, operand[0], 4 * AMX_SIDE);
    _tile_loadd(5, operand[1], 4 * AMX_SIDE);
    _tile_loadd(6, operand[2], 4 * AMX_SIDE);
    _tile_loadd(7, operand[3], 4 * AMX_SIDE);
    for (int64_t n = 0; n < iterations; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    amx_end();
    return 4 * 2 * AMX_SIDE * AMX_SIDE * 2 * AMX_SIDE;
}
#endif

int64_t ISA(peak_loop)(bool bf16, int64_t iterations) {
#ifdef ISA_HAS_AMX
    if (bf16)
        return run_matrix(iterations);
#endif
    if (bf16 && TILE_PAIRS)
        run(true, iterations);
    else
        run(false, iterations);
    return 2 * TILE_ROWS * TILE_VECS * LANES * (bf16 && TILE_PAIRS ? 2 : 1);
}
