// Internal to planner/: the choices that a configuration leaves open.
#ifndef PLANNER_SPACE_H
#define PLANNER_SPACE_H

#include "planner/estimate.h"

struct candidate {
    struct plan_choice choice;
    struct estimate estimate;
    bool outside;  // it is not in the space, but a way to better a plan; its estimate is for another choice
    bool done;     // evaluated, or left out for lack of time
    int kin, mesh; // the groups with which it is compared (learn.h)
};
struct candidates {
    VEC(struct candidate);
};

// Whether there is something to choose layer by layer or stage by stage: how layers are recomputed, or how many a stage
// has.
bool space_mixes(const struct config *config);
// Lists all possible choices, with their estimates. Refuses degrees that do not divide the ranks, and all that
// parallel_check refuses.
trireme_status space_list(struct candidates *out, struct estimator *estimator, trireme_error *error);
// For when no choice is possible: the error names the key that leaves nothing to try; else it is `why`, or if that is
// NULL the reason of the first refusal; else it names the key that rules all choices out.
trireme_status space_refuse(struct estimator *estimator, const trireme_error *why, trireme_error *error);

#endif
