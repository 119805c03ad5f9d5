// Activation recomputation: a rewrite that lets forward activations die early and computes them again in the backward
// template, just before their first use there (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost";
// Korthikanti et al. 2022, section 5, for the selective kind).
#ifndef PARALLEL_RECOMPUTE_H
#define PARALLEL_RECOMPUTE_H

#include "config/config.h"
#include "program/program.h"

// Modes (enum config_recompute): `none` keeps what backward reads, except what costs no more to make than to read
// (norms, activations); `selective` also drops what was gathered, and whatever else saves most for a few percent of the
// step; `full` keeps only what passes from one layer to the next.
enum { RECOMPUTE_MODES = CONFIG_RECOMPUTE_FULL + 1 };

// The modes of a template's layers. From layer `first` on, `full` layers are in mode full and the next `selective` ones
// in mode selective; all other layers, and what is in no layer, are in mode `rest`. The full ones come first because
// backward reaches them last, when the memory of what the others kept is free again.
struct recompute_layers {
    enum config_recompute rest;
    // Backward follows forward at once. What is in no layer, the norm before the head, is then kept: backward would
    // begin by computing it again.
    bool at_once;
    int first, full, selective;
};

// Rewrites template `backward` so that of what template `forward` made it reads only what the modes keep. Backward must
// have been emitted; fusion and memory planning come after.
void recompute_rewrite(struct program *program, const struct op_table *table, int forward, int backward,
                       const struct recompute_layers *layers);

#endif
