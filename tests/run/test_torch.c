// Loss, every gradient and fifty steps of training against tools/reference, a plain PyTorch implementation, on the same
// weights and batches. Skipped where no Python has PyTorch.
#include "support/models.h"
#include "support/reference.h"
#include "support/sanitized.h"

#include "base/json.h"

#include <math.h>
#include <unistd.h>

enum { SEQUENCES = 8, SEQ_LEN = 40, STEPS = 50 };

// Wider than the small models: in bf16 a gradient that is the sum of few rounded numbers says little.
#define LLAMA_SIZES                                                                                           \
    "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 160, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64, \"vocab_size\": 100, \"rms_norm_eps\": 1e-5, "

static const struct family_model MODELS[] = {
    {"gpt2", "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, "
             "\"n_positions\": 64, \"vocab_size\": 100}"},
    {"llama3",
     "{\"architectures\": [\"LlamaForCausalLM\"], " LLAMA_SIZES
     "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"rope_scaling\": {\"rope_type\": \"llama3\", "
     "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
     "\"original_max_position_embeddings\": 32}}"},
    {"qwen3", "{\"architectures\": [\"Qwen3ForCausalLM\"], " LLAMA_SIZES
              "\"head_dim\": 32, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true}"},
};

static void open_model(struct engine *e, struct config *config, const struct family_model *small, const char *dtype,
                       const char *kernels) {
    struct model_config model;
    small_config(&model, small->json);
    const char *overrides[] = {dtype,
                               kernels,
                               "training.seq_len=40",
                               "training.global_batch_size=8",
                               "training.micro_batch_size=4",
                               "training.steps=50",
                               "optimizer.lr=2e-3",
                               "lr_scheduler.warmup_steps=5",
                               NULL};
    engine_open(e, config, &model, overrides);
}

struct comparison {
    const char *dtype, *kernels;
    double tolerance;
};

static void check_gradients(const char *folder, const struct family_model *small, const struct comparison *c) {
    struct config config;
    struct engine e;
    char *dtype = mem_printf("training.dtype=%s", c->dtype), *kernels = mem_printf("training.kernels=%s", c->kernels);
    open_model(&e, &config, small, dtype, kernels);
    free(dtype);
    free(kernels);
    engine_scatter(&e, 32);
    const char *model = path_in(folder, c->dtype);
    char *name = mem_printf("gradients_%s.safetensors", c->dtype);
    const char *out = path_in(folder, name);
    free(name);
    struct batch batch = batch_create(SEQUENCES, SEQ_LEN, e.model->vocab_size, 37);
    if (access(out, F_OK) != 0) { // the same for all kernels
        engine_save(&e, model);
        save_batches(folder, &batch, 1);
        reference_run("grads --model '%s' --batch '%s' --out '%s' --dtype %s", model,
                      path_in(folder, "batch.safetensors"), out, c->dtype);
    }
    struct engine_result r = batch_train(&e, &batch, 0);
    assert_true(r.finite);
    compare_gradients(&e, &r, out, c->tolerance);
    batch_release(&batch);
    engine_release(&e);
    config_release(&config);
}

static void check_training(const char *folder, const struct family_model *small, const char *optimizer) {
    trireme_error error = {0};
    struct config config;
    struct engine e;
    open_model(&e, &config, small, "training.dtype=f32", optimizer);
    const char *model = path_in(folder, optimizer), *out = path_in(folder, "log.json");
    engine_save(&e, model);
    struct batch batch[STEPS];
    for (int i = 0; i < STEPS; i++) // few batches, many times: there is something to learn
        batch[i] = batch_create(SEQUENCES, SEQ_LEN, e.model->vocab_size, (uint64_t)(41 + i % 4));
    save_batches(folder, batch, STEPS);
    reference_run("train --model '%s' --batch '%s' --out '%s' training.steps=50 optimizer.lr=2e-3 "
                  "lr_scheduler.warmup_steps=5 %s",
                  model, path_in(folder, "batch.safetensors"), out, optimizer);
    json_t *log;
    assert_ok(json_parse_file(out, 1000000, &log, &error), &error);
    double first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        double lr = learning_rate(&config, i + 1);
        struct engine_result r = batch_train(&e, &batch[i], lr);
        double loss = json_number_value(json_array_get(json_object_get(log, "loss"), (size_t)i));
        double norm = json_number_value(json_array_get(json_object_get(log, "grad_norm"), (size_t)i));
        double their_lr = json_number_value(json_array_get(json_object_get(log, "lr"), (size_t)i));
        if (!(fabs(r.loss - loss) <= 1e-4) || !(fabs(r.grad_norm - norm) <= 1e-3 * norm) ||
            !(fabs(lr - their_lr) <= 1e-12 * lr))
            fail_msg("step %d: loss %.8f and %.8f, gradient norm %.8g and %.8g, learning rate %.12g and %.12g", i + 1,
                     r.loss, loss, r.grad_norm, norm, lr, their_lr);
        first = i == 0 ? r.loss : first;
        last = r.loss;
        batch_release(&batch[i]);
    }
    assert_true(last < first - 0.1);
    json_decref(log);
    engine_release(&e);
    config_release(&config);
}

static const enum small OTHERS[] = {SMALL_GPT2_PLAIN, SMALL_LLAMA_BIAS, SMALL_MISTRAL,  SMALL_QWEN2,
                                    SMALL_WINDOWS,    SMALL_GLA,        SMALL_GLA_MIXED};
static size_t current; // of MODELS, then of OTHERS; cmocka's state is the folder

static void test_model(void **state) {
    const struct family_model *small = &MODELS[current++];
    if (SANITIZED && current > 1) // most of the time is PyTorch's
        skip();
    static const struct comparison COMPARISONS[] = {
        {"f32", "fast", 1e-5}, {"bf16", "fast", 2e-2}, {"bf16", "reference", 2e-2}};
    for (size_t i = 0; i < ARRAY_LENGTH(COMPARISONS); i++)
        check_gradients(*state, small, &COMPARISONS[i]);
    check_training(*state, small, "optimizer.name=adamw");
    check_training(*state, small, "optimizer.name=muon");
}

static void test_other(void **state) {
    static const struct comparison F32 = {"f32", "fast", 1e-5};
    if (SANITIZED)
        skip();
    check_gradients(*state, &small_models[OTHERS[current++ - ARRAY_LENGTH(MODELS)]], &F32);
}

int main(void) {
    const char *python = find_python("torch numpy");
    if (!python) {
        puts("skipped: no python3 has PyTorch (Debian: python3-torch)");
        return 77;
    }
    if (!reference_start(python, TRIREME_SOURCE)) {
        puts("python3 cannot be started");
        return 1;
    }
    struct CMUnitTest tests[ARRAY_LENGTH(MODELS) + ARRAY_LENGTH(OTHERS)];
    for (size_t i = 0; i < ARRAY_LENGTH(tests); i++) {
        size_t other = i - ARRAY_LENGTH(MODELS);
        tests[i] =
            i < ARRAY_LENGTH(MODELS)
                ? (struct CMUnitTest){MODELS[i].name, test_model, folder_create, folder_remove, NULL}
                : (struct CMUnitTest){small_models[OTHERS[other]].name, test_other, folder_create, folder_remove, NULL};
    }
    int failed = cmocka_run_group_tests_name("torch", tests, NULL, NULL);
    return reference_end() ? failed : 1;
}
