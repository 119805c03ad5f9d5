// Removes the checkpoints that a run does not keep (ckpt/retention.h), on a thread of rank 0: before anything goes,
// those that stay may have to be read, which takes long, and training does not wait for it. Internal to run/.
#ifndef RUN_PRUNER_H
#define RUN_PRUNER_H

#include "run/run_directory.h"

struct pruner;

// Configuration and directory, of which nothing is removed once it is no longer the run's, must outlive it.
trireme_status pruner_create(struct pruner **out, const struct config *config, const struct run_directory *directory,
                             trireme_error *error);
// Begins to remove, of the checkpoints up to that of step `last`, those that go. The checkpoint of step `whole` (-1:
// none) was verified by content when the run resumed from it, or read back as it was saved. Any thread may call it.
void pruner_begin(struct pruner *pruner, int64_t last, int64_t whole);
// What the user should know by now, NULL: nothing more. The caller frees it.
char *pruner_take_remark(struct pruner *pruner);
// Waits until all is removed that was to be; with `now`, no further checkpoint is read for that, without which some may
// stay. Then pruner_take_remark has the last remark.
void pruner_end(struct pruner *pruner, bool now);
// NULL is allowed. Ends it at once.
void pruner_free(struct pruner *pruner);

#endif
