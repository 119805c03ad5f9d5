// Allocations that are placed as one. Internal to program/.
#ifndef PROGRAM_JOIN_H
#define PROGRAM_JOIN_H

#include "program/live_ranges.h"

// Where there are many microbatches, each allocation for each of them would be too much to place one by one. Those of
// one template then form one block, and so do those that live from one template to another and die at about the same
// time: the more microbatches there are at a time, the less it matters that a block is freed as one.
struct joined {
    struct lifetimes blocks; // their allocations alone
    struct live_ranges ranges;
    int *block;      // of each allocation, NONE: it is not placed for microbatches
    int64_t *inside; // where in its block each allocation lies
};
// At most about `most` ranges; where there are no more than that, each allocation is a block.
void joined_create(struct joined *joined, struct lifetimes *lifetimes, const struct program *program,
                   const struct live_ranges *ranges, size_t most);
void joined_release(struct joined *joined);

#endif
