// Where buffers with known lifetimes go (offline dynamic storage allocation). Internal to program/.
#ifndef PROGRAM_PLACE_H
#define PROGRAM_PLACE_H

#include "program/lifetime.h"

// Gives every allocation an offset, all from the start of one region. Returns its bytes.
int64_t place_together(struct lifetimes *lifetimes);
// The same where one region (scratch) is there once and another `slots` times, of which the microbatch at work sees
// one. LOCAL allocations may go into either: those that go into the slot become SLOT ones.
void place_apart(struct lifetimes *lifetimes, int slots, int64_t *scratch_bytes, int64_t *slot_bytes);

#endif
