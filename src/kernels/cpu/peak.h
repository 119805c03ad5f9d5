// The loops that measure the processor's peak.
#ifndef KERNELS_CPU_PEAK_H
#define KERNELS_CPU_PEAK_H

#include "kernels/cpu/isa.h"

// peak_flops (kernels/machine.h) for a usable instruction set of the caller's choice.
double peak_flops_for(enum dtype dtype, int threads, double flops, enum isa isa);

// One copy per instruction set (peak_loop.c): runs `iterations` of a loop of that many operations each.
int64_t ISA(peak_loop)(bool bf16, int64_t iterations);
int64_t peak_loop_base(bool bf16, int64_t iterations);
#ifdef TRIREME_ISA_VARIANTS
int64_t peak_loop_avx2(bool bf16, int64_t iterations);
int64_t peak_loop_avx512(bool bf16, int64_t iterations);
int64_t peak_loop_avx512bf16(bool bf16, int64_t iterations);
int64_t peak_loop_amx(bool bf16, int64_t iterations);
#endif

#endif
