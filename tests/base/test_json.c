// base/json.h: bounds and messages of the reader, exactness of the writer.
#include "base/json.h"
#include "base/utf8.h"
#include "support/test.h"

#include <float.h>
#include <locale.h>
#include <math.h>

static json_t *parse(const char *text) {
    trireme_error error = {0};
    json_t *tree = NULL;
    if (json_parse(text, strlen(text), "config.json", &tree, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return tree;
}

static void refused(const char *text, size_t length, const char *part) {
    trireme_error error = {0};
    json_t *tree = (json_t *)&error;
    assert_int_equal(json_parse(text, length, "config.json", &tree, &error), TRIREME_ERROR_CORRUPT);
    assert_ptr_equal(tree, (json_t *)&error);
    assert_non_null(strstr(error.message, "config.json"));
    if (!strstr(error.message, part))
        fail_msg("\"%s\" is not in \"%s\"", part, error.message);
    for (const char *s = error.message; *s; s++)
        assert_true((unsigned char)*s >= 0x20);
    assert_true(utf8_is_valid(error.message));
}

static void test_refuses_malformed(void **state) {
    (void)state;
    static const char *const TEXT[][2] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"{}{}", "end of file"},
        {"12", "'[' or '{' expected"},
        {"{\"a\":1,\"a\":2}", "duplicate object key near '\"a\"'"},
        {"{\"a\":\n  nan}", "line 2, column"},
        {"{\"a\":1,}", "not valid JSON"},
        {"{'a':1}", "not valid JSON"},
        {"[1e999]", "not valid JSON"},
        {"[1e999]", "overflow"},
        {"[99999999999999999999, 1e999]", "overflow"},
        {"[\"\xff\"]", "unable to decode"},
        {"[\"\\u0000\"]", "\\u0000 is not allowed near"},
        {"[\"\xc0\x80\"]", "unable to decode"},
        {"[\"\xed\xa0\x80\"]", "unable to decode"},
        {"[\"\\ud800\"]", "not valid JSON"},
        {"[\"a\nb\"]", "not valid JSON"},
        {"\xef\xbb\xbf{}", "not valid JSON"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(TEXT); i++)
        refused(TEXT[i][0], strlen(TEXT[i][0]), TEXT[i][1]);
    refused("{}\0", 3, "not valid JSON");
    refused("[\"a", 3, "not valid JSON");
    refused("[\"\\", 3, "not valid JSON");
}

static void test_refuses_what_is_too_much(void **state) {
    (void)state;
    enum { MANY = 3 * JSON_VALUES_MAX + 10 };
    char deep[2 * JSON_DEPTH_MAX + 3];
    memset(deep, '[', sizeof deep);
    memset(deep + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    json_t *tree = NULL;
    assert_int_equal(json_parse(deep, 2 * JSON_DEPTH_MAX, "deep", &tree, NULL), TRIREME_OK);
    json_decref(tree);
    memset(deep, '[', sizeof deep);
    refused(deep, sizeof deep, "nested deeper than 64");

    char *many = mem_alloc(MANY);
    size_t length = 0;
    many[length++] = '[';
    for (size_t i = 0; i < JSON_VALUES_MAX; i++) {
        many[length++] = '1';
        many[length++] = ',';
    }
    many[length++] = '1';
    many[length++] = ']';
    refused(many, length, "more than 4000000 values");
    free(many);

    // Brackets and commas inside strings are neither depth nor values.
    struct text t = {0};
    text_add(&t, "[\"\\\"");
    for (int i = 0; i < 1000; i++)
        text_add(&t, "[{,");
    text_add(&t, "\"]");
    json_decref(parse(t.text));
    text_release(&t);
}

static void assert_message(const trireme_error *error, const char *message) {
    assert_int_equal(error->status, TRIREME_ERROR_CORRUPT);
    assert_string_equal(error->message, message);
}

static void test_reads_members(void **state) {
    (void)state;
    json_t *tree =
        parse("{\"heads\":12,\"theta\":1e6,\"round\":3,\"tied\":true,\"type\":\"gpt2\",\"scaling\":{\"a\":1},"
              "\"list\":[1,2],\"none\":null,\"text\":\"12\",\"whole\":12.0,\"zero\":0,\"long\":\"x\\ny\"}");
    trireme_error error = {0};
    int64_t integer = 7;
    double number = 7;
    bool boolean = false;
    const char *string = "default";
    const json_t *below = NULL;
    assert_int_equal(json_read_integer(tree, "c", "heads", JSON_REQUIRED, 1, INT64_MAX, &integer, &error), TRIREME_OK);
    assert_int_equal(integer, 12);
    assert_int_equal(json_read_number(tree, "c", "theta", JSON_REQUIRED, DBL_MIN, INFINITY, &number, &error),
                     TRIREME_OK);
    assert_true(number == 1e6);
    assert_int_equal(json_read_number(tree, "c", "round", JSON_REQUIRED, 3, 3, &number, &error), TRIREME_OK);
    assert_true(number == 3);
    assert_int_equal(json_read_boolean(tree, "c", "tied", JSON_REQUIRED, &boolean, &error), TRIREME_OK);
    assert_true(boolean);
    assert_int_equal(json_read_string(tree, "c", "type", JSON_REQUIRED, &string, &error), TRIREME_OK);
    assert_string_equal(string, "gpt2");
    assert_int_equal(json_read_object(tree, "c", "scaling", JSON_REQUIRED, &below, &error), TRIREME_OK);
    assert_int_equal(json_object_size(below), 1);
    assert_int_equal(json_read_array(tree, "c", "list", JSON_REQUIRED, &below, &error), TRIREME_OK);
    assert_int_equal(json_array_size(below), 2);

    // Absent and null keep the default, or are missing.
    integer = 5;
    assert_int_equal(json_read_integer(tree, "c", "none", JSON_OPTIONAL, 1, 9, &integer, &error), TRIREME_OK);
    assert_int_equal(json_read_integer(tree, "c", "absent", JSON_OPTIONAL, 1, 9, &integer, &error), TRIREME_OK);
    assert_int_equal(integer, 5);
    json_read_integer(tree, "config.json", "absent", JSON_REQUIRED, 1, INT64_MAX, &integer, &error);
    assert_message(&error, "config.json: \"absent\" is missing: it must be a positive integer");
    json_read_string(tree, "config.json", "none", JSON_REQUIRED, &string, &error);
    assert_message(&error, "config.json: \"none\" is null: it must be a string");

    json_read_integer(tree, "config.json", "text", JSON_REQUIRED, 1, INT64_MAX, &integer, &error);
    assert_message(&error, "config.json: \"text\" must be a positive integer, found \"12\"");
    json_read_integer(tree, "config.json", "whole", JSON_REQUIRED, INT64_MIN, INT64_MAX, &integer, &error);
    assert_message(&error, "config.json: \"whole\" must be an integer, found 12.0");
    json_read_integer(tree, "config.json", "heads", JSON_REQUIRED, 1, 11, &integer, &error);
    assert_message(&error, "config.json: \"heads\" must be an integer from 1 to 11, found 12");
    json_read_integer(tree, "config.json", "heads", JSON_OPTIONAL, 13, INT64_MAX, &integer, &error);
    assert_message(&error, "config.json: \"heads\" must be an integer of at least 13, found 12");
    json_read_integer(tree, "config.json", "tied", JSON_REQUIRED, 0, INT64_MAX, &integer, &error);
    assert_message(&error, "config.json: \"tied\" must be an integer, not negative, found true");
    json_read_number(tree, "config.json", "zero", JSON_REQUIRED, DBL_MIN, INFINITY, &number, &error);
    assert_message(&error, "config.json: \"zero\" must be a positive number, found 0");
    json_read_number(tree, "config.json", "heads", JSON_REQUIRED, 0, 1, &number, &error);
    assert_message(&error, "config.json: \"heads\" must be a number from 0 to 1, found 12");
    json_read_boolean(tree, "config.json", "scaling", JSON_REQUIRED, &boolean, &error);
    assert_message(&error, "config.json: \"scaling\" must be true or false, found an object");
    json_read_string(tree, "config.json", "list", JSON_REQUIRED, &string, &error);
    assert_message(&error, "config.json: \"list\" must be a string, found [1,2]");
    json_read_object(tree, "config.json", "long", JSON_REQUIRED, &below, &error);
    assert_message(&error, "config.json: \"long\" must be an object, found \"x\\ny\"");
    json_read_array(tree, "config.json", "scaling", JSON_REQUIRED, &below, &error);
    assert_message(&error, "config.json: \"scaling\" must be an array, found an object");
    json_read_string(below, "config.json", "a", JSON_REQUIRED, &string, &error);
    assert_message(&error, "config.json: must be an object with \"a\", found [1,2]");
    assert_int_equal(integer, 5);
    assert_string_equal(string, "gpt2");
    json_decref(tree);
}

static void test_integers_beyond_64_bits(void **state) {
    (void)state;
    static const char TEXT[] = "{\"a\":1000000000000000019884624838656,\"b\":[-9223372036854775809,9223372036854775807,"
                               "9223372036854775808],\"9\\\"99999999999999999999\":\"99999999999999999999\\\\\","
                               "\"d\":12345678901234567890.5,\"e\":0.12345678901234567890123,\"f\":7,"
                               "\"g\":[1e-00000000000000000002,1E+00000000000000000002,12345678901234567890e1,true,"
                               "-9223372036854775808,1234567890123456789]}";
    json_t *tree;
    trireme_error error;
    assert_int_equal(json_parse(TEXT, sizeof TEXT - 1, "t", &tree, &error), TRIREME_OK);
    const json_t *b = json_object_get(tree, "b");
    assert_true(json_real_value(json_object_get(tree, "a")) == 1e30);
    assert_true(json_real_value(json_array_get(b, 0)) == -0x1p63 && json_real_value(json_array_get(b, 2)) == 0x1p63);
    assert_int_equal(json_integer_value(json_array_get(b, 1)), INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(tree, "9\"99999999999999999999")), "99999999999999999999\\");
    assert_true(json_real_value(json_object_get(tree, "d")) == 12345678901234567890.5);
    assert_true(json_real_value(json_object_get(tree, "e")) == 0.12345678901234567890123);
    assert_int_equal(json_integer_value(json_object_get(tree, "f")), 7);
    const json_t *g = json_object_get(tree, "g");
    assert_true(json_real_value(json_array_get(g, 0)) == 0.01 && json_real_value(json_array_get(g, 1)) == 100);
    assert_true(json_real_value(json_array_get(g, 2)) == 12345678901234567890e1 && json_is_true(json_array_get(g, 3)));
    assert_true(json_integer_value(json_array_get(g, 4)) == INT64_MIN);
    assert_true(json_integer_value(json_array_get(g, 5)) == 1234567890123456789);
    int64_t value;
    assert_int_equal(json_read_integer(tree, "t", "a", JSON_REQUIRED, 0, INT64_MAX, &value, &error),
                     TRIREME_ERROR_CORRUPT);
    assert_string_equal(error.message, "t: \"a\" must be an integer, not negative, found 1e+30");
    json_decref(tree);
}

static void test_excerpts_stay_short(void **state) {
    (void)state;
    char buffer[JSON_EXCERPT_BYTES], text[2000];
    assert_string_equal(json_excerpt("a\"b\\c\n\x01", buffer), "\"a\\\"b\\\\c\\n\\u0001\"");
    // Invisible characters: a no-break space, a zero-width space, a byte order mark, a change of direction.
    assert_string_equal(json_excerpt("F0\u00a0F1 \u200b\ufeff\u202e\u00e9", buffer),
                        "\"F0\\u00a0F1 \\u200b\\ufeff\\u202e\u00e9\"");
    for (size_t length = 0; length < sizeof text; length++)
        for (int kind = 0; kind < 4; kind++) {
            static const char *const UNIT[] = {"x", "\x01", "\xc3\xa9", "\xff"};
            for (size_t i = 0; i < length; i++)
                text[i] = UNIT[kind][i % strlen(UNIT[kind])];
            text[length] = 0;
            json_excerpt(text, buffer);
            assert_true(strlen(buffer) < JSON_EXCERPT_BYTES);
            assert_true(utf8_is_valid(buffer));
            assert_int_equal(buffer[0], '"');
            assert_int_equal(buffer[strlen(buffer) - 1], '"');
            assert_true(strlen(buffer) >= MIN(length, 70));
        }
    assert_non_null(strstr(buffer, "..."));
}

static void test_writes_compact(void **state) {
    (void)state;
    struct text t = {0};
    for (int i = 0; i < 2; i++) {
        json_begin_object(&t, NULL);
        json_add_integer(&t, "step", 3);
        json_add_number(&t, "loss", 0.1);
        json_add_number(&t, "bad", NAN);
        json_add_number(&t, "worse", -INFINITY);
        json_add_number(&t, "whole", 2);
        json_add_boolean(&t, "done", true);
        json_add_string(&t, "te\"xt", "a\n\xff\xc3\xa9,{");
        json_begin_array(&t, "list");
        json_begin_array(&t, NULL);
        json_end_array(&t);
        json_add_integer(&t, NULL, INT64_MIN);
        json_add_string(&t, NULL, ":");
        json_begin_object(&t, NULL);
        json_end_object(&t);
        json_end_array(&t);
        json_end_object(&t);
        text_add(&t, "\n");
    }
    static const char LINE[] =
        "{\"step\":3,\"loss\":0.1,\"bad\":null,\"worse\":null,\"whole\":2.0,\"done\":true,"
        "\"te\\\"xt\":\"a\\n\xef\xbf\xbd\xc3\xa9,{\",\"list\":[[],-9223372036854775808,\":\",{}]}\n";
    assert_int_equal(t.length, 2 * strlen(LINE));
    assert_memory_equal(t.text, LINE, strlen(LINE));
    assert_string_equal(t.text + strlen(LINE), LINE);
    text_release(&t);
}

static void test_paths(void **state) {
    (void)state;
    static const char *const PATHS[] = {"", "a/b \n\xc3\xa9", "\xff", "a\xed\xa0\x80/b", "\xc3\n"};
    struct text t = {0};
    json_t *tree;
    trireme_error error;
    char *path;
    json_begin_array(&t, NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(PATHS); i++) {
        json_begin_object(&t, NULL);
        json_add_path(&t, "path", PATHS[i]);
        json_end_object(&t);
    }
    json_end_array(&t);
    assert_string_equal(t.text, "[{\"path\":\"\"},{\"path\":\"a/b \\n\xc3\xa9\"},{\"path\":{\"base64\":\"/w==\"}},"
                                "{\"path\":{\"base64\":\"Ye2ggC9i\"}},{\"path\":{\"base64\":\"wwo=\"}}]");
    assert_int_equal(json_parse(t.text, t.length, "t", &tree, &error), TRIREME_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(PATHS); i++) {
        assert_int_equal(json_read_path(json_array_get(tree, i), "t", "path", &path, &error), TRIREME_OK);
        assert_string_equal(path, PATHS[i]);
        free(path);
    }
    json_decref(tree);
    text_release(&t);
    static const char *const WRONG[] = {"{}",
                                        "{\"path\":1}",
                                        "{\"path\":{}}",
                                        "{\"path\":{\"base64\":1}}",
                                        "{\"path\":{\"base64\":\"/w=\"}}",
                                        "{\"path\":{\"base64\":\"YQBi\"}}"};
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++) {
        assert_int_equal(json_parse(WRONG[i], strlen(WRONG[i]), "t", &tree, &error), TRIREME_OK);
        assert_int_equal(json_read_path(tree, "t", "path", &path, &error), TRIREME_ERROR_CORRUPT);
        assert_non_null(strstr(error.message, "be a string, or an object with \"base64\""));
        json_decref(tree);
    }
}

static void test_texts_with_nul(void **state) {
    (void)state;
    struct text t = {0}, none = {0}, some = {0};
    text_add_bytes(&some, "\0a\xc3\0\xc3\xa9\xe2\x82\xff\0", 10); // a sequence that a NUL cuts short, one of two bytes
    json_begin_object(&t, NULL);
    json_add_text(&t, "none", &none);
    json_add_text(&t, "some", &some);
    json_end_object(&t);
    assert_string_equal(
        t.text, "{\"none\":\"\",\"some\":\"\\u0000a\xef\xbf\xbd\\u0000\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\\u0000\"}");
    text_release(&t);
    text_release(&some);
}

static void test_numbers_round_trip(void **state) {
    (void)state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        struct text t = {0};
        json_begin_array(&t, NULL);
        json_add_number(&t, NULL, value);
        json_add_number(&t, NULL, (double)(bits >> 40) / 1000);
        json_end_array(&t);
        json_t *tree = parse(t.text);
        double back = json_real_value(json_array_get(tree, 0));
        assert_memory_equal(&back, &value, sizeof back);
        assert_true(json_real_value(json_array_get(tree, 1)) == (double)(bits >> 40) / 1000);
        assert_true(strlen(strchr(t.text, ',')) <= 20);
        json_decref(tree);
        text_release(&t);
    }
}

// A program that links us may have set one.
static void test_numbers_in_a_locale_with_commas(void **state) {
    (void)state;
    static const char *const LOCALES[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "de_DE", "fr_FR", "es_ES"};
    bool set = false;
    for (size_t i = 0; i < ARRAY_LENGTH(LOCALES) && !set; i++)
        set = setlocale(LC_NUMERIC, LOCALES[i]) != NULL;
    if (!set)
        skip();
    struct text t = {0};
    json_begin_array(&t, NULL);
    json_add_number(&t, NULL, 0.25);
    json_add_number(&t, NULL, -1.5e300);
    json_add_number(&t, NULL, 2);
    json_end_array(&t);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(t.text, "[0.25,-1.5e+300,2.0]");
    text_release(&t);
}

static void test_prints_trees(void **state) {
    (void)state;
    json_t *tree = parse("{\"b\":[],\"a\":[1,{\"eps\":1e-05}],\"c\":{},\"d\":\"\\u00e9\\u007f\"}");
    struct text t = {0};
    json_print(&t, tree);
    assert_string_equal(t.text,
                        "{\n  \"b\": [],\n  \"a\": [\n    1,\n    {\n      \"eps\": 1e-05\n    }\n  ],\n  \"c\": {},\n"
                        "  \"d\": \"\xc3\xa9\\u007f\"\n}\n");
    json_t *back = parse(t.text);
    assert_true(json_equal(tree, back));
    json_decref(back);
    json_decref(tree);
    text_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_malformed),
        cmocka_unit_test(test_refuses_what_is_too_much),
        cmocka_unit_test(test_reads_members),
        cmocka_unit_test(test_integers_beyond_64_bits),
        cmocka_unit_test(test_excerpts_stay_short),
        cmocka_unit_test(test_writes_compact),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_texts_with_nul),
        cmocka_unit_test(test_numbers_round_trip),
        cmocka_unit_test(test_numbers_in_a_locale_with_commas),
        cmocka_unit_test(test_prints_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
