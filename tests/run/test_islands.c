// Islands of every method against a plain reference (tests/reference/outer.h), in which each island trains by itself on
// one rank: whatever mesh an island is, in bf16 with remainders, and where an island has no weight or skips a step.
#include "reference/outer.h"
#include "support/mesh_keys.h"
#include "support/meshes.h"
#include "support/team.h"
#include "support/test.h"

#include "base/bf16.h"
#include "engine/outer_step.h"
#include "optim/outer_schedule.h"

#include <math.h>
#include <pthread.h>

enum { ISLANDS = 4, SEQUENCES = 8, SEQ_LEN = 8, BATCHES = 8, RANKS = 8, DEADLINE = 120 };
#define RATE 1e-2
#define TOLERANCE 1e-9

struct way {
    const char *method;
    int islands, ranks;
    const char *mesh[4]; // of each island
    int sync, delay, steps, fragments;
    const char *more, *dtype;
    int shards; // of each unit, which are encoded by themselves; 0 counts as 1
};

struct trial {
    const struct way *way;
    struct model_config model;
    struct parameter_table whole;
    int64_t *at, *unit_at; // [parameters], [units + 1]: where each is among all, as in memory (model/state.h)
    int64_t count;
    double **initial, **expected[ISLANDS]; // [parameters]: whole masters, those expected at the end
    struct batch batch[BATCHES];
    struct config config;
    struct engine alone[ISLANDS]; // the reference's islands
    pthread_mutex_t mutex;
    double apart;           // the most, relative to the learning rate or the value
    uint64_t sum[2][RANKS]; // of the bits of each rank's parameters, in two runs
    int run;
    void (*after)(struct trial *trial, struct engine *e, const struct member *member, trireme_error *error);
};

static struct config make_config(const struct way *way, bool islands) {
    const char *all[32] = {"run.directory=unused",        "training.threads=1", "training.seq_len=8",
                           "training.micro_batch_size=1", "optimizer.eps=1e-4", "training.kernels=reference",
                           "training.max_norm=0.1",       "optimizer.lr=1e-2",  "lr_scheduler.warmup_steps=2"};
    size_t n = 9;
    char *own[] = {mem_printf("training.dtype=%s", way->dtype ?: "f64"),
                   mem_printf("training.global_batch_size=%d", islands ? SEQUENCES : SEQUENCES / way->islands),
                   mem_printf("training.steps=%d", way->steps),
                   mem_printf("parallelism.island_degree=%d", way->islands),
                   mem_printf("outer.method=%s", way->method),
                   mem_printf("outer.sync_steps=%d", way->sync),
                   mem_printf("outer.delay_steps=%d", way->delay),
                   mem_printf("outer.fragments=%d", MAX(way->fragments, 1))};
    for (size_t i = 0; i < (islands ? ARRAY_LENGTH(own) : 3); i++)
        all[n++] = own[i];
    const char *const scaled[] = {"optimizer.name=scaled", "optimizer.weight_decay=0"};
    for (size_t i = 0; islands && strcmp(way->method, "local_scaled") == 0 && i < ARRAY_LENGTH(scaled); i++)
        all[n++] = scaled[i];
    for (size_t i = 0; islands && i < ARRAY_LENGTH(way->mesh) && way->mesh[i]; i++)
        all[n++] = way->mesh[i];
    if (islands && way->more)
        all[n++] = way->more;
    struct config config;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, all, n, &error), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++)
        free(own[i]);
    return config;
}

// The masters of what a rank holds of a parameter.
static double master_at(const struct engine_part *part, const struct engine_part *low, int64_t i) {
    return low->data ? master_join(((const uint16_t *)part->data)[i], ((const uint16_t *)low->data)[i])
                     : value_at(part->data, part->dtype, i);
}

// ---- the reference

static double **copy_masters(const struct engine *e) {
    double **out = mem_alloc(e->local.parameters.count * sizeof *out);
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, i),
                                 low = engine_part(e, ENGINE_REMAINDERS, i);
        out[i] = mem_alloc((size_t)part.end * sizeof **out);
        for (int64_t k = 0; k < part.end; k++)
            out[i][k] = master_at(&part, &low, k);
    }
    return out;
}

static void free_masters(double **masters, size_t count) {
    for (size_t i = 0; masters && i < count; i++)
        free(masters[i]);
    free(masters);
}

// All parameters one after another, and back.
static void masters_join(const struct trial *t, double *const *masters, double *out) {
    for (size_t i = 0; i < t->whole.parameters.count; i++)
        memcpy(out + t->at[i], masters[i], (size_t)parameter_count(&t->whole.parameters.item[i]) * sizeof *out);
}
static double **masters_split(const struct trial *t, const double *x) {
    double **out = mem_alloc(t->whole.parameters.count * sizeof *out);
    for (size_t i = 0; i < t->whole.parameters.count; i++) {
        const size_t bytes = (size_t)parameter_count(&t->whole.parameters.item[i]) * sizeof *x;
        out[i] = memcpy(mem_alloc(bytes), x + t->at[i], bytes);
    }
    return out;
}

// One step of an island from x.
static struct engine_result step_alone(struct trial *t, int island, int64_t step, const double *x) {
    struct engine *e = &t->alone[island];
    struct batch part = t->batch[(step - 1) % BATCHES];
    const int64_t skip = island * (SEQUENCES / t->way->islands) * SEQ_LEN;
    trireme_error error = {0};
    struct engine_result r;
    part.tokens += skip;
    part.targets += skip;
    part.starts += skip;
    part.positions += skip;
    double **masters = masters_split(t, x);
    mesh_set(e, masters);
    free_masters(masters, t->whole.parameters.count);
    mesh_fill(e, PROGRAM_TRAIN, &part);
    assert_ok(engine_step(e, learning_rate(&t->config, step), NULL, &r, &error), &error);
    return r;
}

static double learn(void *context, int island, int64_t step, double *x) {
    struct trial *t = context;
    const struct engine_result r = step_alone(t, island, step, x);
    double **masters = copy_masters(&t->alone[island]);
    masters_join(t, masters, x);
    free_masters(masters, t->whole.parameters.count);
    return r.count;
}

// The gradient at x, clipped.
static double slope(void *context, int island, int64_t step, const double *x, double *g) {
    struct trial *t = context;
    const struct engine_result r = step_alone(t, island, step, x);
    const double factor = fmin(1, t->config.training.max_norm / (r.grad_norm + 1e-6));
    for (size_t i = 0; i < t->whole.parameters.count; i++) {
        const struct engine_part part = engine_part(&t->alone[island], ENGINE_GRADIENTS, i);
        for (int64_t k = 0; k < part.end; k++)
            g[t->at[i] + k] = factor * value_at(part.data, part.dtype, k);
    }
    return r.count;
}

static double rate_of(void *context, int64_t step) {
    const struct trial *t = context;
    return learning_rate(&t->config, step);
}

// What a rank updates of a unit is a range, of the fragment that the layer is of.
static struct plain_range *ranges_of(const struct trial *t, int *count) {
    const int shards = MAX(t->way->shards, 1), units = (int)t->whole.units.count;
    struct plain_range *out = mem_alloc((size_t)(units * shards) * sizeof *out);
    for (int u = 0; u < units; u++) {
        const char *name = t->whole.units.item[u];
        const int fragment = strncmp(name, "layers.", 7) == 0 ? atoi(name + 7) % MAX(t->way->fragments, 1) : 0;
        const int64_t each = (t->unit_at[u + 1] - t->unit_at[u]) / shards;
        for (int s = 0; s < shards; s++)
            out[u * shards + s] = (struct plain_range){t->unit_at[u] + s * each, each, fragment};
    }
    *count = units * shards;
    return out;
}

static struct plain_outer settings_of(const struct trial *t) {
    const struct way *way = t->way;
    struct plain_outer settings = plain_outer_method(way->method);
    settings.sync_steps = way->sync;
    settings.fragments = MAX(way->fragments, 1);
    settings.delay_steps = way->delay < 0 ? way->sync : way->delay;
    settings.warmup_steps = t->config.lr_scheduler.warmup_steps;
    settings.equal = t->config.outer.weights == CONFIG_OUTER_WEIGHTS_EQUAL;
    const struct plain_outer given = settings;
    settings.codec = (enum codec)t->config.outer.codec;
    settings.penalty = t->config.outer.penalty;
    settings.clip = t->config.outer.clip;
    settings.pull = settings.pairs ? t->config.outer.pull : 0;
    settings.scale_beta = t->config.optimizer.beta2;
    settings.scale_floor = t->config.optimizer.eps;
    assert_true(way->more || (settings.codec == given.codec && settings.penalty == given.penalty &&
                              settings.pull == given.pull && settings.clip == given.clip)); // the published ones
    if (settings.interval_lr > 0)
        settings.interval_lr = t->config.outer.interval_lr;
    return settings;
}

static void run_reference(struct trial *t) {
    const struct way *way = t->way;
    struct config config = make_config(way, false);
    const struct plain_outer settings = settings_of(t);
    int count;
    struct plain_range *ranges = ranges_of(t, &count);
    const struct plain_problem problem = {.islands = way->islands,
                                          .count = t->count,
                                          .range = ranges,
                                          .ranges = count,
                                          .context = t,
                                          .step = learn,
                                          .gradient = slope,
                                          .lr = rate_of};
    double *start = mem_alloc((size_t)t->count * sizeof *start), *own[ISLANDS], *outer[ISLANDS];
    trireme_error error = {0};
    masters_join(t, t->initial, start);
    for (int n = 0; n < way->islands; n++) {
        own[n] = mem_alloc((size_t)t->count * sizeof **own);
        outer[n] = mem_alloc((size_t)t->count * sizeof **outer);
        assert_ok(engine_create(&t->alone[n], &config, &t->model, NULL, TRAIN_ALONE, NULL, &error), &error);
        engine_initialise(&t->alone[n], 1, NULL);
    }
    plain_outer_run(&settings, &problem, way->steps, start, own, outer);
    for (int n = 0; n < way->islands; n++) {
        t->expected[n] = masters_split(t, own[n]);
        free(own[n]);
        free(outer[n]);
        engine_release(&t->alone[n]);
    }
    free(start);
    free(ranges);
    config_release(&config);
}

// ---- the islands

static int island_of(const struct engine *e) {
    return mesh_index(&e->parallel->mesh, e->member.rank, AXES_ISLAND);
}

static void compare(struct trial *t, const struct engine *e) {
    double worst = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i], *whole = &t->whole.parameters.item[p->whole];
        const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, i),
                                 low = engine_part(e, ENGINE_REMAINDERS, i);
        double *expected = mem_alloc((size_t)MAX(part.end - part.begin, 1) * sizeof *expected);
        if (part.begin < part.end)
            parameter_take(p, whole, (struct parameter_span){0, parameter_count(whole)},
                           t->expected[island_of(e)][p->whole], (struct parameter_span){part.begin, part.end}, expected,
                           sizeof *expected);
        for (int64_t k = 0; k < part.end - part.begin; k++) {
            const double x = master_at(&part, &low, k), apart = fabs(x - expected[k]) / fmax(fabs(expected[k]), RATE);
            worst = apart > worst || isnan(apart) ? apart : worst;
            uint64_t bits;
            memcpy(&bits, &x, sizeof bits);
            sum = (sum ^ bits) * 0x9e3779b97f4a7c15u;
        }
        free(expected);
    }
    pthread_mutex_lock(&t->mutex);
    t->apart = worst > t->apart || isnan(worst) ? worst : t->apart;
    t->sum[t->run][e->member.rank] = sum;
    pthread_mutex_unlock(&t->mutex);
}

// As a run does it (run/island.c).
static trireme_status train(const struct trial *t, struct engine *e, trireme_error *error) {
    const bool equal = t->config.outer.weights == CONFIG_OUTER_WEIGHTS_EQUAL, later = t->way->delay > 0;
    struct outer_schedule schedule = outer_schedule_create(&t->config);
    double targets[4] = {0};
    int under_way = NONE, settles = 0;
    outer_step_start(e, t->way->islands);
    for (int step = 1; step <= t->way->steps; step++) {
        struct engine_result r;
        mesh_fill(e, PROGRAM_TRAIN, &t->batch[(step - 1) % BATCHES]);
        TRY(engine_step(e, learning_rate(&t->config, step), NULL, &r, error));
        for (size_t f = 0; f < ARRAY_LENGTH(targets); f++)
            targets[f] += r.count;
        const int fragment = outer_schedule_at(&schedule, step);
        if (under_way != NONE && ((later && step >= settles) || fragment != NONE)) {
            TRY(outer_step_end(e, under_way, error));
            under_way = NONE;
        }
        if (fragment == NONE)
            continue;
        TRY(outer_step_begin(e, outer_schedule_part(&schedule, step, fragment), equal ? 1 : targets[fragment], error));
        targets[fragment] = 0;
        under_way = t->way->delay ? fragment : NONE;
        settles = step + t->way->delay;
    }
    return under_way == NONE ? TRIREME_OK : outer_step_wait(e, under_way, error);
}

static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    struct trial *t = user;
    struct engine e;
    TRY(engine_create(&e, &t->config, &t->model, NULL, TRAIN_ALONE, member, error));
    engine_initialise(&e, 1, NULL);
    mesh_set(&e, t->initial);
    trireme_status status = TRIREME_OK;
    if (t->after)
        t->after(t, &e, member, error);
    else
        status = train(t, &e, error);
    if (status == TRIREME_OK && !t->after)
        compare(t, &e);
    engine_release(&e);
    return t->after ? error->status : status;
}

static void trial_lay_out(struct trial *t) {
    const size_t units = t->whole.units.count;
    t->at = mem_alloc(t->whole.parameters.count * sizeof *t->at);
    t->unit_at = mem_alloc((units + 1) * sizeof *t->unit_at);
    for (size_t u = 0; u < units; u++) {
        for (size_t i = 0; i < t->whole.parameters.count; i++)
            if (t->whole.parameters.item[i].unit == (int)u) {
                t->at[i] = t->count;
                t->count += round_up(parameter_count(&t->whole.parameters.item[i]), PARAMETER_ALIGNMENT);
            }
        t->count = t->unit_at[u] + round_up(t->count - t->unit_at[u], MAX(t->way->shards, 1) * PARAMETER_ALIGNMENT);
        t->unit_at[u + 1] = t->count;
    }
}

static void trial_create(struct trial *t, const struct way *way) {
    *t = (struct trial){.way = way};
    small_config(&t->model, small_models[SMALL_LLAMA].json);
    parameter_table_create(&t->whole, &t->model);
    trial_lay_out(t);
    struct config config = make_config(way, false);
    struct engine one;
    trireme_error error = {0};
    assert_ok(engine_create(&one, &config, &t->model, NULL, TRAIN_ALONE, NULL, &error), &error);
    engine_initialise(&one, 7, NULL);
    t->initial = copy_masters(&one);
    engine_release(&one);
    config_release(&config);
    for (int i = 0; i < BATCHES; i++)
        t->batch[i] = batch_create(SEQUENCES, SEQ_LEN, t->model.vocab_size, (uint64_t)(i + 1));
    t->config = make_config(way, true);
    pthread_mutex_init(&t->mutex, NULL);
}

static void trial_release(struct trial *t) {
    for (int n = 0; n < ISLANDS; n++)
        free_masters(t->expected[n], t->whole.parameters.count);
    free_masters(t->initial, t->whole.parameters.count);
    for (int i = 0; i < BATCHES; i++)
        batch_release(&t->batch[i]);
    parameter_table_release(&t->whole);
    config_release(&t->config);
    pthread_mutex_destroy(&t->mutex);
    free(t->at);
    free(t->unit_at);
}

static double try(const struct way *way) {
    struct trial t;
    trireme_error error = {0};
    trial_create(&t, way);
    run_reference(&t);
    for (t.run = 0; t.run < 2; t.run++)
        assert_ok(team_ranks_run(way->ranks, DEADLINE, run_rank, &t, &error), &error);
    // However long an exchange takes beside the steps, the bits are the same.
    assert_memory_equal(t.sum[0], t.sum[1], sizeof t.sum[0]);
    const double apart = t.apart;
    trial_release(&t);
    return apart;
}

// ---- tests

static void expect_close(const struct way *ways, size_t count, double tolerance) {
    for (size_t i = 0; i < count; i++) {
        const double apart = try(&ways[i]);
        if (!(apart <= tolerance))
            fail_msg("way %zu, %s, is %g apart", i, ways[i].method, apart);
    }
}

static void parameters_become_the_mean(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"local_sgd", 2, 4, {DP "2", ZERO "0"}, .sync = 3, .steps = 6},
        {"local_sgd", 2, 4, {FSDP "2", ZERO "1"}, .sync = 2, .steps = 5},
        {"local_sgd", 2, 4, {FSDP "2", ZERO "2"}, .sync = 3, .steps = 7},
        {"local_sgd", 2, 8, {FSDP "2", ZERO "3", DP "2"}, .sync = 3, .steps = 6},
        {"local_sgd", 2, 8, {PP "2", TP "2", "parallelism.vocabulary_parallel=true", ZERO "0"}, .sync = 3, .steps = 6},
        {"local_sgd", 2, 8, {CP "2", PP "2", ZERO "2"}, .sync = 2, .steps = 5},
        {"local_sgd", 2, 4, {CP "2", "parallelism.context_parallel_method=ring", ZERO "1"}, .sync = 2, .steps = 5},
        {"local_sgd", 2, 8, {CP "2", "parallelism.context_parallel_method=ulysses", TP "2"}, .sync = 2, .steps = 5},
        {"local_sgd", 4, 4, {ZERO "0"}, .sync = 5, .steps = 24},
        {"qsr", 4, 4, {ZERO "0"}, .sync = 2, .steps = 24, .more = "outer.interval_lr=0.0125"},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), TOLERANCE);
}

// By one divisor for all islands, which follows from the gradients of all of them.
static void islands_divide_gradients_by_the_same(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"local_scaled", 4, 4, {ZERO "0"}, .sync = 5, .steps = 24},
        {"local_scaled", 2, 4, {FSDP "2", ZERO "1"}, .sync = 2, .steps = 9},
        {"local_scaled", 2, 4, {FSDP "2", ZERO "2"}, .sync = 3, .steps = 8, .more = "outer.weights=equal"},
        {"local_scaled", 2, 8, {FSDP "2", ZERO "3", DP "2"}, .sync = 3, .steps = 10},
        {"local_scaled", 2, 8, {PP "2", TP "2", ZERO "0"}, .sync = 2, .steps = 7, .more = "optimizer.beta2=0.5"},
        {"local_scaled", 1, 2, {TP "2", ZERO "0"}, .sync = 2, .steps = 7, .more = "optimizer.offload=file"},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), TOLERANCE);
}

// What is exchanged arrives some steps later, before the next time that parameters are taken.
static void what_islands_learn_meanwhile_is_kept(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"local_sgd", 2, 2, {ZERO "0"}, .sync = 3, .delay = 1, .steps = 8},
        {"local_sgd", 2, 4, {FSDP "2", ZERO "1"}, .sync = 3, .delay = 2, .steps = 8},
        {"local_sgd", 2, 8, {PP "2", TP "2", ZERO "0"}, .sync = 4, .delay = 3, .steps = 8},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), TOLERANCE);
}

static void an_outer_optimizer_follows_the_islands(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"diloco", 4, 4, {ZERO "0"}, .sync = 5, .steps = 24},
        {"diloco", 2, 4, {FSDP "2", ZERO "3"}, .sync = 3, .steps = 20},
        {"diloco", 2, 8, {PP "2", TP "2", ZERO "0"}, .sync = 3, .steps = 7},
        {"diloco", 1, 2, {TP "2", ZERO "0"}, .sync = 3, .steps = 20},
        {"streaming_diloco", 4, 4, {ZERO "0"}, .sync = 6, .delay = 2, .steps = 24, .fragments = 2},
        {"streaming_diloco",
         2,
         4,
         {FSDP "2", ZERO "2"},
         .sync = 4,
         .delay = 2,
         .steps = 21,
         .fragments = 2,
         .shards = 2},
        {"streaming_diloco", 2, 4, {PP "2", ZERO "0"}, .sync = 4, .delay = 1, .steps = 9, .fragments = 2},
        {"streaming_diloco", 2, 2, {ZERO "0"}, .sync = 4, .delay = 0, .steps = 12, .fragments = 2},
        {"eager_diloco", 4, 4, {ZERO "0"}, .sync = 4, .delay = -1, .steps = 24},
        {"eager_diloco", 2, 4, {FSDP "2", ZERO "1"}, .sync = 3, .delay = -1, .steps = 20},
        {"co2", 4, 4, {ZERO "0"}, .sync = 4, .delay = -1, .steps = 24},
        {"co2", 2, 4, {FSDP "2", ZERO "2"}, .sync = 3, .delay = -1, .steps = 20},
        {"co2", 2, 8, {PP "2", TP "2", ZERO "0"}, .sync = 2, .delay = -1, .steps = 9},
        {"co2", 4, 4, {ZERO "0"}, .sync = 2, .delay = -1, .steps = 20, .more = "outer.clip=0.002"},
        {"gossip", 4, 4, {ZERO "0"}, .sync = 3, .steps = 24},
        {"gossip", 4, 8, {TP "2", ZERO "0"}, .sync = 2, .steps = 9},
        {"gossip", 4, 8, {PP "2", ZERO "0"}, .sync = 4, .steps = 21, .fragments = 2},
        {"gossip", 2, 4, {FSDP "2", ZERO "3"}, .sync = 3, .steps = 20},
        {"gossip", 1, 2, {TP "2", ZERO "0"}, .sync = 3, .steps = 9},
        {"gossip", 4, 4, {ZERO "0"}, .sync = 2, .steps = 20, .more = "outer.penalty=1"},
        {"gossip", 4, 4, {ZERO "0"}, .sync = 2, .steps = 12, .more = "outer.pull=0.3"},
        {"diloco", 2, 8, {FSDP "2", PP "2", ZERO "1"}, .sync = 2, .steps = 9, .more = "outer.penalty=2"},
        {"streaming_diloco", 2, 4, {PP "2", ZERO "0"}, 4, 1, .steps = 13, .fragments = 2, .more = "outer.penalty=1"},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), TOLERANCE);
}

// Where codes travel, all islands add up the same ones: what they have then is off by much more than the tolerance
// where a code is.
static void islands_send_codes(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"local_sgd", 4, 4, {ZERO "0"}, .sync = 5, .steps = 21, .more = "outer.codec=bf16"},
        {"local_sgd", 2, 4, {FSDP "2", ZERO "1"}, 3, 2, .steps = 8, .more = "outer.codec=int8", .shards = 2},
        {"diloco", 4, 4, {ZERO "0"}, .sync = 5, .steps = 24, .more = "outer.codec=int8"},
        {"diloco", 4, 8, {PP "2", ZERO "0"}, .sync = 3, .steps = 9, .more = "outer.codec=fp4"},
        {"diloco", 1, 1, {ZERO "0"}, .sync = 3, .steps = 9, .more = "outer.codec=fp4"},
        {"eager_diloco", 4, 4, {ZERO "0"}, .sync = 4, .delay = -1, .steps = 24, .more = "outer.codec=fp4"},
        {"co2", 2, 4, {DP "2", ZERO "0"}, .sync = 3, .delay = -1, .steps = 20, .more = "outer.codec=int8"},
        {"gossip", 4, 4, {ZERO "0"}, .sync = 3, .steps = 21, .more = "outer.codec=int8"},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), TOLERANCE);
}

// It is the masters that count, not the rounded parameters: those would be off by 2^-9.
static void bf16_exchanges_masters(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {"local_sgd", 2, 2, {ZERO "0"}, .sync = 3, .steps = 3, .dtype = "bf16"},
        {"local_sgd", 2, 2, {ZERO "0"}, .sync = 2, .delay = 1, .steps = 3, .dtype = "bf16"},
        {"diloco", 2, 2, {ZERO "0"}, .sync = 3, .steps = 3, .dtype = "bf16"},
        {"local_scaled", 2, 2, {ZERO "0"}, .sync = 2, .steps = 3, .dtype = "bf16"},
    };
    expect_close(WAYS, ARRAY_LENGTH(WAYS), 1e-6);
    // Steps behind a meeting are with parameters that may be rounded the other way.
    static const struct way LATER = {"co2", 2, 2, {ZERO "0"}, .sync = 2, .delay = -1, .steps = 4, .dtype = "bf16"};
    expect_close(&LATER, 1, 1e-4);
}

// The largest distance of what the rank holds, which is all, to these values.
static double apart_from(const struct engine *e, double *const *from) {
    double most = 0;
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, i);
        for (int64_t k = 0; k < part.end; k++)
            most = fmax(most, fabs(value_at(part.data, part.dtype, k) - from[i][k]));
    }
    return most;
}

static void note(struct trial *t, bool wrong) {
    pthread_mutex_lock(&t->mutex);
    t->apart += wrong;
    pthread_mutex_unlock(&t->mutex);
}

// Island 1 has values that make its loss something that is not a number.
static void skip_one(struct trial *t, struct engine *e, const struct member *member, trireme_error *error) {
    struct engine_result r;
    const size_t last = e->local.parameters.count - 1;
    const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, last);
    const bool sick = member->rank == 1;
    for (int64_t k = 0; k < part.end && sick; k++)
        ((double *)part.data)[k] = INFINITY;
    mesh_fill(e, PROGRAM_TRAIN, &t->batch[0]);
    if (engine_step(e, RATE, NULL, &r, error) != TRIREME_OK)
        return;
    note(t, r.finite == sick);
    if (sick)
        memcpy(part.data, t->initial[last], (size_t)part.end * sizeof(double));
    note(t, sick != (apart_from(e, t->initial) == 0)); // the other has learnt something
}

// Weights of zero: of one island, whose values do not count then even if they are not numbers; of all.
static void weigh_none(struct trial *t, struct engine *e, const struct member *member, trireme_error *error) {
    const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, 0);
    if (member->rank == 1)
        ((double *)part.data)[0] = NAN;
    if (outer_step_begin(e, 0, member->rank == 0 ? 3 : 0, error) != TRIREME_OK)
        return;
    note(t, !(apart_from(e, t->initial) <= 1e-15));
    ((double *)part.data)[0] = member->rank;
    if (outer_step_begin(e, 0, 0, error) != TRIREME_OK)
        return;
    note(t, ((double *)part.data)[0] != member->rank);
}

static void do_after(void (*after)(struct trial *, struct engine *, const struct member *, trireme_error *)) {
    static const struct way WAY = {"local_sgd", 2, 2, {ZERO "0"}, .sync = 1, .steps = 1};
    struct trial t;
    trireme_error error = {0};
    trial_create(&t, &WAY);
    t.after = after;
    assert_ok(team_ranks_run(2, DEADLINE, run_rank, &t, &error), &error);
    assert_true(t.apart == 0);
    trial_release(&t);
}

static void only_the_island_that_is_not_finite_skips(void **state) {
    (void)state;
    do_after(skip_one);
}

static void weights_of_zero_do_not_count(void **state) {
    (void)state;
    do_after(weigh_none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_become_the_mean),
        cmocka_unit_test(islands_divide_gradients_by_the_same),
        cmocka_unit_test(what_islands_learn_meanwhile_is_kept),
        cmocka_unit_test(an_outer_optimizer_follows_the_islands),
        cmocka_unit_test(islands_send_codes),
        cmocka_unit_test(bf16_exchanges_masters),
        cmocka_unit_test(only_the_island_that_is_not_finite_skips),
        cmocka_unit_test(weights_of_zero_do_not_count),
    };
    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
