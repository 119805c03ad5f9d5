// Regular expressions: what is refused, what hostile ones cost, several threads. That they match as Oniguruma's do, is
// in test_steps.c.
#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "support/test.h"
#include "tokenizer/expression.h"
#include "tokenizer/expression_syntax.h"
#include "tokenizer/unicode.h"

static trireme_error error;

static trireme_status find_in(const char *pattern, const struct text *text, struct spans *out) {
    struct expression *e = NULL;
    struct expression_memory *memory = expression_memory_create();
    trireme_status status = expression_create(&e, pattern, strlen(pattern), &error);
    if (status == TRIREME_OK)
        status = expression_find(e, memory, text->text, text->length, out, &error);
    expression_free(e);
    expression_memory_free(memory);
    return status;
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *message;
    } CASES[] = {
        {"a)", "pattern \"a)\": byte 1: ) without ("},
        {"x(?:a", "byte 1: ( without )"},
        {"[a", "byte 0: [ without ]"},
        {"[]", "byte 0: the class is empty"},
        {"[b-a]", "byte 1: the range is empty"},
        {"[a-\\d]", "\\d is not known"},
        {"[a-", "the range does not end"},
        {"[a-[bc]]", "the range does not end"},
        {"a|*", "byte 2: '*' follows nothing that it could repeat"},
        {"a\\", "ends after a backslash"},
        {"(a)\\1", "byte 3: \\1 is not known"},
        {"\\K", "\\K is not known"},
        {"\\X", "\\X is not known"},
        {"\\pL", "\\p must be followed by the name of a property"},
        {"\\p{L", "\\p must be followed by the name of a property"},
        {"\\p{Klingon}", "unknown property"},
        {"[[:letters:]]", "[:letters:] is not known"},
        {"(?x: a)", "(?x is not known"},
        {"(?<name>a)", "(?< is not known"},
        {"\\x{110000}", "the escape stands for no character"},
        {"\\xff", "the escape stands for no character"},
        {"(?<=a+)b", "lookbehind assertion is not fixed length"},
        {"a{99999999}", "number too big"},
        {"(?:(?:a{1000}){1000}){1000}", "too large"},
        {"\xff", "byte 0: not UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct expression *e = NULL;
        assert_int_equal(expression_create(&e, CASES[i].pattern, strlen(CASES[i].pattern), &error),
                         TRIREME_ERROR_USAGE);
        if (!strstr(error.message, CASES[i].message))
            fail_msg("\"%s\" has no \"%s\"", error.message, CASES[i].message);
    }
}

static void add_times(struct text *t, const char *what, int times) {
    for (int i = 0; i < times; i++)
        text_add(t, "%s", what);
}

// Depth, length and repetitions of a pattern are bounded before PCRE2 sees it, and the stack with them.
static void test_deep_patterns(void **state) {
    (void)state;
    static const struct {
        const char *opening, *inner, *closing;
        int times;
        const char *message; // NULL: it is not refused
    } CASES[] = {
        {"(", "a", ")", EXPRESSION_DEPTH_MAX, NULL},
        {"(", "a", ")", 10000, "nested deeper than 100 levels"},
        {"(?=", "a", "", 10000, "nested deeper than 100 levels"},
        {"(?i)", "a", "", 5000, "nested deeper than 100 levels"},
        {"[", "a", "]", 10000, "nested deeper than 100 levels"},
        {"", "a", "+", 10000, "more than 100 repetitions of repetitions"},
        {"a", "", "", EXPRESSION_BYTES_MAX + 1, "it has 32769 bytes, more than 32768"},
        {"\\b", "", "", 10000, "too complicated"},
        {"[^[", "a", "]]", 50, NULL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct text pattern = {0};
        struct expression *e = NULL;
        add_times(&pattern, CASES[i].opening, CASES[i].times);
        text_add(&pattern, "%s", CASES[i].inner);
        add_times(&pattern, CASES[i].closing, CASES[i].times);
        trireme_status status = expression_create(&e, pattern.text, pattern.length, &error);
        if (!CASES[i].message)
            assert_int_equal(status, TRIREME_OK);
        else if (status == TRIREME_OK || !strstr(error.message, CASES[i].message))
            fail_msg("%zu: \"%s\" has no \"%s\"", i, error.message, CASES[i].message);
        expression_free(e);
        text_release(&pattern);
    }
}

// Patterns that explode fail, and say so, whether they step back at one place or read on from every place.
static void test_exploding(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *piece;
        int times;
        const char *end;
    } CASES[] = {
        {"(?:a|aa)+[cd]", "a", 100, "b"},
        {"(a*)*[cd]", "a", 1000, "b"},
        {"(?:\\w+\\s?)+[cd]$", "ab", 400, "!"},
        {"[ab]*[bc][de]", "a", 400000, "e"}, // the square of its length
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct text text = {0};
        struct spans spans = {0};
        add_times(&text, CASES[i].piece, CASES[i].times);
        text_add(&text, "%s", CASES[i].end);
        int64_t begun = clock_thread();
        assert_int_equal(find_in(CASES[i].pattern, &text, &spans), TRIREME_ERROR_USAGE);
        assert_non_null(strstr(error.message, "takes too long at byte"));
        assert_true(clock_thread() - begun < (int64_t)5 * 1000000000);
        text_release(&text);
        VEC_RELEASE(&spans);
    }
}

// Long runs that a sound pattern steps through are no explosion; nor are matches that are rare.
static void test_long_texts(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *piece;
        int times;
        size_t spans;
    } CASES[] = {
        {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", " ", 1000000, 1},
        {"(?:a|b)+", "ab", 50000, 1},
        {"x", "a\xC3\xA9", 500000, 1},
        {" {2,}", "a\xC3\xA9  ", 200000, 400000},
        {"", "a\xC3\xA9", 1000, 4001},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct text text = {0};
        struct spans spans = {0};
        add_times(&text, CASES[i].piece, CASES[i].times);
        if (find_in(CASES[i].pattern, &text, &spans) != TRIREME_OK)
            fail_msg("%s", error.message);
        assert_int_equal(spans.count, CASES[i].spans);
        assert_int_equal(spans.item[spans.count - 1].end, text.length);
        text_release(&text);
        VEC_RELEASE(&spans);
    }
}

struct shared {
    struct expression *expression;
    struct text text;
    size_t found[8];
};

static void find_shared(void *argument, int i) {
    struct shared *s = argument;
    struct expression_memory *memory = expression_memory_create();
    trireme_error own = {0};
    for (int again = 0; again < 20; again++) {
        struct spans spans = {0};
        if (expression_find(s->expression, memory, s->text.text, s->text.length, &spans, &own) == TRIREME_OK)
            s->found[i] += spans.count;
        VEC_RELEASE(&spans);
    }
    expression_memory_free(memory);
}

static void test_threads(void **state) {
    (void)state;
    struct shared s = {0};
    static const char PATTERN[] = "\\p{L}+|\\s+(?!\\S)";
    assert_int_equal(expression_create(&s.expression, PATTERN, strlen(PATTERN), &error), TRIREME_OK);
    add_times(&s.text, "ab c\xC3\xA9 \n 12", 1000);
    parallel_for(8, 8, find_shared, &s);
    for (int i = 0; i < 8; i++)
        assert_int_equal(s.found[i], 20 * 5 * 1000);
    expression_free(s.expression);
    text_release(&s.text);
}

static void test_versions(void **state) {
    (void)state;
    char *of_patterns = expression_unicode_version();
    assert_true(atoi(of_patterns) >= 14);
    assert_true(atoi(unicode_version()) >= 14);
    free(of_patterns);
    uint32_t second;
    assert_int_equal(unicode_lower(0x130, &second), 'i');
    assert_int_equal(second, 0x307);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_deep_patterns), cmocka_unit_test(test_exploding),
        cmocka_unit_test(test_long_texts), cmocka_unit_test(test_threads),       cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests_name("expression", tests, NULL, NULL);
}
