// A search for plans, while it goes on. Internal to plan/.
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/estimate.h"
#include "plan/learn.h"
#include "plan/mix.h"
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
    VEC(struct plan_answer) found;   // all that fit
    VEC(struct plan_answer) lacking; // all that do not, as long as nothing fits
};

struct job {
    struct plan_choice choice;
    struct mix mix; // of a choice that is mixed and has no lists yet
    enum plan_memory memory;
    int64_t expected; // nanoseconds to compile it: 0 where they are few
    bool done;        // else time was up before, or would have been
    struct plan_answer answer;
    trireme_status status;
    trireme_error error;
};

struct job create_job(const struct search *search, const struct plan_choice *choice);
// Several at once. None is begun after `until`, or is expected to end much later; 0: there is time.
void evaluate_all(const struct plan_request *request, struct job *job, int jobs, int64_t until);
// Counts a way to better an answer; whether it does, and fits. It has that answer's estimate.
bool betters(struct search *search, struct job *job, const struct plan_answer *answer);
// Keeps what fits among the best, and of the rest what lacks least.
void take(struct plan_result *out, const struct plan_answer *answer);
// The result has the choice's lists from now on.
void own_lists(struct plan_result *out, const struct plan_choice *choice);
// Compiles and simulates some at once, and keeps what is best of them. What time does not suffice for is left out: most
// often what has very many microbatches.
void run_batch(struct search *search, struct candidate **batch, int count);
// Makes the memory of answers what `train` takes.
void measure_memory(struct search *search, struct plan_answer *const *answer, int count);
// The same layouts, orders and units, under another word.
bool is_same_plan(const struct plan_answer *a, const struct plan_answer *b);
// Nanoseconds to compile it, about.
double time_of(const struct search *search, const struct plan_choice *choice);
// Whether a choice takes so long to be compiled that this is not done twice.
bool takes_long(const struct search *search, const struct plan_choice *choice);
// Moves layers between stages of the best, and of what may be among them then (move.c).
void search_layouts(struct search *search);

// Where nothing fits, as far as is known, those of `all` (by bytes) that need least tell by how much, in units and with
// layers over stages that need less still (smallest.c). The first that does fit tells that there is something.
void search_smallest(struct search *search, struct candidates *all);

#endif
