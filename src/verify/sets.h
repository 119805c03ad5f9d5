// Sets of instructions that together stand for one row of ops.def: what a rank makes of the row's outputs, by itself
// and with what it exchanges with the other ranks of one group. To the proofs of gradients and loss a set is one
// instruction of the row. Internal to verify/.
#ifndef VERIFY_SETS_H
#define VERIFY_SETS_H

#include "program/mentions.h"
#include "program/structure.h"

struct set_member {
    const struct instruction *instruction;
    int template, index;
};

struct set {
    int number;
    axis_set group;                 // over which its instructions communicate; AXES_NONE: they do not
    VEC(struct set_member) members; // in the order in which they run
    // The row, with the set's own operands, by their names: inputs that come from outside, outputs that others read.
    // What the row has optional inputs or any outputs for that the set does not have is absent.
    struct instruction row;
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
};

struct sets {
    VEC(struct set);
    int *of; // [numbers of sets]: its place in the list
};

// Lists the sets of a program, and proves that each is whole: that its instructions take nothing from outside that the
// row does not, make nothing for others that it does not, and agree on operands and attributes. Refuses instructions
// that mean something only in a set. Call sets_release in any case.
trireme_status sets_create(struct sets *sets, const struct program *program, const struct op_table *table,
                           trireme_error *error);
void sets_release(struct sets *sets);
// The set of an instruction, or NULL.
static inline const struct set *sets_find(const struct sets *sets, const struct instruction *instruction) {
    return instruction->set ? &sets->item[sets->of[instruction->set]] : NULL;
}
// Whether this is the instruction of its set at whose place the row stands.
static inline bool set_begins(const struct set *set, const struct instruction *instruction) {
    return set->members.item[0].instruction == instruction;
}
// Whether this is the last one.
static inline bool set_ends(const struct set *set, const struct instruction *instruction) {
    return set->members.item[set->members.count - 1].instruction == instruction;
}
// Whether the row is a collective: what its instructions do to what ranks hold is then only known of all of them.
static inline bool set_communicates(const struct set *set) {
    return op_traffic[set->row.op].call == CALL_COLLECTIVE;
}
// Whether its placement is that of the row, as no member's by itself is known: it is a collective, or the ranks' parts
// of rows that need one another.
static inline bool set_is_placed_whole(const struct set *set, const struct op_table *table) {
    return set_communicates(set) || table->op[set->row.op].together;
}
// Whether the operand is part of what an earlier member has made, so that it does not come from outside.
bool set_is_internal(const struct set *set, const struct program *program, size_t member,
                     const struct operand *operand);
// The row's input that an operand of a member from outside is; NONE where it only says where the rank's part begins.
int set_row_input(const struct set *set, const struct op_table *table, const struct instruction *member, int input);

// Proves that every set computes what its row does (verify_sets.c): runs both, for all ranks of the group, on reference
// kernels in f64, with random values and small random extents; once for all sets that are made alike. Codecs are taken
// to lose nothing, and their codes may only be exchanged as they are and decoded by the decoder of their encoder.
trireme_status verify_sets(const struct sets *sets, const struct program *program, const struct op_table *table,
                           trireme_error *error);

#endif
