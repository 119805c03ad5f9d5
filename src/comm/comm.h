// comm/: transports: bytes between ranks. A *world* is a set of ranks that can reach one another; a *communicator* is a
// group of them on one stream. Every rank of a group makes the same calls on its communicator in the same order; calls
// on different communicators are independent. Includes base/, mesh/, program/ (dtypes), kernels/ (arithmetic).
//
// Results are the same bits on every rank, and in every run on the same number of nodes: sums run over the ranks in the
// order of their index, whoever arrives first. Between processes on several nodes, long sums run over the ranks of each
// node and then over the nodes.
// Calls allocate nothing, except that the first ones over a network may allocate what keeps track of their messages. A
// call blocks until its buffers may be used again.
//
// A communicator *fails* when a peer does not arrive before the deadline, is gone, or calls something else (operation,
// count, dtype, reduction, wire, root; other groups opened): all calls of all its members then return
// TRIREME_ERROR_LOST, and communicator_failure says why and because of which rank. Whether the world fails with it is
// the world's policy. No rank writes to another's buffers after that one's call has returned, not even where that has
// failed, and what a rank still reads of them then is not used.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "mesh/mesh.h"
#include "program/ops.h"

struct world;        // shared by its ranks
struct communicator; // one rank's

enum reduction { REDUCE_SUM, REDUCE_MAX };

// Why a communicator or a world has failed.
enum comm_cause {
    COMM_WHOLE,   // it has not
    COMM_LOST,    // the rank did not come in time, has died, or has left
    COMM_DIFFERS, // the rank's call does not fit those of the others
    COMM_FAILED,  // the rank has failed by itself, and reports why
    COMM_BROKEN,  // something else, such as what connects the ranks
};
enum { COMM_REASON = 600 };
struct comm_failure {
    enum comm_cause cause;
    int rank; // the one at fault, as the world counts; -1: none in particular
    char reason[COMM_REASON];
};

// What the failure of one communicator means for the others.
enum world_policy {
    WORLD_ENDS,    // the default: it breaks the world
    WORLD_GOES_ON, // nothing, even for the same ranks: they may free it and open another one without the rank at fault
};

// A world within one process, where every rank is a thread. `deadline` in seconds (0: none) bounds every wait.
trireme_status world_create_threads(struct world **out, int ranks, double deadline, trireme_error *error);
// A world of the processes that an MPI launcher has started, this one among them. MPI has `deadline` or 20 s, whichever
// is longer, to start on all of them. To be called once in the life of a process. Refused where Trireme was built
// without MPI.
trireme_status world_create_mpi(struct world **out, double deadline, trireme_error *error);
// Where the caller is in a world of processes.
struct world_place {
    int rank, ranks;
    int node, nodes;  // this rank's, and of how many; nodes are numbered by their first ranks
    int node_ranks;   // ranks of this node
    int core_ranks;   // how many of these may use the same cores as this rank, itself included
    int core_rank;    // how many of those come before this rank
    int cores;        // cores that this rank may use
    int core_threads; // its hardware threads on each of them, at most
    int all_cores;    // cores of all nodes that some rank may use
    const char *host; // this node's name
};
// The name and version of the MPI library, in one line; NULL where Trireme was built without MPI.
const char *world_mpi_version(void);
// NULL for a world of threads, or none. Belongs to the world.
const struct world_place *world_place(const struct world *world);
// To be called after all of its communicators were freed, and by all ranks where they are processes. In a broken world,
// or when a rank keeps the others in MPI's last call for longer than the deadline or 5 s, MPI is not shut down, and the
// process should end. Returns false where the world is broken, even if that happened during this call.
bool world_free(struct world *world);
// Keeps `what`, which the ranks of a world of threads share, until the world is freed: then it is passed to `release`.
// Any rank may call this at any time.
void world_keep(struct world *world, void *what, void (*release)(void *what));
// Keeps the world for good, since a thread that hangs may still use it: world_free does nothing then, and returns
// false.
void world_leave(struct world *world);
// Sets the deadline of all calls of this process from now on; a call that is already waiting keeps its own. Every rank
// must call this with the same value, right after all have met.
void world_deadline(struct world *world, double seconds);
// To be called by one rank or by all, before a communicator has failed. Returns false where the transport lets no rank
// go on without another: MPI ends all of them.
bool world_set_policy(struct world *world, enum world_policy policy);
// Breaks the world: every call of every rank fails from now on, and waiting ranks wake up. The first failure counts.
void world_break(struct world *world, enum comm_cause cause, int rank, const char *reason);
// Says that a rank has left or has died. Every communicator that it belongs to fails, and so does every opening with
// it; with WORLD_ENDS the world breaks.
void world_lose(struct world *world, int rank, const char *reason);
// Whether the world is broken. Then *failure (may be NULL) says why; else its cause is COMM_WHOLE, and the reason
// empty.
bool world_failure(struct world *world, struct comm_failure *failure);

// Of processes in a broken world: the lowest rank that is left and knows it, as far as this one has heard by now; -1:
// none yet. So one alone reports what all find.
int world_speaker(const struct world *world);

// Every rank calls this for the same groups, equally often and in the same order, from one thread at a time; it returns
// when all members have called it. `members` lists the group's ranks in order of index, this rank among them. `name`
// ("tp", "dp+fsdp"; copied) is for messages, and tells groups of the same members apart. A communicator serves one
// thread at a time, except that one thread may send while another receives.
trireme_status communicator_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                                 const char *name, trireme_error *error);
void communicator_free(struct communicator *communicator);
// As world_failure, for a communicator; in a broken world all have failed.
bool communicator_failure(const struct communicator *communicator, struct comm_failure *failure);
// For calls that are made long before anybody needs their results. From now on the deadline of the communicator's sends
// (`sends`), or of all its other calls, counts from *since (a time of clock_now) where that is later than the beginning
// of the call, and does not count while *since is 0. `since` must outlive the communicator.
void communicator_wanted(struct communicator *communicator, bool sends, const _Atomic int64_t *since);
// For members that may be late by themselves for so long: the deadline of each call that begins from now on is that of
// the world `times` (from 1) over.
void communicator_patience(struct communicator *communicator, int64_t times);
int communicator_size(const struct communicator *communicator);
int communicator_index(const struct communicator *communicator);

// out[count] = the reduction of every rank's in[count]. `in` may be `out`. dtype: f32, bf16 (reduced in f32, rounded
// once), f64, i32 (sums wrap around). The max of numbers and a NaN is a NaN. `wire` is the dtype that values travel in:
// `dtype` itself, or bf16 where dtype is f32. With bf16 every contribution is rounded to it, sums are made in f32, and
// an all-reduce rounds its result to bf16 once more. Over several nodes the nodes' sums travel, and are rounded, too.
trireme_status comm_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, enum reduction reduction, enum dtype wire, trireme_error *error);
// out[count] = the reduction of every rank's in[index * count, (index + 1) * count). `out` may be that part of `in`;
// then the other parts of `in` keep their values. With `accumulate`, which does not work in place, the reduction is
// added to what `out` holds before it is rounded to the dtype.
trireme_status comm_reduce_scatter(struct communicator *communicator, const void *in, void *out, int64_t count,
                                   enum dtype dtype, enum reduction reduction, enum dtype wire, bool accumulate,
                                   trireme_error *error);
// out[i * count, (i + 1) * count) = in[count] of rank i. `in` may be this rank's part of `out`.
trireme_status comm_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, trireme_error *error);
// out[i * bytes, (i + 1) * bytes) = in[bytes] of rank i: for what is not an array of numbers.
trireme_status comm_all_gather_bytes(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                                     trireme_error *error);
// data[bytes] of the rank `root` to all.
trireme_status comm_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root,
                              trireme_error *error);
// out[i * bytes, (i + 1) * bytes) = in[index * bytes, (index + 1) * bytes) of rank i. In and out do not overlap.
trireme_status comm_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                               trireme_error *error);
// Sends rank i the in_bytes[i] bytes at in + in_offset[i], and receives from it out_bytes[i] bytes at
// out + out_offset[i]. Byte counts of sender and receiver must agree.
trireme_status comm_all_to_all_v(struct communicator *communicator, const void *in, const int64_t *in_offset,
                                 const int64_t *in_bytes, void *out, const int64_t *out_offset,
                                 const int64_t *out_bytes, trireme_error *error);
// To and from the rank at index `peer`. A send ends when the receiver has the bytes; sizes must agree. Sends and
// receives between two ranks of one communicator match in order.
trireme_status comm_send(struct communicator *communicator, const void *data, int64_t bytes, int peer,
                         trireme_error *error);
trireme_status comm_receive(struct communicator *communicator, void *data, int64_t bytes, int peer,
                            trireme_error *error);
trireme_status comm_barrier(struct communicator *communicator, trireme_error *error);

// The same calls, begun now and ended later. comm_begin_... returns at once; the call goes on by itself, whether this
// rank computes, waits for another call or ends this one. comm_end waits until it is done, and returns its status. In
// between, its buffers, and the arrays of an all_to_all_v, stay in place and belong to the call. Up to COMM_UNDER_WAY
// calls of a communicator may be under way at a time; they are made in the order in which they begin, as are blocking
// calls behind them (sends aside), and may be ended in any order. Members need not do alike: what one begins, another
// may call and wait for. The deadline of a call that is begun counts from comm_end. Each handle is to be ended once,
// even if the communicator has failed; communicator_free ends those that are left, and where they are not done the
// communicator fails. The thread that makes calls may use the processors that the thread of the first of them could.
enum { COMM_UNDER_WAY = 15 };
struct comm_handle {
    struct communicator *communicator;
    uint32_t number;
};
struct comm_handle comm_begin_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                                         enum dtype dtype, enum reduction reduction, enum dtype wire);
struct comm_handle comm_begin_reduce_scatter(struct communicator *communicator, const void *in, void *out,
                                             int64_t count, enum dtype dtype, enum reduction reduction, enum dtype wire,
                                             bool accumulate);
struct comm_handle comm_begin_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                                         enum dtype dtype);
struct comm_handle comm_begin_all_gather_bytes(struct communicator *communicator, const void *in, void *out,
                                               int64_t bytes);
struct comm_handle comm_begin_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root);
struct comm_handle comm_begin_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes);
struct comm_handle comm_begin_all_to_all_v(struct communicator *communicator, const void *in, const int64_t *in_offset,
                                           const int64_t *in_bytes, void *out, const int64_t *out_offset,
                                           const int64_t *out_bytes);
struct comm_handle comm_begin_barrier(struct communicator *communicator);
trireme_status comm_end(struct comm_handle handle, trireme_error *error);

#endif
