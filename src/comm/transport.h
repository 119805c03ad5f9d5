// What a transport provides. comm.c makes a struct comm_call of every call's arguments and hands it to the transport
// of the world; nothing else knows which one that is.
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/deadline.h"

enum operation {
    OPERATION_OPEN,
    OPERATION_ALL_REDUCE,
    OPERATION_REDUCE_SCATTER,
    OPERATION_ALL_GATHER,
    OPERATION_BROADCAST,
    OPERATION_ALL_TO_ALL,
    OPERATION_ALL_TO_ALL_V,
    OPERATION_BARRIER,
    OPERATION_SEND,
    OPERATION_RECEIVE,
    OPERATION_COUNT
};

struct comm_call {
    // All members of a group must agree on these (`peer` of a send or receive aside).
    enum operation operation;
    enum dtype dtype, wire;
    enum reduction reduction;
    int peer;      // index: the root of a broadcast, the other end of a send or receive
    int64_t count; // elements; bytes where the call has no dtype (DTYPE_COUNT)
    // These are each rank's own.
    bool accumulate;
    const void *in;
    void *out;
    const int64_t *in_offset, *in_bytes, *out_offset, *out_bytes; // of an all-to-all-v
    const _Atomic int64_t *wanted;                                // as in struct deadline
    int64_t patience;                                             // communicator_patience; 0: as 1
};

// Begins to wait for the other members.
struct deadline comm_call_deadline(const struct world *world, const struct comm_call *call);

// Whether two members may meet with these calls.
bool comm_calls_agree(const struct comm_call *a, const struct comm_call *b);
// The call's count in bytes: of a rank's data or, in a reduce-scatter or an all-to-all, of its data for each rank.
int64_t comm_call_bytes(const struct comm_call *call);
// "all_reduce of 768 f32 (sum, wire bf16)"
enum { COMM_CALL_TEXT = 96 };
const char *comm_call_print(const struct comm_call *call, char text[COMM_CALL_TEXT]);

// Room for what reasons quote.
enum { GROUP_PRINT_TEXT = COMM_REASON / 4, MISSING_TEXT = 160 };
// "tp (ranks 0, 1)"; of the `size` members the first `shown` are in `members`.
const char *group_print(const char *name, int size, int shown, const int *members, char text[GROUP_PRINT_TEXT]);
// The index of `rank` in a group of a world of `ranks` ranks; -1 where the rank may not open such a group: `reason`
// then says why.
int group_index(int rank, int ranks, int size, const int *members, const char *name, char reason[COMM_REASON]);
// A list of the ranks that have not arrived, empty when zero; missing_text prints it as " rank 1" or " ranks 1, 3".
// `first` is the first one.
struct missing {
    char list[MISSING_TEXT - 8];
    int count, first;
    bool cut; // ends with "..."
};
void missing_add(struct missing *missing, int rank);
void missing_text(const struct missing *missing, char text[MISSING_TEXT]);

struct world_kept {
    void *what;
    void (*release)(void *what);
    struct world_kept *next;
};

// A transport's own structs begin with these two.
struct world {
    const struct transport *transport;
    int ranks;
    struct world_place place; // of ranks that are processes; else zero
    _Atomic int64_t deadline; // nanoseconds; 0: none
    _Atomic int policy;
    struct world_kept *_Atomic kept;
    pthread_mutex_t lock; // guards what follows, and whatever else the transport says
    atomic_bool broken, left;
    struct comm_failure failure;
    _Atomic int speaker; // world_speaker; INT_MAX: none
};
void world_init(struct world *world, const struct transport *transport, int ranks, double deadline);
void world_fini(struct world *world);

struct communicator {
    struct world *world;
    const char *name;
    int size, index;
    const int *rank;                  // [size]: of the world
    const _Atomic int64_t *wanted[2]; // communicator_wanted: of all other calls, of sends
    _Atomic int64_t patience;         // communicator_patience; 0 before it is called
    struct under_way *under_way;      // begin.c; NULL before the first call that is begun
};

// ---- failures (failure.c)

// The communicator fails, for a reason that is printed after "group NAME: "; with WORLD_ENDS the world breaks.
void communicator_fail(struct communicator *communicator, enum comm_cause cause, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// The same. Fills *error with the reason of the first failure, which may be another rank's, and returns its status.
trireme_status communicator_refuse(struct communicator *communicator, trireme_error *error, enum comm_cause cause,
                                   int rank, const char *format, ...) __attribute__((format(printf, 5, 6)));
// Fills *error for a call on a communicator that has failed, and returns its status. `missing`: the ranks that the call
// was waiting for; may be NULL.
trireme_status communicator_lost(const struct communicator *communicator, const struct comm_call *call,
                                 const struct missing *missing, trireme_error *error);

// ---- calls that end later (begin.c)

struct comm_handle under_way_begin(struct communicator *communicator, const struct comm_call *call);
bool under_way_any(const struct communicator *communicator);
// Ends what is under way; the communicator fails where that is not done.
void under_way_release(struct communicator *communicator);

struct transport {
    bool (*world_free)(struct world *world);
    // Wakes all that wait in a world that has just been broken. Called once, with the lock held; may add to the reason.
    void (*broken)(struct world *world);
    // Where communicators fail by themselves; NULL elsewhere. Called with the lock held: the communicator fails, unless
    // it has before; what failure it has; and all communicators with this rank, which is lost, fail.
    void (*fail)(struct communicator *communicator, const struct comm_failure *failure);
    const struct comm_failure *(*failure)(const struct communicator *communicator);
    void (*lose)(struct world *world, const struct comm_failure *failure);
    trireme_status (*open)(struct communicator **out, struct world *world, int rank, int size, const int *members,
                           const char *name, trireme_error *error);
    void (*close)(struct communicator *communicator);
    trireme_status (*run)(struct communicator *communicator, const struct comm_call *call, trireme_error *error);
};

#endif
