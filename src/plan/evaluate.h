// Internal to plan/: the programs of a choice.
#ifndef PLAN_EVALUATE_H
#define PLAN_EVALUATE_H

#include "plan/plan.h"

struct choice_programs {
    struct config config;
    struct parallel plan;
    struct stage_programs stages;
    int ranks_per_device;
    int64_t room; // as program_plan has it, without hurry
};

// How a choice is spread over ranks, which the caller releases; false: it is impossible.
bool choice_resolve(struct parallel *out, const struct plan_request *request, const struct plan_choice *choice);
// Hurried: what takes long is left out of the plans of memory. TRIREME_ERROR_USAGE where it is impossible.
trireme_status choice_compile(struct choice_programs *out, const struct plan_request *request,
                              const struct plan_choice *choice, enum plan_memory memory, bool hurried,
                              trireme_error *error);
void choice_release(struct choice_programs *programs);

#endif
