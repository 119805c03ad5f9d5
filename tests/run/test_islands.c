// Islands against a reference that trains each of them by itself, on one rank, and averages by hand: after several
// steps, at once or some steps later, whatever mesh an island is; in bf16 with remainders; and where an island has no
// weight or skips a step.
#include "support/mesh_keys.h"
#include "support/meshes.h"
#include "support/team.h"
#include "support/test.h"

#include "engine/outer_step.h"
#include "kernels/bf16.h"

#include <math.h>
#include <pthread.h>

enum { ISLANDS = 2, SEQUENCES = 8, SEQ_LEN = 8, STEPS = 8, RANKS = 8, DEADLINE = 120 };
#define RATE 1e-2
#define TOLERANCE 1e-9

struct way {
    const char *mesh[6]; // of each island
    int ranks, sync, delay, steps;
    const char *dtype;
};

struct trial {
    const struct way *way;
    struct model_config model;
    struct parameter_table whole;
    double **initial, **expected[ISLANDS]; // [parameters]: whole masters, those expected at the end
    struct batch batch[STEPS];
    struct config config;
    pthread_mutex_t mutex;
    double apart;           // the most, relative to the learning rate or the value
    uint64_t sum[2][RANKS]; // of the bits of each rank's parameters, in two runs
    int run;
    void (*after)(struct trial *trial, struct engine *e, const struct member *member, trireme_error *error);
};

static struct config make_config(const struct way *way, const char *const *mesh, int sequences) {
    const char *all[24] = {"run.directory=unused",        "training.threads=1", "training.seq_len=8",
                           "training.micro_batch_size=1", "optimizer.eps=1e-4", "training.kernels=reference",
                           "training.max_norm=0.1"};
    size_t n = 7;
    char batch[64], dtype[64];
    snprintf(batch, sizeof batch, "training.global_batch_size=%d", sequences);
    snprintf(dtype, sizeof dtype, "training.dtype=%s", way->dtype ? way->dtype : "f64");
    all[n++] = batch;
    all[n++] = dtype;
    char delay[64], sync[64];
    snprintf(delay, sizeof delay, "outer.delay_steps=%d", way->delay);
    snprintf(sync, sizeof sync, "outer.sync_steps=%d", way->sync);
    if (mesh) {
        all[n++] = "parallelism.island_degree=2";
        all[n++] = "outer.method=local_sgd";
        all[n++] = sync;
        all[n++] = delay;
    }
    for (size_t i = 0; mesh && i < 6 && mesh[i]; i++)
        all[n++] = mesh[i];
    struct config config;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, all, n, &error), &error);
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

// What each island has becomes the weighted mean of what was taken, and what it has learnt since.
static void average(const struct trial *t, struct engine *islands, double **const *taken, const double *weight) {
    double **own[ISLANDS];
    for (int n = 0; n < ISLANDS; n++)
        own[n] = copy_masters(&islands[n]);
    for (int n = 0; n < ISLANDS; n++) {
        for (size_t i = 0; i < t->whole.parameters.count; i++)
            for (int64_t k = 0; k < parameter_count(&t->whole.parameters.item[i]); k++) {
                double sum = 0, total = 0;
                for (int m = 0; m < ISLANDS; m++) {
                    sum += weight[m] * taken[m][i][k];
                    total += weight[m];
                }
                own[n][i][k] = sum / total + (own[n][i][k] - taken[n][i][k]);
            }
    }
    for (int n = 0; n < ISLANDS; n++) {
        mesh_set(&islands[n], own[n]);
        free_masters(own[n], t->whole.parameters.count);
    }
}

static void run_reference(struct trial *t) {
    const struct way *way = t->way;
    struct config config = make_config(way, NULL, SEQUENCES / ISLANDS);
    struct engine islands[ISLANDS];
    double **taken[ISLANDS] = {0}, targets[ISLANDS] = {0}, weight[ISLANDS] = {0};
    trireme_error error = {0};
    const size_t count = t->whole.parameters.count;
    for (int n = 0; n < ISLANDS; n++) {
        assert_ok(engine_create(&islands[n], &config, &t->model, NULL, TRAIN_ALONE, NULL, &error), &error);
        engine_initialise(&islands[n], 1, NULL);
        mesh_set(&islands[n], t->initial);
    }
    for (int step = 1, settles = 0; step <= way->steps; step++) {
        for (int n = 0; n < ISLANDS; n++) {
            struct batch part = t->batch[step - 1];
            const int64_t skip = n * SEQUENCES / ISLANDS * SEQ_LEN;
            part.tokens += skip;
            part.targets += skip;
            part.starts += skip;
            part.positions += skip;
            struct engine_result r;
            mesh_fill(&islands[n], PROGRAM_TRAIN, &part);
            assert_ok(engine_step(&islands[n], RATE, NULL, &r, &error), &error);
            targets[n] += r.count;
        }
        for (int turn = 0; turn < 2; turn++) { // settle what was taken before, take, settle that if there is no delay
            if (settles && step >= settles) {
                average(t, islands, taken, weight);
                settles = 0;
            }
            if (turn || step % way->sync)
                continue;
            for (int n = 0; n < ISLANDS; n++) {
                free_masters(taken[n], count);
                taken[n] = copy_masters(&islands[n]);
                weight[n] = targets[n];
                targets[n] = 0;
            }
            assert_true(weight[0] != weight[1]);
            settles = step + way->delay;
        }
    }
    for (int n = 0; n < ISLANDS; n++) {
        t->expected[n] = copy_masters(&islands[n]);
        free_masters(taken[n], count);
        engine_release(&islands[n]);
    }
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

static trireme_status train(const struct trial *t, struct engine *e, trireme_error *error) {
    const struct way *way = t->way;
    double targets = 0;
    for (int step = 1, settles = 0; step <= way->steps; step++) {
        struct engine_result r;
        mesh_fill(e, PROGRAM_TRAIN, &t->batch[step - 1]);
        TRY(engine_step(e, RATE, NULL, &r, error));
        targets += r.count;
        if (settles && step >= settles) {
            TRY(outer_step_end(e, error));
            settles = 0;
        }
        if (step % way->sync)
            continue;
        TRY(outer_step_begin(e, targets, error));
        targets = 0;
        settles = step + way->delay;
        if (way->delay == 0) {
            TRY(outer_step_end(e, error));
            settles = 0;
        }
    }
    return outer_step_wait(e, error);
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

static void trial_create(struct trial *t, const struct way *way) {
    *t = (struct trial){.way = way};
    small_config(&t->model, small_models[SMALL_LLAMA].json);
    parameter_table_create(&t->whole, &t->model);
    struct config config = make_config(way, NULL, SEQUENCES);
    struct engine one;
    trireme_error error = {0};
    assert_ok(engine_create(&one, &config, &t->model, NULL, TRAIN_ALONE, NULL, &error), &error);
    engine_initialise(&one, 7, NULL);
    t->initial = copy_masters(&one);
    engine_release(&one);
    config_release(&config);
    for (int i = 0; i < STEPS; i++)
        t->batch[i] = batch_create(SEQUENCES, SEQ_LEN, t->model.vocab_size, (uint64_t)(i + 1));
    t->config = make_config(way, way->mesh, SEQUENCES);
    pthread_mutex_init(&t->mutex, NULL);
}

static void trial_release(struct trial *t) {
    for (int n = 0; n < ISLANDS; n++)
        free_masters(t->expected[n], t->whole.parameters.count);
    free_masters(t->initial, t->whole.parameters.count);
    for (int i = 0; i < STEPS; i++)
        batch_release(&t->batch[i]);
    parameter_table_release(&t->whole);
    config_release(&t->config);
    pthread_mutex_destroy(&t->mutex);
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

static void islands_train_by_themselves_and_average(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {.mesh = {ZERO "0"}, .ranks = 2, .sync = 3, .steps = 7},
        {.mesh = {DP "2", ZERO "0"}, .ranks = 4, .sync = 3, .steps = 6},
        {.mesh = {FSDP "2", ZERO "1"}, .ranks = 4, .sync = 2, .steps = 5},
        {.mesh = {FSDP "2", ZERO "2"}, .ranks = 4, .sync = 3, .steps = 7},
        {.mesh = {FSDP "2", ZERO "3", DP "2"}, .ranks = 8, .sync = 3, .steps = 6},
        {.mesh = {TP "2", ZERO "0"}, .ranks = 4, .sync = 3, .steps = 6},
        {.mesh = {PP "2", TP "2", "parallelism.vocabulary_parallel=true", ZERO "0"}, .ranks = 8, .sync = 3, .steps = 6},
        {.mesh = {CP "2", PP "2", ZERO "2"}, .ranks = 8, .sync = 2, .steps = 5},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(WAYS); i++)
        if (!(try(&WAYS[i]) <= TOLERANCE))
            fail_msg("way %zu is %g apart", i, try(&WAYS[i]));
}

// What is exchanged arrives some steps later, up to the next time that parameters are taken.
static void what_islands_learn_meanwhile_is_kept(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {.mesh = {ZERO "0"}, .ranks = 2, .sync = 3, .delay = 1, .steps = 8},
        {.mesh = {FSDP "2", ZERO "1"}, .ranks = 4, .sync = 3, .delay = 2, .steps = 8},
        {.mesh = {FSDP "2", ZERO "3"}, .ranks = 4, .sync = 2, .delay = 2, .steps = 7},
        {.mesh = {PP "2", TP "2", ZERO "0"}, .ranks = 8, .sync = 3, .delay = 3, .steps = 8},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(WAYS); i++)
        if (!(try(&WAYS[i]) <= TOLERANCE))
            fail_msg("way %zu is %g apart", i, try(&WAYS[i]));
}

// Masters are averaged, not the rounded parameters: those would be off by 2^-9.
static void bf16_averages_masters(void **state) {
    (void)state;
    static const struct way WAYS[] = {
        {.mesh = {ZERO "0"}, .ranks = 2, .sync = 3, .steps = 3, .dtype = "bf16"},
        {.mesh = {ZERO "0"}, .ranks = 2, .sync = 2, .delay = 1, .steps = 3, .dtype = "bf16"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(WAYS); i++)
        assert_true(try(&WAYS[i]) <= 1e-6);
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
    if (outer_step_begin(e, member->rank == 0 ? 3 : 0, error) != TRIREME_OK || outer_step_end(e, error) != TRIREME_OK)
        return;
    note(t, !(apart_from(e, t->initial) <= 1e-15));
    ((double *)part.data)[0] = member->rank;
    if (outer_step_begin(e, 0, error) != TRIREME_OK || outer_step_end(e, error) != TRIREME_OK)
        return;
    note(t, ((double *)part.data)[0] != member->rank);
}

static void do_after(void (*after)(struct trial *, struct engine *, const struct member *, trireme_error *)) {
    static const struct way WAY = {.mesh = {ZERO "0"}, .ranks = 2, .sync = 1, .steps = 1};
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
        cmocka_unit_test(islands_train_by_themselves_and_average),
        cmocka_unit_test(what_islands_learn_meanwhile_is_kept),
        cmocka_unit_test(bf16_averages_masters),
        cmocka_unit_test(only_the_island_that_is_not_finite_skips),
        cmocka_unit_test(weights_of_zero_do_not_count),
    };
    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
