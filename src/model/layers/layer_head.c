// The end of a model: the norm after the last layer, and the output head, which may be the embedding.
#include "model/layer.h"

static void head_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    if (!c->tie_word_embeddings)
        builder_vocabulary(b, "head.weight", "lm_head.weight");
    builder_norm(b, "norm", c->family == FAMILY_GPT2 ? "transformer.ln_f" : "model.norm");
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
    int logits = emit_new_activation(e, NONE, name, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit_forward(e, OP_MATMUL, NONE,
                 GIVEN(MATMUL, [INPUT(MATMUL, x)] = emit_whole_operand(e, x), [INPUT(MATMUL, w)] = weight,
                       [INPUT(MATMUL, b)] = operand_none(), [INPUT(MATMUL, r)] = operand_none()),
                 MADE(MATMUL, [OUTPUT(MATMUL, y)] = emit_whole_operand(e, logits)), NULL);
    return logits;
}

const struct layer_part head_part = {.name = "head", .parameters = head_parameters, .flops = head_flops};
