// Generation with a cache of keys and values chooses the same tokens as computing everything again for each of them.
#include "support/models.h"

#include "base/rng.h"
#include "generate/generator.h"

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

// Where all tokens are about equally likely: of the four of top_k, three make up top_p, and each of these comes equally
// often.
static void test_choices(void **state) {
    enum { TIMES = 600, MOST = 1000, FEW = 20 };
    const char *path = path_in(*state, "model"),
               *overrides[] = {"training.threads=1", "generate.max_new_tokens=21", "generate.temperature=1000",
                               "generate.top_k=4", "generate.top_p=0.7"};
    trireme_error error = {0};
    struct config config;
    struct generator *g = NULL;
    int count[MOST] = {0}, chosen = 0;
    save_model(0, path);
    assert_ok(config_load(&config, NULL, overrides, ARRAY_LENGTH(overrides), &error), &error);
    assert_ok(generator_create(&g, &config, path, NULL, 1, &error), &error);
    assert_ok(generator_feed(g, &(int32_t){1}, 1, &error), &error);
    for (config.generate.seed = 0; config.generate.seed < TIMES; config.generate.seed++) {
        bool end;
        int32_t token = generator_choose(g, &end);
        assert_in_range(token, 0, MOST - 1);
        count[token]++;
    }
    for (int token = 0; token < MOST; token++) {
        chosen += count[token] > 0;
        assert_true(count[token] == 0 || (count[token] > TIMES / 4 && count[token] < TIMES / 5 * 2));
    }
    assert_int_equal(chosen, 3);
    // Each token has a random number of its own: of two equally likely ones not always the same is chosen.
    int best = 0;
    config.generate.top_k = 2;
    config.generate.top_p = 1;
    for (int i = 0; i < FEW; i++) {
        bool end;
        config.generate.temperature = 0;
        int32_t first = generator_choose(g, &end);
        config.generate.temperature = 1e6;
        best += generator_choose(g, &end) == first;
        assert_ok(generator_feed(g, &first, 1, &error), &error);
    }
    assert_in_range(best, 1, FEW - 1);
    generator_free(g);
    config_release(&config);
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT + 1] = {[SMALL_COUNT] = IN_FOLDER(test_choices)};
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_cache, folder_create, folder_remove, NULL};
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
