// Pieces of work on several threads, each of which takes what is next.
#ifndef BASE_CREW_H
#define BASE_CREW_H

// Runs work(argument, i) for all i below `count`, begun in this order, on so many threads, the caller's among them, on
// fewer where the system gives no more; returns when all is done.
void crew_run(int threads, int count, void (*work)(void *argument, int i), void *argument);
// A *processor* is what the system runs a thread on: a core, or one of a core's hardware threads, which share what
// computes, so that one of them is enough for it.

// Cores that the calling thread may run on, at least 1.
int bound_cores(void);
// The same, or those whose time control groups leave it (docker --cpus), where that is less: as many threads as pay.
int usable_cores(void);
// Of how many cores that is the time, rounded up; INT_MAX: of all. `root` as in system.h.
int cores_of_quota(const char *root);
// The processors that it may use, one of each core before all others, each part ascending; the caller frees them.
// *count is 0 where the system does not tell.
int *processors_list(int *count);
// The lowest processor of the same core; the processor itself where the system does not tell.
int core_of(int processor);
// Puts one of each core before all others, and says how many cores there are. `of` is core_of, in all but tests.
int cores_first(int *processor, int count, int (*of)(int processor));
// The calling thread runs on processor[count] alone. It stays where it is if the system refuses: this is for speed
// alone. Allocates nothing.
void processors_keep_to(const int *processor, int count);

#endif
