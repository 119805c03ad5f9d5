// Two chunks to a rank, placed there and back: the first rank has the first and the last virtual stage. A microbatch's
// backward then begins where its forward did, and so all ranks hold equally much. Qi et al. 2024, "Pipeline Parallelism
// with Controllable Memory": a schedule repeats a *building block*, the passes of one microbatch on all ranks, once
// every six passes, and the block's length decides how much is held.
#include "pipeline/schedule_make.h"

#include <math.h>

enum {
    BLOCK = 6,  // passes of a rank for one microbatch: forward and two parts of backward, of two chunks
    STEPS = 5,  // `step` of a block is 1 to STEPS
    DELAYS = 4, // each of its delays is below this
    KEPT = 12   // plans that a search tries further
};

struct plans {
    VEC(struct schedule);
};

// In passes.
struct block {
    int step;     // from rank to rank on the way there
    int delay[3]; // at each of the three turns
};

// The first time after `time` that, modulo BLOCK, no pass of the rank has taken yet.
static int vshape_next_free(int time, unsigned *taken) {
    do
        time++;
    while (*taken >> time % BLOCK & 1);
    *taken |= 1u << time % BLOCK;
    return time;
}

// The times of a block: `step` from rank to rank on the ways there, 1 on the ways back. False if two passes of a rank
// would meet.
static bool block_times(const struct block *block, int stages, int (*when)[3]) {
    int last = 2 * stages - 1, time = 0;
    for (int v = 0; v <= last; v++) {
        when[v][0] = time;
        time += v + 1 < stages ? block->step : v + 1 == stages ? 1 + block->delay[0] : 1;
    }
    time += block->delay[1];
    for (int v = last; v >= 0; v--) {
        when[v][1] = time;
        time += v > stages ? block->step : v == stages ? 1 + block->delay[2] : 1;
    }
    for (int r = 0; r < stages; r++) {
        int *first = when[r], *second = when[last - r];
        unsigned taken =
            1u << first[0] % BLOCK | 1u << first[1] % BLOCK | 1u << second[0] % BLOCK | 1u << second[1] % BLOCK;
        if (__builtin_popcount(taken) < 4)
            return false;
        second[2] = vshape_next_free(second[1], &taken);
        first[2] = vshape_next_free(first[1], &taken);
    }
    return true;
}

// Each microbatch goes through all ranks, there and back, before the next begins: holds the least.
static void plan_one_by_one(struct schedule *plan) {
    for (int r = 0; r < plan->stages; r++)
        for (int m = 0; m < plan->microbatches; m++) {
            schedule_add(plan, r, PASS_FORWARD, 0, m);
            schedule_add(plan, r, PASS_FORWARD, 1, m);
            schedule_add(plan, r, PASS_BACKWARD_INPUT, 1, m);
            schedule_add(plan, r, PASS_BACKWARD_INPUT, 0, m);
        }
}

// How often each kind of pass was planned for a rank.
struct counts {
    int forward[2], backward[2];
};

static void plan_forward(struct schedule *plan, int rank, struct counts *n, int chunk) {
    if (n->forward[chunk] < (chunk ? n->forward[0] : plan->microbatches))
        schedule_add(plan, rank, PASS_FORWARD, chunk, n->forward[chunk]++);
}

static void plan_backward(struct schedule *plan, int rank, struct counts *n, int chunk) {
    if (n->backward[chunk] < (chunk ? n->forward[1] : n->backward[1]))
        schedule_add(plan, rank, PASS_BACKWARD_INPUT, chunk, n->backward[chunk]++);
}

// ZB-V as drawn in "Zero Bubble Pipeline Parallelism", section 6: forwards until the first microbatch is back at its
// rank, then pairs in which a pass of one chunk follows one of the other.
static void plan_zb_v(struct schedule *plan) {
    int p = plan->stages, m = plan->microbatches;
    for (int r = 0; r < p; r++) {
        struct counts n = {0};
        for (int k = 0; k < 2 * (p - r) - 1; k++)
            plan_forward(plan, r, &n, 0);
        for (int k = 0; k < r; k++) {
            plan_forward(plan, r, &n, 1);
            plan_forward(plan, r, &n, 0);
        }
        for (int k = 0; k < p - r; k++) {
            plan_forward(plan, r, &n, 1);
            plan_backward(plan, r, &n, 1);
        }
        while (n.backward[0] < m) {
            plan_forward(plan, r, &n, 0);
            plan_backward(plan, r, &n, 0);
            plan_forward(plan, r, &n, 1);
            plan_backward(plan, r, &n, 1);
        }
    }
}

static struct schedule without_weights(const struct schedule *plan) {
    struct schedule bare = schedule_empty_like(plan);
    for (int r = 0; r < plan->stages; r++)
        for (size_t i = 0; i < plan->rank[r].count; i++) {
            struct pass pass = plan->rank[r].item[i];
            if (pass.kind != PASS_BACKWARD_WEIGHT)
                schedule_add(&bare, r, pass.kind, pass.chunk, pass.microbatch);
        }
    return bare;
}

// Fills a plan as if all passes took the same time, and adds the result as plans: with its weights' passes, and
// without.
static void add_even(struct plans *plans, const struct schedule *from, double limit) {
    struct fill_rank *rank = mem_alloc((size_t)from->stages * sizeof *rank);
    const struct schedule_times equal = {.forward = 1, .backward_input = 1, .backward_weight = 1};
    struct fill fill = {.times = equal, .limit = limit, .weight_share = 1, .rank = rank};
    struct schedule filled = schedule_empty_like(from);
    if (schedule_fill(from, &fill, &filled).most < INFINITY) {
        VEC_PUSH(plans, without_weights(&filled));
        VEC_PUSH(plans, filled);
    } else {
        schedule_release(&filled);
    }
    free(rank);
}

// Whether a block, repeated, stays within the limit: four times as many microbatches as ranks show it.
static bool block_fits(const struct schedule *like, const int (*when)[3], double limit) {
    struct schedule few = schedule_empty_like(like);
    few.microbatches = MIN(like->microbatches, 4 * like->stages);
    bool fits = plan_by_time(&few, when, BLOCK) <= limit;
    schedule_release(&few);
    return fits;
}

static void vshape_add_block(struct plans *plans, const struct schedule *like, const int (*when)[3], double limit) {
    struct schedule plan = schedule_empty_like(like);
    plan_by_time(&plan, when, BLOCK);
    struct schedule bare = without_weights(&plan);
    VEC_PUSH(plans, plan);
    VEC_PUSH(plans, bare);
    add_even(plans, &plan, limit);
    add_even(plans, &bare, limit);
}

void schedule_make_v(struct schedule *s, const struct schedule_options *o, int limit) {
    struct plans plans = {0};
    struct schedule_search search;
    struct schedule plan;
    search_begin(&search, s, o, limit);
    if (limit >= 2 * s->stages) {
        plan = schedule_empty_like(s);
        plan_zb_v(&plan);
        VEC_PUSH(&plans, plan);
    }
    int(*when)[3] = mem_alloc(2 * (size_t)s->stages * sizeof *when);
    struct block block;
    // Large steps first: where there is time for few blocks, the largest step that fits is the best.
    for (block.step = STEPS; block.step >= 1; block.step--)
        for (int k = 0; k < DELAYS * DELAYS * DELAYS; k++) {
            block.delay[0] = k % DELAYS;
            block.delay[1] = k / DELAYS % DELAYS;
            block.delay[2] = k / DELAYS / DELAYS;
            const int(*times)[3] = (const int(*)[3])when;
            if (!block_times(&block, s->stages, when) || !block_fits(s, times, limit) || search.passes_left < 0)
                continue;
            vshape_add_block(&plans, s, times, limit);
            search.passes_left -= 12. * s->stages * s->microbatches;
        }
    free(when);
    plan = schedule_empty_like(s);
    plan_one_by_one(&plan);
    VEC_PUSH(&plans, plan);
    search_plans(&search, plans.item, plans.count, KEPT);
    VEC_RELEASE(&plans);
    CHECK(search_end(&search, s));
}

void schedule_make_zb_v(struct schedule *s, const struct schedule_options *o) {
    schedule_make_v(s, o, 2 * s->stages);
}

void schedule_make_v_half(struct schedule *s, const struct schedule_options *o) {
    schedule_make_v(s, o, 2 * ((s->stages + 2) / 2));
}

void schedule_make_v_min(struct schedule *s, const struct schedule_options *o) {
    schedule_make_v(s, o, 2 * ((s->stages + 4) / 3));
}
