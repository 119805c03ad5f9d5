// Whether a run that goes on from a checkpoint is still the run that wrote it.
#ifndef TRAIN_SAME_RUN_H
#define TRAIN_SAME_RUN_H

#include "ckpt/state_files.h"
#include "config/config.h"

// Refuses what must not change under a run: it would no longer be the one that it goes on with. `data`: the tokens that
// it is to train on; `directory`: of the checkpoint whose progress is given, for messages.
trireme_status same_run_check(const struct config *now, const struct state_progress *progress, const char *data,
                              const char *directory, trireme_error *error);
// Appends which settings that may change have (config_differences); for a run that has passed same_run_check.
void same_run_differences(const struct config *now, const struct state_progress *progress, struct text *out);

#endif
