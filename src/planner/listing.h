// Internal to planner/: which of the simulated plans are listed. A user chooses between plans that differ in what
// matters; of plans that do not, the fastest stands for all.
//
// Plans of the same tensor and pipeline parallel degrees, schedule and microbatch size are a family. They may differ
// in how data parallel ranks share what they hold (shards, ZeRO stage, units), and in chunks, layers, recomputation,
// overlap and rows.
#ifndef PLANNER_LISTING_H
#define PLANNER_LISTING_H

#include "planner/search.h"

// Keeps a simulated plan, once, if it fits.
void listing_note(struct search *search, const struct plan_answer *answer);
// Fills the result's answers: the fastest plan of each family, and each slower one that leaves PLAN_TRADE of the
// device's memory more free than the previous listed plan of its family. Families that the search for the fastest plans
// passed over are searched now, as long as there is time.
void listing_fill(struct search *search, const struct candidates *all);

#endif
