// What characters are, by utf8proc: general categories (Unicode 15, chapter 4.5) and white space. Patterns are matched
// by PCRE2, which may know another version of Unicode (expression_unicode_version).
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include "base/text.h"
#include "base/utf8.h"

// In alphabetical order within a group; controls that are white space (tabs, line ends, U+0085) are a category of their
// own, so that White_Space is a set of categories.
enum unicode_category {
    CATEGORY_CN,
    CATEGORY_LU,
    CATEGORY_LL,
    CATEGORY_LT,
    CATEGORY_LM,
    CATEGORY_LO,
    CATEGORY_MN,
    CATEGORY_MC,
    CATEGORY_ME,
    CATEGORY_ND,
    CATEGORY_NL,
    CATEGORY_NO,
    CATEGORY_PC,
    CATEGORY_PD,
    CATEGORY_PS,
    CATEGORY_PE,
    CATEGORY_PI,
    CATEGORY_PF,
    CATEGORY_PO,
    CATEGORY_SM,
    CATEGORY_SC,
    CATEGORY_SK,
    CATEGORY_SO,
    CATEGORY_ZS,
    CATEGORY_ZL,
    CATEGORY_ZP,
    CATEGORY_CC,
    CATEGORY_CF,
    CATEGORY_CS,
    CATEGORY_CO,
    CATEGORY_CC_WHITE,
    CATEGORY_COUNT,
};

// Sets of categories.
#define CATEGORIES(first, last) (((1u << (last)) - 1u + (1u << (last))) & ~((1u << (first)) - 1u))
#define UNICODE_LETTERS CATEGORIES(CATEGORY_LU, CATEGORY_LO)
#define UNICODE_MARKS CATEGORIES(CATEGORY_MN, CATEGORY_ME)
#define UNICODE_NUMBERS CATEGORIES(CATEGORY_ND, CATEGORY_NO)
#define UNICODE_PUNCTUATION CATEGORIES(CATEGORY_PC, CATEGORY_PO)
#define UNICODE_SYMBOLS CATEGORIES(CATEGORY_SM, CATEGORY_SO)
#define UNICODE_OTHERS CATEGORIES(CATEGORY_CC, CATEGORY_CC_WHITE) // that are assigned
#define UNICODE_WHITE_SPACE (CATEGORIES(CATEGORY_ZS, CATEGORY_ZP) | 1u << CATEGORY_CC_WHITE)

enum { UNICODE_CODES = 0x110000 };
// The category of every code point; made at the first call, by whichever thread.
const uint8_t *unicode_categories(void);
// Whether a code point is in a set of categories.
static inline bool unicode_is(const uint8_t *categories, uint32_t code, uint32_t set) {
    return set >> categories[code] & 1;
}

// The character at the start of s, which is UTF-8 and not at its end; *bytes is how many it has.
static inline uint32_t unicode_decode(const char *s, size_t *bytes) {
    const uint8_t *p = (const uint8_t *)s;
    if (p[0] < 0x80) {
        *bytes = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *bytes = 2;
        return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    }
    if (p[0] < 0xF0) {
        *bytes = 3;
        return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    *bytes = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// Appends a character.
void unicode_add(struct text *out, uint32_t code);
// How many bytes at the start are ASCII.
size_t unicode_ascii_prefix(const char *text, size_t length);

// The character's lower case, as Rust's char::to_lowercase: one character, but for U+0130 two; second is 0 otherwise.
uint32_t unicode_lower(uint32_t code, uint32_t *second);

const char *unicode_version(void); // of utf8proc: "15.0.0"

#endif
