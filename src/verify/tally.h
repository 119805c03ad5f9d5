// What numbers of rows add up to. Internal to verify/.
//
// Numbers of rows are made by one instruction, or by the host, on each rank its own. Sums of them (rows of ops.def that
// tally), and what ranks have exchanged of them piece by piece, are known by what they were made of.
#ifndef VERIFY_TALLY_H
#define VERIFY_TALLY_H

#include "program/program.h"

struct tally {
    int of;             // the buffer of numbers that all of this is made of
    axis_set exchanged; // between whose ranks its pieces have been exchanged; AXES_NONE: they are the rank's own
};

// What all numbers of the operand add up to. False where it does not have all of a buffer that is made at once.
bool tally_total(const struct program *program, const struct op_table *table, const struct operand *operand,
                 struct tally *tally);
// The same for a number for each rank of a group, each of which adds up one piece: that for the rank or, if exchanged,
// that from the rank. False also where the numbers are sums of other parts.
bool tally_of_ranks(const struct program *program, const struct op_table *table, const struct operand *operand,
                    struct tally *tally);

#endif
