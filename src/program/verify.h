// The verifier's parts. Internal to program/.
#ifndef PROGRAM_VERIFY_H
#define PROGRAM_VERIFY_H

#include "program/placement.h"

// Where the verifier stands, for messages: "forward[12] matmul (microbatch 0)".
struct place_name {
    char text[160];
};
struct place_name verify_place(const struct program *program, const struct op_table *table, int template,
                               int instruction, int microbatch);
const char *verify_buffer_name(const struct program *program, int buffer); // "nothing" for NONE

#define REFUSE(...) FAIL(TRIREME_ERROR_PROGRAM, __VA_ARGS__)

// Tables are well formed: indices, shapes, dtypes, bounds, streams, waits (verify.c).
trireme_status verify_structure(const struct program *program, const struct op_table *table, trireme_error *error);
// Every read sees the value that was written for it (verify_memory.c).
trireme_status verify_memory(const struct program *program, const struct op_table *table, trireme_error *error);
// Backward is the transpose of forward (verify_gradients.c).
trireme_status verify_gradients(const struct program *program, const struct op_table *table, trireme_error *error);
// Denominator, norm and update (verify_update.c).
trireme_status verify_update(const struct program *program, const struct op_table *table, trireme_error *error);
// What ranks hold fits together: partial sums are reduced once, over the right axes (verify_placement.c).
trireme_status verify_placement(const struct program *program, const struct op_table *table, trireme_error *error);

// What each send and receive carries, of its buffer's own dims.
struct message {
    int template, instruction, buffer;
    struct seen seen[AXIS_COUNT];
};
struct messages {
    VEC(struct message) messages;
};
// verify_placement, that also says what is sent and received. The caller releases *messages, on failure too.
trireme_status verify_messages(const struct program *program, const struct op_table *table, struct messages *messages,
                               trireme_error *error);

#endif
