// Linear attention of ranks that share sequences: what stands in place of its rows, once forward and backward are
// there.
#ifndef PARALLEL_LINEAR_CONTEXT_H
#define PARALLEL_LINEAR_CONTEXT_H

#include "parallel/parallel.h"

// Replaces every linear_parts and linear_parts_bwd by a set of instructions that stands for it (linear_context.c).
void linear_context_rewrite(struct program *program, const struct parallel *parallel);

#endif
