// The forward pass of a transformer, for GPT-2 and the Llama family alike. On tensor ranks, attention and MLP each
// begin with communication and end with it (enter, leave); on one rank neither emits anything.
#include "model/emit.h"

#include <math.h>

int tensor_stream(struct program *program) {
    return program_stream(program, "tensor", STREAM_PROMPT);
}

static int parameter_buffer(const struct emitter *e, const char *name) {
    int number = parameter_find(e->table, name);
    return number == NONE ? NONE : e->parameter[number];
}

// The parameter `part` of a layer, or of the model when layer is NONE.
static struct operand emit_parameter(const struct emitter *e, int layer, const char *part) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = parameter_buffer(e, name);
    free(name);
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

static int64_t emit_row_count(const struct emitter *e) {
    return e->sequences * e->seq_len;
}

int64_t emit_stream_rows(const struct emitter *e) {
    return emit_row_count(e) / (e->split->sequence ? e->split->ranks : 1);
}

static int activation_buffer(const struct emitter *e, int layer, const char *part, enum dtype dtype, int ndim,
                             const int64_t *dim) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = program_buffer(e->program, name, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
    free(name);
    return buffer;
}

static int emit_new_activation(const struct emitter *e, int layer, const char *part, int64_t n_rows, int64_t columns) {
    return activation_buffer(e, layer, part, e->dtype, 2, (int64_t[]){n_rows, columns});
}

static int emit_statistic(const struct emitter *e, int layer, const char *part, int ndim, const int64_t *dim) {
    return activation_buffer(e, layer, part, dtype_accumulate(e->dtype), ndim, dim);
}

static void emit(const struct emitter *e, enum op op, int layer, int inputs, const struct operand *in, int outputs,
                 const struct operand *out, const union attribute *attribute) {
    program_emit(e->program, e->template, op, PHASE_FORWARD, layer, inputs, in, outputs, out, attribute);
}

static struct operand emit_whole_operand(const struct emitter *e, int buffer) {
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

// ---- between tensor ranks

static bool emit_is_split(const struct emitter *e) {
    return e->split->ranks > 1;
}

static struct operand emit_flat(const struct emitter *e, int buffer) {
    struct operand operand = emit_whole_operand(e, buffer);
    return operand_shape(operand, 1, (int64_t[]){operand_count(&operand)});
}

// From the rows `x` that this rank holds between layers to what layers work on: all rows, on all ranks of the group.
static int emit_enter(struct emitter *e, int layer, const char *name, int x) {
    if (!emit_is_split(e))
        return x;
    int64_t width = e->program->buffers.item[x].dim[1];
    int y = emit_new_activation(e, layer, name, emit_row_count(e), width);
    if (e->split->sequence) {
        program_communicate(e->program, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program),
                            AXES_TENSOR, emit_whole_operand(e, x), emit_whole_operand(e, y))
            ->layer = layer;
        return y;
    }
    struct operand in = emit_flat(e, x), out = emit_flat(e, y);
    struct instruction *fan =
        program_emit(e->program, e->template, OP_FAN_OUT, PHASE_FORWARD, layer, 1, &in, 1, &out, NULL);
    fan->group = mesh_present(&e->program->mesh, AXES_TENSOR);
    return y;
}

// The way back: sums over the group what each rank made for all rows; returns the rows that this rank holds between
// layers.
static int emit_leave(struct emitter *e, int layer, const char *name, int partial) {
    int y = emit_new_activation(e, layer, name, emit_stream_rows(e), e->program->buffers.item[partial].dim[1]);
    enum op op = e->split->sequence ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
    program_communicate(e->program, e->template, op, PHASE_FORWARD, tensor_stream(e->program), AXES_TENSOR,
                        emit_whole_operand(e, partial), emit_whole_operand(e, y))
        ->layer = layer;
    return y;
}

// ---- layers

// Each rank looks up, for the tokens of all ranks, the rows that it has; sums over the ranks bring them to the tokens.
static int embed_own_rows(struct emitter *e, const char *name) {
    struct program *p = e->program;
    const int64_t all = emit_row_count(e) * e->split->row_ranks;
    const int tokens = activation_buffer(e, NONE, "tokens.all", DTYPE_I32, 1, &all);
    const int part = emit_new_activation(e, NONE, "embedding.own", all, e->config->hidden_size);
    const int x = emit_new_activation(e, NONE, name, emit_row_count(e), e->config->hidden_size);
    program_communicate(p, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program), AXES_SHARD,
                        emit_whole_operand(e, e->tokens), emit_whole_operand(e, tokens));
    emit(e, OP_EMBED, NONE, 3,
         (struct operand[]){emit_whole_operand(e, tokens), e->own_rows, emit_whole_operand(e, e->own_first)}, 1,
         (struct operand[]){emit_whole_operand(e, part)}, NULL);
    program_communicate(p, e->template, OP_REDUCE_SCATTER, PHASE_FORWARD, tensor_stream(e->program), AXES_SHARD,
                        emit_whole_operand(e, part), emit_whole_operand(e, x));
    return x;
}

static int embed_tokens(struct emitter *e, const char *name) {
    if (e->own_rows.buffer != NONE)
        return embed_own_rows(e, name);
    char *part = mem_printf("%s.part", name);
    int x = emit_new_activation(e, NONE, emit_is_split(e) ? part : name, emit_row_count(e), e->config->hidden_size);
    free(part);
    emit(e, OP_EMBED, NONE, 3,
         (struct operand[]){emit_whole_operand(e, e->tokens), emit_parameter(e, NONE, "embed.weight"),
                            emit_whole_operand(e, e->vocab_first)},
         1, (struct operand[]){emit_whole_operand(e, x)}, NULL);
    return emit_is_split(e) ? emit_leave(e, NONE, name, x) : x;
}

// Writes position embeddings for the rows that this rank holds between layers to y, or adds them to it.
static void embed_positions(struct emitter *e, struct operand table, int y, bool add) {
    struct operand positions = emit_whole_operand(e, e->positions);
    if (e->split->sequence)
        positions = operand_part(e->program, positions, AXES_TENSOR);
    program_emit(e->program, e->template, OP_EMBED, PHASE_FORWARD, NONE, 3,
                 (struct operand[]){positions, table, operand_none()}, 1, (struct operand[]){emit_whole_operand(e, y)},
                 NULL)
        ->accumulate = add ? ACCUMULATE_YES : ACCUMULATE_NO;
}

int emit_embedding(struct emitter *e) {
    int x = embed_tokens(e, "embedding");
    struct operand position = emit_parameter(e, NONE, "position.weight");
    if (position.buffer != NONE)
        embed_positions(e, position, x, true);
    return x;
}

int emit_embedding_part(struct emitter *e) {
    return embed_tokens(e, "embedding.own");
}

int emit_positions(struct emitter *e, int x) {
    struct operand position = emit_parameter(e, NONE, "position.weight");
    if (position.buffer == NONE)
        return x;
    int64_t width = e->config->hidden_size;
    int rows_of = emit_new_activation(e, NONE, "position", emit_stream_rows(e), width);
    int y = emit_new_activation(e, NONE, "embedding.positioned", emit_stream_rows(e), width);
    embed_positions(e, position, rows_of, false);
    emit(e, OP_ADD, NONE, 2, (struct operand[]){emit_whole_operand(e, x), emit_whole_operand(e, rows_of)}, 1,
         (struct operand[]){emit_whole_operand(e, y)}, NULL);
    return y;
}

static int emit_norm(struct emitter *e, int layer, const char *norm, int x) {
    int64_t n_rows = e->program->buffers.item[x].dim[0];
    char *weight = mem_printf("%s.weight", norm), *bias = mem_printf("%s.bias", norm),
         *mean = mem_printf("%s.mean", norm), *rstd = mem_printf("%s.rstd", norm);
    int y = emit_new_activation(e, layer, norm, n_rows, e->config->hidden_size);
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.f = e->config->norm_eps}};
    if (e->config->family == FAMILY_GPT2) {
        int m = emit_statistic(e, layer, mean, 1, &n_rows), r = emit_statistic(e, layer, rstd, 1, &n_rows);
        emit(e, OP_LAYERNORM, layer, 3,
             (struct operand[]){emit_whole_operand(e, x), emit_parameter(e, layer, weight),
                                emit_parameter(e, layer, bias)},
             3, (struct operand[]){emit_whole_operand(e, y), emit_whole_operand(e, m), emit_whole_operand(e, r)},
             attribute);
    } else {
        int r = emit_statistic(e, layer, rstd, 1, &n_rows);
        emit(e, OP_RMSNORM, layer, 2, (struct operand[]){emit_whole_operand(e, x), emit_parameter(e, layer, weight)}, 2,
             (struct operand[]){emit_whole_operand(e, y), emit_whole_operand(e, r)}, attribute);
    }
    free(weight), free(bias), free(mean), free(rstd);
    return y;
}

// x W^T + b (+ residual) with the parameters `part`.weight and `part`.bias of the layer.
static int emit_linear(struct emitter *e, int layer, const char *part, int x, int residual, const char *result) {
    char *weight_name = mem_printf("%s.weight", part), *bias_name = mem_printf("%s.bias", part);
    struct operand weight = emit_parameter(e, layer, weight_name), bias = emit_parameter(e, layer, bias_name);
    free(weight_name), free(bias_name);
    int y = emit_new_activation(e, layer, result, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit(e, OP_MATMUL, layer, 4,
         (struct operand[]){emit_whole_operand(e, x), weight, bias, emit_whole_operand(e, residual)}, 1,
         (struct operand[]){emit_whole_operand(e, y)}, NULL);
    return y;
}

// The projection out of a layer, added to the residual stream. Where it is split by columns, each rank has a partial
// sum: bias and residual are added after the reduction.
static int emit_out(struct emitter *e, int layer, const char *part, int x, int residual, const char *result) {
    if (!emit_is_split(e))
        return emit_linear(e, layer, part, x, residual, result);
    char *weight_name = mem_printf("%s.weight", part), *bias_name = mem_printf("%s.bias", part),
         *part_name = mem_printf("%s.part", part), *sum_name = mem_printf("%s.sum", part);
    struct operand weight = emit_parameter(e, layer, weight_name), bias = emit_parameter(e, layer, bias_name);
    int partial = emit_new_activation(e, layer, part_name, emit_row_count(e), weight.dim[0]);
    emit(e, OP_MATMUL, layer, 4, (struct operand[]){emit_whole_operand(e, x), weight, operand_none(), operand_none()},
         1, (struct operand[]){emit_whole_operand(e, partial)}, NULL);
    int sum = emit_leave(e, layer, sum_name, partial);
    int y = emit_new_activation(e, layer, result, emit_stream_rows(e), weight.dim[0]);
    if (bias.buffer != NONE)
        emit(e, OP_ADD_BIAS, layer, 3,
             (struct operand[]){emit_whole_operand(e, sum), emit_whole_operand(e, residual), bias}, 1,
             (struct operand[]){emit_whole_operand(e, y)}, NULL);
    else
        emit(e, OP_ADD, layer, 2, (struct operand[]){emit_whole_operand(e, sum), emit_whole_operand(e, residual)}, 1,
             (struct operand[]){emit_whole_operand(e, y)}, NULL);
    free(weight_name), free(bias_name), free(part_name), free(sum_name);
    return y;
}

// `heads` heads of the packed projection [rows, (q + k + v heads) * head_dim], the first of them number `first`.
static struct operand heads_of(const struct emitter *e, int qkv, int64_t first, int64_t heads) {
    int64_t width = e->program->buffers.item[qkv].dim[1], size = e->config->head_dim;
    struct operand view = {.buffer = qkv, .offset = first * size};
    if (e->cache) {
        view.ndim = 3;
        memcpy(view.dim, (int64_t[]){emit_row_count(e), heads, size}, 3 * sizeof(int64_t));
        memcpy(view.stride, (int64_t[]){width, size, 1}, 3 * sizeof(int64_t));
    } else {
        view.ndim = 4;
        memcpy(view.dim, (int64_t[]){e->sequences, e->seq_len, heads, size}, 4 * sizeof(int64_t));
        memcpy(view.stride, (int64_t[]){e->seq_len * width, width, size, 1}, 4 * sizeof(int64_t));
    }
    return view;
}

// Packed projections of a layer: queries, keys and values in one buffer, or queries apart from the others.
struct projections {
    int queries, others; // the same buffer when together
};

static int emit_attention(struct emitter *e, int layer, struct projections in) {
    const struct model_config *c = e->config;
    int64_t h = e->split->heads, g = e->split->kv_heads, size = c->head_dim;
    int64_t first = in.queries == in.others ? h : 0;
    struct operand q = heads_of(e, in.queries, 0, h), k = heads_of(e, in.others, first, g),
                   v = heads_of(e, in.others, first + g, g);
    int o = emit_new_activation(e, layer, "attention.heads", emit_row_count(e), h * size);
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.f = 1 / sqrt((double)size)}, {.i = c->sliding_window}};
    if (e->cache) {
        struct operand keys = emit_whole_operand(e, e->cache->keys[layer]),
                       values = emit_whole_operand(e, e->cache->values[layer]);
        struct operand at = emit_whole_operand(e, e->cache->at);
        emit(e, OP_CACHE_APPEND, layer, 5, (struct operand[]){k, v, at, keys, values}, 2,
             (struct operand[]){keys, values}, NULL);
        emit(e, OP_ATTENTION_CACHED, layer, 4, (struct operand[]){q, keys, values, at}, 1,
             (struct operand[]){operand_shape(emit_whole_operand(e, o), 3, (int64_t[]){emit_row_count(e), h, size})},
             attribute);
        return o;
    }
    int lse = emit_statistic(e, layer, "attention.lse", 3, (int64_t[]){e->sequences, h, e->seq_len});
    struct operand starts = operand_shape(emit_whole_operand(e, e->starts), 2, (int64_t[]){e->sequences, e->seq_len});
    struct operand heads = operand_shape(emit_whole_operand(e, o), 4, (int64_t[]){e->sequences, e->seq_len, h, size});
    emit(e, OP_ATTENTION, layer, 4, (struct operand[]){q, k, v, starts}, 2,
         (struct operand[]){heads, emit_whole_operand(e, lse)}, attribute);
    if (e->heads_end == NONE)
        return o;
    int kept = emit_new_activation(e, layer, "attention.kept", emit_row_count(e), h * size);
    emit(e, OP_KEEP_COLUMNS, layer, 2,
         (struct operand[]){emit_whole_operand(e, o), emit_whole_operand(e, e->heads_end)}, 1,
         (struct operand[]){emit_whole_operand(e, kept)}, NULL);
    return kept;
}

// Norm and rotation of the `heads` query heads and `kv_heads` key heads with which packed projection `x` begins.
static int emit_positioned(struct emitter *e, int layer, int x, int64_t heads, int64_t kv_heads, const char *suffix) {
    const struct model_config *c = e->config;
    int64_t columns = e->program->buffers.item[x].dim[1];
    char *norm = mem_printf("attention.qk_norm%s", suffix), *rstd_name = mem_printf("%s.rstd", norm),
         *rope = mem_printf("attention.rope%s", suffix);
    if (c->qk_norm) {
        int y = emit_new_activation(e, layer, norm, emit_row_count(e), columns);
        int rstd = emit_statistic(e, layer, rstd_name, 2, (int64_t[]){emit_row_count(e), heads + kv_heads});
        emit(e, OP_QKNORM, layer, 3,
             (struct operand[]){emit_whole_operand(e, x), emit_parameter(e, layer, "attention.q_norm.weight"),
                                emit_parameter(e, layer, "attention.k_norm.weight")},
             2, (struct operand[]){emit_whole_operand(e, y), emit_whole_operand(e, rstd)},
             (union attribute[OP_MAX_ATTRIBUTES]){{.i = heads}, {.i = kv_heads}, {.f = c->norm_eps}});
        x = y;
    }
    if (e->rope != NONE) {
        int y = emit_new_activation(e, layer, rope, emit_row_count(e), columns);
        emit(e, OP_ROPE, layer, 3,
             (struct operand[]){emit_whole_operand(e, x), emit_whole_operand(e, e->positions),
                                emit_whole_operand(e, e->rope)},
             1, (struct operand[]){emit_whole_operand(e, y)},
             (union attribute[OP_MAX_ATTRIBUTES]){{.i = heads + kv_heads}});
        x = y;
    }
    free(norm), free(rstd_name), free(rope);
    return x;
}

static struct projections emit_projections(struct emitter *e, int layer, int n) {
    int64_t h = e->split->heads, g = e->split->kv_heads;
    if (e->split->copies == 1) {
        int qkv = emit_linear(e, layer, "attention.qkv", n, NONE, "attention.qkv");
        qkv = emit_positioned(e, layer, qkv, h, g, "");
        return (struct projections){qkv, qkv};
    }
    int q = emit_linear(e, layer, "attention.q", n, NONE, "attention.q");
    int kv = emit_linear(e, layer, "attention.kv", n, NONE, "attention.kv");
    q = emit_positioned(e, layer, q, h, 0, ".q");
    return (struct projections){q, emit_positioned(e, layer, kv, 0, g, ".kv")};
}

static int emit_activation(struct emitter *e, int layer, int up) {
    int y = emit_new_activation(e, layer, "mlp.activation", emit_row_count(e), e->split->intermediate_size);
    bool gated = e->config->activation == ACTIVATION_SWIGLU;
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.i = !gated && e->config->activation == ACTIVATION_GELU_TANH}};
    emit(e, gated ? OP_SWIGLU : OP_GELU, layer, 1, (struct operand[]){emit_whole_operand(e, up)}, 1,
         (struct operand[]){emit_whole_operand(e, y)}, attribute);
    return y;
}

int emit_layer(struct emitter *e, int layer, int x) {
    int n = emit_enter(e, layer, "attention.in", emit_norm(e, layer, "attention_norm", x));
    int heads = emit_attention(e, layer, emit_projections(e, layer, n));
    x = emit_out(e, layer, "attention.out", heads, x, "attention.residual");
    n = emit_enter(e, layer, "mlp.in", emit_norm(e, layer, "mlp_norm", x));
    int up = emit_linear(e, layer, "mlp.up", n, NONE, "mlp.up");
    int a = emit_activation(e, layer, up);
    return emit_out(e, layer, "mlp.down", a, x, "residual");
}

int emit_final_norm(struct emitter *e, int x) {
    return emit_enter(e, NONE, "head.in", emit_norm(e, NONE, "norm", x));
}

int emit_head(struct emitter *e, int x, const char *name) {
    struct operand weight = emit_parameter(e, NONE, e->config->tie_word_embeddings ? "embed.weight" : "head.weight");
    int logits = emit_new_activation(e, NONE, name, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit(e, OP_MATMUL, NONE, 4, (struct operand[]){emit_whole_operand(e, x), weight, operand_none(), operand_none()}, 1,
         (struct operand[]){emit_whole_operand(e, logits)}, NULL);
    return logits;
}
