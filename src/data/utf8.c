#include "data/utf8.h"

#include <string.h>

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
        uint8_t lead = *p;
        c->start = c->position;
        c->low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        c->high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (lead < 0x80)
            c->missing = 0;
        else if (lead >= 0xC2 && lead <= 0xDF)
            c->missing = 1;
        else if (lead >= 0xE0 && lead <= 0xEF)
            c->missing = 2;
        else if (lead >= 0xF0 && lead <= 0xF4)
            c->missing = 3;
        else
            return false;
        c->position++, p++;
    }
    return true;
}

bool utf8_finish(const struct utf8_checker *c) {
    return c->missing == 0;
}
