// Internal to model/: the Hugging Face architectures that are supported, one row of kinds.def each: their names, what
// their models may have, and what config.json means by what it leaves out.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "model/model.h"

enum architecture_biases {
    BIASES_NONE,
    BIASES_QKV,          // of q, k and v, always
    BIASES_QKV_SWITCHED, // of q, k and v, or none: "use_qkv_bias"
    BIASES_SWITCHED,     // of q, k, v and the output, or none: "attention_bias"
    BIASES_DEFAULT       // the same, where they are there unless the file says otherwise
};
enum architecture_mlp_biases {
    MLP_BIASES_NONE,
    MLP_BIASES_SWITCHED, // "mlp_bias"
    MLP_BIASES_ALWAYS
};
enum architecture_parallel { // "use_parallel_residual"
    PARALLEL_NEVER,
    PARALLEL_DEFAULT, // true where it is absent
    PARALLEL_SHARED   // false where it is absent; both parts of a layer read one norm
};
enum architecture_window {
    WINDOW_NONE,
    WINDOW_ALWAYS,  // "sliding_window" counts, in all layers
    WINDOW_LISTED,  // it counts in the layers that "layer_types" says; without it in all, or by the period
    WINDOW_SWITCHED // it counts where "use_sliding_window" is true, in the layers that "layer_types" or
                    // "max_window_layers" says
};

// The names of tensors in files: those of layers follow base and layers, as "model.layers.3.self_attn.q_proj.weight".
// Where queries, keys and values, or gate and up, are one tensor, only the first of the names is there.
struct tensor_names {
    const char *base, *layers; // "model.", "layers."
    const char *embedding, *final_norm, *head;
    const char *attention_norm, *attention_after, *mlp_norm, *mlp_after;
    const char *qkv[3], *out, *up[2], *down;
    bool transposed;  // matrices lie as [in, out]
    bool interleaved; // of the tensor of q, k and v, the rows of each head lie together
};
extern const struct tensor_names gpt2_names, llama_names, neox_names, phi_names, olmo2_names, gemma2_names, gla_names;

// The members of config.json that architectures call otherwise; NULL: as most do.
struct member_names {
    const char *activation, *norm_eps, *theta, *rotary_share;
};

struct architecture_info {
    const char *name, *model_type; // in "architectures", and in "model_type"
    const char *wrapper;           // the model_type of models with images, whose "text_config" is such a model
    enum family family;
    struct model_form form;
    const struct tensor_names *names;   // NULL: Llama's
    int64_t bos_token_id, eos_token_id; // where the file has none
    // Of the Llama family:
    struct member_names members;
    enum architecture_biases biases;
    enum architecture_mlp_biases mlp_biases;
    enum architecture_window window;
    int window_period; // where the file does not list types: every so manieth layer has no window; 0: all have one
    bool window_first; // and of so many the first, not the last
    int window_absent; // without "sliding_window": -1: there is none; 0: one of 4096
    enum qk_norm qk_norm;
    bool qk_norm_switched; // or none: "qk_layernorm"
    bool divided;          // hidden_size must be a multiple of num_attention_heads
    bool needs_kv;         // the file must have "num_key_value_heads": its default is not num_attention_heads
    bool needs_head_dim;   // the file must have "head_dim": its default is not hidden_size / num_attention_heads
    bool all_kv;           // there are as many key-value heads as heads, and no member says so
    bool tied;             // without "tie_word_embeddings" the head is the embedding
    enum architecture_parallel parallel;
    bool capped;                      // "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"
    double attention_cap, logits_cap; // where these are absent
    bool local_rope;                  // layers with a window have a rotary table of their own: "rope_local_base_freq"
    bool nope;                        // some layers may have no rotary positions: "no_rope_layers"
    bool sinks;                       // attention has them
    bool linear;                      // layers have linear attention, but those that "attn" lists
    bool multiplied;                  // "attention_multiplier" is what scores are multiplied by
    bool tanh_always;                 // "gelu" means its form by tanh
    bool original_apart;    // "original_max_position_embeddings" stands beside "rope_scaling", and is 4096 if absent
    double norm_eps;        // where the file has none; 0: 1e-6
    double theta;           // the same; 0: 10000
    double rotary_share;    // the same; 0: heads are turned whole, whatever the file says
    const char *activation; // the same; NULL: "silu"
    const char *defaults;   // members of a "text_config" that may be left out: a JSON object
};

extern const struct architecture_info architecture_table[ARCHITECTURE_COUNT];

// config->architecture if it can be such a model, else the first architecture that can; NULL: none.
const struct architecture_info *architecture_of(const struct model_config *config);
// The architecture with that name, or that model_type; NULL: none. "LlamaModel" is LlamaForCausalLM without its head.
const struct architecture_info *architecture_find(const char *name, bool by_type);
// How the model's tensors are called.
const struct tensor_names *architecture_names(const struct model_config *config);

#endif
