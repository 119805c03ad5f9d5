// What a model that is being trained makes of the prompts of validation.prompts (struct train_samples).
#ifndef GENERATE_SAMPLES_H
#define GENERATE_SAMPLES_H

#include "run/train.h"

// Refuses a file of prompts that cannot be read.
trireme_status samples_check(const struct config *config, trireme_error *error);
// As train_callbacks.sample.
trireme_status samples_make(const struct train_samples *asked, trireme_error *error);

#endif
