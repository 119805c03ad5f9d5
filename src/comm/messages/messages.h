// The transport between processes, over any wire (wire.h). Where all members of a group are on one node, collectives go
// through their memory as far as the system allows (near.h). For everything else one thread of each process makes all
// calls of the wire: a caller hands its call over to that thread and sleeps until it is done. The thread drives the
// calls of all communicators side by side with sends and receives that do not block, so nothing depends on a wire that
// threads may share, or that moves messages on by itself.
//
// Every collective call that the thread is handed goes so:
//   1. each member sends each other a *header*: its call and, if they are short, its data;
//   2. a member that has all headers compares them with the first member's;
//   3. short data, which came with the headers, are used, and the call is done; otherwise the algorithm goes on in
//      *rounds*, each a set of sends and receives and a function that is called when all of them are complete.
// A send is a header and its data, and ends when the receiver answers that it has them.
//
// Each communicator has tags of its own. In each call both ranks of a pair post matching messages in the same order, so
// a rank that is ahead does no harm: its messages wait.
//
// When a world breaks, the reason goes to all ranks. Receives are cancelled; the other messages under way have a moment
// to complete; after that the wire is not called any more, so that nothing reaches buffers of calls that have returned.
#ifndef COMM_MESSAGES_MESSAGES_H
#define COMM_MESSAGES_MESSAGES_H

#include "comm/arithmetic.h"
#include "comm/deadline.h"
#include "comm/gate.h"
#include "comm/messages/wire.h"
#include "comm/near/near.h"

enum { HEADER_BYTES = 4032, HEADER_DATA = HEADER_BYTES - 64, GROUP_TEXT = 64 };
// How many messages, each to another peer, a rank has under way at a time in long all-to-alls and gathers.
enum { WINDOW = 8 };

struct header {
    int32_t operation, dtype, wire, reduction, peer, padding;
    int64_t count;
    int64_t bytes; // all_to_all_v: what the sender has for the receiver
    int64_t reserved[3];
    _Alignas(64) char data[HEADER_DATA];
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "as headers travel");
_Static_assert(sizeof(struct header) <= WIRE_LEAST,
               "a header is one message, which may be shorter than its receiver expects");

// An opening of a group travels as the data of a header.
struct group_header {
    char name[GROUP_TEXT];
    uint64_t members; // a hash of all of them
    int32_t size, number, shown;
    int32_t file;      // the first member's descriptor of the memory that members share; -1: they share none
    int32_t member[8]; // the first `shown` of the members
};

enum message { MESSAGE_HEADER, MESSAGE_DATA, MESSAGE_TAKEN, MESSAGES };
// The tags of a communicator are number * MESSAGES + message.
enum { NUMBER_WORLD, NUMBER_OPENING, NUMBERS }; // no communicator's; those are NUMBERS and more
enum { TAG_BREAK, TAG_MEET };                   // of NUMBER_WORLD

// What travels when a world breaks.
struct break_header {
    int32_t cause, rank, from; // the last sends it
    char reason[COMM_REASON];
};

struct process_world;
struct process_communicator;

// Called when a round is complete: posts the messages of the next one, or none, which ends the call.
typedef void round_function(struct process_communicator *c);

// The nodes of a group, where there are several and each has the same number of members, more than one. Otherwise
// `member` is NULL, and nodes make no difference.
struct group_nodes {
    int count, locals; // members of each
    int node, local;   // this member's
    int *member;       // [count * locals]: members by node, and on each node in the order of their index
};

enum staging { STAGING_RECEIVED, STAGING_SENT, STAGING_GATHERED, STAGING_ACROSS, STAGINGS };

struct process_communicator {
    struct communicator base;
    struct process_world *world;
    struct process_communicator *next; // in the queue of new calls, or of those under way
    // For sends, which may be called by another thread than receives. It shares name, ranks and number.
    struct process_communicator *sender;
    char name[GROUP_TEXT];
    struct near near;
    int near_file; // while opening: the descriptor of the memory that members share
    int number;

    // The call; written by the caller, then by the thread, then read by the caller.
    const struct comm_call *call;
    struct gate finished; // counts calls
    trireme_status status;
    trireme_error *error;

    // Of the thread.
    round_function *after; // the current round
    struct deadline deadline;
    int round;                        // of the algorithm
    VEC(struct wire_request) pending; // of the current round; done ones are zero
    VEC(struct way {
        int member;
        bool receives;
        bool ahead; // whether it belongs to the round after the current one
    })
    way;                       // of each pending message
    int left;                  // incomplete messages, of the current round and of the one after it
    int awaited;               // those of them that belong to the current round
    bool is_ahead;             // messages that are posted now belong to the round after the current one
    int64_t since;             // the current round's beginning
    int64_t pace;              // nanoseconds that the round before took, where this one is like it; else 0
    char taken;                // what a receiver answers
    bool lost;                 // *error is filled, and the call ends when nothing is pending
    VEC(int) completed;        // room for a test, never counted
    struct header *out, *in;   // [size]
    const void **contribution; // [size]
    struct group_nodes nodes;
    char *staging[STAGINGS]; // [2][size * segment bytes]; ACROSS only with nodes
    int64_t segment;         // bytes of a staging buffer of one member
    struct chunk *chunk;
};

enum { LEAVING = 1, LEFT }; // of the thread: it is in the wire's last call; it has ended

struct process_world {
    struct world base;
    struct wire *wire;
    int64_t spin; // nanoseconds
    pthread_t thread;
    struct gate inbox; // changes with every new call, break or end
    _Atomic(struct process_communicator *) posted;
    atomic_bool ending;
    _Atomic int64_t looked;           // when the thread last looked at the clock; 0: not yet
    _Atomic int64_t stopped, resumed; // how long this process was stopped (process_was_away), and until when
    struct near *near;                // open communicators of members that share memory; guarded by the lock

    // Start and end of the thread.
    struct gate started;
    trireme_status start_status;
    trireme_error start_error;
    struct gate left; // LEAVING, LEFT

    // Of the thread.
    struct neighbours neighbours; // the same on all ranks, once they have started
    int numbers;                  // how many numbers of communicators are taken, at least
    int last_number;
    struct process_communicator *active;
    struct break_header heard, told;
    struct wire_request hears;  // the receive of a break
    struct wire_request *tells; // [ranks]: the sends of the break
    int *tells_done;            // [ranks]: room for a test
    bool is_told;               // the break has been sent on
    int64_t silence;            // when a broken world stops calling the wire
    bool silent;
    int64_t missed; // when the process of a neighbour was first seen to have ended; 0 before
};

// ---- rounds (rounds.c)

// These three are called by round functions. Begins a round: what the calling round function posts from now on belongs
// to it. No message may be under way.
void round_begin(struct process_communicator *c, round_function *after);
// What the calling round function posts from now on belongs to the round after this one, which round_follow begins: so
// no link is idle between rounds.
void round_ahead(struct process_communicator *c);
// Begins the round whose messages were posted ahead; what the calling round function posts from now on is ahead again.
void round_follow(struct process_communicator *c, round_function *after);
// `member`: its index. Zero bytes are no message.
void round_send(struct process_communicator *c, int member, enum message kind, const void *data, int64_t bytes);
void round_receive(struct process_communicator *c, int member, enum message kind, void *data, int64_t bytes);
// Tests the pending messages; true if a round was complete, or, on one node, any message: there more follows at once.
bool round_advance(struct process_communicator *c);
// Breaks the world for the sake of this call, because of `rank`.
void round_refuse(struct process_communicator *c, enum comm_cause cause, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// The ranks whose messages of the current round have not arrived.
struct missing round_missing(const struct process_communicator *c);

// ---- calls (headers.c)

void call_begin(struct process_communicator *c);

// ---- algorithms: how calls go on after the headers

round_function open_agreed;                                                                        // open.c
round_function all_reduce_headers, reduce_scatter_headers, all_gather_headers, all_to_all_headers; // short.c
round_function broadcast_headers, barrier_headers;
round_function all_reduce_parts, reduce_scatter_parts;                    // parts.c
round_function all_gather_window, all_to_all_window, all_to_all_v_window; // window.c
round_function broadcast_parts;                                           // broadcast.c
round_function all_reduce_nodes, reduce_scatter_nodes, all_gather_nodes;  // nodes.c
round_function broadcast_nodes;

// messages_choose.c: functions of what all members agree on.
bool headers_carry(const struct comm_call *call); // all data
round_function *algorithm_of(const struct process_communicator *c);

// ---- parts of a long reduction (parts.c): member i reduces part i, segment by segment

// Segment `number` of the part of `member`: returns how many elements it has, and sets *begin to the first.
int64_t part_segment(const struct process_communicator *c, int member, int number, int64_t *begin);
int part_segments(const struct process_communicator *c); // of the longest part
char *part_staging(const struct process_communicator *c, enum staging which, int member);
// This member's contribution to a segment, as it travels; `narrowed` has room for it in the wire's dtype.
const void *part_contribution(const struct process_communicator *c, int member, int number, char *narrowed);
// Reduces contribution[ranks], `count` elements of the wire's dtype each, to `to`, in the same dtype.
void part_reduce(struct process_communicator *c, int ranks, int64_t count, char *to);
// The same for the final result of segment `number` of this member's part: into the call's output and, in an all-reduce
// whose wire is narrower than its dtype, into STAGING_GATHERED too.
void part_finish(struct process_communicator *c, int ranks, int number);
// In an all-reduce: where a reduced segment lies as it travels, and its bytes.
char *part_result(const struct process_communicator *c, int member, int number, int64_t *bytes);
void part_widen(struct process_communicator *c, int number); // what has arrived of segment `number` of all others

// ---- the world

// Whether the other ranks may have called this process late for a pause that long: they may have waited for it even
// before the pause.
static inline bool process_was_away(const struct process_world *w, int64_t pause) {
    const int64_t deadline = w->base.deadline;
    return deadline && pause >= deadline / 2;
}
void *progress_run(void *world); // progress.c: the thread
trireme_status process_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                            const char *name, trireme_error *error); // open.c
void process_close(struct communicator *communicator);
// inbox.c, on any thread. Hands a call over to the thread, and waits until it is done.
trireme_status process_hand_over(struct process_communicator *c, const struct comm_call *call, trireme_error *error);
// The world is broken: wakes the thread, which tells all ranks, and those who sleep in shared memory.
void process_broken(struct world *world);
void process_wake(struct process_world *world); // makes the thread look at what has changed

// ---- all ranks together, without communicators (meeting.c); on the thread

// all[ranks] = the bytes that each rank gives. May take as long as the ranks do.
trireme_status meeting_exchange(struct wire *wire, const void *own, void *all, int64_t bytes, trireme_error *error);
// Ranks meet for the last time. begin returns false where that is impossible; test 1 once all have come, 0 before, and
// -1 where they cannot meet any more.
struct meeting {
    struct wire *wire;
    struct wire_request *request; // [ranks]
    int *done;                    // [ranks]: room for a test
    char *byte;                   // [ranks]
    int left;
    bool answers; // rank 0 has heard all, and lets them go
};
bool meeting_begin(struct meeting *meeting, struct wire *wire);
int meeting_test(struct meeting *meeting);
void meeting_release(struct meeting *meeting);

#endif
