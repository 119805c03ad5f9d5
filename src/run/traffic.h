// What ranks send to one another in a step, by axis: of each program that the engine has run since, what its
// instructions say (sim/exchanges.h). Of evaluations nothing counts, nor what ranks agree on beside their programs.
#ifndef RUN_TRAFFIC_H
#define RUN_TRAFFIC_H

#include "engine/engine.h"

struct traffic {
    double *sent;  // [programs][AXIS_COUNT]: bytes in a run of each of the engine's programs, of the rank with most
    int64_t *runs; // [programs]: those that were counted
};

// All ranks take part. `control` has all of them (NULL with one rank). The caller releases *out, on failure too.
trireme_status traffic_create(struct traffic *out, const struct engine *engine, struct communicator *control,
                              trireme_error *error);
void traffic_release(struct traffic *traffic);
// The bytes of all runs since the last call.
void traffic_take(struct traffic *traffic, const struct engine *engine, int64_t sent[AXIS_COUNT]);

#endif
