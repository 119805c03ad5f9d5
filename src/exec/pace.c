// Sleep in place of arithmetic, for measuring schedules: executor_pace.
#include "base/clock.h"
#include "exec/executor.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

// An invocation that begins no later than this after the one before has ended had what it waited for in time; only its
// thread woke up late.
enum { LATE_NANOSECONDS = 1000000 };

void executor_pace(struct executor *e, double (*seconds)(void *user, int template, int microbatch), void *user) {
    e->pace.seconds = seconds;
    e->pace.user = user;
    e->pace.until = 0;
}

static const struct resolved *first_kernel(const struct resolved_template *t) {
    for (int i = 0; i < t->count; i++)
        if (t->item[i].instruction->stream == STREAM_COMPUTE)
            return &t->item[i];
    return NULL;
}

// The first compute instruction of an invocation stands for all of them.
void pace(struct executor *e, const struct resolved *r, const struct invocation *v) {
    if (r != first_kernel(&e->templates[v->template]))
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
