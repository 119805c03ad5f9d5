// How ranks attend together that have parts of the same sequences (parallelism.context_parallel_method), where that is
// left open.
#ifndef PLANNER_CONTEXT_PLANS_H
#define PLANNER_CONTEXT_PLANS_H

#include "planner/planner.h"

// Under `auto`, plans for each way (parallel/context_method.h) for a while and sets the keys of the one whose best plan
// takes least time; `config` is the request's. Takes what time that needs off the request's seconds. Where nothing fits
// by any of them the keys stay.
trireme_status plan_context(struct plan_request *r, struct config *config, trireme_error *error);

#endif
