#include "comm/deadline.h"

#include "base/base.h"
#include "base/clock.h"

enum { SLEEP_LEAST = 1000000 }; // even where the others are late already: they may be just arriving

struct deadline deadline_begin(int64_t limit, const _Atomic int64_t *wanted) {
    int64_t now = clock_now();
    return (struct deadline){.limit = limit, .wanted = wanted, .began = now, .looked = now};
}

// As long as the result is not wanted, time counts from now on.
static int64_t counts_from(const struct deadline *p, int64_t now) {
    int64_t wanted = p->wanted ? atomic_load(p->wanted) : p->began;
    return MAX(p->began, wanted ? wanted : now);
}

int64_t deadline_due(const struct deadline *p) {
    return p->limit ? counts_from(p, clock_now()) + p->limit : 0;
}

void deadline_excuse(struct deadline *p, int64_t now, int64_t lost) {
    const int64_t began = counts_from(p, now) + lost; // called once: the result may become wanted meanwhile
    p->began = MIN(now, began);
}

int64_t deadline_look(int64_t *looked, int64_t now) {
    int64_t lost = now - *looked - DEADLINE_SLICE;
    *looked = now;
    return MAX(lost, 0);
}

static int64_t deadline_check(struct deadline *p) {
    int64_t now = clock_now(), lost = deadline_look(&p->looked, now);
    if (lost)
        deadline_excuse(p, now, lost);
    return now;
}

int64_t deadline_sleep(struct deadline *p) {
    if (!p->limit)
        return 0;
    const int64_t now = deadline_check(p), due = deadline_due(p);
    return MAX(now + SLEEP_LEAST, MIN(due, now + DEADLINE_SLICE));
}

bool deadline_ended(struct deadline *p) {
    int64_t now = deadline_check(p);
    return p->limit && now >= deadline_due(p);
}
