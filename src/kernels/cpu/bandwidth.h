// What the memory could do: with the peak of the cores, the bound of what an instruction can reach.
#ifndef KERNELS_CPU_BANDWIDTH_H
#define KERNELS_CPU_BANDWIDTH_H

#include "base/base.h"

// Bytes per second that `threads` threads, as many as there are cores at most, together read, or read and write, of
// memory that no cache holds: the best of several short runs of both kinds, 0.2 seconds in all. Takes 256 MiB
// meanwhile, less where less is available.
trireme_status memory_bandwidth(int threads, double *bytes_per_second, trireme_error *error);

#endif
