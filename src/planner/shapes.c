// Schedules for few microbatches, from which estimates of the same schedule for many are made, and the layers of their
// stages.
#include "planner/estimate.h"

#include "parallel/layout.h"

#include <math.h>

double count_messages(const struct schedule *s, bool split, int rank) {
    int *slot = mem_alloc((size_t)s->microbatches * sizeof *slot), last = s->stages * s->chunks - 1;
    double messages = 0;
    for (int c = 0; c < s->chunks; c++) {
        int v = s->virtual_stage[rank * s->chunks + c];
        int held = schedule_slots(s, rank, c, SLOTS_FOR_ACTIVATIONS, false, slot);
        int sent = split || s->chunks > 1 ? 1 : held;
        if (v > 0 && s->place[v - 1].rank != rank)
            messages += 1 + sent;
        if (v < last && s->place[v + 1].rank != rank)
            messages += sent + schedule_slots(s, rank, c, SLOTS_FOR_GRADIENTS, false, slot);
    }
    free(slot);
    return messages;
}

// The passes that fitting a schedule may try which only estimates need.
enum { FEW_PASSES = 20000 };

// How many microbatches have the same bubble: as long as the steady state repeats, more add none; but where
// microbatches go in groups of as many as there are stages, it depends on how many the last group lacks.
static int shapes_fewer(const struct schedule_kind *kind, int microbatches, int stages) {
    return MIN(microbatches, 2 * stages + (kind->properties & SCHEDULE_GROUPS ? microbatches % stages : 0));
}

// Seconds from the beginning of the first to the end of the last pass; and of each microbatch in the steady state, by
// the backwards of the last microbatches, as many as there are stages.
static struct shape_seconds time_schedule(const struct schedule *s, const struct schedule_times *times) {
    struct schedule_cost cost;
    struct shape_seconds out = {0};
    double first = INFINITY, begin[2] = {0};
    schedule_cost(s, times, &cost);
    for (int r = 0; r < s->stages; r++) {
        first = MIN(first, cost.rank[r].start);
        out.few = MAX(out.few, cost.rank[r].end);
    }
    out.few -= first;
    for (size_t i = 0; i < s->rank[0].count; i++) {
        const struct pass pass = s->rank[0].item[i];
        for (int k = 0; k < 2; k++)
            if ((pass.kind == PASS_BACKWARD || pass.kind == PASS_BACKWARD_INPUT) && pass.chunk == 0 &&
                pass.microbatch == MAX(0, s->microbatches - 1 - k * s->stages))
                begin[k] = cost.pass[0][i].start;
    }
    out.each = (begin[0] - begin[1]) / s->stages;
    schedule_cost_release(&cost);
    return out;
}

// Times in units of a chunk's forward; those of a rank's part of the vocabulary are approximate.
static struct schedule_times shapes_times_of(const struct shape *s, bool vocabulary) {
    struct schedule_times times = {.forward = 1, .backward_input = s->full ? 2 : 1, .backward_weight = 1};
    if (vocabulary) {
        times.loss = times.loss_weight = .1;
        times.embed = times.embed_weight = .02;
    }
    return times;
}

// Rounds to sixths of an octave, so that most values were computed before; very small ones become 0.
static double shapes_rounded(double forwards) {
    enum { STEPS = 6 };
    static const double LEAST = 1. / 256;
    return forwards < LEAST ? 0 : exp2(round(STEPS * log2(forwards)) / STEPS);
}

double shape_waiting(struct shape *s, bool vocabulary, double latency, double link, int microbatches) {
    latency = shapes_rounded(latency);
    link = shapes_rounded(link);
    if (link == 0)
        return 0;
    struct shape_order *o = &s->order[vocabulary];
    struct shape_wait *found = NULL;
    for (size_t i = 0; i < o->waits.count && !found; i++)
        if (o->waits.item[i].latency == latency && o->waits.item[i].link == link)
            found = &o->waits.item[i];
    if (!found) {
        struct schedule_times times = shapes_times_of(s, o->schedule.vocabulary);
        times.latency = latency;
        times.link = link;
        const struct shape_seconds with = time_schedule(&o->schedule, &times);
        VEC_PUSH(&o->waits, (struct shape_wait){latency, link, MAX(0, with.few - o->without.few),
                                                MAX(0, with.each - o->without.each)});
        found = &o->waits.item[o->waits.count - 1];
    }
    return found->few + (microbatches - s->microbatches) * found->each;
}

static void fill_order(const struct shape *s, struct shape_order *o) {
    const struct schedule_times times = shapes_times_of(s, o->schedule.vocabulary);
    double layers = schedule_chunk_time(&times) * o->schedule.chunks, vocabulary = schedule_vocabulary_time(&times);
    o->without = time_schedule(&o->schedule, &times);
    o->idle = MAX(0, (o->without.few - s->microbatches * (layers + vocabulary)) / layers);
    o->messages = mem_alloc((size_t)s->stages * sizeof *o->messages);
    o->losses = mem_alloc((size_t)s->stages * sizeof *o->losses);
    int *slot = mem_alloc((size_t)s->microbatches * sizeof *slot);
    for (int rank = 0; rank < s->stages; rank++) {
        o->messages[rank] = count_messages(&o->schedule, s->splits, rank);
        if (o->schedule.vocabulary)
            o->losses[rank] = schedule_slots(&o->schedule, rank, 0, SLOTS_FOR_LOSS, false, slot);
    }
    free(slot);
}

void fill_shape(const struct estimator *e, struct shape *s) {
    struct shape_order *ends = &s->order[0], *spread = &s->order[1];
    struct schedule_options options = {
        .chunks = s->chunks, .times = shapes_times_of(s, false), .search_passes = FEW_PASSES};
    const struct schedule_kind *kind = schedule_kind(s->name);
    if (kind && kind->properties & SCHEDULE_LIMIT) {
        options.weight_share = 1;
        options.activation_limit = (int)e->request->config->parallelism.pipeline_parallel_activation_limit;
    }
    trireme_error why;
    trireme_status status = schedule_load(&ends->schedule, s->name, s->stages, s->microbatches, &options, &why);
    if (status != TRIREME_OK && !kind)
        error_prefix(&why, status, "%s", s->name);
    if (status != TRIREME_OK) {
        s->why = error_copy(&why);
        return;
    }
    spread->schedule = schedule_copy(&ends->schedule);
    if (!spread->schedule.vocabulary) {
        const struct schedule_times times = shapes_times_of(s, true);
        schedule_spread_vocabulary(&spread->schedule, &times);
    }
    s->splits = schedule_splits_backward(&ends->schedule);
    fill_order(s, ends);
    fill_order(s, spread);
}

void release_shape(struct shape *s) {
    for (int spread = 0; spread < 2 && !s->why; spread++) {
        struct shape_order *order = &s->order[spread];
        schedule_release(&order->schedule);
        VEC_RELEASE(&order->waits);
        free(order->messages);
        free(order->losses);
    }
    free(s->why);
    free(s);
}

struct shape *find_shape(struct estimator *e, const struct plan_choice *c, int microbatches) {
    // A file's schedule has its own number of microbatches.
    const struct schedule_kind *kind = schedule_kind(c->schedule);
    int few = kind ? shapes_fewer(kind, microbatches, c->stages) : microbatches;
    bool full = c->recompute == CONFIG_RECOMPUTE_FULL;
    for (size_t i = 0; i < e->shapes.count; i++) {
        struct shape *s = e->shapes.item[i];
        if (strcmp(s->name, c->schedule) == 0 && s->stages == c->stages && s->microbatches == few &&
            s->chunks == c->chunks && s->full == full)
            return s;
    }
    struct shape *s = mem_alloc(sizeof *s);
    *s = (struct shape){
        .name = c->schedule, .stages = c->stages, .microbatches = few, .chunks = c->chunks, .full = full};
    if (!e->collecting)
        fill_shape(e, s);
    VEC_PUSH(&e->shapes, s);
    return s;
}

int *first_layers(const struct estimator *e, const struct plan_choice *c, const struct shape *shape,
                  trireme_error *error) {
    struct parallel plan = {.mesh = mesh_single()};
    struct schedule schedule = shape->order[0].schedule;
    plan.mesh.degree[AXIS_PP] = c->stages;
    plan.schedule = &schedule;
    struct config config;
    config_copy(&config, &e->layout[c->balanced][c->recompute]);
    if (c->layout)
        CHECK(config_set(&config, "parallelism.pipeline_parallel_layout", c->layout, "plan", error) == TRIREME_OK);
    int *first = NULL;
    if (layout_resolve(&plan, &config, e->request->model, error) == TRIREME_OK) {
        first = plan.first_layer;
        plan.first_layer = NULL;
    }
    config_release(&config);
    plan.schedule = NULL; // the shape's
    parallel_release(&plan);
    return first;
}
