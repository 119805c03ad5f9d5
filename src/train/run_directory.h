// A run's directory: config.yaml with every key, metrics.jsonl with one object per step, tb/ with the same for
// TensorBoard, checkpoint/, trace/, and a lock.
#ifndef TRAIN_RUN_DIRECTORY_H
#define TRAIN_RUN_DIRECTORY_H

#include "exec/exec.h"
#include "train/event_file.h"

struct run_directory {
    char *path;
    int lock;      // descriptor, held while the run lives
    FILE *metrics; // open for appending
    struct event_file events;
    bool made;        // by this run
    char *remark;     // on what metrics.jsonl held beside steps, or lacks; NULL where there is nothing to say
    bool fresh;       // nothing but our lock and ranks.bin is in it yet
    bool unvalidated; // the step that the run goes on from has a line, but no val_loss in it
};

// Makes the directory, or takes one that holds a run. USAGE when it holds something else, BUSY when another process
// runs there.
trireme_status run_directory_open(struct run_directory *run, const char *path, trireme_error *error);
// IO once the path no longer leads to the lock that this run holds: what lies there then is another's, or would be
// found by nobody. For whoever is about to write there; the functions below do it themselves. Cheap enough for every
// step.
trireme_status run_directory_check(const struct run_directory *run, trireme_error *error);
// Whether a process runs there now.
bool run_directory_is_busy(const char *path);
// Leaves no trace of a directory that was made for a run that did not begin.
void run_directory_close(struct run_directory *run);
// Writes config.yaml, begins an event file in tb/ where that is wanted, and opens metrics.jsonl without the lines of
// steps after `step`: what a run did after its checkpoint, it will do again.
trireme_status run_directory_begin(struct run_directory *run, const struct config *config, int64_t step,
                                   trireme_error *error);
trireme_status run_directory_add(struct run_directory *run, const struct train_step *step, trireme_error *error);
// Adds val_loss to the line of `step`, and to tb/, where it is `unvalidated`.
trireme_status run_directory_add_validation(struct run_directory *run, int64_t step, double val_loss,
                                            trireme_error *error);
bool run_directory_has_trace(const struct run_directory *run, int64_t step);
// Writes trace/step-N.json.
trireme_status run_directory_trace(const struct run_directory *run, int64_t step, const struct text *trace,
                                   trireme_error *error);

#endif
