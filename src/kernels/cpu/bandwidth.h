// What memory can do at most: with the peak of the cores, the bound on what an instruction can reach.
#ifndef KERNELS_CPU_BANDWIDTH_H
#define KERNELS_CPU_BANDWIDTH_H

#include "base/base.h"

// Bytes per second that `threads` threads (no more than there are cores) together read, or read and write, of memory
// that no cache holds: the best of several short runs of both kinds, 0.2 seconds in all. Needs 256 MiB meanwhile, less
// where less is available.
trireme_status memory_bandwidth(int threads, double *bytes_per_second, trireme_error *error);

#endif
