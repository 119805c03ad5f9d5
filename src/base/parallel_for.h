// Work in pieces on several threads, each of which takes the next piece; and the processors to run threads on.
#ifndef BASE_PARALLEL_FOR_H
#define BASE_PARALLEL_FOR_H

#include "base/base.h"

#include <pthread.h>

// Starts a thread that runs run(argument), on a stack of thread_stack_bytes. TRIREME_ERROR_IO, with what may stand in
// the way, names it by `what`.
trireme_status thread_start(pthread_t *out, void *(*run)(void *argument), void *argument, const char *what,
                            trireme_error *error);
// What the system gives by default (ulimit -s), but at least THREAD_STACK_LEAST.
enum { THREAD_STACK_LEAST = 1 << 20 };
size_t thread_stack_bytes(void);
// Runs work(argument, i) for each i in [0, count), started in this order, on up to `threads` threads (64 at most), the
// caller's included; on fewer where the system grants no more. Returns when all are done.
void parallel_for(int threads, int count, void (*work)(void *argument, int i), void *argument);

// The same for work that can fail, with an `error` for each piece. Returns the failure of the lowest i, whatever the
// threads; after a failure nothing of a higher i is begun.
trireme_status parallel_try(int threads, int count, trireme_status (*work)(void *argument, int i, trireme_error *error),
                            void *argument, trireme_error *error);

// A *processor* is what the system runs a thread on: a core, or one of a core's hardware threads. The hardware threads
// of a core share its arithmetic units, so one of them keeps the core busy.

// The number of cores that the calling thread may run on, at least 1.
int bound_cores(void);
// The number of threads that pay off: bound_cores, or, where that is less, the cores whose time control groups leave
// this process (docker --cpus).
int usable_cores(void);
// The cores' worth of time that control groups leave this process, rounded up; INT_MAX: no limit. `root` as in
// system.h.
int cores_of_quota(const char *root);
// The processors that the calling thread may use: first one of each core, then the others, both in ascending order. The
// caller frees the list. *count is 0 where the system does not tell.
int *processors_list(int *count);
// The lowest processor of the same core; the processor itself where the system does not tell.
int core_of(int processor);
// Moves one processor of each core to the front of processor[count], keeping the order otherwise, and returns the
// number of cores. `of` is core_of, except in tests.
int cores_first(int *processor, int count, int (*of)(int processor));
// From now on the calling thread runs only on the processors in processor[count]. If the system refuses, nothing
// changes: only speed depends on it. Allocates nothing.
void processors_keep_to(const int *processor, int count);

#endif
