#include "support/models.h"
#include "support/tensors.h"

#include "base/bf16.h"
#include "base/rng.h"
#include "ckpt/model_files.h"

#include <math.h>

#define LLAMA_SIZES                                                                                          \
    "\"num_hidden_layers\": 2, \"hidden_size\": 16, \"intermediate_size\": 24, \"num_attention_heads\": 4, " \
    "\"max_position_embeddings\": 160, \"vocab_size\": 50, \"rms_norm_eps\": 1e-5, "

const struct family_model small_models[SMALL_COUNT] = {
    [SMALL_GPT2] = {"gpt2", "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 16, \"n_head\": 4, "
                            "\"n_positions\": 160, \"vocab_size\": 50}"},
    [SMALL_GPT2_PLAIN] = {"gpt2 without biases",
                          "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 16, \"n_head\": 2, "
                          "\"n_positions\": 160, \"vocab_size\": 50, \"bias\": false, "
                          "\"activation_function\": \"gelu\"}"},
    [SMALL_LLAMA] = {"llama",
                     "{\"architectures\": [\"LlamaForCausalLM\"], " LLAMA_SIZES
                     "\"num_key_value_heads\": 2, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, "
                     "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}}"},
    [SMALL_LLAMA_BIAS] = {"llama with biases",
                          "{\"architectures\": [\"LlamaForCausalLM\"], " LLAMA_SIZES
                          "\"num_key_value_heads\": 1, \"head_dim\": 8, \"attention_bias\": true, \"mlp_bias\": true, "
                          "\"tie_word_embeddings\": true}"},
    [SMALL_MISTRAL] = {"mistral", "{\"architectures\": [\"MistralForCausalLM\"], " LLAMA_SIZES
                                  "\"num_key_value_heads\": 2, \"sliding_window\": 5, \"tie_word_embeddings\": false}"},
    [SMALL_QWEN2] = {"qwen2", "{\"architectures\": [\"Qwen2ForCausalLM\"], " LLAMA_SIZES
                              "\"num_key_value_heads\": 2, \"tie_word_embeddings\": true}"},
    [SMALL_QWEN3] = {"qwen3", "{\"architectures\": [\"Qwen3ForCausalLM\"], " LLAMA_SIZES
                              "\"num_key_value_heads\": 2, \"head_dim\": 8, \"tie_word_embeddings\": true}"},
    [SMALL_WINDOWS] = {"qwen2 with windows",
                       "{\"architectures\": [\"Qwen2ForCausalLM\"], " LLAMA_SIZES
                       "\"num_key_value_heads\": 2, \"tie_word_embeddings\": false, \"use_sliding_window\": true, "
                       "\"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"full_attention\"]}"},
    [SMALL_GEMMA2] = {"gemma2", "{\"architectures\": [\"Gemma2ForCausalLM\"], " LLAMA_SIZES
                                "\"num_key_value_heads\": 2, \"head_dim\": 8, \"query_pre_attn_scalar\": 12, "
                                "\"sliding_window\": 5, \"attn_logit_softcapping\": 0.7, "
                                "\"final_logit_softcapping\": 1.5}"},
    [SMALL_GEMMA3] = {"gemma3", "{\"architectures\": [\"Gemma3ForCausalLM\"], " LLAMA_SIZES
                                "\"num_key_value_heads\": 2, \"head_dim\": 8, \"query_pre_attn_scalar\": 8, "
                                "\"sliding_window\": 5, \"sliding_window_pattern\": 2, \"rope_local_base_freq\": 100, "
                                "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}, "
                                "\"tie_word_embeddings\": false}"},
    [SMALL_PHI3] = {"phi3", "{\"architectures\": [\"Phi3ForCausalLM\"], \"head_dim\": 8, \"num_hidden_layers\": 2, "
                            "\"hidden_size\": 32, \"intermediate_size\": 24, \"num_attention_heads\": 4, "
                            "\"max_position_embeddings\": 160, \"vocab_size\": 50, \"num_key_value_heads\": 2, "
                            "\"partial_rotary_factor\": 0.5, \"original_max_position_embeddings\": 16, "
                            "\"sliding_window\": 9, \"rope_scaling\": {\"type\": \"longrope\", "
                            "\"short_factor\": [1.0, 1.5], \"long_factor\": [2.0, 4.0]}}"},
    [SMALL_OLMO2] = {"olmo2", "{\"architectures\": [\"Olmo2ForCausalLM\"], " LLAMA_SIZES
                              "\"num_key_value_heads\": 2, \"tie_word_embeddings\": true}"},
    [SMALL_NEOX] = {"gpt_neox", "{\"architectures\": [\"GPTNeoXForCausalLM\"], " LLAMA_SIZES
                                "\"layer_norm_eps\": 1e-5, \"rotary_pct\": 0.5}"},
    [SMALL_STABLELM] = {"stablelm", "{\"architectures\": [\"StableLmForCausalLM\"], " LLAMA_SIZES
                                    "\"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.5, "
                                    "\"use_parallel_residual\": true, \"qk_layernorm\": true}"},
    [SMALL_SINKS] = {"granite_swa", "{\"architectures\": [\"GraniteSWAForCausalLM\"], " LLAMA_SIZES
                                    "\"num_key_value_heads\": 2, \"sliding_window\": 5, "
                                    "\"attention_multiplier\": 0.7, \"tie_word_embeddings\": false}"},
    [SMALL_GLA] = {"gla", "{\"architectures\": [\"GLAForCausalLM\"], \"num_hidden_layers\": 2, \"hidden_size\": 16, "
                          "\"intermediate_size\": 24, \"num_heads\": 4, \"max_position_embeddings\": 160, "
                          "\"vocab_size\": 50, \"norm_eps\": 0.05}"},
    [SMALL_GLA_MIXED] =
        {"gla with attention",
         "{\"architectures\": [\"GLAForCausalLM\"], \"num_hidden_layers\": 2, \"hidden_size\": 24, "
         "\"intermediate_size\": 20, \"num_heads\": 6, \"expand_v\": 0.5, "
         "\"max_position_embeddings\": 160, \"vocab_size\": 50, \"tie_word_embeddings\": true, "
         "\"norm_eps\": 0.05, \"attn\": {\"layers\": [1], \"num_heads\": 4, \"num_kv_heads\": 2, \"window_size\": 5}}"},
    [SMALL_SMOLLM3] = {"smollm3", "{\"architectures\": [\"SmolLM3ForCausalLM\"], " LLAMA_SIZES
                                  "\"num_key_value_heads\": 2, \"no_rope_layers\": [1, 0]}"},
};

void small_config(struct model_config *out, const char *json) {
    trireme_error error = {0};
    assert_ok(model_config_parse(out, json, strlen(json), "small model", &error), &error);
}

void engine_open(struct engine *e, struct config *config, const struct model_config *model,
                 const char *const *overrides) {
    trireme_error error = {0};
    const char *all[32] = {"training.threads=2"};
    size_t count = 1;
    for (; overrides[count - 1]; count++) {
        assert_true(count < ARRAY_LENGTH(all));
        all[count] = overrides[count - 1];
    }
    assert_ok(config_load(config, NULL, all, count, &error), &error);
    assert_ok(engine_create(e, config, model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    engine_initialise(e, (uint64_t)config->training.seed, NULL);
}

double value_at(const void *data, enum dtype dtype, int64_t i) {
    return dtype == DTYPE_F64    ? ((const double *)data)[i]
           : dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)data)[i])
                                 : ((const float *)data)[i];
}

void value_store(void *data, enum dtype dtype, int64_t i, double value) {
    uint16_t remainder;
    if (dtype == DTYPE_F64)
        ((double *)data)[i] = value;
    else if (dtype == DTYPE_BF16)
        master_split((float)value, (uint16_t *)data + i, &remainder);
    else
        ((float *)data)[i] = (float)value;
}

static struct tensor_values values_of(const struct engine *e, int buffer) {
    const struct buffer *b = &engine_compiled(e, PROGRAM_TRAIN)->program.buffers.item[buffer];
    return (struct tensor_values){engine_address(e, buffer, 0), b->dtype, buffer_count(b)};
}

// The number of a parameter of the whole model among those of the one rank, which are in another order where some are
// frozen.
static size_t local_number(const struct engine *e, size_t parameter) {
    size_t i = 0;
    while (e->local.parameters.item[i].whole != (int)parameter)
        i++;
    return i;
}

struct tensor_values engine_parameter(const struct engine *e, size_t parameter) {
    return values_of(e, engine_compiled(e, PROGRAM_TRAIN)->model.parameter[local_number(e, parameter)]);
}

struct tensor_values engine_gradient(const struct engine *e, size_t parameter) {
    return values_of(e, engine_compiled(e, PROGRAM_TRAIN)->optimizer.gradient_slice[local_number(e, parameter)]);
}

void engine_scatter(struct engine *e, uint64_t seed) {
    for (size_t i = 0; i < e->table->parameters.count; i++) {
        const struct parameter *p = &e->table->parameters.item[i];
        struct tensor_values v = engine_parameter(e, i);
        int64_t end = parameter_rows(p) * p->dim[1];
        double width = p->init == INIT_NORMAL ? 0.6 : 0.4, centre = p->init == INIT_ONE ? 1 : 0;
        for (int64_t j = 0; j < end; j++)
            value_store(v.data, v.dtype, j,
                        centre + width * (rng_uniform(seed, rng_stream(p->name), (uint64_t)j) - 0.5));
    }
}

struct batch batch_create(int64_t sequences, int64_t seq_len, int64_t vocab_size, uint64_t seed) {
    struct batch b = {.sequences = sequences, .seq_len = seq_len};
    size_t bytes = (size_t)(sequences * seq_len) * sizeof(int32_t);
    b.tokens = mem_alloc(bytes);
    b.targets = mem_alloc(bytes);
    b.starts = mem_alloc(bytes);
    b.positions = mem_alloc(bytes);
    for (int64_t s = 0; s < sequences; s++) {
        int64_t start = 0;
        for (int64_t t = 0; t < seq_len; t++) {
            int64_t i = s * seq_len + t;
            struct rng_block r = rng_philox(seed, 1, (uint64_t)i);
            // The first sequence is one document; later ones have more and more.
            if (t > 0 && r.word[2] % 16 < (uint32_t)MIN(s, (int64_t)6))
                start = t;
            b.tokens[i] = (int32_t)(r.word[0] % (uint32_t)vocab_size);
            b.targets[i] = (int32_t)(r.word[1] % (uint32_t)vocab_size);
            if (r.word[3] % 8 < (uint32_t)(s % 8)) // nothing is masked in the first, nearly all in the eighth
                b.targets[i] = -1;
            b.starts[i] = (int32_t)start;
            b.positions[i] = (int32_t)(t - start);
        }
    }
    return b;
}

struct batch batch_of_documents(int64_t sequences, int64_t seq_len, int64_t vocab_size, uint64_t seed) {
    struct batch b = batch_create(sequences, seq_len, vocab_size, seed);
    for (int64_t i = 0; i < sequences * seq_len; i++) {
        b.starts[i] = 0;
        b.positions[i] = (int32_t)(i % seq_len);
    }
    return b;
}

void batch_release(struct batch *b) {
    free(b->tokens);
    free(b->targets);
    free(b->starts);
    free(b->positions);
}

static void fill(struct executor *executor, const struct compiled *c, int microbatches, const struct batch *b) {
    size_t rows = (size_t)(b->sequences / microbatches * b->seq_len);
    for (int m = 0; m < microbatches; m++) {
        size_t at = (size_t)m * rows, bytes = rows * sizeof(int32_t);
        memcpy(executor_address(executor, c->tokens, m), b->tokens + at, bytes);
        memcpy(executor_address(executor, c->targets, m), b->targets + at, bytes);
        memcpy(executor_address(executor, c->starts, m), b->starts + at, bytes);
        if (c->positions != NONE)
            memcpy(executor_address(executor, c->positions, m), b->positions + at, bytes);
    }
}

static void check_shape(const struct engine *e, const struct batch *b) {
    assert_int_equal(b->sequences, e->parallel->batch.microbatches * e->parallel->batch.sequences);
    assert_int_equal(b->seq_len, e->parallel->batch.seq_len);
}

struct engine_result batch_train(struct engine *e, const struct batch *b, double lr) {
    check_shape(e, b);
    fill(engine_executor(e, PROGRAM_TRAIN), engine_compiled(e, PROGRAM_TRAIN), e->parallel->batch.microbatches, b);
    struct engine_result result;
    trireme_error error = {0};
    assert_ok(engine_step(e, lr, NULL, &result, &error), &error);
    return result;
}

struct engine_result batch_evaluate(struct engine *e, const struct batch *b) {
    check_shape(e, b);
    fill(engine_executor(e, PROGRAM_EVALUATE), engine_compiled(e, PROGRAM_EVALUATE), e->parallel->batch.microbatches,
         b);
    struct engine_result result;
    trireme_error error = {0};
    assert_ok(engine_evaluate(e, &result, &error), &error);
    return result;
}

double engine_gradient_rms(const struct engine *e) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < e->table->parameters.count; i++) {
        const struct parameter *p = &e->table->parameters.item[i];
        if (p->frozen)
            continue;
        struct tensor_values g = engine_gradient(e, i);
        int64_t end = parameter_rows(p) * p->dim[1];
        for (int64_t j = 0; j < end; j++)
            sum += value_at(g.data, g.dtype, j) * value_at(g.data, g.dtype, j);
        count += (double)end;
    }
    return sqrt(sum / count);
}

double *engine_copy(const struct engine *e, struct tensor_values (*of)(const struct engine *, size_t)) {
    double *out = NULL;
    size_t count = 0;
    for (size_t i = 0; i < e->table->parameters.count; i++) {
        struct tensor_values v = of(e, i);
        out = mem_resize(out, (count + (size_t)v.count) * sizeof *out);
        for (int64_t j = 0; j < v.count; j++)
            out[count++] = value_at(v.data, v.dtype, j);
    }
    return out;
}

void assert_close(const char *what, const double *a, const double *b, int64_t count, double tolerance, double floor) {
    double worst = 0, largest = floor;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            fail_msg("%s[%lld]: %g and %g", what, (long long)i, a[i], b[i]);
        if (fabs(a[i] - b[i]) > worst) {
            worst = fabs(a[i] - b[i]);
            at = i;
        }
        largest = fmax(largest, fabs(b[i]));
    }
    if (worst > tolerance * largest)
        fail_msg("%s[%lld]: %.17g and %.17g are %.3g of %.3g apart, more than %g", what, (long long)at, a[at], b[at],
                 worst / largest, largest, tolerance);
}

void assert_all_close(const struct engine *e, const char *what, const double *a, const double *b, double tolerance,
                      double floor) {
    for (size_t i = 0; i < e->table->parameters.count; i++) {
        int64_t count = engine_parameter(e, i).count;
        char name[200];
        snprintf(name, sizeof name, "%s of %s", what, e->table->parameters.item[i].name);
        assert_close(name, a, b, count, tolerance, floor);
        a += count;
        b += count;
    }
}

void engine_save(const struct engine *e, const char *path) {
    trireme_error error = {0};
    struct directory *directory = NULL;
    size_t count = e->table->parameters.count;
    void **data = mem_alloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = engine_parameter(e, i).data;
    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &directory, &error), &error);
    model_write(directory, e->model, e->table, e->stage->state.dtype, data, 0);
    assert_ok(directory_commit(directory, &error), &error);
    free(data);
}
