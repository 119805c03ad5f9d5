// Normalizers, pre-tokenizers and decoders against `tokenizers`: each line of steps.jsonl is a step with the library's
// results (tools/reference/tokenizer_steps.py).
#include "base/checksum.h"
#include "base/json.h"
#include "base/text.h"
#include "support/test.h"
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
    struct pre_tokenizer *pre_tokenizer;
    struct text_work *work;
};

static void tool_create(struct tool *t, const char *kind, const json_t *description) {
    *t = (struct tool){.work = text_work_create()};
    trireme_status status = TRIREME_OK;
    if (strcmp(kind, "pre_tokenizer") == 0)
        status = pre_tokenizer_create(&t->pre_tokenizer, description, "steps", &error);
    else
        fail_msg("%s is no kind of step", kind);
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
}

static void tool_free(struct tool *t) {
    pre_tokenizer_free(t->pre_tokenizer);
    text_work_free(t->work);
}

static void tool_apply(const struct tool *t, const char *text, size_t length, struct pieces *out) {
    pieces_clear(out);
    trireme_status status = pre_tokenizer_cut(t->pre_tokenizer, t->work, text, length, true, out, &error);
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
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

static void test_readable(void **state) {
    (void)state;
    const json_t *texts = json_object_get(vectors.lines.item[0], "readable"), *text;
    struct pieces result = {0};
    for (size_t i = 1; i < vectors.lines.count; i++) {
        const json_t *line = vectors.lines.item[i], *wanted = json_object_get(line, "readable");
        struct tool tool;
        size_t n;
        tool_create(&tool, json_string_value(json_object_get(line, "kind")), json_object_get(line, "description"));
        assert_int_equal(json_array_size(wanted), json_array_size(texts));
        json_array_foreach(texts, n, text) {
            tool_apply(&tool, json_string_value(text), json_string_length(text), &result);
            if (!result_is(&result, json_array_get(wanted, n)))
                fail_result(line, text, &result, json_array_get(wanted, n));
        }
        tool_free(&tool);
    }
    pieces_release(&result);
}

static void test_checksums(void **state) {
    (void)state;
    const json_t *texts = json_object_get(vectors.lines.item[0], "random"), *text;
    struct pieces result = {0};
    for (size_t i = 1; i < vectors.lines.count; i++) {
        const json_t *line = vectors.lines.item[i];
        struct checksum sum;
        struct tool tool;
        char hex[2][CHECKSUM_HEX];
        size_t n;
        tool_create(&tool, json_string_value(json_object_get(line, "kind")), json_object_get(line, "description"));
        checksum_begin(&sum);
        json_array_foreach(texts, n, text) {
            tool_apply(&tool, json_string_value(text), json_string_length(text), &result);
            add_result(&sum, &result);
        }
        checksum_end(&sum, hex[0]);
        checksum_begin(&sum);
        for (int r = 0; r < 2; r++) {
            tool_apply(&tool, vectors.ranges[r].text, vectors.ranges[r].length, &result);
            add_result(&sum, &result);
        }
        checksum_end(&sum, hex[1]);
        for (int r = 0; r < 2; r++)
            if (strcmp(hex[r], json_string_value(json_object_get(line, r ? "ranges" : "random"))) != 0) {
                char *description = json_dumps(json_object_get(line, "description"), 0);
                fail_msg("%s: %s", description, r ? "all code points" : "random texts");
            }
        tool_free(&tool);
    }
    pieces_release(&result);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_readable), cmocka_unit_test(test_checksums)};
    return cmocka_run_group_tests_name("steps", tests, read_vectors, release_vectors);
}
