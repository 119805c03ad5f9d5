// Published models by name, as their config.json has them, and small ones for laptops.
#include "base/json.h"
#include "model/model.h"

#include <ctype.h>

struct preset {
    const char *name, *about;
    struct model_config config;
};

// bos_token_id and eos_token_id are those of the base models; for Qwen3 those of the instruction-tuned models.
#define GPT2(layers, hidden, heads) GPT(layers, hidden, heads, 50257, 1024)
// As in Megatron-LM: GPT-2's layers, 2048 positions, the vocabulary padded to 51200.
#define GPT3(layers, hidden, heads) GPT(layers, hidden, heads, 51200, 2048)
#define GPT(layers, hidden, heads, vocab, positions)                                                                   \
    {                                                                                                                  \
        .family = FAMILY_GPT2, .architecture = ARCHITECTURE_GPT2, .form = {.norm = NORM_LAYER, .plain = true},         \
        .num_hidden_layers = layers, .hidden_size = hidden, .num_attention_heads = heads,                              \
        .num_key_value_heads = heads, .head_dim = hidden / heads, .intermediate_size = 4 * hidden,                     \
        .vocab_size = vocab, .max_position_embeddings = positions, .activation = ACTIVATION_GELU_TANH,                 \
        .tie_word_embeddings = true, .bias = true, .norm_eps = 1e-5, .initializer_range = 0.02, .bos_token_id = 50256, \
        .eos_token_id = 50256                                                                                          \
    }
#define LLAMA_FAMILY(name, layers, hidden, heads, kv_heads, dim, inner, vocab, positions, base, eps, bos, eos, ...)  \
    {                                                                                                                \
        .family = FAMILY_LLAMA, .architecture = name, .num_hidden_layers = layers, .hidden_size = hidden,            \
        .num_attention_heads = heads, .num_key_value_heads = kv_heads, .head_dim = dim, .intermediate_size = inner,  \
        .vocab_size = vocab, .max_position_embeddings = positions, .activation = ACTIVATION_SWIGLU, .norm_eps = eps, \
        .initializer_range = 0.02, .rope[0].theta = base, .bos_token_id = bos, .eos_token_id = eos, __VA_ARGS__      \
    }
#define LLAMA2(layers, hidden, heads, kv_heads, inner, positions)                                                     \
    LLAMA_FAMILY(ARCHITECTURE_LLAMA, layers, hidden, heads, kv_heads, hidden / heads, inner, 32000, positions, 10000, \
                 1e-5, 1, 2, )
#define LLAMA3(layers, hidden, heads, kv_heads, inner, positions, ...)                                          \
    LLAMA_FAMILY(ARCHITECTURE_LLAMA, layers, hidden, heads, kv_heads, hidden / heads, inner, 128256, positions, \
                 500000, 1e-5, 128000, 128001, __VA_ARGS__)
#define STRETCHED(times)                                                                           \
    .rope[0].scaling = ROPE_SCALING_LLAMA3, .rope[0].factor = times, .rope[0].low_freq_factor = 1, \
    .rope[0].high_freq_factor = 4, .rope[0].original = 8192
#define QWEN2(layers, hidden, heads, kv_heads, inner, vocab, positions, tied)                                       \
    LLAMA_FAMILY(ARCHITECTURE_QWEN2, layers, hidden, heads, kv_heads, hidden / heads, inner, vocab, positions, 1e6, \
                 1e-6, 151643, 151643, .attention_bias = true, .tie_word_embeddings = tied)
#define QWEN3(layers, hidden, heads, kv_heads, inner, tied)                                                         \
    LLAMA_FAMILY(ARCHITECTURE_QWEN3, layers, hidden, heads, kv_heads, 128, inner, 151936, 40960, 1e6, 1e-6, 151643, \
                 151645, .qk_norm = true, .tie_word_embeddings = tied)
#define SMALL(layers, hidden, heads, inner)                                                                         \
    LLAMA_FAMILY(ARCHITECTURE_LLAMA, layers, hidden, heads, heads, hidden / heads, inner, 0, 4096, 10000, 1e-5, -1, \
                 -1, )
#define SMALL_GLA(layers, hidden, heads, inner)                                                                       \
    LLAMA_FAMILY(ARCHITECTURE_GLA, layers, hidden, heads, heads, hidden / heads, inner, 0, 4096, 10000, 1e-5, -1, -1, \
                 .kind = {{.mixer = MIXER_LINEAR_ATTENTION}}, .linear = {heads, hidden / heads / 2, hidden / heads})

static const struct preset PRESETS[] = {
    {"llama-5m", "for a laptop: minutes", SMALL(6, 256, 4, 704)},
    {"llama-15m", "for a laptop: an hour", SMALL(8, 384, 6, 1152)},
    {"llama-42m", "for a laptop: a night", SMALL(12, 512, 8, 1600)},
    {"gla-15m", "gated linear attention (Yang et al. 2023)", SMALL_GLA(8, 384, 4, 1152)},
    {"gpt2-124m", "GPT-2 (Radford et al. 2019)", GPT2(12, 768, 12)},
    {"gpt2-355m", "GPT-2 medium", GPT2(24, 1024, 16)},
    {"gpt2-774m", "GPT-2 large", GPT2(36, 1280, 20)},
    {"gpt2-1558m", "GPT-2 XL", GPT2(48, 1600, 25)},
    {"gpt3-1.7b", "Megatron-LM (Narayanan et al. 2021, table 1)", GPT3(24, 2304, 24)},
    {"gpt3-3.6b", "Megatron-LM", GPT3(30, 3072, 32)},
    {"gpt3-7.5b", "Megatron-LM", GPT3(36, 4096, 32)},
    {"gpt3-18b", "Megatron-LM", GPT3(40, 6144, 48)},
    {"gpt3-22b", "Megatron-LM (Korthikanti et al. 2022, table 3)", GPT3(48, 6144, 64)},
    {"gpt3-39b", "Megatron-LM", GPT3(48, 8192, 64)},
    {"gpt3-76b", "Megatron-LM", GPT3(60, 10240, 80)},
    {"gpt3-145b", "Megatron-LM", GPT3(80, 12288, 96)},
    {"gpt3-175b", "GPT-3 (Brown et al. 2020), as Megatron-LM", GPT3(96, 12288, 96)},
    {"gpt3-310b", "Megatron-LM", GPT3(96, 16384, 128)},
    {"gpt3-530b", "Megatron-LM", GPT3(105, 20480, 128)},
    {"gpt3-1t", "Megatron-LM", GPT3(128, 25600, 160)},
    {"tinyllama-1.1b", "TinyLlama (Zhang et al. 2024)", LLAMA2(22, 2048, 32, 4, 5632, 2048)},
    {"llama2-7b", "Llama 2 (Touvron et al. 2023)", LLAMA2(32, 4096, 32, 32, 11008, 4096)},
    {"llama2-13b", "Llama 2", LLAMA2(40, 5120, 40, 40, 13824, 4096)},
    {"llama2-70b", "Llama 2", LLAMA2(80, 8192, 64, 8, 28672, 4096)},
    {"llama3-8b", "Llama 3 (Llama team 2024)", LLAMA3(32, 4096, 32, 8, 14336, 8192, )},
    {"llama3-70b", "Llama 3", LLAMA3(80, 8192, 64, 8, 28672, 8192, )},
    {"llama3-405b", "Llama 3 405B, which is Llama 3.1's", LLAMA3(126, 16384, 128, 8, 53248, 131072, STRETCHED(8))},
    {"llama3.1-8b", "Llama 3.1", LLAMA3(32, 4096, 32, 8, 14336, 131072, STRETCHED(8))},
    {"llama3.1-70b", "Llama 3.1", LLAMA3(80, 8192, 64, 8, 28672, 131072, STRETCHED(8))},
    {"llama3.1-405b", "Llama 3.1", LLAMA3(126, 16384, 128, 8, 53248, 131072, STRETCHED(8))},
    {"llama3.2-1b", "Llama 3.2", LLAMA3(16, 2048, 32, 8, 8192, 131072, STRETCHED(32), .tie_word_embeddings = true)},
    {"llama3.2-3b", "Llama 3.2", LLAMA3(28, 3072, 24, 8, 8192, 131072, STRETCHED(32), .tie_word_embeddings = true)},
    {"mistral-7b", "Mistral 7B v0.1 (Jiang et al. 2023)",
     LLAMA_FAMILY(ARCHITECTURE_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 10000, 1e-5, 1, 2,
                  .kind = {{.sliding_window = 4096}})},
    {"qwen2-0.5b", "Qwen2 (Yang et al. 2024)", QWEN2(24, 896, 14, 2, 4864, 151936, 131072, true)},
    {"qwen2-1.5b", "Qwen2", QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, true)},
    {"qwen2-7b", "Qwen2", QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, false)},
    {"qwen2.5-0.5b", "Qwen2.5", QWEN2(24, 896, 14, 2, 4864, 151936, 32768, true)},
    {"qwen2.5-1.5b", "Qwen2.5", QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, true)},
    {"qwen2.5-3b", "Qwen2.5", QWEN2(36, 2048, 16, 2, 11008, 151936, 32768, true)},
    {"qwen2.5-7b", "Qwen2.5", QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, false)},
    {"qwen3-0.6b", "Qwen3 (Qwen team 2025)", QWEN3(28, 1024, 16, 8, 3072, true)},
    {"qwen3-1.7b", "Qwen3", QWEN3(28, 2048, 16, 8, 6144, true)},
    {"qwen3-4b", "Qwen3", QWEN3(36, 2560, 32, 8, 9728, true)},
    {"qwen3-8b", "Qwen3", QWEN3(36, 4096, 32, 8, 12288, false)},
};

enum { PLAIN_BYTES = 64, COMMON_LEAST = 4 }; // the latter: characters that alike names begin with, as in gpt2

// What tells models apart in a name as others write it: without its owner, in lower case, letters, digits and points.
static void plain_name(const char *name, char out[PLAIN_BYTES]) {
    const char *owner = strrchr(name, '/');
    size_t length = 0;
    for (const char *s = owner ? owner + 1 : name; *s && length < PLAIN_BYTES - 1; s++)
        if (isalnum((unsigned char)*s) || *s == '.')
            out[length++] = (char)tolower((unsigned char)*s);
    out[length] = '\0';
}

// The first model of a family if `name` is that of a family; else the least misspelt; else the one that begins most
// alike. NULL: none.
static const char *nearest_preset(const char *name) {
    const char *of_family = NULL, *misspelt = NULL, *alike = NULL;
    char wanted[PLAIN_BYTES], known[PLAIN_BYTES];
    plain_name(name, wanted);
    size_t limit = text_misspelt_distance(wanted) + 1, most = COMMON_LEAST - 1;
    for (size_t i = 0; i < ARRAY_LENGTH(PRESETS); i++) {
        size_t common = 0;
        plain_name(PRESETS[i].name, known);
        while (wanted[common] && wanted[common] == known[common])
            common++;
        if (!of_family && common && !wanted[common])
            of_family = PRESETS[i].name;
        size_t distance = text_distance(wanted, known);
        if (distance < limit) {
            limit = distance;
            misspelt = PRESETS[i].name;
        }
        if (common > most) {
            most = common;
            alike = PRESETS[i].name;
        }
    }
    return of_family ? of_family : misspelt ? misspelt : alike;
}

trireme_status model_config_preset(struct model_config *out, const char *name, trireme_error *error) {
    for (size_t i = 0; i < ARRAY_LENGTH(PRESETS); i++)
        if (strcmp(PRESETS[i].name, name) == 0) {
            *out = PRESETS[i].config;
            out->padded_vocab_size = model_padded_vocab_size(out->vocab_size);
            return TRIREME_OK;
        }
    const char *nearest = nearest_preset(name);
    FAIL(TRIREME_ERROR_USAGE, "model.preset: no model is called \"%.80s\"%s%s; all are in `trireme help models`", name,
         nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

static void add_count(struct text *out, int64_t count) {
    if (count < 1000000000)
        text_add(out, "%9.1f M", (double)count / 1e6);
    else
        text_add(out, "%9.2f B", (double)count / 1e9);
}

static int64_t count_parameters(struct model_config c) {
    if (c.vocab_size == 0)
        c.vocab_size = MODEL_BYTE_TOKENS;
    c.padded_vocab_size = model_padded_vocab_size(c.vocab_size);
    struct parameter_table table;
    parameter_table_create(&table, &c);
    int64_t total = table.total;
    parameter_table_release(&table);
    return total;
}

void model_presets_help(struct text *out) {
    text_add(out, "%-15s %11s %7s %6s %6s %9s %6s %7s %10s  %s\n", "model.preset", "parameters", "layers", "width",
             "heads", "kv_heads", "inner", "tokens", "positions", "about");
    for (size_t i = 0; i < ARRAY_LENGTH(PRESETS); i++) {
        const struct model_config *c = &PRESETS[i].config;
        text_add(out, "%-15s ", PRESETS[i].name);
        add_count(out, count_parameters(*c));
        text_add(out, " %7lld %6lld %6lld %9lld %6lld ", (long long)c->num_hidden_layers, (long long)c->hidden_size,
                 (long long)c->num_attention_heads, (long long)c->num_key_value_heads, (long long)c->intermediate_size);
        if (c->vocab_size == 0)
            text_add(out, "%7s", "any");
        else
            text_add(out, "%7lld", (long long)c->vocab_size);
        text_add(out, " %10lld  %s\n", (long long)c->max_position_embeddings, PRESETS[i].about);
    }
    text_add(out,
             "\nModels with \"any\" tokens take the vocabulary of the tokens they are trained on (counted here: "
             "bytes, %d).\n",
             MODEL_BYTE_TOKENS);
}

void model_presets_help_json(struct text *out) {
    json_begin_object(out, NULL);
    json_begin_array(out, "models");
    for (size_t i = 0; i < ARRAY_LENGTH(PRESETS); i++) {
        const struct model_config *c = &PRESETS[i].config;
        json_begin_object(out, NULL);
        json_add_string(out, "preset", PRESETS[i].name);
        json_add_integer(out, "parameters", count_parameters(*c));
        json_add_integer(out, "num_hidden_layers", c->num_hidden_layers);
        json_add_integer(out, "hidden_size", c->hidden_size);
        json_add_integer(out, "num_attention_heads", c->num_attention_heads);
        json_add_integer(out, "num_key_value_heads", c->num_key_value_heads);
        json_add_integer(out, "intermediate_size", c->intermediate_size);
        json_add_integer(out, "vocab_size", c->vocab_size);
        json_add_integer(out, "max_position_embeddings", c->max_position_embeddings);
        json_add_string(out, "about", PRESETS[i].about);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}
