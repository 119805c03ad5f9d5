// What a program does with other ranks, and nothing else: its calls in the order of each stream, and how many calls of
// other streams are done before. Internal to program/.
#ifndef PROGRAM_CALLS_H
#define PROGRAM_CALLS_H

#include "program/channels.h"
#include "program/verify.h"

struct rank_call {
    const struct instruction *instruction;
    int template, index, microbatch;
    int channel;
    int64_t count;
    enum dtype dtype;
    int32_t after[STREAM_COUNT];   // calls of each stream that this one follows
    const struct message *message; // send, receive, broadcast
};

struct calls {
    const struct program *program;
    VEC(struct rank_call) of[STREAM_COUNT];
    struct channels channels;
    struct messages messages;
};

// Of a program that is sound by itself (program_verify).
trireme_status calls_create(struct calls *calls, const struct program *program, const struct op_table *table,
                            trireme_error *error);
void calls_release(struct calls *calls);

#endif
