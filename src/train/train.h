// A run: a directory, data, an engine, and the loop over steps. Prints nothing; who started it is told through
// callbacks.
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "config/config.h"

#include <stdatomic.h>

struct train_start {
    int64_t parameters; // as users count them
    int64_t first_step; // the first step that will run, from 1
    int64_t steps;
    const char *resumed_from;  // checkpoint directory, or NULL
    double epochs;             // that all steps make of the training data
    int ranks, threads, cores; // threads of each rank; cores that they may use
    int nodes;
    const char *mesh; // "dp 2 x tp 4"
    int microbatches; // of a step, of each data-parallel rank
    int64_t micro_batch_size;
    size_t predicted_bytes; // both arenas of all ranks
    double peak_flops;      // measured, 0 where unknown
};

// One step done; also one line of metrics.jsonl.
struct train_step {
    int64_t step, steps;
    double loss;     // nats per target; NaN where there was none
    int64_t targets; // over all ranks
    double val_loss; // NaN where it was not measured
    double grad_norm, lr;
    int64_t tokens; // seen since the start of the run
    double tokens_per_second, mfu;
    double peak_flops; // that mfu is of: more than at the start once a step has done more; 0 where unknown
    size_t peak_bytes; // most that this process, or each of those of the run, held resident so far
    bool skipped;      // the update was left out: loss or gradient not finite
    double seconds_left;
};

struct train_callbacks {
    void *user;
    // Before kernels are measured and weights made or loaded, which may still fail.
    void (*started)(void *user, const struct train_start *start);
    void (*stepped)(void *user, const struct train_step *step);
    // "saved run/checkpoint/step-100", "checkpoint ... was passed over: ..."
    void (*message)(void *user, const char *text);
    // Memory from `at` on is a monitoring file's, or, with 0 bytes, is no more: when another program shortens the file,
    // touching that memory raises SIGBUS. On the thread of every rank.
    void (*mapped)(void *user, void *at, size_t bytes);
    const atomic_bool *stop; // once true, the run saves and ends
    // For tests of what hangs and dies: called before each step on the thread of every rank. All of the above but
    // `mapped` and `stop` are rank 0's alone.
    void (*rank_step)(void *user, int rank, int64_t step);
};

struct train_result {
    int64_t step;         // last step done
    double loss;          // of that step; NaN when none was run, or it had no targets
    double val_loss;      // of that step, over the whole validation budget; NaN where it was not measured
    char checkpoint[512]; // newest checkpoint
};

// Trains until config->training.steps, on as many ranks as config->parallelism says, each on a thread of its own; or,
// in a process that mpirun or srun has started, as its one rank. Then *result and the callbacks are rank 0's alone, and
// an error that another rank tells has an empty message.
// TRIREME_ERROR_INTERRUPTED when stopped on request: all is saved then. TRIREME_ERROR_LOST when a rank hangs or has
// died; a thread that hangs for good is left behind and may still use `callbacks`: the process should end.
trireme_status train_run(const struct config *config, const struct train_callbacks *callbacks,
                         struct train_result *result, trireme_error *error);

#endif
