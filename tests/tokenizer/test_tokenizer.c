// The byte tokenizer and its files.
#include "base/json.h"
#include "data/test_data.h"
#include "tokenizer/tokenizer.h"

// ---- the tokenizer

static void test_encode_decode(void **state) {
    (void)state;
    char every[256];
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    struct tokenizer *t = tokenizer_create_bytes();
    assert_int_equal(tokenizer_vocab_size(t), 256);
    assert_string_equal(tokenizer_kind(t), "bytes");
    struct token_list tokens = {0};
    tokenizer_encode(t, every, 100, &tokens);
    tokenizer_encode(t, every + 100, 156, &tokens);
    assert_int_equal(tokens.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(tokens.item[i], i);
        assert_int_equal(tokenizer_token_bytes(t, i), 1);
    }
    struct text text = {0};
    assert_ok(tokenizer_decode(t, tokens.item, tokens.count, &text, &error));
    assert_int_equal(text.length, 256);
    assert_memory_equal(text.text, every, 256);
    int32_t outside[] = {65, 256, -1};
    assert_refused(tokenizer_decode(t, outside, 3, &text, &error), TRIREME_ERROR_USAGE, "token 256 at index 1");
    assert_refused(tokenizer_decode(t, outside + 2, 1, &text, &error), TRIREME_ERROR_USAGE, "token -1 at index 0");
    assert_int_equal(text.length, 256);
    text_release(&text);
    VEC_RELEASE(&tokens);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

static void test_checksum(void **state) {
    (void)state;
    struct tokenizer *t = tokenizer_create_bytes();
    char hex[CHECKSUM_HEX];
    tokenizer_checksum(t, hex);
    // b2sum -l 256 of 01 00 00 00 00, 01 00 00 00 01, ...: manifests that exist hold it.
    assert_string_equal(hex, "b331239ac8c2408e17335d8279875b9d6d8df9dbf69e10f326e43cf7f7491021");
    tokenizer_free(t);
}

static void save(const struct tokenizer *t, const char *directory) {
    struct tokenizer_files files = tokenizer_files(t);
    assert_ok(tokenizer_files_write(&files, directory, &error));
    tokenizer_files_release(&files);
}

static void test_save_load(void **state) {
    const char *directory = ((struct folder *)*state)->path, *file = in(state, "tokenizer.json");
    struct tokenizer *t = tokenizer_create_bytes(), *again = NULL;
    save(t, directory);
    assert_int_equal(count_entries(directory), 2);
    assert_ok(tokenizer_load(directory, &again, &error));
    assert_int_equal(tokenizer_vocab_size(again), 256);
    tokenizer_free(again);
    assert_ok(tokenizer_load(file, &again, &error));
    tokenizer_free(again);
    tokenizer_free(t);

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
    json_decref(root);
}

// Applies `change` to the parsed tokenizer.json of the byte tokenizer, writes it, and expects a refusal.
static void refuse_changed(void **state, void (*change)(json_t *root, json_t *model), const char *part) {
    struct tokenizer *t = tokenizer_create_bytes();
    save(t, ((struct folder *)*state)->path);
    const char *file = in(state, "tokenizer.json");
    json_t *root = NULL;
    assert_ok(json_parse_file(file, 1 << 20, &root, &error));
    change(root, json_object_get(root, "model"));
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
    struct tokenizer *out = t;
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_USAGE, "only the byte tokenizer");
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_USAGE, part);
    assert_ptr_equal(out, t);
    tokenizer_free(t);
}

static void change_type(json_t *root, json_t *model) {
    (void)root;
    json_object_set_new(model, "type", json_string("Unigram"));
}
static void change_size(json_t *root, json_t *model) {
    (void)root;
    json_object_set_new(json_object_get(model, "vocab"), "th", json_integer(256));
}
static void change_merges(json_t *root, json_t *model) {
    (void)root;
    json_array_append_new(json_object_get(model, "merges"), json_string("t h"));
}
static void change_id(json_t *root, json_t *model) {
    (void)root;
    json_object_set_new(json_object_get(model, "vocab"), "A", json_integer(66));
}
static void change_key(json_t *root, json_t *model) {
    (void)root;
    json_t *vocab = json_object_get(model, "vocab");
    json_object_del(vocab, "A");
    json_object_set_new(vocab, "zz", json_integer(65));
}
static void change_added(json_t *root, json_t *model) {
    (void)model;
    json_array_append_new(json_object_get(root, "added_tokens"), json_pack("{si ss}", "id", 256, "content", "<s>"));
}
static void change_normalizer(json_t *root, json_t *model) {
    (void)model;
    json_object_set_new(root, "normalizer", json_pack("{ss}", "type", "NFC"));
}
static void change_prefix_space(json_t *root, json_t *model) {
    (void)model;
    json_object_set_new(json_object_get(root, "pre_tokenizer"), "add_prefix_space", json_true());
}
static void change_decoder(json_t *root, json_t *model) {
    (void)model;
    json_object_set_new(root, "decoder", json_null());
}
static void change_post(json_t *root, json_t *model) {
    (void)model;
    json_object_set_new(root, "post_processor",
                        json_pack("{ss s{s{}}}", "type", "TemplateProcessing", "special_tokens", "<s>"));
}
static void change_suffix(json_t *root, json_t *model) {
    (void)root;
    json_object_set_new(model, "end_of_word_suffix", json_string("</w>"));
}
static void change_prefix(json_t *root, json_t *model) {
    (void)root;
    json_object_set_new(model, "continuing_subword_prefix", json_string("##"));
}

static void test_load_refuses(void **state) {
    refuse_changed(state, change_type, "Unigram");
    refuse_changed(state, change_size, "257 entries and 0 merges");
    refuse_changed(state, change_merges, "256 entries and 1 merges");
    refuse_changed(state, change_id, "byte 65");
    refuse_changed(state, change_key, "byte 65");
    refuse_changed(state, change_added, "adds 1 special tokens");
    refuse_changed(state, change_normalizer, "normalizer");
    refuse_changed(state, change_prefix_space, "pre_tokenizer");
    refuse_changed(state, change_decoder, "decoder");
    refuse_changed(state, change_post, "post_processor");
    refuse_changed(state, change_suffix, "end_of_word_suffix");
    refuse_changed(state, change_prefix, "continuing_subword_prefix");

    struct tokenizer *out;
    const char *file = in(state, "tokenizer.json");
    put_text(file, "{\"model\": ");
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_CORRUPT, "JSON");
    put_text(file, "[]");
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_CORRUPT, "model");
    put_text(file, "{\"model\": {\"type\": \"WordPiece\"}}");
    assert_refused(tokenizer_load(file, &out, &error), TRIREME_ERROR_USAGE, "WordPiece");
    assert_refused(tokenizer_load(in(state, "none"), &out, &error), TRIREME_ERROR_IO, "none");
}

// transformers saves what it opened with a template that adds nothing.
static void test_load_resaved(void **state) {
    struct tokenizer *t = tokenizer_create_bytes();
    save(t, ((struct folder *)*state)->path);
    tokenizer_free(t);
    const char *file = in(state, "tokenizer.json");
    json_t *root = NULL;
    assert_ok(json_parse_file(file, 1 << 20, &root, &error));
    json_object_set_new(root, "post_processor", json_pack("{ss s{}}", "type", "TemplateProcessing", "special_tokens"));
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
    assert_ok(tokenizer_load(file, &t, &error));
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_decode),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test_setup_teardown(test_save_load, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_load_refuses, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_load_resaved, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
