// Tokenizers against what `tokenizers` makes of the same files (models.jsonl, by tools/reference/tokenizer_models.py).
#include "base/json.h"
#include "data/test_data.h"
#include "tokenizer/encoder.h"

static struct tokenizer *tokenizer_of(const json_t *text) {
    struct tokenizer *t = NULL;
    struct tokenizer_parts parts;
    assert_ok(tokenizer_parts_parse(&parts, json_string_value(text), json_string_length(text), "models.jsonl", &error));
    assert_ok(tokenizer_create(&t, &parts, NULL, "models.jsonl", &error));
    return t;
}

static void assert_ids(struct encoder *e, const json_t *text, enum encoder_specials specials, const json_t *expected,
                       const char *name) {
    struct token_list ids = {0};
    assert_ok(encoder_encode(e, json_string_value(text), json_string_length(text), specials, &ids, &error));
    bool equal = ids.count == json_array_size(expected);
    for (size_t i = 0; i < ids.count && equal; i++)
        equal = ids.item[i] == json_integer_value(json_array_get(expected, i));
    if (!equal)
        fail_msg("%s: other ids of %s", name, json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII));
    VEC_RELEASE(&ids);
}

// Bytes that are not UTF-8 stay as they are here and are U+FFFD there.
static void assert_text(const struct tokenizer *t, const json_t *ids, bool special, const json_t *expected,
                        const char *name) {
    struct token_list list = {0};
    struct text text = {0};
    for (size_t i = 0; i < json_array_size(ids); i++)
        VEC_PUSH(&list, (int32_t)json_integer_value(json_array_get(ids, i)));
    assert_ok(tokenizer_decode(t, list.item, list.count, special, &text, &error));
    const bool replaced = strstr(json_string_value(expected), "\xEF\xBF\xBD") != NULL;
    const bool equal = text.length == json_string_length(expected) &&
                       (text.length == 0 || memcmp(text.text, json_string_value(expected), text.length) == 0);
    if (!equal && !replaced)
        fail_msg("%s: other text: %s", name, json_dumps(expected, JSON_ENCODE_ANY | JSON_ENSURE_ASCII));
    VEC_RELEASE(&list);
    text_release(&text);
}

static void check_tokenizer(const json_t *line, const struct tokenizer *t) {
    const char *name = json_string_value(json_object_get(line, "name"));
    const json_t *cases = json_object_get(line, "cases");
    struct encoder *e = encoder_create(t);
    assert_true(json_array_size(cases) > 20);
    for (int round = 0; round < 2; round++) // the second one finds pieces in the cache
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i), *text = json_array_get(one, 0);
            assert_ids(e, text, ENCODER_TEXT_ALONE, json_array_get(one, 1), name);
            assert_ids(e, text, ENCODER_SPECIALS, json_array_get(one, 2), name);
            assert_text(t, json_array_get(one, 1), false, json_array_get(one, 3), name);
            assert_text(t, json_array_get(one, 2), true, json_array_get(one, 4), name);
        }
    encoder_free(e);
}

// Written and read again, it is the same tokenizer.
static void check_written(const json_t *line, const struct tokenizer *t) {
    struct text json = {0};
    struct tokenizer_parts parts;
    struct tokenizer *again = NULL;
    char one[CHECKSUM_HEX], other[CHECKSUM_HEX];
    tokenizer_parts_write(tokenizer_parts_of(t), &json);
    assert_ok(tokenizer_parts_parse(&parts, json.text, json.length, "written", &error));
    assert_ok(tokenizer_create(&again, &parts, NULL, "written", &error));
    tokenizer_checksum(t, one);
    tokenizer_checksum(again, other);
    assert_string_equal(one, other);
    check_tokenizer(line, again);
    tokenizer_free(again);
    text_release(&json);
}

static void test_models(void **state) {
    (void)state;
    char *text;
    size_t length, count = 0;
    assert_ok(file_read(TRIREME_SOURCE "/tests/tokenizer/models.jsonl", 1 << 24, &text, &length, &error));
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, count++) {
        json_t *line = NULL;
        json_error_t refusal; // texts hold NUL, which json_parse refuses
        line = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, &refusal);
        assert_non_null(line);
        struct tokenizer *t = tokenizer_of(json_object_get(line, "tokenizer"));
        check_tokenizer(line, t);
        check_written(line, t);
        tokenizer_free(t);
        json_decref(line);
    }
    assert_int_equal(count, 12);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
