// What processes need besides arenas: for saving only where something is saved.
#include "support/checkpoint.h"

#include "ckpt/save_plan.h"
#include "engine/engine.h"
#include "engine/process_memory.h"

static const char *const OVERRIDES[] = {
    "model.family=llama",  "model.num_hidden_layers=2", "model.hidden_size=32",        "model.num_attention_heads=2",
    "model.vocab_size=64", "training.seq_len=16",       "training.global_batch_size=2"};

static void for_saving_where_something_is_saved(void **state) {
    enum { RANKS = 2 };
    const size_t arenas = (size_t)RANKS << 30;
    size_t bytes[2], stacks[2];
    (void)state;
    for (int saves = 0; saves < 2; saves++) {
        struct config config;
        struct model_config model;
        struct engine engine;
        struct program_specs specs = TRAIN_ALONE;
        trireme_error error = {0};
        specs.saves = saves;
        assert_ok(config_load(&config, NULL, OVERRIDES, ARRAY_LENGTH(OVERRIDES), &error), &error);
        assert_ok(model_config_resolve(&model, &config, NO_TOKENS, &error), &error);
        assert_ok(engine_compile(&engine, &config, &model, NULL, specs, 0, &error), &error);
        bytes[saves] = process_memory(engine.stages, RANKS, arenas);
        stacks[saves] = process_stacks(engine.stages, RANKS);
        if (saves) // a rank has the buffer, and blocks that it writes and is given
            assert_true(bytes[1] - bytes[0] >=
                        RANKS * (((size_t)config.checkpoint.buffer_mib << 20) + 3 * (size_t)SAVE_BLOCK_BYTES));
        engine_release(&engine);
        config_release(&config);
    }
    assert_true(stacks[1] > stacks[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(for_saving_where_something_is_saved)};
    return cmocka_run_group_tests_name("process_memory", tests, NULL, NULL);
}
