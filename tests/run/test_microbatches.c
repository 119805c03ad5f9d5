// In f64 the same global batch gives the same losses, gradients and parameters however it is divided into microbatches,
// whatever backward recomputes, and whether documents are packed or stand alone.
#include "support/models.h"

enum { SEQUENCES = 8, SEQ_LEN = 10, STEPS = 3 };

struct outcome {
    double loss[STEPS], grad_norm[STEPS], count;
    double *gradients, *parameters; // after the last step
};

// AdamW divides by the root of v: where a gradient is zero except for rounding, a small eps would show only the
// rounding.
static const char *const COMMON[] = {
    "training.dtype=f64",    "training.kernels=reference", "training.seq_len=10", "training.global_batch_size=8",
    "training.max_norm=0.5", "optimizer.eps=1e-4",         "optimizer.lr=1e-2",
};

static struct outcome train(struct engine *e, struct config *config, const struct model_config *model,
                            const struct batch *batch, const char *first, const char *second) {
    const char *overrides[ARRAY_LENGTH(COMMON) + 3];
    memcpy(overrides, COMMON, sizeof COMMON);
    overrides[ARRAY_LENGTH(COMMON)] = first;
    overrides[ARRAY_LENGTH(COMMON) + 1] = second;
    overrides[ARRAY_LENGTH(COMMON) + 2] = NULL;
    engine_open(e, config, model, overrides);
    engine_scatter(e, 5);
    struct outcome out = {0};
    for (int step = 0; step < STEPS; step++) {
        struct engine_result r = batch_train(e, batch, config->optimizer.lr);
        assert_true(r.finite);
        out.loss[step] = r.loss;
        out.grad_norm[step] = r.grad_norm;
        out.count = r.count;
    }
    out.gradients = engine_copy(e, engine_gradient);
    out.parameters = engine_copy(e, engine_parameter);
    return out;
}

static void release(struct engine *e, struct config *config, struct outcome *out) {
    free(out->gradients);
    free(out->parameters);
    engine_release(e);
    config_release(config);
}

static void compare(const struct engine *e, const struct outcome *a, const struct outcome *b, double rms, double lr,
                    double tolerance) {
    assert_true(a->count == b->count);
    assert_close("loss", a->loss, b->loss, STEPS, tolerance, 0);
    assert_close("grad_norm", a->grad_norm, b->grad_norm, STEPS, tolerance, 0);
    assert_all_close(e, "gradient", a->gradients, b->gradients, tolerance, rms);
    assert_all_close(e, "value", a->parameters, b->parameters, tolerance, lr);
}

static void check_against_whole(enum small small, const char *const *variant, size_t variants, double tolerance) {
    struct model_config model;
    struct config config, config2;
    struct engine whole, other;
    small_config(&model, small_models[small].json);
    struct batch batch = batch_create(SEQUENCES, SEQ_LEN, model.vocab_size, 17);
    struct outcome expected = train(&whole, &config, &model, &batch, "training.micro_batch_size=8", "training.seed=0");
    double targets = 0;
    for (int64_t i = 0; i < SEQUENCES * SEQ_LEN; i++)
        targets += batch.targets[i] >= 0;
    assert_true(expected.count == targets);
    assert_true(expected.loss[STEPS - 1] < expected.loss[0]);
    double rms = engine_gradient_rms(&whole);
    for (size_t i = 0; i < variants; i++) {
        struct outcome found = train(&other, &config2, &model, &batch, variant[2 * i], variant[2 * i + 1]);
        compare(&whole, &found, &expected, rms, config.optimizer.lr, tolerance);
        release(&other, &config2, &found);
    }
    release(&whole, &config, &expected);
    batch_release(&batch);
}

static void test_microbatches(void **state) {
    static const char *const VARIANTS[] = {
        "training.micro_batch_size=4", "training.seed=0",
        "training.micro_batch_size=2", "training.seed=0",
        "training.micro_batch_size=1", "training.seed=0",
        "training.micro_batch_size=1", "activation_checkpoint.mode=full",
        "training.micro_batch_size=8", "training.logits_rows=33",
        "training.micro_batch_size=2", "training.logits_rows=7",
    };
    check_against_whole((enum small)(intptr_t)*state, VARIANTS, ARRAY_LENGTH(VARIANTS) / 2, 1e-12);
}

// Recomputed values come from the same kernels and the same values: the same bits.
static void test_recompute(void **state) {
    static const char *const VARIANTS[] = {
        "training.micro_batch_size=8",         "activation_checkpoint.mode=selective",
        "training.micro_batch_size=8",         "activation_checkpoint.mode=full",
        "activation_checkpoint.full_layers=1", "activation_checkpoint.selective_layers=1",
    };
    check_against_whole((enum small)(intptr_t)*state, VARIANTS, ARRAY_LENGTH(VARIANTS) / 2, 0);
}

static size_t instructions(const struct engine *e) {
    size_t count = 0;
    for (size_t i = 0; i < engine_compiled(e, PROGRAM_TRAIN)->program.templates.count; i++)
        count += engine_compiled(e, PROGRAM_TRAIN)->program.templates.item[i].instructions.count;
    return count;
}

// Modes of recomputation do change the program: else test_recompute would compare a program with itself.
static void test_recompute_is_another_program(void **state) {
    (void)state;
    struct model_config model;
    static const char *const MODES[] = {"activation_checkpoint.mode=none", "activation_checkpoint.mode=selective",
                                        "activation_checkpoint.mode=full"};
    size_t before = 0;
    small_config(&model, small_models[SMALL_LLAMA].json);
    for (size_t i = 0; i < ARRAY_LENGTH(MODES); i++) {
        struct engine e;
        struct config config;
        engine_open(&e, &config, &model,
                    (const char *const[]){"training.dtype=f64", "training.seq_len=10", MODES[i], NULL});
        assert_true(instructions(&e) > before);
        before = instructions(&e);
        engine_release(&e);
        config_release(&config);
    }
}

// One sequence of a long and a short document, and both documents alone, followed by masked tokens.
static void test_packed(void **state) {
    enum { LONG = 7, SHORT = 3 };
    struct model_config model;
    struct config config[2];
    struct engine e[2];
    struct outcome out[2];
    small_config(&model, small_models[(intptr_t)*state].json);
    for (int alone = 0; alone < 2; alone++) {
        const char *overrides[] = {"training.dtype=f64",
                                   "training.kernels=reference",
                                   alone ? "training.seq_len=7" : "training.seq_len=10",
                                   alone ? "training.global_batch_size=2" : "training.global_batch_size=1",
                                   "optimizer.eps=1e-4",
                                   NULL};
        engine_open(&e[alone], &config[alone], &model, overrides);
        engine_scatter(&e[alone], 5);
        struct batch batch = batch_create(alone ? 2 : 1, alone ? LONG : LONG + SHORT, model.vocab_size, 23);
        for (int64_t i = 0; i < batch.sequences * batch.seq_len; i++) {
            // Rows 0 to 6 are the long document, the next three the short one, in both layouts.
            bool second = i >= LONG, pad = i >= LONG + SHORT;
            batch.tokens[i] = (int32_t)(7 * i % model.vocab_size);
            batch.targets[i] = pad ? -1 : (int32_t)((11 * i + 3) % model.vocab_size);
            batch.starts[i] = second && !alone ? LONG : 0;
            batch.positions[i] = (int32_t)(second ? i - LONG : i);
        }
        struct engine_result r = batch_train(&e[alone], &batch, 1e-2);
        out[alone] = (struct outcome){.loss = {r.loss},
                                      .grad_norm = {r.grad_norm},
                                      .count = r.count,
                                      .gradients = engine_copy(&e[alone], engine_gradient),
                                      .parameters = engine_copy(&e[alone], engine_parameter)};
        batch_release(&batch);
    }
    assert_true(out[0].count == LONG + SHORT);
    compare(&e[0], &out[0], &out[1], engine_gradient_rms(&e[0]), 1e-2, 1e-12);
    for (int i = 0; i < 2; i++)
        release(&e[i], &config[i], &out[i]);
}

int main(void) {
    struct CMUnitTest tests[3 * SMALL_COUNT + 1];
    for (int i = 0; i < SMALL_COUNT; i++) {
        void *small = (void *)(intptr_t)i;
        tests[3 * i] = (struct CMUnitTest){small_models[i].name, test_microbatches, NULL, NULL, small};
        tests[3 * i + 1] = (struct CMUnitTest){"recomputed", test_recompute, NULL, NULL, small};
        tests[3 * i + 2] = (struct CMUnitTest){"packed", test_packed, NULL, NULL, small};
    }
    tests[3 * SMALL_COUNT] =
        (struct CMUnitTest){"programs differ", test_recompute_is_another_program, NULL, NULL, NULL};
    return cmocka_run_group_tests_name("microbatch", tests, NULL, NULL);
}
