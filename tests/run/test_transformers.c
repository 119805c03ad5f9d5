// Loss, logits and every gradient against `transformers`, which opens what is saved here, on the same weights and
// tokens: every family, every scaling of rotary positions, tied and untied. Skipped where no Python has it.
#include "support/models.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/tensors.h"

#include "ckpt/safetensors.h"
#include "generate/generator.h"
#include "model/lora.h"

#include <math.h>

enum { SEQUENCES = 4, SEQ_LEN = 24 };

#define SIZES                                                                                                \
    "\"num_hidden_layers\": 3, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64, \"vocab_size\": 100, "
#define OF(architecture) "{\"architectures\": [\"" architecture "\"], " SIZES
#define ROPE(members) "\"rope_theta\": 500.0, \"rope_scaling\": {" members "}, "
#define TIED "\"tie_word_embeddings\": true}"
#define UNTIED "\"tie_word_embeddings\": false}"
#define FACTORS(a, b, c, d) "[" #a ", " #b ", " #c ", " #d ", " #a ", " #b ", " #c ", " #d "]"

static const struct family_model MODELS[] = {
    {"gpt2", "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, "
             "\"n_positions\": 64, \"vocab_size\": 100}"},
    {"llama, linear", OF("LlamaForCausalLM") ROPE("\"rope_type\": \"linear\", \"factor\": 3.0") UNTIED},
    {"llama, dynamic", OF("LlamaForCausalLM") ROPE("\"rope_type\": \"dynamic\", \"factor\": 3.0") TIED},
    {"llama, llama3",
     OF("LlamaForCausalLM") ROPE("\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                                 "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32") UNTIED},
    {"llama, yarn", OF("LlamaForCausalLM") ROPE("\"rope_type\": \"yarn\", \"factor\": 4.0, "
                                                "\"original_max_position_embeddings\": 16") UNTIED},
    {"llama, yarn with all members",
     OF("LlamaForCausalLM") ROPE("\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 4.0, \"beta_slow\": 0.5, "
                                 "\"mscale\": 1.5, \"mscale_all_dim\": 0.7, \"truncate\": false, "
                                 "\"original_max_position_embeddings\": 32") TIED},
    {"qwen3, yarn with a factor of attention",
     OF("Qwen3ForCausalLM") "\"head_dim\": 16, " ROPE("\"rope_type\": \"yarn\", \"factor\": 2.0, "
                                                      "\"attention_factor\": 1.3, "
                                                      "\"original_max_position_embeddings\": 32") TIED},
    {"mistral", OF("MistralForCausalLM") "\"sliding_window\": 7, " UNTIED},
    {"qwen2", OF("Qwen2ForCausalLM") TIED},
    {"gemma", OF("GemmaForCausalLM") "\"head_dim\": 32, " TIED},
    {"gemma, untied", OF("GemmaForCausalLM") "\"head_dim\": 16, \"hidden_act\": \"gelu\", " UNTIED},
    {"gemma2", OF("Gemma2ForCausalLM") "\"head_dim\": 16, \"query_pre_attn_scalar\": 24, \"sliding_window\": 7, "
                                       "\"attn_logit_softcapping\": 0.7, \"final_logit_softcapping\": 1.5, " TIED},
    {"gemma2, untied, no caps",
     OF("Gemma2ForCausalLM") "\"head_dim\": 32, \"query_pre_attn_scalar\": 32, \"attn_logit_softcapping\": null, "
                             "\"final_logit_softcapping\": null, \"hidden_activation\": \"gelu\", " UNTIED},
    {"gemma3", OF("Gemma3ForCausalLM") "\"head_dim\": 16, \"query_pre_attn_scalar\": 16, \"sliding_window\": 7, "
                                       "\"sliding_window_pattern\": 2, \"rope_local_base_freq\": 100.0, " ROPE(
                                           "\"rope_type\": \"linear\", \"factor\": 8.0") TIED},
    {"gemma3, untied", OF("Gemma3ForCausalLM") "\"head_dim\": 16, \"query_pre_attn_scalar\": 16, "
                                               "\"sliding_window\": 7, \"layer_types\": [\"full_attention\", "
                                               "\"sliding_attention\", \"sliding_attention\"], " UNTIED},
    {"phi3", OF("Phi3ForCausalLM") "\"sliding_window\": 9, " UNTIED},
    {"phi3, long factors", OF("Phi3ForCausalLM") "\"original_max_position_embeddings\": 16, " ROPE(
                               "\"type\": \"longrope\", \"short_factor\": " FACTORS(
                                   1.0, 1.1, 1.2, 1.3) ", \"long_factor\": " FACTORS(2.0, 3.0, 4.0, 5.0)) TIED},
    {"phi3, short factors, half of each head",
     OF("Phi3ForCausalLM") "\"original_max_position_embeddings\": 32, \"partial_rotary_factor\": 0.5, " ROPE(
         "\"type\": \"longrope\", \"short_factor\": [1.0, 1.1, 1.2, 1.3], \"long_factor\": [2.0, 3.0, 4.0, 5.0]")
         UNTIED},
    {"olmo2", OF("Olmo2ForCausalLM") UNTIED},
    {"olmo2, tied", OF("Olmo2ForCausalLM") TIED},
    {"gpt_neox", "{\"architectures\": [\"GPTNeoXForCausalLM\"], \"num_hidden_layers\": 3, \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_attention_heads\": 4, \"max_position_embeddings\": 64, "
                 "\"vocab_size\": 100}"},
    {"gpt_neox, sequential, tied",
     "{\"architectures\": [\"GPTNeoXForCausalLM\"], \"num_hidden_layers\": 3, \"hidden_size\": 64, "
     "\"intermediate_size\": 96, \"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"vocab_size\": 100, "
     "\"use_parallel_residual\": false, \"attention_bias\": false, \"rotary_pct\": 1.0, "
     "\"rotary_emb_base\": 500, \"hidden_act\": \"gelu_new\", " TIED},
    {"stablelm", OF("StableLmForCausalLM") UNTIED},
    {"stablelm with biases, tied",
     OF("StableLmForCausalLM") "\"use_qkv_bias\": true, \"partial_rotary_factor\": 0.5, " TIED},
    {"stablelm, parallel, with norms of heads",
     OF("StableLmForCausalLM") "\"use_qkv_bias\": true, \"use_parallel_residual\": true, \"qk_layernorm\": "
                               "true, " UNTIED},
    {"granite_swa", OF("GraniteSWAForCausalLM") "\"attention_multiplier\": 0.3, \"sliding_window\": 7, " UNTIED},
    {"granite_swa with biases, tied",
     OF("GraniteSWAForCausalLM") "\"head_dim\": 24, \"attention_multiplier\": 0.2, \"attention_bias\": true, "
                                 "\"mlp_bias\": true, "
                                 "\"layer_types\": [\"sliding_attention\", \"full_attention\", "
                                 "\"full_attention\"], " TIED},
    {"smollm3", OF("SmolLM3ForCausalLM") "\"no_rope_layers\": [1, 0, 1], " TIED},
    {"smollm3 with windows and biases",
     OF("SmolLM3ForCausalLM") "\"no_rope_layer_interval\": 2, \"attention_bias\": true, \"mlp_bias\": true, "
                              "\"use_sliding_window\": true, \"sliding_window\": 7, \"layer_types\": "
                              "[\"full_attention\", \"sliding_attention\", \"full_attention\"], " UNTIED},
};
static size_t current;

// Adapters of rank 3 on some of these. What is compared is loss, logits and the adapters' gradients.
static const struct adapted {
    const char *model, *targets;
    bool rslora;
    const char *ranks, *alphas; // rank_pattern, alpha_pattern
} ADAPTED[] = {{"llama, linear", "all-linear", false, NULL, NULL},
               {"mistral", "v_proj,q_proj,layers.1.mlp.down_proj", true, NULL, NULL},
               {"olmo2", "all-linear", false, "{\"layers.1.*proj\": 2, \"(up|q)_proj\": 5}", "{\"up_proj\": 3}"},
               {"gpt2", "all-linear", false, "{\"0.attn.c_proj\": 1}", NULL},
               {"gemma2", "o_proj,up_proj", false, NULL, NULL},
               {"phi3", "qkv_proj,gate_up_proj,down_proj", false, NULL, NULL},
               {"gpt_neox", "all-linear", true, NULL, NULL}};
static size_t current_adapted;

static void open_model(struct engine *e, struct config *config, const struct family_model *small,
                       const struct adapted *adapted, const char *base) {
    static const char *const OVERRIDES[] = {"training.dtype=f32",
                                            "training.seq_len=24",
                                            "training.global_batch_size=4",
                                            "training.micro_batch_size=2",
                                            "generate.temperature=0",
                                            "generate.max_new_tokens=1",
                                            NULL};
    struct model_config model;
    small_config(&model, small->json);
    if (adapted) {
        trireme_error error = {0};
        model.lora = (struct lora){.rank = 3, .alpha = 5, .rslora = adapted->rslora, .base = base};
        const struct lora_choice choice = {
            .targets = adapted->targets,
            .ranks = adapted->ranks ? json_loads(adapted->ranks, 0, NULL) : NULL,
            .alphas = adapted->alphas ? json_loads(adapted->alphas, 0, NULL) : NULL,
        };
        assert_ok(lora_choose(&model, &choice, &error), &error);
        json_decref((json_t *)(uintptr_t)choice.ranks);
        json_decref((json_t *)(uintptr_t)choice.alphas);
    }
    engine_open(e, config, &model, OVERRIDES);
    engine_scatter(e, 32);
}

// The token that generation chooses after each of the first sequence's, with a cache, is that of the greatest logit;
// logits that are nearly equal may be taken for one another.
static void check_choices(const struct config *config, const char *directory, const struct batch *batch,
                          const char *reference) {
    trireme_error error = {0};
    struct safetensors *file;
    struct generator *generator;
    assert_ok(safetensors_open(reference, &file, &error), &error);
    const struct safetensors_tensor *t = safetensors_find(file, "logits");
    assert_true(t && t->dtype == SAFETENSORS_F32 && t->ndim == 3);
    const int64_t vocab = t->shape[2];
    assert_ok(generator_create(&generator, config, directory, NULL, 1, SEQ_LEN, &error), &error);
    generator_begin(generator, 0, 0);
    for (int64_t i = 0; i < SEQ_LEN; i++) {
        const float *logits = (const float *)t->data + i * vocab;
        int64_t best = 0;
        bool end;
        for (int64_t k = 1; k < vocab; k++)
            best = logits[k] > logits[best] ? k : best;
        assert_ok(generator_add(generator, 0, &batch->tokens[i], 1, &error), &error);
        assert_ok(generator_run(generator, &error), &error);
        const int32_t chosen = generator_choose(generator, 0, &end);
        if (chosen != best && !(logits[best] - logits[chosen] < 1e-4))
            fail_msg("after %d tokens: %d with logit %g, and not %d with logit %g", (int)i + 1, chosen,
                     (double)logits[chosen], (int)best, (double)logits[best]);
    }
    generator_free(generator);
    safetensors_close(file);
}

// Saves the engine's model as FOLDER/NAME, and compares what both make of it.
static void compare_engine(const char *folder, const char *name, struct engine *e, const struct config *config) {
    const char *model = path_in(folder, name), *out = path_in(folder, "gradients.safetensors");
    struct batch batch = batch_of_documents(SEQUENCES, SEQ_LEN, e->model->vocab_size, 37);
    engine_save(e, model);
    save_batches(folder, &batch, 1);
    reference_run("grads --model '%s' --batch '%s' --out '%s' --dtype f32 --logits --by transformers", model,
                  path_in(folder, "batch.safetensors"), out);
    struct engine_result r = batch_train(e, &batch, 0);
    assert_true(r.finite);
    compare_gradients(e, &r, out, 1e-5);
    check_choices(config, model, &batch, out);
    batch_release(&batch);
}

static void test_model(void **state) {
    const struct family_model *small = &MODELS[current++];
    struct config config;
    struct engine e;
    if (SANITIZED && current > 1) // most of the time is PyTorch's
        skip();
    open_model(&e, &config, small, NULL, NULL);
    compare_engine(*state, "model", &e, &config);
    engine_release(&e);
    config_release(&config);
}

static void test_adapted(void **state) {
    const struct adapted *adapted = &ADAPTED[current_adapted++];
    const struct family_model *small = MODELS;
    struct config config;
    struct engine e;
    char *base = mem_strdup(path_in(*state, "base"));
    if (SANITIZED && current_adapted > 1)
        skip();
    while (strcmp(small->name, adapted->model) != 0)
        small++;
    open_model(&e, &config, small, NULL, NULL);
    engine_save(&e, base);
    engine_release(&e);
    config_release(&config);
    open_model(&e, &config, small, adapted, base);
    compare_engine(*state, "adapters", &e, &config);
    engine_release(&e);
    config_release(&config);
    free(base);
}

static bool knows(const struct family_model *small) {
    return !strstr(small->json, "GLAForCausalLM");
}

// What transformers, or tools/reference where it does not know the architecture, makes of small models, for
// tests/model/test_losses.c.
static void print_losses(void **state) {
    for (int i = 0; i < SMALL_COUNT; i++) {
        struct config config;
        struct engine e;
        trireme_error error = {0};
        char name[20];
        snprintf(name, sizeof name, "model%d", i);
        open_model(&e, &config, &small_models[i], NULL, NULL);
        const char *model = path_in(*state, name), *out = path_in(*state, "loss.safetensors");
        struct batch batch = batch_of_documents(SEQUENCES, SEQ_LEN, e.model->vocab_size, 37);
        struct safetensors *file;
        engine_save(&e, model);
        save_batches(*state, &batch, 1);
        reference_run("grads --model '%s' --batch '%s' --out '%s' --dtype f64%s", model,
                      path_in(*state, "batch.safetensors"), out, knows(&small_models[i]) ? " --by transformers" : "");
        assert_ok(safetensors_open(out, &file, &error), &error);
        double loss;
        memcpy(&loss, safetensors_find(file, "loss")->data, sizeof loss);
        printf("    %.10f, // %s\n", loss, small_models[i].name);
        safetensors_close(file);
        batch_release(&batch);
        engine_release(&e);
        config_release(&config);
    }
}

// With the argument `losses` it prints these instead; with `peft` it compares adapters alone.
int main(int argc, char **argv) {
    const char *python = find_python("torch numpy transformers");
    if (!python) {
        puts("skipped: no python3 has transformers with PyTorch");
        return 77;
    }
    if (!reference_start(python, TRIREME_SOURCE)) {
        puts("python3 cannot be started");
        return 1;
    }
    const struct CMUnitTest losses[] = {cmocka_unit_test_setup_teardown(print_losses, folder_create, folder_remove)};
    if (argc > 1 && strcmp(argv[1], "losses") == 0)
        return cmocka_run_group_tests(losses, NULL, NULL) + !reference_end();
    struct CMUnitTest tests[ARRAY_LENGTH(MODELS)], adapted[ARRAY_LENGTH(ADAPTED)];
    for (size_t i = 0; i < ARRAY_LENGTH(tests); i++)
        tests[i] = (struct CMUnitTest){MODELS[i].name, test_model, folder_create, folder_remove, NULL};
    for (size_t i = 0; i < ARRAY_LENGTH(adapted); i++)
        adapted[i] = (struct CMUnitTest){ADAPTED[i].model, test_adapted, folder_create, folder_remove, NULL};
    int failed = 0;
    if (argc < 2)
        failed = cmocka_run_group_tests_name("transformers", tests, NULL, NULL);
    if (has_modules(python, "peft"))
        failed += cmocka_run_group_tests_name("peft", adapted, NULL, NULL);
    return reference_end() ? failed : 1;
}
