// Islands meet: the programs of an outer step (compile/outer.h) in their order, for one fragment of the model. All
// ranks of all islands take part, each after the same step; no rank waits for another island before outer_step_end or
// outer_step_wait, but where islands meet at once.
#ifndef ENGINE_OUTER_STEP_H
#define ENGINE_OUTER_STEP_H

#include "engine/engine.h"

// What islands share begins as the parameters that they begin with; they count for `total` together. To be called once
// these are set.
void outer_step_start(struct engine *engine, double total);
// Takes the parameters of a fragment (`part`: outer_schedule_part), and begins to exchange them; or, where islands meet
// at once, does all of the outer step. Where they exchange a whole interval long, what has arrived is settled
// meanwhile. `weight` is what the rank's island counts for in the mean; islands whose weights are all zero leave their
// parameters as they are.
trireme_status outer_step_begin(struct engine *engine, int part, double weight, trireme_error *error);
// Waits until all of the fragment is exchanged, where it is on its way. What is then in the state is all that
// outer_step_end needs.
trireme_status outer_step_wait(struct engine *engine, int fragment, trireme_error *error);
// Waits, and sets the parameters.
trireme_status outer_step_end(struct engine *engine, int fragment, trireme_error *error);
// For values of other islands, of which each rank has the mean, while `total` is what they weighed together: settles
// what they exchanged of the fragment (NONE: nothing), as if nothing had been learnt since. Then parameters are the
// anchor, where there is one, and nothing is on its way. outer_step_start is to follow.
trireme_status outer_step_finish(struct engine *engine, int fragment, double total, trireme_error *error);
// Before evaluations, and after them: parameters are the model that a checkpoint holds; in it the island counts for
// `weight` where it is a mean. Until outer_step_hide only evaluations may run. Nothing, where the engine does not
// evaluate or parameters are that model.
trireme_status outer_step_show(struct engine *engine, double weight, trireme_error *error);
trireme_status outer_step_hide(struct engine *engine, trireme_error *error);

#endif
