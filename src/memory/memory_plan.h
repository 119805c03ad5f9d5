// memory/: gives the buffers of a program their addresses, in each memory space by itself, so that what lives at one
// time lies apart and the arenas are small; and tells what they hold. How it is done: docs/memory.md. Includes
// program/ and the folders before it.
#ifndef MEMORY_MEMORY_PLAN_H
#define MEMORY_MEMORY_PLAN_H

#include "program/program.h"

// What a plan is to reach.
struct plan_aim {
    int64_t
        room; // bytes of the device's arenas together at which no smaller plan is looked for, which saves time; 0: none
    bool hurried; // leave out a search that takes long and rarely finds less (place_repair.c)
};
// Gives every buffer its offset, except STATE buffers, which have theirs from the state (state/state_table.h). Without
// an aim (NULL), the device's step arena is as small as can be found. Refuses tables that are not well formed, STATE
// buffers without a place, and arenas beyond any address space.
trireme_status program_plan(struct program *program, const struct op_table *table, const struct plan_aim *aim,
                            trireme_error *error);
// Plans a hurried program again for so much room, now with nothing left out; does nothing for others. Returns false,
// and changes nothing, where that would need the program as it was before program_plan.
bool program_shrink(struct program *program, const struct op_table *table, int64_t room);

// One moment of the step: bytes of the device's step arena that hold live buffers while an instruction runs.
struct memory_moment {
    int invocation, instruction;
    int64_t live;
};
// A root buffer, and the bytes of the arena that it has: for MICROBATCH buffers all instances. Memory that buffers take
// over from one another appears once, under the buffer that was written last.
struct memory_holder {
    int buffer;
    int64_t bytes;
};
struct memory_profile {
    VEC(struct memory_moment) moments; // one per instruction run, schedule order
    size_t peak;                       // index of the largest
    VEC(struct memory_holder) at_peak; // what is live there, largest first; the rest belongs to other microbatches
};
void program_memory_profile(const struct program *program, const struct op_table *table,
                            struct memory_profile *profile);
void memory_profile_release(struct memory_profile *profile);
// Bytes that the first microbatch holds in chunk 0, without messages, once its template of the phase has run: what was
// in use by then and will be used again.
int64_t program_held_bytes(const struct program *program, const struct op_table *table, enum phase phase);

#endif
