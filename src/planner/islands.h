// Plans for islands (parallelism.island_degree): one island is searched by itself, on its ranks and its part of the
// batch; then it is chosen how often they meet.
#ifndef PLANNER_ISLANDS_H
#define PLANNER_ISLANDS_H

#include "planner/planner.h"

// Turns a request for all ranks into that for one island. *config becomes the island's configuration, to which
// request->config then points; the caller releases it. The cluster's ranks_per_device is set so that the island has its
// part of the devices. TRIREME_ERROR_USAGE where ranks or batch cannot be divided.
trireme_status plan_one_island(struct plan_request *request, struct config *config, struct cluster *cluster,
                               trireme_error *error);

// What is left, where islands meet at this interval, of the speed that they have while they do not, and the share of
// time in which devices compute.
struct plan_interval {
    int64_t sync_steps;
    double speed, compute_share;
};
struct plan_intervals {
    VEC(struct plan_interval);
    double share; // of the speed, which is to be left
    bool kept;    // outer.sync_steps is set, and the list is that alone
    bool reached; // whether the last one, which is chosen, leaves the share
};
// Tries 1, 2, 5, 10, 20, ... steps for each fragment, 1000 in all at most, from the shortest on that outer.delay_steps
// allows, in the programs of a choice, until one leaves the share. `request` is for one island, `config` for all. The
// caller releases the vector, and *whole: the configuration of all islands with the chosen interval.
trireme_status plan_intervals_try(struct plan_intervals *out, struct config *whole, const struct plan_request *request,
                                  const struct plan_choice *choice, const struct config *config, double share,
                                  trireme_error *error);
// Appends it as a table, or as a member of a JSON object.
void plan_intervals_print(const struct plan_intervals *intervals, const struct config *whole, struct text *out);
void plan_intervals_add(const struct plan_intervals *intervals, const struct config *whole, struct text *out);

#endif
