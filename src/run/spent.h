// Where a run's time goes: each line of metrics.jsonl accounts for all of it since the line before.
#ifndef RUN_SPENT_H
#define RUN_SPENT_H

#include "run/train.h"

enum spent_on {
    SPENT_STARTING, // from the beginning of the run's start to its first step
    SPENT_SAVING,
    SPENT_VALIDATING,
    SPENT_WAITING, // after a step, for the next batch and until the other ranks have come as far
    SPENT_KINDS
};

struct spent {
    int64_t since;            // clock_now at the last line, at first when the run began
    double on[SPENT_KINDS];   // seconds since then
    double last[SPENT_KINDS]; // what the last save and the last validation have taken
    double step;              // a step, smoothed; 0 before the first
};

// Adds the time from `began` (clock_now) to now.
void spent_add(struct spent *spent, enum spent_on what, int64_t began);
void spent_add_seconds(struct spent *spent, enum spent_on what, double seconds);
// Takes note that a whole save or validation took so long, for the time that is left.
void spent_took(struct spent *spent, enum spent_on what, double seconds);
// Takes note that a step alone took so long.
void spent_add_step(struct spent *spent, double seconds);
// Fills in a step's times, its rate, and the time left: with the steps, savings and validations (if it `validates`)
// that the configuration has still to come. The next line counts from here.
void spent_take(struct spent *spent, const struct config *config, bool validates, struct train_step *step);

#endif
