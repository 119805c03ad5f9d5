// Allocations that are placed as one. Internal to memory/.
#ifndef MEMORY_JOIN_H
#define MEMORY_JOIN_H

#include "memory/live_ranges.h"

// With many microbatches there are too many allocations, one for each microbatch, to place them one by one. Those of
// one template then form one block, and so do those that live from one template to another and die at about the same
// time: the more microbatches are held at a time, the less it matters that a block is freed as a whole.
struct joined {
    struct lifetimes blocks;   // only its allocations are set: one for each block
    struct live_ranges ranges; // of the blocks
    int *block;                // of each allocation; NONE: it is not placed microbatch by microbatch
    int64_t *inside;           // where in its block each allocation lies
};
// Leaves about `most` ranges or fewer; where there are no more than that already, each allocation is a block.
void joined_create(struct joined *joined, struct lifetimes *lifetimes, const struct program *program,
                   const struct live_ranges *ranges, size_t most);
void joined_release(struct joined *joined);

#endif
