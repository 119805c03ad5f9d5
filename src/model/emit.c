#include "model/emit.h"

#include <math.h>

static int parameter_buffer(const struct emitter *e, const char *name) {
    for (size_t i = 0; i < e->table->parameters.count; i++)
        if (strcmp(e->table->parameters.item[i].name, name) == 0)
            return e->parameter[i];
    return NONE;
}

// The parameter `part` of a layer, or of the model when layer is NONE.
static struct operand parameter(const struct emitter *e, int layer, const char *part) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = parameter_buffer(e, name);
    free(name);
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

static int64_t rows(const struct emitter *e) {
    return e->sequences * e->seq_len;
}

static int activation_buffer(const struct emitter *e, int layer, const char *part, enum dtype dtype, int ndim,
                             const int64_t *dim) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = program_buffer(e->program, name, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
    free(name);
    return buffer;
}

static int activation(const struct emitter *e, int layer, const char *part, int64_t n_rows, int64_t columns) {
    return activation_buffer(e, layer, part, e->dtype, 2, (int64_t[]){n_rows, columns});
}

static int statistic(const struct emitter *e, int layer, const char *part, int ndim, const int64_t *dim) {
    return activation_buffer(e, layer, part, dtype_accumulate(e->dtype), ndim, dim);
}

static void emit(const struct emitter *e, enum op op, int layer, int inputs, const struct operand *in, int outputs,
                 const struct operand *out, const union attribute *attribute) {
    program_emit(e->program, e->template, op, PHASE_FORWARD, layer, inputs, in, outputs, out, attribute);
}

static struct operand whole(const struct emitter *e, int buffer) {
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

int emit_embedding(struct emitter *e) {
    int x = activation(e, NONE, "embedding", rows(e), e->config->hidden_size);
    emit(e, OP_EMBED, NONE, 3,
         (struct operand[]){whole(e, e->tokens), parameter(e, NONE, "embed.weight"), operand_none()}, 1,
         (struct operand[]){whole(e, x)}, NULL);
    struct operand position = parameter(e, NONE, "position.weight");
    if (position.buffer != NONE) {
        struct instruction *add = program_emit(e->program, e->template, OP_EMBED, PHASE_FORWARD, NONE, 3,
                                               (struct operand[]){whole(e, e->positions), position, operand_none()}, 1,
                                               (struct operand[]){whole(e, x)}, NULL);
        add->accumulate = ACCUMULATE_YES;
    }
    return x;
}

static int emit_norm(struct emitter *e, int layer, const char *norm, int x) {
    int64_t n_rows = e->program->buffers.item[x].dim[0];
    char *weight = mem_printf("%s.weight", norm), *bias = mem_printf("%s.bias", norm),
         *mean = mem_printf("%s.mean", norm), *rstd = mem_printf("%s.rstd", norm);
    int y = activation(e, layer, norm, n_rows, e->config->hidden_size);
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.f = e->config->norm_eps}};
    if (e->config->family == FAMILY_GPT2) {
        int m = statistic(e, layer, mean, 1, &n_rows), r = statistic(e, layer, rstd, 1, &n_rows);
        emit(e, OP_LAYERNORM, layer, 3,
             (struct operand[]){whole(e, x), parameter(e, layer, weight), parameter(e, layer, bias)}, 3,
             (struct operand[]){whole(e, y), whole(e, m), whole(e, r)}, attribute);
    } else {
        int r = statistic(e, layer, rstd, 1, &n_rows);
        emit(e, OP_RMSNORM, layer, 2, (struct operand[]){whole(e, x), parameter(e, layer, weight)}, 2,
             (struct operand[]){whole(e, y), whole(e, r)}, attribute);
    }
    free(weight), free(bias), free(mean), free(rstd);
    return y;
}

// x W^T + b (+ residual) with the parameters `part`.weight and `part`.bias of the layer.
static int emit_linear(struct emitter *e, int layer, const char *part, int x, int residual, const char *result) {
    char *weight_name = mem_printf("%s.weight", part), *bias_name = mem_printf("%s.bias", part);
    struct operand weight = parameter(e, layer, weight_name), bias = parameter(e, layer, bias_name);
    free(weight_name), free(bias_name);
    int y = activation(e, layer, result, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit(e, OP_MATMUL, layer, 4, (struct operand[]){whole(e, x), weight, bias, whole(e, residual)}, 1,
         (struct operand[]){whole(e, y)}, NULL);
    return y;
}

// `heads` heads of the packed projection [rows, (q + k + v heads) * head_dim], the first of them number `first`.
static struct operand heads_of(const struct emitter *e, int qkv, int64_t first, int64_t heads) {
    int64_t width = e->program->buffers.item[qkv].dim[1], size = e->config->head_dim;
    struct operand view = {.buffer = qkv, .offset = first * size};
    if (e->cache) {
        view.ndim = 3;
        memcpy(view.dim, (int64_t[]){rows(e), heads, size}, 3 * sizeof(int64_t));
        memcpy(view.stride, (int64_t[]){width, size, 1}, 3 * sizeof(int64_t));
    } else {
        view.ndim = 4;
        memcpy(view.dim, (int64_t[]){e->sequences, e->seq_len, heads, size}, 4 * sizeof(int64_t));
        memcpy(view.stride, (int64_t[]){e->seq_len * width, width, size, 1}, 4 * sizeof(int64_t));
    }
    return view;
}

static int emit_attention(struct emitter *e, int layer, int qkv) {
    const struct model_config *c = e->config;
    int64_t h = c->num_attention_heads, g = c->num_key_value_heads, size = c->head_dim;
    struct operand q = heads_of(e, qkv, 0, h), k = heads_of(e, qkv, h, g), v = heads_of(e, qkv, h + g, g);
    int o = activation(e, layer, "attention.heads", rows(e), h * size);
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.f = 1 / sqrt((double)size)}, {.i = c->sliding_window}};
    if (e->cache) {
        struct operand keys = whole(e, e->cache->keys[layer]), values = whole(e, e->cache->values[layer]);
        struct operand at = whole(e, e->cache->at);
        emit(e, OP_CACHE_APPEND, layer, 5, (struct operand[]){k, v, at, keys, values}, 2,
             (struct operand[]){keys, values}, NULL);
        emit(e, OP_ATTENTION_CACHED, layer, 4, (struct operand[]){q, keys, values, at}, 1,
             (struct operand[]){operand_shape(whole(e, o), 3, (int64_t[]){rows(e), h, size})}, attribute);
        return o;
    }
    int lse = statistic(e, layer, "attention.lse", 3, (int64_t[]){e->sequences, h, e->seq_len});
    struct operand starts = operand_shape(whole(e, e->starts), 2, (int64_t[]){e->sequences, e->seq_len});
    struct operand heads = operand_shape(whole(e, o), 4, (int64_t[]){e->sequences, e->seq_len, h, size});
    emit(e, OP_ATTENTION, layer, 4, (struct operand[]){q, k, v, starts}, 2, (struct operand[]){heads, whole(e, lse)},
         attribute);
    return o;
}

static int emit_qk_norm(struct emitter *e, int layer, int qkv) {
    const struct model_config *c = e->config;
    int64_t h = c->num_attention_heads, g = c->num_key_value_heads;
    int y = activation(e, layer, "attention.qk_norm", rows(e), e->program->buffers.item[qkv].dim[1]);
    int rstd = statistic(e, layer, "attention.qk_norm.rstd", 2, (int64_t[]){rows(e), h + g});
    emit(e, OP_QKNORM, layer, 3,
         (struct operand[]){whole(e, qkv), parameter(e, layer, "attention.q_norm.weight"),
                            parameter(e, layer, "attention.k_norm.weight")},
         2, (struct operand[]){whole(e, y), whole(e, rstd)},
         (union attribute[OP_MAX_ATTRIBUTES]){{.i = h}, {.i = g}, {.f = c->norm_eps}});
    return y;
}

static int emit_rope(struct emitter *e, int layer, int qkv) {
    int y = activation(e, layer, "attention.rope", rows(e), e->program->buffers.item[qkv].dim[1]);
    emit(e, OP_ROPE, layer, 3, (struct operand[]){whole(e, qkv), whole(e, e->positions), whole(e, e->rope)}, 1,
         (struct operand[]){whole(e, y)},
         (union attribute[OP_MAX_ATTRIBUTES]){{.i = e->config->num_attention_heads + e->config->num_key_value_heads}});
    return y;
}

static int emit_activation(struct emitter *e, int layer, int up) {
    int y = activation(e, layer, "mlp.activation", rows(e), e->config->intermediate_size);
    bool gated = e->config->activation == ACTIVATION_SWIGLU;
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.i = !gated && e->config->activation == ACTIVATION_GELU_TANH}};
    emit(e, gated ? OP_SWIGLU : OP_GELU, layer, 1, (struct operand[]){whole(e, up)}, 1, (struct operand[]){whole(e, y)},
         attribute);
    return y;
}

int emit_layer(struct emitter *e, int layer, int x) {
    int n = emit_norm(e, layer, "attention_norm", x);
    int qkv = emit_linear(e, layer, "attention.qkv", n, NONE, "attention.qkv");
    if (e->config->qk_norm)
        qkv = emit_qk_norm(e, layer, qkv);
    if (e->rope != NONE)
        qkv = emit_rope(e, layer, qkv);
    int heads = emit_attention(e, layer, qkv);
    x = emit_linear(e, layer, "attention.out", heads, x, "attention.residual");
    n = emit_norm(e, layer, "mlp_norm", x);
    int up = emit_linear(e, layer, "mlp.up", n, NONE, "mlp.up");
    int a = emit_activation(e, layer, up);
    return emit_linear(e, layer, "mlp.down", a, x, "residual");
}

int emit_final_norm(struct emitter *e, int x) {
    return emit_norm(e, NONE, "norm", x);
}

int emit_head(struct emitter *e, int x, const char *name) {
    struct operand weight = parameter(e, NONE, e->config->tie_word_embeddings ? "embed.weight" : "head.weight");
    int logits = activation(e, NONE, name, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit(e, OP_MATMUL, NONE, 4, (struct operand[]){whole(e, x), weight, operand_none(), operand_none()}, 1,
         (struct operand[]){whole(e, logits)}, NULL);
    return logits;
}
