// Helpers for programs that tests make by hand.
#ifndef SUPPORT_BY_HAND_H
#define SUPPORT_BY_HAND_H

#include "program/program.h"

// The program of one microbatch and one template, 0, that this text makes: `head` has lines before the arenas (mesh,
// streams), `body` buffers and the template. It is not planned.
struct program program_by_hand(const struct op_table *ops, const char *head, const char *body);
// Adds an f32 buffer of 8 rows and 16 columns; returns it as an operand.
struct operand add_rows(struct program *program, const char *name, enum buffer_kind kind, enum buffer_scope scope);
// Gives the STATE buffers that have no place theirs, one after the other, behind those that have one.
void place_state(struct program *program);
// Prints the program and parses the text: that must give the same text again, and a program that verifies as before.
void check_round_trip(const struct program *program, const struct op_table *ops);
// Asserts that a program was refused, in a message that contains `what` and `buffer`.
void assert_words(trireme_status status, const trireme_error *error, const char *what, const char *buffer);
// Plans the program anew, and asserts that it is refused in a message that contains `what` and `buffer`.
void assert_refused_anew(struct program *program, const struct op_table *ops, const char *what, const char *buffer);
// Plans and releases the program, and asserts that it is refused in a message that contains `what` and `buffer`.
void assert_program_refused(struct program *program, const struct op_table *ops, const char *what, const char *buffer);

#endif
