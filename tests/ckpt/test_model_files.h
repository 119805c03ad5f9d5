// For the tests of model files: a model in memory, and a directory for its files.
#ifndef TESTS_CKPT_TEST_MODEL_FILES_H
#define TESTS_CKPT_TEST_MODEL_FILES_H

#include "base/rng.h"
#include "ckpt/model_files.h"
#include "ckpt/safetensors.h"
#include "support/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define GPT2                                                                                                    \
    "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":16,\"n_positions\":8,\"vocab_size\":9,\"n_" \
    "inner\":24"
// Matrices of this model are larger than what is read at once.
#define LARGE                                                                                                       \
    "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":2,\"n_embd\":128,\"n_positions\":8,\"vocab_size\":2100,\"n_" \
    "inner\":8200}"
#define LLAMA                                                                                        \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":16,\"intermediate_size\":24," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":70,\"max_position_embeddings\":32"
#define QWEN2                                                                                        \
    "{\"model_type\":\"qwen2\",\"num_hidden_layers\":1,\"hidden_size\":16,\"intermediate_size\":24," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":64,\"max_position_embeddings\":32"

static inline void assert_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("status %d: %s", status, error->message);
}

static inline void assert_says(trireme_status status, const trireme_error *error, const char *part) {
    if (status == TRIREME_OK)
        fail_msg("accepted, expected a refusal with: %s", part);
    if (!strstr(error->message, part))
        fail_msg("\"%s\" lacks \"%s\"", error->message, part);
}

struct fixture {
    char root[64], path[80];
    struct model_config config;
    struct parameter_table table;
    struct holdings own, own_remainders;
    struct parameter_values values, remainders;
    void **data;
    uint16_t **remainder;
};

static inline size_t parameter_bytes(const struct parameter *p, enum dtype dtype) {
    return (size_t)(p->dim[0] * p->dim[1] * dtype_size(dtype));
}

static inline void **allocate(const struct parameter_table *table, enum dtype dtype) {
    void **data = mem_alloc(table->parameters.count * sizeof *data);
    for (size_t i = 0; i < table->parameters.count; i++) {
        data[i] = mem_alloc(parameter_bytes(&table->parameters.item[i], dtype));
        memset(data[i], 0xa5, parameter_bytes(&table->parameters.item[i], dtype));
    }
    return data;
}

static inline void release_all(const struct parameter_table *table, void **data) {
    for (size_t i = 0; data && i < table->parameters.count; i++)
        free(data[i]);
    free(data);
}

static inline void setup(struct fixture *f, const char *json, enum dtype dtype, bool remainder) {
    *f = (struct fixture){0};
    const char *parent = getenv("TMPDIR");
    snprintf(f->root, sizeof f->root, "%s/trireme-XXXXXX", parent && strlen(parent) < 40 ? parent : "/tmp");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->path, sizeof f->path, "%s/model", f->root);
    trireme_error error = {0};
    assert_ok(model_config_parse(&f->config, json, strlen(json), "config.json", &error), &error);
    parameter_table_create(&f->table, &f->config);
    f->data = allocate(&f->table, dtype);
    f->remainder = remainder ? (uint16_t **)allocate(&f->table, DTYPE_U16) : NULL;
    f->own = holdings_of_whole(&f->table, f->data);
    f->values = (struct parameter_values){dtype, &f->own, 0};
    if (remainder)
        f->own_remainders = holdings_of_whole(&f->table, (void **)f->remainder);
    f->remainders = (struct parameter_values){DTYPE_U16, &f->own_remainders, 0};
}

static inline void teardown(struct fixture *f) {
    release_all(&f->table, f->data);
    release_all(&f->table, (void **)f->remainder);
    holdings_release(&f->own);
    holdings_release(&f->own_remainders);
    parameter_table_release(&f->table);
    char *command = mem_printf("rm -rf '%s'", f->root);
    assert_int_equal(system(command), 0);
    free(command);
}

#endif
