// The communicators that a program needs, as they are opened before it runs, whether or not the schedule comes to each
// of them. All ranks open theirs in one order, but for those of two ranks. Who sends to another rank of a group,
// or receives from one, opens that group's channels of messages of all kinds: so do all its ranks, whichever of these
// each of them uses.
#ifndef PROGRAM_CHANNELS_H
#define PROGRAM_CHANNELS_H

#include "program/program.h"

// Its members are those of `group`, or with `peer` two of them.
struct channel {
    axis_set group;
    int number; // stream_channel
    int peer;
};

struct channels {
    VEC(struct channel) list; // in the order in which they are opened
};

void channels_create(struct channels *channels, const struct program *program, const struct op_table *table);
void channels_release(struct channels *channels);
// The one that a communication is on.
struct channel channel_of(const struct instruction *instruction);
// Its number in the list, or NONE.
int channels_find(const struct channels *channels, struct channel channel);

#endif
