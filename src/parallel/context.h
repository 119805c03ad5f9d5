// Attention of ranks that share sequences: what stands in place of its rows, once forward and backward are there.
#ifndef PARALLEL_CONTEXT_H
#define PARALLEL_CONTEXT_H

#include "parallel/parallel.h"

// Declares the streams that this needs.
void context_streams(struct program *program, const struct parallel *parallel);
// Replaces every attention_parts and attention_parts_bwd by a set of instructions that stands for it (context.c).
void context_rewrite(struct program *program, const struct parallel *parallel);

#endif
