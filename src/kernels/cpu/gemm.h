// c = a b: matrix products with operands in any order, on the register tile of tile.h. After Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008): b is packed by all threads together, a by each
// thread for its block of rows; where a has few rows, a by all together and b by each thread for its columns. The
// summed dimension is split only beyond GEMM_UNITS, so that most products write c once. Each element of c is summed in
// an order that depends on k alone (with few rows it is another order): the same bits for any number of threads.
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

// Element (i, j) at data[i * row + j * column]; row or column is 1.
struct matrix {
    const void *data;
    int64_t row, column;
};

struct gemm {
    int64_t m, n, k;
    struct matrix a, b; // [m, k], [k, n]
    void *c;            // [m, n], rows c_row apart
    int64_t c_row;
    const void *bias;     // NULL or [n], added to every row
    const void *residual; // NULL or [m, n], rows residual_row apart, added; must not overlap c
    int64_t residual_row;
    float *row_sums; // NULL or [m]: receives the sum of each row of a
    bool bf16;       // a, b, bias and residual are bf16, else f32
    bool bf16_out;   // c is bf16, else f32
    bool accumulate; // add to c and row_sums instead of overwriting them
    int threads;
    enum kernel_way way; // one of gemm_ways
    void *workspace;     // 64-byte aligned, as large as gemm_workspace says for the same sizes, types and threads
};

// gemm_ways: the ways to run it, as in struct kernel. gemm_workspace: the bytes that the most demanding way needs.
unsigned ISA(gemm_ways)(const struct gemm *gemm);
int64_t ISA(gemm_workspace)(const struct gemm *gemm);
void ISA(gemm_run)(const struct gemm *gemm);

// The same for few rows (gemm_few.c): no workspace, no row sums; a's rows and b's columns must lie along the summed
// dimension. Up to GEMM_FEW rows it is the faster one: packing b costs more than reading it again for every four rows.
enum { GEMM_FEW = LANES };
void ISA(gemm_few)(const struct gemm *gemm);

// Writes finished sums: c from (0, j0) on = tile + bias + residual, plus what c holds if it accumulates. The tile's
// rows lie TILE_COLUMNS apart.
void ISA(gemm_finish)(const struct gemm *gemm, const float *tile, int64_t rows, int64_t j0, int64_t columns);

#endif
