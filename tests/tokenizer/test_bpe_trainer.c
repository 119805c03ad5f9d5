// Merges that are learnt from text: those of `tokenizers`, in files.jsonl (tools/reference/tokenizer_files.py), however
// the text comes and on however many threads.
#include "data/test_data.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/test_files.h"

static struct tokenizer_parts finish(struct bpe_trainer *t) {
    struct tokenizer_parts parts;
    assert_ok(bpe_trainer_finish(t, NULL, NULL, &parts, &error));
    bpe_trainer_free(t);
    return parts;
}

// Trains on texts, each given in pieces of `step` bytes.
static struct tokenizer_parts train(const struct bpe_trainer_options *options, const json_t *texts, size_t step) {
    struct bpe_trainer *t;
    assert_ok(bpe_trainer_create(&t, options, &error));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        const size_t length = json_string_length(json_array_get(texts, i));
        for (size_t at = 0; at < length; at += step)
            assert_ok(bpe_trainer_add(t, text + at, MIN(step, length - at), &error));
        assert_ok(bpe_trainer_end_text(t, &error));
    }
    return finish(t);
}

static void assert_same(const struct tokenizer_parts *a, const struct tokenizer_parts *b) {
    assert_int_equal(token_table_size(a->tokens), token_table_size(b->tokens));
    assert_int_equal(a->merges.count, b->merges.count);
    if (a->merges.count)
        assert_memory_equal(a->merges.item, b->merges.item, a->merges.count * sizeof *a->merges.item);
}

static void check_training(const json_t *line) {
    const json_t *special = json_object_get(line, "special"), *vocab = json_object_get(line, "vocab");
    const char *specials[8], *pattern;
    for (size_t i = 0; i < json_array_size(special); i++)
        specials[i] = json_string_value(json_array_get(special, i));
    assert_ok(split_pattern_read(json_string_value(json_object_get(line, "pattern")), "pattern", &pattern, &error));
    struct bpe_trainer_options options = {.pattern = pattern,
                                          .vocab_size =
                                              (int32_t)json_integer_value(json_object_get(line, "vocab_size")),
                                          .min_frequency = json_integer_value(json_object_get(line, "min_frequency")),
                                          .special = specials,
                                          .special_count = json_array_size(special),
                                          .threads = 3};
    struct tokenizer_parts parts = train(&options, json_object_get(line, "texts"), SIZE_MAX);
    const json_t *merges = json_object_get(line, "merges");
    assert_int_equal(token_table_size(parts.tokens), json_array_size(vocab));
    for (int32_t id = 0; id < token_table_size(parts.tokens); id++) {
        const struct token_bytes token = token_table_token(parts.tokens, id);
        const char *expected = json_string_value(json_array_get(vocab, (size_t)id));
        assert_int_equal(token.length, strlen(expected));
        assert_memory_equal(token.bytes, expected, token.length);
    }
    assert_int_equal(parts.merges.count, json_array_size(merges));
    for (size_t i = 0; i < parts.merges.count; i++) {
        const json_t *merge = json_array_get(merges, i);
        assert_int_equal(parts.merges.item[i].left, json_integer_value(json_array_get(merge, 0)));
        assert_int_equal(parts.merges.item[i].right, json_integer_value(json_array_get(merge, 1)));
    }
    options.threads = 1;
    struct tokenizer_parts again = train(&options, json_object_get(line, "texts"), 1);
    assert_same(&parts, &again);
    tokenizer_parts_release(&parts);
    tokenizer_parts_release(&again);
}

static void test_same_merges_as_tokenizers(void **state) {
    (void)state;
    assert_int_equal(files_each("training", check_training), 4);
}

// A long text of words, signs, blanks and line ends in all orders, at which it is divided among threads: with a pattern
// that says the same, but has no name, it is not divided.
static void test_long_texts_are_divided_at_pieces(void **state) {
    (void)state;
    static const char *const PARTS[] = {"word", "x",    "\xC3\xA9", " ",   " ",        "  ",           "\n",
                                        "\n\n", "\r\n", ".",        "\"",  "'s",       "\xE4\xB8\xAD", "7",
                                        "\t",   "\n ",  ".\n",      " \n", "\xCC\x81", "12345"};
    static const char *const NAMES[] = {"gpt2", "cl100k", "o200k", "qwen2"};
    struct text text = {0};
    uint32_t random = 1;
    while (text.length < 3 << 20) {
        random = random * 1664525 + 1013904223;
        text_add(&text, "%s", PARTS[(random >> 16) % ARRAY_LENGTH(PARTS)]);
    }
    json_t *texts = json_pack("[s]", text.text);
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        char *whole = mem_printf("(?:%s)", split_pattern_find(NAMES[i]));
        struct bpe_trainer_options options = {.pattern = split_pattern_find(NAMES[i]), .vocab_size = 600, .threads = 2};
        struct tokenizer_parts divided = train(&options, texts, 100000);
        options.pattern = whole;
        struct tokenizer_parts undivided = train(&options, texts, SIZE_MAX);
        assert_int_equal(divided.merges.count, 600 - 256);
        assert_same(&divided, &undivided);
        tokenizer_parts_release(&divided);
        tokenizer_parts_release(&undivided);
        free(whole);
    }
    json_decref(texts);
    text_release(&text);
}

static bool never(void *user, int32_t tokens) {
    *(int32_t *)user = tokens;
    return false;
}

static void test_interrupted(void **state) {
    (void)state;
    const struct bpe_trainer_options options = {.pattern = "[a-z]+", .vocab_size = 1000, .threads = 1};
    struct bpe_trainer *t;
    struct tokenizer_parts parts;
    int32_t tokens = 0;
    assert_ok(bpe_trainer_create(&t, &options, &error));
    for (char text[] = "aaaaaaaa"; text[0] <= 'z'; text[0]++)
        for (text[1] = 'a'; text[1] <= 'z'; text[1]++)
            assert_ok(bpe_trainer_add(t, text, 8, &error));
    assert_refused(bpe_trainer_finish(t, never, &tokens, &parts, &error), TRIREME_ERROR_INTERRUPTED, "interrupted");
    assert_int_equal(tokens, 256 + 64);
    bpe_trainer_free(t);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const TWICE[] = {"<s>", "<s>"};
    struct bpe_trainer_options options = {.pattern = "[a", .vocab_size = 300, .threads = 1};
    struct bpe_trainer *t;
    struct tokenizer_parts parts;
    assert_refused(bpe_trainer_create(&t, &options, &error), TRIREME_ERROR_USAGE, "pattern");
    options.pattern = "a";
    options.vocab_size = 257;
    options.special = TWICE;
    options.special_count = 2;
    assert_refused(bpe_trainer_create(&t, &options, &error), TRIREME_ERROR_USAGE, "vocab_size=257: give at least 258");
    options.vocab_size = 258;
    assert_ok(bpe_trainer_create(&t, &options, &error));
    assert_refused(bpe_trainer_finish(t, NULL, NULL, &parts, &error), TRIREME_ERROR_USAGE, "\"<s>\" is there twice");
    bpe_trainer_free(t);
    const char *pattern;
    assert_refused(split_pattern_read("cl10k", "--pattern", &pattern, &error), TRIREME_ERROR_USAGE,
                   "--pattern=\"cl10k\": no pattern has this name: give one of gpt2, cl100k");
    assert_ok(split_pattern_read("a+|b", "--pattern", &pattern, &error));
    assert_string_equal(pattern, "a+|b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_merges_as_tokenizers),
        cmocka_unit_test(test_long_texts_are_divided_at_pieces),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
