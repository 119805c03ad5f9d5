// What the proofs of the loss and of the update share. Internal to verify/.
#ifndef VERIFY_VERIFY_UPDATE_H
#define VERIFY_VERIFY_UPDATE_H

#include "verify/proofs.h"

struct found {
    const struct instruction *instruction;
    int template, index, invocation;
};

// What makes a buffer; instruction NULL: nothing does.
struct maker {
    const struct instruction *instruction;
    int out; // number of the output
};

struct update_check {
    const struct program *program;
    const struct op_table *table;
    const struct sets *sets; // each counts as the row that it stands for, where its first instruction is
    VEC(struct found) role[ROLE_UPDATE + 1]; // instructions of the roles of interest, in the order they run
    VEC(struct found) targets;               // what makes losses of targets, in microbatch 0
    struct maker *maker;                     // of each buffer, what makes it first in microbatch 0
    int last_gradient;                       // last invocation that contributes to a parameter's gradient, or NONE
    VEC(int) declared;                       // inputs that are declared to be some operand
    trireme_error *error;
};

struct site update_site(const struct update_check *check, const struct found *found);
const char *update_name(const struct update_check *check, int buffer);
// The buffer that stands in the input, or output, of that meaning; NONE where there is none.
int update_input(const struct update_check *check, const struct instruction *instruction, enum op_meaning meaning);
int update_output(const struct update_check *check, const struct instruction *instruction, enum op_meaning meaning);

// Whether two operands are the same elements of two buffers of one layout. The rank's own part of a whole may lie in a
// buffer of its own.
bool update_same_place(const struct program *program, const struct operand *a, const struct operand *b);

// The loss is the sum of the terms that the program declares (verify_loss.c).
trireme_status verify_loss(struct update_check *check);
// Norms count each gradient once; every parameter is updated once (verify_optimizer.c).
trireme_status verify_optimizer(struct update_check *check);
// The parts of an outer step take, weigh and set each parameter once (verify_outer.c).
trireme_status verify_outer(const struct update_check *check);

#endif
