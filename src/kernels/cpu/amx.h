// Products on x86's matrix units (AMX): eight registers of 16 rows of 64 bytes, and an instruction that multiplies 16 x
// 32 bf16 by 32 x 16, where pairs along the summed dimension lie side by side, and adds the product to 16 x 16 sums in
// f32. pack.h puts operands into that order: units of two along the summed dimension; a as squares of 16 rows and 16
// units, b as vectors of units.
//
// A thread sets the size of its registers (amx_begin) before it multiplies, and gives them back (amx_end), since the
// system saves 8 KiB more for a thread that has them in use. What attention needs besides is in attention_matrix.h.
#ifndef KERNELS_CPU_AMX_H
#define KERNELS_CPU_AMX_H

#include "kernels/cpu/ask.h"
#include "kernels/cpu/vec.h"

#include <stdbool.h>

#ifdef ISA_HAS_AMX

enum { AMX_SIDE = 16 }; // rows of a register; units (pairs of bf16, f32 sums) in each
enum { AMX_SQUARE = AMX_SIDE * AMX_SIDE };
enum { AMX_ROWS = 32 }; // of the largest product: two registers of a by two of b, with four of sums
enum { AMX_VECS = 2 };

struct amx_shape { // as the instruction reads it
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

VEC_INLINE void amx_begin(void) {
    struct amx_shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = AMX_SIDE;
    }
    __asm__ volatile("" : : "m"(shape));
    _tile_loadconfig(&shape);
}

// The compiler does not know that loads of these registers read memory: what they read must be written before this.
VEC_INLINE void amx_fence(void) {
    __asm__ volatile("" : : : "memory");
}

VEC_INLINE void amx_end(void) {
    _tile_release();
}

// A product of squares of a with b(k, j) at b[k * b_row + j]. The squares of a tile of rows lie one after another,
// tiles `a_tile` apart. Everything is counted in units, whose number is a multiple of AMX_SIDE.
struct amx_product {
    int64_t units;
    const float *a;
    int64_t a_tile;
    const float *b;
    int64_t b_row;
};

// out[i * out_row + j] = or += the product, for `tiles` (1, 2) of rows i and `vecs` (1, 2) of AMX_SIDE columns j.
// `ask`: what to prefetch meanwhile.
VEC_INLINE void amx_multiply(int tiles, int vecs, struct amx_product p, struct ask ask, float *out, int64_t out_row,
                             bool add) {
    const int64_t as = 4 * AMX_SIDE, bs = 4 * p.b_row, os = 4 * out_row;
    float *low = out + AMX_SIDE * out_row;
    amx_fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) {
        _tile_loadd(0, out, os);
        if (vecs == 2)
            _tile_loadd(1, out + AMX_SIDE, os);
        if (tiles == 2)
            _tile_loadd(2, low, os);
        if (tiles == 2 && vecs == 2)
            _tile_loadd(3, low + AMX_SIDE, os);
    }
    _Static_assert((int)AMX_SIDE == ASK_UNITS, "one request in each round");
    for (int64_t k = 0; k < p.units; k += AMX_SIDE, p.a += AMX_SQUARE, p.b += AMX_SIDE * p.b_row) {
        ask_more(&ask);
        _tile_loadd(6, p.b, bs);
        _tile_loadd(4, p.a, as);
        _tile_dpbf16ps(0, 4, 6);
        if (tiles == 2) {
            _tile_loadd(5, p.a + p.a_tile, as);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (vecs == 2) {
            _tile_loadd(7, p.b + AMX_SIDE, bs);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (tiles == 2 && vecs == 2)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, os);
    if (vecs == 2)
        _tile_stored(1, out + AMX_SIDE, os);
    if (tiles == 2)
        _tile_stored(2, low, os);
    if (tiles == 2 && vecs == 2)
        _tile_stored(3, low + AMX_SIDE, os);
}

// The same for the first of `rows` and `columns`, as many as one amx_multiply takes.
VEC_INLINE void amx_multiply_some(int64_t rows, int64_t columns, struct amx_product product, struct ask ask, float *out,
                                  int64_t out_row, bool add) {
    switch (2 * (rows > AMX_SIDE) + (columns > AMX_SIDE)) {
    case 0:
        amx_multiply(1, 1, product, ask, out, out_row, add);
        break;
    case 1:
        amx_multiply(1, 2, product, ask, out, out_row, add);
        break;
    case 2:
        amx_multiply(2, 1, product, ask, out, out_row, add);
        break;
    default:
        amx_multiply(2, 2, product, ask, out, out_row, add);
    }
}

#endif
#endif
