// Gated linear attention (Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv
// 2312.06635, section 4.4): in place of keys and values, each head keeps a state of one size, [key_dim, value_dim], to
// which tokens are added and which fades by gates that the tokens have, one for each row. The gates are those of a
// projection of low rank, log(sigmoid) / 16; the results are normed head by head, and multiplied by an output gate,
// swish. There are no positions. Tensor ranks have some of the heads.
//
// Hugging Face's form is that of flash-linear-attention, where `attn` names the layers that have softmax attention.
#include "model/layer.h"
#include "model/layers/layer_windows.h"

#include <float.h>
#include <math.h>

enum { GATE_RANK = 16, GATE_DIVISOR = 16 }; // which configurations do not say

// What adapters of queries, keys and values are called.
static const char *const PROJECTIONS[] = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
static const char GATE[] = "attn.g_proj", DECAY_LOW[] = "attn.gk_proj.0", DECAY[] = "attn.gk_proj.1"; // in files

// ---- parameters

static struct run linear_heads(const struct splitter *s) {
    return split_part(s->split->linear_heads, s->index, s->config->linear.heads);
}

// Queries, keys and values of the rank's heads.
static void linear_split_qkv(const struct splitter *s, const struct parameter *p) {
    const struct linear_attention *l = &s->config->linear;
    const struct run keys = split_scaled(linear_heads(s), l->key_dim),
                     values = split_scaled(linear_heads(s), l->value_dim);
    struct parameter *local = split_add(s, p, p->name, CLASS_SPLIT);
    split_add_rows(local, p, keys, 0);
    split_add_rows(local, p, keys, l->heads * l->key_dim);
    split_add_rows(local, p, values, 2 * l->heads * l->key_dim);
}

static void linear_split_keys(const struct splitter *s, const struct parameter *p) {
    split_add_rows(split_add(s, p, p->name, CLASS_SPLIT), p, split_scaled(linear_heads(s), s->config->linear.key_dim),
                   0);
}

static void linear_split_values(const struct splitter *s, const struct parameter *p) {
    split_add_rows(split_add(s, p, p->name, CLASS_SPLIT), p, split_scaled(linear_heads(s), s->config->linear.value_dim),
                   0);
}

static void linear_split_out(const struct splitter *s, const struct parameter *p) {
    split_add_columns(split_add(s, p, p->name, CLASS_SPLIT), p,
                      split_scaled(linear_heads(s), s->config->linear.value_dim));
}

static void linear_adapters(struct builder *b, int64_t keys, int64_t values) {
    const struct tensor_names *names = architecture_names(b->config);
    const int64_t width = b->config->hidden_size;
    for (int i = 0; i < 3; i++)
        builder_adapter(b, PROJECTIONS[i], names->qkv[i], i < 2 ? keys : values, width, 0, split_share,
                        i < 2 ? linear_split_keys : linear_split_values);
    builder_adapter(b, "attention.gate", GATE, values, width, 0, split_share, linear_split_values);
    builder_adapter(b, "attention.decay_low", DECAY_LOW, GATE_RANK, width, 0, split_share, split_share);
    builder_adapter(b, "attention.decay", DECAY, keys, GATE_RANK, 0, split_share, linear_split_keys);
    builder_adapter(b, "attention.out", names->out, width, values, 0, linear_split_out, NULL);
}

static void linear_parameters(struct builder *b) {
    const struct tensor_names *names = architecture_names(b->config);
    const struct linear_attention *l = &b->config->linear;
    const int64_t width = b->config->hidden_size, keys = l->heads * l->key_dim, values = l->heads * l->value_dim;
    struct parameter *p =
        builder_matrix(b, "attention.qkv.weight", 2 * keys + values, width, builder_std(b), linear_split_qkv);
    for (int i = 0; i < 3; i++)
        builder_tensor(b, p, names->qkv[i], i < 2 ? keys : values);
    p = builder_matrix(b, "attention.gate.weight", values, width, builder_std(b), linear_split_values);
    builder_tensor(b, p, GATE, values);
    p = builder_matrix(b, "attention.decay_low.weight", GATE_RANK, width, builder_std(b), split_share);
    builder_tensor(b, p, DECAY_LOW, GATE_RANK);
    p = builder_matrix(b, "attention.decay.weight", keys, GATE_RANK, builder_std(b), linear_split_keys);
    builder_tensor(b, p, DECAY, keys);
    p = builder_matrix(b, "attention.out.weight", width, values, builder_residual_std(b), linear_split_out);
    builder_tensor(b, p, names->out, width);
    linear_adapters(b, keys, values);
    builder_norm(b, "attention_norm", names->attention_norm);
    builder_tensor(b, builder_vector(b, "attention.decay.bias", NULL, keys, INIT_ZERO, linear_split_keys), DECAY, keys);
    builder_vector(b, "attention.head_norm.weight", "attn.g_norm_swish_gate.weight", l->value_dim, INIT_ONE,
                   split_share);
}

static trireme_status linear_split(struct model_split *split, const struct model_config *c, trireme_error *error) {
    TRY(split_check(c->linear.heads, "head", split->ranks, error));
    split->linear_heads = divide_up(c->linear.heads, split->ranks);
    return TRIREME_OK;
}

// ---- emitting

// The rank's heads in columns of a buffer, from `first` on: of all rows, or sequence by sequence.
static struct operand linear_view(const struct emitter *e, int buffer, int64_t first, int64_t size, bool sequences) {
    const int64_t width = e->program->buffers.item[buffer].dim[1], heads = e->split->linear_heads;
    struct operand view = {.buffer = buffer, .offset = first, .ndim = sequences ? 4 : 3};
    const int64_t dim[] = {e->batch->sequences, e->seq_rows, heads, size},
                  stride[] = {e->seq_rows * width, width, size, 1};
    const int64_t rows[] = {emit_row_count(e), heads, size};
    memcpy(view.dim, sequences ? dim : rows, (size_t)view.ndim * sizeof *dim);
    memcpy(view.stride, sequences ? stride : stride + 1, (size_t)view.ndim * sizeof *stride);
    return view;
}

// A linear layer with an adapter of its own.
static int linear_layer(struct emitter *e, int layer, const char *part, int x, const char *result, int64_t columns) {
    return emit_linear(e, layer, part, x, result, &(struct emit_band){part, part, columns}, 1);
}

// The logs of what the rows of states are multiplied by, [rows, heads * key_dim].
static int linear_decays(struct emitter *e, int layer, int n) {
    const int64_t dim[] = {emit_row_count(e), e->split->linear_heads * e->config->linear.key_dim};
    const int low = linear_layer(e, layer, "attention.decay_low", n, "attention.decay_low", GATE_RANK),
              logits = linear_layer(e, layer, "attention.decay", low, "attention.decay_logits", dim[1]);
    const int y = emit_new_statistic(e, layer, "attention.decay", 2, dim);
    emit_forward(e, OP_LOG_SIGMOID, layer, GIVEN(LOG_SIGMOID, [INPUT(LOG_SIGMOID, x)] = emit_whole_operand(e, logits)),
                 MADE(LOG_SIGMOID, [OUTPUT(LOG_SIGMOID, y)] = emit_whole_operand(e, y)),
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(LOG_SIGMOID, divisor)] = {.f = GATE_DIVISOR}});
    return y;
}

// Generation: each sequence's state goes on from its own position on.
static void linear_attend_cached(struct emitter *e, int layer, const struct operand of_token[4], struct operand o) {
    const struct linear_attention *l = &e->config->linear;
    const int64_t sequences = e->batch->sequences;
    const struct operand states = operand_shape(emit_whole_operand(e, e->cache->of[layer][0]), 4,
                                                (int64_t[]){sequences, l->heads, l->key_dim, l->value_dim}),
                         at = operand_shape(emit_whole_operand(e, e->cache->at), 2, (int64_t[]){sequences, 1}),
                         given = operand_shape(emit_whole_operand(e, e->cache->given), 2, (int64_t[]){sequences, 1});
    for (int64_t s = 0; s < sequences; s++) {
        const struct operand state = emit_sequence(states, s), made = emit_sequence(o, s);
        emit_forward(e, OP_LINEAR_CACHED, layer,
                     GIVEN(LINEAR_CACHED, [INPUT(LINEAR_CACHED, q)] = emit_sequence(of_token[0], s),
                           [INPUT(LINEAR_CACHED, k)] = emit_sequence(of_token[1], s),
                           [INPUT(LINEAR_CACHED, v)] = emit_sequence(of_token[2], s),
                           [INPUT(LINEAR_CACHED, decay)] = emit_sequence(of_token[3], s),
                           [INPUT(LINEAR_CACHED, at)] = emit_sequence(at, s),
                           [INPUT(LINEAR_CACHED, given)] = emit_sequence(given, s),
                           [INPUT(LINEAR_CACHED, state)] = state),
                     MADE(LINEAR_CACHED, [OUTPUT(LINEAR_CACHED, o)] = made, [OUTPUT(LINEAR_CACHED, state1)] = state),
                     (union attribute[OP_MAX_ATTRIBUTES]){
                         [ATTRIBUTE(LINEAR_CACHED, scale)] = {.f = 1 / sqrt((double)l->key_dim)}});
    }
}

// Where ranks have parts of sequences, the states before these are kept for backward.
static void linear_attend(struct emitter *e, int layer, const struct operand of_token[4], struct operand o) {
    const struct linear_attention *l = &e->config->linear;
    const int64_t sequences = e->batch->sequences, parts = e->places.parts;
    const int64_t state[] = {sequences, e->split->linear_heads, l->key_dim, l->value_dim};
    struct operand before = operand_none();
    if (e->cache) {
        linear_attend_cached(e, layer, of_token, o);
        return;
    }
    if (parts > 1)
        before = emit_whole_operand(e, emit_new_statistic(e, layer, "attention.states", 4, state));
    emit_forward(
        e, parts > 1 ? OP_LINEAR_PARTS : OP_LINEAR_ATTENTION, layer, parts > 1 ? 6 : 5,
        (struct operand[]){of_token[0], of_token[1], of_token[2], of_token[3],
                           operand_shape(emit_whole_operand(e, e->starts), 2, (int64_t[]){sequences, e->seq_rows}),
                           emit_whole_operand(e, e->first_position)},
        parts > 1 ? 2 : 1, (struct operand[]){o, before},
        (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(LINEAR_PARTS, scale)] = {.f = 1 / sqrt((double)l->key_dim)},
                                             [ATTRIBUTE(LINEAR_PARTS, parts)] = {.i = parts > 1 ? parts : 0}});
}

static int linear_heads_mixed(struct emitter *e, int layer, int n) {
    const struct linear_attention *l = &e->config->linear;
    const int64_t heads = e->split->linear_heads, keys = heads * l->key_dim, values = heads * l->value_dim;
    const struct emit_band three[] = {{PROJECTIONS[0], PROJECTIONS[0], keys},
                                      {PROJECTIONS[1], PROJECTIONS[1], keys},
                                      {PROJECTIONS[2], PROJECTIONS[2], values}};
    const int qkv = emit_linear(e, layer, "attention.qkv", n, "attention.qkv", three, 3),
              decay = linear_decays(e, layer, n),
              o = emit_new_activation(e, layer, "attention.heads", emit_row_count(e), values);
    linear_attend(e, layer,
                  (struct operand[]){
                      linear_view(e, qkv, 0, l->key_dim, true), linear_view(e, qkv, keys, l->key_dim, true),
                      linear_view(e, qkv, 2 * keys, l->value_dim, true), linear_view(e, decay, 0, l->key_dim, true)},
                  linear_view(e, o, 0, l->value_dim, true));
    return o;
}

static int linear_emit(struct emitter *e, int layer, int x, int onto) {
    const int n = emit_enter(e, layer, "attention.in", emit_norm_before(e, layer, "attention_norm", x));
    const int64_t size = e->config->linear.value_dim, dim[] = {emit_row_count(e), e->split->linear_heads};
    const int heads = linear_heads_mixed(e, layer, n),
              gate = linear_layer(e, layer, "attention.gate", n, "attention.gate", dim[1] * size),
              y = emit_new_activation(e, layer, "attention.gated", dim[0], dim[1] * size),
              rstd = emit_new_statistic(e, layer, "attention.head_norm.rstd", 2, dim);
    emit_forward(e, OP_GATED_RMSNORM, layer,
                 GIVEN(GATED_RMSNORM, [INPUT(GATED_RMSNORM, x)] = linear_view(e, heads, 0, size, false),
                       [INPUT(GATED_RMSNORM, gate)] = linear_view(e, gate, 0, size, false),
                       [INPUT(GATED_RMSNORM, w)] = emit_parameter(e, layer, "attention.head_norm.weight")),
                 MADE(GATED_RMSNORM, [OUTPUT(GATED_RMSNORM, y)] = linear_view(e, y, 0, size, false),
                      [OUTPUT(GATED_RMSNORM, rstd)] = emit_whole_operand(e, rstd)),
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(GATED_RMSNORM, eps)] = {.f = e->config->norm_eps}});
    return emit_out(e, layer, "attention.out", y, onto, "attention_after", "attention.residual");
}

static void linear_cache(struct state_table *state, const struct model_config *c, int layer, int64_t sequences,
                         int64_t context, enum dtype dtype, int out[static CACHE_BUFFERS]) {
    const struct linear_attention *l = &c->linear;
    (void)context;
    char *name = mem_printf("layers.%d.state", layer);
    out[0] = state_add(state, &(struct state_entry){.name = name,
                                                    .dtype = dtype_accumulate(dtype),
                                                    .role = STATE_CACHE,
                                                    .ndim = 4,
                                                    .dim = {sequences, l->heads, l->key_dim, l->value_dim},
                                                    .owner = NONE});
    free(name);
}

static int64_t linear_width(const struct model_config *c) {
    return c->linear.heads * (2 * c->linear.key_dim + c->linear.value_dim);
}

static double linear_flops(const struct model_config *c, const struct layer_kind *kind, int64_t seq_len) {
    (void)kind, (void)seq_len;
    const double width = (double)c->hidden_size, keys = (double)(c->linear.heads * c->linear.key_dim),
                 values = (double)(c->linear.heads * c->linear.value_dim);
    return 6 * (width * (2 * keys + 3 * values + GATE_RANK) + GATE_RANK * keys) +
           12 * keys * (double)c->linear.value_dim;
}

// ---- config.json

static const char *const linear_members[] = {"attn", "num_heads", "expand_k", "expand_v", "hidden_ratio", NULL};

// What only has one value here, as most published models have it.
static trireme_status read_fixed_members(const struct model_reader *r) {
    static const struct {
        const char *name, *value;
    } FIXED[] = {{"use_short_conv", "false"}, {"use_output_gate", "true"},    {"use_gk", "true"},
                 {"use_gv", "false"},         {"elementwise_affine", "true"}, {"fuse_norm", "true"},
                 {"feature_map", "null"},     {"clamp_min", "null"},          {"hidden_act", "\"swish\""}};
    for (size_t i = 0; i < ARRAY_LENGTH(FIXED); i++) {
        char excerpt[JSON_EXCERPT_BYTES];
        const json_t *value = json_object_get(r->root, FIXED[i].name);
        if (value && strcmp(json_excerpt_value(value, excerpt), FIXED[i].value) != 0)
            return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": %s is not supported: %s is", r->where,
                             FIXED[i].name, excerpt, FIXED[i].value);
    }
    int64_t heads = 0;
    TRY(reader_extent(r, "num_kv_heads", JSON_OPTIONAL, &heads));
    if (heads > 0 && heads != r->out->linear.heads)
        return error_set(r->error, TRIREME_ERROR_USAGE,
                         "%s: \"num_kv_heads\": %lld is not supported: as many as num_heads, %lld, are", r->where,
                         (long long)heads, (long long)r->out->linear.heads);
    return TRIREME_OK;
}

// The width of each head, where all have `share` of the model's width together.
static trireme_status read_expansion(const struct model_reader *r, const char *key, double share, int64_t *out) {
    TRY(json_read_number(r->root, r->where, key, JSON_OPTIONAL, DBL_MIN, 64, &share, r->error));
    const int64_t all = (int64_t)((double)r->out->hidden_size * share), heads = r->out->linear.heads;
    if (all == 0 || all % heads != 0)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": num_heads %lld does not divide %lld, %g of %lld",
                         r->where, key, (long long)heads, (long long)all, share, (long long)r->out->hidden_size);
    *out = all / heads;
    return TRIREME_OK;
}

// The settings of layers with softmax attention. Marks those that "attn" lists.
static trireme_status read_softmax(const struct model_reader *r, const json_t *attn, enum layer_type *type,
                                   int64_t *window) {
    static const char LAYERS[] = "layers";
    char where[512];
    const json_t *list = NULL, *one;
    size_t i;
    bool biases = false;
    snprintf(where, sizeof where, "%s: \"attn\"", r->where);
    TRY(json_read_array(attn, where, LAYERS, JSON_REQUIRED, &list, r->error));
    TRY(json_read_integer(attn, where, "window_size", JSON_OPTIONAL, 1, EXTENT_MAX, window, r->error));
    TRY(json_read_number(attn, where, "rope_theta", JSON_OPTIONAL, DBL_MIN, 1e12, &r->out->rope[0].theta, r->error));
    TRY(json_read_boolean(attn, where, "qkv_bias", JSON_OPTIONAL, &biases, r->error));
    if (biases)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"qkv_bias\": true is not supported", where);
    json_array_foreach(list, i, one) {
        const json_int_t layer = json_integer_value(one);
        if (!json_is_integer(one) || layer < 0 || layer >= r->out->num_hidden_layers) {
            char excerpt[JSON_EXCERPT_BYTES];
            return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: \"%s\": expected the number of a layer, found %s",
                             where, LAYERS, json_excerpt_value(one, excerpt));
        }
        type[layer] = *window > 0 ? LAYER_SLIDING : LAYER_FULL;
    }
    return TRIREME_OK;
}

static trireme_status linear_read(const struct model_reader *r) {
    struct model_config *out = r->out;
    if (!r->is->linear || out->num_hidden_layers > LAYERS_MAX) // which model_config_check refuses
        return TRIREME_OK;
    const json_t *attn = NULL;
    int64_t window = 0;
    out->linear.heads = 4;
    TRY(reader_extent(r, "num_heads", JSON_OPTIONAL, &out->linear.heads));
    TRY(read_fixed_members(r));
    TRY(read_expansion(r, "expand_k", 0.5, &out->linear.key_dim));
    TRY(read_expansion(r, "expand_v", 1, &out->linear.value_dim));
    TRY(json_read_object(r->root, r->where, "attn", JSON_OPTIONAL, &attn, r->error));
    enum layer_type *type = mem_alloc((size_t)out->num_hidden_layers * sizeof *type);
    for (int64_t i = 0; i < out->num_hidden_layers; i++)
        type[i] = LAYER_LINEAR;
    trireme_status status = attn ? read_softmax(r, attn, type, &window) : TRIREME_OK;
    if (status == TRIREME_OK) {
        status = windows_set(out, type, out->num_hidden_layers, window, r->error);
        status = status == TRIREME_OK ? status : error_prefix(r->error, status, "%s", r->where);
    }
    free(type);
    return status;
}

// The share of the model's width that all heads have, which gives that width again when it is rounded down.
static json_t *expansion_json(const struct model_config *c, int64_t width) {
    const double all = (double)(width * c->linear.heads), hidden = (double)c->hidden_size, share = all / hidden;
    return json_real(floor(hidden * share) < all ? nextafter(share, 2 * share) : share);
}

static void linear_write(json_t *root, const struct model_config *c, const struct architecture_info *is) {
    if (!is->linear)
        return;
    json_object_set_new(root, "num_heads", json_integer(c->linear.heads));
    json_object_set_new(root, "expand_k", expansion_json(c, c->linear.key_dim));
    json_object_set_new(root, "expand_v", expansion_json(c, c->linear.value_dim));
    json_t *layers = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        if (model_layer(c, i)->mixer == MIXER_ATTENTION)
            json_array_append_new(layers, json_integer(i));
    if (json_array_size(layers) == 0) {
        json_decref(layers);
        json_object_set_new(root, "attn", json_null());
        return;
    }
    const int64_t window = model_sliding_window(c);
    json_t *attn = json_object();
    json_object_set_new(attn, "layers", layers);
    json_object_set_new(attn, "num_heads", json_integer(c->num_attention_heads));
    json_object_set_new(attn, "num_kv_heads", json_integer(c->num_key_value_heads));
    json_object_set_new(attn, "qkv_bias", json_false());
    json_object_set_new(attn, "window_size", window ? json_integer(window) : json_null());
    json_object_set_new(attn, "rope_theta", json_real(c->rope[0].theta));
    json_object_set_new(root, "attn", attn);
}

// ---- which models can be

static bool linear_fits(const struct architecture_info *a, const struct model_config *c) {
    return a->linear == model_has_part(c, &linear_attention_part);
}

static trireme_status linear_check(const struct model_config *c, trireme_error *error) {
    const struct linear_attention *l = &c->linear;
    if (!model_has_part(c, &linear_attention_part))
        return TRIREME_OK;
    const struct {
        const char *name;
        int64_t value;
    } extent[] = {{"linear_attention_heads", l->heads},
                  {"width of keys of linear attention", l->key_dim},
                  {"width of values of linear attention", l->value_dim}};
    for (size_t i = 0; i < ARRAY_LENGTH(extent); i++)
        if (extent[i].value < 1 || extent[i].value > 1 << 16)
            FAIL(TRIREME_ERROR_USAGE, "%s %lld is out of range: from 1 to %d", extent[i].name,
                 (long long)extent[i].value, 1 << 16);
    if (l->heads * MAX(l->key_dim, l->value_dim) > 1 << 20)
        FAIL(TRIREME_ERROR_USAGE, "linear_attention_heads %lld of %lld features are out of range: at most %d",
             (long long)l->heads, (long long)MAX(l->key_dim, l->value_dim), 1 << 20);
    return TRIREME_OK;
}

const struct layer_part linear_attention_part = {.name = "attention",
                                                 .recurrent = true,
                                                 .parameters = linear_parameters,
                                                 .split = linear_split,
                                                 .emit = linear_emit,
                                                 .cache = linear_cache,
                                                 .width = linear_width,
                                                 .flops = linear_flops,
                                                 .read = linear_read,
                                                 .write = linear_write,
                                                 .members = linear_members,
                                                 .fits = linear_fits,
                                                 .check = linear_check};
