// A vocabulary that is spread over the stages of a pipeline: the templates in which each rank does its part of the
// embedding, the head and the loss (Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024,
// with one barrier).
//
// The first stage's rank has the sum of all embeddings; the last one's gives all the normed rows. What all ranks need
// of the loss, and the sum of the gradients of those rows, they exchange on a stream of its own, with the arithmetic
// in between: compute goes on with other passes.
#ifndef COMPILE_VOCABULARY_H
#define COMPILE_VOCABULARY_H

#include "compile/compile.h"
#include "compile/differentiate.h"
#include "model/emit.h"

// Templates, NONE where there is none.
struct vocabulary {
    int embed, loss, loss_weight, embed_weight;
    int embedding; // the first stage's input, on its rank; else NONE
};

// Pools of the templates, behind those of the chunks and of their inputs.
void vocabulary_pools(struct program *program, const struct schedule *schedule, int stage, bool forward_only);
// The template `embed`. `inputs` is the pool of what the first stage takes.
void vocabulary_embed(struct vocabulary *vocabulary, const struct compile_options *options, struct emitter *emitter,
                      int inputs);
// The template `loss`, and for training (gradients not NULL) what it owes to the backward of the normed rows `hidden`
// (NONE on other ranks than the last stage's); and the template `loss_weight`, of what waits for the ranks to have met:
// the total, and for training the weights' gradient. Without either there is none.
void vocabulary_loss(struct vocabulary *vocabulary, struct compiled *compiled, const struct compile_options *options,
                     struct emitter *emitter, int hidden, int scale, struct gradients *gradients);
// The template `embed_weight`; after the backward of the first stage.
void vocabulary_embed_weight(struct vocabulary *vocabulary, const struct compile_options *options,
                             struct gradients *gradients);

#endif
