// Activation recomputation: a rewrite that lets forward activations die early and computes them again in the backward
// template, just before their first use there (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost";
// Korthikanti et al. 2022, section 5, for the selective kind).
#ifndef PARALLEL_RECOMPUTE_H
#define PARALLEL_RECOMPUTE_H

#include "program/program.h"

enum recompute {
    RECOMPUTE_NONE,      // keep all that backward reads but what is as cheap to make as to read: norms, activations
    RECOMPUTE_SELECTIVE, // also drop what was gathered, and of the rest what saves most for a few percent of the step
    RECOMPUTE_FULL,      // keep only what passes from one layer to the next
};

// Rewrites template `backward` so that it reads of template `forward` only what `mode` keeps. Backward must have been
// emitted; fusion and memory planning come after.
void recompute_rewrite(struct program *program, const struct op_table *table, int forward, int backward,
                       enum recompute mode);

#endif
