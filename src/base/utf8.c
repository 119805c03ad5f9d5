#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

// What must follow the first byte of a character: `missing` bytes, the next one from `low` to `high`, those after it
// from 0x80 to 0xBF.
struct rest {
    int missing;
    uint8_t low, high;
};

// False: no character begins with that byte.
static bool rest_after(uint8_t first, struct rest *out) {
    out->low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    out->high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    out->missing = first < 0x80 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    return first < 0x80 || (first >= 0xC2 && first <= 0xF4);
}

size_t utf8_decode(const char *s, size_t length, uint32_t *code) {
    const uint8_t *p = (const uint8_t *)s;
    struct rest rest;
    if (length == 0 || !rest_after(p[0], &rest) || length <= (size_t)rest.missing)
        return 0;
    uint32_t value = rest.missing ? p[0] & (0x3Fu >> rest.missing) : p[0];
    for (int i = 1; i <= rest.missing; i++) {
        if (p[i] < rest.low || p[i] > rest.high)
            return 0;
        value = value << 6 | (p[i] & 0x3F);
        rest.low = 0x80, rest.high = 0xBF;
    }
    *code = value;
    return (size_t)rest.missing + 1;
}

size_t utf8_prefix(const char *s, size_t length) {
    size_t at = 0, bytes;
    uint32_t code;
    while ((bytes = utf8_decode(s + at, length - at, &code)) > 0)
        at += bytes;
    return at;
}

size_t utf8_ill_formed(const char *s, size_t length) {
    size_t count = 1;
    for (; count < length && count < UTF8_BYTES_MAX; count++) {
        struct utf8_checker part = {0};
        if (!utf8_check(&part, s, count + 1))
            break;
    }
    return count;
}

size_t utf8_mark(const char *s, size_t length) {
    return length >= UTF8_MARK_BYTES && memcmp(s, UTF8_MARK, UTF8_MARK_BYTES) == 0 ? UTF8_MARK_BYTES : 0;
}

bool utf8_is_hidden(uint32_t code) {
    static const struct {
        uint32_t first, last;
    } HIDDEN[] = {{0, 0x1F},        // controls
                  {0x7F, 0xA0},     // more of them; a space that does not break
                  {0xAD, 0xAD},     // a hyphen that may not show
                  {0x2000, 0x200F}, // spaces, of no width too, and marks of direction
                  {0x2028, 0x202F}, // ends of lines and paragraphs; embeddings; a space
                  {0x205F, 0x206F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}, {0xFFFE, 0xFFFF}};
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (code >= HIDDEN[i].first && code <= HIDDEN[i].last)
            return true;
    return false;
}

static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code <= 0x9F);
}

size_t utf8_show(const char *s, size_t length, char out[UTF8_SHOWN_MAX]) {
    uint32_t code;
    const size_t bytes = utf8_decode(s, length, &code);
    if (bytes > 0 && !is_control(code)) {
        memcpy(out, s, bytes);
        out[bytes] = '\0';
        return bytes;
    }
    const size_t escaped = bytes ? bytes : 1;
    for (size_t i = 0; i < escaped; i++)
        snprintf(out + 4 * i, UTF8_SHOWN_MAX - 4 * i, "\\x%02x", (unsigned char)s[i]);
    return escaped;
}

bool utf8_is_valid(const char *text) {
    size_t length = strlen(text);
    return utf8_prefix(text, length) == length;
}

bool utf8_check(struct utf8_checker *c, const char *bytes, size_t length) {
    const uint8_t *p = (const uint8_t *)bytes, *end = p + length;
    while (p < end) {
        if (c->missing) {
            if (*p < c->low || *p > c->high)
                return false;
            c->low = 0x80, c->high = 0xBF;
            c->missing--;
            c->position++, p++;
            continue;
        }
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), (eight & UINT64_C(0x8080808080808080)) == 0))
            c->position += 8, p += 8;
        if (p == end)
            break;
        struct rest rest;
        c->start = c->position;
        if (!rest_after(*p, &rest))
            return false;
        c->missing = rest.missing;
        c->low = rest.low, c->high = rest.high;
        c->position++, p++;
    }
    return true;
}

bool utf8_finish(const struct utf8_checker *c) {
    return c->missing == 0;
}
