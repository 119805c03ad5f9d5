// When allocations are in use in the whole step: time here is every instruction of every invocation. Internal to
// memory/.
#ifndef MEMORY_LIVE_RANGES_H
#define MEMORY_LIVE_RANGES_H

#include "memory/lifetime.h"

// When an allocation is in use for one microbatch, or, if it is not kept per microbatch, for any.
struct live_range {
    int allocation, microbatch; // microbatch NONE: any
    int first, last;            // instructions of the step, inclusive
    int from, to;               // invocations, inclusive
    int64_t offset;             // once placed, else -1
};
struct live_ranges {
    VEC(struct live_range) items; // those of one allocation side by side
};
// What lingers in a chunk's own pool is in use from the chunk's first invocation for the microbatch to its last, or
// throughout the step where it has the same memory for all; what lingers in other pools has no range.
void live_ranges_create(struct live_ranges *ranges, const struct lifetimes *lifetimes, const struct program *program);
void live_ranges_release(struct live_ranges *ranges);
// live_bytes: the bytes of the step arena that are in use while each instruction of the step runs, which the caller
// frees. most_live_bytes: the most of them.
int64_t *live_bytes(const struct program *program, const struct lifetimes *lifetimes, const struct live_ranges *ranges);
int64_t most_live_bytes(const struct program *program, const struct lifetimes *lifetimes,
                        const struct live_ranges *ranges);

#endif
