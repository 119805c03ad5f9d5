// One line of JSON that others wrote, of which one member is wanted. What the others hold does not matter, only where
// they end: numbers may be NaN, Infinity or beyond any type, keys may be there twice, strings may hold halves of
// characters, as Python writes them. Nothing is built, so a line takes no memory.
//
// Refusals are TRIREME_ERROR_CORRUPT; they give byte positions in the file, where `offset` is that of the line's first
// byte.
#ifndef BASE_JSON_LINE_H
#define BASE_JSON_LINE_H

#include "base/base.h"

// Part of a line as it is written: a string with its quotes.
struct json_part {
    const char *text; // NULL: there is none
    size_t length;
};

struct json_line {
    struct json_part whole; // the value that the line is
    struct json_part value; // of the member
    struct json_part first; // the first member's key
    size_t members;         // of the object that the line is
    size_t found;           // how many have that key
};

// Finds the member `key` of the object that the line is; *out is of no object where `whole` begins with another
// character than {.
trireme_status json_line_find(const char *line, size_t length, int64_t offset, const char *key, struct json_line *out,
                              trireme_error *error);
// A member that is looked for in an object, and how many there are; `value`: of the last one.
struct json_wanted {
    const char *key;
    struct json_part value;
    size_t found;
};
// Finds all of wanted[count] in one walk. CORRUPT where the line is not an object.
trireme_status json_line_find_members(const char *line, size_t length, int64_t offset, struct json_wanted *wanted,
                                      size_t count, trireme_error *error);
// Checks that json_string_read can read a string.
trireme_status json_string_check(struct json_part string, int64_t offset, trireme_error *error);
// Puts the next bytes that a checked string stands for into out[room], room >= 4, and moves *string past what they are
// written with: begin with the whole string. Returns how many; 0 at its end.
size_t json_string_read(struct json_part *string, char *out, size_t room);

#endif
