// The verifier's parts. Internal to verify/.
#ifndef VERIFY_PROOFS_H
#define VERIFY_PROOFS_H

#include "program/mentions.h"
#include "program/structure.h"
#include "verify/placement.h"
#include "verify/sets.h"

// Each of the following proves what its comment says, or refuses the program.
//
// Every read sees the value that was written for it (verify_memory.c).
trireme_status verify_memory(const struct program *program, const struct op_table *table, trireme_error *error);
// Numbers of rows add up to extents (verify_extents.c).
trireme_status verify_extents(const struct program *program, const struct op_table *table, trireme_error *error);
// Backward is the transpose of forward (verify_gradients.c).
trireme_status verify_gradients(const struct program *program, const struct op_table *table, const struct sets *sets,
                                trireme_error *error);
// The loss has the right denominator; norm and update are right (verify_loss.c, verify_update.c).
trireme_status verify_update(const struct program *program, const struct op_table *table, const struct sets *sets,
                             trireme_error *error);
// What ranks hold fits together: partial sums are reduced once, over the right axes (verify_placement.c,
// verify_communication.c).
trireme_status verify_placement(const struct program *program, const struct op_table *table, const struct sets *sets,
                                trireme_error *error);

// How what is carried between stages is placed, by the dims of its buffer.
struct message {
    int template, instruction, buffer;
    struct seen seen[AXIS_COUNT];
};
struct messages {
    VEC(struct message);
};
// The message of an instruction of a template; NULL: none.
static inline const struct message *messages_find(const struct messages *messages, int template, int instruction) {
    for (size_t k = 0; k < messages->count; k++)
        if (messages->item[k].template == template && messages->item[k].instruction == instruction)
            return &messages->item[k];
    return NULL;
}
// What several stages do to one thing is the same (verify_stages.c).
trireme_status verify_stages(const struct program *const *program_of_rank, const struct op_table *table,
                             trireme_error *error);

// verify_placement, which also lists what is sent and received. The caller releases *messages, on failure too.
trireme_status verify_messages(const struct program *program, const struct op_table *table, const struct sets *sets,
                               struct messages *messages, trireme_error *error);

#endif
