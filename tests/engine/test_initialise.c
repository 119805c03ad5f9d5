// Fresh weights, and that a request to stop need not wait for them.
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_weights_whatever_was_there),
                                       cmocka_unit_test(nothing_is_made_once_asked_to_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
