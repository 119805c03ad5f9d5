// The machine that kernels run on: which instructions it has, what it can do at most, and where threads run. Other
// folders see this header and those beside it, but nothing of cpu/ and ref/.
#ifndef KERNELS_MACHINE_H
#define KERNELS_MACHINE_H

#include "program/program.h"

// ---- instruction sets (cpu/isa.c)

// Ascending: each includes those before it.
enum isa {
    ISA_BASE,        // what every CPU of the architecture has (x86-64: SSE2)
    ISA_AVX2,        // AVX2, FMA
    ISA_AVX512,      // AVX-512 F, BW, DQ, VL
    ISA_AVX512_BF16, // and dot products of bf16 pairs
    ISA_AMX,         // and products of small bf16 matrices
    ISA_COUNT
};

const char *isa_name(enum isa isa);
// The widest set that this CPU has and this build contains, and no wider than the one that ISA_LIMIT in the environment
// names. Products of bf16 pairs that are slower than multiply-adds of f32, as a millisecond of both shows, do not count
// unless ISA_LIMIT names them.
enum isa isa_best(void);
#define ISA_LIMIT "TRIREME_ISA"
// Refuses (TRIREME_ERROR_USAGE) a limit that names no set, which isa_best ignores.
trireme_status isa_check_limit(trireme_error *error);

// ---- the most that it can do: a step's speed is told as a fraction of it (model flops utilisation)

// Floating-point operations per second of `threads` threads (no more than there are cores) that do nothing but
// multiply-adds in registers, with the widest instructions that kernels on `dtype` use: the best of several short runs.
// `flops` are the operations of what is compared with the figure: measuring takes about a hundredth of the time that
// they need at least, but 0.03 to 0.3 seconds. bf16 is measured where the CPU multiplies pairs of bf16, else the figure
// of f32 stands for it; f64 counts as half of f32.
double peak_flops(enum dtype dtype, int threads, double flops);
// Bytes per second that `threads` threads (no more than there are cores) together read, or read and write, of memory
// that no cache holds: the best of several short runs of both kinds, 0.2 seconds in all. Needs 256 MiB meanwhile, less
// where less is available.
trireme_status memory_bandwidth(int threads, double *bytes_per_second, trireme_error *error);

// ---- threads on cores of their own, so that what one has in its caches stays with it (cpu/pin.c). OpenMP keeps a
// team's threads from one loop to the next, so the threads pinned here are those that kernels run on.

// How many threads a team has at most (OMP_THREAD_LIMIT), however many are asked for.
int threads_most(void);
// Lets thread i of a team of `threads`, which the calling thread leads, run on core[i] alone.
void threads_pin(int threads, const int *core);
// Lets all threads of the team run on any of core[count].
void threads_unpin(int threads, const int *core, int count);

#endif
