// The programs of all ranks of a plan, with one fault at a time. A mutant must be refused by the verifier, or, run on
// all ranks, give the results of the originals bit for bit.
#ifndef SUPPORT_FLEET_H
#define SUPPORT_FLEET_H

#include "compile/stages.h"
#include "support/mutant.h"

struct fleet {
    const char *name;
    struct config config;
    struct model_config model;
    struct stages stages;
    int ranks;
    char **first, **result; // [ranks]: state before a step; state after it, then the outputs, as doubles
    size_t *result_bytes;   // [ranks]
    bool evaluates;         // the programs are those of the evaluation, and are only verified
    bool reorders;          // mutants add up in another order: rounding may differ
    size_t stride;          // one mutant of this many is tried
    size_t generated, tried, refused, harmless, harmful;
};

// Compiles the programs of all ranks of the small model with `overrides` (ends with NULL). The caller keeps `name`.
void fleet_create(struct fleet *fleet, const char *name, const char *const *overrides);
void fleet_release(struct fleet *fleet);
// Trains two steps, and keeps what the ranks hold then, and what one further step makes of it.
void fleet_run(struct fleet *fleet);
const struct program *fleet_program(const struct fleet *fleet, int stage);

// As a rank: all ranks of the stage.
enum { FLEET_STAGE = -1 };
// Verifies the programs of all ranks, with `mutant` in place of the stage's program on `rank` or on all of the stage's
// ranks (FLEET_STAGE).
trireme_status fleet_verify(const struct fleet *fleet, int stage, int rank, const struct program *mutant,
                            trireme_error *error);
// As mutant_begin and mutant_end. The mutant is tried with the memory plan that it inherits and with a new one, on all
// ranks of the stage and, if the stage has several, also on the last of them alone.
bool fleet_begin(struct fleet *fleet, int stage, struct program *mutant);
void fleet_end(struct fleet *fleet, int stage, struct program *mutant, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// The same for mutants that do not differ from the original in anything that is run.
void fleet_end_unseen(struct fleet *fleet, int stage, struct program *mutant);

#endif
