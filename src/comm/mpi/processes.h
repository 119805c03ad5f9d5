// The transport between processes. Where all members of a group are on one node, collectives go through memory that
// they share (near.h). For all else one thread of each process makes all calls of MPI; whoever calls a collective hands
// it over and sleeps until it is done. The thread drives the calls of all communicators side by side with nonblocking
// sends and receives, so that nothing depends on MPI_THREAD_MULTIPLE or on progress inside MPI.
//
// Every collective call that the thread is handed goes so:
//   1. each member sends each other a *card*: its call and, if they are short, its data;
//   2. a member that has all cards compares them with its own call;
//   3. what came with the cards is used, and that is all; or the algorithm goes on in *rounds*: a set of sends and
//      receives, and what is done when all of them are complete.
// A send is a card and its data, and ends when the receiver answers that it has them.
//
// Messages of a communicator have its own tags. A pair of ranks exchanges as many messages in each call on both sides,
// in the same order, so that a rank that is ahead is no harm: its messages wait.
//
// When a world breaks, its reason goes to all ranks. Receives are cancelled; what is under way then has a moment to
// end; after that no MPI function is called any more, so that nothing reaches buffers of calls that have returned.
#ifndef COMM_MPI_PROCESSES_H
#define COMM_MPI_PROCESSES_H

#include <mpi.h>
#include <poll.h>
#include <pthread.h>

#include "comm/arithmetic.h"
#include "comm/gate.h"
#include "comm/patience.h"
#include "comm/transport.h"

enum { CARD_BYTES = 4032, CARD_DATA = CARD_BYTES - 64, GROUP_TEXT = 64 };
// Of one message; MPI counts with int.
#define MESSAGE_BYTES ((int64_t)1 << 30)
// Between nodes what is not longer than NETWORK_MOST goes in messages of NETWORK_MESSAGE bytes: Open MPI sends over TCP
// what is below 64 KB at once, but before anything longer it asks the receiver, whose answer waits behind all that it
// sends, and long messages come at half the rate where ranks compute meanwhile.
enum { NETWORK_MESSAGE = 60 << 10, NETWORK_MOST = 16 << 20 };
// Messages that one rank has under way at a time, to as many peers, in long all-to-alls and gathers.
enum { WINDOW = 8 };

struct card {
    int32_t operation, dtype, wire, reduction, peer, padding;
    int64_t count;
    int64_t bytes; // all_to_all_v: that the sender has for the receiver
    int64_t reserved[3];
    _Alignas(64) char data[CARD_DATA];
};
_Static_assert(sizeof(struct card) == CARD_BYTES, "what travels");

// An opening of a group travels as the data of a card.
struct group_card {
    char name[GROUP_TEXT];
    uint64_t members; // a hash
    int32_t size, number, shown;
    int32_t file;      // that its members share, of the first; -1: they do not
    int32_t member[8]; // the first of them
};

enum message { MESSAGE_CARD, MESSAGE_DATA, MESSAGE_TAKEN, MESSAGES };

struct process_world;
struct process_communicator;
struct near;

// What follows a complete round: posts the next, or posts nothing, which ends the call.
typedef void round_function(struct process_communicator *c);

// The nodes of a group, where there are several and each has as many of its members, more than one. Else `member` is
// NULL, and all members are alike.
struct group_nodes {
    int count, locals; // members of each
    int node, local;   // this member's
    int *member;       // [count * locals]: those of node 0 first; on each in the order of their index
};

enum staging { STAGING_RECEIVED, STAGING_SENT, STAGING_GATHERED, STAGING_ACROSS, STAGINGS };

struct process_communicator {
    struct communicator base;
    struct process_world *world;
    struct process_communicator *next; // in the queue of new calls, or of those under way
    // For sends, which another thread may call than the one that receives. It shares name, ranks and number.
    struct process_communicator *sender;
    char name[GROUP_TEXT];
    struct near *near; // of members that share memory; else NULL
    int near_file;     // while opening
    int *rank;         // world rank of each member
    int number;        // its tags are number * MESSAGES + message

    // The call; written by the caller, then by the thread, then read by the caller.
    const struct comm_call *call;
    struct gate finished; // counts calls
    trireme_status status;
    trireme_error *error;

    // Of the thread.
    round_function *after; // the current round
    struct patience patience;
    int round;                // of the algorithm
    VEC(MPI_Request) pending; // of the current round; done ones are MPI_REQUEST_NULL
    VEC(struct way {
        int member;
        bool receives;
        bool ahead; // of the round after the current one
    })
    way;                       // of each that is pending
    int left;                  // not complete, of the current round and what is ahead
    int awaited;               // of these, of the current round
    bool is_ahead;             // what is posted now is
    int64_t since;             // the current round's beginning
    int64_t pace;              // nanoseconds that the one before took, where this one is like it; else 0
    char taken;                // what a receiver answers
    bool lost;                 // *error is filled, and the call ends when nothing is pending
    VEC(int) completed;        // room for MPI_Testsome, never counted
    struct card *out, *in;     // [size]
    const void **contribution; // [size]
    struct group_nodes nodes;
    char *staging[STAGINGS]; // [2][size * segment bytes]; ACROSS only with nodes
    int64_t segment;         // bytes of a staging buffer of one member
    struct chunk *chunk;
};

// Nanoseconds from when another rank's process or memory is seen to be gone until that breaks the world. It may be gone
// because the world is broken: who broke it has told this rank, too, whose thread may not have heard yet.
enum { GRACE = 100000000 };

enum { LEAVING = 1, LEFT }; // the thread is in MPI's last call, or has ended

struct process_world {
    struct world base;
    int64_t spin; // nanoseconds
    pthread_t thread;
    struct gate inbox; // changes with every new call, break or end
    _Atomic(struct process_communicator *) posted;
    atomic_bool ending;
    atomic_bool broken;
    pthread_mutex_t lock; // guards the reason
    char reason[BREAK_TEXT];
    _Atomic int64_t looked;            // by the thread at the clock; 0: not yet
    _Atomic int64_t stopped, resumed;  // how long this process was stopped (process_was_away), and until when
    struct process_communicator *near; // open communicators of members that share memory, too
    bool shares, reads;                // whether ranks of a node can share memory, and read each other's, on all nodes

    // Start and end of the thread.
    struct gate started;
    trireme_status start_status;
    trireme_error start_error;
    struct gate left; // LEAVING, LEFT

    // Of the thread.
    MPI_Comm comm;
    int numbers; // of communicators opened, at least
    int last_number;
    struct process_communicator *active;
    MPI_Request break_receive;
    char break_text[BREAK_TEXT];
    bool told; // the break has been sent on
    char told_text[BREAK_TEXT];
    MPI_Request *tell; // [ranks]: its sends
    int64_t silence;   // when a broken world stops calling MPI
    bool silent;
    int *node;              // [ranks]: numbered by their first ranks
    int64_t *process_id;    // [ranks]
    struct pollfd *watched; // pidfds of the other ranks of this machine
    int64_t missed;         // when one of them was first seen to have ended; 0 before
    int *watched_rank, watched_count;
};

// ---- rounds (rounds.c)

// Begins a round; what is posted until the function returns belongs to it. Nothing is under way.
void round_begin(struct process_communicator *c, round_function *after);
// What is posted from now on until the function returns belongs to the round after this one, which round_follow begins:
// so no link is idle between rounds.
void round_ahead(struct process_communicator *c);
// Begins the round whose messages were posted ahead; what is posted until the function returns is ahead again.
void round_follow(struct process_communicator *c, round_function *after);
// `member`: its index. Zero bytes are no message.
void round_send(struct process_communicator *c, int member, enum message kind, const void *data, int64_t bytes);
void round_receive(struct process_communicator *c, int member, enum message kind, void *data, int64_t bytes);
// Tests what is pending; true if a round was complete, or on one node anything: there more comes at once.
bool round_advance(struct process_communicator *c);
// What a call ends with in a broken world, by when the ranks `missing` (as missing_print has them, "": none) had not
// come.
trireme_status process_lost(const struct process_communicator *c, const struct comm_call *call, const char *missing,
                            trireme_error *error);
// Breaks the world for the sake of this call.
void round_refuse(struct process_communicator *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// " rank 1" or " ranks 1, 3" whose messages of the current round have not come; how many.
int missing_print(const struct process_communicator *c, char text[MISSING_TEXT]);

// ---- calls (cards.c)

void call_begin(struct process_communicator *c);

// ---- algorithms: what follows the cards

round_function open_agreed;                                                                // open.c
round_function all_reduce_cards, reduce_scatter_cards, all_gather_cards, all_to_all_cards; // short.c
round_function broadcast_cards, barrier_cards;
round_function all_reduce_parts, reduce_scatter_parts;                    // parts.c
round_function all_gather_window, all_to_all_window, all_to_all_v_window; // window.c
round_function broadcast_parts;                                           // broadcast.c
round_function all_reduce_nodes, reduce_scatter_nodes, all_gather_nodes;  // nodes.c
round_function broadcast_nodes;

// choose.c: functions of what all members agree on.
bool cards_carry(const struct comm_call *call); // all data
round_function *algorithm_of(const struct process_communicator *c);

// ---- parts of a long reduction (parts.c): that of member i is reduced by member i, segment by segment

// Elements [*begin, + returned) of segment `number` of the part of `member`.
int64_t part_segment(const struct process_communicator *c, int member, int number, int64_t *begin);
int part_segments(const struct process_communicator *c); // of the longest part
char *part_staging(const struct process_communicator *c, enum staging which, int member);
// This member's contribution to a segment, as it travels; `narrowed` has room for it.
const void *part_contribution(const struct process_communicator *c, int member, int number, char *narrowed);
// Reduces contribution[0..ranks), `count` elements of the wire's dtype each, and keeps that dtype.
void part_reduce(struct process_communicator *c, int ranks, int64_t count, char *to);
// The same, as the result of segment `number` of this member's part: into the call's output, and in an all-reduce of
// narrow values into GATHERED too.
void part_finish(struct process_communicator *c, int ranks, int number);
// Of an all-reduce: where a reduced segment lies as it travels.
char *part_result(const struct process_communicator *c, int member, int number, int64_t *bytes);
void part_widen(struct process_communicator *c, int number); // what has come of segment `number` of all others

// ---- the world

// Whether the others may have lost this process for a pause so long: they may have waited for it before.
static inline bool process_was_away(const struct process_world *w, int64_t pause) {
    const int64_t deadline = w->base.deadline;
    return deadline && pause >= deadline / 2;
}
void *progress_run(void *world); // progress.c: the thread
trireme_status process_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                            const char *name, trireme_error *error); // open.c
void process_close(struct communicator *communicator);
// inbox.c, on any thread. A call goes to the thread, and is waited for.
trireme_status process_hand_over(struct process_communicator *c, const struct comm_call *call, trireme_error *error);
// Notes the first reason, and wakes the thread, which tells all ranks.
void process_world_break(struct world *world, const char *reason);
void process_wake(struct process_world *world); // the thread looks at what has changed
#define PROCESS_HAS_DIED "the process of rank %d on %s has died"
// neighbours.c, on the thread: fills in the place and what to watch.
trireme_status neighbours_find(struct process_world *world, trireme_error *error);
// A rank of this node that has died, or -1.
int neighbours_dead(struct process_world *world);
void neighbours_release(struct process_world *world);
// Where MPI does not start: "rank 1 (process 123) is stopped", for each rank of this machine that keeps the others
// waiting, or that nobody knows who does (unstarted.c).
void unstarted_print(char *text, size_t limit);

// ---- memory that members of a node share (near_call.c)

// What a rank shows others of its node, to see what the system lets them do. It stays where it is until they have.
struct near_probe {
    int32_t file;
    uint64_t address, word;
};
void near_offer(struct near_probe *probe);
void near_try(const struct near_probe *theirs, int64_t process, bool *shares, bool *reads);
// Of the first member: a file with the group's memory, or -1.
int near_create(struct process_communicator *c);
// Of every member, once it knows the first's file; returns when all have mapped it.
trireme_status near_join(struct process_communicator *c, int file, trireme_error *error);
void near_release(struct process_communicator *c);
// A collective call. Not `done`: the thread does it.
trireme_status near_call(struct process_communicator *c, const struct comm_call *call, bool *done,
                         trireme_error *error);

#endif
