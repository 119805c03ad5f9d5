// The table of tokens, and GPT-2's characters.
#include "data/test_data.h"
#include "tokenizer/byte_characters.h"
#include "tokenizer/token_table.h"

static bool add(struct token_table *t, const char *token, int32_t id) {
    bool added;
    assert_ok(token_table_add(t, token, strlen(token), id, &added, &error));
    return added;
}

static void test_find(void **state) {
    (void)state;
    struct token_table *t = token_table_create();
    assert_int_equal(token_table_size(t), 0);
    assert_int_equal(token_table_find(t, "", 0), -1);
    assert_true(add(t, "b", 7));
    assert_true(add(t, "", 2));
    assert_true(add(t, "abc", 0));
    assert_false(add(t, "abc", 1)); // the bytes are there
    assert_false(add(t, "x", 7));   // the id is
    assert_int_equal(token_table_size(t), 8);
    assert_int_equal(token_table_count(t), 3);
    assert_int_equal(token_table_find(t, "abc", 3), 0);
    assert_int_equal(token_table_find(t, "ab", 2), -1);
    assert_int_equal(token_table_find(t, "x", 1), -1);
    assert_int_equal(token_table_find(t, "", 0), 2);
    assert_null(token_table_token(t, 1).bytes);
    assert_null(token_table_token(t, 8).bytes);
    assert_null(token_table_token(t, -1).bytes);
    assert_non_null(token_table_token(t, 2).bytes);
    assert_int_equal(token_table_token(t, 0).length, 3);
    assert_memory_equal(token_table_token(t, 0).bytes, "abc", 3);
    token_table_free(t);
    token_table_free(NULL);
}

// NUL bytes, and so many that the table grows several times, in an order that is not theirs.
static void test_many(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    struct token_table *t = token_table_create();
    for (int i = 0; i < COUNT; i++) {
        const int id = (int)((int64_t)i * 7919 % COUNT);
        const char bytes[3] = {(char)(id >> 8), 0, (char)id};
        bool added;
        assert_ok(token_table_add(t, bytes, 3, id, &added, &error));
        assert_true(added);
    }
    for (int id = 0; id < COUNT; id++) {
        const char bytes[3] = {(char)(id >> 8), 0, (char)id};
        assert_int_equal(token_table_find(t, bytes, 3), id);
        assert_int_equal(token_table_token(t, id).length, 3);
        assert_memory_equal(token_table_token(t, id).bytes, bytes, 3);
    }
    assert_int_equal(token_table_count(t), COUNT);
    token_table_free(t);
}

static void test_far_ids(void **state) {
    (void)state;
    struct token_table *t = token_table_create();
    bool added;
    assert_true(add(t, "a", (1 << 20) - 1));
    assert_refused(token_table_add(t, "b", 1, 1 << 20, &added, &error), TRIREME_ERROR_USAGE, "1048576");
    assert_refused(token_table_add(t, "b", 1, INT32_MAX, &added, &error), TRIREME_ERROR_USAGE, "1 so far");
    assert_refused(token_table_add(t, "b", 1, -1, &added, &error), TRIREME_ERROR_USAGE, "-1");
    assert_int_equal(token_table_count(t), 1);
    token_table_free(t);
}

static void test_byte_characters(void **state) {
    (void)state;
    bool seen[0x144] = {0};
    char bytes[256];
    for (int b = 0; b < 256; b++) {
        const uint32_t code = byte_character((uint8_t)b);
        assert_true(code < 0x144 && !seen[code]);
        seen[code] = true;
        assert_int_equal(byte_of_character(code), b);
        bytes[b] = (char)b;
    }
    for (uint32_t code = 0; code < 0x200; code++)
        assert_int_equal(byte_of_character(code) >= 0, code < 0x144 && seen[code]);
    // As GPT-2's bytes_to_unicode has them.
    assert_int_equal(byte_character(' '), 0x120);
    assert_int_equal(byte_character('\n'), 0x10A);
    assert_int_equal(byte_character(0x7F), 0x121);
    assert_int_equal(byte_character(0xA0), 0x142);
    assert_int_equal(byte_character(0xAD), 0x143);
    assert_int_equal(byte_character(0xE9), 0xE9);
    struct text spelt = {0}, read = {0};
    byte_characters_spell(bytes, sizeof bytes, &spelt);
    assert_true(byte_characters_read(spelt.text, spelt.length, &read));
    assert_int_equal(read.length, sizeof bytes);
    assert_memory_equal(read.text, bytes, sizeof bytes);
    assert_false(byte_characters_read("a b", 3, &read));
    assert_int_equal(read.length, sizeof bytes);
    text_release(&spelt);
    text_release(&read);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_far_ids), cmocka_unit_test(test_byte_characters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
