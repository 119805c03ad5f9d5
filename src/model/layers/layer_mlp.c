// The feed-forward: two matrices with a function between them (GPT-2), or with a gate beside the first (Shazeer 2020).
// Tensor ranks have some of its columns.
#include "model/layer.h"

static bool mlp_is_gated(const struct model_config *c) {
    return c->activation >= ACTIVATION_SWIGLU;
}

// Gate and what it lets through, where they are two tensors.
static const char *const MLP_UP[] = {"mlp.gate_proj", "mlp.up_proj"};

static int mlp_tensors(const struct model_config *c) {
    return architecture_names(c)->up[1] ? 2 : 1;
}

// Rows of the first matrix: of the gate, if there is one, and then those that it lets through.
static struct run mlp_columns(const struct splitter *s) {
    return split_part(s->split->intermediate_size, s->index, s->config->intermediate_size);
}

static void mlp_split_up(const struct splitter *s, const struct parameter *p) {
    struct parameter *local = split_add(s, p, p->name, CLASS_SPLIT);
    for (int64_t at = 0; at < parameter_rows(p); at += s->config->intermediate_size)
        split_add_rows(local, p, mlp_columns(s), at);
}

static void mlp_split_down(const struct splitter *s, const struct parameter *p) {
    split_add_columns(split_add(s, p, p->name, CLASS_SPLIT), p, mlp_columns(s));
}

// The gate and what it lets through: two tensors, or one; and what has no gate.
static void mlp_pieces(struct builder *b, struct parameter *p) {
    const struct tensor_names *names = architecture_names(b->config);
    const int tensors = mlp_tensors(b->config);
    for (int i = 0; i < tensors; i++)
        builder_tensor(b, p, names->up[i], p->dim[0] / tensors);
    if (tensors == 1 && mlp_is_gated(b->config))
        builder_matrix_from(p, p->dim[0] / 2);
}

static void mlp_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    const struct tensor_names *names = architecture_names(c);
    int64_t width = c->hidden_size, inner = c->intermediate_size, rows = (mlp_is_gated(c) ? 2 : 1) * inner;
    mlp_pieces(b, builder_matrix(b, "mlp.up.weight", rows, width, builder_std(b), mlp_split_up));
    builder_tensor(b, builder_matrix(b, "mlp.down.weight", width, inner, builder_residual_std(b), mlp_split_down),
                   names->down, width);
    for (int i = 0; i < mlp_tensors(c); i++)
        builder_adapter(b, mlp_tensors(c) > 1 ? MLP_UP[i] : "mlp.up", names->up[i], rows / mlp_tensors(c), width, 0,
                        split_share, mlp_split_up);
    builder_adapter(b, "mlp.down", names->down, width, inner, 0, mlp_split_down, NULL);
    if (c->form.norms != NORM_AFTER && !model_shares_norm(c))
        builder_norm(b, "mlp_norm", names->mlp_norm);
    if (c->form.norms != NORM_BEFORE)
        builder_norm(b, "mlp_after", names->mlp_after);
    if (!(c->family == FAMILY_GPT2 ? c->bias : c->mlp_bias))
        return;
    mlp_pieces(b, builder_vector(b, "mlp.up.bias", NULL, rows, INIT_ZERO, mlp_split_up));
    builder_tensor(b, builder_vector(b, "mlp.down.bias", NULL, width, INIT_ZERO, NULL), names->down, width);
}

static trireme_status mlp_split(struct model_split *split, const struct model_config *c, trireme_error *error) {
    TRY(split_check(c->intermediate_size, "MLP column", split->ranks, error));
    split->intermediate_size = divide_up(c->intermediate_size, split->ranks);
    return TRIREME_OK;
}

static int mlp_activation(struct emitter *e, int layer, int up) {
    int y = emit_new_activation(e, layer, "mlp.activation", emit_row_count(e), e->split->intermediate_size);
    const enum activation activation = e->config->activation;
    const struct operand in = emit_whole_operand(e, up), out = emit_whole_operand(e, y);
    const bool tanh = activation == ACTIVATION_GELU_TANH || activation == ACTIVATION_GEGLU_TANH;
    _Static_assert((int)ATTRIBUTE(GELU, tanh) == (int)ATTRIBUTE(GEGLU, tanh), "in one place");
    emit_forward(e,
                 activation == ACTIVATION_SWIGLU ? OP_SWIGLU
                 : mlp_is_gated(e->config)       ? OP_GEGLU
                                                 : OP_GELU,
                 layer, 1, &in, 1, &out, (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(GELU, tanh)] = {.i = tanh}});
    return y;
}

static int mlp_emit(struct emitter *e, int layer, int x, int onto) {
    int n = emit_enter(e, layer, "mlp.in", emit_norm_before(e, layer, "mlp_norm", x));
    const int64_t inner = e->split->intermediate_size;
    const struct emit_band two[] = {{MLP_UP[0], MLP_UP[0], inner}, {MLP_UP[1], MLP_UP[1], inner}},
                           one = {"mlp.up", "mlp.up", mlp_is_gated(e->config) ? 2 * inner : inner};
    int up = mlp_tensors(e->config) > 1 ? emit_linear(e, layer, "mlp.up", n, "mlp.up", two, 2)
                                        : emit_linear(e, layer, "mlp.up", n, "mlp.up", &one, 1);
    return emit_out(e, layer, "mlp.down", mlp_activation(e, layer, up), onto, "mlp_after", "residual");
}

static int64_t mlp_width(const struct model_config *c) {
    return 2 * c->intermediate_size;
}

static double mlp_flops(const struct model_config *c, const struct layer_kind *kind, int64_t seq_len) {
    (void)kind, (void)seq_len;
    return 6 * (double)c->hidden_size * (double)c->intermediate_size * (mlp_is_gated(c) ? 3 : 2);
}

const struct layer_part mlp_part = {.name = "mlp",
                                    .parameters = mlp_parameters,
                                    .split = mlp_split,
                                    .emit = mlp_emit,
                                    .width = mlp_width,
                                    .flops = mlp_flops};
