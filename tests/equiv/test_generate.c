// Generation with a cache of keys and values chooses the same tokens as computing everything again for each of them.
#include "support/models.h"

#include "base/rng.h"
#include "train/generator.h"

enum { NEW_TOKENS = 24, LONG_PROMPT = 100, SHORT_PROMPT = 1, CHUNK_PROMPT = 64 };

static void save_model(enum small small, const char *path) {
    struct model_config model;
    struct config config;
    struct engine e;
    small_config(&model, small_models[small].json);
    engine_open(&e, &config, &model, (const char *const[]){"training.seq_len=8", "training.global_batch_size=1", NULL});
    engine_scatter(&e, 9);
    engine_save(&e, path);
    engine_release(&e);
    config_release(&config);
}

static void generate(const char *path, size_t prompt, const char *cache, const char *choice, int32_t out[NEW_TOKENS]) {
    trireme_error error = {0};
    struct config config;
    struct generator *g = NULL;
    struct model_config model;
    const char *overrides[] = {"training.threads=1", "generate.max_new_tokens=24", cache, choice,
                               "generate.seed=5",    "generate.top_k=20"};
    assert_ok(config_load(&config, NULL, overrides, ARRAY_LENGTH(overrides), &error), &error);
    assert_ok(model_config_read(&model, path, &error), &error);
    assert_ok(generator_create(&g, &config, path, NULL, prompt, &error), &error);
    int32_t tokens[LONG_PROMPT];
    for (size_t i = 0; i < prompt; i++)
        tokens[i] = (int32_t)(rng_philox(1, 2, i).word[0] % (uint32_t)model.vocab_size);
    assert_ok(generator_feed(g, tokens, prompt, &error), &error);
    for (int i = 0; i < NEW_TOKENS; i++) {
        bool end;
        out[i] = generator_choose(g, &end);
        if (i + 1 < NEW_TOKENS)
            assert_ok(generator_feed(g, &out[i], 1, &error), &error);
    }
    generator_free(g);
    config_release(&config);
}

static void check_same(const char *path, size_t prompt, const char *choice) {
    int32_t cached[NEW_TOKENS], again[NEW_TOKENS];
    generate(path, prompt, "generate.cache=true", choice, cached);
    generate(path, prompt, "generate.cache=false", choice, again);
    for (int i = 0; i < NEW_TOKENS; i++)
        if (cached[i] != again[i])
            fail_msg("%zu tokens of prompt, %s: token %d is %d with the cache and %d without", prompt, choice, i,
                     cached[i], again[i]);
}

static enum small current;

static void test_cache(void **state) {
    const char *path = path_in(*state, "model");
    save_model(current++, path);
    static const size_t PROMPTS[] = {SHORT_PROMPT, CHUNK_PROMPT, LONG_PROMPT};
    for (size_t i = 0; i < ARRAY_LENGTH(PROMPTS); i++) {
        check_same(path, PROMPTS[i], "generate.temperature=0");
        check_same(path, PROMPTS[i], "generate.temperature=1");
    }
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT];
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_cache, folder_create, folder_remove, NULL};
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
