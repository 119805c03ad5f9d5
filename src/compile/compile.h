// compile/: from a model and a plan to verified, planned step programs, by ordered passes: emit, differentiate,
// recompute, split backward, fuse, gather and reduce, schedule, scopes, waits, workspaces, memory plan; then verify.
// Includes the folders before it (ARCHITECTURE.md has the order); runs nothing.
#ifndef COMPILE_COMPILE_H
#define COMPILE_COMPILE_H

#include "kernels/kernels.h"
#include "memory/memory_plan.h"
#include "model/emit.h"
#include "model/state.h"
#include "optim/optimizer.h"
#include "parallel/data.h"
#include "parallel/recompute.h"

// Head and loss are made in chunks of rows (loss.h). The rows of a chunk, for a microbatch of `rows` rows and a rank
// that has `columns` of the words of the vocabulary: chunks are of about the same size, in whole blocks of 64 rows,
// with logits of at most 128 MiB, but there are no more than 1,000 of them. In a stage of a `pipeline`, chunks as large
// as many layers' activations would leave holes in memory: there they take 8 times the bytes of a microbatch's residual
// stream if that is less, but no less than 48 MiB (for the whole vocabulary; a rank with a share of it takes that
// share), since products with fewer rows are slow.
int64_t logits_chunk_rows(int64_t rows, int64_t hidden_size, int64_t vocab_size, int64_t columns, enum dtype dtype,
                          bool pipeline);

struct compile_options {
    const struct model_config *model;
    const struct parameter_table *table; // of what ranks of this stage hold
    const struct op_table *ops;
    enum dtype dtype;
    int64_t micro_batch_size, seq_len; // sequences x tokens of one microbatch
    int microbatches;                  // of one data-parallel rank
    int64_t logits_rows;               // rows whose logits are made at once; 0: logits_chunk_rows
    enum config_recompute recompute;   // for all layers but those that `parallel` names
    struct optimizer_config optimizer;
    enum kernel_set kernels;
    int threads;
    const struct plan_aim *aim; // for program_plan; may be NULL
    bool unproved;              // do not verify it: it is only looked at, never run
    struct parallel parallel;   // parallel_single for one rank
};

// A program with the numbers of the buffers that the host reads and writes. Absent ones are NONE.
struct compiled {
    struct program program;
    struct state_layout layout;
    struct model_state model;
    struct optimizer_state optimizer;       // training only
    int tokens, targets, positions, starts; // inputs, i32[rows], one instance per microbatch
    int lr;                                 // input, f64[1]
    int count;                              // output, f64[1]: targets that are not masked
    int loss;                               // output, f64[1]: mean negative log-likelihood over them, nats
    struct optimizer_outputs outputs;
    int at, row;             // generation: inputs, i32[1]: position of the first row; the row whose logits are wanted
    int logits;              // generation: output, [1, padded_vocab_size]
    struct emit_cache cache; // generation
};

// The next three functions make a program that compiled_release frees; on failure nothing is left to free.

// A training step: all microbatches, then the update.
trireme_status compile_train(struct compiled *out, const struct compile_options *options, trireme_error *error);
// The loss of a batch. Parameters lie where the training program of the same model, dtype and seq_len has them.
trireme_status compile_evaluate(struct compiled *out, const struct compile_options *options, trireme_error *error);
// One decoding step: `rows` tokens from position `at` on enter a cache of `context` tokens; the logits of row `row`
// come out. Programs of the same model, dtype and context share the state arena, whatever their rows. With `cached`
// false and rows = context, the whole context goes through as in training, without a cache.
trireme_status compile_generate(struct compiled *out, const struct compile_options *options, int64_t rows,
                                int64_t context, bool cached, trireme_error *error);
void compiled_release(struct compiled *compiled);

#endif
