// Where buffers with known lifetimes go (offline dynamic storage allocation). Internal to program/.
#ifndef PROGRAM_PLACE_H
#define PROGRAM_PLACE_H

#include "program/lifetime.h"

// Gives every LOCAL allocation and every one of pool 0 an offset, all from the start of one region. Returns its bytes.
int64_t place_together(struct lifetimes *lifetimes);
// LOCAL ones alone, those of one pool alone.
int64_t place_scratch(struct lifetimes *lifetimes);
int64_t place_pool(struct lifetimes *lifetimes, int pool);
// Those of a chunk's own pool, and its LOCAL ones for now, where scratch is there once and a slot `slots` times, of
// which the microbatch at work sees one. LOCAL allocations may go into either: those that go into the slot become SLOT
// ones.
int64_t place_apart(struct lifetimes *lifetimes, int chunk, int slots);

#endif
