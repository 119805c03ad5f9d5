// cpu/: the fast kernels, f32 and bf16. All are ours: matrix products on the register tile of tile.h (gemm.h), flash
// attention on the same tile, everything else in one pass over memory.
//
// How to add a kernel. Write `void ISA(cpu_OP)(const struct call *call)`, which looks at the operands' dtypes, in a
// file of this folder, declare it in a header and put it into a row of table.c. The file is compiled once per
// instruction set (isa.h says how); write plain loops that the compiler vectorises, or vectors of the copy's width
// (vec.h). Kernels that need workspace or something prepared also have a prepare function; ops without a row run on
// ref/.
//
// Threads: a kernel starts `#pragma omp parallel for num_threads(call->threads) schedule(dynamic)` and cuts its work by
// index alone, so that no bit of the results depends on how many threads there are or which of them does what. There
// are several turns for each thread: cores differ, and the system takes them away at times, and a slow thread should
// hold up one turn, not an equal share of the work. The OpenMP runtime makes its threads at the first use and keeps
// them as long as all teams are of the same size; apart from that no kernel allocates.
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/cpu/isa.h"

// This copy's table (table.c).
const struct kernel *ISA(cpu_table)(enum dtype model);

// matmul.c
void ISA(cpu_matmul)(const struct call *call);
void ISA(cpu_matmul_dx)(const struct call *call);
void ISA(cpu_matmul_dw)(const struct call *call);
trireme_status ISA(cpu_matmul_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                       trireme_error *error);
trireme_status ISA(cpu_matmul_dx_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error);
trireme_status ISA(cpu_matmul_dw_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error);
unsigned ISA(cpu_matmul_ways)(const struct call *call);
unsigned ISA(cpu_matmul_dx_ways)(const struct call *call);
unsigned ISA(cpu_matmul_dw_ways)(const struct call *call);

// newton_schulz.c
void ISA_OTHERS(cpu_newton_schulz)(const struct call *call);
trireme_status ISA_OTHERS(cpu_newton_schulz_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                     trireme_error *error);

// attention.c, for OP_ATTENTION and OP_ATTENTION_BLOCK
void ISA(cpu_attention)(const struct call *call);
trireme_status ISA(cpu_attention_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                          trireme_error *error);

// attention_bwd.c, for OP_ATTENTION_BWD and OP_ATTENTION_BLOCK_BWD
void ISA(cpu_attention_bwd)(const struct call *call);
void ISA(cpu_attention_sinks_dw)(const struct call *call);
trireme_status ISA(cpu_attention_bwd_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                              trireme_error *error);

// attention_cached.c
void ISA(cpu_cache_append)(const struct call *call);
void ISA(cpu_attention_cached)(const struct call *call);
trireme_status ISA(cpu_attention_cached_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                 trireme_error *error);

#endif
