#include "optim/outer_schedule.h"

#include "optim/optimizer.h"

#include <math.h>

int outer_fragment_of(const struct config *config, int layer) {
    return layer == NONE ? 0 : layer % (int)config->outer.fragments;
}

// Steps from when one fragment sets out until the next one does; of intervals that differ, the shortest.
static int64_t fragment_steps(const struct config_outer *o) {
    return o->sync_steps / o->fragments;
}

int64_t outer_delay(const struct config *config) {
    const struct config_outer *o = &config->outer;
    return o->delay_steps < 0 ? fragment_steps(o) : o->delay_steps;
}

enum outer_arrival outer_arrival(const struct config *config) {
    const struct config_outer *o = &config->outer;
    if (o->method == CONFIG_OUTER_NONE)
        return ARRIVAL_NEVER;
    if (outer_delay(config) == 0)
        return ARRIVAL_AT_ONCE;
    const bool round = o->delay_steps < 0 || (o->interval == CONFIG_OUTER_INTERVAL_CONSTANT && o->fragments == 1 &&
                                              o->delay_steps == o->sync_steps);
    return round && o->optimizer != CONFIG_OUTER_OPTIMIZER_NONE ? ARRIVAL_A_ROUND : ARRIVAL_LATER;
}

bool outer_anchors_own(const struct config *config) {
    return config->outer.eager || config->outer.reduce == CONFIG_OUTER_REDUCE_PAIRS;
}

int outer_distances(const struct config *config) {
    int distances = 1;
    while (config->outer.reduce == CONFIG_OUTER_REDUCE_PAIRS &&
           (int64_t)1 << distances < config->parallelism.island_degree)
        distances++;
    return distances;
}

// What divides gradients changes where all islands meet with all of the model, and in full.
static trireme_status check_scaled(const struct config *config, trireme_error *error) {
    const struct config_outer *o = &config->outer;
    const bool scaled = config->optimizer.name == CONFIG_OPTIMIZER_SCALED;
    if (!scaled && o->method == CONFIG_OUTER_LOCAL_SCALED)
        return config_refuse(config, "outer.method", error, "which needs optimizer.name=scaled");
    if (scaled && o->method == CONFIG_OUTER_NONE)
        return config_refuse(config, "optimizer.name", error,
                             "whose divisor changes where islands meet: say how, as in outer.method=local_scaled");
    if (scaled && (outer_arrival(config) != ARRIVAL_AT_ONCE || o->fragments > 1 ||
                   o->codec != CONFIG_OUTER_CODEC_NONE || o->reduce != CONFIG_OUTER_REDUCE_ALL))
        return config_refuse(config, "optimizer.name", error,
                             "which is for islands that all meet at once, with the whole model, and without a codec "
                             "(outer.delay_steps=0, outer.fragments=1, outer.reduce=all, outer.codec=none)");
    return TRIREME_OK;
}

trireme_status outer_schedule_check(const struct config *config, int layers, trireme_error *error) {
    const struct config_outer *o = &config->outer;
    TRY(check_scaled(config, error));
    if (o->method == CONFIG_OUTER_NONE)
        return TRIREME_OK;
    if (o->fragments > layers)
        return config_refuse(config, "outer.fragments", error, "but the model has only %d layers", layers);
    if (o->sync_steps % o->fragments)
        return config_refuse(config, "outer.fragments", error,
                             "which does not divide outer.sync_steps %lld: fragments meet evenly over the interval",
                             (long long)o->sync_steps);
    if (o->interval == CONFIG_OUTER_INTERVAL_QUADRATIC && o->fragments > 1)
        return config_refuse(
            config, "outer.fragments", error,
            "but outer.interval is quadratic: fragments meet evenly over an interval that is constant");
    if (o->delay_steps > fragment_steps(o))
        return config_refuse(config, "outer.delay_steps", error,
                             "but the next exchange begins %lld steps later%s, and one ends before",
                             (long long)fragment_steps(o),
                             o->fragments > 1 ? " (outer.sync_steps / outer.fragments)" : " (outer.sync_steps)");
    if (o->delay_steps < 0 && o->fragments > 1)
        return config_refuse(config, "outer.delay_steps", error,
                             "a whole interval, but outer.fragments is %lld: give a number of steps",
                             (long long)o->fragments);
    if (o->reduce == CONFIG_OUTER_REDUCE_PAIRS && outer_arrival(config) != ARRIVAL_AT_ONCE)
        return config_refuse(config, "outer.delay_steps", error,
                             "but with outer.reduce=pairs islands wait for one another (0)");
    if (o->reduce == CONFIG_OUTER_REDUCE_PAIRS && config->parallelism.island_degree < 1)
        return config_refuse(config, "parallelism.island_degree", error,
                             "but with outer.reduce=pairs the number of islands is to be given");
    if (o->keep_progress && (outer_arrival(config) != ARRIVAL_A_ROUND || o->eager))
        return config_refuse(config, "outer.keep_progress", error,
                             "which is for islands that exchange a whole interval long (outer.delay_steps=-1), with an "
                             "outer.optimizer and without outer.eager");
    if (o->method == CONFIG_OUTER_EAGER_DILOCO && !o->eager && !config_is_set(config, "outer.eager"))
        return config_refuse(config, "outer.delay_steps", error,
                             "but with outer.method=eager_diloco islands exchange a whole interval long (-1)");
    if (o->eager && (outer_arrival(config) != ARRIVAL_A_ROUND || o->weights != CONFIG_OUTER_WEIGHTS_EQUAL))
        return config_refuse(config, "outer.eager", error,
                             "which is for islands that exchange a whole interval long (outer.delay_steps=-1), with an "
                             "outer.optimizer and with outer.weights=equal");
    return TRIREME_OK;
}

// ---- the steps

// The quadratic synchronisation rule (Gu et al. 2024, "A Quadratic Synchronization Rule for Distributed Deep Learning",
// algorithm 1): islands drift apart no more than the learning rate lets them. The first interval, and those that begin
// in the warm-up, are the shortest; behind the last step islands meet, too.
static int64_t interval_behind(const struct config *config, int64_t step) {
    const struct config_outer *o = &config->outer;
    const double lr = learning_rate(config, step + 1), steps = lr > 0 ? floor(pow(o->interval_lr / lr, 2)) : INFINITY;
    const int64_t left = MAX(1, config->training.steps - step);
    if (step == 0 || step < config->lr_scheduler.warmup_steps || steps <= (double)o->sync_steps)
        return MIN(left, o->sync_steps);
    return steps < (double)left ? (int64_t)steps : left;
}

struct outer_schedule outer_schedule_create(const struct config *config) {
    return (struct outer_schedule){.config = config};
}

int outer_schedule_at(struct outer_schedule *s, int64_t step) {
    const struct config_outer *o = &s->config->outer;
    if (o->method == CONFIG_OUTER_NONE)
        return NONE;
    if (o->interval == CONFIG_OUTER_INTERVAL_CONSTANT)
        return step % fragment_steps(o) ? NONE : (int)(step / fragment_steps(o) % o->fragments);
    while (s->next < step || s->next == 0) {
        s->met = s->next;
        s->before += s->next > 0;
        s->next = s->met + interval_behind(s->config, s->met);
    }
    return step == s->next ? 0 : NONE;
}

int outer_schedule_part(const struct outer_schedule *s, int64_t step, int fragment) {
    const struct config_outer *o = &s->config->outer;
    const int64_t before = o->interval == CONFIG_OUTER_INTERVAL_CONSTANT ? step / fragment_steps(o) - 1 : s->before,
                  round = before / o->fragments;
    return fragment + (int)(o->fragments * (round % outer_distances(s->config)));
}
