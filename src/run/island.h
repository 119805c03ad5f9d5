// What a run with outer steps does besides steps: islands (parallelism.island_degree) meet, and save how far each has
// come. Without such steps none of this does anything. Internal to run/.
#ifndef RUN_ISLAND_H
#define RUN_ISLAND_H

#include "engine/engine.h"
#include "run/loader.h"

// How far the islands have come: the text in struct state_progress.
struct island_progress {
    int islands, fragments;
    int under_way;    // the fragment that is exchanged; NONE: nothing is
    int64_t settles;  // the step after which parameters settle on it
    int64_t *updates; // [islands]: of the optimizer
    double *weight;   // [islands]: what each counts for in what is exchanged
    double *targets;  // [islands][fragments]: trained on since the fragment was last taken
    int scalars;      // how many the state has of each fragment: excess and last, rounds and since (compile/outer.h)
    double *scalar;   // [islands][fragments][scalars]
};
char *island_progress_print(const struct island_progress *progress);
// False where the text is none.
bool island_progress_parse(const char *text, struct island_progress *out);
void island_progress_release(struct island_progress *progress);

// What all ranks of an island know alike becomes its sum over the islands. `control` has all ranks.
trireme_status island_sum(const struct engine *engine, struct communicator *control, double *values, int64_t count,
                          trireme_error *error);

struct run;
int island_count(const struct run *run);
int island_own(const struct run *run); // this rank's
// Whether it is this rank that says what all ranks of its island know alike.
bool island_speaks(const struct engine *engine);
// Before the first step of all: what islands share begins as what each has.
void island_start(struct run *run);
void island_end(struct run *run);
// After a step on every rank, which came to `result`: takes note of its targets, and of what is due behind it
// (run_island.sets_out, arrives).
void island_look(struct run *run, const struct engine_result *result);
// Lets exchanges that begin from now on wait `times` as long for other islands (communicator_patience).
void island_be_patient(const struct run *run, int64_t times);
// After island_look, does what is due: ends an exchange, begins one, or both.
trireme_status island_step(struct run *run, trireme_error *error);
// Before and after evaluations of the model that a checkpoint holds. All ranks take part.
trireme_status island_show(struct run *run, trireme_error *error);
trireme_status island_hide(struct run *run, trireme_error *error);
// What an island counts for in the mean that a checkpoint's model is, where it is one: as in the next meeting, of all
// fragments together. Where all would count nothing, they count alike.
double island_weight(const struct config *config, const struct island_progress *progress, int island);
// Before a checkpoint: waits for what is exchanged, and sets progress.islands on all ranks.
trireme_status island_save(struct run *run, trireme_error *error);
// Refuses a checkpoint that does not say how far its islands had come.
trireme_status island_check(const struct run *run, trireme_error *error);
// After a checkpoint is loaded, in place of island_start: goes on where this rank's island was. If there were other
// islands, what they exchanged is settled first, and all begin a round at the outer parameters.
trireme_status island_load(struct run *run, trireme_error *error);

#endif
