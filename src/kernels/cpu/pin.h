// Threads kept on cores of their own, so that what one has in its caches stays with it. A team of OpenMP keeps its
// threads from one loop to the next, so that those of kernels are the ones meant here.
#ifndef KERNELS_CPU_PIN_H
#define KERNELS_CPU_PIN_H

// How many a team has at most (OMP_THREAD_LIMIT), however many it is asked for.
int threads_most(void);
// Thread i of a team of `threads`, which the calling thread leads, may run on core[i] alone.
void threads_pin(int threads, const int *core);
// All may run on core[count].
void threads_unpin(int threads, const int *core, int count);

#endif
