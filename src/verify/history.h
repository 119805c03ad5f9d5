// What was known after each of many steps, where most steps add nothing: only changes are kept. Internal to verify/.
#ifndef VERIFY_HISTORY_H
#define VERIFY_HISTORY_H

#include "program/program.h"

struct history {
    int64_t steps; // so far
    VEC(struct known {
        int64_t from; // this step on
        int32_t of[STREAMS_MAX];
    })
    changes;
};

// Adds a step and what is known after it; NULL: the same as after the step before, which must exist.
void history_add(struct history *history, const int32_t of[STREAMS_MAX]);
// What was known after that step, counted from 0.
const int32_t *history_at(const struct history *history, int64_t step);
void history_release(struct history *history);

// Whether everything that `clock` counts is among what is `known`.
static inline bool clocks_ordered(const int32_t clock[STREAMS_MAX], const int32_t known[STREAMS_MAX]) {
    int32_t late = 0; // of the width of what is compared, so that the loop is one of vectors
    for (int s = 0; s < STREAMS_MAX; s++)
        late |= clock[s] > known[s];
    return late == 0;
}

#endif
