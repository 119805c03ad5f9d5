// Collectives of a group whose members are on one node. They need no MPI: the calling thread does the work, in memory
// that the members share, and by reading the other members' own memory where the system allows that.
//
// Every collective call of such a group goes so:
//   1. each member *posts* its call and, if they are short, a copy of its data in one of its two slots, which it uses
//      in turn, since a member that is ahead may post its next call while others still read the last one;
//   2. it waits until all have posted, and compares their calls with that of the first;
//   3. short data are taken from the copies, and the call is done; otherwise it goes on piece by piece through
//      *windows* of shared memory, or by reading the data where they lie, and members count *steps* that the others
//      wait for; or, where neither is possible, the thread of MPI takes over.
//
// Nobody writes to another's data, so a call may return from a broken world at once.
#ifndef COMM_MPI_NEAR_H
#define COMM_MPI_NEAR_H

#include "comm/mpi/mpi_world.h"

enum { NEAR_DATA = 64 << 10, NEAR_WINDOW = 1 << 20, NEAR_LINE = 64 };

struct near_slot {
    _Alignas(NEAR_LINE) _Atomic uint32_t number; // of the call that is posted here
    int32_t peer;
    uint8_t operation, dtype, wire, reduction;
    int64_t count;
    const void *in;
    void *out;
    _Alignas(NEAR_LINE) char data[NEAR_DATA];
};

// In shared memory.
struct near_member {
    _Alignas(2 * NEAR_LINE) _Atomic uint32_t steps;
    // Whether the member sleeps until somebody changes `bell`.
    _Alignas(2 * NEAR_LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t bell;
    _Alignas(2 * NEAR_LINE) struct near_slot slot[2];
    char window[NEAR_WINDOW];
};

struct near {
    struct process_communicator *next; // of the world's
    struct near_member *member;        // [size]
    uint32_t calls, steps;
    struct patience patience; // of the current call; begins when it first sleeps
    bool slept;               // in the current call
};

// Wakes a member that sleeps until its bell changes.
static inline void near_ring(struct near_member *member) {
    atomic_fetch_add(&member->bell, 1);
    futex_wake(&member->bell, true);
}

// ---- waits and memory (near.c)

// Waits until all others have posted this call.
trireme_status near_await_posts(struct process_communicator *c, const struct comm_call *call, trireme_error *error);
// Waits until all others have counted up to `steps`.
trireme_status near_await(struct process_communicator *c, const struct comm_call *call, uint32_t steps,
                          trireme_error *error);
// Wakes the members that sleep, since there is something for them to see.
void near_ring_sleepers(const struct process_communicator *c);
// Counts one step more, and wakes the members that sleep.
void near_step(struct process_communicator *c);
// Counts one step more, and waits until all others have counted as many.
trireme_status near_meet(struct process_communicator *c, const struct comm_call *call, trireme_error *error);
// Reads another member's memory.
trireme_status near_read(struct process_communicator *c, int member, void *to, const void *from, int64_t bytes,
                         trireme_error *error);
// The slot in which a member has posted this call, or, for this member itself, is to post it.
struct near_slot *near_slot(const struct process_communicator *c, int member);

// ---- algorithms (near_slots.c, near_pieces.c, near_direct.c)

typedef trireme_status near_algorithm(struct process_communicator *c, const struct comm_call *call,
                                      trireme_error *error);
struct near_way {
    void (*before)(struct process_communicator *c, const struct comm_call *call); // this member posts; or NULL
    near_algorithm *after; // all have posted; NULL: the thread of MPI does it
};

// Whether slots, pieces or reading directly serve a call, and how: a function of what all members agree on.
bool near_slots(const struct process_communicator *c, const struct comm_call *call, struct near_way *way);
bool near_pieces(const struct process_communicator *c, const struct comm_call *call, struct near_way *way);
bool near_direct(const struct process_communicator *c, const struct comm_call *call, struct near_way *way);

#endif
