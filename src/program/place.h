// Where buffers with known lifetimes go (offline dynamic storage allocation). Internal to program/.
#ifndef PROGRAM_PLACE_H
#define PROGRAM_PLACE_H

#include "program/live_ranges.h"

// Gives every LOCAL allocation and every one of pool 0 an offset, all from the start of one region. Returns its bytes.
int64_t place_together(struct lifetimes *lifetimes);
// LOCAL ones alone, those of one pool alone.
int64_t place_scratch(struct lifetimes *lifetimes);
int64_t place_pool(struct lifetimes *lifetimes, int pool);
// So many allocations alone.
int64_t place_some(struct lifetimes *lifetimes, const int *which, size_t count);
// Those of a chunk's own pool, and its LOCAL ones for now, where scratch is there once and a slot `slots` times, of
// which the microbatch at work sees one. LOCAL allocations may go into either: those that go into the slot become SLOT
// ones.
int64_t place_apart(struct lifetimes *lifetimes, int chunk, int slots);
// The same for each microbatch by itself: gives every range an offset, all from the start of one region (place_step.c).
// `enough` bytes are looked for, and where that takes long, `fair` ones. It ends sooner where the room's bytes do, and
// else finds what it finds without: with a room it returns more than that only where it does with 0, too.
struct room {
    int64_t bytes;
    bool soon; // ranges are not put anew where they are in the way (place_repair)
    bool left; // and would have been: set, never reset
};
int64_t place_step(struct live_ranges *ranges, const struct lifetimes *lifetimes, int64_t enough, int64_t fair,
                   struct room *room, int microbatches);

// Memory that is in use from one time to another, inclusive; where it is placed.
struct in_use {
    int first, last;
    int64_t bytes, offset;
};
// The most bytes that are in use at one time.
int64_t in_use_most(const struct in_use *range, size_t count);
// Gives each an offset; returns the bytes that they span. It ends where `enough` bytes do (place_skyline.c).
int64_t place_skyline(struct in_use *range, size_t count, int64_t enough);
// Gives each an offset within so many bytes, or none: false, at once where that is hardly more than is in use at one
// time. A period is how long it takes until the like is in use again; `share`: the part of the time that such a search
// may take (place_repair.c).
bool place_repair(struct in_use *range, size_t count, int64_t bytes, int period, double share);

// Sizes and bases, where scratch takes so many bytes and a slot of each pool so many.
void plan_arena(struct program *program, int64_t scratch, const int64_t *slot_bytes);
// Gives buffers what their allocations have.
void set_offsets(struct program *program, const struct lifetimes *lifetimes);
// Plans anew, with parts of its pools, a program that is planned with slots of one size; a step arena of the room's
// bytes is small enough. Where that takes no less, and not `always`, it returns false and changes nothing.
bool plan_parts(struct program *program, const struct op_table *table, struct room *room, bool always);

#endif
