// Checkpoints that are saved on each of twelve meshes of 1 to 8 ranks and loaded on others: every tensor must keep its
// bits, and the next steps must have the losses that they have where nothing is loaded.
#ifndef SUPPORT_CHECKPOINT_MESHES_H
#define SUPPORT_CHECKPOINT_MESHES_H

#include <stdbool.h>

// Which models and which optimizers, and how near losses must be on other meshes. On the same mesh they are the same.
enum kept_state {
    KEPT_GPT2,       // f64, AdamW: transposed matrices, a tied embedding, a padded vocabulary, heads that do not divide
    KEPT_LLAMA_MUON, // f64: states of two optimizers
    KEPT_LLAMA_F32,
    KEPT_GPT2_BF16,       // with remainders
    KEPT_ISLANDS,         // two islands, f64
    KEPT_ISLANDS_SETTLES, // the same, in the middle of an exchange
    KEPT_STATES
};

// Saves on each mesh, in `folder`. `all`: each mesh loads what each has saved, and does 20 steps; else what it has
// saved itself, and what one other has, and does 5.
void checkpoint_meshes_check(const char *folder, enum kept_state kept, bool all);

#endif
