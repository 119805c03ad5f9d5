// How the program ends: the one table of its exit codes.
#ifndef CLI_EXIT_CODE_H
#define CLI_EXIT_CODE_H

#include "base/text.h"

enum {
    EXIT_DIFFERENT = 9, // what was compared differs
    EXIT_UNSAVED = 130  // interrupted, and nothing was saved
};

int exit_code(trireme_status status);
// With what the program ends in place of 0, if nothing fails.
void exit_code_instead(int code);
// The table for people.
void exit_codes_help(struct text *out);

#endif
