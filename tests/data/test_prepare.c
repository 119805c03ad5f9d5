// prepare: what it makes of text, and every input that it refuses without leaving anything behind.
#include "base/json.h"
#include "data/prepare.h"
#include "data/token_set.h"
#include "test_data.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

// What was prepared: the text of every document in turn, each ended by '|'.
struct prepared {
    struct prepare_result result;
    char *text;
};

static trireme_status prepare(const char *prefix, const struct prepare_options *with, trireme_error *error,
                              struct prepare_result *result, const char *first, const char *second) {
    const char *inputs[] = {first, second};
    struct tokenizer *t = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct prepare_options options = *with;
    options.inputs = inputs;
    options.input_count = second ? 2 : 1;
    options.prefix = prefix;
    options.tokenizer = with->tokenizer ? with->tokenizer : t;
    trireme_status status = prepare_tokens(&options, result, error);
    tokenizer_free(t);
    return status;
}

static struct prepared prepare_well(void **state, const struct prepare_options *with, const char *first,
                                    const char *second) {
    struct prepared p = {0};
    const char *prefix = in(state, "out/t");
    assert_ok(prepare(prefix, with, &error, &p.result, first, second));
    assert_int_equal(count_entries(in(state, "out")), 4);
    struct token_set *set;
    assert_ok(token_set_open(prefix, &set, &error));
    int64_t total = token_set_tokens(set), next;
    assert_int_equal(p.result.manifest.tokens, total);
    assert_int_equal(p.result.manifest.text_bytes, total);
    int32_t *tokens = mem_alloc((size_t)total * sizeof *tokens);
    assert_ok(token_set_read(set, 0, total, 256, tokens, &error));
    struct text text = {0};
    int64_t documents = 0;
    for (int64_t from = 0; from < total; from = next, documents++) {
        assert_ok(token_set_next_document(set, from + 1, total, &next, &error));
        for (int64_t i = from; i < next; i++)
            text_add_bytes(&text, &(char){(char)tokens[i]}, 1);
        text_add(&text, "|");
    }
    assert_int_equal(p.result.manifest.documents, documents);
    free(tokens);
    token_set_close(set);
    p.text = text.text;
    return p;
}

static void assert_prepared(void **state, const struct prepare_options *with, const char *first, const char *second,
                            const char *expected) {
    struct prepared p = prepare_well(state, with, first, second);
    assert_string_equal(p.text, expected);
    free(p.text);
}

static const struct prepare_options plain;

static void test_text_files(void **state) {
    put_text(in(state, "a.txt"), "first\nline two\n");
    put_text(in(state, "b.TXT"), "z\xC3\xA9");
    struct prepared p = prepare_well(state, &plain, in(state, "b.TXT"), in(state, "a.txt"));
    assert_string_equal(p.text, "z\xC3\xA9|first\nline two\n|");
    assert_int_equal(p.result.files, 2);
    assert_int_equal(p.result.manifest.documents, 2);
    assert_int_equal(p.result.manifest.tokens, 18);
    assert_int_equal(p.result.empty_documents, 0);
    assert_string_equal(p.result.manifest.tokenizer_kind, "bytes");
    assert_int_equal(p.result.manifest.vocab_size, 256);
    free(p.text);
}

// The result is the same however many bytes are read at once, with characters cut anywhere.
static void test_blocks(void **state) {
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 and so on";
    put_text(in(state, "a.txt"), text);
    put_text(in(state, "b.jsonl"), "{\"text\": \"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"}\n\n  \n{\"text\": \"end\"}");
    for (size_t block = 1; block < 60; block++) {
        struct prepare_options with = {.documents.block_bytes = block};
        struct prepared p = prepare_well(state, &with, in(state, "a.txt"), in(state, "b.jsonl"));
        assert_string_equal(p.text, "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 and so on|"
                                    "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80|end|");
        free(p.text);
    }
}

// Documents between the tokens that begin and end them, and such a token in a text, wherever a block ends.
static void test_ends(void **state) {
    static const int32_t expected[] = {256, 'a', 257, '<', '|', 257, 256, '<', 257};
    struct tokenizer *t = tokenizer_create_bytes(TOKENIZER_BYTES_AND_ENDS);
    put_text(in(state, "a.txt"), "a<|end_of_text|><|");
    put_text(in(state, "b.txt"), "<");
    for (size_t block = 1; block < 20; block++) {
        struct prepare_options with = {.documents.block_bytes = block, .tokenizer = t, .job_bytes = 1};
        struct prepare_result result;
        struct token_set *set;
        int32_t tokens[ARRAY_LENGTH(expected)];
        assert_ok(prepare(in(state, "t"), &with, &error, &result, in(state, "a.txt"), in(state, "b.txt")));
        assert_int_equal(result.manifest.tokens, ARRAY_LENGTH(expected));
        assert_int_equal(result.manifest.text_bytes, 19);
        assert_int_equal(result.manifest.vocab_size, 258);
        assert_ok(token_set_open(in(state, "t"), &set, &error));
        assert_ok(token_set_read(set, 0, ARRAY_LENGTH(expected), 258, tokens, &error));
        assert_memory_equal(tokens, expected, sizeof expected);
        struct tokenizer *again;
        assert_ok(token_manifest_tokenizer(&result.manifest, in(state, "t"), &again, &error));
        assert_int_equal(tokenizer_vocab_size(again), 258);
        tokenizer_free(again);
        token_set_close(set);
    }
    tokenizer_free(t);
}

// A byte order mark before the text is not part of it; later, or cut short, it is text like any other.
static void test_byte_order_mark(void **state) {
    for (size_t block = 1; block < 6; block++) {
        struct prepare_options with = {.documents.block_bytes = block};
        put_text(in(state, "a.txt"), "\xEF\xBB\xBF"
                                     "a\xEF\xBB\xBF");
        put_text(in(state, "b.txt"), "\xEF\xBB\xBE");
        assert_prepared(state, &with, in(state, "a.txt"), in(state, "b.txt"), "a\xEF\xBB\xBF|\xEF\xBB\xBE|");
        put_text(in(state, "a.txt"), "\xEF\xBB\xBF");
        struct prepared p = prepare_well(state, &with, in(state, "a.txt"), in(state, "b.txt"));
        assert_string_equal(p.text, "\xEF\xBB\xBE|");
        assert_int_equal(p.result.empty_documents, 1);
        assert_int_equal(p.result.manifest.text_bytes, 3);
        free(p.text);
    }
}

static void test_json_lines(void **state) {
    const char *path = in(state, "a.jsonl");
    put_text(path,
             "\xEF\xBB\xBF{\"id\": 123456789012345678901234567890, \"text\": \"one\\n\\\"two\\\"\"}\r\n"
             "\n"
             " \t\r\n"
             "{\"text\": \"\"}\n"
             "{\"text\": \"\\u00e9\\ud83d\\ude00\", \"meta\": {\"text\": \"no\", \"x\": [1, null, true, 1.5e300]}}\n"
             "{\"title\": \"b\", \"text\": \"last\"}");
    struct prepared p = prepare_well(state, &plain, path, NULL);
    assert_string_equal(p.text, "one\n\"two\"|\xC3\xA9\xF0\x9F\x98\x80|last|");
    assert_int_equal(p.result.empty_documents, 1);
    free(p.text);
    struct prepare_options with = {.documents.field = "body"};
    put_text(path, "{\"text\": \"no\", \"body\": \"yes\"}\n");
    assert_prepared(state, &with, path, NULL, "yes|");
    // A NUL is a character like any other.
    put_text(path, "{\"text\": \"a\\u0000b\"}\n");
    p = prepare_well(state, &plain, path, NULL);
    assert_memory_equal(p.text, "a\0b|", 5);
    free(p.text);
}

static void test_directories(void **state) {
    assert_int_equal(mkdir(in(state, "d"), 0777), 0);
    assert_int_equal(mkdir(in(state, "d/m"), 0777), 0);
    assert_int_equal(mkdir(in(state, "d/m/deep"), 0777), 0);
    assert_int_equal(mkdir(in(state, "d/.git"), 0777), 0);
    put_text(in(state, "d/z.txt"), "z");
    put_text(in(state, "d/B.txt"), "B");
    put_text(in(state, "d/a.jsonl"), "{\"text\": \"a1\"}\n{\"text\": \"a2\"}\n");
    put_text(in(state, "d/m/2.txt"), "m2");
    put_text(in(state, "d/m/10.txt"), "m10");
    put_text(in(state, "d/m/deep/x.txt"), "x");
    put_text(in(state, "d/m/notes.md"), "notes");
    put_text(in(state, "d/.git/x.txt"), "hidden");
    put_text(in(state, "d/.x.txt"), "hidden");
    put_text(in(state, "d/n.txt"), "");
    struct prepared p = prepare_well(state, &plain, in(state, "d"), NULL);
    assert_string_equal(p.text, "B|a1|a2|m10|m2|x|z|");
    assert_int_equal(p.result.files, 7);
    assert_int_equal(p.result.empty_documents, 1);
    free(p.text);
    assert_prepared(state, &plain, in(state, "d/m/"), in(state, "d/z.txt"), "m10|m2|x|z|");
    // A link that leads back is refused rather than followed for ever.
    assert_int_equal(symlink("..", in(state, "d/m/loop")), 0);
    struct prepare_result result;
    assert_refused(prepare(in(state, "t"), &plain, &error, &result, in(state, "d"), NULL), TRIREME_ERROR_USAGE,
                   "loop: is a symbolic link that leads back");
    // A dangling link matters only if its name is that of a text file.
    assert_int_equal(unlink(in(state, "d/m/loop")), 0);
    assert_int_equal(symlink("nowhere", in(state, "d/m/link.md")), 0);
    assert_prepared(state, &plain, in(state, "d/m"), NULL, "m10|m2|x|");
}

// ---- refusals

// Refused in these words; `name` holds `content` and nothing else appears.
static void refuse(void **state, const struct prepare_options *with, const char *name, const char *content,
                   size_t length, trireme_status status, const char *part) {
    struct prepare_result result = {.files = 77};
    put(in(state, name), content, length);
    int before = count_entries(((struct folder *)*state)->path);
    assert_refused(prepare(in(state, "new/t"), with, &error, &result, in(state, name), NULL), status, part);
    assert_int_equal(count_entries(((struct folder *)*state)->path), before);
    assert_int_equal(result.files, 77);
}

static void refuse_corrupt(void **state, const char *name, const char *content, const char *part) {
    refuse(state, &plain, name, content, strlen(content), TRIREME_ERROR_CORRUPT, part);
}

static void test_not_utf8(void **state) {
    refuse_corrupt(state, "a.txt", "good \xC3(", "a.txt: not UTF-8 at byte 5");
    refuse_corrupt(state, "a.txt", "good \xE2\x82", "a.txt: not UTF-8 at byte 5: the last character is cut off");
    refuse_corrupt(state, "a.txt",
                   "\xFF\xFE"
                   "a",
                   "a.txt: not UTF-8 at byte 0");
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"ok\"}\n{\"text\": \"\xE9t\xE9\"}\n",
                   "a.jsonl: not UTF-8 at byte 25 (line 2)");
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"ok\"}\n\xC3\n", "a.jsonl: not UTF-8 at byte 15 (line 2): the last");
    for (size_t block = 1; block < 8; block++) {
        struct prepare_options with = {.documents.block_bytes = block};
        refuse(state, &with, "b.txt", "0123\xF0\x9F\x98z", 8, TRIREME_ERROR_CORRUPT, "b.txt: not UTF-8 at byte 4:");
    }
    // Far into a file of several blocks.
    char *large = mem_alloc(3 << 20);
    memset(large, 'x', 3 << 20);
    large[2500000] = (char)0x80;
    refuse(state, &plain, "c.txt", large, 3 << 20, TRIREME_ERROR_CORRUPT, "c.txt: not UTF-8 at byte 2500000:");
    free(large);
}

static void test_bad_json(void **state) {
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"ok\"}\n{\"text\": \n", "a.jsonl line 2: byte 24: not valid JSON: ");
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"ok\"} {\"text\": \"two\"}\n", "a.jsonl line 1: byte");
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"tab\there\"}\n", "line 1: byte");
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"\\ud800\"}\n", "a.jsonl line 1: byte");
    refuse_corrupt(state, "a.jsonl", "\n\nplain text\n", "line 3: byte");
    refuse_corrupt(state, "a.jsonl", "[\"text\"]\n",
                   "line 1: expected a JSON object such as {\"text\": \"...\"}, found [\"text\"]");
    refuse_corrupt(state, "a.jsonl", "\"text\"\n",
                   "line 1: expected a JSON object such as {\"text\": \"...\"}, found \"text\"");
    refuse_corrupt(state, "a.jsonl", "{\"content\": \"a\", \"b\": 1}\n",
                   "line 1: there is no field \"text\" (data.text_field names it); the first of 2 is \"content\"");
    refuse_corrupt(state, "a.jsonl", "{}\n", "the first of 0 is none");
    refuse_corrupt(state, "a.jsonl", "{\"text\": [12]}\n", "line 1: the field \"text\" must be a string, found [12]");
    refuse_corrupt(state, "a.jsonl", "{\"text\": null}\n", "must be a string, found null");
    refuse(state, &plain, "a.jsonl", "{\"text\": \"a\"}\n\0\n", 16, TRIREME_ERROR_CORRUPT, "line 2: byte");
    char *deep = mem_alloc(100001);
    memset(deep, '[', 100000);
    refuse_corrupt(state, "a.jsonl", deep, "line 1: byte");
    free(deep);
    refuse_corrupt(state, "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\", \"te\\u0078t\": \"c\"}\n",
                   "a.jsonl line 2: the field \"text\" is there 2 times");
    static const char *const WRONG[] = {"01",    "1.",  ".5",       "+1",   "1e",     "tru",     "nan",
                                        "inf",   "-",   "0x1",      "[1,]", "[1 2]",  "{\"a\"}", "{\"a\":}",
                                        "{1:2}", "[1}", "{\"a\":1", "\"",   "\"\\\"", "{,}",     ""};
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++) {
        char *line = mem_printf("{\"text\": \"a\", \"b\": %s}\n", WRONG[i]);
        refuse_corrupt(state, "a.jsonl", line, "a.jsonl line 1: byte");
        free(line);
    }
    static const char *const BROKEN[] = {"\\ud800", "\\ud83dx", "\\udc00", "\\ud83d\\u0041", "\\u12", "\\q"};
    for (size_t i = 0; i < ARRAY_LENGTH(BROKEN); i++) {
        char *line = mem_printf("{\"text\": \"a%sb\"}\n", BROKEN[i]);
        refuse_corrupt(state, "a.jsonl", line, "a.jsonl line 1: byte 11: ");
        free(line);
    }
}

// What Python's json module writes in fields that are not read.
static void test_fields_that_are_not_read(void **state) {
    static const char *const VALUES[] = {"NaN",
                                         "-Infinity",
                                         "[Infinity, 1e400, -0.5E-3]",
                                         "123456789012345678901234567890",
                                         "\"\\ud800 alone\"",
                                         "\"a tab\there, \\\\ \\\" and } ]\"",
                                         "1, \"b\": 2, \"\\ud800\": {}",
                                         "{\"text\": null, \"c\": [[], {}, [{\"text\": 1}]]}"};
    for (size_t i = 0; i < ARRAY_LENGTH(VALUES); i++) {
        char *lines =
            mem_printf("{\"b\": %s, \"text\": \"one\"}\n { \"te\\u0078t\" :\t\"\\ud83d\\ude00\\/\" , \"b\":%s } \r\n",
                       VALUES[i], VALUES[i]);
        put_text(in(state, "a.jsonl"), lines);
        assert_prepared(state, &plain, in(state, "a.jsonl"), NULL, "one|\xF0\x9F\x98\x80/|");
        free(lines);
    }
    // A text that is longer than what is decoded at once, of characters that do not end where that does.
    struct text line = {0}, expected = {0};
    text_add(&line, "{\"text\": \"");
    for (int i = 0; i < 5000; i++) {
        text_add(&line, "%s\\u20ac", i % 3 ? "" : "x");
        text_add(&expected, "%s\xE2\x82\xAC", i % 3 ? "" : "x");
    }
    text_add(&line, "\"}");
    text_add(&expected, "|");
    put_text(in(state, "a.jsonl"), line.text);
    assert_prepared(state, &plain, in(state, "a.jsonl"), NULL, expected.text);
    text_release(&line);
    text_release(&expected);
}

// Bad lines may be left out, whatever is wrong with them.
static void test_bad_lines_left_out(void **state) {
    static const char LINES[] =
        "{\"text\": \"one\"}\n{\"text\": null}\n{\"text\": \n\xFF\n{\"no\": 1}\n\n{\"text\": \"\\ud800\"}\n"
        "{\"text\": \"0123456789 is too long\"}\n{\"text\": \"two\"}\n{\"text\": \"0123456789";
    put(in(state, "a.jsonl"), LINES, sizeof LINES - 1);
    for (size_t block = 1; block < 50; block += 3) {
        struct prepare_options with = {.documents = {.block_bytes = block, .line_limit = 22}, .skips_bad_lines = true};
        struct prepared p = prepare_well(state, &with, in(state, "a.jsonl"), NULL);
        assert_string_equal(p.text, "one|two|");
        assert_int_equal(p.result.bad_lines.count, 7);
        assert_non_null(
            strstr(p.result.bad_lines.first.message, "a.jsonl line 2: the field \"text\" must be a string"));
        free(p.text);
    }
    struct prepare_options with = {.skips_bad_lines = true};
    refuse(state, &with, "b.jsonl", "[1]\n{}\n", 7, TRIREME_ERROR_USAGE, "bad lines were left out, the first: ");
}

static void test_lines_of_many_values(void **state) {
    struct text lines = {0};
    text_add(&lines, "{\"text\": \"a\"}\n{\"text\": \"b\", \"scores\": [1");
    for (size_t i = 0; i < JSON_VALUES_MAX; i++)
        text_add_bytes(&lines, ",1", 2);
    text_add(&lines, "]}\n");
    put(in(state, "a.jsonl"), lines.text, lines.length);
    assert_prepared(state, &plain, in(state, "a.jsonl"), NULL, "a|b|");
    text_release(&lines);
}

static void test_long_lines(void **state) {
    static const char lines[] = "{\"text\": \"a\"}\n{\"text\": \"0123456789\"}\n";
    for (size_t block = 1; block < 50; block += 3) {
        struct prepare_options with = {.documents = {.block_bytes = block, .line_limit = 21}};
        refuse(state, &with, "a.jsonl", lines, sizeof lines - 1, TRIREME_ERROR_CORRUPT,
               "a.jsonl line 2: is longer than 21 bytes");
        refuse(state, &with, "a.jsonl", lines, sizeof lines - 2, TRIREME_ERROR_CORRUPT,
               "a.jsonl line 2: is longer than 21 bytes");
        with.documents.line_limit = 22;
        put(in(state, "a.jsonl"), lines, sizeof lines - 1);
        assert_prepared(state, &with, in(state, "a.jsonl"), NULL, "a|0123456789|");
        put(in(state, "a.jsonl"), lines, sizeof lines - 2);
        assert_prepared(state, &with, in(state, "a.jsonl"), NULL, "a|0123456789|");
    }
}

static void test_bad_inputs(void **state) {
    struct prepare_result result;
    const char *t = in(state, "t");
    assert_refused(prepare(t, &plain, &error, &result, in(state, "none.txt"), NULL), TRIREME_ERROR_USAGE,
                   "none.txt: cannot open");
    assert_refused(prepare(t, &plain, &error, &result, "", NULL), TRIREME_ERROR_USAGE, "the name is empty");
    refuse(state, &plain, "a.txt", "", 0, TRIREME_ERROR_USAGE, "a.txt: is empty");
    refuse(state, &plain, "a.jsonl", "", 0, TRIREME_ERROR_USAGE, "a.jsonl: is empty");
    refuse(state, &plain, "a.jsonl", "\n \n", 3, TRIREME_ERROR_USAGE, "a.jsonl: the input holds no text");
    refuse(state, &plain, "a.jsonl", "{\"text\": \"\"}\n", 13, TRIREME_ERROR_USAGE, "documents: 1, all empty");
    refuse(state, &plain, "a.csv", "a", 1, TRIREME_ERROR_USAGE, "a.csv: expected a name that ends in .txt");
    refuse(state, &plain, "noextension", "a", 1, TRIREME_ERROR_USAGE, "noextension: expected a name");
    assert_int_equal(mkdir(in(state, "d.txt"), 0777), 0);
    assert_refused(prepare(t, &plain, &error, &result, in(state, "d.txt"), NULL), TRIREME_ERROR_USAGE,
                   "there is no .txt or .jsonl below");
    put_text(in(state, "d.txt/empty.txt"), "");
    assert_refused(prepare(t, &plain, &error, &result, in(state, "d.txt"), NULL), TRIREME_ERROR_USAGE, "holds no text");
    assert_int_equal(symlink("nowhere", in(state, "d.txt/link.txt")), 0);
    assert_refused(prepare(t, &plain, &error, &result, in(state, "d.txt"), NULL), TRIREME_ERROR_IO, "link.txt");
    assert_int_equal(mkfifo(in(state, "fifo.txt"), 0666), 0);
    assert_refused(prepare(t, &plain, &error, &result, in(state, "fifo.txt"), NULL), TRIREME_ERROR_USAGE,
                   "regular file");
    struct tokenizer *bytes = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct prepare_options none = {.prefix = t, .tokenizer = bytes};
    assert_refused(prepare_tokens(&none, &result, &error), TRIREME_ERROR_USAGE, "there is no input");
    tokenizer_free(bytes);
    // Good text, but someone else's file is in the way.
    put_text(in(state, "good.txt"), "good");
    put_text(in(state, "t.json"), "{\"mine\": 1}");
    assert_refused(prepare(t, &plain, &error, &result, in(state, "good.txt"), NULL), TRIREME_ERROR_USAGE,
                   "t.json: is in the way");
}

// ---- progress, cancelling, a full disk

struct watcher {
    int64_t done, total;
    int calls, cancel_after;
    atomic_bool cancel;
};

static void watch(void *user, int64_t done, int64_t total) {
    struct watcher *w = user;
    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    if (++w->calls == w->cancel_after)
        w->cancel = true;
}

static void test_progress_and_cancel(void **state) {
    put_text(in(state, "a.txt"), "0123456789");
    put_text(in(state, "b.jsonl"), "{\"text\": \"0123456789\"}\n");
    struct watcher w = {0};
    struct prepare_options with = {.documents.block_bytes = 4, .progress = watch, .user = &w, .cancel = &w.cancel};
    assert_prepared(state, &with, in(state, "a.txt"), in(state, "b.jsonl"), "0123456789|0123456789|");
    assert_int_equal(w.total, 33);
    assert_int_equal(w.done, 33);
    assert_true(w.calls >= 5);
    // Cancelled at each call: the files of the last run stay as they are.
    struct prepare_result result;
    size_t length, again_length;
    char *bin = get(in(state, "out/t.bin"), &length);
    put_text(in(state, "a.txt"), "abcdefghij");
    for (int after = 1; after <= w.calls; after++) {
        struct watcher x = {.cancel_after = after};
        with.user = &x;
        with.cancel = &x.cancel;
        assert_refused(prepare(in(state, "out/t"), &with, &error, &result, in(state, "a.txt"), in(state, "b.jsonl")),
                       TRIREME_ERROR_INTERRUPTED, "interrupted");
        assert_int_equal(count_entries(in(state, "out")), 4);
        char *again = get(in(state, "out/t.bin"), &again_length);
        assert_int_equal(again_length, length);
        assert_memory_equal(again, bin, length);
        free(again);
        assert_refused(prepare(in(state, "new/t"), &with, &error, &result, in(state, "a.txt"), NULL),
                       TRIREME_ERROR_INTERRUPTED, "interrupted");
        assert_false(exists(in(state, "new")));
    }
    free(bin);
}

static void test_disk_full(void **state) {
    char *text = mem_alloc(6000);
    memset(text, 'x', 5999);
    put_text(in(state, "a.txt"), text);
    free(text);
    struct rlimit before, limit;
    struct prepare_result result;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 0; bytes < 11998; bytes += bytes < 300 ? 25 : 1000) {
        limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        trireme_error error = {0};
        trireme_status status = prepare(in(state, "new/t"), &plain, &error, &result, in(state, "a.txt"), NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, TRIREME_ERROR_IO);
        assert_non_null(strstr(error.message, "cannot write"));
        assert_false(exists(in(state, "new")));
    }
    // A manifest that does not fit, where tokens and index do.
    put_text(in(state, "a.txt"), "xyz");
    limit = (struct rlimit){.rlim_cur = 220, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    trireme_error error = {0};
    trireme_status status = prepare(in(state, "new/t"), &plain, &error, &result, in(state, "a.txt"), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "t.json.tmp: cannot write"));
    assert_false(exists(in(state, "new")));
}

// ---- the manifest

static void test_manifest(void **state) {
    put_text(in(state, "a.txt"), "abc");
    struct prepared p = prepare_well(state, &plain, in(state, "a.txt"), NULL);
    free(p.text);
    struct token_manifest m;
    bool found = false;
    const char *names[] = {in(state, "out/t"), in(state, "out/t.bin"), in(state, "out/t.idx")};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        assert_ok(token_manifest_read(names[i], 3, &m, &found, &error));
        assert_true(found);
        assert_memory_equal(&m, &p.result.manifest, sizeof m);
    }
    for (int64_t tokens = 2; tokens <= 4; tokens += 2)
        assert_refused(token_manifest_read(names[0], tokens, &m, &found, &error), TRIREME_ERROR_CORRUPT,
                       "t.json: tells of 3 tokens");
    struct tokenizer *t = NULL;
    assert_ok(token_manifest_tokenizer(&m, names[0], &t, &error));
    assert_int_equal(tokenizer_vocab_size(t), 256);
    tokenizer_free(t);
    struct token_manifest other = m;
    snprintf(other.tokenizer_kind, sizeof other.tokenizer_kind, "bpe");
    assert_refused(token_manifest_tokenizer(&other, names[0], &t, &error), TRIREME_ERROR_USAGE,
                   "t.tokenizer is missing");
    other = m;
    other.tokenizer_checksum[0] ^= 1;
    assert_refused(token_manifest_tokenizer(&other, names[0], &t, &error), TRIREME_ERROR_CORRUPT, "checksum");
    assert_ok(token_manifest_read(in(state, "out/none"), 3, &m, &found, &error));
    assert_false(found);
    assert_ok(token_manifest_read(in(state, "out/none_*.bin"), 3, &m, &found, &error));
    assert_false(found);

    static const struct {
        const char *json, *part;
    } bad[] = {
        {"", "t.json"},
        {"{}", "format"},
        {"{\"format\": \"other\"}", "expected \"trireme-tokens\""},
        {"{\"format\": \"trireme-tokens\", \"version\": 3}", "version"},
        {"{\"format\": \"trireme-tokens\", \"version\": 1}", "tokenizer"},
        {"{\"format\": \"trireme-tokens\", \"version\": 1, \"tokenizer\": {\"kind\": "
         "\"0123456789012345678901234567890123456789\"}}",
         "\"kind\" has more than 31 bytes"},
        {"{\"format\": \"trireme-tokens\", \"version\": 1, \"tokenizer\": {\"kind\": \"bytes\", \"checksum\": \"0\", "
         "\"vocab_size\": 0}}",
         "vocab_size"},
        {"{\"format\": \"trireme-tokens\", \"version\": 1, \"tokenizer\": {\"kind\": \"bytes\", \"checksum\": \"0\", "
         "\"vocab_size\": 256}, \"tokens\": \"3\"}",
         "tokens"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        put_text(in(state, "out/t.json"), bad[i].json);
        assert_refused(token_manifest_read(names[0], 3, &m, &found, &error), TRIREME_ERROR_CORRUPT, bad[i].part);
        assert_memory_equal(&m, &p.result.manifest, sizeof m);
    }
}

static void put_manifest(const char *path, const struct token_manifest *m) {
    struct text json = {0};
    token_manifest_print(m, &json);
    put_text(path, json.text);
    text_release(&json);
}

// A set of several files, whose manifests may claim anything about their text.
static void test_manifest_of_set(void **state) {
    put_text(in(state, "a.txt"), "abc");
    const char *prefixes[] = {in(state, "out/t1"), in(state, "out/t2")};
    struct token_manifest m;
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++) {
        struct prepare_result result;
        assert_ok(prepare(prefixes[i], &plain, &error, &result, in(state, "a.txt"), NULL));
        m = result.manifest;
        m.documents = m.text_bytes = INT64_MAX;
        put_manifest(in(state, i ? "out/t2.json" : "out/t1.json"), &m);
    }
    struct token_manifest other[2] = {m, m};
    struct token_set *set;
    bool found = false;
    assert_ok(token_set_open(in(state, "out/t*.bin"), &set, &error));
    assert_ok(token_manifest_of_set(set, &m, &found, &error));
    assert_true(found);
    assert_string_equal(m.tokenizer_kind, "bytes");
    other[0].tokenizer_checksum[0] ^= 1;
    other[1].vocab_size--;
    for (size_t i = 0; i < ARRAY_LENGTH(other); i++) {
        put_manifest(in(state, "out/t2.json"), &other[i]);
        assert_refused(token_manifest_of_set(set, &m, &found, &error), TRIREME_ERROR_USAGE, "different tokenizers");
    }
    token_set_close(set);
}

// ---- chats

static bool mark_masked(void *user, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        ((char *)user)[i] = '-';
    return true;
}

// Of a chat only answers are to be predicted, of text and of completions all; they may stand in one file.
static void test_chats(void **state) {
    static const char TEXT[] = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
                               "plainq: a<|im_start|>user\nyo<|im_end|>\nend",
                      MASK[] = "----------------------------------------------------"
                               "++++++++++++++++++---+------------------------------+++";
    put_text(in(state, "a.jsonl"),
             "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
             "\"yo\"}], \"x\": 1}\n{\"text\": \"plain\"}\n{\"prompt\": \"q: \", \"completion\": \"a\"}\n"
             "{\"conversations\": [{\"from\": \"human\", \"value\": \"yo\"}]}\n{\"text\": \"end\"}\n");
    struct prepare_result result;
    const char *prefix = in(state, "out/t");
    struct prepare_options with = {.chat_template = "chatml"};
    assert_ok(prepare(prefix, &with, &error, &result, in(state, "a.jsonl"), NULL));
    assert_int_equal(result.chats, 3);
    assert_int_equal(result.chats_without_answers, 1);
    assert_int_equal(result.answer_tokens, 13 + 1);
    assert_true(result.manifest.masked);
    struct token_set *set;
    assert_ok(token_set_open(prefix, &set, &error));
    const int64_t total = token_set_tokens(set);
    char text[sizeof TEXT] = "", mask[sizeof TEXT] = "";
    int32_t tokens[sizeof TEXT];
    assert_int_equal(total, sizeof TEXT - 1);
    assert_int_equal(result.manifest.text_bytes, total);
    assert_ok(token_set_read(set, 0, total, 256, tokens, &error));
    for (int64_t i = 0; i < total; i++)
        text[i] = (char)tokens[i];
    assert_string_equal(text, TEXT);
    for (int64_t from = 0; from < total; from++)
        for (int64_t limit = from; limit <= total; limit++) {
            memset(mask, '+', sizeof mask - 1);
            assert_ok(token_set_masked(set, from, limit, mark_masked, mask, &error));
            for (int64_t i = 0; i < total; i++)
                assert_int_equal(mask[i], i >= from && i < limit ? MASK[i] : '+');
        }
    token_set_close(set);
    // A text field that is there counts, whatever else is.
    put_text(in(state, "a.jsonl"), "{\"messages\": [1], \"text\": \"that\"}\n");
    assert_prepared(state, &plain, in(state, "a.jsonl"), NULL, "that|");
    refuse(state, &with, "c.jsonl", "{\"text\": \"\"}\n\n{\"messages\": [{\"role\": 1}]}", 41, TRIREME_ERROR_USAGE,
           "c.jsonl line 3: message 1 is no object with a \"role\"");
    refuse(state, &with, "c.jsonl", "{\"messages\": [1, 1, NaN]}", 25, TRIREME_ERROR_CORRUPT, "c.jsonl line 1: ");
    refuse(state, &plain, "c.jsonl", "{\"messages\": [{\"role\": \"user\"}]}", 32, TRIREME_ERROR_USAGE,
           "c.jsonl line 1: the tokenizer has no chat template");
    const struct prepare_options skips = {.chat_template = "chatml", .skips_bad_lines = true};
    refuse(state, &skips, "c.jsonl", "{\"messages\": [1]}\n{\"messages\": [2]}", 34, TRIREME_ERROR_USAGE,
           "all empty; bad lines were left out, the first: ");
}

// ---- with a tokenizer

// The tokenizer of models.jsonl that has a rule for the beginning of a text: a blank before it, and <s>.
static struct tokenizer *with_beginning(void) {
    char *text;
    size_t length;
    struct tokenizer *t;
    struct tokenizer_parts parts;
    assert_ok(file_read(TRIREME_SOURCE "/tests/tokenizer/models.jsonl", 1 << 24, &text, &length, &error));
    char *at = text;
    while (strncmp(at, "{\"name\":\"sentencepiece-like\"", 28) != 0)
        at = strchr(at, '\n') + 1;
    json_t *line = json_loadb(at, (size_t)(strchr(at, '\n') - at), JSON_ALLOW_NUL, NULL);
    const json_t *json = json_object_get(line, "tokenizer");
    assert_ok(tokenizer_parts_parse(&parts, json_string_value(json), json_string_length(json), "models", &error));
    assert_ok(tokenizer_create(&t, &parts, NULL, "models", &error));
    json_decref(line);
    free(text);
    return t;
}

enum { CHATS = 12, BAD_CHATS = 2 };

// Some documents, of which one is long, and some chats.
static void put_documents(void **state) {
    struct text lines = {0}, book = {0};
    for (int i = 0; i < 60; i++)
        text_add(&lines,
                 i % 7 == 3    ? "{\"text\": \"\"}\n"
                 : i % 11 == 5 ? "{}\n"
                               : "{\"text\": \"line %d of \\u00e9 it\"}\n",
                 i);
    for (int i = 0; i < CHATS + BAD_CHATS; i++)
        text_add(&lines,
                 i % 7 == 5 ? "{\"messages\": [], \"n\": %d}\n"
                            : "{\"messages\": [{\"role\": \"user\", \"content\": \"what is %d?\"}, {\"role\": "
                              "\"assistant\", \"content\": \"it is \\u00e9\"}, {\"role\": \"user\", \"content\": "
                              "\"oh\"}, {\"role\": \"assistant\", \"content\": \"yes\"}]}\n",
                 i);
    for (int i = 0; i < 400; i++)
        text_add(&book, i % 9 == 4 ? "%d.\n\n" : "the word %d \xC3\xA9 and so on\n", i);
    put_text(in(state, "a.jsonl"), lines.text);
    put_text(in(state, "b.txt"), book.text);
    text_release(&lines);
    text_release(&book);
}

static struct prepare_result prepare_documents(void **state, const char *prefix, const struct tokenizer *t,
                                               struct prepare_options options) {
    const char *inputs[] = {in(state, "a.jsonl"), in(state, "b.txt"), in(state, "a.jsonl")};
    struct prepare_result result = {0};
    options.inputs = inputs;
    options.input_count = ARRAY_LENGTH(inputs);
    options.prefix = prefix;
    options.tokenizer = t;
    options.skips_bad_lines = true;
    options.chat_template = "chatml";
    trireme_error error;
    const trireme_status status = prepare_tokens(&options, &result, &error);
    if (status != TRIREME_OK && status != TRIREME_ERROR_INTERRUPTED) {
        fprintf(stderr, "%s\n", error.message);
        abort(); // also in a child
    }
    return result;
}

static void assert_same_files(void **state, const char *one, const char *other) {
    static const char *const ENDINGS[] = {".bin", ".idx", ".json", ".sums", ".tokenizer/tokenizer.json"};
    for (size_t i = 0; i < ARRAY_LENGTH(ENDINGS); i++) {
        char *paths[] = {mem_printf("%s%s", one, ENDINGS[i]), mem_printf("%s%s", other, ENDINGS[i])};
        size_t lengths[2];
        char *bytes[] = {get(paths[0], &lengths[0]), get(paths[1], &lengths[1])};
        assert_int_equal(lengths[0], lengths[1]);
        assert_memory_equal(bytes[0], bytes[1], lengths[0]);
        for (int k = 0; k < 2; k++) {
            free(paths[k]);
            free(bytes[k]);
        }
    }
    (void)state;
}

// The files are those of documents that are encoded as wholes, whatever the threads and the parts.
static void test_threads_and_parts(void **state) {
    struct tokenizer *t = with_beginning();
    put_documents(state);
    const char *whole = in(state, "whole/t"), *parts = in(state, "parts/t");
    const struct prepare_result expected =
        prepare_documents(state, whole, t, (struct prepare_options){.threads = 1, .job_bytes = 1 << 20});
    assert_int_equal(expected.empty_documents, 18);
    assert_int_equal(expected.bad_lines.count, 8 + 2 * BAD_CHATS);
    assert_int_equal(expected.chats, 2 * CHATS);
    assert_true(expected.answer_tokens > 2 * CHATS * 10 && expected.answer_tokens < expected.manifest.tokens / 2);
    assert_int_equal(expected.manifest.documents, 2 * (60 - 9 - 4) + 1 + 2 * CHATS);
    for (int threads = 1; threads < 5; threads += 2)
        for (size_t bytes = 1; bytes < 3000; bytes = 9 * bytes + 50) {
            const struct prepare_options with = {
                .threads = threads, .job_bytes = bytes, .documents.block_bytes = 1 + bytes / 3};
            const struct prepare_result result = prepare_documents(state, parts, t, with);
            assert_int_equal(result.manifest.text_bytes, expected.manifest.text_bytes);
            assert_same_files(state, whole, parts);
            assert_int_equal(count_entries(in(state, "parts")), 5);
        }
    tokenizer_free(t);
}

static void kill_self(void *user, int64_t done, int64_t total) {
    int *left = user;
    (void)done, (void)total;
    if (--*left == 0)
        raise(SIGKILL);
}

// A preparation that was killed, wherever it was, or was asked to stop, goes on: the files are those of one that was
// left alone.
static void test_killed(void **state) {
    struct tokenizer *t = with_beginning();
    put_documents(state);
    const char *whole = in(state, "whole/t"), *killed = in(state, "killed/t");
    const struct prepare_result expected = prepare_documents(state, whole, t, (struct prepare_options){.threads = 1});
    int64_t last = 0;
    int calls = 0;
    struct prepare_result result = {0};
    while (result.files == 0) {
        calls += 80;
        struct prepare_options with = {
            .threads = 1 + calls / 80 % 2, .job_bytes = 1200, .documents.block_bytes = 50, .save_after = 1};
        if (calls % 240 == 0) {
            struct watcher stops = {.cancel_after = calls};
            with.progress = watch, with.user = &stops, with.cancel = &stops.cancel;
            result = prepare_documents(state, killed, t, with);
            continue;
        }
        const pid_t child = fork();
        if (child == 0) {
            int left = calls;
            with.progress = kill_self, with.user = &left;
            result = prepare_documents(state, killed, t, with);
            _exit(result.files ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status))
            assert_int_equal(WEXITSTATUS(status), 0);
        json_t *journal = NULL;
        if (json_parse_file(in(state, "killed/t.prepare.tmp"), 1 << 20, &journal, NULL) == TRIREME_OK) {
            assert_true(json_integer_value(json_object_get(journal, "tokens")) >= last);
            last = json_integer_value(json_object_get(journal, "tokens"));
            json_decref(journal);
        }
        result.files = WIFEXITED(status);
    }
    assert_true(calls >= 160 && last > 0);
    assert_same_files(state, whole, killed);
    assert_int_equal(count_entries(in(state, "killed")), 5);
    if (result.manifest.tokens) {
        assert_int_equal(result.bad_lines.count, expected.bad_lines.count);
        assert_int_equal(result.empty_documents, expected.empty_documents);
        assert_int_equal(result.chats, expected.chats);
        assert_int_equal(result.answer_tokens, expected.answer_tokens);
    }
    tokenizer_free(t);
}

// Makes a file longer, beyond what the whole one has.
static void grow_file(const char *path) {
    FILE *file = fopen(path, "a");
    for (int i = 0; i < 100000; i++)
        fputc('x', file);
    fclose(file);
}

// Another text is not gone on with, nor what is not as it was saved. What was written after that does not count.
static void test_saved_is_of_no_use(void **state) {
    struct tokenizer *t = with_beginning();
    put_documents(state);
    const char *whole = in(state, "whole/t"), *other = in(state, "other/t");
    struct watcher stops;
    for (int round = 0; round < 5; round++) {
        stops = (struct watcher){.cancel_after = 100};
        const struct prepare_options with = {
            .job_bytes = 100, .documents.block_bytes = 50, .progress = watch, .user = &stops, .cancel = &stops.cancel};
        assert_int_equal(prepare_documents(state, other, t, with).files, 0);
        assert_true(exists(in(state, "other/t.bin.tmp")));
        if (round == 1)
            put_text(in(state, "b.txt"), "another text");
        else if (round == 2)
            assert_int_equal(truncate(in(state, "other/t.bin.tmp"), 10), 0);
        else if (round == 3)
            put_text(in(state, "other/t.prepare.tmp"), "{\"of\": 1");
        else if (round == 4) {
            grow_file(in(state, "other/t.bin.tmp"));
            grow_file(in(state, "other/t.idx.tmp"));
        }
        const struct prepare_result result = prepare_documents(state, other, t, (struct prepare_options){0});
        assert_int_equal(result.resumed_tokens > 0, round == 0 || round == 4);
        prepare_documents(state, whole, t, (struct prepare_options){0});
        assert_same_files(state, whole, other);
        put_documents(state);
    }
    tokenizer_free(t);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_text_files),
        TEST(test_blocks),
        TEST(test_ends),
        TEST(test_byte_order_mark),
        TEST(test_json_lines),
        TEST(test_directories),
        TEST(test_not_utf8),
        TEST(test_bad_json),
        TEST(test_fields_that_are_not_read),
        TEST(test_bad_lines_left_out),
        TEST(test_lines_of_many_values),
        TEST(test_long_lines),
        TEST(test_bad_inputs),
        TEST(test_progress_and_cancel),
        TEST(test_disk_full),
        TEST(test_manifest),
        TEST(test_manifest_of_set),
        TEST(test_threads_and_parts),
        TEST(test_chats),
        TEST(test_killed),
        TEST(test_saved_is_of_no_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
