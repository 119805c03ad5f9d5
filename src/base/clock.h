// The time, in nanoseconds.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

// By the monotonic clock: for intervals on this machine.
int64_t clock_now(void);
// Since 1970 (the epoch): comparable with the times of other machines.
int64_t clock_real(void);
// Processor time that the calling thread has used.
int64_t clock_thread(void);

#endif
