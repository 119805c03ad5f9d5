// Islands meet: the programs of an outer step (compile/outer.h) in their order. All ranks of all islands take part,
// each after the same step; no rank waits for another island before outer_step_end or outer_step_wait.
#ifndef ENGINE_OUTER_STEP_H
#define ENGINE_OUTER_STEP_H

#include "engine/engine.h"

// Takes the parameters, and begins to exchange them. `weight` is what the rank's island counts for in the mean; islands
// whose weights are all zero leave their parameters as they are.
trireme_status outer_step_begin(struct engine *engine, double weight, trireme_error *error);
// Waits until all is exchanged. What is then in the state is all that outer_step_end needs.
trireme_status outer_step_wait(struct engine *engine, trireme_error *error);
// Waits, and sets the parameters.
trireme_status outer_step_end(struct engine *engine, trireme_error *error);

#endif
