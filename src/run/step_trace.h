// Runs of programs by all ranks, such as a step, as one Chrome trace: each rank records when its instructions ran, and
// rank 0 gathers the records.
#ifndef RUN_STEP_TRACE_H
#define RUN_STEP_TRACE_H

#include "engine/engine.h"

// A run of a program on this rank.
struct traced {
    struct engine_program *program;
    struct trace trace;
};

struct step_trace {
    VEC(struct traced) runs;
    bool *wanted;  // [ranks]
    int64_t start; // when rank 0 began, by this rank's clock
};

// Refuses a profiling.trace_step after the last one, and a profiling.trace_ranks that names no ranks, of whatever mesh.
trireme_status step_trace_check(const struct config *config, trireme_error *error);

// All ranks call each of these; `all` has every rank (NULL with one rank). Makes room for runs of the programs
// programs[count], one after another, of the ranks that profiling.trace_ranks names. Refuses ranks that the mesh does
// not have, and more than TIMELINE_EVENTS_MAX events.
trireme_status step_trace_create(struct step_trace *t, const struct config *config, const struct engine *engine,
                                 struct engine_program *const *programs, size_t count, struct communicator *all,
                                 trireme_error *error);
void step_trace_release(struct step_trace *t);
// To be called right before the first run. On other nodes than rank 0's, whose clocks differ, times are off by as long
// as a broadcast takes.
trireme_status step_trace_begin(struct step_trace *t, const struct engine *engine, struct communicator *all,
                                trireme_error *error);
// The trace to pass to that run's engine_step, engine_run or engine_begin; NULL on ranks that are not wanted.
struct trace *step_trace_events(struct step_trace *t, const struct engine *engine, size_t run);
// To be called after the last run. Appends the trace on rank 0, and nothing on others.
trireme_status step_trace_gather(const struct step_trace *t, const struct engine *engine, struct communicator *all,
                                 struct text *out, trireme_error *error);

#endif
