// Whole runs of train_run on a small text.
#ifndef SUPPORT_RUNS_H
#define SUPPORT_RUNS_H

#include "support/checkpoint.h"

#include "run/train.h"

// Writes token files of a text of some thousand bytes at folder/tokens.
void runs_prepare(const char *folder);

// A small Llama with grouped queries.
#define RUNS_LLAMA                                                                                            \
    "model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=32", "model.num_attention_heads=4", \
        "model.num_key_value_heads=2", "training.seq_len=32", "training.global_batch_size=4",                 \
        "training.micro_batch_size=2", "optimizer.lr=1e-2", "lr_scheduler.warmup_steps=3"

struct runs_watch {
    int64_t stop_at; // a step in which the run is asked to stop, after which it does; 0: none
    int64_t first_step;
    atomic_bool stop;
    // As in struct train_callbacks; may be NULL.
    void (*rank_step)(void *user, int rank, int64_t step);
    void (*message)(void *user, const char *text);
    void (*stepped)(void *user, const struct train_step *step);
};
// Trains in folder/run with these overrides, both lists ended by NULL (`extra` may be NULL).
trireme_status runs_train(const char *folder, const char *const *overrides, const char *const *extra,
                          struct runs_watch *watch, struct train_result *result, trireme_error *error);
// The same until `stop_at` (0: to the end), which must succeed; returns the first step that ran.
int64_t runs_train_until(const char *folder, const char *const *overrides, const char *const *extra, int64_t stop_at);

// Asserts that the files `name` of directories `a` and `b` below `folder` have the same bytes.
void assert_same_file(const char *folder, const char *a, const char *b, const char *name);

#endif
