// An event file of TensorBoard, with a run's steps under TorchTitan's tags.
#ifndef TRAIN_EVENT_FILE_H
#define TRAIN_EVENT_FILE_H

#include "base/base.h"
#include "train/train.h"

#include <stdio.h>

struct event_file {
    FILE *file; // NULL: none
    char *path;
};

// Makes `directory` if missing and a new file in it, whose name comes behind all others'. What those have of steps
// after `step` TensorBoard shows no longer: a run that resumes does them again.
trireme_status event_file_open(struct event_file *events, const char *directory, int64_t step, trireme_error *error);
// Of a step's figures those that are known, written out at once.
trireme_status event_file_add(struct event_file *events, const struct train_step *step, trireme_error *error);
// A validation loss that was not known when its step was added.
trireme_status event_file_add_validation(struct event_file *events, int64_t step, double val_loss,
                                         trireme_error *error);
void event_file_close(struct event_file *events);

#endif
