// What a process needs besides the arenas of its ranks, so that a run which is admitted under a limit also ends within
// it. The figures are estimates, made after programs are compiled and before threads run, with a margin: on x86-64
// processes of 1 to 32 ranks took 0.5 to 0.95 of them.
#ifndef ENGINE_PROCESS_MEMORY_H
#define ENGINE_PROCESS_MEMORY_H

#include "compile/stages.h"

// Bytes that become resident: code and tables that only a step needs, threads, batches that wait for their step, the
// blocks in which a checkpoint is saved, and the system's page tables for `arenas` bytes. `ranks` ranks share the
// machine's memory.
size_t process_memory(const struct stages *stages, int ranks, size_t arenas);
// Bytes of address space that stacks of threads take which `ranks` ranks of a process have yet to start.
size_t process_stacks(const struct stages *stages, int ranks);

#endif
