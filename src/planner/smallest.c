// For when nothing promising fits, or when the only question is whether anything does: what needs least memory.
#include "base/clock.h"
#include "planner/mix.h"
#include "planner/search.h"

#include <float.h>
#include <math.h>

enum { FULLEST = 8, AT_ONCE = 2, PIPELINES_BALANCED = 32 };

// Tries units of half a layer, with which less is gathered and reduced at a time.
static void search_half_units(struct search *s, const struct candidates *all) {
    const struct config *config = s->request->config;
    struct candidate other[FULLEST], *batch[FULLEST];
    int count = 0, most = s->request->only_fit ? AT_ONCE : FULLEST;
    bool prefetch = !config_is_set(config, "parallelism.data_parallel_prefetch");
    if (config_is_set(config, "parallelism.data_parallel_unit_layers"))
        return;
    for (size_t i = 0; i < MIN(all->count, (size_t)FULLEST) && count < most; i++) {
        if (all->item[i].choice.zero_stage < 2)
            continue;
        other[count] = all->item[i];
        other[count].choice.unit_layers = HALF_LAYERS;
        other[count].choice.prefetch = prefetch && other[count].choice.zero_stage == 3 ? 1 : 0;
        batch[count] = &other[count];
        count++;
    }
    if (count)
        run_batch(s, batch, count);
}

// How full the fullest stage is with the layout that makes it least full; INFINITY where there is none.
static double fullest_balanced(struct search *s, const struct plan_choice *c) {
    struct pipe_estimate pipe;
    struct mix mix;
    trireme_error none;
    if (estimate_pipe(s->estimator, c, &pipe, &none) != TRIREME_OK ||
        mix_create(&mix, s->estimator, c, &none) != TRIREME_OK)
        return INFINITY;
    double full = mix_balance(&mix, c, &pipe);
    mix_release(&mix);
    return full;
}

// Tries layouts that put layers where there is room for them: on those of the smallest pipelines that are then least
// full.
static void search_balanced(struct search *s, const struct candidates *all) {
    const struct config *config = s->request->config;
    struct candidate other[AT_ONCE + 1], *batch[AT_ONCE];
    double full[AT_ONCE + 1];
    int count = 0, tried = 0;
    if (config_is_set(config, "parallelism.pipeline_parallel_layout") || *config->activation_checkpoint.full_layers ||
        *config->activation_checkpoint.selective_layers)
        return;
    for (size_t i = 0; i < all->count && tried < PIPELINES_BALANCED; i++) {
        struct candidate one = all->item[i];
        one.outside = true; // the estimate is for another layout
        if (one.choice.stages == 1 || one.choice.balanced || one.choice.mixed || takes_long(s, &one.choice))
            continue;
        tried++;
        one.choice.mixed = true;
        one.choice.recompute = config->activation_checkpoint.mode; // none where it is not set
        double least = fullest_balanced(s, &one.choice);
        if (least > (s->request->only_fit ? MEMORY_SLACK : DBL_MAX))
            continue;
        int at = count;
        for (; at > 0 && full[at - 1] > least; at--) {
            full[at] = full[at - 1];
            other[at] = other[at - 1];
        }
        full[at] = least;
        other[at] = one;
        count = MIN(count + 1, (int)AT_ONCE);
    }
    for (int i = 0; i < count; i++)
        batch[i] = &other[i];
    s->balancing = true;
    if (count)
        run_batch(s, batch, count);
    s->balancing = false;
}

// The candidates that need least memory, first those that do not take long to simulate.
static int list_smallest(const struct search *s, struct candidates *all, struct candidate *smallest[FULLEST]) {
    int count = 0;
    for (int many = 0; many < 2; many++)
        for (size_t i = 0; i < all->count && count < FULLEST; i++)
            if (takes_long(s, &all->item[i].choice) == many)
                smallest[count++] = &all->item[i];
    return count;
}

void search_smallest(struct search *s, struct candidates *all) {
    struct candidate *smallest[FULLEST], *batch[AT_ONCE];
    int64_t until = s->until;
    s->until = 0; // there has to be an answer
    int count = list_smallest(s, all, smallest);
    for (int i = 0; i < count && s->out->answers.count == 0;) {
        int jobs = 0;
        if (until > 0 && clock_now() > until && s->out->closest.memory > 0) {
            s->out->complete = false;
            break;
        }
        for (; i < count && jobs < AT_ONCE; i++)
            if (!s->request->only_fit || !is_hopeless(&s->learnt, smallest[i]))
                batch[jobs++] = smallest[i];
        if (jobs)
            run_batch(s, batch, jobs);
    }
    if (s->out->answers.count == 0)
        search_half_units(s, all);
    if (s->out->answers.count == 0)
        search_balanced(s, all);
    s->until = until;
    s->out->fits = s->out->answers.count > 0;
}
