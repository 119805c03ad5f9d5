// The time, in nanoseconds.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

// Of the monotonic clock.
int64_t clock_now(void);
// The same since 1970, which other machines know, too.
int64_t clock_real(void);
// That the calling thread has been given by processors.
int64_t clock_thread(void);

#endif
