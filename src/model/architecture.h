// Internal to model/: the architectures of Hugging Face whose models are ours, one row each: what they are called, what
// their models may have, and what config.json means by what it leaves out.
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include "model/model.h"

enum architecture_biases {
    BIASES_NONE,
    BIASES_QKV,     // of q, k and v, always
    BIASES_SWITCHED // of q, k, v and the output, or none: "attention_bias"
};
enum architecture_window {
    WINDOW_NONE,
    WINDOW_ALWAYS,  // "sliding_window" counts
    WINDOW_SWITCHED // with "use_sliding_window"
};

struct architecture_info {
    const char *name, *model_type; // in "architectures", and in "model_type"
    enum family family;
    int64_t bos_token_id, eos_token_id; // where the file has none
    // Of the Llama family:
    enum architecture_biases biases;
    enum architecture_window window;
    bool mlp_bias;       // there may be such: "mlp_bias"
    bool qk_norm;        // always
    bool divided;        // hidden_size is a multiple of num_attention_heads
    bool needs_kv;       // without "num_key_value_heads" it is some number, not num_attention_heads
    bool needs_head_dim; // without "head_dim" it is some number, not hidden_size / num_attention_heads
};

extern const struct architecture_info architecture_table[ARCHITECTURE_COUNT];

// config->architecture if it has such models, else the first that has; NULL: none.
const struct architecture_info *architecture_of(const struct model_config *config);
// By its name, or by its model_type; NULL: none.
const struct architecture_info *architecture_find(const char *name, bool by_type);

#endif
