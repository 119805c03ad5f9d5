// The first check of a program: its tables are well formed. And what refusals are made of.
#ifndef PROGRAM_STRUCTURE_H
#define PROGRAM_STRUCTURE_H

#include "program/program.h"

// An instruction's place, for messages: "forward[12] matmul (microbatch 0)".
struct site {
    char text[160];
};
struct site program_site(const struct program *program, const struct op_table *table, int template, int instruction,
                         int microbatch);
const char *program_buffer_name(const struct program *program, int buffer); // "nothing" for NONE

#define REFUSE(...) FAIL(TRIREME_ERROR_PROGRAM, __VA_ARGS__)

// Refuses tables that are not well formed: indices, shapes, dtypes, bounds, names, streams, waits.
trireme_status program_check(const struct program *program, const struct op_table *table, trireme_error *error);

#endif
