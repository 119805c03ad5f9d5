// What engines are compared with: tools/reference/run.py, one process for all comparisons of a test, since loading
// PyTorch takes longer than these.
#ifndef SUPPORT_REFERENCE_H
#define SUPPORT_REFERENCE_H

#include "support/models.h"

bool has_modules(const char *python, const char *modules);
// A Python that has all of the modules, which blanks separate; NULL: none has.
const char *find_python(const char *modules);
// `source`: the folder that has tools/.
bool reference_start(const char *python, const char *source);
// Ends it; whether nothing was wrong with it.
bool reference_end(void);
// Runs one of its commands.
void reference_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The arrays of `count` batches as one file FOLDER/batch.safetensors; more than one batch adds a first dimension.
void save_batches(const char *folder, const struct batch *batch, int64_t count);

// Compares the loss and every gradient of an engine that has run a step with those that `run.py grads` has written.
void compare_gradients(const struct engine *engine, const struct engine_result *result, const char *path,
                       double tolerance);

#endif
