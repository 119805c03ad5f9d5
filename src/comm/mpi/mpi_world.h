// The transport between processes. Where all members of a group are on one node, collectives go through their memory as
// far as the system allows (near.h). For everything else one thread of each process makes all calls of MPI: a caller
// hands its call over to that thread and sleeps until it is done. The thread drives the calls of all communicators side
// by side with nonblocking sends and receives, so nothing depends on MPI_THREAD_MULTIPLE or on progress inside MPI.
//
// Every collective call that the thread is handed goes so:
//   1. each member sends each other a *card*: its call and, if they are short, its data;
//   2. a member that has all cards compares them with the first member's;
//   3. short data, which came with the cards, are used, and the call is done; otherwise the algorithm goes on in
//      *rounds*, each a set of sends and receives and a function that is called when all of them are complete.
// A send is a card and its data, and ends when the receiver answers that it has them.
//
// Each communicator has tags of its own. In each call both ranks of a pair post matching messages in the same order, so
// a rank that is ahead does no harm: its messages wait.
//
// When a world breaks, the reason goes to all ranks. Receives are cancelled; the other messages under way have a moment
// to complete; after that no MPI function is called any more, so that nothing reaches buffers of calls that have
// returned.
#ifndef COMM_MPI_MPI_WORLD_H
#define COMM_MPI_MPI_WORLD_H

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
// Between nodes, up to NETWORK_MOST bytes go in messages of NETWORK_MESSAGE bytes. Over TCP, Open MPI sends messages
// below 64 KB at once; before a longer one it asks the receiver, whose answer queues behind everything that the
// receiver sends itself, and while ranks compute, long messages arrive at half the rate.
enum { NETWORK_MESSAGE = 60 << 10, NETWORK_MOST = 16 << 20 };
// How many messages, each to another peer, a rank has under way at a time in long all-to-alls and gathers.
enum { WINDOW = 8 };

struct card {
    int32_t operation, dtype, wire, reduction, peer, padding;
    int64_t count;
    int64_t bytes; // all_to_all_v: what the sender has for the receiver
    int64_t reserved[3];
    _Alignas(64) char data[CARD_DATA];
};
_Static_assert(sizeof(struct card) == CARD_BYTES, "as cards travel");

// An opening of a group travels as the data of a card.
struct group_card {
    char name[GROUP_TEXT];
    uint64_t members; // a hash of all of them
    int32_t size, number, shown;
    int32_t file;      // the first member's descriptor of the memory that members share; -1: they share none
    int32_t member[8]; // the first `shown` of the members
};

enum message { MESSAGE_CARD, MESSAGE_DATA, MESSAGE_TAKEN, MESSAGES };

struct process_world;
struct process_communicator;
struct near;

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
    struct near *near; // NULL unless the members share memory
    int near_file;     // while opening: the descriptor of that memory
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
    VEC(int) completed;        // room for MPI_Testsome, never counted
    struct card *out, *in;     // [size]
    const void **contribution; // [size]
    struct group_nodes nodes;
    char *staging[STAGINGS]; // [2][size * segment bytes]; ACROSS only with nodes
    int64_t segment;         // bytes of a staging buffer of one member
    struct chunk *chunk;
};

// Nanoseconds between seeing that another rank's process or memory is gone and breaking the world for that reason. It
// may be gone because the world is already broken: then the reason was sent to this rank too, and its thread may not
// have received it yet.
enum { GRACE = 100000000 };

enum { LEAVING = 1, LEFT }; // of the thread: it is in MPI's last call; it has ended

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
    _Atomic int64_t looked;            // when the thread last looked at the clock; 0: not yet
    _Atomic int64_t stopped, resumed;  // how long this process was stopped (process_was_away), and until when
    struct process_communicator *near; // open communicators of members that share memory, too
    bool shares, reads;                // whether on all nodes ranks can share memory, and read each other's

    // Start and end of the thread.
    struct gate started;
    trireme_status start_status;
    trireme_error start_error;
    struct gate left; // LEAVING, LEFT

    // Of the thread.
    MPI_Comm comm;
    int numbers; // how many numbers of communicators are taken, at least
    int last_number;
    struct process_communicator *active;
    MPI_Request break_receive;
    char break_text[BREAK_TEXT];
    bool told; // the break has been sent on
    char told_text[BREAK_TEXT];
    MPI_Request *tell; // [ranks]: the sends of the break
    int64_t silence;   // when a broken world stops calling MPI
    bool silent;
    int *node;              // [ranks]: numbered by their first ranks
    int64_t *process_id;    // [ranks]
    struct pollfd *watched; // pidfds of the other ranks of this machine
    int64_t missed;         // when one of those processes was first seen to have ended; 0 before
    int *watched_rank, watched_count;
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
// The status and error that a call ends with in a broken world. `missing`: the ranks that had not arrived by then, as
// missing_print prints them ("": none).
trireme_status process_lost(const struct process_communicator *c, const struct comm_call *call, const char *missing,
                            trireme_error *error);
// Breaks the world for the sake of this call.
void round_refuse(struct process_communicator *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Prints the ranks whose messages of the current round have not arrived, " rank 1" or " ranks 1, 3"; returns how many.
int missing_print(const struct process_communicator *c, char text[MISSING_TEXT]);

// ---- calls (cards.c)

void call_begin(struct process_communicator *c);

// ---- algorithms: how calls go on after the cards

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
// Notes the first reason, and wakes the thread, which tells all ranks.
void process_world_break(struct world *world, const char *reason);
void process_wake(struct process_world *world); // makes the thread look at what has changed
#define PROCESS_HAS_DIED "the process of rank %d on %s has died"
// neighbours.c, on the thread: fills in the place and what to watch.
trireme_status neighbours_find(struct process_world *world, trireme_error *error);
// A rank of this node whose process has died, or -1.
int neighbours_dead(struct process_world *world);
void neighbours_release(struct process_world *world);
// For when MPI does not start (unstarted.c): writes to text[limit] "rank 1 (process 123) is stopped" or the like for
// each rank of this machine that keeps the others waiting, or that it is not known which rank does.
void unstarted_print(char *text, size_t limit);

// ---- memory that members of a node share (near_call.c)

// What a rank shows the others of its node so that they can find out what the system lets them do. It must stay in
// place until they have tried.
struct near_probe {
    int32_t file;
    uint64_t address, word;
};
void near_offer(struct near_probe *probe);
void near_try(const struct near_probe *theirs, int64_t process, bool *shares, bool *reads);
// For the group's first member: creates the group's memory, and returns its descriptor, or -1.
int near_create(struct process_communicator *c);
// For every member, once it knows the first member's descriptor; returns when all have mapped the memory.
trireme_status near_join(struct process_communicator *c, int file, trireme_error *error);
void near_release(struct process_communicator *c);
// Makes a collective call. Where *done is false afterwards, the thread of MPI has to make it.
trireme_status near_call(struct process_communicator *c, const struct comm_call *call, bool *done,
                         trireme_error *error);

#endif
