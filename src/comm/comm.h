// comm/: transports: bytes between ranks. A *world* is a set of ranks that can reach one another; a *communicator* is a
// group of them on one stream. Every rank of a group makes the same calls on its communicator in the same order; calls
// on different communicators are independent. Includes base/, mesh/, program/ (dtypes), kernels/ (arithmetic).
//
// Results are the same bits on every rank and in every run on as many nodes: sums run over the ranks in the order of
// their index, whoever comes first; of processes on several nodes, long ones over each node's and then over the nodes.
// Calls allocate nothing, but for what the first ones over a network need to keep track of their messages. A call
// blocks until its buffers may be used again.
//
// When a peer does not arrive before the deadline, when ranks call different things (operation, count, dtype,
// reduction, wire, root; other groups opened), or when a rank has failed, calls return TRIREME_ERROR_LOST and the whole
// world is broken: every call of every rank returns it from then on. No rank writes to another's buffers after the
// other's call has returned, in a broken world either; what it reads of them then it does not use.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "mesh/mesh.h"
#include "program/ops.h"

struct world;        // shared by its ranks
struct communicator; // one rank's

enum reduction { REDUCE_SUM, REDUCE_MAX };

// Groups of one process: every rank is a thread. `deadline` in seconds (0: none) bounds every wait.
trireme_status world_create_threads(struct world **out, int ranks, double deadline, trireme_error *error);
// Ranks that are processes which an MPI launcher has started, this one among them; the start of MPI on all of
// them has `deadline` or 20 s, whichever is longer. Once in the life of a process.
// Refused where Trireme was built without MPI.
trireme_status world_create_mpi(struct world **out, double deadline, trireme_error *error);
// Where the caller is in a world of processes.
struct world_place {
    int rank, ranks;
    int node, nodes;  // this rank's, and of how many; nodes are numbered by their first ranks
    int node_ranks;   // ranks of this node
    int core_ranks;   // of these, those that may use the same cores as this one, itself included
    int core_rank;    // how many of those come before this one
    int cores;        // that this rank may use
    int core_threads; // its hardware threads on each of them, at most
    int all_cores;    // of all nodes, that some rank may use
    const char *host; // this node's name
};
// What MPI calls itself, in a line; NULL where there is none.
const char *world_mpi_version(void);
// NULL for a world of threads, or none. The world's until it is freed.
const struct world_place *world_place(const struct world *world);
// After all of its communicators. Of processes all ranks come here; in a broken world, or where one of them keeps the
// others in MPI's last call for longer than the deadline or 5 s, MPI is left as it is, and the process should end.
// False where the world is broken, if only since this rank came here.
bool world_free(struct world *world);
// Keeps what ranks of a world of threads have in common until the world is freed: `release` gets it then. Any rank may
// call it at any time.
void world_keep(struct world *world, void *what, void (*release)(void *what));
// From now on calls of this process have this deadline; those that it waits in already keep theirs. For every rank to
// call, with the same, where all have just met.
void world_deadline(struct world *world, double seconds);
// Breaks the world from outside: waiting ranks wake up and fail. The first reason given is the one they report.
void world_break(struct world *world, const char *reason);
// That reason, cut to `limit` bytes; empty while the world is whole.
void world_reason(struct world *world, char *text, size_t limit);

// Every rank calls this the same number of times for the same groups, in the same order, from one thread at a time; it
// returns when all members have called it. `members` lists the group's ranks in order of index, this rank among them.
// `name` ("tp", "dp+fsdp"; copied) is for messages and tells groups of the same members apart. A communicator serves
// one thread at a time; sends may be another's than receives.
trireme_status communicator_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                                 const char *name, trireme_error *error);
void communicator_free(struct communicator *communicator);
// From now on the deadline of its sends, or else of all its other calls, counts from *since (clock_now's time) where
// that is later than the call, and not at all while it is 0: of calls that are made long before anybody needs what they
// bring. `since` must outlive the communicator.
void communicator_wanted(struct communicator *communicator, bool sends, const _Atomic int64_t *since);
int communicator_size(const struct communicator *communicator);
int communicator_index(const struct communicator *communicator);

// out[count] = the reduction of every rank's in[count]. `in` may be `out`. dtype: f32, bf16 (reduced in f32, rounded
// once), f64, i32 (sums wrap around). The max of numbers and a NaN is a NaN. `wire` is the dtype that values travel in:
// `dtype` itself, or bf16 for f32. Then every contribution is rounded to it, the sum is made in f32, and an all-reduce
// rounds that once more. Over several nodes the nodes' sums travel, and are rounded, too.
trireme_status comm_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, enum reduction reduction, enum dtype wire, trireme_error *error);
// out[count] = the reduction of every rank's in[index * count, (index + 1) * count). `out` may be that part of `in`;
// then the other parts of `in` keep their values. With `accumulate` it is added to what `out` holds, before it is
// rounded to the dtype (not in place).
trireme_status comm_reduce_scatter(struct communicator *communicator, const void *in, void *out, int64_t count,
                                   enum dtype dtype, enum reduction reduction, enum dtype wire, bool accumulate,
                                   trireme_error *error);
// out[i * count, (i + 1) * count) = in[count] of rank i. `in` may be this rank's part of `out`.
trireme_status comm_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, trireme_error *error);
// data[bytes] of the rank `root` to all.
trireme_status comm_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root,
                              trireme_error *error);
// out[i * bytes, ...) = in[index * bytes, ...) of rank i. In and out do not overlap.
trireme_status comm_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                               trireme_error *error);
// To rank i go in[in_offset[i], + in_bytes[i]); from it come out[out_offset[i], + out_bytes[i]). Byte counts that do
// not agree between sender and receiver break the world.
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

#endif
