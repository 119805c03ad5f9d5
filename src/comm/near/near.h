// Collectives of a group whose members are on one node. They need no messages: the calling thread does the work, in
// memory that the members share, and by reading the other members' own memory where the system allows that.
//
// Every collective call of such a group goes so:
//   1. each member *posts* its call and, if they are short, a copy of its data in one of its two slots, which it uses
//      in turn, since a member that is ahead may post its next call while others still read the last one;
//   2. it waits until all have posted, and compares their calls with that of the first;
//   3. short data are taken from the copies, and the call is done; otherwise it goes on piece by piece through
//      *windows* of shared memory, or by reading the data where they lie, and members count *steps* that the others
//      wait for; or, where neither is possible, the call is left to messages.
//
// Nobody writes to another's data, so a call may return from a broken world at once.
#ifndef COMM_NEAR_NEAR_H
#define COMM_NEAR_NEAR_H

#include "comm/arithmetic.h"
#include "comm/deadline.h"
#include "comm/gate.h"
#include "comm/near/neighbours.h"

enum { NEAR_DATA = 64 << 10, NEAR_WINDOW = 1 << 20, NEAR_LINE = 64 };
enum { NEAR_MESSAGE = 1 << 30 }; // bytes that are read at a time, at most

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

// The part of a communicator that is about memory of its node. Its owner fills in the first seven.
struct near {
    struct communicator *base;
    const struct neighbours *neighbours;
    int64_t spin; // nanoseconds
    // Scratch memory, in use only during calls.
    const void **contribution; // [size]
    char *received;            // [size][segment]
    int64_t segment;           // bytes
    struct chunk *chunk;

    struct near_member *member; // [size], shared; NULL: the members share no memory
    struct near *next;          // for the owner
    uint32_t calls, steps;
    struct deadline deadline; // of the current call; begins when it first sleeps
    bool slept;               // in the current call
};

// ---- for the owner (near_call.c)

// For the first member of a group on one node: creates the group's memory, and returns its descriptor; else -1.
int near_create(struct near *n);
// For the other members, once they know the first one's descriptor. A barrier by near_call must follow on all: when it
// is over, all have mapped the memory.
trireme_status near_join(struct near *n, int file, trireme_error *error);
void near_release(struct near *n);
// Makes a collective call. Where *done is false afterwards, it has to be made by messages.
trireme_status near_call(struct near *n, const struct comm_call *call, bool *done, trireme_error *error);
// Wakes the calling thread, wherever it sleeps in near_call, since the world is broken.
void near_wake(struct near *n);

// What a rank shows the others of its node so that they can find out what the system lets them do. It must stay in
// place until they have tried.
struct near_probe {
    int32_t file;
    uint64_t address, word;
};
void near_offer(struct near_probe *probe);
void near_try(const struct near_probe *theirs, int64_t process, bool *shares, bool *reads);

// Wakes a member that sleeps until its bell changes.
static inline void near_ring(struct near_member *member) {
    atomic_fetch_add(&member->bell, 1);
    futex_wake(&member->bell, true);
}

// ---- waits and memory (near.c)

static inline bool near_world_is_broken(const struct near *n) {
    return atomic_load(&n->base->world->broken);
}
static inline int near_rank(const struct near *n, int member) {
    return n->base->rank[member];
}
// Where to put what another member contributes.
static inline char *near_received(const struct near *n, int member) {
    return n->received + member * n->segment;
}

// Waits until all others have posted this call.
trireme_status near_await_posts(struct near *n, const struct comm_call *call, trireme_error *error);
// Waits until all others have counted up to `steps`.
trireme_status near_await(struct near *n, const struct comm_call *call, uint32_t steps, trireme_error *error);
// Wakes the members that sleep, since there is something for them to see.
void near_ring_sleepers(const struct near *n);
// Counts one step more, and wakes the members that sleep.
void near_step(struct near *n);
// Counts one step more, and waits until all others have counted as many.
trireme_status near_meet(struct near *n, const struct comm_call *call, trireme_error *error);
// Reads another member's memory.
trireme_status near_read(struct near *n, int member, void *to, const void *from, int64_t bytes, trireme_error *error);
// The slot in which a member has posted this call, or, for this member itself, is to post it.
struct near_slot *near_slot(const struct near *n, int member);

// ---- algorithms (near_slots.c, near_pieces.c, near_direct.c)

typedef trireme_status near_algorithm(struct near *n, const struct comm_call *call, trireme_error *error);
struct near_way {
    void (*before)(struct near *n, const struct comm_call *call); // this member posts; or NULL
    near_algorithm *after;                                        // all have posted; NULL: left to messages
};

// Whether slots, pieces or reading directly serve a call, and how: a function of what all members agree on.
bool near_slots(const struct near *n, const struct comm_call *call, struct near_way *way);
bool near_pieces(const struct near *n, const struct comm_call *call, struct near_way *way);
bool near_direct(const struct near *n, const struct comm_call *call, struct near_way *way);

#endif
