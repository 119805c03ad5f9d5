// A search for a schedule with backward in two parts, under a memory limit.
#include "pipeline/schedule_make.h"

#include <math.h>

#define ROUNDING 1e-12

// Rank i does slope * (stages - 1 - i) + more forwards, or as many as the limit allows, and then a forward and a
// backward in turn.
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

static void search_ahead(struct schedule_search *search, const struct schedule *s, const struct schedule_times *t,
                         int limit) {
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

// The same options with weight_share 1: all that is held counts whole.
static struct schedule_options as_a_whole(const struct schedule_options *o) {
    struct schedule_options whole = *o;
    whole.weight_share = 1;
    return whole;
}

static double auto_cost_of(const struct schedule *s, const struct schedule_times *t) {
    struct schedule_cost cost;
    schedule_cost(s, t, &cost);
    double result = cost.cost;
    schedule_cost_release(&cost);
    return result;
}

// Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 3, propose such a search; this one is our own. There are
// as many forwards before the first backward as fill the time until it comes (H1 and H2 are slopes 1 and 2), or as fit.
// Where it does not make the least cost larger, what is held until the weights' passes counts whole. `below` is the
// cost of the best schedule known, and `is_whole` says whether that one stays within the limit when counted whole.
// False where nothing was found.
static bool find_of_one(struct schedule *s, const struct schedule_options *o, int limit, double below, bool is_whole) {
    const struct schedule_options whole = as_a_whole(o);
    struct schedule_search search, strict;
    search_begin(&search, s, o, limit);
    search_begin(&strict, s, &whole, limit);
    const bool is_hopeless = search.bound >= below;
    if (o->weight_share < 1 && strict.bound <= search.bound && !(is_hopeless && is_whole))
        search_ahead(&strict, s, &o->times, limit);
    if (strict.best_cost > strict.bound && !is_hopeless)
        search_ahead(&search, s, &o->times, limit);
    const bool is_enough = strict.best_cost <= search.best_cost * (1 + ROUNDING);
    bool found = search_end(is_enough ? &strict : &search, s);
    struct schedule rest = schedule_empty_like(s);
    search_end(is_enough ? &search : &strict, &rest);
    schedule_release(&rest);
    return found;
}

// ---- the best schedule so far

// The share of the passes that a search may try which is kept for polishing the best schedule.
#define POLISH_PART .25

struct best {
    const struct schedule_options *options;
    struct schedule schedule; // zero while there is none
    double cost;
    bool is_whole; // within the limit even when all that is held counts whole
    int limit;     // (chunk, microbatch)
};

// No schedule costs less than the work of a rank.
static bool is_least(const struct best *best) {
    double work = schedule_chunk_time(&best->options->times) * best->schedule.chunks * best->schedule.microbatches;
    return best->cost <= work * (1 + ROUNDING);
}

static bool auto_holds(const struct schedule *s, int limit, double weight_share) {
    for (int r = 0; r < s->stages; r++)
        if (s->chunks * schedule_activations(s, r, weight_share) > limit + 1e-9)
            return false;
    return true;
}

// Takes over a schedule, and keeps it if it is within the limit and the best so far. Of schedules of equal cost, one
// that is within the limit when all counts whole is better.
static void auto_offer(struct best *best, struct schedule *s) {
    const bool fits = s->rank[0].count > 0 && auto_holds(s, best->limit, best->options->weight_share);
    const bool is_whole = fits && auto_holds(s, best->limit, 1);
    const double cost = fits ? auto_cost_of(s, &best->options->times) : INFINITY;
    if (cost < best->cost * (1 - ROUNDING) || (cost <= best->cost * (1 + ROUNDING) && is_whole && !best->is_whole)) {
        struct schedule worse = best->schedule;
        best->schedule = *s;
        best->cost = cost;
        best->is_whole = is_whole;
        *s = worse;
    }
    if (s->stages)
        schedule_release(s);
}

// Whole backwards become their two parts.
static struct schedule in_parts(const struct schedule *whole) {
    struct schedule parts = schedule_empty_like(whole);
    for (int r = 0; r < whole->stages; r++)
        for (size_t i = 0; i < whole->rank[r].count; i++) {
            struct pass pass = whole->rank[r].item[i];
            bool is_whole = pass.kind == PASS_BACKWARD;
            schedule_add(&parts, r, is_whole ? PASS_BACKWARD_INPUT : pass.kind, pass.chunk, pass.microbatch);
            if (is_whole)
                schedule_add(&parts, r, PASS_BACKWARD_WEIGHT, pass.chunk, pass.microbatch);
        }
    return parts;
}

// ---- one chunk to a rank

// First counting whole, if the schedule is within the limit so, and then as the options say.
static void auto_polish(struct best *best) {
    double passes = POLISH_PART * (double)best->options->search_passes;
    for (int k = 0; k < 2 && !is_least(best); k++) {
        const struct schedule_options whole = as_a_whole(best->options);
        struct schedule tried = schedule_copy(&best->schedule);
        passes = schedule_polish(&tried, k == 0 && best->is_whole ? &whole : best->options, passes);
        auto_offer(best, &tried);
    }
}

// The best of the published schedules and of what searches find. A search with more room may find less, so the usual
// limits below the given one are searched too.
static void make_of_one(struct schedule *s, const struct schedule_options *o) {
    struct best best = {.options = o, .cost = INFINITY, .limit = o->activation_limit};
    struct schedule made = schedule_empty_like(s);
    schedule_make_1f1b(&made, o);
    struct schedule parts = in_parts(&made);
    schedule_release(&made);
    auto_offer(&best, &parts);
    made = schedule_empty_like(s);
    schedule_make_zb_h1(&made, o);
    auto_offer(&best, &made);
    made = schedule_empty_like(s);
    schedule_make_zb_h2(&made, o);
    auto_offer(&best, &made);
    const int limits[] = {o->activation_limit, 2 * s->stages, 3 * s->stages / 2, s->stages};
    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        if (i > 0 && limits[i] >= o->activation_limit)
            continue;
        made = schedule_empty_like(s);
        find_of_one(&made, o, limits[i], best.cost, best.is_whole);
        auto_offer(&best, &made);
    }
    auto_polish(&best);
    CHECK(best.cost < INFINITY);
    schedule_release(s);
    *s = best.schedule;
}

// ---- several chunks to a rank

// Like `interleaved`, but with groups of any size; and rank i does slope * (stages - 1 - i) + more forwards, besides
// those that the first backward of the last rank needs, before it does a forward and a backward in turn.
static void plan_groups(struct schedule *s, int group, double slope, int more, int limit) {
    int v = s->chunks, m = s->microbatches, count = 0;
    struct pass *order = mem_alloc((size_t)m * (size_t)v * sizeof *order);
    for (int first = 0; first < m; first += group)
        for (int c = 0; c < v; c++)
            for (int i = first; i < MIN(m, first + group); i++)
                order[count++] = (struct pass){PASS_FORWARD, c, i};
    for (int r = 0; r < s->stages; r++) {
        int ahead = (int)ceil(slope * (s->stages - 1 - r) - 1e-9) + more + (v - 1) * group;
        ahead = MIN(MIN(ahead, limit - 1), count);
        schedule_add_alternating(s, r, order, count, ahead, PASS_BACKWARD_INPUT);
    }
    free(order);
}

static void search_groups(struct best *best, const struct schedule *like, const struct schedule_options *o) {
    enum { SLOPES = 4, MORE = 2, KEPT = 6 };
    static const double slopes[SLOPES] = {2, 1, 3, 4};
    VEC(struct schedule) plans = {0};
    struct schedule_search search;
    search_begin(&search, like, o, best->limit);
    search.fill.in_line = true;
    for (int group = MIN(like->stages, like->microbatches);; group /= 2) {
        for (int k = 0; k < SLOPES * MORE; k++) {
            struct schedule plan = schedule_empty_like(like);
            plan_groups(&plan, group, slopes[k / MORE], k % MORE, best->limit);
            VEC_PUSH(&plans, plan);
        }
        if (group == 1)
            break;
    }
    search_plans(&search, plans.item, plans.count, KEPT);
    VEC_RELEASE(&plans);
    struct schedule found = schedule_empty_like(like);
    search_end(&search, &found);
    auto_offer(best, &found);
}

// The best of the published schedules and of what searches find, in the placement of `interleaved` and, with two
// chunks, in that of zb-v. In the first, ranks do the forwards of all chunks in one order, and likewise the backwards:
// messages between two ranks then match in order. Of zb-v, v-half and v-min, the one that holds the most costs the
// least.
static void make_of_several(struct schedule *s, const struct schedule_options *o) {
    int p = s->stages;
    struct best best = {.options = o, .cost = INFINITY, .limit = o->activation_limit * s->chunks};
    struct schedule_options strict = as_a_whole(o), half = *o;
    half.search_passes = MAX(1, o->search_passes / 2);
    struct schedule made = schedule_empty_like(s);
    schedule_make_interleaved(&made, o);
    struct schedule parts = in_parts(&made);
    schedule_release(&made);
    auto_offer(&best, &parts);
    if (s->chunks == 2 && o->activation_limit >= (p + 4) / 3) {
        schedule_begin_there_and_back(&made, p, s->microbatches, 2);
        (o->activation_limit >= p             ? schedule_make_zb_v
         : o->activation_limit >= (p + 2) / 2 ? schedule_make_v_half
                                              : schedule_make_v_min)(&made, &strict);
        auto_offer(&best, &made);
    }
    if (s->chunks == 2 && !is_least(&best)) {
        schedule_begin_there_and_back(&made, p, s->microbatches, 2);
        schedule_make_v(&made, &half, best.limit);
        auto_offer(&best, &made);
    }
    if (!is_least(&best))
        search_groups(&best, s, &half);
    CHECK(best.cost < INFINITY);
    schedule_release(s);
    *s = best.schedule;
}

void schedule_make_auto(struct schedule *s, const struct schedule_options *o) {
    if (s->chunks == 1)
        make_of_one(s, o);
    else
        make_of_several(s, o);
}
