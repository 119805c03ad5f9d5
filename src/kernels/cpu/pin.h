// Keeps threads on cores of their own, so that what one has in its caches stays with it. OpenMP keeps a team's threads
// from one loop to the next, so the threads pinned here are those that kernels run on.
#ifndef KERNELS_CPU_PIN_H
#define KERNELS_CPU_PIN_H

// How many threads a team has at most (OMP_THREAD_LIMIT), however many are asked for.
int threads_most(void);
// Lets thread i of a team of `threads`, which the calling thread leads, run on core[i] alone.
void threads_pin(int threads, const int *core);
// Lets all threads of the team run on any of core[count].
void threads_unpin(int threads, const int *core, int count);

#endif
