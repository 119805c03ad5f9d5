#include "base/base64.h"

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_add(struct text *out, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i += 3) {
        const size_t count = MIN(length - i, (size_t)3);
        uint32_t group = 0; // three bytes, four digits
        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (k < count ? (unsigned char)bytes[i + k] : 0);
        char digits[4];
        for (size_t k = 0; k < 4; k++)
            digits[k] = k <= count ? DIGITS[group >> (18 - 6 * k) & 63] : '=';
        text_add_bytes(out, digits, 4);
    }
}

// What a digit stands for; -1 for another character.
static int digit_value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool base64_read(const char *text, size_t length, struct text *out) {
    const size_t before = out->length;
    uint32_t group = 0;
    size_t digits = 0, ends = 0; // digits, the '=' after them among these
    for (const char *end = text + length; text < end; text++) {
        if (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')
            continue;
        const int digit = digit_value(*text);
        if (digit >= 0 ? ends > 0 : *text != '=')
            goto wrong;
        ends += digit < 0;
        group = group << 6 | (uint32_t)MAX(digit, 0);
        if (++digits % 4)
            continue;
        // What '=' stands for is 0, and so are the bits of the digit before it that are of no byte.
        if (ends > 2 || (ends && group << (8 + 8 * (3 - ends))))
            goto wrong;
        const char bytes[3] = {(char)(group >> 16), (char)(group >> 8), (char)group};
        text_add_bytes(out, bytes, 3 - ends);
        group = 0;
    }
    if (digits % 4 == 0)
        return true;
wrong:
    out->length = before;
    return false;
}

char *base64_decode(const char *text, size_t *length) {
    struct text bytes = {0};
    text_add_bytes(&bytes, "", 0);
    if (!base64_read(text, strlen(text), &bytes)) {
        text_release(&bytes);
        return NULL;
    }
    *length = bytes.length;
    return bytes.text;
}
