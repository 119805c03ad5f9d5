// What the tests of models share: configurations as in config.json.
#ifndef TESTS_MODEL_TEST_MODEL_H
#define TESTS_MODEL_TEST_MODEL_H

#include "base/text.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SHAPE                                                                                        \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"vocab_size\":100,\"max_position_embeddings\":512"
#define LLAMA "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," SHAPE
#define QWEN2 "{\"model_type\":\"qwen2\"," SHAPE
#define GPT2                                                                                                       \
    "{\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_head\":2,\"n_embd\":16,\"n_positions\":8,\"vocab_" \
    "size\":9"

static inline void assert_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("status %d: %s", status, error->message);
}

static inline struct model_config parsed(const char *json) {
    struct model_config c;
    trireme_error error = {0};
    assert_ok(model_config_parse(&c, json, strlen(json), "config.json", &error), &error);
    return c;
}

static inline void assert_says(trireme_status status, const trireme_error *error, const char *part) {
    if (status == TRIREME_OK)
        fail_msg("accepted, expected a refusal with: %s", part);
    if (!strstr(error->message, part))
        fail_msg("\"%s\" lacks \"%s\"", error->message, part);
}

static inline void assert_same(const struct model_config *a, const struct model_config *b) {
    trireme_error error = {0};
    assert_int_equal(a->architecture, b->architecture);
    assert_ok(model_config_compare(a, b, true, &error), &error);
    assert_true(a->padded_vocab_size == b->padded_vocab_size);
    assert_true(a->max_position_embeddings == b->max_position_embeddings);
    assert_true(a->initializer_range == b->initializer_range);
    assert_true(a->bos_token_id == b->bos_token_id && a->eos_token_id == b->eos_token_id);
}

// The model of keys "section.key=value" with '+' for blanks in values, separated by blanks.
static inline trireme_status resolve(struct model_config *out, const char *keys, int64_t tokens, trireme_error *error) {
    const char *overrides[16];
    size_t count = 0;
    char *copy = mem_strdup(keys), *rest = copy;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        overrides[count++] = word;
        for (char *plus = strchr(word, '+'); plus; plus = strchr(plus, '+'))
            *plus = ' ';
    }
    struct config config;
    trireme_status status = config_load_text(&config, "run.yaml", "", 0, overrides, count, error);
    if (status == TRIREME_OK) {
        status = model_config_resolve(out, &config, tokens, error);
        config_release(&config);
    }
    free(copy);
    return status;
}

// Keys as in resolve that are refused, each in words that have `says`.
struct refused_keys {
    const char *keys, *says;
};
static inline void assert_keys_refused(const struct refused_keys *refused, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct model_config c;
        trireme_error error = {0};
        assert_says(resolve(&c, refused[i].keys, 256, &error), &error, refused[i].says);
        assert_int_equal(error.status, TRIREME_ERROR_USAGE);
    }
}

#endif
