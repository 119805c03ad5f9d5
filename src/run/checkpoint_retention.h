// Which of a run's checkpoints are kept: the keys checkpoint.keep_*, and the validation losses that keep_best_k needs.
#ifndef RUN_CHECKPOINT_RETENTION_H
#define RUN_CHECKPOINT_RETENTION_H

#include "ckpt/retention.h"
#include "config/config.h"
#include "run/metrics_file.h"

// Where validation losses stand: in a checkpoint if they were measured before it was saved, else in the run's
// metrics.jsonl, which is read when it is first needed.
struct checkpoint_losses {
    const char *run_directory; // must outlive it; NULL: there is no metrics.jsonl
    bool read;
    struct metrics_losses lines;
};
double checkpoint_loss(struct checkpoint_losses *losses, const struct directory_numbered *checkpoint);
void checkpoint_losses_release(struct checkpoint_losses *losses);

struct retention_rules checkpoint_rules(const struct config *config);
// Of a run's checkpoints those up to this step count: those from within a row of skipped steps, with which the run may
// have ended, do not. -1: there is none that can be read.
int64_t checkpoint_last_counted(const char *parent);
// Appends why checkpoint.keep_best_k can choose among no checkpoints of the steps after `done`, in one line; nothing
// where it can, or is 0.
void checkpoint_explain_best(const struct config *config, bool has_validation, int64_t done, struct text *out);

#endif
