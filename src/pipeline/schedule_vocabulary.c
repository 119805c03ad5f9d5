// Spreads the vocabulary over the ranks of a schedule.
//
// The schedule is replayed with passes longer by as much as makes room for the vocabulary's passes; this gives each
// pass a time. L, T, E and G get the times, the same on all ranks, at which what they need is there. Backwards are
// delayed by the work of a number of microbatches, during which all ranks reach L. In the middle of a step ranks repeat
// the same passes in every microbatch's work, so such a delay leaves no gaps there. Each rank then does its passes in
// the order of these times. Whatever a pass needs has an earlier time, so the schedule comes to its end however long
// passes really take.
#include "pipeline/schedule.h"
#include "pipeline/schedule_make.h"

#include <math.h>

enum { MOST_LATER = 2 };
// Larger values are lowered to these: beside a longer way through all ranks, the passes' times would vanish in
// rounding.
static const double MOST_LATENCY = 1e4; // in microbatches' work
static const double MOST_LONGER = 1e9;  // times

struct timed {
    struct pass pass;
    double at;
};

struct timeline {
    VEC(struct timed);
};

struct spreader {
    const struct schedule *plan;
    struct schedule_times times; // lengthened
    struct schedule_cost cost;   // with these times
    double work;                 // of one microbatch, on one rank
    double moment;               // short in comparison with any of it
    double later;                // the delay of backwards
    double *embed, *last;        // [microbatch]: when E has room for its output; end of the last stage's forward
    double *end;                 // [microbatch]: end of the first stage's backward for the input, before the delay
};

static bool is_forward(struct pass pass) {
    return pass.kind == PASS_FORWARD;
}

static void vocabulary_begin(struct spreader *s, const struct schedule *plan, const struct schedule_times *t) {
    double vocabulary = schedule_vocabulary_time(t);
    double own = plan->chunks * schedule_chunk_time(t);
    double longer = own > 0 ? MIN(1 + vocabulary / own, MOST_LONGER) : 1;
    double work = own + vocabulary > 0 ? own + vocabulary : 1;
    double least = 1e-6 * work; // so that a pass that takes no time still comes after what it needs
    *s = (struct spreader){.plan = plan,
                           .times = {.forward = MAX(longer * t->forward, least),
                                     .backward_input = MAX(longer * t->backward_input, least),
                                     .backward_weight = MAX(longer * t->backward_weight, least),
                                     .latency = MIN(t->latency, MOST_LATENCY * work)},
                           .work = work,
                           .moment = 1e-9 * work};
    schedule_cost(plan, &s->times, &s->cost);
    size_t microbatches = (size_t)plan->microbatches;
    s->embed = mem_alloc(microbatches * sizeof *s->embed);
    s->last = mem_alloc(microbatches * sizeof *s->last);
    s->end = mem_alloc(microbatches * sizeof *s->end);
    const int last = plan->stages * plan->chunks - 1;
    double room = -2; // at once for two microbatches, then when the previous one's forward has begun
    for (int r = 0; r < plan->stages; r++)
        for (size_t i = 0; i < plan->rank[r].count; i++) {
            struct pass pass = plan->rank[r].item[i];
            int stage = plan->virtual_stage[r * plan->chunks + pass.chunk];
            struct schedule_span span = s->cost.pass[r][i];
            if (is_forward(pass) && stage == 0) {
                s->embed[pass.microbatch] = room;
                room = room < -1 ? -1 : span.start + s->moment;
            }
            if (is_forward(pass) && stage == last)
                s->last[pass.microbatch] = span.end;
            if (!is_forward(pass) && pass.kind != PASS_BACKWARD_WEIGHT && stage == 0)
                s->end[pass.microbatch] = span.end;
        }
}

static void vocabulary_end(struct spreader *s) {
    schedule_cost_release(&s->cost);
    free(s->embed);
    free(s->last);
    free(s->end);
}

// When ranks do the vocabulary's passes of microbatch m.
static double vocabulary_at(const struct spreader *s, enum pass_kind kind, int m) {
    const double loss = s->last[m] + s->times.latency + s->moment;
    switch (kind) {
    case PASS_EMBED:
        return s->embed[m];
    case PASS_LOSS:
        return loss;
    case PASS_LOSS_WEIGHT:
        return loss + s->work + 2 * s->moment; // after the next L: nobody waits for T
    default:
        return MAX(s->end[m] + s->later, loss + s->work + 2 * s->moment) + s->times.latency + s->moment;
    }
}

static int compare_timed(const void *a, const void *b) {
    const struct timed *x = a, *y = b;
    int order = COMPARE(x->at, y->at) ?: COMPARE(y->pass.kind, x->pass.kind); // E before F
    return order ?: COMPARE(x->pass.microbatch, y->pass.microbatch);
}

static struct schedule vocabulary_order(const struct spreader *s) {
    struct schedule out = schedule_empty_like(s->plan);
    out.vocabulary = true;
    struct timeline all = {0};
    for (int r = 0; r < s->plan->stages; r++) {
        all.count = 0;
        for (size_t i = 0; i < s->plan->rank[r].count; i++) {
            struct pass pass = s->plan->rank[r].item[i];
            double at = s->cost.pass[r][i].start + (is_forward(pass) ? 0 : s->later);
            VEC_PUSH(&all, (struct timed){pass, at});
        }
        for (int m = 0; m < s->plan->microbatches; m++)
            for (enum pass_kind kind = PASS_EMBED; kind < PASS_KINDS; kind++)
                VEC_PUSH(&all, (struct timed){{kind, 0, m}, vocabulary_at(s, kind, m)});
        VEC_SORT(&all, compare_timed);
        for (size_t i = 0; i < all.count; i++)
            schedule_add(&out, r, all.item[i].pass.kind, all.item[i].pass.chunk, all.item[i].pass.microbatch);
    }
    VEC_RELEASE(&all);
    return out;
}

// Whether no rank holds more than auto's options allow.
static bool vocabulary_is_within(const struct schedule *s, const struct schedule_options *o) {
    for (int r = 0; r < s->stages && o->activation_limit; r++)
        if (schedule_activations(s, r, o->weight_share) > o->activation_limit + 1e-9)
            return false;
    return true;
}

// Spreads the vocabulary in the best way within the limit; returns the cost.
static double vocabulary_spread(struct schedule *schedule, const struct schedule_times *times,
                                const struct schedule_options *limit) {
    struct spreader s;
    struct schedule best = schedule_empty_like(schedule);
    double least = INFINITY;
    vocabulary_begin(&s, schedule, times);
    const double latency = s.times.latency;
    for (int later = latency > 0 ? -1 : 0; later <= MOST_LATER; later++) {
        // Without latency backwards stay where they are among the forwards, and a rank holds what it held.
        s.times.latency = later < 0 ? 0 : latency;
        s.later = MAX(later, 0) * s.work + s.times.latency + 2 * s.moment;
        struct schedule tried = vocabulary_order(&s);
        struct schedule_cost cost;
        schedule_cost(&tried, times, &cost);
        if (vocabulary_is_within(&tried, limit) && cost.cost < least * (1 - 1e-3)) { // holding more must pay
            least = cost.cost;
            schedule_swap(&tried, &best);
        }
        schedule_cost_release(&cost);
        schedule_release(&tried);
    }
    CHECK(least < INFINITY);
    vocabulary_end(&s);
    schedule_swap(schedule, &best);
    schedule->vocabulary = true;
    schedule_release(&best);
    return least;
}

void schedule_spread_vocabulary(struct schedule *schedule, const struct schedule_times *times) {
    const struct schedule_options limit = schedule->options;
    double least = vocabulary_spread(schedule, times, &limit);
    for (int less = 1; less <= MOST_LATER && less < limit.activation_limit; less++) {
        struct schedule_options options = limit;
        struct schedule tried;
        trireme_error error;
        options.activation_limit -= less;
        options.search_passes /= MOST_LATER; // in all as many as the schedule's own search had
        if (schedule_create(&tried, "auto", schedule->stages, schedule->microbatches, &options, &error) != TRIREME_OK)
            break; // too little for so many stages
        double cost = vocabulary_spread(&tried, times, &limit);
        if (cost < least * (1 - 1e-3)) {
            struct schedule worse = *schedule;
            least = cost;
            *schedule = tried;
            tried = worse;
        }
        schedule_release(&tried);
    }
    schedule->options = limit;
    schedule_count_on_way(schedule);
}
