// Internal to plan/: how wrong the estimates of choices alike were, learnt from those that were simulated.
#ifndef PLAN_LEARN_H
#define PLAN_LEARN_H

#include "plan/space.h"

// How much more memory than a choice has may be estimated before it is left out.
#define MEMORY_SLACK 1.2

// Pipelines, or choices without one, of the same schedule and ZeRO stage. Where devices differ, balanced layouts are a
// kind of their own: layers of the same cost, on any device.
struct kin {
    const char *schedule;
    int zero_stage;
    bool pipeline, balanced;
    double seconds, bytes; // real over estimated, the smallest that were seen; 0: none yet
};

struct learnt {
    const struct estimator *estimator;
    VEC(struct kin) kin;
};

void learnt_release(struct learnt *learnt);
// The number of the choice's kin: candidate.kin.
int learnt_kin(struct learnt *learnt, const struct plan_choice *choice);
void learn(struct learnt *learnt, const struct candidate *candidate, const struct plan_answer *answer);

// Seconds of a step, as far as is known.
double learnt_seconds(const struct learnt *learnt, const struct candidate *candidate);
// What it may take at least, as a share of learnt_seconds.
double learnt_slack(const struct learnt *learnt, const struct candidate *candidate);
bool may_fit(const struct learnt *learnt, const struct candidate *candidate);
// It would take more than there is even if it took, of its estimate, as little as any of its kin that was simulated.
// False where none was.
bool is_hopeless(const struct learnt *learnt, const struct candidate *candidate);

#endif
