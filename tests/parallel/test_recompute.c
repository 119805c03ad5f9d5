// Recomputing one more layer at a time takes less memory and more operations each time, from those of one mode to those
// of the other.
#include "support/checkpoint.h"

#include "engine/engine.h"

enum { LAYERS = 6 };

struct taken {
    int64_t bytes;
    double flops; // of a microbatch
};

struct subject {
    struct config config;
    struct model_config model;
    struct engine engine;
};

static void subject_create(struct subject *s, const char *const *settings, size_t count, const char *mode,
                           const char *key, int layers, int rank) {
    const char *all[24] = {"model.family=llama",          "model.num_hidden_layers=6",
                           "model.hidden_size=64",        "model.num_attention_heads=4",
                           "model.intermediate_size=160", "model.vocab_size=64",
                           "training.seq_len=64",         "training.global_batch_size=16",
                           "training.micro_batch_size=2", "training.threads=1"};
    char own[2][60];
    size_t n = 10;
    for (size_t i = 0; i < count; i++)
        all[n++] = settings[i];
    snprintf(own[0], sizeof own[0], "activation_checkpoint.mode=%s", mode);
    all[n++] = own[0];
    snprintf(own[1], sizeof own[1], "activation_checkpoint.%s=%d", key, layers);
    if (layers)
        all[n++] = own[1];
    trireme_error error = {0};
    assert_ok(config_load(&s->config, NULL, all, n, &error), &error);
    assert_ok(model_config_resolve(&s->model, &s->config, NO_TOKENS, &error), &error);
    assert_ok(engine_compile(&s->engine, &s->config, &s->model, NULL, TRAIN_AND_EVALUATE, rank, &error), &error);
}

static void subject_release(struct subject *s) {
    engine_release(&s->engine);
    config_release(&s->config);
}

static struct taken compile(const char *const *settings, size_t count, const char *mode, const char *key, int layers) {
    struct subject s;
    subject_create(&s, settings, count, mode, key, layers, 0);
    const struct program *p = &engine_compiled(&s.engine, PROGRAM_TRAIN)->program;
    struct taken taken = {.bytes = p->arena[SPACE_DEVICE].step_bytes};
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            taken.flops += instruction_flops(p, s.engine.ops, &p->templates.item[t].instructions.item[i]);
    subject_release(&s);
    return taken;
}

// The very last layer is the exception: backward recomputes it at once, while everything that is kept is still there.
static void check(const char *const *settings, size_t count, int stages) {
    static const char *const MODES[][3] = {{"none", "full_layers", "full"},
                                           {"selective", "full_layers", "full"},
                                           {"none", "selective_layers", "selective"}};
    for (size_t m = 0; m < ARRAY_LENGTH(MODES); m++) {
        const int all = LAYERS / stages;
        bool selective = m == 2;
        struct taken pure = compile(settings, count, MODES[m][2], "", 0), before = {0};
        for (int layers = 0; layers <= all; layers++) {
            struct taken now = compile(settings, count, MODES[m][0], MODES[m][1], layers);
            print_message("%d stages, %d of %s beside %s: %lld bytes, %.0f operations\n", stages, layers, MODES[m][1],
                          MODES[m][0], (long long)now.bytes, now.flops);
            // With few layers the share that may be recomputed selectively is less than one layer.
            if (layers > 0 && layers < all)
                assert_true(selective ? now.bytes <= before.bytes : now.bytes < before.bytes);
            if (layers > 0)
                assert_true(selective ? now.flops >= before.flops : now.flops > before.flops);
            before = now;
        }
        assert_int_equal(before.bytes, pure.bytes);
        assert_true(before.flops == pure.flops);
    }
}

static void memory_falls_layer_by_layer(void **unused) {
    (void)unused;
    check(NULL, 0, 1);
    check((const char *const[]){"parallelism.pipeline_parallel_degree=2"}, 1, 2);
    check((const char *const[]){"parallelism.pipeline_parallel_degree=2",
                                "parallelism.pipeline_parallel_schedule=interleaved",
                                "parallelism.pipeline_parallel_chunks=1", "parallelism.tensor_parallel_degree=2",
                                "parallelism.data_parallel_shard_degree=2", "parallelism.zero_stage=3"},
          6, 2);
}

// ---- the norm before the head

static bool makes_norm_again(const char *const *settings, size_t count, const char *mode, int rank) {
    struct subject s;
    subject_create(&s, settings, count, mode, "", 0, rank);
    const struct program *p = &engine_compiled(&s.engine, PROGRAM_TRAIN)->program;
    bool again = false;
    for (size_t i = 0; i < p->buffers.count; i++) {
        const int of = p->buffers.item[i].recomputes;
        const char *name = of == NONE ? "" : p->buffers.item[of].name;
        again |= strcmp(name, "norm") == 0 || strcmp(name, "head.in") == 0;
    }
    subject_release(&s);
    return again;
}

// Recomputing what the head reads only pays where other passes come between its forward and backward.
static void the_head_takes_what_forward_made(void **unused) {
    (void)unused;
#define TP "parallelism.tensor_parallel_degree=2"
#define PP "parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_schedule="
    static const struct {
        const char *settings[2];
        size_t count;
        int rank;
        bool again;
    } CASES[] = {
        {{""}, 0, 0, false},        {{"training.logits_rows=32"}, 1, 0, false},
        {{TP}, 1, 0, false},        {{TP, "parallelism.sequence_parallel=false"}, 2, 0, false},
        {{PP "1f1b"}, 2, 1, false}, {{PP "zb-h1"}, 2, 1, false},
        {{PP "zb-v"}, 2, 0, false}, {{PP "gpipe"}, 2, 1, true},
    };
    static const char *const MODES[] = {"none", "selective", "full"};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++)
        for (size_t m = 0; m < ARRAY_LENGTH(MODES); m++) {
            print_message("case %zu, %s\n", i, MODES[m]);
            assert_int_equal(makes_norm_again(CASES[i].settings, CASES[i].count, MODES[m], CASES[i].rank),
                             CASES[i].again);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_falls_layer_by_layer),
                                       cmocka_unit_test(the_head_takes_what_forward_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
