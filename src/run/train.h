// A run: a directory, data, an engine, and the loop over steps. Prints nothing: the caller is told through callbacks.
#ifndef RUN_TRAIN_H
#define RUN_TRAIN_H

#include "config/config.h"
#include "mesh/mesh.h"

#include <stdatomic.h>

struct train_start {
    int64_t parameters, trained; // as users count them; those that are not frozen
    int64_t first_step;          // the first step that will run, from 1
    int64_t steps;
    const char *resumed_from;  // checkpoint directory, or NULL
    int64_t cut_documents;     // of those that are kept whole, so many are longer than a sequence
    double epochs;             // how often all steps go through the training data
    int ranks, threads, cores; // threads of each rank; cores that all ranks may use
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
    int64_t tokens, step_tokens; // seen since the start of the run, and in this step
    double time;                 // when it was done, in seconds since the epoch
    // Wall time since the line before, for the first line since the run began; and the parts of it in which the run
    // began, saved, validated, and rank 0 waited between steps for data or other ranks, not within them.
    double seconds, start_seconds, save_seconds, validation_seconds, wait_seconds;
    double tokens_per_second; // over all of `seconds`
    double mfu;               // of the step alone
    double peak_flops;        // the peak that mfu is a part of: grows when a step reaches more; 0 where unknown
    const struct mesh *mesh;
    int64_t sent[AXIS_COUNT]; // bytes, by the rank that sends most along the axis (run/traffic.h)
    size_t peak_bytes;        // the most that this process held resident so far; the sum over the run's processes
    bool skipped;             // the update was left out: loss or gradient not finite
    double seconds_left;
};

// What a run asks for when it has validated: texts that the model in `directory` makes of the prompts of
// config->validation.prompts.
struct train_samples {
    const struct config *config;
    const char *directory;
    const atomic_bool *stop; // once true, texts end; may be NULL
    void *user;
    void (*more)(void *user); // to be called now and then
    // What the model has added to a prompt.
    void (*take)(void *user, const struct text *prompt, const struct text *text);
};

struct train_callbacks {
    void *user;
    // Called before kernels are measured and weights made or loaded, which may still fail.
    void (*started)(void *user, const struct train_start *start);
    void (*stepped)(void *user, const struct train_step *step);
    // "saved run/checkpoint/step-100", "checkpoint ... is passed over: ..."
    void (*message)(void *user, const char *text);
    // The memory at `at` maps a monitoring file, of whose bytes up to `end` it is the last, or, with 0 bytes, no longer
    // does: if another program shortens that file, or the disk is full, touching the memory raises SIGBUS. Called on
    // the thread of every rank.
    void (*mapped)(void *user, void *at, size_t bytes, const char *path, int64_t end);
    // Once true, the run saves and ends after the step that is under way. Many ranks have agreed on the next step
    // during that one, and may do it, too; islands do the steps until they next meet.
    const atomic_bool *stop;
    // Makes samples, for a run with validation.prompts. NULL: there are none, on all ranks.
    trireme_status (*sample)(const struct train_samples *asked, trireme_error *error);
    // For tests of ranks that hang or die: called before each step on the thread of every rank. All of the above except
    // `mapped` and `stop` are for rank 0 alone.
    void (*rank_step)(void *user, int rank, int64_t step);
};

struct train_result {
    int64_t step;         // last step done
    double loss;          // of that step; NaN when none was run, or it had no targets
    double val_loss;      // of that step, over all of validation.steps; NaN where it was not measured
    char checkpoint[512]; // newest checkpoint
};

// Trains until config->training.steps, on as many ranks as config->parallelism says. Each rank is a thread; or mpirun
// or srun has started one process for each: then *result and the callbacks are for rank 0 alone, and an error that
// another rank reports has an empty message here. TRIREME_ERROR_INTERRUPTED when stopped on request: all is saved then.
// TRIREME_ERROR_LOST when a rank hangs or has died; a thread that hangs for good is left behind and may still use
// `callbacks`: the process should end.
trireme_status train_run(const struct config *config, const struct train_callbacks *callbacks,
                         struct train_result *result, trireme_error *error);

#endif
