// Programs that tests make by hand.
#ifndef SUPPORT_BY_HAND_H
#define SUPPORT_BY_HAND_H

#include "program/program.h"

// One more f32 buffer of 8 rows and 16 columns, as an operand.
struct operand add_rows(struct program *program, const char *name, enum buffer_kind kind, enum buffer_scope scope);
// What is printed is read back: the same text, and what verifies as before.
void check_round_trip(const struct program *program, const struct op_table *ops);
// `status` and `error` are those of programs that are refused, in words that contain both.
void assert_words(trireme_status status, const trireme_error *error, const char *what, const char *buffer);
// The program, planned and released here, is refused in words that contain both.
void assert_program_refused(struct program *program, const struct op_table *ops, const char *what, const char *buffer);

#endif
