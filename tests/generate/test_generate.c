// Generation with a cache of keys and values chooses the same tokens as computing everything again for each of them,
// and several texts side by side the same as each alone.
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

static struct generator *open_generator(const char *path, struct config *config, int64_t texts, int64_t context,
                                        const char *const *overrides, size_t count) {
    trireme_error error = {0};
    struct generator *g = NULL;
    assert_ok(config_load(config, NULL, overrides, count, &error), &error);
    assert_ok(generator_create(&g, config, path, NULL, texts, context, &error), &error);
    for (int64_t i = 0; i < texts; i++)
        generator_begin(g, i, 0);
    return g;
}

// Tokens below the 50 that all models have.
static int32_t prompt_token(uint64_t prompt, size_t i) {
    return (int32_t)(rng_philox(1, prompt, i).word[0] % 50);
}

static void add_prompt(struct generator *g, int64_t text, uint64_t prompt, size_t length) {
    trireme_error error = {0};
    int32_t tokens[LONG_PROMPT];
    for (size_t i = 0; i < length; i++)
        tokens[i] = prompt_token(prompt, i);
    assert_ok(generator_add(g, text, tokens, length, &error), &error);
}

// Chooses `count` tokens of each text.
static void continue_all(struct generator *g, int64_t texts, int count, int32_t out[][NEW_TOKENS]) {
    trireme_error error = {0};
    for (int i = 0; i < count; i++) {
        assert_ok(generator_run(g, &error), &error);
        for (int64_t text = 0; text < texts; text++) {
            bool end;
            out[text][i] = generator_choose(g, text, &end);
            assert_ok(generator_add(g, text, &out[text][i], 1, &error), &error);
        }
    }
}

static void generate(const char *path, size_t prompt, const char *cache, const char *choice, const char *context,
                     int32_t out[1][NEW_TOKENS]) {
    struct config config;
    const char *overrides[] = {"training.threads=1", cache, choice, context, "generate.seed=5", "generate.top_k=20"};
    struct generator *g = open_generator(path, &config, 1, (int64_t)prompt + NEW_TOKENS, overrides, 6);
    add_prompt(g, 0, 2, prompt);
    continue_all(g, 1, NEW_TOKENS, out);
    generator_free(g);
    config_release(&config);
}

static void check_same(const char *path, size_t prompt, const char *choice, const char *context) {
    int32_t cached[1][NEW_TOKENS], again[1][NEW_TOKENS];
    generate(path, prompt, "generate.cache=true", choice, context, cached);
    generate(path, prompt, "generate.cache=false", choice, context, again);
    for (int i = 0; i < NEW_TOKENS; i++)
        if (cached[0][i] != again[0][i])
            fail_msg("%zu tokens of prompt, %s, %s: token %d is %d with the cache and %d without", prompt, choice,
                     context, i, cached[0][i], again[0][i]);
}

static enum small current;

static void test_cache(void **state) {
    const char *path = path_in(*state, "model");
    save_model(current++, path);
    static const size_t PROMPTS[] = {SHORT_PROMPT, CHUNK_PROMPT, LONG_PROMPT};
    for (size_t i = 0; i < ARRAY_LENGTH(PROMPTS); i++) {
        check_same(path, PROMPTS[i], "generate.temperature=0", "generate.context_length=0");
        check_same(path, PROMPTS[i], "generate.temperature=1", "generate.context_length=20");
    }
}

// Texts that are made side by side are those that are made alone: whatever lengths their prompts have, and when one of
// them no longer sees all of itself.
static void test_side_by_side(void **state) {
    enum { TEXTS = 3 };
    static const size_t PROMPT[TEXTS] = {30, 1, 9};
    static const enum small MODELS[] = {SMALL_GPT2, SMALL_LLAMA, SMALL_GEMMA3, SMALL_GLA_MIXED};
    static const char *const CACHE[] = {"generate.cache=true", "generate.cache=false"};
    for (size_t m = 0; m < 2 * ARRAY_LENGTH(MODELS); m++) {
        char *path = mem_printf("%s/%zu", (const char *)*state, m);
        const char *overrides[] = {"training.threads=1", "training.kernels=reference", "generate.context_length=40",
                                   CACHE[m % 2]};
        struct config config;
        int32_t together[TEXTS][NEW_TOKENS], alone[1][NEW_TOKENS];
        save_model(MODELS[m / 2], path);
        struct generator *g = open_generator(path, &config, TEXTS, 1000, overrides, ARRAY_LENGTH(overrides));
        for (int text = 0; text < TEXTS; text++) {
            generator_begin(g, text, text);
            add_prompt(g, text, (uint64_t)text, PROMPT[text]);
        }
        continue_all(g, TEXTS, NEW_TOKENS, together);
        assert_true(generator_forgotten(g, 0) > 0 && generator_forgotten(g, 1) == 0);
        generator_free(g);
        config_release(&config);
        for (int text = 0; text < TEXTS; text++) {
            g = open_generator(path, &config, 1, 1000, overrides, ARRAY_LENGTH(overrides));
            generator_begin(g, 0, text);
            add_prompt(g, 0, (uint64_t)text, PROMPT[text]);
            continue_all(g, 1, NEW_TOKENS, alone);
            assert_memory_equal(alone[0], together[text], sizeof alone[0]);
            generator_free(g);
            config_release(&config);
        }
        free(path);
    }
}

// A text that sees all it can goes on as one that begins with the part of it that is left.
static void test_slide(void **state) {
    enum { CONTEXT = 12, LEFT = (CONTEXT - 1) / 2 };
    const char *path = path_in(*state, "model"),
               *overrides[] = {"training.threads=1", "training.kernels=reference", "generate.context_length=12",
                               "generate.temperature=0"};
    trireme_error error = {0};
    struct config config;
    int32_t long_text[1][NEW_TOKENS], short_text[1][NEW_TOKENS];
    save_model(SMALL_LLAMA, path);
    // Of a prompt that is too long the last part counts.
    struct generator *g = open_generator(path, &config, 2, 1000, overrides, ARRAY_LENGTH(overrides));
    int32_t tokens[LONG_PROMPT];
    for (size_t i = 0; i < LONG_PROMPT; i++)
        tokens[i] = prompt_token(7, i);
    assert_ok(generator_add(g, 0, tokens, LONG_PROMPT, &error), &error);
    assert_int_equal(generator_forgotten(g, 0), LONG_PROMPT - CONTEXT);
    assert_ok(generator_add(g, 1, tokens + LONG_PROMPT - CONTEXT, CONTEXT, &error), &error);
    int32_t both[2][NEW_TOKENS];
    continue_all(g, 2, NEW_TOKENS, both);
    assert_memory_equal(both[0], both[1], sizeof both[0]);
    generator_free(g);
    config_release(&config);
    // One more token makes it begin anew.
    g = open_generator(path, &config, 1, 1000, overrides, ARRAY_LENGTH(overrides));
    assert_ok(generator_add(g, 0, tokens, CONTEXT, &error), &error);
    assert_ok(generator_run(g, &error), &error);
    assert_int_equal(generator_forgotten(g, 0), 0);
    assert_ok(generator_add(g, 0, tokens + CONTEXT, 1, &error), &error);
    assert_int_equal(generator_forgotten(g, 0), CONTEXT - LEFT);
    continue_all(g, 1, LEFT, long_text);
    generator_free(g);
    config_release(&config);
    g = open_generator(path, &config, 1, 1000, overrides, ARRAY_LENGTH(overrides));
    assert_ok(generator_add(g, 0, tokens + CONTEXT - LEFT, LEFT + 1, &error), &error);
    continue_all(g, 1, LEFT, short_text);
    assert_memory_equal(long_text[0], short_text[0], LEFT * sizeof short_text[0][0]);
    generator_free(g);
    config_release(&config);
}

// Where all tokens are about equally likely: of the four of top_k, three make up top_p, and each of these comes equally
// often.
static void test_choices(void **state) {
    enum { TIMES = 600, MOST = 1000, FEW = 20 };
    const char *path = path_in(*state, "model"), *overrides[] = {"training.threads=1", "generate.temperature=1000",
                                                                 "generate.top_k=4", "generate.top_p=0.7"};
    trireme_error error = {0};
    struct config config;
    int count[MOST] = {0}, chosen = 0;
    save_model(0, path);
    struct generator *g = open_generator(path, &config, 1, FEW + 1, overrides, ARRAY_LENGTH(overrides));
    assert_ok(generator_add(g, 0, &(int32_t){1}, 1, &error), &error);
    assert_ok(generator_run(g, &error), &error);
    for (config.generate.seed = 0; config.generate.seed < TIMES; config.generate.seed++) {
        bool end;
        int32_t token = generator_choose(g, 0, &end);
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
        int32_t first = generator_choose(g, 0, &end);
        config.generate.temperature = 1e6;
        best += generator_choose(g, 0, &end) == first;
        assert_ok(generator_add(g, 0, &first, 1, &error), &error);
        assert_ok(generator_run(g, &error), &error);
    }
    assert_in_range(best, 1, FEW - 1);
    generator_free(g);
    config_release(&config);
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT + 3] = {
        [SMALL_COUNT] = IN_FOLDER(test_choices), IN_FOLDER(test_side_by_side), IN_FOLDER(test_slide)};
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_cache, folder_create, folder_remove, NULL};
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
