// What the proofs of rows and of communication share. Internal to verify/.
#ifndef VERIFY_VERIFY_PLACEMENT_H
#define VERIFY_VERIFY_PLACEMENT_H

#include "verify/placement.h"
#include "verify/proofs.h"

// How inputs that hold parts of sequences are split: a rank has `run` neighbouring elements of each sequence, `all` of
// all sequences together. Rows that are made of them lie like them. run 0: there are no such inputs.
struct sequence_parts {
    int64_t run, all;
};

struct placement_check {
    const struct program *program;
    const struct op_table *table;
    const struct sets *sets; // those that stand for collectives are placed as these, where their last instruction is
    struct placement placement;
    char base[OP_COUNT][DIM_LETTERS];    // letter of each op -> the letter that it is split with, or itself
    char belongs[OP_COUNT][DIM_LETTERS]; // letter of each op -> the letter with which it may be split, or 0
    struct sequence_parts parts;
    struct invocation now;
    int instruction;
    VEC(int) local;        // roots that live inside the invocation
    struct messages *sent; // what was sent and received, once for each instruction
    trireme_error *error;
};

// The instruction that runs, and an operand's buffer, for messages.
struct site placement_site(const struct placement_check *check);
const char *placement_name(const struct placement_check *check, const struct operand *operand);

// Puts the instruction before an error of placement.h.
#define PREFIXED(expression)                                                     \
    do {                                                                         \
        trireme_status status = (expression);                                    \
        if (status != TRIREME_OK)                                                \
            return error_prefix(c->error, status, "%s", placement_site(c).text); \
    } while (0)

// Runs an instruction of communication, or a fan_out (verify_communication.c).
trireme_status verify_communication(struct placement_check *check, const struct instruction *instruction);

#endif
