// How islands meet: what they keep for it in the state, and their programs, one of each kind for each fragment of the
// model (optim/outer_schedule.h). An outer step has three parts:
//   take      each island notes what its parameters are, or how far they have come from the anchor that all share;
//             nothing else may run meanwhile
//   exchange  that becomes, with the islands' weights, a sum over the islands: it may run beside steps and evaluations
//   settle    parameters become the mean, or the mean and what was learnt since they were taken; or the outer optimizer
//             moves the anchor by the mean, and parameters follow it
// Where pairs meet, the exchange is with one other island: the sum is of both, and anchors are each island's own.
//
// Where steps wait, a meeting is one program of all three. Where an exchange takes as long as until the next one, a
// turn takes what is new and settles what has arrived. An evaluation is of the model that a checkpoint holds: `show`
// sets parameters to that, the anchor or the mean of the islands' own, and `hide` sets them back. Every rank takes,
// exchanges and settles what it updates in a step, with the ranks that hold the same on the other islands. Optimizer
// states stay each island's own, but for what divides gradients on all of them (optimizer.name=scaled): that follows
// from the squares of the gradients of all islands since they last met.
#ifndef COMPILE_OUTER_H
#define COMPILE_OUTER_H

#include "config/config.h"
#include "model/state.h"

// Entries of the state; those of arrays per unit, NONE for a unit that is frozen. NULL: there are none.
struct outer_entries {
    int *anchor;   // what all islands share, where there is an outer optimizer. With outer_anchors_own each has its own
    int *velocity; // of the outer optimizer, where it has a momentum
    int *taken;    // what was taken, where steps run before parameters settle
    int *value;    // once that is exchanged, the weighted sum over the islands
    int total;     // f64[1]: the sum of the weights; NONE: there is none
    // With a penalty, of each fragment, f64[1]: by how much more than 1 its next mean is divided; the square of the
    // distance that its anchors moved last.
    int *excess, *last;
    // Where gradients are divided by what islands agree on (optimizer.name=scaled), of each fragment, f64[1]: the
    // meetings there have been; the updates that the island had done at the last one. The host counts.
    int *rounds, *since;
    int *kept; // the island's own parameters while an evaluation is shown others; in the memory of gradients
};
void outer_entries_release(struct outer_entries *entries);

// Says of everything that programs change in the state that it is each island's own; and of what a program makes, or is
// given for a batch, where nothing else is said of it, except `alike` (a buffer, or NONE), which all islands are given.
void outer_place_state(struct state_table *state, const struct mesh *mesh);
void outer_place_program(struct program *program, int alike);

// How many programs of a kind a run that trains has.
int outer_meets(const struct config *config, bool evaluates);
int outer_takes(const struct config *config, bool evaluates);
int outer_turns(const struct config *config, bool evaluates);
int outer_exchanges(const struct config *config, bool evaluates);
int outer_shows(const struct config *config, bool evaluates);

#endif
