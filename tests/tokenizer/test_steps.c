// Normalizers, pre-tokenizers and decoders against `tokenizers`: each line of steps.jsonl is a step with the library's
// results (tools/reference/tokenizer_steps.py).
#include "base/base64.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "support/test.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

static trireme_error error;

// Of each line; what texts there are stands in the first.
static struct {
    VEC(json_t *) lines;
    struct text ranges[2];
} vectors;

static void add_character(struct text *t, uint32_t code) {
    char utf8[4];
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : 3; // up to U+FFFF
    if (bytes == 1)
        utf8[0] = (char)code;
    else {
        for (size_t i = bytes - 1; i > 0; i--, code >>= 6)
            utf8[i] = (char)(0x80 | (code & 0x3F));
        utf8[0] = (char)((bytes == 2 ? 0xC0 : 0xE0) | code);
    }
    text_add_bytes(t, utf8, bytes);
}

static int read_vectors(void **state) {
    (void)state;
    char *text;
    size_t length;
    if (file_read(TRIREME_SOURCE "/tests/tokenizer/steps.jsonl", 1 << 24, &text, &length, &error) != TRIREME_OK)
        return -1;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *tree = NULL;
        if (json_parse(line, (size_t)(end - line), "steps.jsonl", &tree, &error) != TRIREME_OK)
            return -1;
        VEC_PUSH(&vectors.lines, tree);
    }
    free(text);
    const json_t *range;
    size_t i;
    json_array_foreach(json_object_get(vectors.lines.item[0], "ranges"), i, range) {
        json_int_t last = json_integer_value(json_array_get(range, 1));
        for (json_int_t code = json_integer_value(json_array_get(range, 0)); code <= last; code++) {
            add_character(&vectors.ranges[0], (uint32_t)code);
            add_character(&vectors.ranges[1], (uint32_t)code);
            text_add(&vectors.ranges[1], "a ");
        }
    }
    return vectors.lines.count > 2 ? 0 : -1;
}

static int release_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < vectors.lines.count; i++)
        json_decref(vectors.lines.item[i]);
    VEC_RELEASE(&vectors.lines);
    text_release(&vectors.ranges[0]);
    text_release(&vectors.ranges[1]);
    return 0;
}

// ---- a step of any kind

struct tool {
    struct normalizer *normalizer;
    struct pre_tokenizer *pre_tokenizer;
    struct decoder *decoder;
    struct text_work *work;
};

// The step of a line.
static void tool_create(struct tool *t, const json_t *line) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const json_t *description = json_object_get(line, "description");
    *t = (struct tool){.work = text_work_create()};
    trireme_status status =
        strcmp(kind, "normalizer") == 0 ? normalizer_create(&t->normalizer, description, "steps", &error)
        : strcmp(kind, "decoder") == 0  ? decoder_create(&t->decoder, description, "steps", &error)
                                        : pre_tokenizer_create(&t->pre_tokenizer, description, "steps", &error);
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
    assert_true(t->normalizer || t->decoder || t->pre_tokenizer);
}

static void tool_free(struct tool *t) {
    normalizer_free(t->normalizer);
    pre_tokenizer_free(t->pre_tokenizer);
    decoder_free(t->decoder);
    text_work_free(t->work);
}

static void tool_apply(const struct tool *t, const char *text, size_t length, struct pieces *out) {
    pieces_clear(out);
    trireme_status status = TRIREME_OK;
    if (t->pre_tokenizer)
        status = pre_tokenizer_cut(t->pre_tokenizer, t->work, text, length, true, out, &error);
    else {
        status = normalizer_apply(t->normalizer, t->work, text, length, false, &out->bytes, &error);
        VEC_PUSH(&out->end, out->bytes.length);
    }
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
}

static void tool_decode(const struct tool *t, const json_t *tokens, struct pieces *out) {
    struct pieces in = {0};
    const json_t *token;
    size_t i;
    json_array_foreach(tokens, i, token) pieces_add(&in, json_string_value(token), json_string_length(token));
    pieces_clear(out);
    decoder_apply(t->decoder, &in, &out->bytes);
    VEC_PUSH(&out->end, out->bytes.length);
    pieces_release(&in);
}

// ---- results

static void add_result(struct checksum *c, const struct pieces *result) {
    char *head = mem_printf("%zu;", result->end.count);
    checksum_add(c, head, strlen(head));
    free(head);
    for (size_t i = 0; i < result->end.count; i++) {
        size_t begin = pieces_begin(result, i), length = result->end.item[i] - begin;
        head = mem_printf("%zu:", length);
        checksum_add(c, head, strlen(head));
        free(head);
        checksum_add(c, result->bytes.text + begin, length);
    }
}

static bool result_is(const struct pieces *result, const json_t *wanted) {
    bool same = result->end.count == json_array_size(wanted);
    for (size_t i = 0; same && i < result->end.count; i++) {
        const json_t *piece = json_array_get(wanted, i);
        size_t begin = pieces_begin(result, i), length = result->end.item[i] - begin;
        same = length == json_string_length(piece) &&
               memcmp(result->bytes.text + begin, json_string_value(piece), length) == 0;
    }
    return same;
}

static void fail_result(const json_t *line, const json_t *text, const struct pieces *result, const json_t *wanted) {
    struct text message = {0};
    json_add_value(&message, NULL, json_object_get(line, "description"));
    text_add(&message, "\nof     ");
    json_add_value(&message, NULL, text);
    text_add(&message, "\nmakes  ");
    for (size_t i = 0; i < result->end.count; i++) {
        size_t begin = pieces_begin(result, i);
        text_add(&message, "[%.*s]", (int)(result->end.item[i] - begin), result->bytes.text + begin);
    }
    text_add(&message, "\nnot    ");
    json_add_value(&message, NULL, wanted);
    fail_msg("%s", message.text);
}

static void check_sum(struct checksum *sum, const json_t *line, const char *of) {
    char hex[CHECKSUM_HEX];
    checksum_end(sum, hex);
    if (strcmp(hex, json_string_value(json_object_get(line, of))) != 0) {
        char *description = json_dumps(json_object_get(line, "description"), 0);
        print_error("%.400s\n", description);
        free(description);
        fail_msg("differs for %s", of);
    }
}

static void test_texts(void **state) {
    (void)state;
    const json_t *readable = json_object_get(vectors.lines.item[0], "readable"), *text;
    const json_t *random = json_object_get(vectors.lines.item[0], "random");
    struct pieces result = {0};
    int tried = 0;
    for (size_t i = 2; i < vectors.lines.count; i++) {
        const json_t *line = vectors.lines.item[i], *wanted = json_object_get(line, "readable");
        struct checksum sum;
        struct tool tool;
        size_t n;
        if (!wanted)
            continue;
        tool_create(&tool, line);
        assert_int_equal(json_array_size(wanted), json_array_size(readable));
        json_array_foreach(readable, n, text) {
            tool_apply(&tool, json_string_value(text), json_string_length(text), &result);
            if (!result_is(&result, json_array_get(wanted, n)))
                fail_result(line, text, &result, json_array_get(wanted, n));
        }
        checksum_begin(&sum);
        json_array_foreach(random, n, text) {
            tool_apply(&tool, json_string_value(text), json_string_length(text), &result);
            add_result(&sum, &result);
        }
        check_sum(&sum, line, "random");
        checksum_begin(&sum);
        for (int r = 0; r < 2; r++) {
            tool_apply(&tool, vectors.ranges[r].text, vectors.ranges[r].length, &result);
            add_result(&sum, &result);
        }
        check_sum(&sum, line, "ranges");
        tool_free(&tool);
        tried++;
    }
    assert_true(tried > 80);
    pieces_release(&result);
}

static void test_decoders(void **state) {
    (void)state;
    const json_t *lists = json_object_get(vectors.lines.item[1], "lists"), *tokens;
    struct pieces result = {0};
    int tried = 0;
    for (size_t i = 2; i < vectors.lines.count; i++) {
        const json_t *line = vectors.lines.item[i], *wanted = json_object_get(line, "lists");
        struct checksum sum;
        struct tool tool;
        size_t n;
        if (!wanted)
            continue;
        tool_create(&tool, line);
        checksum_begin(&sum);
        json_array_foreach(lists, n, tokens) {
            tool_decode(&tool, tokens, &result);
            add_result(&sum, &result);
            json_t *one = n < json_array_size(wanted) ? json_pack("[O]", json_array_get(wanted, n)) : NULL;
            if (one && !result_is(&result, one))
                fail_result(line, tokens, &result, one);
            json_decref(one);
        }
        check_sum(&sum, line, "random");
        tool_free(&tool);
        tried++;
    }
    assert_true(tried > 10);
    pieces_release(&result);
}

// What is not UTF-8 stays as it is, also behind steps that look for characters; without a decoder there are spaces.
static void test_decode_bytes(void **state) {
    (void)state;
    static const char *const TOKENS[] = {"<0xE4>", "<0xB8>", "\xE2\x96\x81", "<0xFF>", "h"};
    struct pieces in = {0};
    struct text out = {0};
    struct decoder *d = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(TOKENS); i++)
        pieces_add(&in, TOKENS[i], strlen(TOKENS[i]));
    decoder_apply(NULL, &in, &out);
    assert_string_equal(out.text, "<0xE4> <0xB8> \u2581 <0xFF> h");
    json_t *description =
        json_pack("{s:s,s:[{s:s},{s:s,s:s,s:s},{s:s},{s:s,s:s,s:i,s:i}]}", "type", "Sequence", "decoders", "type",
                  "ByteFallback", "type", "Metaspace", "replacement", "\xE2\x96\x81", "prepend_scheme", "never", "type",
                  "Fuse", "type", "Strip", "content", "h", "start", 1, "stop", 3);
    assert_int_equal(decoder_create(&d, description, "here", &error), TRIREME_OK);
    out.length = 0;
    decoder_apply(d, &in, &out);
    assert_int_equal(out.length, 4);
    assert_memory_equal(out.text, "\xE4\xB8 \xFF", 4);
    out.length = 0;
    pieces_clear(&in);
    decoder_apply(d, &in, &out);
    assert_int_equal(out.length, 0);
    json_decref(description);
    decoder_free(d);
    text_release(&out);
    pieces_release(&in);
}

// ---- what is refused

static trireme_status create_any(const char *kind, const char *description) {
    json_t *tree = NULL;
    struct normalizer *n = NULL;
    struct pre_tokenizer *p = NULL;
    struct decoder *d = NULL;
    assert_int_equal(json_parse(description, strlen(description), "test", &tree, &error), TRIREME_OK);
    trireme_status status = *kind == 'n'   ? normalizer_create(&n, tree, "a.json", &error)
                            : *kind == 'p' ? pre_tokenizer_create(&p, tree, "a.json", &error)
                                           : decoder_create(&d, tree, "a.json", &error);
    json_decref(tree);
    normalizer_free(n);
    pre_tokenizer_free(p);
    decoder_free(d);
    return status;
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *kind, *description, *message;
    } CASES[] = {
        {"normalizer", "{\"type\": \"Append\"}", "a.json: \"normalizer\": the normalizer \"Append\" is not known"},
        {"normalizer", "{}", "\"type\" is missing"},
        {"normalizer", "{\"type\": \"NFC\", \"x\": 1}", "NFC has the setting \"x\", which is not known"},
        {"normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"*\"}", "is not base64"},
        {"normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"/////w==\"}", "has no room"},
        {"normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD/\"}", "are not UTF-8"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFQ\"}]}", "\"NFQ\" is not known"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(\"}, \"content\": \"\"}",
         "a.json: \"normalizer\": pattern \"(\": byte 0: ( without )"},
        {"pre_tokenizer", "{\"type\": \"UnicodeScripts\"}", "the pre_tokenizer \"UnicodeScripts\" is not known"},
        {"pre_tokenizer", "{\"type\": \"ByteLevel\"}", "\"add_prefix_space\" is missing"},
        {"pre_tokenizer",
         "{\"type\": \"Split\", \"pattern\": {\"Glob\": \"*\"}, \"behavior\": \"Isolated\", "
         "\"invert\": false}",
         "must be an object with \"String\" or \"Regex\""},
        {"pre_tokenizer",
         "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Kept\", "
         "\"invert\": false}",
         "\"behavior\": \"Kept\" is not known"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", "must be one character, found \"ab\""},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}",
         "contradicts its \"prepend_scheme\""},
        {"pre_tokenizer", "{\"type\": \"FixedLength\", \"length\": 0}", "\"length\" must be"},
        {"decoder", "{\"type\": \"CTC\"}", "the decoder \"CTC\" is not known"},
        {"decoder", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}",
         "Replace with a \"Regex\" is not known in decoders"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        assert_int_not_equal(create_any(CASES[i].kind, CASES[i].description), TRIREME_OK);
        if (!strstr(error.message, CASES[i].message))
            fail_msg("\"%s\" has no \"%s\"", error.message, CASES[i].message);
    }
    struct text many = {0};
    text_add(&many, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}");
    for (int i = 0; i < 256; i++)
        text_add(&many, ",{\"type\": \"NFC\"}");
    text_add(&many, "]}");
    assert_int_not_equal(create_any("normalizer", many.text), TRIREME_OK);
    assert_non_null(strstr(error.message, "more than 256 steps"));
    text_release(&many);
}

// A charsmap whose node or replacement lies outside, or inside a character, has no such rule; it is not read beyond its
// end. The trie has one rule, for "a".
static void test_hostile_charsmap(void **state) {
    (void)state;
    enum { ROOT = 0x100, NODE = ROOT ^ 'a', LEAF = 0x180, UNITS = 0x200 };
    static const struct {
        uint32_t leaf;        // where the rule's replacement is said to be found
        uint32_t replacement; // where the replacement is said to begin
        const char *made;
    } CASES[] = {
        {LEAF, 0, "\xC3\xA9"},   {LEAF, 1, "a"},         {LEAF, 2, "a"},
        {LEAF, 0x7FFFFFFF, "a"}, {UNITS + 0x80, 0, "a"}, {0x3FF00, 0, "a"},
    };
    struct text_work *work = text_work_create();
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        uint32_t binary[1 + UNITS] = {4 * UNITS, ROOT << 10};
        binary[1 + NODE] = 'a' | 1u << 8 | (NODE ^ CASES[i].leaf) << 10;
        binary[1 + LEAF] = CASES[i].replacement | 1u << 31;
        struct text file = {0}, base64 = {0}, out = {0};
        struct normalizer *n = NULL;
        text_add_bytes(&file, (const char *)binary, sizeof binary);
        text_add_bytes(&file, "\xC3\xA9", 2);
        base64_add(&base64, file.text, file.length);
        json_t *description = json_pack("{s:s,s:s}", "type", "Precompiled", "precompiled_charsmap", base64.text);
        assert_int_equal(normalizer_create(&n, description, "here", &error), TRIREME_OK);
        assert_int_equal(normalizer_apply(n, work, "ba", 2, false, &out, &error), TRIREME_OK);
        assert_int_equal(out.text[0], 'b');
        assert_string_equal(out.text + 1, CASES[i].made);
        normalizer_free(n);
        json_decref(description);
        text_release(&file);
        text_release(&base64);
        text_release(&out);
    }
    text_work_free(work);
}

// Steps that double a text again and again, or put a long text in many places, must not take all memory.
static void test_growth(void **state) {
    (void)state;
    static const struct {
        const char *kind, *list, *step;
        int times;
    } CASES[] = {
        {"normalizer", "normalizers", "{\"type\": \"ByteLevel\"}", 200},
        {"normalizer", "normalizers",
         "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\"}, \"content\": \"abcdefgh\"}", 40},
        {"pre_tokenizer", "pretokenizers",
         "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}", 200},
        {"decoder", "decoders", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}", 60},
    };
    struct text_work *work = text_work_create();
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct text list = {0}, out = {0};
        struct pieces pieces = {0};
        struct normalizer *n = NULL;
        struct pre_tokenizer *p = NULL;
        struct decoder *d = NULL;
        json_t *tree = NULL;
        text_add(&list, "{\"type\": \"Sequence\", \"%s\": [%s", CASES[i].list, CASES[i].step);
        for (int again = 1; again < CASES[i].times; again++)
            text_add(&list, ", %s", CASES[i].step);
        text_add(&list, "]}");
        assert_int_equal(json_parse(list.text, list.length, "test", &tree, &error), TRIREME_OK);
        trireme_status status = *CASES[i].kind == 'n'   ? normalizer_create(&n, tree, "a.json", &error)
                                : *CASES[i].kind == 'p' ? pre_tokenizer_create(&p, tree, "a.json", &error)
                                                        : decoder_create(&d, tree, "a.json", &error);
        if (status == TRIREME_OK && n)
            status = normalizer_apply(n, work, "\xC3\xA9 a", 4, false, &out, &error);
        else if (status == TRIREME_OK)
            status = pre_tokenizer_cut(p, work, "\xC3\xA9 a", 4, true, &pieces, &error);
        assert_int_equal(status, TRIREME_ERROR_USAGE);
        char *message = mem_printf("the %s makes a text more than 64 times as long", CASES[i].kind);
        assert_non_null(strstr(error.message, message));
        free(message);
        json_decref(tree);
        normalizer_free(n);
        pre_tokenizer_free(p);
        decoder_free(d);
        text_release(&list);
        text_release(&out);
        pieces_release(&pieces);
    }
    text_work_free(work);
}

// A long run of marks in disorder takes no square of its length.
static void test_long_runs(void **state) {
    (void)state;
    struct text_work *work = text_work_create();
    struct text marks = {0}, out = {0};
    struct normalizer *n = NULL;
    json_t *description = json_pack("{s:s}", "type", "NFC");
    assert_int_equal(normalizer_create(&n, description, "here", &error), TRIREME_OK);
    for (int i = 0; i < 500000; i++)
        text_add(&marks, "%s", i % 2 ? "\u0327" : "\u0301");
    int64_t begun = clock_thread();
    assert_int_equal(normalizer_apply(n, work, marks.text, marks.length, false, &out, &error), TRIREME_OK);
    assert_true(clock_thread() - begun < 2000000000);
    assert_int_equal(out.length, marks.length);
    assert_memory_equal(out.text, "\u0327\u0327", 4);
    assert_memory_equal(out.text + out.length - 4, "\u0301\u0301", 4);
    normalizer_free(n);
    json_decref(description);
    text_release(&marks);
    text_release(&out);
    text_work_free(work);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_decoders),         cmocka_unit_test(test_decode_bytes),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_hostile_charsmap), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests_name("steps", tests, read_vectors, release_vectors);
}
