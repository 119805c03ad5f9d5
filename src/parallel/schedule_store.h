// Schedules that were made, for those who ask for the same ones many times, from any number of threads: a search for
// one takes up to seconds.
#ifndef PARALLEL_SCHEDULE_STORE_H
#define PARALLEL_SCHEDULE_STORE_H

#include "parallel/schedule.h"

// All that one is made of; not for files.
struct schedule_recipe {
    const char *name; // of schedule_kind
    int stages, microbatches;
    struct schedule_options options;
    bool vocabulary;              // is spread then,
    struct schedule_times spread; // by what this takes
};

struct schedule_store;
struct schedule_store *schedule_store_create(void);
// NULL: nothing.
void schedule_store_free(struct schedule_store *store);

// A copy of what the recipe made, which the caller releases; false: it is not there.
bool schedule_store_find(struct schedule_store *store, const struct schedule_recipe *recipe, struct schedule *out);
// Keeps a copy. The oldest make room: memory has a bound.
void schedule_store_add(struct schedule_store *store, const struct schedule_recipe *recipe,
                        const struct schedule *schedule);

#endif
