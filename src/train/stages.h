// stages: the programs of all ranks of a plan. Ranks of one pipeline stage share theirs.
#ifndef TRAIN_STAGES_H
#define TRAIN_STAGES_H

#include "train/engine.h"

struct stages {
    int count, ranks;
    struct parallel plan;     // that compiled ones have
    const struct engine **of; // [count]
    struct engine *compiled;  // [count]: those that are the struct's own; NULL: none
};

// Ranks that are threads call it together: the first of each stage compiles its programs, and all have them, for as
// long as their world is there. *all is a communicator of all ranks, for the caller to use and free.
trireme_status stages_share(struct stages *out, struct communicator **all, const struct config *config,
                            const struct model_config *model, const struct parallel *plan, enum engine_use use,
                            const struct member *member, trireme_error *error);
// Compiles every stage's programs, but for that of `own` (NULL: none), whose engine they are.
trireme_status stages_compile(struct stages *out, const struct config *config, const struct model_config *model,
                              enum engine_use use, const struct engine *own, trireme_error *error);
void stages_release(struct stages *stages);
// The program of a stage: of the training step, or of the evaluation.
const struct program *stages_program(const struct stages *stages, int stage, bool train);
// Proves the programs of all ranks sound together.
trireme_status stages_verify(const struct stages *stages, bool train, trireme_error *error);
// Of a world of processes: compares the programs of all with those that rank 0 has made for them, `stages` (of others
// NULL). All ranks call it and come to the same end, of which only rank 0 has the text.
trireme_status stages_compare(const struct stages *stages, const struct engine *own, trireme_error *error);

#endif
