// Internal to planner/: the programs of a choice.
#ifndef PLANNER_EVALUATE_H
#define PLANNER_EVALUATE_H

#include "planner/planner.h"

struct choice_programs {
    struct config config;
    struct parallel plan;
    struct stages stages;
    const struct program **program; // the training step of each stage
    int ranks_per_device;
    int64_t room; // which program_plan aims at (struct plan_aim)
};

// The same request with so large a batch that ranks have `microbatches` microbatches of the choice. The caller releases
// *config, which the result points to.
trireme_status plan_fewer(struct plan_request *out, struct config *config, const struct plan_request *request,
                          const struct plan_choice *choice, int64_t microbatches, trireme_error *error);
// Turns *more, the answer for `more->simulated` microbatches, into that for all of the request, given the one for
// fewer. From one number on to the other, time and memory must grow evenly.
void plan_answer_extend(struct plan_answer *more, const struct plan_answer *fewer, const struct plan_request *request);

// Resolves how a choice is spread over ranks; the caller releases *out. False where the choice is impossible.
bool choice_resolve(struct parallel *out, const struct plan_request *request, const struct plan_choice *choice);
// Compiles the programs of all stages; the caller releases *out, which must stay in its place. `hurried`: memory is
// planned without what takes long. TRIREME_ERROR_USAGE where the choice is impossible.
trireme_status choice_compile(struct choice_programs *out, const struct plan_request *request,
                              const struct plan_choice *choice, enum plan_memory memory, bool hurried,
                              trireme_error *error);
void choice_release(struct choice_programs *programs);

#endif
