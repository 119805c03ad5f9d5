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

char *base64_decode(const char *text, size_t *length) {
    char *bytes = mem_alloc(strlen(text) + 1);
    uint32_t group = 0;
    size_t digits = 0, ends = 0; // digits, the '=' after them among these
    *length = 0;
    for (; *text; text++) {
        if (strchr(" \t\r\n", *text))
            continue;
        const char *digit = strchr(DIGITS, *text);
        if (digit ? ends > 0 : *text != '=')
            break;
        ends += !digit;
        group = group << 6 | (digit ? (uint32_t)(digit - DIGITS) : 0);
        if (++digits % 4)
            continue;
        for (size_t k = 0; k + ends < 3; k++)
            bytes[(*length)++] = (char)(group >> (16 - 8 * k));
        // What '=' stands for is 0, and so are the bits of the digit before it that are of no byte.
        if (ends > 2 || (ends && group << (8 + 8 * (3 - ends))))
            break;
        group = 0;
    }
    if (!*text && digits % 4 == 0)
        return bytes;
    free(bytes);
    return NULL;
}
