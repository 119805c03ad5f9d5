// metrics.jsonl of a run's directory: one object per step. It is only ever opened as what it should be, a regular file
// with no other name: anything else that has the name is set aside, and so is what cannot be read.
#ifndef RUN_METRICS_FILE_H
#define RUN_METRICS_FILE_H

#include "base/base.h"
#include "run/train.h"

struct metrics_file {
    char *path;
    int64_t from;     // the step from which the run goes on
    FILE *file;       // open for appending; NULL: it could not be opened yet
    bool unnamed;     // that it has its name may not be on the disk yet
    bool unvalidated; // the step from which the run goes on has a line, but no val_loss in it
    char *remark;     // for the user: see metrics_take_remark
};

// Opens or makes the file in `directory`, and removes the lines of steps after `step`: what a run did after its
// checkpoint, it will do again. What cannot be used is renamed to metrics.jsonl.aside-N, and a new file begun. Where it
// fails, metrics_add tries it again.
trireme_status metrics_open(struct metrics_file *metrics, const char *directory, int64_t step, trireme_error *error);
// Adds the line of a step, or nothing where that fails. If somebody has removed or renamed the file, a new one begins
// with this line.
trireme_status metrics_add(struct metrics_file *metrics, const struct train_step *step, trireme_error *error);
// Where the file is `unvalidated`, adds val_loss to the line of `step`.
trireme_status metrics_add_validation(struct metrics_file *metrics, int64_t step, double val_loss,
                                      trireme_error *error);
// The lines so far, to be synced by any thread while others are added.
struct metrics_mark {
    int file;   // -1: none
    int code;   // errno of why there is none; 0: none was open
    char *path; // of a file whose name may not be on the disk yet; NULL
};
struct metrics_mark metrics_mark(struct metrics_file *metrics);
// Has the disk take those lines: before it takes a checkpoint that covers them. Returns what the user should know if it
// fails, which the caller frees; else NULL. Releases the mark, and so does metrics_unmark without doing anything.
char *metrics_sync(struct metrics_mark *mark);
void metrics_unmark(struct metrics_mark *mark);
// Adds to what the user is to be told; takes over the text.
void metrics_tell(struct metrics_file *metrics, char *text);
// What the user should know of the file by now, NULL: nothing more. The caller frees it.
char *metrics_take_remark(struct metrics_file *metrics);
void metrics_close(struct metrics_file *metrics);

// The validation losses in the file of a run's directory. What cannot be read has none.
struct metrics_line {
    int64_t step;
    double val_loss;
};
struct metrics_losses {
    VEC(struct metrics_line);
};
// Caller releases *out with VEC_RELEASE.
void metrics_read_losses(const char *directory, struct metrics_losses *out);
// That of a step; NaN: none.
double metrics_loss(const struct metrics_losses *losses, int64_t step);

#endif
