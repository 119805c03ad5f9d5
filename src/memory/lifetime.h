// When buffers live. Internal to memory/.
//
// Time here is that of one microbatch: the instructions of all templates in the order in which the schedule first
// invokes them. A SLOT or LOCAL buffer lives from its first to its last touch on that line, whatever is run in between.
// What another stream than compute touches lives on until compute waits for that, or to the template's end. Messages
// between stages, and what one chunk hands to another on the same rank, live throughout.
#ifndef MEMORY_LIFETIME_H
#define MEMORY_LIFETIME_H

#include "program/program.h"

// Buffers that share one piece of memory: one root, or several of which each takes over where another dies (inplace).
struct allocation {
    enum buffer_scope scope;
    int pool;        // SLOT: the whole pool, not the part
    int chunk;       // LOCAL: the chunk, if only its templates for single microbatches touch it, else NONE
    int template;    // the template, if only one touches it, else NONE
    bool arrives;    // what comes from another rank is written here
    bool lingers;    // other streams may use it before or after compute does: it has memory of its own (lingering.h)
    bool once;       // and the same memory for all microbatches
    int64_t bytes;   // 0: its buffers moved to another allocation
    int first, last; // inclusive
    int64_t offset;  // from the start of its region, once placed
};

struct lifetimes {
    enum memory_space space; // whose buffers these are
    int *start;              // template -> time of its first instruction, -1 when never invoked
    int length;
    int *allocation; // buffer -> its allocation, NONE for slices, STATE, STEP and MICROBATCH buffers, and unused ones
    VEC(struct allocation) allocations;
};

// Of the buffers of one space. With all_slots, a LOCAL allocation that only one template touches, for one microbatch at
// a time, counts as SLOT unless it lingers; a SLOT one of that kind that is sent has the same memory for all
// microbatches, since the template's next invocation waits until it has been sent.
void lifetimes_create(struct lifetimes *lifetimes, const struct program *program, const struct op_table *table,
                      enum memory_space space, bool all_slots);
void lifetimes_release(struct lifetimes *lifetimes);
// For each instruction of a template, the one at which compute has waited for it: itself if compute runs it, the last
// one if compute never waits. The caller frees.
int *lifetime_awaited(const struct template *template);

#endif
