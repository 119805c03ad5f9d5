// The loops of kernels/reduction.h, one copy per instruction set.
#ifndef KERNELS_CPU_REDUCTION_LOOPS_H
#define KERNELS_CPU_REDUCTION_LOOPS_H

#include "kernels/cpu/isa.h"
#include "kernels/reduction.h"

// reduction_loops for a usable instruction set of the caller's choice.
const struct reduction_loops *cpu_reduction_loops_for(enum dtype dtype, enum dtype wire, enum isa isa);

#endif
