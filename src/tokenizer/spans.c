#include "tokenizer/spans.h"

#include "tokenizer/unicode.h"

// Adds the match [start, end), and what lies between it and the last one.
static void spans_add_match(struct spans *s, size_t last, size_t start, size_t end) {
    if (start > last)
        spans_add(s, start, false);
    spans_add(s, end, true);
}

void spans_find_literal(const char *text, size_t length, const char *literal, size_t literal_length,
                        struct spans *out) {
    size_t at = 0;
    for (const char *found; (found = memmem(text + at, length - at, literal, literal_length)) != NULL;) {
        size_t start = (size_t)(found - text);
        spans_add_match(out, at, start, start + literal_length);
        at = start + literal_length;
    }
    if (at < length)
        spans_add(out, length, false);
}

void spans_find_categories(const char *text, size_t length, uint32_t ascii, uint32_t others, struct spans *out) {
    const uint8_t *categories = unicode_categories();
    size_t last = 0;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t code = unicode_decode(text + at, &bytes);
        if (!unicode_is(categories, code, code < 0x80 ? ascii : others))
            continue;
        spans_add_match(out, last, at, at + bytes);
        last = at + bytes;
    }
    if (last < length)
        spans_add(out, length, false);
}
