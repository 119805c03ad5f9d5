// Which layers a model has, and what goes over all of them.
#include "model/layer.h"

static const struct layer_part *const MIXERS[] = {
#define MIXER(constant, part) [MIXER_##constant] = &part,
#include "model/kinds.def"
};
static const struct layer_part *const FEED_FORWARDS[] = {
#define FEED_FORWARD(constant, part) [FEED_FORWARD_##constant] = &part,
#include "model/kinds.def"
};
const struct layer_part *const model_parts[MODEL_PARTS] = {
#define MIXER(constant, part) &part,
#define FEED_FORWARD(constant, part) &part,
#include "model/kinds.def"
};

const struct layer_part *model_layer_part(const struct layer_kind *kind, int number) {
    CHECK(number >= 0 && number < LAYER_PARTS);
    return number == 0 ? MIXERS[kind->mixer] : FEED_FORWARDS[kind->feed_forward];
}

bool model_has_part(const struct model_config *config, const struct layer_part *part) {
    for (int k = 0; k < model_layer_kinds(config); k++)
        for (int i = 0; i < LAYER_PARTS; i++)
            if (model_layer_part(&config->kind[k], i) == part)
                return true;
    return false;
}

bool model_is_recurrent(const struct model_config *config) {
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->recurrent && model_has_part(config, model_parts[i]))
            return true;
    return false;
}

// ---- kinds

static int layer_kind_number(const struct model_config *config, int64_t layer) {
    return layer < LISTED_LAYERS ? config->kind_of[layer] : 0;
}

const struct layer_kind *model_layer(const struct model_config *config, int64_t layer) {
    CHECK(layer >= 0 && layer < config->num_hidden_layers);
    return &config->kind[layer_kind_number(config, layer)];
}

int model_layer_kinds(const struct model_config *config) {
    int kinds = 1;
    for (int64_t i = 0; i < MIN(config->num_hidden_layers, LISTED_LAYERS); i++)
        kinds = MAX(kinds, config->kind_of[i] + 1);
    return kinds;
}

int64_t model_layers_of_kind(const struct model_config *config, int kind) {
    int64_t count = 0;
    for (int64_t i = 0; i < config->num_hidden_layers; i++)
        count += layer_kind_number(config, i) == kind;
    return count;
}

void model_layers_set_all(struct model_config *config, struct layer_kind kind) {
    memset(config->kind, 0, sizeof config->kind);
    memset(config->kind_of, 0, sizeof config->kind_of);
    config->kind[0] = kind;
}

trireme_status model_layers_set(struct model_config *config, const struct layer_kind *kind, int64_t layers,
                                trireme_error *error) {
    int kinds = 0;
    struct model_config c = *config;
    CHECK(layers > 0);
    model_layers_set_all(&c, kind[0]);
    for (int64_t i = 0; i < layers; i++) {
        int k = 0;
        while (k < kinds && memcmp(&c.kind[k], &kind[i], sizeof kind[i]) != 0)
            k++;
        if (k == LAYER_KINDS)
            FAIL(TRIREME_ERROR_USAGE, "more than %d kinds of layers in one model are not supported", LAYER_KINDS);
        if (k > 0 && layers > LISTED_LAYERS)
            FAIL(TRIREME_ERROR_USAGE, "unlike layers are supported in models of at most %d layers", LISTED_LAYERS);
        if (k == kinds)
            c.kind[kinds++] = kind[i];
        if (i < LISTED_LAYERS)
            c.kind_of[i] = (uint8_t)k;
    }
    *config = c;
    return TRIREME_OK;
}

// ---- work

int64_t model_width(const struct model_config *c) {
    int64_t width = MAX(c->hidden_size, c->vocab_size);
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_has_part(c, model_parts[i]))
            width = MAX(width, model_parts[i]->width(c));
    return width;
}

static double kind_flops(const struct model_config *c, const struct layer_kind *kind, int64_t seq_len) {
    double sum = 0;
    for (int i = 0; i < LAYER_PARTS; i++)
        sum += model_layer_part(kind, i)->flops(c, kind, seq_len);
    return sum;
}

double model_layer_flops(const struct model_config *c, int64_t layer, int64_t seq_len) {
    return kind_flops(c, model_layer(c, layer), seq_len);
}

double model_layers_flops(const struct model_config *c, int64_t tokens, int64_t seq_len) {
    double sum = 0;
    for (int k = 0; k < model_layer_kinds(c); k++)
        sum += (double)model_layers_of_kind(c, k) * kind_flops(c, &c->kind[k], seq_len);
    return sum * (double)tokens;
}

double model_flops(const struct model_config *c, int64_t tokens, int64_t seq_len) {
    return (model_layers_flops(c, 1, seq_len) + head_part.flops(c, NULL, seq_len)) * (double)tokens;
}
