// Liu et al. 2023, "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency".
#include "parallel/schedule_make.h"

#include <math.h>

// Each rank does what is ready as soon as it can, as their list scheduler does: along a plan in which each microbatch
// goes through all virtual stages without a stop, one behind the other.
void schedule_make_hanayo(struct schedule *s, const struct schedule_options *o) {
    enum { FORWARD = 1, BACKWARD = 2, TIGHTER = 4, KEPT = 4 };
    int count = s->stages * s->chunks, whole = (FORWARD + BACKWARD) * s->chunks;
    int(*when)[3] = mem_alloc((size_t)count * sizeof *when);
    for (int v = 0; v < count; v++) {
        when[v][0] = FORWARD * v;
        when[v][1] = FORWARD * count + BACKWARD * (count - 1 - v);
        when[v][2] = -1;
    }
    struct schedule_options whole_backward = *o;
    whole_backward.times.backward_input += o->times.backward_weight;
    whole_backward.times.backward_weight = 0;
    VEC(struct schedule) plans = {0};
    for (int k = 0; k < TIGHTER; k++) {
        struct schedule plan = schedule_empty_like(s);
        plan_by_time(&plan, (const int(*)[3])when, MAX(1, whole - k));
        VEC_PUSH(&plans, plan);
    }
    free(when);
    struct search search;
    search_begin(&search, s, &whole_backward, count);
    search_plans(&search, plans.item, plans.count, KEPT);
    VEC_RELEASE(&plans);
    struct schedule found = schedule_empty_like(s);
    CHECK(search_end(&search, &found));
    for (int r = 0; r < s->stages; r++)
        for (size_t i = 0; i < found.rank[r].count; i++) {
            struct pass pass = found.rank[r].item[i];
            if (pass.kind != PASS_BACKWARD_WEIGHT)
                schedule_add(s, r, pass.kind == PASS_FORWARD ? PASS_FORWARD : PASS_BACKWARD, pass.chunk,
                             pass.microbatch);
        }
    schedule_release(&found);
}
