// The passes between emission and a program that may run. Each takes a sound program and leaves a sound one.
#ifndef COMPILE_PASSES_H
#define COMPILE_PASSES_H

#include "kernels/kernels.h"

// Moves the weight gradients of layers out of a backward template into one of their own, and returns its number. Those
// of embedding and head stay: kept until later, what they are made of would be all logits.
int pass_split(struct program *program, int backward);
// Joins neighbouring backward instructions of one forward instruction where ops.def has an op that contributes what
// both do (one pass over memory in place of two).
void pass_fuse(struct program *program, const struct op_table *table);
// Lets tensor ranks exchange beside products: what they gather again for a weight's gradient is under way while the
// input's gradient is computed, and that is summed while the weight's is. (Megatron-LM does so: Korthikanti et al.
// 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2, for the first of both.)
void pass_overlap(struct program *program);
// Lets each of the tensor ranks, which all have what a message is of, send its part, which they gather where it
// arrives: links between nodes carry it once. (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on
// GPU Clusters Using Megatron-LM", section 4.1.) For ranks that do not split the rows between layers.
void pass_scatter(struct program *program);
// Activations that live in more than one template, and messages, become SLOT buffers of their chunk's pool, unless they
// have been given one.
void pass_scopes(struct program *program);
// Lets instructions wait for what other streams must have done before them: for values that they read or overwrite, and
// for memory that they reuse. Order within a template is that of its list; between invocations all that came before.
void pass_waits(struct program *program);
// Gives every instruction the workspace that its kernel asks for on `threads` threads.
trireme_status pass_workspaces(struct program *program, const struct op_table *table, enum kernel_set set, int threads,
                               trireme_error *error);

#endif
