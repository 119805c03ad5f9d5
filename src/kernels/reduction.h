// Loops that reduce contributions to an element, for transports: chunk by chunk, so that accumulators stay in the
// first-level cache. The same bits for every instruction set.
#ifndef KERNELS_REDUCTION_H
#define KERNELS_REDUCTION_H

#include "program/program.h"

// The loops for one (dtype, wire): accumulators are f32 for bf16, else of the dtype. All arrays are [n].
struct reduction_loops {
    int64_t size; // of an element, bytes
    // accumulator = x op y, over the first two contributions
    void (*sum_two)(void *restrict accumulator, const void *restrict x, const void *restrict y, int64_t n);
    void (*max_two)(void *restrict accumulator, const void *restrict x, const void *restrict y, int64_t n);
    // accumulator = accumulator op x. The max of anything and a NaN is a NaN.
    void (*sum)(void *restrict accumulator, const void *restrict x, int64_t n);
    void (*max)(void *restrict accumulator, const void *restrict x, int64_t n);
    void (*load)(void *restrict accumulator, const void *restrict x, int64_t n);
    // accumulator = held + accumulator, where `held` is of the dtype
    void (*add)(void *restrict accumulator, const void *restrict held, int64_t n);
    // NULL: accumulators are results.
    void (*store)(void *restrict result, const void *restrict accumulator, int64_t n);
    void (*store_wire)(void *restrict result, const void *restrict accumulator, int64_t n);
};

// dtype: f32, bf16, f64, i32; wire: the dtype, or bf16 for f32. For the best instruction set.
const struct reduction_loops *reduction_loops(enum dtype dtype, enum dtype wire);

#endif
