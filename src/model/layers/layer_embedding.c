// The beginning of a model: embeddings of tokens and, in GPT-2, of positions.
#include "base/bf16.h"
#include "model/layer.h"

#include <math.h>

enum { VOCAB_ALIGNMENT = 16 }; // rows of a rank's part of the vocabulary

static void embedding_split_rows(const struct splitter *s, const struct parameter *p) {
    bool is_spread = s->split->vocabulary_stages > 1;
    split_add_rows(split_add(s, p, p->name, is_spread ? CLASS_VOCABULARY : CLASS_SPLIT), p,
                   split_part(s->split->vocab_size, s->vocabulary, s->config->vocab_size), 0);
}

struct parameter *builder_vocabulary(struct builder *b, const char *name, const char *hf) {
    const struct model_config *c = b->config;
    struct parameter *p =
        builder_matrix(b, name, c->padded_vocab_size, c->hidden_size, builder_std(b), embedding_split_rows);
    p->is_vocabulary = true;
    char *tensor = mem_printf("%s.weight", hf);
    builder_piece(b, p, tensor, c->vocab_size, false);
    free(tensor);
    return p;
}

static void embedding_parameters(struct builder *b) {
    const struct model_config *c = b->config;
    builder_vocabulary(b, "embed.weight", architecture_names(c)->embedding)->embedding = true;
    if (c->family != FAMILY_GPT2)
        return;
    struct parameter *position =
        builder_matrix(b, "position.weight", c->max_position_embeddings, c->hidden_size, builder_std(b), NULL);
    position->embedding = true;
    builder_single(b, position, "wpe.weight");
}

static trireme_status embedding_split(struct model_split *split, const struct model_config *c, trireme_error *error) {
    int ranks = split->ranks * split->vocabulary_stages;
    TRY(split_check(c->vocab_size, "token", split->ranks, error));
    split->vocab_size = ranks == 1 ? c->padded_vocab_size : round_up(divide_up(c->vocab_size, ranks), VOCAB_ALIGNMENT);
    return TRIREME_OK;
}

// Each rank looks up, for the tokens of all ranks, the rows that it has; sums over the ranks bring them to the tokens.
static int embed_own_rows(struct emitter *e, const char *name) {
    struct program *p = e->program;
    const int64_t all = emit_row_count(e) * e->split->row_ranks;
    const int tokens = emit_new_buffer(e, NONE, "tokens.all", DTYPE_I32, 1, &all);
    const int part = emit_new_activation(e, NONE, "embedding.own", all, e->config->hidden_size);
    const int x = emit_new_activation(e, NONE, name, emit_row_count(e), e->config->hidden_size);
    program_communicate(p, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program), e->own_rows_along,
                        emit_row_numbers(e, e->tokens), emit_whole_operand(e, tokens));
    emit_forward(e, OP_EMBED, NONE,
                 GIVEN(EMBED, [INPUT(EMBED, ids)] = emit_whole_operand(e, tokens), [INPUT(EMBED, w)] = e->own_rows,
                       [INPUT(EMBED, first)] = emit_whole_operand(e, e->own_first)),
                 MADE(EMBED, [OUTPUT(EMBED, y)] = emit_whole_operand(e, part)), NULL);
    program_communicate(p, e->template, OP_REDUCE_SCATTER, PHASE_FORWARD, tensor_stream(e->program), e->own_rows_along,
                        emit_whole_operand(e, part), emit_whole_operand(e, x));
    return x;
}

static int embed_tokens(struct emitter *e, const char *name) {
    if (e->own_rows.buffer != NONE)
        return embed_own_rows(e, name);
    char *part = mem_printf("%s.part", name);
    int x = emit_new_activation(e, NONE, emit_is_split(e) ? part : name, emit_row_count(e), e->config->hidden_size);
    free(part);
    emit_forward(e, OP_EMBED, NONE,
                 GIVEN(EMBED, [INPUT(EMBED, ids)] = emit_row_numbers(e, e->tokens),
                       [INPUT(EMBED, w)] = emit_parameter(e, NONE, "embed.weight"),
                       [INPUT(EMBED, first)] = emit_whole_operand(e, e->vocab_first)),
                 MADE(EMBED, [OUTPUT(EMBED, y)] = emit_whole_operand(e, x)), NULL);
    return emit_is_split(e) ? emit_leave(e, NONE, name, x) : x;
}

// Writes position embeddings for the rows that this rank holds between layers to y, or adds them to it.
static void embed_positions(struct emitter *e, struct operand table, int y, bool add) {
    struct operand positions = emit_row_numbers(e, e->positions);
    if (e->split->sequence)
        positions = operand_part(e->program, positions, AXES_TENSOR);
    program_emit(e->program, e->template, OP_EMBED, PHASE_FORWARD, NONE,
                 GIVEN(EMBED, [INPUT(EMBED, ids)] = positions, [INPUT(EMBED, w)] = table,
                       [INPUT(EMBED, first)] = operand_none()),
                 MADE(EMBED, [OUTPUT(EMBED, y)] = emit_whole_operand(e, y)), NULL)
        ->accumulate = add ? ACCUMULATE_YES : ACCUMULATE_NO;
}

// Gemma multiplies embeddings by the root of their width, which its models have in their own dtype.
static int embed_scaled(struct emitter *e, int x) {
    if (!e->config->form.scaled_embedding)
        return x;
    const double factor = sqrt((double)e->config->hidden_size);
    const int y = emit_new_activation(e, NONE, "embedding.scaled", emit_stream_rows(e), e->config->hidden_size);
    const struct operand in = emit_whole_operand(e, x), out = emit_whole_operand(e, y);
    emit_forward(e, OP_SCALE, NONE, 1, &in, 1, &out,
                 (union attribute[OP_MAX_ATTRIBUTES]){
                     [ATTRIBUTE(SCALE, factor)] = {
                         .f = e->dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float((float)factor)) : factor}});
    return y;
}

int emit_embedding(struct emitter *e) {
    int x = embed_scaled(e, embed_tokens(e, "embedding"));
    struct operand position = emit_parameter(e, NONE, "position.weight");
    if (position.buffer != NONE)
        embed_positions(e, position, x, true);
    return x;
}

int emit_embedding_part(struct emitter *e) {
    return embed_tokens(e, "embedding.own");
}

int emit_positions(struct emitter *e, int x) {
    x = embed_scaled(e, x);
    struct operand position = emit_parameter(e, NONE, "position.weight");
    if (position.buffer == NONE)
        return x;
    int64_t width = e->config->hidden_size;
    int rows_of = emit_new_activation(e, NONE, "position", emit_stream_rows(e), width);
    int y = emit_new_activation(e, NONE, "embedding.positioned", emit_stream_rows(e), width);
    embed_positions(e, position, rows_of, false);
    emit_forward(
        e, OP_ADD, NONE,
        GIVEN(ADD, [INPUT(ADD, a)] = emit_whole_operand(e, x), [INPUT(ADD, b)] = emit_whole_operand(e, rows_of)),
        MADE(ADD, [OUTPUT(ADD, y)] = emit_whole_operand(e, y)), NULL);
    return y;
}

const struct layer_part embedding_part = {
    .name = "embedding", .parameters = embedding_parameters, .split = embedding_split};
