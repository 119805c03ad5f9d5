// What the processor can do at most: the figure of which a step's speed is a fraction (model flops utilisation).
#ifndef KERNELS_CPU_PEAK_H
#define KERNELS_CPU_PEAK_H

#include "kernels/cpu/isa.h"

// Floating-point operations per second of `threads` threads (no more than there are cores) that do nothing but
// multiply-adds in registers, with the widest instructions that kernels on `dtype` use: the best of several short runs.
// `flops` are the operations of what is compared with the figure: measuring takes about a hundredth of the time that
// they need at least, but 0.03 to 0.3 seconds. bf16 is measured where the CPU multiplies pairs of bf16, else the figure
// of f32 stands for it; f64 counts as half of f32.
double peak_flops(enum dtype dtype, int threads, double flops);
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
