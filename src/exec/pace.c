#include "base/clock.h"
#include "exec/executor.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

// What was late by no more was there in time, and it is the thread that woke up late.
enum { LATE_NANOSECONDS = 1000000 };

void executor_pace(struct executor *e, double (*seconds)(void *user, int template, int microbatch), void *user) {
    e->pace.seconds = seconds;
    e->pace.user = user;
    e->pace.until = 0;
}

// The first compute instruction of an invocation stands for all of them.
void pace(struct executor *e, const struct resolved *r, const struct invocation *v) {
    const struct resolved_template *t = &e->templates[v->template];
    if (r != &t->item[t->of[STREAM_COMPUTE].item[0]])
        return;
    double seconds = e->pace.seconds(e->pace.user, v->template, v->microbatch);
    if (seconds <= 0)
        return;
    int64_t now = clock_now(), start = now - e->pace.until < LATE_NANOSECONDS ? e->pace.until : now;
    e->pace.until = start + (int64_t)(1e9 * seconds);
    prctl(PR_SET_TIMERSLACK, 1000); // of this thread, in nanoseconds: wake up on time
    struct timespec until = {.tv_sec = e->pace.until / 1000000000, .tv_nsec = e->pace.until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}
