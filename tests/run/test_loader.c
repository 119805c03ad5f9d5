// Batches that are read ahead reach the program when they are taken, and ranks agree without waiting for one another.
#include "launch/ranks.h"
#include "measure/synthetic.h"
#include "run/loader.h"
#include "support/models.h"

#include "base/text.h"

#include <unistd.h>

// Sequences of a batch that a rank reads at once, and of one that is left to the thread.
enum { SHORT = 16, LONG = 1024, SEQUENCES = 4, MICROBATCH = 2 };

struct opened {
    int64_t seq_len;
    struct config config;
    struct model_config model;
    struct corpus corpus;
    struct engine engine;
    struct loader *loader;
};

static void open_all(struct opened *o, const char *folder, int64_t seq_len, const atomic_bool *stop) {
    trireme_error error = {0};
    struct text text = {0};
    for (int i = 0; i < 10000; i++)
        text_add(&text, "%d %d ", i * i % 97, i);
    prepare_text(folder, text.text);
    text_release(&text);
    char *path = mem_printf("data.path=%s/tokens", folder), *length = mem_printf("training.seq_len=%d", (int)seq_len);
    o->seq_len = seq_len;
    const char *overrides[] = {path,
                               "data.split=[0.5, 0.5]",
                               "model.family=llama",
                               "model.num_hidden_layers=1",
                               "model.hidden_size=16",
                               "model.num_attention_heads=2",
                               "model.vocab_size=256",
                               length,
                               "training.global_batch_size=4",
                               "training.micro_batch_size=2",
                               NULL};
    assert_ok(config_load(&o->config, NULL, overrides, ARRAY_LENGTH(overrides) - 1, &error), &error);
    assert_ok(corpus_open(&o->corpus, &o->config, &error), &error);
    assert_ok(synthetic_model(&o->model, &o->config, &error), &error);
    config_release(&o->config);
    engine_open(&o->engine, &o->config, &o->model, overrides);
    assert_ok(corpus_sample(&o->corpus, &o->config, o->model.vocab_size, false, &error), &error);
    assert_ok(loader_create(&o->loader, &o->corpus, &o->engine, NULL, NULL, stop, &error), &error);
    free(path);
    free(length);
}

static void close_all(struct opened *o) {
    loader_free(o->loader);
    engine_release(&o->engine);
    corpus_close(&o->corpus);
    config_release(&o->config);
}

// Whether the inputs of the split's program are those of a batch.
static bool has_inputs(const struct opened *o, enum sampler_split split, int64_t batch) {
    const struct sampler *sampler = split == SAMPLER_TRAIN ? &o->corpus.train : &o->corpus.validation;
    const struct engine_program *p = engine_find(&o->engine, split == SAMPLER_TRAIN ? PROGRAM_TRAIN : PROGRAM_EVALUATE);
    const struct compiled *c = p->compiled;
    const int buffer[] = {c->tokens, c->targets, c->starts, c->positions};
    const int64_t each = MICROBATCH * o->seq_len;
    int32_t *values = mem_alloc((size_t)(4 * each) * sizeof *values);
    bool same = true;
    for (int m = 0; m < SEQUENCES / MICROBATCH; m++) {
        const struct sampler_batch to = {
            {PLACES_CONTIGUOUS, 1, o->seq_len}, 0, values, values + each, values + 2 * each, values + 3 * each};
        trireme_error error = {0};
        assert_ok(sampler_fill(sampler, split, batch, m * MICROBATCH, MICROBATCH, &to, NULL, &error), &error);
        for (int i = 0; i < 4; i++)
            same &= memcmp(executor_address(p->executor, buffer[i], m), values + i * each,
                           (size_t)each * sizeof *values) == 0;
    }
    free(values);
    return same;
}

static struct control load(struct opened *o, enum sampler_split split, int64_t batch) {
    struct control all;
    trireme_error error = {0};
    loader_begin(o->loader, split, batch, LOADER_ALL, &(struct control){.timings = 1});
    assert_ok(loader_end(o->loader, &all, &error), &error);
    assert_true(all.timings == 1 && all.bytes == 0);
    return all;
}

static void check_batches(const char *folder, int64_t seq_len) {
    struct opened o;
    struct sampler_counts counts;
    open_all(&o, folder, seq_len, NULL);
    assert_true(load(&o, SAMPLER_TRAIN, 3).failures == 0);
    loader_take(o.loader, SAMPLER_TRAIN, &counts);
    assert_true(counts.targets > 0 && counts.targets <= SEQUENCES * seq_len);
    assert_true(has_inputs(&o, SAMPLER_TRAIN, 3));
    assert_true(load(&o, SAMPLER_TRAIN, 4).failures == 0);
    assert_true(has_inputs(&o, SAMPLER_TRAIN, 3) && !has_inputs(&o, SAMPLER_TRAIN, 4));
    // A validation, which has the same memory, comes between.
    assert_true(load(&o, SAMPLER_VALIDATION, 1).failures == 0);
    loader_take(o.loader, SAMPLER_VALIDATION, &counts);
    assert_true(has_inputs(&o, SAMPLER_VALIDATION, 1));
    loader_take(o.loader, SAMPLER_TRAIN, &counts);
    assert_true(has_inputs(&o, SAMPLER_TRAIN, 4));
    // No batch: the one that was read last stays.
    assert_true(load(&o, SAMPLER_TRAIN, LOADER_NO_BATCH).failures == 0);
    loader_take(o.loader, SAMPLER_TRAIN, &counts);
    assert_true(has_inputs(&o, SAMPLER_TRAIN, 4));
    close_all(&o);
}

static void batches_reach_the_program_when_they_are_taken(void **state) {
    check_batches(*state, SHORT);
    check_batches(*state, LONG);
}

static void a_batch_that_cannot_be_read_is_told_of(void **state) {
    struct opened o;
    trireme_error error = {0};
    open_all(&o, *state, LONG, NULL);
    assert_true(load(&o, SAMPLER_TRAIN, 0).failures == 0);
    assert_int_equal(truncate(path_in(*state, "tokens.bin"), 100), 0);
    assert_true(load(&o, SAMPLER_TRAIN, 1).failures == 1);
    assert_refused(loader_fail(o.loader, SAMPLER_TRAIN, &error), TRIREME_ERROR_CORRUPT, &error, "became shorter");
    close_all(&o);
}

static void a_single_rank_stops_at_once(void **state) {
    struct opened o;
    atomic_bool stop = false;
    open_all(&o, *state, SHORT, &stop);
    struct control all = load(&o, SAMPLER_TRAIN, 0);
    assert_false(loader_stops(o.loader, &all));
    stop = true;
    assert_true(all.stops == 0 && loader_stops(o.loader, &all));
    all = load(&o, SAMPLER_TRAIN, 1);
    assert_true(all.stops == 1 && loader_stops(o.loader, &all));
    close_all(&o);
}

// ---- two ranks

enum { CALLS = 3 };
static const double DEADLINE = 0.5, LATE = 1.5; // seconds

struct agreeing {
    atomic_bool stop[2];
    atomic_int begun; // calls of rank 0
    struct control all[2][CALLS];
    bool stops[2]; // after the last call
};

// Rank 1 begins each call when rank 0 has begun it; the first one so late that a rank that waits for it would give up.
static trireme_status agree(void *user, const struct member *member, trireme_error *error) {
    struct agreeing *a = user;
    struct engine none = {.member = *member};
    struct communicator *control;
    struct loader *loader;
    const int rank = member->rank;
    TRY(ranks_control(&control, member, 2, error));
    TRY(loader_create(&loader, NULL, &none, control, control, &a->stop[rank], error));
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < CALLS && status == TRIREME_OK; i++) {
        while (rank == 1 && a->begun <= i)
            usleep(1000);
        if (rank == 1 && i == 0)
            usleep((useconds_t)(1e6 * LATE));
        a->stop[rank] = rank == 0 && i == CALLS - 1;
        loader_begin(loader, SAMPLER_TRAIN, LOADER_NO_BATCH, LOADER_ALL,
                     &(struct control){.timings = rank * i, .copied = i, .saved = rank});
        a->begun += rank == 0;
        if (rank == 0 && i == 0)
            usleep((useconds_t)(1e6 * LATE));
        status = loader_end(loader, &a->all[rank][i], error);
        a->stops[rank] = status == TRIREME_OK && loader_stops(loader, &a->all[rank][i]);
    }
    loader_free(loader);
    if (status == TRIREME_OK)
        status = ranks_meet(control, error); // which has a deadline again
    communicator_free(control);
    return status;
}

static void ranks_agree_without_waiting_for_one_another(void **state) {
    (void)state;
    struct agreeing a = {0};
    trireme_error error = {0};
    assert_ok(ranks_run(2, DEADLINE, agree, &a, &error), &error);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < CALLS; i++)
            assert_true(a.all[rank][i].timings == i && a.all[rank][i].stops == (i == CALLS - 1) &&
                        a.all[rank][i].copied == 2 * i && a.all[rank][i].saved == 1);
        assert_true(a.stops[rank]);
    }
}

// Rank 1 does not come.
static trireme_status miss(void *user, const struct member *member, trireme_error *error) {
    struct engine none = {.member = *member};
    struct communicator *control;
    struct loader *loader;
    struct control all;
    (void)user;
    TRY(ranks_control(&control, member, 2, error));
    TRY(loader_create(&loader, NULL, &none, control, control, NULL, error));
    trireme_status status = TRIREME_OK;
    if (member->rank == 0) {
        loader_begin(loader, SAMPLER_TRAIN, LOADER_NO_BATCH, LOADER_ALL, &(struct control){0});
        status = loader_end(loader, &all, error);
    } else {
        while (!world_failure(member->world, NULL))
            usleep(1000);
    }
    loader_free(loader);
    communicator_free(control);
    return status;
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    trireme_error error = {0};
    assert_refused(ranks_run(2, DEADLINE, miss, NULL, &error), TRIREME_ERROR_LOST, &error,
                   "rank 0 waited 0.5 s in all_reduce of 6 f64 (sum) for rank 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(batches_reach_the_program_when_they_are_taken),
        IN_FOLDER(a_batch_that_cannot_be_read_is_told_of),
        IN_FOLDER(a_single_rank_stops_at_once),
        cmocka_unit_test(ranks_agree_without_waiting_for_one_another),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
