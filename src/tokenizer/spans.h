// A text as a pattern divides it: what it matches, and what lies between.
#ifndef TOKENIZER_SPANS_H
#define TOKENIZER_SPANS_H

#include "base/base.h"

struct span {
    size_t end; // it begins where the one before it ends
    bool match;
};

// Zero-initialise; VEC_RELEASE frees. Together they cover the text; a match may be empty, what lies between may not.
struct spans {
    VEC(struct span);
};

static inline void spans_add(struct spans *s, size_t end, bool match) {
    VEC_PUSH(s, (struct span){end, match});
}

// Appends the spans of text[0, length): the matches are where `literal`, which is not empty, occurs.
void spans_find_literal(const char *text, size_t length, const char *literal, size_t literal_length, struct spans *out);
// Each character that is in a set of categories (unicode.h) is a match; those of ASCII have a set of their own. The
// text is UTF-8.
void spans_find_categories(const char *text, size_t length, uint32_t ascii, uint32_t others, struct spans *out);

#endif
