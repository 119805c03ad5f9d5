// The head and the loss, in chunks of rows, so that all logits are never held at once.
#ifndef COMPILE_LOSS_H
#define COMPILE_LOSS_H

#include "compile/compile.h"
#include "compile/differentiate.h"
#include "model/emit.h"

// Appends to the emitter's template head and loss of the normed rows `hidden`; the loss adds to compiled->loss. With
// `gradients`, each chunk's backward pass follows its forward pass at once.
void emit_loss(struct compiled *compiled, const struct compile_options *options, struct emitter *emitter, int hidden,
               int scale, struct gradients *gradients);

#endif
