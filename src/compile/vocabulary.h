// A vocabulary that is spread over the stages of a pipeline: the templates in which each rank does its part of the
// embedding, the head and the loss (Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024,
// with one barrier).
//
// The rank of the first stage gets the sum of all ranks' embeddings; the rank of the last one gives its normed rows to
// all. What ranks need for the loss, and the sum of the gradients of those rows, they exchange on a stream of its own,
// with the arithmetic in between, while compute goes on with other passes.
#ifndef COMPILE_VOCABULARY_H
#define COMPILE_VOCABULARY_H

#include "compile/compile.h"
#include "compile/differentiate.h"
#include "model/emit.h"

// Templates, NONE where there is none.
struct vocabulary {
    int embed, loss, loss_weight, embed_weight;
    int embedding; // buffer of the first stage's input, on its rank; else NONE
};

// Declares the streams of the exchanges, and unless `gradients` is NULL which of them gradients go on.
void vocabulary_streams(struct program *program, struct gradients *gradients);
// Declares the pools of the templates, after those of the chunks and of their inputs.
void vocabulary_pools(struct program *program, const struct schedule *schedule, int stage, bool forward_only);
// Makes the template `embed`. `inputs` is the pool of the first stage's input.
void vocabulary_embed(struct vocabulary *vocabulary, const struct compile_options *options, struct emitter *emitter,
                      int inputs);
// Makes the template `loss`, in training (gradients not NULL) with the gradient of the normed rows `hidden` (NONE on
// other ranks than the last stage's); and the template `loss_weight`, with what can be made only once the ranks have
// exchanged: the total, on the last stage's rank, and in training the weights' gradient. Where there is neither, there
// is no such template.
void vocabulary_loss(struct vocabulary *vocabulary, struct compiled *compiled, const struct compile_options *options,
                     struct emitter *emitter, int hidden, int scale, struct gradients *gradients);
// Makes the template `embed_weight`. To be called after the backward pass of the first stage has been emitted.
void vocabulary_embed_weight(struct vocabulary *vocabulary, const struct compile_options *options,
                             struct gradients *gradients);

#endif
