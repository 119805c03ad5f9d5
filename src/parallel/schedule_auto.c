// A search for a schedule of one chunk to a rank with backward in two parts, under a memory limit.
#include "parallel/schedule_make.h"

#include <math.h>

// Forwards of rank i before it turns to forward and backward by turns: slope * (stages - 1 - i) + more, as the limit
// allows.
static void plan_ahead(struct schedule *s, double slope, int more, int limit) {
    for (int r = 0; r < s->stages; r++) {
        int m = s->microbatches, ahead = (int)ceil(slope * (s->stages - 1 - r) - 1e-9) + more;
        ahead = MIN(MIN(ahead, limit - 1), m);
        for (int f = 0; f < m + ahead; f++) {
            if (f < m)
                schedule_add(s, r, PASS_FORWARD, 0, f);
            if (f >= ahead)
                schedule_add(s, r, PASS_BACKWARD_INPUT, 0, f - ahead);
        }
    }
}

static void search_ahead(struct search *search, const struct schedule *s, const struct schedule_times *t, int limit) {
    enum { SLOPES = 5, MORE = 3, KEPT = 5 };
    double fitting = s->stages > 1 ? (double)(limit - 1) / (s->stages - 1) : 0;
    double filling = t->forward > 0 ? (t->forward + t->backward_input + 2 * t->latency) / t->forward : fitting;
    const double slopes[SLOPES] = {1, MIN(filling, fitting), fitting, 2, 1.5};
    struct schedule plans[SLOPES * MORE];
    for (int k = 0; k < SLOPES * MORE; k++) {
        plans[k] = schedule_empty_like(s);
        plan_ahead(&plans[k], slopes[k / MORE], k % MORE, limit);
    }
    search_plans(search, plans, SLOPES * MORE, KEPT);
}

// Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 3, ask for such a search; this is our own. The forwards
// before the first backward are as many as fill the time until it comes (H1 and H2 are slopes 1 and 2), or as fit.
// What is held until the weights' passes counts whole where that does not make the least cost larger.
void schedule_make_auto(struct schedule *s, const struct schedule_options *o) {
    struct schedule_options whole = *o;
    whole.weight_share = 1;
    struct search search, strict;
    search_begin(&search, s, o, o->activation_limit);
    search_begin(&strict, s, &whole, o->activation_limit);
    bool is_enough = false;
    if (o->weight_share < 1 && strict.bound <= search.bound) {
        search_ahead(&strict, s, &o->times, o->activation_limit);
        is_enough = strict.best_cost <= strict.bound;
    }
    if (!is_enough) {
        search_ahead(&search, s, &o->times, o->activation_limit);
    }
    CHECK(search_end(is_enough ? &strict : &search, s));
    struct schedule rest = schedule_empty_like(s);
    search_end(is_enough ? &search : &strict, &rest);
    schedule_release(&rest);
}
