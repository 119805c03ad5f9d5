// Texts that the model makes of the prompts of validation.prompts, so that people see how it learns. Internal to run/.
#ifndef RUN_SAMPLING_H
#define RUN_SAMPLING_H

#include "base/base.h"

struct run;

// All ranks save the model into a directory of its own, where rank 0 reads it like any other, and which is removed
// afterwards; nothing of the training changes. What fails is told; an error is returned where a rank is lost.
trireme_status sampling_run_all(struct run *run, trireme_error *error);

#endif
