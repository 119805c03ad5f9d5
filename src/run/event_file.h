// An event file of TensorBoard, with a run's steps under TorchTitan's tags.
#ifndef RUN_EVENT_FILE_H
#define RUN_EVENT_FILE_H

#include "base/text.h"
#include "run/train.h"

#include <stdio.h>

struct event_file {
    FILE *file; // NULL: none
    char *path;
};

// Makes `directory` if it is missing, and in it a new file whose name sorts after all others'. Steps after `step` in
// the other files are no longer shown by TensorBoard: a run that resumes does them again. Where it fails there is no
// file, and it may be tried again.
trireme_status event_file_open(struct event_file *events, const char *directory, int64_t step, trireme_error *error);
// Writes those of a step's figures that are known: all or, where that fails, nothing.
trireme_status event_file_add(struct event_file *events, const struct train_step *step, trireme_error *error);
// Writes a validation loss that was not known when its step was added.
trireme_status event_file_add_validation(struct event_file *events, int64_t step, double val_loss,
                                         trireme_error *error);
// Writes a text, which TensorBoard shows as it is: number `number` of its step.
trireme_status event_file_add_sample(struct event_file *events, int64_t step, int number, const struct text *sample,
                                     trireme_error *error);
void event_file_close(struct event_file *events);

#endif
