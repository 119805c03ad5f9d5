// Internal to model/: the Hugging Face architectures that are supported, one row of kinds.def each: their names, what
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
    WINDOW_ALWAYS,  // "sliding_window" counts, in all layers
    WINDOW_LISTED,  // it counts in the layers that "layer_types" says, without it in all
    WINDOW_SWITCHED // it counts where "use_sliding_window" is true, in the layers that "layer_types" or
                    // "max_window_layers" says
};

struct architecture_info {
    const char *name, *model_type; // in "architectures", and in "model_type"
    enum family family;
    int64_t bos_token_id, eos_token_id; // where the file has none
    // Of the Llama family:
    enum architecture_biases biases;
    enum architecture_window window;
    bool mlp_bias;       // the MLP may have biases: "mlp_bias"
    bool qk_norm;        // all models have it
    bool divided;        // hidden_size must be a multiple of num_attention_heads
    bool needs_kv;       // the file must have "num_key_value_heads": its default is not num_attention_heads
    bool needs_head_dim; // the file must have "head_dim": its default is not hidden_size / num_attention_heads
};

extern const struct architecture_info architecture_table[ARCHITECTURE_COUNT];

// config->architecture if it can be such a model, else the first architecture that can; NULL: none.
const struct architecture_info *architecture_of(const struct model_config *config);
// The architecture with that name, or that model_type; NULL: none.
const struct architecture_info *architecture_find(const char *name, bool by_type);

#endif
