// One binary, several instruction sets. Every file of cpu/ is compiled once per set, except those that cmake/isa.cmake
// lists as compiled once. A copy knows its set by ISA_SUFFIX; what a file exports is therefore named through ISA():
// ISA(cpu_gelu) is cpu_gelu_avx512 in one copy and cpu_gelu_base in another. Static functions, OpenMP regions and
// macros like __AVX512F__ need nothing: each copy is compiled with its own flags. vec.h gives vectors of the copy's
// width. The table that kernels are taken from (table.c) exists once per set too; isa.c picks by what the CPU has and
// is fast at. For matrix units only the files that multiply matrices are compiled again; that set takes the others from
// the set before, by the name ISA_OTHERS().
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include "kernels/kernels.h"
#include "kernels/machine.h"

#ifndef ISA_SUFFIX
#define ISA_SUFFIX base
#endif
#define ISA_GLUE(name, suffix) name##_##suffix
#define ISA_EXPAND(name, suffix) ISA_GLUE(name, suffix)
#define ISA(name) ISA_EXPAND(name, ISA_SUFFIX)
#if defined(__AMX_BF16__) || defined(__AMXBF16__) // gcc; clang 14
#define ISA_HAS_AMX
#endif
#ifdef ISA_HAS_AMX
#define ISA_OTHERS(name) ISA_EXPAND(name, avx512bf16)
#else
#define ISA_OTHERS(name) ISA(name)
#endif

// Whether this build contains `isa` and this CPU runs it. For matrix units it asks the system, which then lets the
// whole process use them.
bool isa_usable(enum isa isa);

// OP_COUNT kernels for a model of dtype `model` (f32 or bf16; NULL for others); `run` is NULL where cpu/ has none and
// ref/ serves. The first function is for the best instruction set, the second for a usable one of the caller's choice.
const struct kernel *cpu_kernel_table(enum dtype model);
const struct kernel *cpu_kernel_table_for(enum dtype model, enum isa isa);

#endif
