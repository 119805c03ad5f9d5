// Attention with grouped key-value heads (Ainslie et al. 2023): one packed projection into queries, keys and values,
// which may be normed and rotated, and one out of the heads. Tensor ranks have some of the heads. Where there are fewer
// key-value heads than ranks, queries are apart from keys and values, of which some ranks have copies.
#include "model/layer.h"
#include "model/layers/layer_windows.h"

#include <math.h>

// What adapters of queries, keys and values are called, where these are three tensors.
static const char *const PROJECTIONS[] = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};

enum { KEYS, VALUES }; // what generation keeps (emit_cache): [sequences * context, kv_heads, head_dim] each

// ---- parameters

static void attention_split_qkv(const struct splitter *s, const struct parameter *p);
static void attention_split_out(const struct splitter *s, const struct parameter *p);
static void attention_split_queries(const struct splitter *s, const struct parameter *p);
static void attention_split_keys(const struct splitter *s, const struct parameter *p);

// struct parameter_piece, heads: of the one tensor of queries, keys and values.
static int64_t attention_interleaved(const struct model_config *c) {
    return architecture_names(c)->interleaved ? c->num_attention_heads : 0;
}

// Queries, keys and values: three tensors, or one.
static void attention_pieces(struct builder *b, struct parameter *p) {
    const struct model_config *c = b->config;
    const struct tensor_names *names = architecture_names(c);
    const int64_t rows[] = {c->num_attention_heads * c->head_dim, c->num_key_value_heads * c->head_dim,
                            c->num_key_value_heads * c->head_dim};
    if (!names->qkv[1])
        builder_tensor(b, p, names->qkv[0], p->dim[0])->heads = attention_interleaved(c);
    if (!names->qkv[1] && !names->transposed) {
        builder_matrix_from(p, rows[0]);
        builder_matrix_from(p, rows[0] + rows[1]);
    }
    for (int i = 0; i < 3 && names->qkv[1]; i++)
        builder_tensor(b, p, names->qkv[i], rows[i]);
}

static void attention_qk_norms(struct builder *b) {
    const struct model_config *c = b->config;
    const bool whole = c->qk_norm == QK_NORM_WIDTH;
    const int64_t q = whole ? c->num_attention_heads : 1, k = whole ? c->num_key_value_heads : 1;
    const enum parameter_init init = c->form.norm == NORM_RMS_PLUS_ONE ? INIT_ZERO : INIT_ONE;
    builder_vector(b, "attention.q_norm.weight", "self_attn.q_norm.weight", q * c->head_dim, init,
                   whole ? attention_split_queries : split_share);
    builder_vector(b, "attention.k_norm.weight", "self_attn.k_norm.weight", k * c->head_dim, init,
                   whole ? attention_split_keys : split_share);
}

static void attention_adapters(struct builder *b, int64_t q, int64_t kv) {
    const struct tensor_names *names = architecture_names(b->config);
    const int64_t width = b->config->hidden_size;
    if (!names->qkv[1])
        builder_adapter(b, "attention.qkv", names->qkv[0], q + 2 * kv, width, attention_interleaved(b->config),
                        split_share, attention_split_qkv);
    for (int i = 0; i < 3 && names->qkv[1]; i++)
        builder_adapter(b, PROJECTIONS[i], names->qkv[i], i == 0 ? q : kv, width, 0, split_share,
                        i == 0 ? attention_split_queries : attention_split_keys);
    builder_adapter(b, "attention.out", names->out, width, q, 0, attention_split_out, NULL);
}

static void attention_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    const struct tensor_names *names = architecture_names(c);
    const bool gpt2 = c->family == FAMILY_GPT2;
    int64_t width = c->hidden_size, q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    attention_pieces(b,
                     builder_matrix(b, "attention.qkv.weight", q + 2 * kv, width, builder_std(b), attention_split_qkv));
    builder_tensor(b, builder_matrix(b, "attention.out.weight", width, q, builder_residual_std(b), attention_split_out),
                   names->out, width);
    attention_adapters(b, q, kv);
    if (c->form.norms != NORM_AFTER)
        builder_norm(b, "attention_norm", names->attention_norm);
    if (c->form.norms != NORM_BEFORE)
        builder_norm(b, "attention_after", names->attention_after);
    if (c->qk_norm)
        attention_qk_norms(b);
    if (gpt2 ? c->bias : c->attention_bias)
        attention_pieces(b, builder_vector(b, "attention.qkv.bias", NULL, q + 2 * kv, INIT_ZERO, attention_split_qkv));
    if (gpt2 ? c->bias : c->attention_output_bias)
        builder_tensor(b, builder_vector(b, "attention.out.bias", NULL, width, INIT_ZERO, NULL), names->out, width);
}

// ---- splitting

static trireme_status attention_split(struct model_split *split, const struct model_config *c, trireme_error *error) {
    int ranks = split->ranks;
    TRY(split_check(c->num_attention_heads, "head", ranks, error));
    int64_t queries = c->num_attention_heads / c->num_key_value_heads, groups = c->num_key_value_heads;
    if (groups >= ranks) {
        split->kv_heads = divide_up(groups, ranks);
    } else {
        while (ranks % groups)
            groups++;
        split->copies = ranks / (int)groups;
        split->kv_heads = 1;
    }
    split->heads = split->kv_heads * divide_up(queries, split->copies);
    return TRIREME_OK;
}

static struct run kv_heads(const struct splitter *s) {
    return split_part(s->split->kv_heads, s->index / s->split->copies, s->config->num_key_value_heads);
}

static struct run query_heads(const struct splitter *s) {
    int64_t queries = s->config->num_attention_heads / s->config->num_key_value_heads;
    struct run groups = kv_heads(s);
    if (s->split->copies == 1)
        return split_scaled(groups, queries);
    // One key-value head, whose queries are dealt out to the copies.
    struct run own = split_part(s->split->heads, s->index % s->split->copies, queries);
    own.first += groups.first * queries;
    own.valid = groups.valid ? own.valid : 0;
    return own;
}

int64_t model_split_heads(const struct model_split *split, const struct model_config *config, int index) {
    const struct splitter s = {.config = config, .split = split, .index = index};
    return query_heads(&s).valid;
}

static void attention_split_qkv(const struct splitter *s, const struct parameter *p) {
    int64_t size = s->config->head_dim, q = s->config->num_attention_heads * size;
    int64_t kv = s->config->num_key_value_heads * size;
    struct run queries = split_scaled(query_heads(s), size), keys = split_scaled(kv_heads(s), size);
    if (s->split->copies == 1) {
        struct parameter *local = split_add(s, p, p->name, CLASS_SPLIT);
        split_add_rows(local, p, queries, 0);
        split_add_rows(local, p, keys, q);
        split_add_rows(local, p, keys, q + kv);
        return;
    }
    // "attention.qkv.weight" becomes "attention.q.weight" and "attention.kv.weight".
    const char *dot = strrchr(p->name, '.');
    int stem = (int)(dot - p->name) - 3;
    char *name[2] = {mem_printf("%.*sq%s", stem, p->name, dot), mem_printf("%.*skv%s", stem, p->name, dot)};
    split_add_rows(split_add(s, p, name[0], CLASS_SPLIT), p, queries, 0);
    struct parameter *local = split_add(s, p, name[1], CLASS_KV);
    split_add_rows(local, p, keys, q);
    split_add_rows(local, p, keys, q + kv);
    free(name[0]);
    free(name[1]);
}

static void attention_split_out(const struct splitter *s, const struct parameter *p) {
    split_add_columns(split_add(s, p, p->name, CLASS_SPLIT), p, split_scaled(query_heads(s), s->config->head_dim));
}

// Rows of one tensor: the rank's queries, or keys or values; norms over the width have a weight for each.
static void attention_split_queries(const struct splitter *s, const struct parameter *p) {
    split_add_rows(split_add(s, p, p->name, CLASS_SPLIT), p, split_scaled(query_heads(s), s->config->head_dim), 0);
}

static void attention_split_keys(const struct splitter *s, const struct parameter *p) {
    split_add_rows(split_add(s, p, p->name, s->split->copies == 1 ? CLASS_SPLIT : CLASS_KV), p,
                   split_scaled(kv_heads(s), s->config->head_dim), 0);
}

// ---- emitting

// `heads` heads of packed projections, those of `length` rows of each sequence, the first of them number `first`.
static struct operand heads_of(const struct emitter *e, int qkv, int64_t length, int64_t first, int64_t heads) {
    int64_t width = e->program->buffers.item[qkv].dim[1], size = e->config->head_dim;
    struct operand view = {.buffer = qkv, .offset = first * size, .ndim = 4};
    memcpy(view.dim, (int64_t[]){e->batch->sequences, length, heads, size}, 4 * sizeof(int64_t));
    memcpy(view.stride, (int64_t[]){length * width, width, size, 1}, 4 * sizeof(int64_t));
    return view;
}

// Sequence `number` of a view whose first dim counts sequences.
static struct operand sequence_view(struct operand view, int64_t number) {
    view.offset += number * view.stride[0];
    view.ndim--;
    memmove(view.dim, view.dim + 1, (size_t)view.ndim * sizeof *view.dim);
    memmove(view.stride, view.stride + 1, (size_t)view.ndim * sizeof *view.stride);
    return view;
}

// Generation: each sequence's rows join its own cache from its own position on, and attend to it.
static void attention_cached(struct emitter *e, int layer, const struct operand qkv[3], struct operand out,
                             const union attribute *how) {
    const struct emit_cache *cache = e->cache;
    const struct model_config *c = e->config;
    const int64_t sequences = e->batch->sequences;
    const int64_t kept[] = {sequences, cache->context, c->num_key_value_heads, c->head_dim};
    const struct operand keys = operand_shape(emit_whole_operand(e, cache->of[layer][KEYS]), 4, kept),
                         values = operand_shape(emit_whole_operand(e, cache->of[layer][VALUES]), 4, kept),
                         at = operand_shape(emit_whole_operand(e, cache->at), 2, (int64_t[]){sequences, 1});
    for (int64_t s = 0; s < sequences; s++) {
        const struct operand kc = sequence_view(keys, s), vc = sequence_view(values, s), from = sequence_view(at, s),
                             heads = sequence_view(out, s);
        emit_forward(e, OP_CACHE_APPEND, layer,
                     GIVEN(CACHE_APPEND, [INPUT(CACHE_APPEND, k)] = sequence_view(qkv[1], s),
                           [INPUT(CACHE_APPEND, v)] = sequence_view(qkv[2], s), [INPUT(CACHE_APPEND, at)] = from,
                           [INPUT(CACHE_APPEND, kc)] = kc, [INPUT(CACHE_APPEND, vc)] = vc),
                     MADE(CACHE_APPEND, [OUTPUT(CACHE_APPEND, kc1)] = kc, [OUTPUT(CACHE_APPEND, vc1)] = vc), NULL);
        emit_forward(e, OP_ATTENTION_CACHED, layer,
                     GIVEN(ATTENTION_CACHED, [INPUT(ATTENTION_CACHED, q)] = sequence_view(qkv[0], s),
                           [INPUT(ATTENTION_CACHED, kc)] = kc, [INPUT(ATTENTION_CACHED, vc)] = vc,
                           [INPUT(ATTENTION_CACHED, at)] = from),
                     1, &heads, how);
    }
}

// Packed projections of a layer: queries, keys and values in one buffer, or queries apart from the others.
struct projections {
    int queries, others; // the same buffer when together
};

// Sequence `number` of a buffer that has `length` rows of each.
static int sequence_of(const struct emitter *e, int buffer, int64_t number, int64_t length) {
    const struct buffer b = e->program->buffers.item[buffer];
    if (e->batch->sequences == 1)
        return buffer;
    char *name = mem_printf("%s.%lld", b.name, (long long)number);
    int slice = program_slice(e->program, buffer, name, number * length * b.dim[1], 2, (int64_t[]){length, b.dim[1]});
    free(name);
    return slice;
}

// Keys and values of all rows of the sequences of which ranks have parts: [sequences * seq_len, 2 * kv_heads *
// head_dim].
static int attention_gather(struct emitter *e, int layer, struct projections in) {
    const struct model_config *c = e->config;
    const int64_t heads = 2 * e->split->kv_heads, width = heads * c->head_dim;
    int own = in.others;
    if (in.queries == in.others) {
        own = emit_new_activation(e, layer, "attention.kv.own", emit_row_count(e), width);
        const int64_t dim[3] = {e->batch->sequences, e->seq_rows, width};
        const struct operand packed = heads_of(e, in.others, e->seq_rows, e->split->heads, heads);
        struct operand from = {.buffer = packed.buffer, .offset = packed.offset, .ndim = 3};
        memcpy(from.dim, dim, sizeof dim);
        memcpy(from.stride, (int64_t[]){packed.stride[0], packed.stride[1], 1}, sizeof dim);
        emit_forward(e, OP_COPY, layer, 1, &from, 1,
                     (struct operand[]){operand_shape(emit_whole_operand(e, own), 3, dim)}, NULL);
    }
    int all = emit_new_activation(e, layer, "attention.kv.all", e->batch->sequences * e->batch->seq_len, width);
    for (int64_t s = 0; s < e->batch->sequences; s++)
        program_communicate(e->program, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program),
                            AXES_PARTS, emit_whole_operand(e, sequence_of(e, own, s, e->seq_rows)),
                            emit_whole_operand(e, sequence_of(e, all, s, e->batch->seq_len)))
            ->layer = layer;
    return all;
}

static int attention_heads(struct emitter *e, int layer, struct projections in) {
    const struct model_config *c = e->config;
    const bool gathers = e->first_position != NONE;
    int64_t h = e->split->heads, g = e->split->kv_heads, size = c->head_dim;
    int64_t first = in.queries == in.others && !gathers ? h : 0;
    int others = gathers ? attention_gather(e, layer, in) : in.others;
    struct operand q = heads_of(e, in.queries, e->seq_rows, 0, h), k = heads_of(e, others, e->batch->seq_len, first, g),
                   v = heads_of(e, others, e->batch->seq_len, first + g, g);
    int o = emit_new_activation(e, layer, "attention.heads", emit_row_count(e), h * size);
    const double scale = 1 / sqrt(c->attention_scalar > 0 ? c->attention_scalar : (double)size), cap = c->attention_cap;
    const int64_t window = model_layer(c, layer)->sliding_window;
    struct operand heads =
        operand_shape(emit_whole_operand(e, o), 4, (int64_t[]){e->batch->sequences, e->seq_rows, h, size});
    if (e->cache) {
        attention_cached(e, layer, (struct operand[]){q, k, v}, heads,
                         (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ATTENTION_CACHED, scale)] = {.f = scale},
                                                              [ATTRIBUTE(ATTENTION_CACHED, window)] = {.i = window},
                                                              [ATTRIBUTE(ATTENTION_CACHED, cap)] = {.f = cap}});
        return o;
    }
    int lse = emit_new_statistic(e, layer, "attention.lse", 3, (int64_t[]){e->batch->sequences, h, e->seq_rows});
    struct operand starts =
        operand_shape(emit_whole_operand(e, e->starts), 2, (int64_t[]){e->batch->sequences, e->seq_rows});
    emit_forward(e, OP_ATTENTION, layer,
                 GIVEN(ATTENTION, [INPUT(ATTENTION, q)] = q, [INPUT(ATTENTION, k)] = k, [INPUT(ATTENTION, v)] = v,
                       [INPUT(ATTENTION, starts)] = starts,
                       [INPUT(ATTENTION, first)] = emit_whole_operand(e, e->first_position)),
                 MADE(ATTENTION, [OUTPUT(ATTENTION, o)] = heads, [OUTPUT(ATTENTION, lse)] = emit_whole_operand(e, lse)),
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ATTENTION, scale)] = {.f = scale},
                                                      [ATTRIBUTE(ATTENTION, window)] = {.i = window},
                                                      [ATTRIBUTE(ATTENTION, cap)] = {.f = cap}});
    if (e->heads_end == NONE)
        return o;
    int kept = emit_new_activation(e, layer, "attention.kept", emit_row_count(e), h * size);
    emit_forward(e, OP_KEEP_COLUMNS, layer,
                 GIVEN(KEEP_COLUMNS, [INPUT(KEEP_COLUMNS, x)] = emit_whole_operand(e, o),
                       [INPUT(KEEP_COLUMNS, end)] = emit_whole_operand(e, e->heads_end)),
                 MADE(KEEP_COLUMNS, [OUTPUT(KEEP_COLUMNS, y)] = emit_whole_operand(e, kept)), NULL);
    return kept;
}

// Columns [first, first + columns) of all rows of a buffer, in the shape that copies have.
static struct operand band_of(const struct emitter *e, int buffer, int64_t first, int64_t columns, int ndim) {
    const int64_t width = e->program->buffers.item[buffer].dim[1];
    struct operand view = {.buffer = buffer, .offset = first, .ndim = ndim};
    const int64_t dim[] = {e->batch->sequences, e->seq_rows, columns}, stride[] = {e->seq_rows * width, width, 1};
    memcpy(view.dim, ndim == 3 ? dim : (int64_t[]){emit_row_count(e), columns}, (size_t)ndim * sizeof *dim);
    memcpy(view.stride, ndim == 3 ? stride : stride + 1, (size_t)ndim * sizeof *stride);
    return view;
}

// Sums of squares of rows of which the ranks along `axes` have parts: those of whole rows.
static int attention_squares(struct emitter *e, int layer, const char *name, struct operand x, axis_set axes) {
    const int64_t rows = emit_row_count(e);
    char *part_name = mem_printf("%s.part", name), *sum_name = mem_printf("%s.sum", name);
    const bool split = mesh_present(&e->program->mesh, axes);
    int s = emit_new_statistic(e, layer, split ? part_name : name, 1, &rows);
    struct operand out = emit_whole_operand(e, s);
    emit_forward(e, OP_ROW_SQUARES, layer, 1, &x, 1, &out, NULL);
    if (split) {
        int sum = emit_new_statistic(e, layer, sum_name, 1, &rows), all = emit_new_statistic(e, layer, name, 1, &rows);
        program_communicate(e->program, e->template, OP_ALL_REDUCE, PHASE_FORWARD, tensor_stream(e->program), axes, out,
                            emit_whole_operand(e, sum))
            ->layer = layer;
        // Each rank's columns have their own share in the gradient of the sum.
        struct operand from = emit_whole_operand(e, sum), to = emit_whole_operand(e, all);
        program_emit(e->program, e->template, OP_FAN_OUT, PHASE_FORWARD, layer, 1, &from, 1, &to, NULL)->group =
            mesh_present(&e->program->mesh, axes);
        s = all;
    }
    free(part_name), free(sum_name);
    return s;
}

// RMS norm of all queries of a row together, with which packed projection `x` begins, and of all keys, which follow;
// values are copied.
static int attention_width_norm(struct emitter *e, int layer, int x, int64_t heads, int64_t kv_heads,
                                const char *norm) {
    const struct model_config *c = e->config;
    const int64_t size = c->head_dim, columns = e->program->buffers.item[x].dim[1];
    const struct {
        const char *name;
        int64_t heads, of;
        axis_set axes;
    } band[] = {{"q", heads, c->num_attention_heads, AXES_TENSOR}, {"k", kv_heads, c->num_key_value_heads, AXES_TP}};
    int y = emit_new_activation(e, layer, norm, emit_row_count(e), columns);
    int64_t at = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(band); at += band[i++].heads * size) {
        if (band[i].heads == 0)
            continue;
        char *weight = mem_printf("attention.%s_norm.weight", band[i].name),
             *squares = mem_printf("attention.%s_norm.squares", band[i].name);
        const struct operand from = band_of(e, x, at, band[i].heads * size, 2);
        const int s = attention_squares(e, layer, squares, from, band[i].axes);
        emit_forward(e, OP_ROW_NORM, layer,
                     GIVEN(ROW_NORM, [INPUT(ROW_NORM, x)] = from, [INPUT(ROW_NORM, s)] = emit_whole_operand(e, s),
                           [INPUT(ROW_NORM, w)] = emit_parameter(e, layer, weight)),
                     MADE(ROW_NORM, [OUTPUT(ROW_NORM, y)] = band_of(e, y, at, band[i].heads * size, 2)),
                     (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ROW_NORM, width)] = {.i = band[i].of * size},
                                                          [ATTRIBUTE(ROW_NORM, eps)] = {.f = c->norm_eps}});
        free(weight), free(squares);
    }
    if (at < columns) {
        const struct operand from = band_of(e, x, at, columns - at, 3), to = band_of(e, y, at, columns - at, 3);
        emit_forward(e, OP_COPY, layer, 1, &from, 1, &to, NULL);
    }
    return y;
}

// Norm and rotation of the `heads` query heads and `kv_heads` key heads with which packed projection `x` begins.
static int attention_positioned(struct emitter *e, int layer, int x, int64_t heads, int64_t kv_heads,
                                const char *suffix) {
    const struct model_config *c = e->config;
    int64_t columns = e->program->buffers.item[x].dim[1];
    const double plus = c->form.norm == NORM_RMS_PLUS_ONE;
    const int64_t number = model_layer(c, layer)->rope, table = number == NONE ? NONE : e->rope[number];
    char *norm = mem_printf("attention.qk_norm%s", suffix), *rstd_name = mem_printf("%s.rstd", norm),
         *rope = mem_printf("attention.rope%s", suffix);
    if (c->qk_norm == QK_NORM_WIDTH)
        x = attention_width_norm(e, layer, x, heads, kv_heads, norm);
    if (c->qk_norm == QK_NORM_HEADS) {
        int y = emit_new_activation(e, layer, norm, emit_row_count(e), columns);
        int rstd = emit_new_statistic(e, layer, rstd_name, 2, (int64_t[]){emit_row_count(e), heads + kv_heads});
        emit_forward(e, OP_QKNORM, layer,
                     GIVEN(QKNORM, [INPUT(QKNORM, x)] = emit_whole_operand(e, x),
                           [INPUT(QKNORM, wq)] = emit_parameter(e, layer, "attention.q_norm.weight"),
                           [INPUT(QKNORM, wk)] = emit_parameter(e, layer, "attention.k_norm.weight")),
                     MADE(QKNORM, [OUTPUT(QKNORM, y)] = emit_whole_operand(e, y),
                          [OUTPUT(QKNORM, rstd)] = emit_whole_operand(e, rstd)),
                     (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(QKNORM, heads)] = {.i = heads},
                                                          [ATTRIBUTE(QKNORM, kv_heads)] = {.i = kv_heads},
                                                          [ATTRIBUTE(QKNORM, eps)] = {.f = c->norm_eps},
                                                          [ATTRIBUTE(QKNORM, plus)] = {.f = plus}});
        x = y;
    }
    if (table != NONE) {
        const int64_t width = model_rotary_dim(c) < c->head_dim ? c->head_dim : 0;
        int y = emit_new_activation(e, layer, rope, emit_row_count(e), columns);
        emit_forward(e, OP_ROPE, layer,
                     GIVEN(ROPE, [INPUT(ROPE, x)] = emit_whole_operand(e, x),
                           [INPUT(ROPE, pos)] = emit_row_numbers(e, e->positions),
                           [INPUT(ROPE, table)] = emit_whole_operand(e, (int)table)),
                     MADE(ROPE, [OUTPUT(ROPE, y)] = emit_whole_operand(e, y)),
                     (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ROPE, heads)] = {.i = heads + kv_heads},
                                                          [ATTRIBUTE(ROPE, width)] = {.i = width}});
        x = y;
    }
    free(norm), free(rstd_name), free(rope);
    return x;
}

// Queries, keys and values, or the first or the last of them: `from` up to `to`, of the three.
static int attention_linear(struct emitter *e, int layer, const char *part, int n, int from, int to) {
    const int64_t size = e->config->head_dim, q = e->split->heads * size, kv = e->split->kv_heads * size;
    const struct emit_band three[] = {{PROJECTIONS[0], PROJECTIONS[0], q},
                                      {PROJECTIONS[1], PROJECTIONS[1], kv},
                                      {PROJECTIONS[2], PROJECTIONS[2], kv}};
    struct emit_band one = {"attention.qkv", part, 0};
    for (int i = from; i < to; i++)
        one.columns += three[i].columns;
    return architecture_names(e->config)->qkv[1] ? emit_linear(e, layer, part, n, part, three + from, to - from)
                                                 : emit_linear(e, layer, part, n, part, &one, 1);
}

static struct projections attention_projections(struct emitter *e, int layer, int n) {
    int64_t h = e->split->heads, g = e->split->kv_heads;
    if (e->split->copies == 1) {
        int qkv = attention_linear(e, layer, "attention.qkv", n, 0, 3);
        qkv = attention_positioned(e, layer, qkv, h, g, "");
        return (struct projections){qkv, qkv};
    }
    int q = attention_linear(e, layer, "attention.q", n, 0, 1);
    int kv = attention_linear(e, layer, "attention.kv", n, 1, 3);
    q = attention_positioned(e, layer, q, h, 0, ".q");
    return (struct projections){q, attention_positioned(e, layer, kv, 0, g, ".kv")};
}

static int attention_emit(struct emitter *e, int layer, int x, int onto) {
    int n = emit_enter(e, layer, "attention.in", emit_norm_before(e, layer, "attention_norm", x));
    int heads = attention_heads(e, layer, attention_projections(e, layer, n));
    return emit_out(e, layer, "attention.out", heads, onto, "attention_after", "attention.residual");
}

static void attention_cache(struct state_table *state, const struct model_config *c, int layer, int64_t rows,
                            enum dtype dtype, int out[static CACHE_BUFFERS]) {
    static const char *const NAME[] = {[KEYS] = "keys", [VALUES] = "values"};
    for (int i = 0; i < CACHE_BUFFERS; i++) {
        char *name = mem_printf("layers.%d.%s", layer, NAME[i]);
        out[i] = state_add(state, &(struct state_entry){.name = name,
                                                        .dtype = dtype,
                                                        .role = STATE_CACHE,
                                                        .ndim = 3,
                                                        .dim = {rows, c->num_key_value_heads, c->head_dim},
                                                        .owner = NONE});
        free(name);
    }
}

static int64_t attention_width(const struct model_config *c) {
    return c->num_attention_heads * c->head_dim;
}

static double attention_flops(const struct model_config *c, const struct layer_kind *kind, int64_t seq_len) {
    double width = (double)c->hidden_size, q = (double)(c->num_attention_heads * c->head_dim);
    double kv = (double)(c->num_key_value_heads * c->head_dim);
    int64_t reach = kind->sliding_window > 0 ? MIN(seq_len, kind->sliding_window) : seq_len;
    return 6 * (width * (q + 2 * kv) + q * width) + 12 * q * (double)reach;
}

const struct layer_part attention_part = {.name = "attention",
                                          .parameters = attention_parameters,
                                          .split = attention_split,
                                          .emit = attention_emit,
                                          .cache = attention_cache,
                                          .width = attention_width,
                                          .flops = attention_flops,
                                          .read = windows_read,
                                          .write = windows_write,
                                          .members = windows_members,
                                          .fits = windows_fit,
                                          .check = windows_check,
                                          .override = windows_override,
                                          .describe = windows_describe,
                                          .differ = windows_differ};
