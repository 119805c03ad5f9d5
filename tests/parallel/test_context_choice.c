// The way in which ranks attend together where context_parallel_method is auto.
#include "parallel/context_choice.h"
#include "parallel/parallel.h"
#include "support/checkpoint.h"
#include "support/models.h"

enum { SETTINGS_MOST = 6 };

static void choose(struct context_way *out, const char *json, int ranks, int64_t tokens, const char *const more[]) {
    char *own[] = {mem_printf("parallelism.context_parallel_degree=%d", ranks),
                   mem_printf("training.seq_len=%lld", (long long)tokens),
                   mem_strdup("parallelism.context_parallel_method=auto")};
    const char *settings[ARRAY_LENGTH(own) + SETTINGS_MOST];
    size_t count = 0;
    for (; count < ARRAY_LENGTH(own); count++)
        settings[count] = own[count];
    for (size_t i = 0; more && more[i]; i++)
        settings[count++] = more[i];
    struct config config;
    struct model_config model;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, settings, count, &error), &error);
    assert_ok(model_config_parse(&model, json, strlen(json), "a model", &error), &error);
    *out = context_way_of(&config, &model, ranks);
    config_release(&config);
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++)
        free(own[i]);
}

static char *llama(int heads, int kv_heads, int window) {
    return mem_printf(
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"num_hidden_layers\": 2, \"hidden_size\": "
        "%d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"intermediate_size\": 64, "
        "\"vocab_size\": 128, \"max_position_embeddings\": 1048576, \"sliding_window\": %d}",
        window ? "MistralForCausalLM" : "LlamaForCausalLM", window ? "mistral" : "llama", 64 * heads, heads, kv_heads,
        window);
}

static struct context_way way(int heads, int kv_heads, int window, int ranks, int64_t tokens,
                              const char *const more[]) {
    struct context_way out;
    char *json = llama(heads, kv_heads, window);
    choose(&out, json, ranks, tokens, more);
    free(json);
    return out;
}

// Where transfers take longer than all else, the way with the fewest bytes by docs/parallel.md.
static void the_fewest_bytes_where_blocks_are_short(void **unused) {
    (void)unused;
    // As many key-value heads as heads: exchanging takes 8 h (P - 1) / P of n e, a ring 4 h (P - 1) and the gradients.
    struct context_way w = way(8, 8, 0, 4, 64, NULL);
    assert_int_equal(w.name, CONFIG_CONTEXT_PARALLEL_ULYSSES);
    assert_int_equal(w.ulysses, 4);
    // More ranks than heads: as many as there are exchange.
    w = way(4, 4, 0, 16, 64, NULL);
    assert_int_equal(w.name, CONFIG_CONTEXT_PARALLEL_HYBRID);
    assert_int_equal(w.ulysses, 4);
    // One head of eight ranks cannot be exchanged, and keys are as wide as queries: burst sends less than a ring.
    w = way(1, 1, 0, 8, 64, (const char *const[]){"parallelism.context_parallel_layout=zigzag", NULL});
    assert_int_equal(w.name, CONFIG_CONTEXT_PARALLEL_BURST);
}

// Where blocks take longer than transfers, all that matters is that ranks have the same work and nothing waits.
static void balance_where_blocks_are_long(void **unused) {
    (void)unused;
    const struct context_way w = way(7, 1, 0, 4, 1 << 20, NULL); // seven heads do not divide
    assert_int_equal(w.name, CONFIG_CONTEXT_PARALLEL_RING);
    assert_int_equal(w.layout, PLACES_ZIGZAG);
}

static void what_is_set_is_kept(void **unused) {
    (void)unused;
    static const char *const STRIPES[] = {"parallelism.context_parallel_layout=striped",
                                          "parallelism.context_parallel_stripe=4", NULL};
    static const char *const TENSOR[] = {"parallelism.tensor_parallel_degree=8", NULL};
    static const char *const INNER[] = {"parallelism.context_parallel_inner_degree=2", NULL};
    struct context_way w = way(8, 8, 0, 4, 1024, STRIPES);
    assert_int_equal(w.layout, 4);
    assert_true(w.name != CONFIG_CONTEXT_PARALLEL_ULYSSES && w.name != CONFIG_CONTEXT_PARALLEL_GATHER);
    w = way(8, 8, 0, 4, 1024, TENSOR); // a tensor-parallel rank has one head
    assert_int_equal(w.ulysses, 1);
    w = way(8, 8, 0, 4, 1024, INNER);
    assert_true(w.name == CONFIG_CONTEXT_PARALLEL_RING || w.name == CONFIG_CONTEXT_PARALLEL_BURST);
}

// Every way that may be chosen is one that a mesh can have.
static void ways_resolve(void **unused) {
    (void)unused;
    static const int RANKS[] = {2, 3, 4, 6, 8, 12}, HEADS[][2] = {{8, 8}, {8, 2}, {6, 3}, {1, 1}, {7, 7}};
    for (size_t h = 0; h < ARRAY_LENGTH(HEADS); h++)
        for (size_t r = 0; r < ARRAY_LENGTH(RANKS); r++) {
            const char *const settings[] = {mem_printf("parallelism.context_parallel_degree=%d", RANKS[r]),
                                            "parallelism.context_parallel_method=auto", "training.global_batch_size=1",
                                            "training.seq_len=96"};
            char *json = llama(HEADS[h][0], HEADS[h][1], h == 1 ? 24 : 0);
            struct config config;
            struct model_config model;
            struct parallel plan;
            trireme_error error = {0};
            assert_ok(config_load(&config, NULL, settings, ARRAY_LENGTH(settings), &error), &error);
            assert_ok(model_config_parse(&model, json, strlen(json), "a model", &error), &error);
            assert_ok(parallel_resolve(&plan, &config, &model, &error), &error);
            assert_int_equal(mesh_ranks(&plan.mesh), RANKS[r]);
            assert_true(plan.context != CONFIG_CONTEXT_PARALLEL_AUTO);
            parallel_release(&plan);
            config_release(&config);
            free(json);
            free((char *)settings[0]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_fewest_bytes_where_blocks_are_short),
                                       cmocka_unit_test(balance_where_blocks_are_long),
                                       cmocka_unit_test(what_is_set_is_kept), cmocka_unit_test(ways_resolve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
