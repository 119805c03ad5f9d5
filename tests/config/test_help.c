// Tests of src/config/: the table of keys, and what help says about them.
#include "base/json.h"
#include "config/key.h"
#include "support/test.h"

static bool has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void test_table(void **state) {
    (void)state;
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        const struct key *key = &key_table[i];
        assert_ptr_equal(key_find(key->section, key->name), key);
        assert_non_null(key_section_find(key->section));
        assert_true(*key->help && key->bounds.least <= key->bounds.most);
        // A key of ours that is a synonym of another one would send its user in circles.
        assert_false(has_word(key->synonyms, key->name));
        assert_null(strchr(key->synonyms, '-'));
        char *full = mem_printf("%s.%s", key->section, key->name);
        for (size_t j = 0; j < CONFIG_KEY_COUNT; j++)
            assert_false(has_word(key_table[j].synonyms, full));
        free(full);
    }
}

static void test_help(void **state) {
    (void)state;
    struct text all = {0}, one = {0}, json = {0};
    trireme_error error = {0};
    assert_int_equal(config_help(&all, NULL, false, &error), TRIREME_OK);
    assert_int_equal(config_help(&json, NULL, true, &error), TRIREME_OK);
    json_t *object = NULL;
    assert_int_equal(json_parse(json.text, json.length, "help", &object, &error), TRIREME_OK);
    const json_t *keys = json_object_get(object, "keys");
    assert_int_equal(json_array_size(keys), CONFIG_KEY_COUNT);
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        char *full = mem_printf("%s.%s", key_table[i].section, key_table[i].name);
        const json_t *key = json_array_get(keys, i);
        assert_string_equal(json_string_value(json_object_get(key, "key")), full);
        assert_true(json_is_array(json_object_get(key, "synonyms")));
        one.length = 0;
        assert_int_equal(config_help(&one, full, false, &error), TRIREME_OK);
        assert_non_null(strstr(all.text, one.text));
        assert_int_equal(one.text[0], ' '); // without the section's heading
        free(full);
    }
    json_decref(object);
    const char *expected = "  training.seq_len: 1024\n      length of one sequence\n"
                           "      accepts a whole number from 1 to 16777216 (tokens)\n";
    assert_non_null(strstr(all.text, expected));
    assert_int_equal(config_help(&one, "training.sep_len", false, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, "training.seq_len"));
    // A section is its heading and its keys.
    one.length = json.length = 0;
    assert_int_equal(config_help(&one, "optimizer", false, &error), TRIREME_OK);
    assert_non_null(strstr(all.text, one.text));
    assert_true(strncmp(one.text, "optimizer: ", 11) == 0 && strstr(one.text, "optimizer.momentum"));
    assert_null(strstr(one.text, "training."));
    assert_non_null(strstr(one.text, "  optimizer.momentum: 0.9, or 0.95 where optimizer.name is muon\n"));
    // Words with the same default are named together.
    one.length = 0;
    assert_int_equal(config_help(&one, "outer.delay_steps", false, &error), TRIREME_OK);
    assert_non_null(strstr(one.text, ": 0, or 5 where outer.method is streaming_diloco, or -1 where outer.method is "
                                     "eager_diloco or co2\n"));
    one.length = 0;
    assert_int_equal(config_help(&one, "metrics", false, &error), TRIREME_OK);
    assert_int_equal(strncmp(one.text, "metrics: ", 9), 0);
    assert_int_equal(config_help(&json, "optimizer.lr", true, &error), TRIREME_OK);
    assert_int_equal(json_parse(json.text, json.length, "help", &object, &error), TRIREME_OK);
    assert_int_equal(json_array_size(json_object_get(object, "keys")), 1);
    json_decref(object);
    text_release(&all);
    text_release(&one);
    text_release(&json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
