// Internal to plan/: which of what was simulated is listed. A user chooses between plans that differ in what matters;
// of those that do not, the fastest stands for all.
//
// Of a family are plans of the same tensor and pipeline parallel degrees, schedule and microbatch. They differ in how
// data parallel ranks share what they hold (shards, ZeRO stage, units), chunks, layers, what is computed again, overlap
// and rows.
#ifndef PLAN_LISTING_H
#define PLAN_LISTING_H

#include "plan/search.h"

// Keeps what was simulated and fits, once.
void listing_note(struct search *search, const struct plan_answer *answer);
// Fills the result's answers: of each family the fastest, and each other that, for its time, has PLAN_TRADE of the
// device's memory more free than the last of its family before it. Families that were left out for the fastest ones'
// sake are looked at, as long as there is time.
void listing_fill(struct search *search, const struct candidates *all);

#endif
