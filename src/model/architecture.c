#include "model/layer.h"

const struct architecture_info architecture_table[ARCHITECTURE_COUNT] = {
#define ARCHITECTURE(constant, ...) [ARCHITECTURE_##constant] = {__VA_ARGS__},
#include "model/kinds.def"
};

// ---- names of tensors

const struct tensor_names gpt2_names = {.base = "transformer.",
                                        .layers = "h.",
                                        .embedding = "wte",
                                        .final_norm = "ln_f",
                                        .head = "lm_head",
                                        .attention_norm = "ln_1",
                                        .mlp_norm = "ln_2",
                                        .qkv = {"attn.c_attn"},
                                        .out = "attn.c_proj",
                                        .up = {"mlp.c_fc"},
                                        .down = "mlp.c_proj",
                                        .transposed = true};

#define LLAMA_NAMES                                                                                              \
    .base = "model.", .layers = "layers.", .embedding = "embed_tokens", .final_norm = "norm", .head = "lm_head", \
    .attention_norm = "input_layernorm", .out = "self_attn.o_proj", .down = "mlp.down_proj"
#define LLAMA_PROJECTIONS \
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, .up = {"mlp.gate_proj", "mlp.up_proj"}

const struct tensor_names llama_names = {LLAMA_NAMES, LLAMA_PROJECTIONS, .mlp_norm = "post_attention_layernorm"};
const struct tensor_names phi_names = {LLAMA_NAMES, .qkv = {"self_attn.qkv_proj"}, .up = {"mlp.gate_up_proj"},
                                       .mlp_norm = "post_attention_layernorm"};
const struct tensor_names olmo2_names = {LLAMA_NAMES, LLAMA_PROJECTIONS, .attention_after = "post_attention_layernorm",
                                         .mlp_after = "post_feedforward_layernorm"};
const struct tensor_names gemma2_names = {LLAMA_NAMES, LLAMA_PROJECTIONS, .attention_after = "post_attention_layernorm",
                                          .mlp_norm = "pre_feedforward_layernorm",
                                          .mlp_after = "post_feedforward_layernorm"};
const struct tensor_names neox_names = {.base = "gpt_neox.",
                                        .layers = "layers.",
                                        .embedding = "embed_in",
                                        .final_norm = "final_layer_norm",
                                        .head = "embed_out",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm",
                                        .qkv = {"attention.query_key_value"},
                                        .out = "attention.dense",
                                        .up = {"mlp.dense_h_to_4h"},
                                        .down = "mlp.dense_4h_to_h",
                                        .interleaved = true};

const struct tensor_names gla_names = {.base = "model.",
                                       .layers = "layers.",
                                       .embedding = "embeddings",
                                       .final_norm = "norm",
                                       .head = "lm_head",
                                       .attention_norm = "attn_norm",
                                       .mlp_norm = "mlp_norm",
                                       .qkv = {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
                                       .out = "attn.o_proj",
                                       .up = {"mlp.gate_proj", "mlp.up_proj"},
                                       .down = "mlp.down_proj"};

const struct tensor_names *architecture_names(const struct model_config *config) {
    return architecture_table[config->architecture].names ?: &llama_names;
}

const char *model_tensor_base(const struct model_config *config) {
    return architecture_names(config)->base;
}

bool model_tensors_transposed(const struct model_config *config) {
    return architecture_names(config)->transposed;
}

// ---- which models an architecture has

static bool biases_fit(enum architecture_biases biases, const struct model_config *c) {
    switch (biases) {
    case BIASES_NONE:
        return !c->attention_bias && !c->attention_output_bias;
    case BIASES_QKV:
        return c->attention_bias && !c->attention_output_bias;
    case BIASES_QKV_SWITCHED:
        return !c->attention_output_bias;
    default:
        return c->attention_bias == c->attention_output_bias;
    }
}

static bool mlp_biases_fit(enum architecture_mlp_biases biases, const struct model_config *c) {
    return biases == MLP_BIASES_SWITCHED || c->mlp_bias == (biases == MLP_BIASES_ALWAYS);
}

static bool rope_fits(const struct architecture_info *a, const struct model_config *c) {
    bool all = true;
    for (int k = 0; k < model_layer_kinds(c); k++)
        all = all && c->kind[k].rope != NONE;
    if (a->nope ? all && a != &architecture_table[c->architecture] : !all)
        return false;
    return a->local_rope == (c->rope[1].theta > 0) && (a->rotary_share > 0 || c->partial_rotary_factor == 0);
}

static bool architecture_fits(const struct architecture_info *a, const struct model_config *c) {
    if (a->family != c->family || c->family == FAMILY_GPT2)
        return a->family == c->family;
    if (memcmp(&a->form, &c->form, sizeof a->form) != 0)
        return false;
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->fits && !model_parts[i]->fits(a, c))
            return false;
    return (a->qk_norm == c->qk_norm || (a->qk_norm_switched && !c->qk_norm)) && a->sinks == c->attention_sinks &&
           (a->multiplied || c->attention_multiplier == 0) && biases_fit(a->biases, c) &&
           mlp_biases_fit(a->mlp_biases, c) && rope_fits(a, c) && (a->parallel || !c->parallel_residual) &&
           (a->capped || (c->attention_scalar == 0 && c->attention_cap == 0 && c->logits_cap == 0)) &&
           (!a->all_kv || c->num_key_value_heads == c->num_attention_heads) &&
           (!a->divided || c->hidden_size % c->num_attention_heads == 0);
}

bool model_shares_norm(const struct model_config *c) {
    return c->parallel_residual && architecture_table[c->architecture].parallel == PARALLEL_SHARED;
}

const struct architecture_info *architecture_of(const struct model_config *config) {
    const struct architecture_info *own = &architecture_table[config->architecture];
    if (architecture_fits(own, config))
        return own;
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++)
        if (architecture_fits(&architecture_table[i], config))
            return &architecture_table[i];
    return NULL;
}

// Whether `name` is that of the architecture, or of the model in it that has no head.
static bool architecture_is(const struct architecture_info *a, const char *name) {
    static const char *const ENDS[] = {"ForCausalLM", "LMHeadModel"};
    if (strcmp(a->name, name) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++) {
        const size_t stem = strlen(a->name) - MIN(strlen(a->name), strlen(ENDS[i]));
        if (text_ends(a->name, ENDS[i]) && strncmp(a->name, name, stem) == 0 && strcmp(name + stem, "Model") == 0)
            return true;
    }
    return false;
}

const struct architecture_info *architecture_find(const char *name, bool by_type) {
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++) {
        const struct architecture_info *a = &architecture_table[i];
        if (by_type ? strcmp(a->model_type, name) == 0 : architecture_is(a, name))
            return a;
    }
    return NULL;
}

const char *model_architecture(const struct model_config *config) {
    const struct architecture_info *a = architecture_of(config);
    return a ? a->name : NULL;
}
