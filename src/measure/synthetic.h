// Batches of random tokens, for showing and measuring steps without data.
#ifndef MEASURE_SYNTHETIC_H
#define MEASURE_SYNTHETIC_H

#include "engine/engine.h"

// The model that `config` describes, with the vocabulary of the tokens at data.path where these can be opened, else of
// bytes.
trireme_status synthetic_model(struct model_config *out, const struct config *config, trireme_error *error);
// Fills the inputs of a program: in every microbatch of a batch tokens uniform over the vocabulary, one document per
// sequence; islands count alike. The learning rate is 0. They last until another program runs.
void synthetic_fill(struct engine *engine, const struct engine_program *program, uint64_t seed);

#endif
