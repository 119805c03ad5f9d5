#include "kernels/cpu/pin.h"

#include <omp.h>

// A core that the system refuses leaves the thread where it was: pinning is for speed alone.
void threads_pin(int threads, const int *core) {
#pragma omp parallel num_threads(threads)
    {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core[omp_get_thread_num()], &one);
        sched_setaffinity(0, sizeof one, &one);
    }
}

void threads_unpin(int threads, const cpu_set_t *cores) {
#pragma omp parallel num_threads(threads)
    sched_setaffinity(0, sizeof *cores, cores);
}
