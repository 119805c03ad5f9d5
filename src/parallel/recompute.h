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

// The modes of a template's layers: those from `first` on, so many of them full and so many behind them selective; of
// all others, and of what is in no layer, `rest`. The full ones come first: backward reaches them last, when what the
// others keep is free again.
struct recompute_layers {
    enum recompute rest;
    bool at_once; // backward follows forward: what is in no layer, the norm before the head, it would make again first
    int first, full, selective;
};

// Rewrites template `backward` so that it reads of template `forward` only what the modes keep. Backward must have been
// emitted; fusion and memory planning come after.
void recompute_rewrite(struct program *program, const struct op_table *table, int forward, int backward,
                       const struct recompute_layers *layers);

#endif
