// UTF-8 (RFC 3629; Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_BYTES_MAX = 4 }; // of one character

// The byte order mark, which Windows programs put at the start of a text.
#define UTF8_MARK "\xEF\xBB\xBF"
enum { UTF8_MARK_BYTES = sizeof UTF8_MARK - 1 };
// U+FFFD, which stands for what is not UTF-8.
#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

// The number of bytes of the character at the start of s[0, length), and its code in *code; 0 if no valid character
// begins there. Reads no further than the first byte that does not belong to the character: for NUL-terminated text
// `length` may be UTF8_BYTES_MAX.
size_t utf8_decode(const char *s, size_t length, uint32_t *code);
// How many bytes from the start form whole characters.
size_t utf8_prefix(const char *s, size_t length);
// The number of bytes, at least 1, of the ill-formed sequence at the start of s[0, length), which is not empty: as many
// as might begin a character (Unicode 15, section 3.9, "Substitution of Maximal Subparts"). Decoders put one U+FFFD for
// them.
size_t utf8_ill_formed(const char *s, size_t length);
// The number of bytes of the mark at the start of the text: 0 where there is none.
size_t utf8_mark(const char *s, size_t length);
// Whether a character is invisible, looks like another one, or changes how others look: code that quotes text to people
// writes such a character's code instead.
bool utf8_is_hidden(uint32_t code);
// Writes the character at the start of s[0, length) to `out` so that it stays on a line and has no effect on a
// terminal: itself, or \xNN for each byte of a control character, and for a byte that belongs to no character. Returns
// the number of bytes that it took, at least 1. Reads as utf8_decode does; there must be a byte.
enum { UTF8_SHOWN_MAX = 16 }; // with the NUL
size_t utf8_show(const char *s, size_t length, char out[UTF8_SHOWN_MAX]);
// Whether a NUL-terminated text is valid UTF-8 throughout.
bool utf8_is_valid(const char *text);

// Checks a text piece by piece. Zero-initialise; `position` may be set to the byte offset at which the text begins.
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
