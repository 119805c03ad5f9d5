// A search for plans, while it goes on. Internal to plan/.
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/estimate.h"
#include "plan/learn.h"
#include "plan/plan.h"
#include "plan/space.h"

struct search {
    const struct plan_request *request;
    struct plan_result *out;
    struct estimator *estimator;
    trireme_error why; // of the first that was refused
    int64_t until;     // 0: there is time
    bool balancing;    // what is mixed is so for the least memory
    struct learnt learnt;
    VEC(struct plan_answer) found; // all that fit
};

// Compiles and simulates some at once, and keeps what is best of them. What time does not suffice for is left out: most
// often what has very many microbatches.
void run_batch(struct search *search, struct candidate **batch, int count);
// Makes the memory of answers what `train` takes.
void measure_memory(struct search *search, struct plan_answer *const *answer, int count);
// The same layouts, orders and units, under another word.
bool is_same_plan(const struct plan_answer *a, const struct plan_answer *b);
// Whether a choice takes so long to be compiled that this is not done twice.
bool takes_long(const struct search *search, const struct plan_choice *choice);

// Where nothing fits, as far as is known, those of `all` (by bytes) that need least tell by how much, in units and with
// layers over stages that need less still (smallest.c). The first that does fit tells that there is something.
void search_smallest(struct search *search, struct candidates *all);

#endif
