// Checks UTF-8 piece by piece (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
#ifndef DATA_UTF8_H
#define DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Zero-initialise; `position` may be set to the byte offset at which the text begins.
struct utf8_checker {
    int64_t position;  // byte offset of the next byte
    int64_t start;     // byte offset of the sequence in progress, or of the ill-formed one
    int missing;       // continuation bytes that the sequence in progress still needs
    uint8_t low, high; // bounds of the next continuation byte
};

// Takes the next bytes. False: the sequence that begins at byte `start` is ill-formed.
bool utf8_check(struct utf8_checker *c, const char *bytes, size_t length);
// At the end of the text. False: the sequence that begins at byte `start` is cut off.
bool utf8_finish(const struct utf8_checker *c);

#endif
