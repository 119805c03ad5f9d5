// The feed-forward: two matrices with a function between them (GPT-2), or with a gate beside the first (Shazeer 2020).
// Tensor ranks have some of its columns.
#include "model/layer.h"

static bool mlp_is_gated(const struct model_config *c) {
    return c->activation == ACTIVATION_SWIGLU;
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

static void mlp_gpt2_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    int64_t width = c->hidden_size, inner = c->intermediate_size;
    builder_single(b, builder_matrix(b, "mlp.up.weight", inner, width, builder_std(b), mlp_split_up), "mlp.c_fc.weight",
                   true);
    builder_single(b, builder_matrix(b, "mlp.down.weight", width, inner, builder_residual_std(b), mlp_split_down),
                   "mlp.c_proj.weight", true);
    builder_norm(b, "mlp_norm", "ln_2");
    if (!c->bias)
        return;
    builder_vector(b, "mlp.up.bias", "mlp.c_fc.bias", inner, INIT_ZERO, mlp_split_up);
    builder_vector(b, "mlp.down.bias", "mlp.c_proj.bias", width, INIT_ZERO, NULL);
}

static void mlp_llama_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    int64_t width = c->hidden_size, inner = c->intermediate_size;
    struct parameter *up = builder_matrix(b, "mlp.up.weight", 2 * inner, width, builder_std(b), mlp_split_up);
    builder_piece(b, up, "mlp.gate_proj.weight", inner, false);
    builder_piece(b, up, "mlp.up_proj.weight", inner, false);
    builder_single(b, builder_matrix(b, "mlp.down.weight", width, inner, builder_residual_std(b), mlp_split_down),
                   "mlp.down_proj.weight", false);
    builder_norm(b, "mlp_norm", "post_attention_layernorm");
    if (!c->mlp_bias)
        return;
    struct parameter *bias = builder_vector(b, "mlp.up.bias", NULL, 2 * inner, INIT_ZERO, mlp_split_up);
    builder_piece(b, bias, "mlp.gate_proj.bias", inner, false);
    builder_piece(b, bias, "mlp.up_proj.bias", inner, false);
    builder_vector(b, "mlp.down.bias", "mlp.down_proj.bias", width, INIT_ZERO, NULL);
}

static void mlp_parameters(struct builder *b) {
    if (b->config->family == FAMILY_GPT2)
        mlp_gpt2_parameters(b);
    else
        mlp_llama_parameters(b);
}

static trireme_status mlp_split(struct model_split *split, const struct model_config *c, trireme_error *error) {
    TRY(split_check(c->intermediate_size, "MLP column", split->ranks, error));
    split->intermediate_size = divide_up(c->intermediate_size, split->ranks);
    return TRIREME_OK;
}

static int mlp_activation(struct emitter *e, int layer, int up) {
    int y = emit_new_activation(e, layer, "mlp.activation", emit_row_count(e), e->split->intermediate_size);
    bool gated = mlp_is_gated(e->config);
    const struct operand in = emit_whole_operand(e, up), out = emit_whole_operand(e, y);
    if (gated)
        emit_forward(e, OP_SWIGLU, layer, 1, &in, 1, &out, NULL);
    else
        emit_forward(e, OP_GELU, layer, 1, &in, 1, &out,
                     (union attribute[OP_MAX_ATTRIBUTES]){
                         [ATTRIBUTE(GELU, tanh)] = {.i = e->config->activation == ACTIVATION_GELU_TANH}});
    return y;
}

static int mlp_emit(struct emitter *e, int layer, int x) {
    int n = emit_enter(e, layer, "mlp.in", emit_norm(e, layer, "mlp_norm", x));
    int up = emit_linear(e, layer, "mlp.up", n, "mlp.up");
    return emit_out(e, layer, "mlp.down", mlp_activation(e, layer, up), x, "residual");
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
