// Where buffers with known lifetimes go (offline dynamic storage allocation). Internal to memory/.
#ifndef MEMORY_PLACE_H
#define MEMORY_PLACE_H

#include "memory/live_ranges.h"

// Gives every LOCAL allocation and every one of pool 0 an offset, all from the start of one region. Returns its bytes.
int64_t place_together(struct lifetimes *lifetimes);
// The same for the LOCAL allocations alone, and for those of one pool alone.
int64_t place_scratch(struct lifetimes *lifetimes);
int64_t place_pool(struct lifetimes *lifetimes, int pool);
// The same for allocations which[count] alone.
int64_t place_some(struct lifetimes *lifetimes, const int *which, size_t count);
// Places the allocations of a chunk's own pool, and, for the time being, the LOCAL ones that it may use, where scratch
// exists once and a slot `slots` times, of which the microbatch at work sees one. LOCAL allocations of the chunk may go
// into either: those that go into the slot become SLOT ones. Returns the bytes of a slot.
int64_t place_apart(struct lifetimes *lifetimes, int chunk, int slots);
// Places each microbatch's ranges by themselves: gives every range an offset, all from the start of one region, and
// returns its bytes (place_step.c). Looks for at most `enough` bytes, or, where that takes long, `fair` bytes. Stops as
// soon as the region fits into the room's bytes; where none fits, the result is the same as for a room of 0 bytes.
struct room {
    int64_t bytes;
    bool hurried; // leave out place_repair, which takes long
    bool left;    // it was left out where it would have been tried: set, never reset
};
int64_t place_step(struct live_ranges *ranges, const struct lifetimes *lifetimes, int64_t enough, int64_t fair,
                   struct room *room, int microbatches);

// Memory that is in use from one time to another, inclusive, and where it is placed.
struct in_use {
    int first, last;
    int64_t bytes, offset;
};
// The most bytes that are in use at one time.
int64_t in_use_most(const struct in_use *range, size_t count);
// Gives each an offset; returns the bytes that they span. Stops once that is `enough` or less (place_skyline.c).
int64_t place_skyline(struct in_use *range, size_t count, int64_t enough);
// Gives each an offset within `bytes`, or none of them and returns false: at once where `bytes` is hardly more than
// what is in use at one time. `period`: the time after which similar memory is in use again. `share`: the part of the
// work such a search may take at most (place_repair.c).
bool place_repair(struct in_use *range, size_t count, int64_t bytes, int period, double share);

// Sets sizes and bases of a space's step arena, for scratch of so many bytes and slots of slot_bytes[pool] each.
void plan_arena(struct program *program, enum memory_space space, int64_t scratch, const int64_t *slot_bytes);
// Gives each SLOT and LOCAL buffer of the space the scope, the pool and the offset of its allocation.
void set_offsets(struct program *program, const struct lifetimes *lifetimes);
// Plans a program that is planned with slots of one size again, with parts of its pools; a step arena that fits into
// the room's bytes is small enough. If the result is no smaller and `always` is not set, returns false and changes
// nothing.
bool plan_parts(struct program *program, const struct op_table *table, struct room *room, bool always);

#endif
