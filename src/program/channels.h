// The communicators that a program needs. They are opened before it runs, whether or not the schedule uses each of
// them. All ranks open theirs in the same order, except communicators of two ranks. A rank that sends to another rank
// of a group, or receives from one, opens all of that group's channels for messages, since the group's ranks must all
// open the same ones, whichever each of them uses. Along other axes than that of the stages they all run one program.
#ifndef PROGRAM_CHANNELS_H
#define PROGRAM_CHANNELS_H

#include "program/program.h"

// Its members are the ranks of `group`; where `peer` is not 0, the rank and that peer alone.
struct channel {
    axis_set group;
    int number; // stream_channel
    int peer;   // as in struct instruction
};

struct channels {
    VEC(struct channel) list; // in the order in which they are opened
};

void channels_create(struct channels *channels, const struct program *program, const struct op_table *table);
void channels_release(struct channels *channels);
// The channel that a communication uses.
struct channel channel_of(const struct program *program, const struct instruction *instruction);
// The channel's number in the list, or NONE.
int channels_find(const struct channels *channels, struct channel channel);

// Along other axes than that of the stages all ranks run one program: what a receive gets there is what a send of its
// template gives, each in its turn on their channel. Returns the number in the template of the one, given that of the
// other; NONE: there is none.
int message_other_end(const struct program *program, int template, int message);
// Whether the rank sends, or receives, the message: of one that is `open`, some do not.
bool message_is_of(const struct mesh *mesh, const struct instruction *message, int rank);

#endif
