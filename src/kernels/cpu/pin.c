#include "kernels/machine.h"

#include "base/parallel_for.h"

#include <omp.h>

int threads_most(void) {
    return omp_get_thread_limit();
}

void threads_pin(int threads, const int *core) {
#pragma omp parallel num_threads(threads)
    processors_keep_to(&core[omp_get_thread_num()], 1);
}

void threads_unpin(int threads, const int *core, int count) {
#pragma omp parallel num_threads(threads)
    processors_keep_to(core, count);
}
