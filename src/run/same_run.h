// Whether a run that goes on from a checkpoint is still the run that wrote it.
#ifndef RUN_SAME_RUN_H
#define RUN_SAME_RUN_H

#include "ckpt/state_files.h"
#include "run/corpus.h"

// Refuses (TRIREME_ERROR_USAGE) changes of what makes a run the run that it is: seed, dtype, kernels, optimizer and,
// unless data.on_change lets them be, batches. `directory`: the checkpoint whose progress is given, for messages.
trireme_status same_run_check(const struct config *now, const struct state_progress *progress, const char *directory,
                              trireme_error *error);
// Appends the tokens that are trained on, in words to compare; `like` as in corpus_identify.
trireme_status same_run_data(const struct corpus *corpus, const char *like, struct text *out, trireme_error *error);
// Where the order of samples begins for a run that goes on from the checkpoint with other tokens (`others`), or with a
// batch or sequence length that may have changed: as in sampler.h. Appends, in words, what becomes of the order;
// nothing where nothing has changed. For a run that has passed same_run_check.
struct sampler_origin same_run_origin(const struct config *now, const struct state_progress *progress,
                                      const struct corpus *corpus, bool others, struct text *words);
// Appends the settings that have changed and may (config_differences). For a run that has passed same_run_check.
void same_run_differences(const struct config *now, const struct state_progress *progress, struct text *out);

#endif
