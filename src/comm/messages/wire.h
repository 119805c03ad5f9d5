// What carries messages between ranks: the one thing that a further kind of network has to provide. The collectives
// (messages.h) are made of what is declared here, and of nothing else.
//
// A wire connects `ranks` ranks. A message goes from one rank to another under a tag; of two messages between the same
// ranks under the same tag, the one that is sent first arrives first. Sends and receives are posted, and return a
// request that is tested until it is complete: then the memory may be used again. A receive may be posted before or
// after its message has been sent, and has room for the whole message, which may be shorter.
//
// One thread of each rank makes all calls, except for `unstarted`. A wire's own struct begins with struct wire.
#ifndef COMM_MESSAGES_WIRE_H
#define COMM_MESSAGES_WIRE_H

#include "comm/comm.h"

// A message that is under way; zero: none, or complete.
struct wire_request {
    uint64_t bits;
};

enum { WIRE_REASON = 256, WIRE_ANY = -1, WIRE_LEAST = 4096 };

struct wire {
    const struct wire_functions *functions;
    const char *name; // "MPI"
    const char *node; // ranks that differ in it are on nodes of their own even if they share a machine; NULL: no matter
    // Bytes of one message, at most; and of one to another node, where all that it is a part of has at most far_most.
    // Neither is below WIRE_LEAST.
    int64_t most, far, far_most;
    // Filled in by `start`.
    int rank, ranks;
    int last_tag; // tags are 0 to this
};

struct wire_functions {
    // Finds the other ranks; may take as long as they do.
    trireme_status (*start)(struct wire *wire, trireme_error *error);
    // While `start` takes long, on another thread: prints who keeps it from returning.
    void (*unstarted)(const struct wire *wire, char *text, size_t limit);
    // Both return false where that is impossible. A receive under a tag that is used for nothing else may be from
    // WIRE_ANY rank.
    bool (*send)(struct wire *wire, int rank, int tag, const void *data, int64_t bytes, struct wire_request *out);
    bool (*receive)(struct wire *wire, int rank, int tag, void *data, int64_t bytes, struct wire_request *out);
    // Moves messages on. Returns how many of request[count] have become complete since the last test, which become
    // zero, with their indices in done[]; -1, with a reason, where the wire has broken.
    int (*test)(struct wire *wire, struct wire_request *request, int count, int *done, char reason[WIRE_REASON]);
    // A receive that need not arrive any more; the request must still be tested until it is complete.
    void (*cancel)(struct wire *wire, struct wire_request *request);
    // After all ranks have met for the last time: disconnects, and may wait for them to do the same. Left out where the
    // ranks cannot meet any more.
    void (*end)(struct wire *wire);
    void (*release)(struct wire *wire); // on any thread, last of all
};

// Makes ranks that are connected by a wire into a world, which owns the wire. Where the wire does not start in time, or
// does not end, its thread is still in it, and it is not released.
trireme_status world_create_messages(struct world **out, struct wire *wire, double deadline, trireme_error *error);

#endif
