// The end of a model: the norm after the last layer, and the output head, which may be the embedding.
#include "model/layer.h"

static void head_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    const struct tensor_names *names = architecture_names(c);
    if (!c->tie_word_embeddings)
        builder_vocabulary(b, "head.weight", names->head);
    char *norm = mem_printf("%s%s", names->base, names->final_norm);
    builder_norm(b, "norm", norm);
    free(norm);
}

static double head_flops(const struct model_config *c, const struct layer_kind *kind, int64_t seq_len) {
    (void)kind, (void)seq_len;
    return 6 * (double)c->vocab_size * (double)c->hidden_size;
}

int emit_final_norm(struct emitter *e, int x) {
    return emit_enter(e, NONE, "head.in", emit_norm(e, NONE, "norm", x));
}

int emit_head(struct emitter *e, int x, const char *name) {
    struct operand weight = emit_parameter(e, NONE, e->config->tie_word_embeddings ? "embed.weight" : "head.weight");
    const double cap = e->config->logits_cap;
    const int64_t rows = e->program->buffers.item[x].dim[0];
    char *raw_name = mem_printf("%s.raw", name);
    int raw = emit_new_activation(e, NONE, cap > 0 ? raw_name : name, rows, weight.dim[0]);
    free(raw_name);
    emit_forward(e, OP_MATMUL, NONE,
                 GIVEN(MATMUL, [INPUT(MATMUL, x)] = emit_whole_operand(e, x), [INPUT(MATMUL, w)] = weight,
                       [INPUT(MATMUL, b)] = operand_none(), [INPUT(MATMUL, r)] = operand_none()),
                 MADE(MATMUL, [OUTPUT(MATMUL, y)] = emit_whole_operand(e, raw)), NULL);
    if (cap == 0)
        return raw;
    int logits = emit_new_activation(e, NONE, name, rows, weight.dim[0]);
    const struct operand in = emit_whole_operand(e, raw), out = emit_whole_operand(e, logits);
    emit_forward(e, OP_SOFTCAP, NONE, 1, &in, 1, &out,
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(SOFTCAP, cap)] = {.f = cap}});
    return logits;
}

const struct layer_part head_part = {.name = "head", .parameters = head_parameters, .flops = head_flops};
