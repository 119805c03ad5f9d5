#include "model/layer.h"

const struct architecture_info architecture_table[ARCHITECTURE_COUNT] = {
#define ARCHITECTURE(constant, ...) [ARCHITECTURE_##constant] = {__VA_ARGS__},
#include "model/kinds.def"
};

static bool biases_fit(enum architecture_biases biases, const struct model_config *c) {
    switch (biases) {
    case BIASES_NONE:
        return !c->attention_bias && !c->attention_output_bias;
    case BIASES_QKV:
        return c->attention_bias && !c->attention_output_bias;
    default:
        return c->attention_bias == c->attention_output_bias;
    }
}

static bool architecture_fits(const struct architecture_info *a, const struct model_config *c) {
    if (a->family != c->family || c->family == FAMILY_GPT2)
        return a->family == c->family;
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->fits && !model_parts[i]->fits(a, c))
            return false;
    return a->qk_norm == c->qk_norm && biases_fit(a->biases, c) && (a->mlp_bias || !c->mlp_bias) &&
           (!a->divided || c->hidden_size % c->num_attention_heads == 0);
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

const struct architecture_info *architecture_find(const char *name, bool by_type) {
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++) {
        const struct architecture_info *a = &architecture_table[i];
        if (strcmp(by_type ? a->model_type : a->name, name) == 0)
            return a;
    }
    return NULL;
}

const char *model_architecture(const struct model_config *config) {
    const struct architecture_info *a = architecture_of(config);
    return a ? a->name : NULL;
}
