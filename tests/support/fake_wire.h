// A wire between threads of one process (comm/messages/wire.h): messages are copied once both ends have posted them.
#ifndef SUPPORT_FAKE_WIRE_H
#define SUPPORT_FAKE_WIRE_H

#include "support/team.h"

struct fake_wire_count {
    int64_t messages, bytes, longest; // how many were sent, with how many bytes; those of the longest
};

// Runs `body` as team_run does, each rank in a world of its own over such a wire, `locals` ranks to a node. A message
// has at most `most` bytes; to other nodes, less where it can.
struct fake_wire_count fake_wire_run(int ranks, int locals, int64_t most, double deadline,
                                     void (*body)(struct teammate *mate), void *context);
// What all ranks of a world that fake_wire_run has made have sent so far.
struct fake_wire_count fake_wire_so_far(const struct teammate *mate);
// Of such a world: from now on this rank's wire says "the fake cable is cut" to every test.
void fake_wire_cut(struct teammate *mate);

#endif
