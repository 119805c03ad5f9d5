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

const char *unicode_version(void) {
    return utf8proc_unicode_version();
}
