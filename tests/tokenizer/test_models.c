// Tokenizers against what `tokenizers` makes of the same files (models.jsonl, by tools/reference/tokenizer_models.py).
#include "base/json.h"
#include "base/rng.h"
#include "data/test_data.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/encoder.h"
#include "tokenizer/split_patterns.h"

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

// ---- seams

static uint64_t number_next(uint64_t *counter) {
    return rng_philox(1, 2, ++*counter).word[0];
}

// A text of fragments at which steps of tokenizers might go wrong, mostly words and spaces.
static void add_fragments(const struct tokenizer *t, uint64_t *random, int count, struct text *out) {
    static const char *const FRAGMENTS[] = {"  ",
                                            "\n\n",
                                            "\t",
                                            "\r\n",
                                            " \n ",
                                            "'s",
                                            "'LL",
                                            "'re ",
                                            "1",
                                            "23 456",
                                            ".",
                                            " !?",
                                            "...\n",
                                            "_",
                                            "-",
                                            "\xC3\xA9",
                                            "e\xCC\x81",
                                            "\xC3\xA9\nx",
                                            "\xCC\x81",
                                            "\xE4\xBD\xA0\xE5\xA5\xBD",
                                            "\xE4\xBD\xA0\n\xE5\xA5\xBD",
                                            "\xE3\x80\x82\n",
                                            "\xE2\x96\x81",
                                            "\xEF\xAC\x81 x",
                                            "\xC4\xB0 i",
                                            "\xC2\xA0",
                                            "\xE3\x80\x80",
                                            "a\xE2\x80\x8D b",
                                            "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD",
                                            "\xD7\xA9 \xD7\x9C",
                                            "\xED\x95\x9C \xEA\xB8\x80"};
    static const char *const WORDS[] = {"the", "The", "a", "word", "He", "x", "don", "ing", "LL", "lo"};
    const struct added_tokens *added = tokenizer_added(t);
    for (int i = 0; i < count; i++) {
        const uint64_t which = number_next(random) % 16;
        if (which < 11)
            text_add(out, "%s%s", WORDS[number_next(random) % ARRAY_LENGTH(WORDS)],
                     which < 6   ? " "
                     : which < 8 ? "\n"
                                 : "");
        else if (which == 11 && added_tokens_count(added))
            text_add(out, "%s", added_tokens_at(added, number_next(random) % added_tokens_count(added))->content);
        else
            text_add(out, "%s", FRAGMENTS[number_next(random) % ARRAY_LENGTH(FRAGMENTS)]);
    }
}

// Encodes a text in parts, as more and more of it comes. Returns how many seams there were.
static int encode_parts(struct encoder *e, uint64_t *random, const struct text *text, struct token_list *out) {
    size_t begin = 0, seen = 0;
    int seams = 0;
    while (seen < text->length) {
        const size_t more = 1 + number_next(random) % 40;
        seen = MIN(text->length, seen + more);
        const bool ends = seen == text->length;
        const size_t part = ends ? seen - begin : encoder_seam(e, text->text + begin, seen - begin);
        if (part == 0)
            continue;
        assert_ok(encoder_encode_part(e, text->text + begin, part, (struct encoder_part){begin == 0, ends},
                                      ENCODER_DOCUMENT, out, &error));
        begin += part;
        seams += !ends;
    }
    return seams;
}

static int count_seams(const struct tokenizer *t, const char *name) {
    struct encoder *e = encoder_create(t);
    uint64_t random = 7;
    int seams = 0;
    for (int round = 0; round < 300; round++) {
        struct text text = {0};
        struct token_list whole = {0}, parts = {0};
        add_fragments(t, &random, 60, &text);
        if (encoder_encode(e, text.text, text.length, ENCODER_DOCUMENT, &whole, NULL) == TRIREME_OK) {
            seams += encode_parts(e, &random, &text, &parts);
            if (whole.count != parts.count || memcmp(whole.item, parts.item, whole.count * sizeof *whole.item) != 0)
                fail_msg("%s: other ids in parts of %s", name, text.text);
        }
        text_release(&text);
        VEC_RELEASE(&whole);
        VEC_RELEASE(&parts);
    }
    encoder_free(e);
    return seams;
}

// The tokenizer of a line with other pieces and some normal form; of some words in a row it has one token, and so of an
// acute accent that stands by itself with the end of a line: of its last byte with that.
static int count_seams_with(const json_t *line, const struct tokenizer *like, json_t *normalizer, json_t *pieces) {
    json_t *root = json_loads(json_string_value(json_object_get(line, "tokenizer")), 0, NULL);
    char *form = json_dumps(normalizer, 0);
    json_object_set_new(root, "normalizer", normalizer);
    json_object_set_new(root, "pre_tokenizer", pieces);
    json_t *model = json_object_get(root, "model");
    json_object_set_new(json_object_get(model, "vocab"), "\xC4\xA3\xC4\x8A", json_integer(tokenizer_vocab_size(like)));
    json_array_insert_new(json_object_get(model, "merges"), 0, json_pack("[ss]", "\xC4\xA3", "\xC4\x8A"));
    for (int i = 0; i < 2; i++)
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{si ss sb sb sb sb sb}", "id", tokenizer_vocab_size(like) + 1 + i, "content",
                                        i ? "The word" : "a the", "single_word", 0, "lstrip", 0, "rstrip", 0,
                                        "normalized", i, "special", 0));
    char *text = json_dumps(root, 0);
    json_t *string = json_string(text);
    struct tokenizer *t = tokenizer_of(string);
    const int seams = count_seams(t, form);
    tokenizer_free(t);
    json_decref(string);
    free(form);
    free(text);
    json_decref(root);
    return seams;
}

static json_t *form_json(const char *form) {
    return json_pack("{ss}", "type", form);
}

// Documents that are encoded in parts have the tokens of whole ones; which tokenizers have seams at all, is known.
static void check_seams(const json_t *line, const struct tokenizer *t) {
    static const char *const PATTERNS[] = {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "tekken"};
    const char *name = json_string_value(json_object_get(line, "name"));
    static const char *const WITHOUT[] = {"some bytes", "some bytes, fused", "suffix", "prefix",
                                          "unigram of whole texts"};
    const int seams = count_seams(t, name);
    bool none = false;
    for (size_t i = 0; i < ARRAY_LENGTH(WITHOUT); i++)
        none |= strcmp(name, WITHOUT[i]) == 0;
    if (none ? seams > 0 : seams < 1000)
        fail_msg("%s: %d seams", name, seams);
    if (strcmp(name, "byte level") != 0)
        return;
    for (size_t i = 0; i < ARRAY_LENGTH(PATTERNS); i++)
        assert_true(count_seams_with(line, t, form_json(i % 2 ? "NFD" : "NFC"),
                                     split_pattern_json(split_pattern_find(PATTERNS[i]))) > 1000);
    json_t *prefixed = json_pack("{ss sb}", "type", "ByteLevel", "add_prefix_space", 1);
    assert_true(count_seams_with(line, t, form_json("NFKC"), prefixed) > 1000);
    assert_int_equal(count_seams_with(line, t, form_json("NFC"), split_pattern_json("[a-z]+| ")), 0);
    json_t *words = json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String", "a word", "content", "x");
    assert_int_equal(count_seams_with(line, t, words, split_pattern_json(split_pattern_find("gpt2"))), 0);
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
        check_seams(line, t);
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
