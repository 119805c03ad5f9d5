// What the tests of models share: configurations as in config.json.
#ifndef TESTS_UNIT_TEST_MODEL_H
#define TESTS_UNIT_TEST_MODEL_H

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

#endif
