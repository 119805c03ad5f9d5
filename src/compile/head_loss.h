// The head and the loss, in chunks of rows, so that all logits are never held at once.
#ifndef COMPILE_HEAD_LOSS_H
#define COMPILE_HEAD_LOSS_H

#include "compile/compile.h"
#include "compile/differentiate.h"
#include "model/emit.h"

// Rows [first, first + rows) of a microbatch, whose logits are made at once.
struct logits_chunk {
    struct compiled *compiled;
    const struct compile_options *options;
    int template;
    int64_t first, rows;
    int hidden, logits;                 // of these rows
    size_t product, end;                // numbers of the template's instructions that make the logits: a product first
    struct operand targets, nll, scale; // nll: absent where this rank does not need it
    union attribute attribute[OP_MAX_ATTRIBUTES];
};
// Appends to the emitter's template the logits of a chunk that begins with row `first` of the normed rows `hidden`;
// `nll` is the buffer for the losses of all rows, or NONE. The next chunk begins with row first + rows.
struct logits_chunk emit_logits_chunk(struct compiled *compiled, const struct compile_options *options,
                                      struct emitter *emitter, int hidden, int64_t first, int nll, int scale);
// A new LOCAL buffer for the chunk, named "NAME.rowsFIRST".
int chunk_buffer(const struct logits_chunk *chunk, const char *name, enum dtype dtype, int ndim, const int64_t *dim);

// Makes the instructions of a template from `from` on members of a set that stands for a row.
void chunk_stand_for(const struct logits_chunk *chunk, int template, size_t from, int set, enum op row);

// Appends to a template the sum of all rows' losses `nll`, which is added to compiled->loss over microbatches.
void emit_total(struct compiled *compiled, int template, int nll, int scale);

// Appends to the emitter's template head and loss of the normed rows `hidden`; the loss is added to compiled->loss.
// With `gradients` (else NULL), each chunk's backward pass follows its forward pass at once.
void emit_loss(struct compiled *compiled, const struct compile_options *options, struct emitter *emitter, int hidden,
               int scale, struct gradients *gradients);

#endif
