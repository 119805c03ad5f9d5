// How islands meet: what they keep for it in the state, and their programs. An outer step has three parts:
//   take      each island notes what its parameters are; nothing else may run meanwhile
//   exchange  that becomes, with the islands' weights, a sum over the islands: it may run beside steps and evaluations
//   settle    parameters become the mean, or the mean and what was learnt since they were taken
// Every rank takes, exchanges and settles what it updates in a step, with the ranks that hold the same on the other
// islands. Optimizer states stay each island's own.
#ifndef COMPILE_OUTER_H
#define COMPILE_OUTER_H

#include "config/config.h"
#include "model/state.h"

// Entries of the state; those of arrays per unit.
struct outer_entries {
    int *value; // what was taken; once it is exchanged, the weighted sum over the islands. NULL: islands do not meet
    int *taken; // what was taken, where steps run before parameters settle; else NULL
    int total;  // f64[1]: the sum of the weights
};
void outer_entries_add(struct outer_entries *entries, struct state_table *state, const struct model_units *units,
                       const struct model_entries *model, enum dtype dtype, bool delayed);
void outer_entries_release(struct outer_entries *entries);

// Says of everything that programs change in the state that it is each island's own; and of what a program makes, or is
// given for a batch, where nothing else is said of it, except `alike` (a buffer, or NONE), which all islands are given.
void outer_place_state(struct state_table *state, const struct mesh *mesh);
void outer_place_program(struct program *program, int alike);

// Whether a run that trains has outer steps.
bool outer_wanted(const struct config *config);

#endif
