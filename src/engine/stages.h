// The programs of all ranks of a plan. Ranks of one pipeline stage have the same.
#ifndef ENGINE_STAGES_H
#define ENGINE_STAGES_H

#include "engine/engine.h"

struct stages {
    int count, ranks;
    struct parallel plan;     // of the compiled engines
    const struct engine **of; // [count]
    struct engine *compiled;  // [count]: the engines that the struct owns; NULL: none
};

// For ranks that are threads, which call it together: the first rank of each stage compiles its programs, and all ranks
// share them, as long as their world lives. *all becomes a communicator of all ranks, which the caller frees.
trireme_status stages_share(struct stages *out, struct communicator **all, const struct config *config,
                            const struct model_config *model, const struct parallel *plan, enum engine_use use,
                            const struct member *member, trireme_error *error);
// Compiles the programs of every stage except that of `own`, which has them already; NULL: of all stages.
trireme_status stages_compile(struct stages *out, const struct config *config, const struct model_config *model,
                              enum engine_use use, const struct engine *own, trireme_error *error);
void stages_release(struct stages *stages);
// The program of a stage: of the training step, or of the evaluation.
const struct program *stages_program(const struct stages *stages, int stage, bool train);
// Proves the programs of all ranks sound together.
trireme_status stages_verify(const struct stages *stages, bool train, trireme_error *error);
// For ranks that are processes: compares each rank's programs with those that rank 0 has made for it, `stages` (NULL on
// other ranks). All ranks call it and get the same status; only rank 0 gets a message.
trireme_status stages_compare(const struct stages *stages, const struct engine *own, trireme_error *error);

#endif
