// A search over plans and ways to fill them: schedule_make.h. Its random numbers come from a counter, and it gives up
// after a number of passes tried, not after a time, so that all ranks of a run find the same.
#include "pipeline/schedule_make.h"

#include "base/rng.h"

#include <math.h>

#define ROUNDING 1e-9
// After so many changes in a row that do not help, a climb ends.
enum { VAIN_CHANGES = 200 };

// ---- trying

// A lower bound of the cost. Each rank does all of its passes; and in a pipeline with one chunk
// - the first rank can do only as many forwards as it may hold before its first backward, for which it has to wait;
// - the last rank can leave only as many weights' passes as it may hold until its last backward, from which the way
//   leads back to the first rank.
static double least_cost(const struct schedule *s, const struct fill *f, double work) {
    const struct schedule_times *t = &f->times;
    double p = s->stages, m = s->microbatches, both = t->forward + t->backward_input;
    if (s->chunks > 1)
        return work;
    double ahead = MIN(m, f->limit), left = f->weight_share > 0 ? MIN(m, floor(f->limit / f->weight_share)) : m;
    double there = (p - 1) * (both + 2 * t->latency);
    return MAX(work, MAX(there + work - (ahead - 1) * t->forward, there + work - (left - 1) * t->backward_weight));
}

void search_begin(struct schedule_search *s, const struct schedule *like, const struct schedule_options *o,
                  double limit) {
    *s = (struct schedule_search){
        .cost = {INFINITY, INFINITY}, .best_cost = INFINITY, .passes_left = (double)o->search_passes};
    s->best = schedule_empty_like(like);
    s->plan = schedule_empty_like(like);
    s->rank = mem_alloc((size_t)like->stages * sizeof *s->rank);
    s->fill = (struct fill){.times = o->times, .limit = limit, .weight_share = o->weight_share, .rank = s->rank};
    s->work = schedule_chunk_time(&o->times) * like->chunks * like->microbatches;
    s->bound = least_cost(like, &s->fill, s->work) * (1 + 1e-12);
}

static bool is_over(const struct schedule_search *s) {
    return s->best_cost <= s->bound || (s->passes_left <= 0 && s->best_cost < INFINITY);
}

static void plan_copy(struct schedule *to, const struct schedule *from) {
    for (int r = 0; r < from->stages; r++) {
        to->rank[r].count = 0;
        for (size_t i = 0; i < from->rank[r].count; i++)
            VEC_PUSH(&to->rank[r], from->rank[r].item[i]);
    }
}

// Fills the plan as rank[] says. The search moves there if that is better, or, with `even`, if it is as good.
static double try_way(struct schedule_search *s, const struct schedule *plan, const struct fill_rank *rank, bool even) {
    struct schedule filled = schedule_empty_like(plan);
    struct fill fill = s->fill;
    fill.rank = rank;
    struct fill_cost cost = schedule_fill(plan, &fill, &filled);
    s->passes_left -= 3. * plan->stages * plan->chunks * plan->microbatches * MAX(1, plan->chunks / 2);
    double less = ROUNDING * s->bound;
    if (cost.most < s->cost.most - less ||
        (cost.most <= s->cost.most && cost.sum < s->cost.sum + (even ? less : -less))) {
        s->cost = cost;
        if (cost.most < s->best_cost) {
            s->best_cost = cost.most;
            schedule_swap(&s->best, &filled);
        }
        plan_copy(&s->plan, plan);
        memcpy(s->rank, rank, (size_t)plan->stages * sizeof *rank);
    }
    schedule_release(&filled);
    return cost.most;
}

// Fills a plan in two ways, to tell roughly how good it is. Where the search stands afterwards means nothing.
static double search_probe(struct schedule_search *s, const struct schedule *plan) {
    struct fill_rank *rank = mem_alloc((size_t)plan->stages * sizeof *rank);
    double least = INFINITY;
    for (int k = 0; k < 2 && !is_over(s); k++) {
        for (int r = 0; r < plan->stages; r++)
            rank[r] = (struct fill_rank){k * s->work, k, true};
        s->cost = (struct fill_cost){INFINITY, INFINITY};
        const double cost = try_way(s, plan, rank, false);
        least = MIN(least, cost);
    }
    free(rank);
    return least;
}

// Fills a plan in several ways.
static void try_ways(struct schedule_search *s, const struct schedule *plan) {
    static const double PATIENCE[] = {0, .002, .005, .01, .02, .05, .1, .2, 1}; // of the work
    static const double OVERRUN[] = {0, .5, 1};
    struct fill_rank *rank = mem_alloc((size_t)plan->stages * sizeof *rank);
    for (size_t i = 0; i < ARRAY_LENGTH(PATIENCE); i++)
        for (size_t k = 0; k < 2 * ARRAY_LENGTH(OVERRUN) && !is_over(s); k++) {
            for (int r = 0; r < plan->stages; r++)
                rank[r] = (struct fill_rank){PATIENCE[i] * s->work, OVERRUN[k / 2], k % 2};
            try_way(s, plan, rank, false);
        }
    free(rank);
}

// ---- changing the best plan so far

struct draws {
    uint64_t stream, count;
};

static double search_draw(struct draws *d) {
    return rng_uniform(0x5ced, d->stream, d->count++);
}

static int draw_below(struct draws *d, int n) {
    return (int)(search_draw(d) * n);
}

// Draws a range first <= last < n: one, the first few, the last few, some, or all.
static void draw_range(struct draws *d, int n, int *first, int *last) {
    int a = draw_below(d, n), b = draw_below(d, n), what = draw_below(d, 5);
    *first = what == 0 || what == 1 ? 0 : what == 2 ? a : MIN(a, b);
    *last = what == 0 || what == 3 ? n - 1 : what == 1 || what == 2 ? a : MAX(a, b);
}

static bool is_of(struct pass pass, int line) {
    static const enum pass_kind KINDS[] = {PASS_FORWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_WEIGHT};
    return pass.chunk == line / 3 && pass.kind == KINDS[line % 3];
}

// On some ranks, in some part of their plans, exchanges passes of one kind with those of another that come right after.
static void change_plan(struct schedule *plan, bool in_line, struct draws *d) {
    int first, last, lines = 3 * plan->chunks;
    draw_range(d, plan->stages, &first, &last);
    int before = draw_below(d, lines), behind = (before + 1 + draw_below(d, lines - 1)) % lines;
    double from = search_draw(d), to = search_draw(d), whole = search_draw(d);
    if (in_line && before % 3 == behind % 3)
        return;
    if (whole < .3) {
        from = 0;
        to = 1;
    } else if (whole < .6)
        to = from;
    bool once = from == to;
    for (int r = first; r <= last; r++) {
        struct schedule_rank *list = &plan->rank[r];
        size_t i = (size_t)(MIN(from, to) * (double)list->count), end = (size_t)(MAX(from, to) * (double)list->count);
        for (; i + 1 < list->count && (once || i < end); i++) {
            struct pass pass = list->item[i];
            if (!is_of(pass, behind) || !is_of(list->item[i + 1], before))
                continue;
            list->item[i] = list->item[i + 1];
            list->item[++i] = pass;
            if (once)
                break;
        }
    }
}

static void change_ways(const struct schedule_search *s, struct fill_rank *rank, struct draws *d) {
    int first, last;
    draw_range(d, s->plan.stages, &first, &last);
    double what = search_draw(d), amount = search_draw(d), idle = s->cost.most - s->work;
    for (int r = first; r <= last; r++) {
        if (what < .2)
            rank[r].patience = idle * amount;
        else if (what < .6)
            rank[r].patience *= .5 + amount;
        else if (what < .9)
            rank[r].overrun = amount;
        else
            rank[r].weights_first = !rank[r].weights_first;
    }
}

// Changes the plan, and how it is filled, as long as that helps; ends at the latest when `reserve` passes are left.
static void search_climb(struct schedule_search *s, struct draws *d, double reserve) {
    size_t bytes = (size_t)s->plan.stages * sizeof *s->rank;
    struct fill_rank *rank = mem_alloc(bytes);
    struct schedule plan = schedule_empty_like(&s->plan);
    for (int vain = 0; vain < VAIN_CHANGES && s->passes_left > reserve && !is_over(s); vain++) {
        struct fill_cost before = s->cost;
        double what = search_draw(d);
        memcpy(rank, s->rank, bytes);
        plan_copy(&plan, &s->plan);
        if (what < .6)
            change_ways(s, rank, d);
        if (what > .4)
            change_plan(&plan, s->fill.in_line, d);
        try_way(s, &plan, rank, true);
        if (s->cost.most < before.most || s->cost.sum < before.sum - ROUNDING * s->bound)
            vain = 0;
    }
    schedule_release(&plan);
    free(rank);
}

// A plan that is tried further, and the best way found to fill it.
struct kept {
    size_t plan;
    struct fill_cost cost;
    struct fill_rank *rank;
};

static int compare_kept(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    return COMPARE(x->cost.most, y->cost.most) ?: COMPARE(x->plan, y->plan);
}

void search_plans(struct schedule_search *s, struct schedule *plan, size_t count, size_t most) {
    struct draws d = {.stream = rng_stream("schedule")};
    size_t kept_count = 0, bytes = (size_t)s->plan.stages * sizeof *s->rank;
    double *cost = mem_alloc(count * sizeof *cost);
    struct kept *kept = mem_alloc(most * sizeof *kept);
    for (size_t i = 0; i < count; i++)
        cost[i] = search_probe(s, &plan[i]);
    while (kept_count < MIN(count, most)) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (cost[i] < cost[best])
                best = i;
        s->cost = (struct fill_cost){INFINITY, INFINITY};
        try_ways(s, &plan[best]);
        struct kept *k = &kept[kept_count++];
        *k = (struct kept){.plan = best, .cost = s->cost, .rank = mem_alloc(bytes)};
        memcpy(k->rank, s->rank, bytes);
        cost[best] = INFINITY;
    }
    qsort(kept, kept_count, sizeof *kept, compare_kept);
    for (size_t i = 0; i < kept_count; i++) {
        s->cost = kept[i].cost;
        memcpy(s->rank, kept[i].rank, bytes);
        plan_copy(&s->plan, &plan[kept[i].plan]);
        if (s->cost.most < INFINITY)
            search_climb(s, &d, s->passes_left * (1 - 1. / (double)(kept_count - i)));
        free(kept[i].rank);
    }
    for (size_t i = 0; i < count; i++)
        schedule_release(&plan[i]);
    free(kept);
    free(cost);
}

bool search_end(struct schedule_search *s, struct schedule *out) {
    bool found = s->best_cost < INFINITY;
    if (found)
        schedule_swap(&s->best, out);
    schedule_release(&s->best);
    schedule_release(&s->plan);
    free(s->rank);
    return found;
}
