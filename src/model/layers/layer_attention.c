// Attention with grouped key-value heads (Ainslie et al. 2023): one packed projection into queries, keys and values,
// which may be normed and rotated, and one out of the heads. Tensor ranks have some of the heads. Where there are fewer
// key-value heads than ranks, queries are apart from keys and values, of which some ranks have copies.
#include "model/layer.h"
#include "model/layers/attention_ranks.h"
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
static void attention_split_sinks(const struct splitter *s, const struct parameter *p);

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

// A weight for each element of each head; heads are tensors of their own.
static void attention_head_norms(struct builder *b, const char *name, const char *hf, int64_t heads,
                                 parameter_rule *rule) {
    const int64_t size = b->config->head_dim;
    struct parameter *p = builder_vector(b, name, NULL, heads * size, INIT_ONE, rule);
    for (int64_t h = 0; h < heads; h++) {
        char *tensor = mem_printf("self_attn.%s.norms.%lld.weight", hf, (long long)h);
        builder_piece(b, p, tensor, size, false);
        free(tensor);
    }
}

static void attention_qk_norms(struct builder *b) {
    const struct model_config *c = b->config;
    if (c->qk_norm == QK_NORM_LAYER) {
        attention_head_norms(b, "attention.q_norm.weight", "q_layernorm", c->num_attention_heads,
                             attention_split_queries);
        attention_head_norms(b, "attention.k_norm.weight", "k_layernorm", c->num_key_value_heads, attention_split_keys);
        return;
    }
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
    if (c->attention_sinks)
        builder_vector(b, "attention.sinks", "self_attn.sinks", c->num_attention_heads, INIT_ZERO,
                       attention_split_sinks);
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

static void attention_split_sinks(const struct splitter *s, const struct parameter *p) {
    split_add_rows(split_add(s, p, p->name, CLASS_SPLIT), p, query_heads(s), 0);
}

// ---- emitting

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
        const struct operand kc = emit_sequence(keys, s), vc = emit_sequence(values, s), from = emit_sequence(at, s),
                             heads = emit_sequence(out, s);
        emit_forward(e, OP_CACHE_APPEND, layer,
                     GIVEN(CACHE_APPEND, [INPUT(CACHE_APPEND, k)] = emit_sequence(qkv[1], s),
                           [INPUT(CACHE_APPEND, v)] = emit_sequence(qkv[2], s), [INPUT(CACHE_APPEND, at)] = from,
                           [INPUT(CACHE_APPEND, kc)] = kc, [INPUT(CACHE_APPEND, vc)] = vc),
                     MADE(CACHE_APPEND, [OUTPUT(CACHE_APPEND, kc1)] = kc, [OUTPUT(CACHE_APPEND, vc1)] = vc), NULL);
        emit_forward(e, OP_ATTENTION_CACHED, layer,
                     GIVEN(ATTENTION_CACHED, [INPUT(ATTENTION_CACHED, q)] = emit_sequence(qkv[0], s),
                           [INPUT(ATTENTION_CACHED, kc)] = kc, [INPUT(ATTENTION_CACHED, vc)] = vc,
                           [INPUT(ATTENTION_CACHED, at)] = from,
                           [INPUT(ATTENTION_CACHED, sinks)] = emit_parameter(e, layer, "attention.sinks")),
                     1, &heads, how);
    }
}

static double attention_scale(const struct model_config *c) {
    const double scalar = c->attention_scalar > 0 ? c->attention_scalar : (double)c->head_dim;
    return c->attention_multiplier > 0 ? c->attention_multiplier : 1 / sqrt(scalar);
}

// Attention of these projections; by parts where ranks share sequences and each has its own keys. Returns a buffer of
// what heads have made, [sequences * rows, heads * head_dim].
static int attention_attend(struct emitter *e, int layer, struct projections in, struct operand starts,
                            const char *result) {
    const struct model_config *c = e->config;
    const int64_t first = in.queries == in.others ? in.heads : 0, size = c->head_dim, n = e->batch->sequences;
    const struct operand q = attention_heads_of(e, in.queries, in.rows, 0, in.heads),
                         k = attention_heads_of(e, in.others, in.keys, first, in.kv_heads),
                         v = attention_heads_of(e, in.others, in.keys, first + in.kv_heads, in.kv_heads);
    const int o = emit_new_activation(e, layer, result, n * in.rows, in.heads * size);
    const double scale = attention_scale(c), cap = c->attention_cap;
    const int64_t window = model_layer(c, layer)->sliding_window;
    const struct operand heads = operand_shape(emit_whole_operand(e, o), 4, (int64_t[]){n, in.rows, in.heads, size});
    if (e->cache) {
        attention_cached(e, layer, (struct operand[]){q, k, v}, heads,
                         (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ATTENTION_CACHED, scale)] = {.f = scale},
                                                              [ATTRIBUTE(ATTENTION_CACHED, window)] = {.i = window},
                                                              [ATTRIBUTE(ATTENTION_CACHED, cap)] = {.f = cap}});
        return o;
    }
    const int64_t numbers[] = {n, in.heads, in.rows};
    const int lse = emit_new_statistic(e, layer, "attention.lse", 3, numbers);
    const struct operand sinks = emit_parameter(e, layer, "attention.sinks");
    struct operand sunk = operand_none();
    if (sinks.buffer != NONE)
        sunk = emit_whole_operand(e, emit_new_statistic(e, layer, "attention.sunk", 3, numbers));
    const bool parts = e->places.parts > 1, by_parts = parts && !e->gathers_keys;
    emit_forward(e, by_parts ? OP_ATTENTION_PARTS : OP_ATTENTION, layer,
                 GIVEN(ATTENTION, [INPUT(ATTENTION, q)] = q, [INPUT(ATTENTION, k)] = k, [INPUT(ATTENTION, v)] = v,
                       [INPUT(ATTENTION, starts)] = starts,
                       [INPUT(ATTENTION, first)] = emit_whole_operand(e, e->first_position),
                       [INPUT(ATTENTION, sinks)] = sinks),
                 MADE(ATTENTION, [OUTPUT(ATTENTION, o)] = heads, [OUTPUT(ATTENTION, lse)] = emit_whole_operand(e, lse),
                      [OUTPUT(ATTENTION, sunk)] = sunk),
                 (union attribute[OP_MAX_ATTRIBUTES]){
                     [ATTRIBUTE(ATTENTION, scale)] = {.f = scale},
                     [ATTRIBUTE(ATTENTION, window)] = {.i = window},
                     [ATTRIBUTE(ATTENTION, cap)] = {.f = cap},
                     [ATTRIBUTE(ATTENTION_PARTS, layout)] = {.i = by_parts ? e->places.layout : 0},
                     [ATTRIBUTE(ATTENTION_PARTS, parts)] = {.i = by_parts ? e->places.parts : 0}});
    return o;
}

static int attention_heads(struct emitter *e, int layer, struct projections in) {
    struct operand starts = emit_whole_operand(e, e->starts);
    if (e->starts != NONE)
        starts =
            operand_shape(starts, 2, (int64_t[]){e->batch->sequences, operand_count(&starts) / e->batch->sequences});
    int o;
    if (e->exchange) {
        o = attention_attend(e, layer, attention_exchange(e, layer, in), starts, "attention.made");
        o = attention_return(e, layer, o, &in);
    } else {
        const bool gathers = e->places.parts > 1 && e->gathers_keys;
        o = attention_attend(e, layer, gathers ? attention_gather(e, layer, in) : in, starts, "attention.heads");
    }
    if (e->cache || e->heads_end == NONE)
        return o;
    int kept = emit_new_activation(e, layer, "attention.kept", emit_row_count(e), in.heads * e->config->head_dim);
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

// Columns of a packed projection: the rank's heads, from column `at` on, of all `of` that the ranks along `axes` have.
struct normed_band {
    const char *name;
    int64_t heads, of;
    axis_set axes;
    int64_t at;
};

// RMS norm of all heads of a row together.
static void attention_width_norm(struct emitter *e, int layer, int x, int y, const struct normed_band *band) {
    const struct model_config *c = e->config;
    const int64_t size = c->head_dim;
    char *weight = mem_printf("attention.%s_norm.weight", band->name),
         *squares = mem_printf("attention.%s_norm.squares", band->name);
    const struct operand from = band_of(e, x, band->at, band->heads * size, 2);
    const int s = attention_squares(e, layer, squares, from, band->axes);
    emit_forward(e, OP_ROW_NORM, layer,
                 GIVEN(ROW_NORM, [INPUT(ROW_NORM, x)] = from, [INPUT(ROW_NORM, s)] = emit_whole_operand(e, s),
                       [INPUT(ROW_NORM, w)] = emit_parameter(e, layer, weight)),
                 MADE(ROW_NORM, [OUTPUT(ROW_NORM, y)] = band_of(e, y, band->at, band->heads * size, 2)),
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(ROW_NORM, width)] = {.i = band->of * size},
                                                      [ATTRIBUTE(ROW_NORM, eps)] = {.f = c->norm_eps}});
    free(weight), free(squares);
}

// The heads of a band: [rows, heads, size].
static struct operand heads_of_band(const struct emitter *e, int buffer, const struct normed_band *band) {
    const int64_t width = e->program->buffers.item[buffer].dim[1], size = e->config->head_dim;
    struct operand view = {.buffer = buffer, .offset = band->at, .ndim = 3};
    memcpy(view.dim, (int64_t[]){emit_row_count(e), band->heads, size}, 3 * sizeof(int64_t));
    memcpy(view.stride, (int64_t[]){width, size, 1}, 3 * sizeof(int64_t));
    return view;
}

// LayerNorm of each head.
static void attention_layer_norm(struct emitter *e, int layer, int x, int y, const struct normed_band *band) {
    const int64_t dim[] = {band->heads, emit_row_count(e)}, of_weight[] = {band->heads, e->config->head_dim};
    char *weight = mem_printf("attention.%s_norm.weight", band->name),
         *mean = mem_printf("attention.%s_norm.mean", band->name),
         *rstd = mem_printf("attention.%s_norm.rstd", band->name);
    const int m = emit_new_statistic(e, layer, mean, 2, dim), r = emit_new_statistic(e, layer, rstd, 2, dim);
    emit_forward(e, OP_LAYERNORM_HEADS, layer,
                 GIVEN(LAYERNORM_HEADS, [INPUT(LAYERNORM_HEADS, x)] = heads_of_band(e, x, band),
                       [INPUT(LAYERNORM_HEADS, w)] = operand_shape(emit_parameter(e, layer, weight), 2, of_weight)),
                 MADE(LAYERNORM_HEADS, [OUTPUT(LAYERNORM_HEADS, y)] = heads_of_band(e, y, band),
                      [OUTPUT(LAYERNORM_HEADS, mean)] = emit_whole_operand(e, m),
                      [OUTPUT(LAYERNORM_HEADS, rstd)] = emit_whole_operand(e, r)),
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(LAYERNORM_HEADS, eps)] = {.f = e->config->norm_eps}});
    free(weight), free(mean), free(rstd);
}

// Norms of queries, with which packed projection `x` begins, and of keys, which follow; values are copied.
static int attention_normed_bands(struct emitter *e, int layer, int x, int64_t heads, int64_t kv_heads,
                                  const char *norm) {
    const struct model_config *c = e->config;
    const int64_t size = c->head_dim, columns = e->program->buffers.item[x].dim[1], at = (heads + kv_heads) * size;
    const struct normed_band band[] = {{"q", heads, c->num_attention_heads, AXES_TENSOR, 0},
                                       {"k", kv_heads, c->num_key_value_heads, AXES_TP, heads * size}};
    int y = emit_new_activation(e, layer, norm, emit_row_count(e), columns);
    for (size_t i = 0; i < ARRAY_LENGTH(band); i++)
        if (band[i].heads > 0)
            (c->qk_norm == QK_NORM_WIDTH ? attention_width_norm : attention_layer_norm)(e, layer, x, y, &band[i]);
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
    if (c->qk_norm == QK_NORM_WIDTH || c->qk_norm == QK_NORM_LAYER)
        x = attention_normed_bands(e, layer, x, heads, kv_heads, norm);
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
        return (struct projections){qkv, qkv, e->seq_rows, e->seq_rows, h, g};
    }
    int q = attention_linear(e, layer, "attention.q", n, 0, 1);
    int kv = attention_linear(e, layer, "attention.kv", n, 1, 3);
    q = attention_positioned(e, layer, q, h, 0, ".q");
    return (struct projections){q, attention_positioned(e, layer, kv, 0, g, ".kv"), e->seq_rows, e->seq_rows, h, g};
}

static int attention_emit(struct emitter *e, int layer, int x, int onto) {
    int n = emit_enter(e, layer, "attention.in", emit_norm_before(e, layer, "attention_norm", x));
    int heads = attention_heads(e, layer, attention_projections(e, layer, n));
    return emit_out(e, layer, "attention.out", heads, onto, "attention_after", "attention.residual");
}

static void attention_cache(struct state_table *state, const struct model_config *c, int layer, int64_t sequences,
                            int64_t context, enum dtype dtype, int out[static CACHE_BUFFERS]) {
    static const char *const NAME[] = {[KEYS] = "keys", [VALUES] = "values"};
    for (int i = 0; i < CACHE_BUFFERS; i++) {
        char *name = mem_printf("layers.%d.%s", layer, NAME[i]);
        out[i] =
            state_add(state, &(struct state_entry){.name = name,
                                                   .dtype = dtype,
                                                   .role = STATE_CACHE,
                                                   .ndim = 3,
                                                   .dim = {sequences * context, c->num_key_value_heads, c->head_dim},
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
