// Models so small that a test can run thousands of steps, in f64 on the reference kernels unless told otherwise.
#ifndef SUPPORT_SMALL_MODEL_H
#define SUPPORT_SMALL_MODEL_H

#include "measure/synthetic.h"

// Overrides for the beginning of a list: two microbatches of two sequences of 8 tokens.
#define SMALL_BATCH                                                                                            \
    "training.seq_len=8", "training.global_batch_size=4", "training.micro_batch_size=2", "training.threads=1", \
        "optimizer.eps=1e-3"
#define SMALL_GPT2_MODEL                                                                                     \
    "model.family=gpt2", "model.num_hidden_layers=2", "model.hidden_size=16", "model.num_attention_heads=2", \
        "model.vocab_size=32"
#define SMALL_LLAMA_MODEL                                                                                     \
    "model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=16", "model.num_attention_heads=4", \
        "model.num_key_value_heads=2", "model.intermediate_size=24", "model.vocab_size=32", "model.qk_norm=true"
#define SMALL_LINEAR_MODEL                                                                                    \
    "model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=16", "model.num_attention_heads=2", \
        "model.intermediate_size=24", "model.vocab_size=32", "model.layer_types=linear_attention"
#define SMALL_EXACT "training.dtype=f64", "training.kernels=reference"
#define SMALL_GPT2 SMALL_BATCH, SMALL_EXACT, SMALL_GPT2_MODEL
#define SMALL_LLAMA SMALL_BATCH, SMALL_EXACT, SMALL_LLAMA_MODEL

struct small_model {
    struct config config;
    struct model_config model;
    struct engine engine;
};

// `overrides` ends with NULL. With `memory` the engine can run (engine_create), else it has only programs. Any failure
// fails the test. Release with small_model_release.
void small_model_create(struct small_model *small, const char *const *overrides, bool memory);
void small_model_release(struct small_model *small);

// Sets values with which no two buffers look alike: every parameter differs from its initial value, gradients hold what
// an earlier step might have left, and moments are not zero.
void small_model_values(struct small_model *small, uint64_t seed);
// Writes a batch where an executor of the training program `compiled` (or a mutant of it) looks for it: two documents
// in a sequence, some targets masked, and token ids below seq_len, so that inputs that are mixed up still index the
// tables within bounds. Ranks with other sequences have another `index`, and other shares of their targets are masked.
void small_model_batch(const struct compiled *compiled, const struct executor *executor, uint64_t seed, int index);

#endif
