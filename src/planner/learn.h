// Internal to planner/: how wrong the estimates of choices alike were, learnt from those that were simulated.
#ifndef PLANNER_LEARN_H
#define PLANNER_LEARN_H

#include "planner/space.h"

// How much more memory than a choice has may be estimated before it is left out.
#define MEMORY_SLACK 1.2

// Pipelines, or choices without one, of the same schedule and ZeRO stage, whose vocabulary is spread or is not: what
// stages exchange for that is not estimated. Where devices differ, balanced layouts are a kind of their own: layers of
// the same cost, on any device.
struct kin {
    const char *schedule;
    int zero_stage;
    bool pipeline, vocabulary, balanced;
    double seconds, bytes; // real over estimated, the smallest that were seen; 0: none yet
};

// Estimates of one mesh may be wrong by what those of another are not, by its links above all.
struct learnt_mesh {
    int tensor, stages;
    bool compared;
};

struct learnt {
    const struct estimator *estimator;
    VEC(struct kin) kin;
    VEC(struct learnt_mesh) meshes;
};

void learnt_release(struct learnt *learnt);
// Sets the numbers of the candidate's kin and mesh.
void learnt_place(struct learnt *learnt, struct candidate *candidate);
void learnt_add(struct learnt *learnt, const struct candidate *candidate, const struct plan_answer *answer);

// Seconds of a step, as far as is known: more than is estimated only where something on its mesh was compared.
double learnt_seconds(const struct learnt *learnt, const struct candidate *candidate);
// What it may take at least, as a share of learnt_seconds.
double learnt_slack(const struct learnt *learnt, const struct candidate *candidate);
bool learnt_may_fit(const struct learnt *learnt, const struct candidate *candidate);
// It would take more than there is even if it took, of its estimate, as little as any of its kin that was simulated.
// False where none was.
bool is_hopeless(const struct learnt *learnt, const struct candidate *candidate);

#endif
