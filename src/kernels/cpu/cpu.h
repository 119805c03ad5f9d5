// cpu/: the fast kernels, f32 and bf16. Matrix products run on oneDNN (onednn.h), the rest is ours.
//
// How to add a kernel. Write `void ISA(cpu_OP_f32)(const struct call *call)` and its bf16 twin in a file of this folder,
// declare them here and put them into the rows of table.c. The file is compiled once per instruction set (isa.h says
// how); write plain loops that the compiler vectorises, or vectors of the copy's width (vec.h). Kernels that need workspace
// or something prepared also have a prepare function; those without a row run on ref/.
//
// Threads: a kernel starts `#pragma omp parallel for num_threads(call->threads)` and splits work by index alone, so that
// results depend at most on the thread count. Kernels on oneDNN set the calling thread's OpenMP thread count.
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/cpu/isa.h"

// This copy's table (table.c).
const struct kernel *ISA(cpu_table)(enum dtype model);

#endif
