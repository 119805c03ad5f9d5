#include "tokenizer/unicode.h"

#include <pthread.h>
#include <utf8proc.h>

static uint8_t categories_of_codes[UNICODE_CODES];

static void make_categories(void) {
    _Static_assert((int)CATEGORY_CO == (int)UTF8PROC_CATEGORY_CO && (int)CATEGORY_LU == (int)UTF8PROC_CATEGORY_LU,
                   "categories are numbered as utf8proc does");
    for (int32_t code = 0; code < UNICODE_CODES; code++)
        categories_of_codes[code] = (uint8_t)utf8proc_category(code);
    for (int code = '\t'; code <= '\r'; code++)
        categories_of_codes[code] = CATEGORY_CC_WHITE;
    categories_of_codes[0x85] = CATEGORY_CC_WHITE;
}

const uint8_t *unicode_categories(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_categories);
    return categories_of_codes;
}

void unicode_add(struct text *out, uint32_t code) {
    uint8_t utf8[UTF8_BYTES_MAX];
    text_add_bytes(out, (const char *)utf8, (size_t)utf8proc_encode_char((utf8proc_int32_t)code, utf8));
}

size_t unicode_ascii_prefix(const char *text, size_t length) {
    size_t at = 0;
    uint64_t eight;
    while (length - at >= 8 && (memcpy(&eight, text + at, 8), (eight & UINT64_C(0x8080808080808080)) == 0))
        at += 8;
    while (at < length && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

uint32_t unicode_lower(uint32_t code, uint32_t *second) {
    *second = code == 0x130 ? 0x307 : 0; // the only one in SpecialCasing.txt without a condition
    return code == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

const char *unicode_version(void) {
    return utf8proc_unicode_version();
}
