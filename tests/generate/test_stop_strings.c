// Stop strings end a text whatever pieces it comes in; what is told before is whole characters and no part of one.
#include "support/checkpoint.h"

#include "base/utf8.h"
#include "generate/stop_strings.h"

static trireme_status read_stops(struct stop_strings *stops, const char *list, trireme_error *error) {
    char *setting = mem_printf("generate.stop=%s", list);
    const char *overrides[] = {setting};
    struct config config;
    *stops = (struct stop_strings){0};
    assert_ok(config_load(&config, NULL, overrides, 1, error), error);
    trireme_status status = stop_strings_read(stops, &config, error);
    config_release(&config);
    free(setting);
    return status;
}

// Gives a text in pieces of `size` bytes. What is told after each piece is a beginning of `expected` in whole
// characters.
static void check_told(const char *list, const char *text, size_t size, const char *expected, bool stopped) {
    trireme_error error = {0};
    struct stop_strings stops;
    struct stop_gate gate = {0};
    struct text out = {0};
    assert_ok(read_stops(&stops, list, &error), &error);
    for (size_t at = 0; at < strlen(text) && !gate.stopped; at += size) {
        stop_gate_add(&gate, &stops, text + at, MIN(size, strlen(text) - at), &out);
        assert_true(out.length <= strlen(expected) && memcmp(out.text ?: "", expected, out.length) == 0);
        assert_true(out.length == 0 || utf8_prefix(out.text, out.length) == out.length);
    }
    assert_int_equal(gate.stopped, stopped);
    if (!gate.stopped)
        stop_gate_end(&gate, &out);
    assert_string_equal(out.text ?: "", expected);
    text_release(&out);
    text_release(&gate.held);
    stop_strings_release(&stops);
}

static void test_pieces(void **state) {
    (void)state;
    static const struct {
        const char *list, *text, *told;
        bool stopped;
    } CASES[] = {
        {"", "no end in \xc3\xa4\xf0\x9f\x98\x80 sight", "no end in \xc3\xa4\xf0\x9f\x98\x80 sight", false},
        {"User:", "an answer\nUser: more", "an answer\n", true},
        {"[\"\\n\\n\", \"User:\"]", "one\ntwo\n\nUser:", "one\ntwo", true},
        {"abab", "abacababab", "abac", true},
        {"aab", "aaaab", "aa", true},
        {"###", "a ## b #", "a ## b #", false},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x81\xf0\x9f\x98\x80", "\xf0\x9f\x98\x81", true},
        {"x", "xyz", "", true},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++)
        for (size_t size = 1; size <= 12; size++)
            check_told(CASES[i].list, CASES[i].text, size, CASES[i].told, CASES[i].stopped);
}

// What is told at once does not wait: only what may be the beginning of a stop string or of a character does.
static void test_waits(void **state) {
    (void)state;
    static const struct {
        const char *text, *told;
    } CASES[] = {{"hello", "hello"}, {"hello U", "hello "}, {"Use", ""}, {"a\xf0\x9f\x98", "a"}, {"a\xff", "a\xff"}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        trireme_error error = {0};
        struct stop_strings stops;
        struct stop_gate gate = {0};
        struct text out = {0};
        assert_ok(read_stops(&stops, "User:", &error), &error);
        stop_gate_add(&gate, &stops, CASES[i].text, strlen(CASES[i].text), &out);
        assert_string_equal(out.text ?: "", CASES[i].told);
        text_release(&out);
        text_release(&gate.held);
        stop_strings_release(&stops);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const char *const LISTS[] = {"[", "[1]", "[\"\"]", "[\"a\", \"\"]", "[\"a\"] b"};
    for (size_t i = 0; i < ARRAY_LENGTH(LISTS); i++) {
        trireme_error error = {0};
        struct stop_strings stops;
        if (read_stops(&stops, LISTS[i], &error) != TRIREME_ERROR_USAGE || !strstr(error.message, "generate.stop"))
            fail_msg("%s: %s", LISTS[i], error.message);
        stop_strings_release(&stops);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("stop strings", tests, NULL, NULL);
}
