// Internal to plan/: the choices that a configuration leaves open.
#ifndef PLAN_SPACE_H
#define PLAN_SPACE_H

#include "plan/estimate.h"

struct candidate {
    struct plan_choice choice;
    struct estimate estimate; // bytes 0: of none in the space, but of a way to better one
    bool done;                // evaluated
    int kin, mesh;            // with which it is compared (learn.h)
};
struct candidates {
    VEC(struct candidate);
};

// All that are possible, with their estimates. Refuses degrees that do not divide the ranks, and what parallel_check
// does.
trireme_status space_list(struct candidates *out, struct estimator *estimator, trireme_error *error);
// Where none is possible: the key that leaves nothing to try, else `why` the first was refused, else the key that rules
// them out.
trireme_status space_refuse(struct estimator *estimator, const trireme_error *why, trireme_error *error);

#endif
