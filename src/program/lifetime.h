// When buffers live. Internal to program/.
//
// Time here is that of one microbatch: the instructions of all templates in the order in which the schedule first
// invokes them. A SLOT or LOCAL buffer lives from its first to its last touch on that line, whatever is run between.
// What another stream than compute touches lives on until compute waits for it, or to the template's end; a message
// between stages, and what one chunk hands to another on the same rank, throughout.
#ifndef PROGRAM_LIFETIME_H
#define PROGRAM_LIFETIME_H

#include "program/program.h"

// Buffers that share one piece of memory: one root, or several of which each takes over where another dies (inplace).
struct allocation {
    enum buffer_scope scope;
    int pool;     // SLOT: the whole one
    int chunk;    // LOCAL: the one whose microbatches' templates alone touch it, else NONE
    int template; // the one that alone touches it, NONE: several
    bool arrives; // what comes from another rank is written here
    bool lingers; // may be in use when compute uses it last, or before: it has memory of its own (lingering.h)
    bool once;    // and the same for all microbatches
    int64_t bytes;
    int first, last; // inclusive
    int64_t offset;  // from the start of its region, once placed
};

struct lifetimes {
    int *start; // template -> time of its first instruction, -1 when never invoked
    int length;
    int *allocation; // buffer -> its allocation, NONE for slices, STATE, STEP and MICROBATCH buffers, and unused ones
    VEC(struct allocation) allocations;
};

// With all_slots, what one template alone touches, for one microbatch at a time, counts as SLOT where it is LOCAL; and
// has the same memory for all microbatches where it is sent, since the template's next invocation waits for that.
void lifetimes_create(struct lifetimes *lifetimes, const struct program *program, const struct op_table *table,
                      bool all_slots);
void lifetimes_release(struct lifetimes *lifetimes);
// The instructions of a template at which compute has waited for each: itself, where compute runs that. The caller
// frees.
int *lifetime_awaited(const struct template *template);

#endif
