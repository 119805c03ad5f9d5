// A step of all ranks as one Chrome trace: each keeps when its instructions ran, rank 0 gathers that.
#ifndef TRAIN_STEP_TRACE_H
#define TRAIN_STEP_TRACE_H

#include "train/engine.h"

struct step_trace {
    struct trace trace; // this rank's
    bool *wanted;       // [ranks]
    int64_t start;      // when rank 0 began the step, by this rank's clock
};

// All ranks call each of these; `all` (NULL where there is one) has every rank. Room for a step of the ranks that
// profiling.trace_ranks names. Refused where it names others, or more than TIMELINE_EVENTS_MAX events.
trireme_status step_trace_create(struct step_trace *t, const struct config *config, const struct engine *engine,
                                 struct communicator *all, trireme_error *error);
void step_trace_release(struct step_trace *t);
// Right before the step. Of ranks on other nodes than rank 0's, whose clocks differ, times are right but for how long a
// broadcast takes.
trireme_status step_trace_begin(struct step_trace *t, const struct engine *engine, struct communicator *all,
                                trireme_error *error);
// For engine_step: NULL on ranks that are not wanted.
struct trace *step_trace_events(struct step_trace *t, const struct engine *engine);
// After the step; the trace is appended on rank 0, nothing on others.
trireme_status step_trace_gather(const struct step_trace *t, const struct engine *engine, struct communicator *all,
                                 struct text *out, trireme_error *error);

#endif
