// A program reduced to what it does with other ranks: its calls in the order of each stream, and how many calls of
// other streams must be done before each. Internal to verify/.
#ifndef VERIFY_CALLS_H
#define VERIFY_CALLS_H

#include "program/channels.h"
#include "verify/proofs.h"

struct rank_call {
    const struct instruction *instruction;
    int template, index, microbatch; // index: of the instruction in its template
    int channel;                     // of `channels`
    int64_t count;                   // elements of its input, or of its output where it has no input
    enum dtype dtype;
    int32_t after[STREAMS_MAX];    // how many calls of each other stream must be done before
    const struct message *message; // between stages, of one microbatch only to and from single ranks; else NULL
};

struct calls {
    const struct program *program;
    VEC(struct rank_call) of[STREAMS_MAX];
    struct channels channels;
    struct messages messages;
};

// The program must be sound by itself (program_verify).
trireme_status calls_create(struct calls *calls, const struct program *program, const struct op_table *table,
                            trireme_error *error);
void calls_release(struct calls *calls);

#endif
