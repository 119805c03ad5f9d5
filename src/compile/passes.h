// The passes between emission and a program that may run. None changes what the program computes when its instructions
// run one after another; several streams may run it only after pass_waits.
#ifndef COMPILE_PASSES_H
#define COMPILE_PASSES_H

#include "kernels/kernels.h"

// Moves the weight gradients of layers out of a backward template into one of their own, and returns its number. Those
// of embedding and head stay: what the head's is made of, the gradients of all logits, would have to be kept.
int pass_split(struct program *program, int backward);
// Joins neighbouring backward instructions of one forward instruction where ops.def has an op that contributes what
// both do (one pass over memory in place of two).
void pass_fuse(struct program *program, const struct op_table *table);
// Lets tensor ranks communicate while they compute: what they gather again for a weight's gradient is under way while
// the input's gradient is computed, and the latter is summed over the ranks while the weight's is computed. (The first
// as in Megatron-LM: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section
// 4.2.2.)
void pass_overlap(struct program *program);
// Lets each tensor rank send only its part of a message that all of them have; the receiving ranks gather the parts. So
// links between nodes carry the message once. (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on
// GPU Clusters Using Megatron-LM", section 4.1.) For ranks that do not split the rows between layers.
void pass_scatter(struct program *program);
// Makes activations that more than one template touches, and messages, SLOT buffers of their chunk's pool, unless they
// have been given a scope and pool already.
void pass_scopes(struct program *program);
// Lets instructions wait for what other streams must have done before them: for values that they read or overwrite, and
// for memory that they reuse. Within a template they wait for what precedes them in its list; across invocations, for
// all that came before (waits.c has the exceptions).
void pass_waits(struct program *program);
// Gives every instruction the workspace that its kernel asks for on `threads` threads.
trireme_status pass_workspaces(struct program *program, const struct op_table *table, enum kernel_set set, int threads,
                               trireme_error *error);

#endif
