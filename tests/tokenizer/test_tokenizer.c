// The byte tokenizer and its files.
#include "base/json.h"
#include "data/test_data.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/encoder.h"
#include "tokenizer/token_stream.h"

// ---- bytes

static void test_encode_decode(void **state) {
    (void)state;
    char every[256];
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    struct tokenizer *t = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct encoder *e = encoder_create(t);
    assert_int_equal(tokenizer_vocab_size(t), 256);
    assert_string_equal(tokenizer_kind(t), "bytes");
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), -1);
    struct token_list tokens = {0};
    assert_ok(encoder_encode(e, every, 100, ENCODER_TEXT_ALONE, &tokens, &error));
    assert_ok(encoder_encode(e, every + 100, 156, ENCODER_DOCUMENT, &tokens, &error));
    assert_int_equal(tokens.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(tokens.item[i], i);
        assert_int_equal(tokenizer_token_bytes(t, i), 1);
    }
    struct text text = {0};
    assert_ok(tokenizer_decode(t, tokens.item, tokens.count, false, &text, &error));
    assert_int_equal(text.length, 256);
    assert_memory_equal(text.text, every, 256);
    int32_t outside[] = {65, 256, -1};
    assert_refused(tokenizer_decode(t, outside, 3, false, &text, &error), TRIREME_ERROR_USAGE, "token 256 at index 1");
    assert_refused(tokenizer_decode(t, outside + 2, 1, false, &text, &error), TRIREME_ERROR_USAGE,
                   "token -1 at index 0");
    assert_int_equal(text.length, 256);
    text_release(&text);
    VEC_RELEASE(&tokens);
    encoder_free(e);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

// The tokens that begin and end texts, given and found in a text, which need not be UTF-8.
static void test_byte_ends(void **state) {
    (void)state;
    static const char TEXT[] = "\xFF<|end_of_text|>\xC3<|end_of";
    static const struct {
        enum encoder_specials specials;
        int32_t token[14];
        size_t count;
    } cases[] = {
        {ENCODER_TEXT_ALONE, {255, 257, 195, '<', '|', 'e', 'n', 'd', '_', 'o', 'f'}, 11},
        {ENCODER_SPECIALS, {256, 255, 257, 195, '<', '|', 'e', 'n', 'd', '_', 'o', 'f'}, 12},
        {ENCODER_PROMPT, {256, 255, 257, 195, '<', '|', 'e', 'n', 'd', '_', 'o', 'f'}, 12},
        {ENCODER_DOCUMENT, {256, 255, 257, 195, '<', '|', 'e', 'n', 'd', '_', 'o', 'f', 257}, 13},
    };
    struct tokenizer *t = tokenizer_create_bytes(TOKENIZER_BYTES_AND_ENDS);
    struct encoder *e = encoder_create(t);
    assert_int_equal(tokenizer_vocab_size(t), 258);
    assert_string_equal(tokenizer_kind(t), "bytes");
    assert_int_equal(tokenizer_bos(t), 256);
    assert_int_equal(tokenizer_eos(t), 257);
    assert_int_equal(tokenizer_token_bytes(t, 256), 0);
    struct token_list tokens = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        tokens.count = 0;
        assert_ok(encoder_encode(e, TEXT, sizeof TEXT - 1, cases[i].specials, &tokens, &error));
        assert_int_equal(tokens.count, cases[i].count);
        assert_memory_equal(tokens.item, cases[i].token, cases[i].count * sizeof(int32_t));
    }
    struct text text = {0};
    assert_ok(tokenizer_decode(t, tokens.item, tokens.count, false, &text, &error));
    assert_string_equal(text.text, "\xFF\xC3<|end_of");
    text.length = 0;
    assert_ok(tokenizer_decode(t, tokens.item, tokens.count, true, &text, &error));
    assert_string_equal(text.text, "<|begin_of_text|>\xFF<|end_of_text|>\xC3<|end_of<|end_of_text|>");
    text_release(&text);
    // What may be encoded before more of the text is known.
    assert_int_equal(encoder_seam(e, TEXT, sizeof TEXT - 1), 17);
    assert_int_equal(encoder_seam(e, TEXT, 17), 17);
    assert_int_equal(encoder_seam(e, TEXT, 16), 1);
    assert_int_equal(encoder_seam(e, TEXT, 15), 1);
    assert_int_equal(encoder_seam(e, TEXT, 1), 1);
    assert_int_equal(encoder_seam(e, "<|begin_of_text|", 16), 0);
    VEC_RELEASE(&tokens);
    encoder_free(e);
    tokenizer_free(t);
}

static void assert_checksum(int32_t vocab_size, const char *expected) {
    struct tokenizer *t = tokenizer_create_bytes(vocab_size);
    char hex[CHECKSUM_HEX];
    tokenizer_checksum(t, hex);
    assert_string_equal(hex, expected);
    tokenizer_free(t);
}

// b2sum -l 256 of 01 00 00 00 00, 01 00 00 00 01, ...: manifests that exist hold it. The second goes on with 02 00 00
// 00, and of each end its id, its length, its text and four zeros of 4 bytes.
static void test_checksum(void **state) {
    (void)state;
    assert_checksum(TOKENIZER_BYTES_ALONE, "b331239ac8c2408e17335d8279875b9d6d8df9dbf69e10f326e43cf7f7491021");
    assert_checksum(TOKENIZER_BYTES_AND_ENDS, "4d4014f1ac645fd13079cfda0ae40ef131f5a6809bdca6e9df4eeef48670d1b4");
}

static void save(const struct tokenizer *t, const char *directory) {
    struct tokenizer_files files = tokenizer_files(t);
    assert_ok(tokenizer_files_write(&files, directory, &error));
    tokenizer_files_release(&files);
}

static void test_save_load(void **state) {
    const char *directory = ((struct folder *)*state)->path, *file = in(state, "tokenizer.json");
    static const int32_t sizes[] = {TOKENIZER_BYTES_ALONE, TOKENIZER_BYTES_AND_ENDS};
    struct tokenizer *again = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct tokenizer *t = tokenizer_create_bytes(sizes[i]);
        char why[200];
        save(t, directory);
        assert_int_equal(count_entries(directory), 2);
        assert_ok(tokenizer_load(directory, &again, &error));
        assert_string_equal(tokenizer_kind(again), "bytes");
        assert_int_equal(tokenizer_vocab_size(again), sizes[i]);
        assert_int_equal(tokenizer_bos(again), tokenizer_bos(t));
        assert_int_equal(tokenizer_eos(again), tokenizer_eos(t));
        assert_false(tokenizer_differs(t, directory, why));
        tokenizer_free(again);
        assert_ok(tokenizer_load(file, &again, &error));
        tokenizer_free(again);
        tokenizer_free(t);
    }

    // What Hugging Face's byte-level tokenizers must find.
    json_t *root = NULL;
    assert_ok(json_parse_file(file, 1 << 20, &root, &error));
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    assert_int_equal(json_object_size(vocab), 256);
    static const struct {
        const char *character;
        int byte;
    } known[] = {{"!", '!'},        {"~", '~'},         {"\"", '"'},        {"\\", '\\'},
                 {"\xC4\xA0", ' '}, {"\xC4\x8A", '\n'}, {"\xC4\x80", 0},    {"\xC4\xA1", 127},
                 {"\xC5\x83", 173}, {"\xC2\xA1", 0xA1}, {"\xC3\xBF", 0xFF}, {"\xC5\x82", 160}};
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        assert_int_equal(json_integer_value(json_object_get(vocab, known[i].character)), known[i].byte);
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "model"), "merges")), 0);
    json_decref(root);
    assert_ok(json_parse_file(in(state, "tokenizer_config.json"), 1 << 20, &root, &error));
    assert_string_equal(json_string_value(json_object_get(root, "tokenizer_class")), "PreTrainedTokenizerFast");
    assert_string_equal(json_string_value(json_object_get(root, "bos_token")), "<|begin_of_text|>");
    assert_string_equal(json_string_value(json_object_get(root, "eos_token")), "<|end_of_text|>");
    assert_string_equal(json_string_value(json_object_get(root, "pad_token")), "<|end_of_text|>");
    json_decref(root);
}

// ---- files of other tokenizers

// A small tokenizer: the letters a to c, a space in GPT-2's spelling, two merges, a special token.
static const char SMALL[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,"
    " \"added_tokens\": [{\"id\": 6, \"content\": \"<e>\", \"single_word\": false, \"lstrip\": false,"
    " \"rstrip\": false, \"normalized\": false, \"special\": true}],"
    " \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
    " \"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"unk_token\": null, \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3,"
    " \"ab\": 4, \"bc\": 5}, \"merges\": [[\"a\", \"b\"], [\"b\", \"c\"]]}}";

// SMALL with the member at `path` ("model.merges") replaced by a value, or removed where that is NULL.
static char *small_with(const char *path, const char *value) {
    json_error_t refusal;
    json_t *root = json_loads(SMALL, 0, &refusal), *at = root;
    char *words = mem_strdup(path), *rest = words, *word = strsep(&rest, ".");
    for (; rest; word = strsep(&rest, "."))
        at = json_object_get(at, word);
    if (value)
        json_object_set_new(at, word, json_loads(value, JSON_DECODE_ANY, &refusal));
    else
        json_object_del(at, word);
    char *text = json_dumps(root, 0);
    json_decref(root);
    free(words);
    return text;
}

static trireme_status create(const char *text, const char *config, struct tokenizer **out, trireme_error *error) {
    struct tokenizer_parts parts;
    json_error_t refusal;
    TRY(tokenizer_parts_parse(&parts, text, strlen(text), "small.json", error));
    json_t *tree = config ? json_loads(config, 0, &refusal) : NULL;
    trireme_status status = tokenizer_create(out, &parts, tree, "small.json", error);
    json_decref(tree);
    return status;
}

static void refuse(const char *path, const char *value, trireme_status status, const char *part) {
    struct tokenizer *t = NULL;
    char *text = small_with(path, value);
    trireme_error error = {0};
    const trireme_status got = create(text, NULL, &t, &error);
    if (got != status || !strstr(error.message, part) || !strstr(error.message, "small.json"))
        fail_msg("%s = %s: status %d, %s", path, value ? value : "(absent)", got, error.message);
    free(text);
}

static void test_refusals(void **state) {
    (void)state;
    const trireme_status USAGE = TRIREME_ERROR_USAGE, CORRUPT = TRIREME_ERROR_CORRUPT;
    refuse("version", "\"2.0\"", USAGE, "version");
    refuse("model", NULL, CORRUPT, "\"model\" is missing");
    refuse("model", "[]", CORRUPT, "model");
    refuse("model.type", "\"WordPiece\"", USAGE, "WordPiece");
    refuse("model.type", "\"WordLevel\"", USAGE, "WordLevel");
    refuse("model.type", "\"Unigram\"", CORRUPT, "pairs of a token and its score");
    refuse("model.dropout", "0.1", USAGE, "dropout");
    refuse("model.dropout", "\"x\"", CORRUPT, "dropout");
    refuse("model.fuse_unk", "1", CORRUPT, "fuse_unk");
    refuse("model.merges", "[[\"a\", \"c\"]]", CORRUPT, "merge 0 makes, \"ac\"");
    refuse("model.merges", "[[\"a\", \"x\"]]", CORRUPT, "\"x\" of a merge");
    refuse("model.merges", "[\"a b c\"]", CORRUPT, "one space between");
    refuse("model.merges", "[\"a b\", [\"a\", \"b\"]]", CORRUPT, "expected a string");
    refuse("model.merges", "[[\"a\", \"b\", \"c\"]]", CORRUPT, "pair of tokens");
    refuse("model.merges", "{}", CORRUPT, "model.merges");
    refuse("model.vocab", "{\"a\": 0, \"b\": 0}", CORRUPT, "the token \"b\", or its id 0");
    refuse("model.vocab", "{\"a\": -1}", CORRUPT, "expected an id");
    refuse("model.vocab", "{\"a\": 1.0}", CORRUPT, "expected an id");
    refuse("model.vocab", "{\"a\": \"x\"}", CORRUPT, "expected an id");
    refuse("model.vocab", "{\"a\": 2147483647}", CORRUPT, "expected an id");
    refuse("model.vocab", "{\"a\": 2000000000}", CORRUPT, "far beyond");
    refuse("normalizer", "{\"type\": \"Magic\"}", USAGE, "Magic");
    refuse("pre_tokenizer", "{\"type\": \"Magic\"}", USAGE, "Magic");
    refuse("decoder", "{\"type\": \"Magic\"}", USAGE, "Magic");
    refuse("post_processor", "{\"type\": \"Magic\"}", USAGE, "Magic");
    refuse("post_processor", "{\"type\": \"BertProcessing\", \"cls\": [\"x\", 7], \"sep\": [\"y\", 0]}", CORRUPT,
           "special token 7");
    refuse("post_processor",
           "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}],"
           " \"special_tokens\": {}}",
           USAGE, "Sequence A alone");
    static const char *const ADDED[][2] = {
        {"[{}]", "content"},
        {"[{\"id\": 7, \"content\": \"<e>\", F}]", "the next one is 6"},
        {"[{\"id\": 6, \"content\": \"ab\", F}]", "in the vocabulary 4"},
        {"[{\"id\": 6, \"content\": \"\", F}]", "0 bytes"},
        {"[{\"id\": 6, \"content\": \"x\", F}, {\"id\": 7, \"content\": \"x\", F}]", "twice"},
    };
    static const char FLAGS[] = "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false,"
                                " \"special\": true";
    for (size_t i = 0; i < ARRAY_LENGTH(ADDED); i++) {
        struct text value = {0};
        for (const char *at = ADDED[i][0]; *at; at++)
            text_add_bytes(&value, *at == 'F' ? FLAGS : at, *at == 'F' ? sizeof FLAGS - 1 : 1);
        refuse("added_tokens", value.text, CORRUPT, ADDED[i][1]);
        text_release(&value);
    }
}

static void test_broken_files(void **state) {
    static const char *const BROKEN[] = {
        "{\"model\": ", "{\"model\": {\"vocab\": {\"a\\uD800\": 1}}}", "{\"model\": {\"vocab\": {\"a\xFF\": 1}}}",
        "{\"model\": {\"vocab\": {}}, \"model\": {}}", "{\"model\": {\"vocab\": {\"a\" 1}}}"};
    struct tokenizer *out;
    const char *file = in(state, "tokenizer.json");
    for (size_t i = 0; i < ARRAY_LENGTH(BROKEN); i++) {
        put_text(file, BROKEN[i]);
        assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_CORRUPT, "tokenizer.json");
    }
    // Cut short anywhere.
    for (size_t length = 1; length < sizeof SMALL - 1; length++) {
        put(file, SMALL, length);
        assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_CORRUPT, "tokenizer.json");
    }
    put_text(file, "[]");
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_USAGE, "expected a tokenizer.json");
    assert_refused(tokenizer_load(in(state, "none"), &out, &error), TRIREME_ERROR_IO, "none");
    assert_int_equal(unlink(file), 0);
    assert_refused(tokenizer_load(((struct folder *)*state)->path, &out, &error), TRIREME_ERROR_USAGE,
                   "no tokenizer.json");
}

static void checksum_with(const char *path, const char *value, const char *config, char hex[CHECKSUM_HEX]) {
    struct tokenizer *t = NULL;
    char *text = small_with(path, value);
    assert_ok(create(text, config, &t, &error));
    tokenizer_checksum(t, hex);
    tokenizer_free(t);
    free(text);
}

static void test_checksum_of_others(void **state) {
    (void)state;
    char plain[CHECKSUM_HEX], other[CHECKSUM_HEX];
    checksum_with("version", "\"1.0\"", NULL, plain);
    static const char *const DIFFERENT[][3] = {
        {"model.merges", "[[\"b\", \"c\"], [\"a\", \"b\"]]", NULL},
        {"model.merges", "[[\"a\", \"b\"]]", NULL},
        {"model.vocab", "{\"a\": 1, \"b\": 0, \"c\": 2, \"\\u0120\": 3, \"ab\": 4, \"bc\": 5}", NULL},
        {"model.ignore_merges", "true", NULL},
        {"model.unk_token", "\"a\"", NULL},
        {"normalizer", "{\"type\": \"NFC\"}", NULL},
        {"pre_tokenizer.use_regex", "false", NULL},
        {"pre_tokenizer.add_prefix_space", "true", NULL},
        {"added_tokens", "[]", NULL},
        {"post_processor", "{\"type\": \"BertProcessing\", \"cls\": [\"x\", 0], \"sep\": [\"y\", 1]}", NULL},
        {"version", "\"1.0\"", "{\"eos_token\": \"<e>\", \"add_eos_token\": true}"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(DIFFERENT); i++) {
        checksum_with(DIFFERENT[i][0], DIFFERENT[i][1], DIFFERENT[i][2], other);
        if (strcmp(plain, other) == 0)
            fail_msg("%s = %s has the same checksum", DIFFERENT[i][0], DIFFERENT[i][1]);
    }
    static const char *const SAME[][2] = {
        {"model.merges", "[\"a b\", \"b c\"]"},
        {"model.vocab", "{\"bc\": 5, \"ab\": 4, \"\\u0120\": 3, \"c\": 2, \"b\": 1, \"a\": 0}"},
        {"model.type", NULL},
        {"model.unk_token", NULL},
        {"model.fuse_unk", "false"},
        {"pre_tokenizer.trim_offsets", "false"},
        {"post_processor", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false}"},
        {"padding", "{\"strategy\": \"BatchLongest\"}"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(SAME); i++) {
        checksum_with(SAME[i][0], SAME[i][1], NULL, other);
        if (strcmp(plain, other) != 0)
            fail_msg("%s = %s has another checksum", SAME[i][0], SAME[i][1] ? SAME[i][1] : "(absent)");
    }
}

// Where texts begin and end: by the template, or, where there is one, by tokenizer_config.json.
static void test_ends(void **state) {
    (void)state;
    static const char TEMPLATE[] =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<e>\","
        " \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [],"
        " \"special_tokens\": {\"<e>\": {\"id\": \"<e>\", \"ids\": [6], \"tokens\": [\"<e>\"]}}}";
    static const struct {
        const char *template, *config;
        int bos, eos;
        int ids[4], document[4], prompt[4]; // of "a", with special tokens, as a document, a prompt; -1: no more
    } CASES[] = {
        {"null", NULL, -1, -1, {0, -1}, {0, -1}, {0, -1}},
        {TEMPLATE, NULL, 6, -1, {6, 0, -1}, {6, 0, -1}, {6, 0, -1}},
        {"null", "{\"eos_token\": \"<e>\"}", -1, 6, {0, -1}, {0, 6, -1}, {0, -1}},
        {"null", "{\"eos_token\": {\"content\": \"<e>\"}, \"bos_token\": null}", -1, 6, {0, -1}, {0, 6, -1}, {0, -1}},
        {TEMPLATE, "{\"bos_token\": \"<e>\", \"eos_token\": \"b\"}", 6, 1, {6, 0, -1}, {6, 0, 1, -1}, {6, 0, -1}},
        {"null", "{\"eos_token\": \"<e>\", \"add_eos_token\": true}", -1, 6, {0, 6, -1}, {0, 6, -1}, {0, -1}},
        {TEMPLATE, "{\"bos_token\": \"<e>\", \"add_bos_token\": false}", 6, -1, {0, -1}, {0, -1}, {0, -1}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct tokenizer *t = NULL;
        char *text = small_with("post_processor", CASES[i].template);
        assert_ok(create(text, CASES[i].config, &t, &error));
        assert_int_equal(tokenizer_bos(t), CASES[i].bos);
        assert_int_equal(tokenizer_eos(t), CASES[i].eos);
        struct encoder *e = encoder_create(t);
        static const enum encoder_specials WAYS[] = {ENCODER_SPECIALS, ENCODER_DOCUMENT, ENCODER_PROMPT};
        for (int way = 0; way < 3; way++) {
            const int *expected = way == 0 ? CASES[i].ids : way == 1 ? CASES[i].document : CASES[i].prompt;
            struct token_list ids = {0};
            assert_ok(encoder_encode(e, "a", 1, WAYS[way], &ids, &error));
            for (size_t k = 0; k < ids.count; k++)
                assert_int_equal(ids.item[k], expected[k]);
            assert_int_equal(expected[ids.count], -1);
            VEC_RELEASE(&ids);
        }
        encoder_free(e);
        tokenizer_free(t);
        free(text);
    }
    struct tokenizer *t;
    assert_refused(create(SMALL, "{\"eos_token\": \"</s>\"}", &t, &error), TRIREME_ERROR_CORRUPT, "\"eos_token\"");
}

// As Python's "replace" has it: a U+FFFD for each maximal part of an ill-formed sequence.
static void test_ill_formed(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        int replaced; // how many there are
    } CASES[] = {
        {"\xFF", 1, 1},
        {"\xC3", 1, 1},
        {"\xE2\x82", 2, 1},
        {"\xE2\x82\x28", 3, 1},
        {"\xC0\x80", 2, 2},
        {"\xED\xA0\x80", 3, 3},
        {"\xF0\x9F\x98", 3, 1},
        {"\xF4\x90\x80\x80", 4, 4},
        {"\xF0\x80\x80\x80", 4, 4},
        {"\x80\x80", 2, 2},
        {"\xF0\x9F\x98\xE2\x82\xE2\x82\xAC", 8, 2},
    };
    struct tokenizer *t = NULL;
    // Unknown characters are counted: each is a token.
    char *text = small_with("pre_tokenizer", "null");
    json_error_t refusal;
    json_t *root = json_loads(text, 0, &refusal);
    json_object_set_new(json_object_get(root, "model"), "vocab", json_pack("{si}", "\xEF\xBF\xBD", 0));
    json_object_set_new(json_object_get(root, "model"), "merges", json_array());
    json_object_set_new(root, "added_tokens", json_array());
    free(text);
    text = json_dumps(root, 0);
    assert_ok(create(text, NULL, &t, &error));
    struct encoder *e = encoder_create(t);
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct token_list ids = {0};
        assert_ok(encoder_encode(e, CASES[i].bytes, CASES[i].length, ENCODER_TEXT_ALONE, &ids, &error));
        if ((int)ids.count != CASES[i].replaced)
            fail_msg("case %zu: %zu replacements, expected %d", i, ids.count, CASES[i].replaced);
        VEC_RELEASE(&ids);
    }
    encoder_free(e);
    tokenizer_free(t);
    json_decref(root);
    free(text);
}

// A piece of a million characters that all merge takes no time to speak of; nor does one that is cut.
static void test_long_pieces(void **state) {
    (void)state;
    enum { COUNT = 1 << 20 };
    struct tokenizer *t = NULL;
    char *text = small_with("pre_tokenizer", "null"), *run = mem_alloc(COUNT);
    assert_ok(create(text, NULL, &t, &error));
    struct encoder *e = encoder_create(t);
    for (size_t i = 0; i < COUNT; i++)
        run[i] = "abc"[i % 3];
    struct token_list ids = {0};
    assert_ok(encoder_encode(e, run, COUNT, ENCODER_TEXT_ALONE, &ids, &error));
    assert_int_equal(ids.count, (COUNT * 2 + 2) / 3); // ab, c, ab, c, ... a
    for (size_t i = 0; i + 1 < ids.count; i++)
        assert_int_equal(ids.item[i], i % 2 ? 2 : 4);
    VEC_RELEASE(&ids);
    encoder_free(e);
    tokenizer_free(t);
    free(text);
    free(run);
}

static void test_token_bytes(void **state) {
    (void)state;
    struct tokenizer *t = NULL;
    assert_ok(create(SMALL, NULL, &t, &error));
    assert_int_equal(tokenizer_vocab_size(t), 7);
    const int expected[] = {1, 1, 1, 1, 2, 2, 0};
    for (int id = 0; id < 7; id++)
        assert_int_equal(tokenizer_token_bytes(t, id), expected[id]);
    tokenizer_free(t);
}

// Token by token, the text is that of all tokens together: the blank that begins it is left out, no other one is.
static void test_stream(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    struct tokenizer *t = NULL;
    char *text = small_with("decoder", "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\":"
                                       " {\"String\": \"\\u0120\"}, \"content\": \" \"}, {\"type\": \"Fuse\"},"
                                       " {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}");
    assert_ok(create(text, NULL, &t, &error));
    struct token_stream stream = {.tokenizer = t};
    struct text streamed = {0}, whole = {0};
    struct token_list ids = {0};
    for (int i = 0; i < COUNT; i++) {
        VEC_PUSH(&ids, (int32_t[]){3, 0, 3, 3, 6}[i % 5]);
        assert_ok(token_stream_add(&stream, &ids.item[i], 1, &streamed, &error));
    }
    assert_ok(tokenizer_decode(t, ids.item, ids.count, false, &whole, &error));
    assert_string_equal(streamed.text, whole.text);
    assert_refused(token_stream_add(&stream, (int32_t[]){7}, 1, &streamed, &error), TRIREME_ERROR_USAGE, "token 7");
    assert_ok(token_stream_add(&stream, (int32_t[]){4}, 1, &streamed, &error));
    assert_string_equal(streamed.text + whole.length, "ab");
    token_stream_release(&stream);
    text_release(&streamed);
    text_release(&whole);
    VEC_RELEASE(&ids);
    tokenizer_free(t);
    free(text);
}

// transformers saves what it opened with a template that adds nothing.
static void test_load_resaved(void **state) {
    struct tokenizer *t = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    save(t, ((struct folder *)*state)->path);
    tokenizer_free(t);
    const char *file = in(state, "tokenizer.json");
    json_t *root = NULL;
    assert_ok(json_parse_file(file, 1 << 20, &root, &error));
    json_object_set_new(root, "post_processor",
                        json_pack("{ss s{} s[{s{ss si}}]}", "type", "TemplateProcessing", "special_tokens", "single",
                                  "Sequence", "id", "A", "type_id", 0));
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
    assert_ok(tokenizer_load(file, &t, &error));
    assert_string_equal(tokenizer_kind(t), "bytes");
    tokenizer_free(t);
}

// Files beside tokenizer.json are kept byte for byte, but for what concerns the model alone.
static void test_files_kept(void **state) {
    static const char CONFIG[] = "{ \"eos_token\": \"<e>\" , \"chat_template\": \"{{ messages }}\"}";
    struct tokenizer *t = NULL;
    put_text(in(state, "tokenizer.json"), SMALL);
    put_text(in(state, "tokenizer_config.json"), CONFIG);
    put_text(in(state, "generation_config.json"), "{}");
    assert_ok(tokenizer_load(((struct folder *)*state)->path, &t, &error));
    assert_int_equal(tokenizer_eos(t), 6);
    assert_string_equal(tokenizer_chat_template(t), "{{ messages }}");
    struct tokenizer_files files = tokenizer_files(t);
    assert_int_equal(files.files.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct tokenizer_file *f = &files.files.item[i];
        const bool config = strcmp(f->name, "tokenizer_config.json") == 0;
        assert_int_equal(f->length, strlen(config ? CONFIG : SMALL));
        assert_memory_equal(f->bytes, config ? CONFIG : SMALL, f->length);
    }
    tokenizer_files_release(&files);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_decode),
        cmocka_unit_test(test_byte_ends),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test_setup_teardown(test_save_load, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_load_resaved, folder_setup, folder_teardown),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test_setup_teardown(test_broken_files, folder_setup, folder_teardown),
        cmocka_unit_test(test_checksum_of_others),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_ill_formed),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_stream),
        cmocka_unit_test_setup_teardown(test_files_kept, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
