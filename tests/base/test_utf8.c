// Tests of UTF-8: single characters, and whole texts piece by piece.
#include "base/utf8.h"

#include "base/base.h"
#include "support/test.h"

// The offset of the first ill-formed sequence of `length` bytes cut in pieces of `piece`, or -1.
static int64_t check_in_pieces(const char *bytes, size_t length, size_t piece) {
    struct utf8_checker c = {0};
    for (size_t at = 0; at < length; at += piece)
        if (!utf8_check(&c, bytes + at, MIN(piece, length - at)))
            return c.start;
    return utf8_finish(&c) ? -1 : c.start;
}

static void cases_are_judged(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        int64_t bad;
    } cases[] = {
        {"", -1},
        {"plain text that is longer than eight bytes", -1},
        {"\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", -1},
        {"ab\x80", 2},              // continuation alone
        {"ab\xC0\x80", 2},          // overlong
        {"ab\xC1\xBF", 2},          // overlong
        {"ab\xE0\x9F\xBF", 2},      // overlong
        {"ab\xF0\x8F\xBF\xBF", 2},  // overlong
        {"ab\xED\xA0\x80", 2},      // surrogate
        {"ab\xF4\x90\x80\x80", 2},  // above U+10FFFF
        {"ab\xF5\x80\x80\x80", 2},  // above U+10FFFF
        {"ab\xFF", 2},              // never
        {"ab\xC2", 2},              // cut off
        {"0123456789\xE2\x82", 10}, // cut off
        {"\xE2\x82\x41", 0},        // ended by ASCII
        {"01234567\xE2\x82\xACxyz0123456\x80", 21},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        for (size_t piece = 1; piece < 20; piece++)
            assert_int_equal(check_in_pieces(cases[i].bytes, strlen(cases[i].bytes), piece), cases[i].bad);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        size_t length = strlen(cases[i].bytes), whole = cases[i].bad < 0 ? length : (size_t)cases[i].bad;
        assert_int_equal(utf8_prefix(cases[i].bytes, length), whole);
        assert_true(utf8_is_valid(cases[i].bytes) == (whole == length));
    }
}

// Every code point's encoding is accepted and decoded, every other sequence of two bytes refused.
static void every_character_is_taken(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x110000; code++) {
        char s[UTF8_BYTES_MAX];
        size_t n;
        if (code < 0x80)
            s[0] = (char)code, n = 1;
        else if (code < 0x800)
            s[0] = (char)(0xC0 | code >> 6), n = 2;
        else if (code < 0x10000)
            s[0] = (char)(0xE0 | code >> 12), n = 3;
        else
            s[0] = (char)(0xF0 | code >> 18), n = 4;
        for (size_t i = 1; i < n; i++)
            s[i] = (char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3F));
        bool valid = code < 0x110000 && !(code >= 0xD800 && code < 0xE000);
        uint32_t found = 0;
        size_t bytes = utf8_decode(s, n, &found);
        if ((check_in_pieces(s, n, 4) == -1) != valid || bytes != (valid ? n : 0) || found != (valid ? code : 0))
            fail_msg("U+%04X", code);
        if (utf8_decode(s, n - 1, &found))
            fail_msg("U+%04X cut off", code);
    }
    int accepted = 0;
    for (int a = 0x80; a < 0x100; a++)
        for (int b = 0; b < 0x100; b++) {
            char s[2] = {(char)a, (char)b};
            accepted += check_in_pieces(s, 2, 2) == -1;
        }
    assert_int_equal(accepted, 0x800 - 0x80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_are_judged),
        cmocka_unit_test(every_character_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
