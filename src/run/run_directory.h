// A run's directory: config.yaml with every key, metrics.jsonl with one object per step, tb/ with the same for
// TensorBoard, checkpoint/, trace/, and a lock.
#ifndef RUN_RUN_DIRECTORY_H
#define RUN_RUN_DIRECTORY_H

#include "base/checksum.h"
#include "exec/exec.h"
#include "run/event_file.h"
#include "run/metrics_file.h"

struct run_directory {
    char *path;
    int lock; // descriptor, held while the run lives
    struct metrics_file metrics;
    struct event_file events;
    bool wants_events;
    int64_t from; // the step from which the run goes on
    int64_t unlogged,
        untold; // steps in a row that are not in metrics.jsonl, and not in tb/, since it cannot be written
    bool made;  // this run made the directory
    bool fresh; // the directory holds nothing but our lock and ranks.bin yet
};

// Seconds that run_directory_open waits for another process to leave the directory: it may be about to end.
enum { RUN_DIRECTORY_PATIENCE = 5 };
// Makes the directory, or takes one that holds a run. USAGE when it holds something else, BUSY when another process
// goes on running there.
trireme_status run_directory_open(struct run_directory *run, const char *path, trireme_error *error);
// IO once the path no longer leads to the lock that this run holds: the directory there is then somebody else's, or
// files written to it would be found by nobody. To be called before writing there; the functions below do it
// themselves. Cheap enough for every step.
trireme_status run_directory_check(const struct run_directory *run, trireme_error *error);
// What tells the directory of a run from those of others, as long as it is where it is; empty where there is none.
void run_directory_identify(const char *path, char hex[CHECKSUM_HEX]);
// Whether a run is going on in the directory now.
bool run_directory_is_busy(const char *path);
// Releases all. Removes a directory that was made for a run that did not begin.
void run_directory_close(struct run_directory *run);
// Writes config.yaml, begins an event file in tb/ where the configuration wants one, and opens metrics.jsonl, from
// which it removes the lines of steps after `step`: what a run did after its checkpoint, it will do again. It fails
// where config.yaml cannot be written; the others are tried again with each step.
trireme_status run_directory_begin(struct run_directory *run, const struct config *config, int64_t step,
                                   trireme_error *error);
// Adds the line of a step, and its figures to tb/. Fails only as run_directory_check does: a disk that is full keeps no
// run from going on. What is left out is told of (metrics_take_remark), when it begins and when it is over.
trireme_status run_directory_add(struct run_directory *run, const struct train_step *step, trireme_error *error);
// Adds a sample of a step to tb/.
trireme_status run_directory_add_sample(struct run_directory *run, int64_t step, int number, const struct text *sample,
                                        trireme_error *error);
// As run_directory_add: where metrics.jsonl is `unvalidated`, adds val_loss to the line of `step`, and to tb/.
trireme_status run_directory_add_validation(struct run_directory *run, int64_t step, double val_loss,
                                            trireme_error *error);
bool run_directory_has_trace(const struct run_directory *run, int64_t step);
// Writes trace/step-N.json.
trireme_status run_directory_trace(const struct run_directory *run, int64_t step, const struct text *trace,
                                   trireme_error *error);

#endif
