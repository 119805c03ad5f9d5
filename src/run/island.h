// What a run with several islands (parallelism.island_degree) does besides steps: islands meet, agree on what is
// reported, and save how far each has come. With one island none of this does anything. Internal to run/.
#ifndef RUN_ISLAND_H
#define RUN_ISLAND_H

#include "engine/engine.h"
#include "run/loader.h"

// How far the islands have come: the text in struct state_progress.
struct island_progress {
    int islands;
    int64_t settles;  // the step after which parameters settle on what is exchanged; 0: nothing is
    double total;     // of the weights of that exchange
    int64_t *updates; // [islands]: of the optimizer
    double *targets;  // [islands]: trained on since the islands last met
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
// After a step on every rank, which came to `result`: takes note of its targets, and begins or ends a meeting where
// that is due.
trireme_status island_step(struct run *run, int64_t step, const struct engine_result *result, trireme_error *error);
// What this rank adds to the sums over all islands.
void island_tell(const struct run *run, const struct engine_result *result, struct control *out);
// Makes of an island's result that of all, of which `sums` holds the sums: the loss is the mean over all targets, and a
// step counts as done if all islands have done it. The norm stays the island's.
void island_merge(struct run *run, const struct control *sums, struct engine_result *result);
// Both at once, for a result that is wanted before the next step: all ranks wait for one another.
trireme_status island_agree(struct run *run, struct engine_result *result, trireme_error *error);
// Before a checkpoint: waits for what is exchanged, and sets progress.islands on all ranks.
trireme_status island_save(struct run *run, trireme_error *error);
// Refuses a checkpoint of another number of islands.
trireme_status island_check(const struct run *run, trireme_error *error);
// After a checkpoint is loaded: goes on where this rank's island was.
void island_load(struct run *run);

#endif
