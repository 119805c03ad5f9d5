// The transport between threads of one process. Every rank publishes where its data lie, and reads and writes the data
// of the others directly; only short data are copied to a third place.
//
// Every collective call of a group goes so:
//   1. each member *posts* its call and, if they are short, a copy of its data in one of its two slots, used in turn;
//   2. all members meet; each compares what the others posted with what the first did;
//   3. short data are read from the copies, and the call is done. Otherwise each member *enters*, works on the memory
//      of the others, leaves, and all meet again, so that nobody returns while others use its memory.
// A slot is written again two calls later. Its readers have finished by then: they have come to the meeting of the call
// between.
//
// A group that fails has BROKEN set in every word that somebody may wait on; in a world that breaks, all groups do. A
// member that returns for that reason first waits until no member that has entered is still at work. Entering writes
// `inside` and then looks for BROKEN; failing does it the other way round (both sequentially consistent), so one of the
// two sees the other.
#ifndef COMM_THREADS_THREADS_H
#define COMM_THREADS_THREADS_H

#include <pthread.h>

#include "comm/arithmetic.h"
#include "comm/gate.h"
#include "comm/transport.h"

enum { SLOT_BYTES = 8192, LINE = 128 }; // LINE: two cache lines, which are fetched in pairs
#define BROKEN 0x80000000u

struct posted {
    struct comm_call call;
    char *data; // [SLOT_BYTES], the group's; pages take no memory until they are written
};

struct thread_member {
    _Alignas(LINE) _Atomic uint32_t meetings; // that the member has come to
    _Atomic uint32_t inside;                  // whether it works on others' memory
    // For sends: 0, or the receiver's index + 1 while mail_data[mail_bytes] waits to be taken.
    _Alignas(LINE) struct gate mail;
    const void *mail_data;
    int64_t mail_bytes;
    struct posted posted[2];
};

struct group {
    struct group *next; // of the world, in order of creation
    char *name;
    int size, references;
    int *rank;   // world rank of each member
    bool *is_in; // which members have opened it
    atomic_bool failed;
    struct comm_failure failure; // guarded by the world's lock
    _Alignas(LINE) _Atomic uint32_t arrivals;
    struct gate meeting; // the number of the last meeting that all have come to
    struct thread_member *member;
    // [turn][member]: where the copy in its slot lies, and the memory that it has posted for others to work on.
    const void **copies[2], **in[2];
    void **out[2];
    char *data;          // of all slots of all members
    struct chunk *chunk; // of each member; pages take no memory until they are written, as above
};

struct thread_world {
    struct world base;
    int64_t spin; // nanoseconds
    bool crowded; // more ranks than cores
    // Guarded by the lock.
    struct group *groups;
    struct group **opening;     // [ranks]: the group that the rank waits for others to join
    struct comm_failure **lost; // [ranks]: of the ranks that are lost; else NULL
};

struct thread_communicator {
    struct communicator base;
    struct thread_world *world;
    struct group *group;
    uint32_t calls, meetings; // collective calls begun, meetings come to
    struct chunk *chunk;      // the group's, for this member
};

// ---- what all calls share (meet.c)

// Comes to the next meeting of the group and waits for all others.
trireme_status group_meet(struct thread_communicator *c, const struct comm_call *call, trireme_error *error);
// What the member at `index` has posted in this call, or, for this member itself, is to post.
struct posted *posted_by(const struct thread_communicator *c, int index);
// Steps 1 and 2 above; data that others are to read from the slot are already in it.
trireme_status call_post(struct thread_communicator *c, const struct comm_call *call, trireme_error *error);
// After call_post: from here to call_leave or call_abandon the memory that others posted may be used. `word` is any of
// the words in which failing sets BROKEN.
trireme_status call_enter(struct thread_communicator *c, const struct comm_call *call, struct gate *word,
                          trireme_error *error);
void call_abandon(struct thread_communicator *c);
trireme_status call_leave(struct thread_communicator *c, const struct comm_call *call, trireme_error *error);
// The group fails because of this rank; returns what call_lost returns, for that reason.
trireme_status call_fail(struct thread_communicator *c, const struct comm_call *call, trireme_error *error,
                         enum comm_cause cause, int rank, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
// In a group that has failed: waits until nobody uses this member's memory, and says why the call has failed.
// `missing`: those that it waited for, or NULL.
trireme_status call_lost(struct thread_communicator *c, const struct comm_call *call, const struct missing *missing,
                         trireme_error *error);

// call_post and then call_enter, for a call whose members work on one another's memory. *in and *out become what the
// members have posted, by member; `out` may be NULL.
trireme_status call_share(struct thread_communicator *c, const struct comm_call *call, const void *const **in,
                          void *const **out, trireme_error *error);
// The copies in the members' slots, by member.
const void *const *posted_copies(const struct thread_communicator *c);

// ---- algorithms, one per file

typedef trireme_status algorithm(struct thread_communicator *c, const struct comm_call *call, trireme_error *error);
algorithm all_reduce_slots, all_reduce_blocks;
algorithm reduce_scatter_slots, reduce_scatter_direct;
algorithm all_gather_slots, all_gather_direct;
algorithm broadcast_slots, broadcast_blocks;
algorithm all_to_all_slots, all_to_all_direct;
algorithm all_to_all_v, barrier_meeting, send_mail, receive_mail;
// The fastest algorithm for the call: a function of what all members agree on.
algorithm *algorithm_choose(const struct comm_call *call, int ranks, bool crowded);

#endif
