// The state of a search for plans. Internal to planner/.
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "planner/estimate.h"
#include "planner/learn.h"
#include "planner/mix.h"
#include "planner/planner.h"
#include "planner/space.h"

struct search {
    const struct plan_request *request;
    struct plan_result *out;
    struct estimator *estimator;
    trireme_error why; // of the first choice that was refused
    int64_t begin;     // clock_now's time
    int64_t until;     // that after which nothing is begun; 0: no limit
    bool balancing;    // mixed choices get the lists that take least memory
    struct learnt learnt;
    VEC(struct plan_answer) found;   // all simulated plans that fit
    VEC(struct plan_answer) lacking; // all that do not, as long as nothing fits
};

// A choice to compile and simulate.
struct job {
    struct plan_choice choice;
    struct mix mix; // between begin_mix and end_mix
    enum plan_memory memory;
    int64_t expected; // nanoseconds to compile it; 0 where they are few
    int64_t few; // microbatches of a rank from which, and from twice as many, all others follow; 0: all are simulated
    bool done;   // false: it was not begun, since time was up or would have been
    struct plan_answer answer;
    trireme_status status;
    trireme_error error;
};

struct job create_job(const struct search *search, const struct plan_choice *choice);
// Begins to choose the lists of a job's choice, for the memory that its estimate leaves; evaluating does the rest. No
// list is chosen where the mode of the choice, or another choice, serves as well.
void begin_mix(struct search *search, struct job *job);
// For an evaluated job: the result owns its choice's lists from now on.
void end_mix(struct search *search, struct job *job);
// Runs several jobs at once. None is begun after `until`, or if it is expected to end much later; 0: no limit.
void evaluate_all(const struct plan_request *request, struct job *job, int jobs, int64_t until);
// For a job that was a way to better `answer`: counts it, and returns whether its plan fits and is faster. The plan
// gets the estimate of `answer`.
bool job_betters(struct search *search, struct job *job, const struct plan_answer *answer);
// Keeps an answer among the best if it fits, otherwise as `closest` if it lacks least.
void result_take(struct plan_result *out, const struct plan_answer *answer);
// Compiles and simulates batch[count] at once, and keeps the best of them. Those for which there is not enough time are
// left out: most often those with very many microbatches.
void run_batch(struct search *search, struct candidate **batch, int count);
// Plans the memory of answers as `train` does.
void answers_measure_memory(struct search *search, struct plan_answer *const *answer, int count);
// Whether two plans are the same under different names: equal in time, memory and mesh.
bool is_same_plan(const struct plan_answer *a, const struct plan_answer *b);
// Nanoseconds that it takes to compile a choice, or what stands for it (struct job, few), approximately.
double choice_nanoseconds(const struct search *search, const struct plan_choice *choice);
// Whether compiling takes so long that it is not done twice.
bool takes_long(const struct search *search, const struct plan_choice *choice);
// Whether a tensor parallel plan may also be tried in a way that the space leaves out: with whole rows, or with
// exchanges that overlap products. The configuration may say no.
bool search_may_have_whole_rows(const struct search *search, const struct plan_choice *choice);
bool search_may_overlap(const struct search *search, const struct plan_choice *choice);
// Moves layers between the stages of the best plans, and of those that may become the best by it (move.c).
void search_layouts(struct search *search);

// For when nothing is known to fit: evaluates those of `all` (sorted by bytes) that need least memory, to tell by how
// much they miss, also with units and with layers over stages that need still less (smallest.c). Ends with the first
// that fits.
void search_smallest(struct search *search, struct candidates *all);

#endif
