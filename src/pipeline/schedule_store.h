// A cache of schedules, for callers that need the same ones many times, since a search for one can take seconds. Any
// number of threads may use a store.
#ifndef PIPELINE_SCHEDULE_STORE_H
#define PIPELINE_SCHEDULE_STORE_H

#include "pipeline/schedule.h"

// Everything that a schedule is made from. Schedules that are read from files are not stored.
struct schedule_recipe {
    const char *name; // of schedule_kind
    int stages, microbatches;
    struct schedule_options options;
    bool vocabulary;              // whether it is spread over the ranks
    struct schedule_times spread; // times for schedule_spread_vocabulary
};

struct schedule_store;
struct schedule_store *schedule_store_create(void);
// NULL is allowed.
void schedule_store_free(struct schedule_store *store);

// *out becomes a copy of the recipe's schedule, which the caller releases; false where the store does not have it.
bool schedule_store_find(struct schedule_store *store, const struct schedule_recipe *recipe, struct schedule *out);
// Keeps a copy. Memory is bounded: the oldest schedules are dropped to make room.
void schedule_store_add(struct schedule_store *store, const struct schedule_recipe *recipe,
                        const struct schedule *schedule);

#endif
