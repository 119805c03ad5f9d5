// Attention of ranks that have contiguous parts of sequences, in which early ranks help late ones. Internal to
// parallel/.
#ifndef PARALLEL_CONTEXT_LIGHTSEQ_H
#define PARALLEL_CONTEXT_LIGHTSEQ_H

#include "parallel/context_parts.h"

// Puts its instructions in place of a row.
void lightseq_forward(struct context *context);
void lightseq_backward(struct context *context);

#endif
