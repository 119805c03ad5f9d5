// Fresh weights, and that a request to stop need not wait for them. What a rank takes of a batch.
#include "support/models.h"

static void open_small(struct engine *e, struct config *config) {
    struct model_config model;
    const char *overrides[] = {"training.seq_len=16", "training.global_batch_size=2", NULL};
    small_config(&model, small_models[0].json);
    engine_open(e, config, &model, overrides);
}

static void same_weights_whatever_was_there(void **unused) {
    (void)unused;
    struct config config;
    struct engine e;
    open_small(&e, &config);
    size_t bytes = (size_t)engine_compiled(&e, PROGRAM_TRAIN)->program.arena[SPACE_DEVICE].state_bytes;
    char *first = mem_alloc(bytes);
    atomic_bool stop = false;
    assert_true(engine_initialise(&e, 3, NULL));
    memcpy(first, e.state, bytes);
    memset(e.state, 0x5a, bytes);
    assert_true(engine_initialise(&e, 3, &stop));
    assert_memory_equal(e.state, first, bytes);
    free(first);
    engine_release(&e);
    config_release(&config);
}

static void nothing_is_made_once_asked_to_stop(void **unused) {
    (void)unused;
    struct config config;
    struct engine e;
    open_small(&e, &config);
    atomic_bool stop = true;
    memset(e.state, 0x5a, (size_t)engine_compiled(&e, PROGRAM_TRAIN)->program.arena[SPACE_DEVICE].state_bytes);
    assert_false(engine_initialise(&e, 3, &stop));
    assert_true(e.local.parameters.count > 0);
    for (size_t i = 0; i < e.local.parameters.count; i++) {
        const unsigned char *values = engine_parameter(&e, i).data;
        assert_int_equal(*values, 0x5a); // not even zero
    }
    engine_release(&e);
    config_release(&config);
}

// A program's batch is its own, whatever the plan's is.
static void a_rank_takes_the_sequences_of_the_program(void **unused) {
    (void)unused;
    struct config config;
    struct model_config model;
    struct parallel plan;
    struct engine e;
    trireme_error error = {0};
    const char *overrides[] = {"training.seq_len=16", "training.global_batch_size=4", "parallelism.ranks=4",
                               "parallelism.context_parallel_degree=2"};
    const struct program_spec specs[] = {
        {.kind = PROGRAM_TRAIN, .batch = {.sequences = 3, .seq_len = 8, .microbatches = 2}},
        {.kind = PROGRAM_EVALUATE}};
    small_config(&model, small_models[0].json);
    assert_ok(config_load(&config, NULL, overrides, ARRAY_LENGTH(overrides), &error), &error);
    assert_ok(parallel_resolve(&plan, &config, &model, &error), &error);
    assert_ok(engine_compile(&e, &config, &model, &plan, (struct program_specs){.item = specs, .count = 1}, 3, &error),
              &error);
    const struct compiled *train = engine_compiled(&e, PROGRAM_TRAIN);
    assert_int_equal(engine_first_sequence(&e, train), 6);
    assert_int_equal(engine_tokens(&e, train), 2 * 6 * 8);
    assert_int_equal(engine_rows(&e, train).part, 1);
    assert_int_equal(engine_rows(&e, train).places.rows, 4);
    assert_true(engine_flops(&e, train) == model_flops(&model, 96, 8));
    engine_release(&e);
    // Without a batch of its own it has the plan's.
    assert_ok(
        engine_compile(&e, &config, &model, &plan, (struct program_specs){.item = specs + 1, .count = 1}, 3, &error),
        &error);
    const struct compiled *evaluate = engine_compiled(&e, PROGRAM_EVALUATE);
    assert_int_equal(engine_first_sequence(&e, evaluate), 2);
    assert_int_equal(engine_tokens(&e, evaluate), 4 * 16);
    assert_int_equal(engine_rows(&e, evaluate).places.rows, 8);
    engine_release(&e);
    parallel_release(&plan);
    config_release(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_weights_whatever_was_there),
                                       cmocka_unit_test(nothing_is_made_once_asked_to_stop),
                                       cmocka_unit_test(a_rank_takes_the_sequences_of_the_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
