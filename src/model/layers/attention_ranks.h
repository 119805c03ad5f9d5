// What attention sees where ranks share sequences: how projections of one rank's tokens and all heads become those that
// it attends with. Internal to layers/.
#ifndef MODEL_LAYERS_ATTENTION_RANKS_H
#define MODEL_LAYERS_ATTENTION_RANKS_H

#include "model/layer.h"

// Packed projections of a layer, rows of sequence after sequence: queries, keys and values in one buffer, or queries
// apart from the others; and of which tokens and heads they are.
struct projections {
    int queries, others;     // the same buffer when together
    int64_t rows, keys;      // queries of each sequence; its keys and values
    int64_t heads, kv_heads; // that the buffers have
};

// `heads` heads of packed projections, those of `length` rows of each sequence, the first of them number `first`.
struct operand attention_heads_of(const struct emitter *emitter, int projections, int64_t length, int64_t first,
                                  int64_t heads);

// Keys and values of all tokens, beside the rank's own queries.
struct projections attention_gather(struct emitter *emitter, int layer, struct projections own);

// All tokens of some heads (Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509): one all-to-all exchanges tokens for
// heads. A rank has as many heads as any other; some have copies of heads that nothing is made of.
struct projections attention_exchange(struct emitter *emitter, int layer, struct projections own);
// And back: what attention has made of all tokens and some heads becomes that of the rank's own tokens and all heads of
// `own`, [rows, heads * head_dim].
int attention_return(struct emitter *emitter, int layer, int made, const struct projections *own);

#endif
