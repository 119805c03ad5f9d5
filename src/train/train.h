// A run: a directory, data, an engine, and the loop over steps. Prints nothing; who started it is told through
// callbacks.
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "config/config.h"

#include <signal.h>

struct train_start {
    int64_t parameters; // as users count them
    int64_t first_step; // the first step that will run, from 1
    int64_t steps;
    const char *resumed_from; // checkpoint directory, or NULL
    double epochs;            // that all steps make of the training data
    int threads;
    size_t predicted_bytes; // both arenas
    double peak_flops;      // measured, 0 where unknown
};

// One step done; also one line of metrics.jsonl.
struct train_step {
    int64_t step, steps;
    double loss;     // nats per target
    double val_loss; // NaN where it was not measured
    double grad_norm, lr;
    int64_t tokens; // seen since the start of the run
    double tokens_per_second, mfu;
    size_t peak_bytes; // most that this process held resident so far
    bool skipped;      // the update was left out: loss or gradient not finite
    double seconds_left;
};

struct train_callbacks {
    void *user;
    void (*started)(void *user, const struct train_start *start);
    void (*stepped)(void *user, const struct train_step *step);
    // "saved run/checkpoint/step-100", "checkpoint ... was passed over: ..."
    void (*message)(void *user, const char *text);
    const volatile sig_atomic_t *stop; // when it turns non-zero the run saves and ends
};

struct train_result {
    int64_t step;         // last step done
    double loss;          // of that step; NaN when none was run
    double val_loss;      // over the whole validation budget at the end; NaN without validation data
    char checkpoint[512]; // newest checkpoint
};

// Trains until config->training.steps. TRIREME_ERROR_INTERRUPTED when stopped on request: all is saved then.
trireme_status train_run(const struct config *config, const struct train_callbacks *callbacks,
                         struct train_result *result, trireme_error *error);

#endif
