// The same work on several threads, each of which takes what is next.
#ifndef BASE_CREW_H
#define BASE_CREW_H

// Runs work(argument) on so many threads, the caller's among them, on fewer where the system gives no more; returns
// when all have returned.
void crew_run(int threads, void *(*work)(void *argument), void *argument);
// Processors that this process may use, at least 1.
int usable_cores(void);

#endif
