// Pieces of work on several threads, each of which takes what is next.
#ifndef BASE_CREW_H
#define BASE_CREW_H

// Runs work(argument, i) for all i below `count`, begun in this order, on so many threads, the caller's among them, on
// fewer where the system gives no more; returns when all is done.
void crew_run(int threads, int count, void (*work)(void *argument, int i), void *argument);
// Processors that the calling thread may use, at least 1.
int usable_cores(void);
// Their numbers, ascending; the caller frees them. *count is 0 where the system does not tell.
int *cores_list(int *count);
// The calling thread runs on core[count] alone. It stays where it is if the system refuses: this is for speed alone.
// Allocates nothing.
void cores_keep_to(const int *core, int count);

#endif
