#include "tokenizer/tokenizer.h"

#include "base/json.h"
#include "tokenizer/byte_characters.h"

#include <errno.h>
#include <sys/stat.h>

enum { BYTE_COUNT = 256, FILE_LIMIT = 256 << 20 };

struct tokenizer {
    int32_t vocab_size;
};

struct tokenizer *tokenizer_create_bytes(void) {
    struct tokenizer *t = mem_alloc(sizeof *t);
    t->vocab_size = BYTE_COUNT;
    return t;
}

void tokenizer_free(struct tokenizer *t) {
    free(t);
}

const char *tokenizer_kind(const struct tokenizer *t) {
    (void)t;
    return "bytes";
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) {
    return t->vocab_size;
}

void tokenizer_checksum(const struct tokenizer *t, char hex[CHECKSUM_HEX]) {
    struct checksum sum;
    checksum_begin(&sum);
    for (int32_t token = 0; token < t->vocab_size; token++) {
        // The length of the token's bytes (u32, little-endian), then the bytes.
        uint8_t entry[5] = {1, 0, 0, 0, (uint8_t)token};
        checksum_add(&sum, entry, sizeof entry);
    }
    checksum_end(&sum, hex);
}

void tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, struct token_list *out) {
    (void)t;
    VEC_RESERVE(out, out->count + length);
    for (size_t i = 0; i < length; i++)
        out->item[out->count++] = (uint8_t)text[i];
}

trireme_status tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t count, struct text *out,
                                trireme_error *error) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= t->vocab_size)
            FAIL(TRIREME_ERROR_USAGE, "token %d at index %zu is not in the tokenizer's vocabulary of %d", tokens[i], i,
                 t->vocab_size);
    for (size_t i = 0; i < count; i++) {
        char byte = (char)tokens[i];
        text_add_bytes(out, &byte, 1);
    }
    return TRIREME_OK;
}

int64_t tokenizer_token_bytes(const struct tokenizer *t, int32_t token) {
    CHECK(token >= 0 && token < t->vocab_size);
    return 1;
}

// ---- tokenizer.json

static void byte_tokenizer_json(struct text *json) {
    static const char BYTE_LEVEL[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}";
    text_add(json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    text_add(json, "  \"added_tokens\": [],\n  \"normalizer\": null,\n");
    text_add(json, "  \"pre_tokenizer\": %s,\n  \"post_processor\": null,\n  \"decoder\": %s,\n", BYTE_LEVEL,
             BYTE_LEVEL);
    text_add(json, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                   "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                   "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
                   "    \"vocab\": {\n");
    for (int b = 0; b < BYTE_COUNT; b++) {
        char character[BYTE_CHARACTER_UTF8_MAX];
        text_add(json, "      \"%s%.*s\": %d%s\n", b == '"' || b == '\\' ? "\\" : "",
                 (int)byte_character_write((uint8_t)b, character), character, b, b + 1 < BYTE_COUNT ? "," : "");
    }
    text_add(json, "    },\n    \"merges\": []\n  }\n}\n");
}

struct tokenizer_files tokenizer_files(const struct tokenizer *t) {
    // Every special token is null: a byte tokenizer has none, and the default of a class would become a 257th entry.
    static const char config[] = "{\n"
                                 "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                 "  \"add_prefix_space\": false,\n"
                                 "  \"clean_up_tokenization_spaces\": false,\n"
                                 "  \"bos_token\": null,\n"
                                 "  \"eos_token\": null,\n"
                                 "  \"unk_token\": null,\n"
                                 "  \"pad_token\": null\n"
                                 "}\n";
    (void)t;
    struct tokenizer_files files = {0};
    struct text json = {0};
    byte_tokenizer_json(&json);
    tokenizer_files_add(&files, "tokenizer.json", json.text, json.length);
    tokenizer_files_add(&files, "tokenizer_config.json", mem_strdup(config), sizeof config - 1);
    return files;
}

static bool type_is(const json_t *object, const char *type) {
    const char *value = json_string_value(json_object_get(object, "type"));
    return value && strcmp(value, type) == 0;
}

// Null or absent.
static bool member_is_null(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value);
}

// Whether the parsed file is the byte tokenizer; if not, why[size] says what is wrong, in words to follow "because".
static bool is_byte_tokenizer(const json_t *root, char *why, size_t size) {
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *split = json_object_get(root, "pre_tokenizer"), *added = json_object_get(root, "added_tokens");
    const char *type = json_string_value(json_object_get(model, "type"));
    size_t merges = json_array_size(json_object_get(model, "merges"));
    if (!type || strcmp(type, "BPE") != 0 || !json_is_object(vocab)) {
        snprintf(why, size, "its model is of type %.40s", type ? type : "unknown");
        return false;
    }
    if (json_object_size(vocab) != BYTE_COUNT || merges != 0) {
        snprintf(why, size, "it has %zu entries and %zu merges", json_object_size(vocab), merges);
        return false;
    }
    for (int b = 0; b < BYTE_COUNT; b++) {
        char character[BYTE_CHARACTER_UTF8_MAX + 1] = {0};
        byte_character_write((uint8_t)b, character);
        const json_t *id = json_object_get(vocab, character);
        if (!json_is_integer(id) || json_integer_value(id) != b) {
            snprintf(why, size, "its entry for byte %d does not have the id %d", b, b);
            return false;
        }
    }
    if (json_array_size(added) != 0) {
        snprintf(why, size, "it adds %zu special tokens", json_array_size(added));
        return false;
    }
    const char *prefix = member_is_null(model, "continuing_subword_prefix") ? NULL : "continuing_subword_prefix";
    if (!member_is_null(model, "end_of_word_suffix"))
        prefix = "end_of_word_suffix";
    if (prefix) {
        snprintf(why, size, "its model sets %s", prefix);
        return false;
    }
    if (!member_is_null(root, "normalizer")) {
        snprintf(why, size, "it has a normalizer");
        return false;
    }
    // With no merges the regular expression changes nothing; a prefix space would add a token.
    if (!type_is(split, "ByteLevel") || !json_is_false(json_object_get(split, "add_prefix_space"))) {
        snprintf(why, size, "its pre_tokenizer is not ByteLevel without add_prefix_space");
        return false;
    }
    if (!type_is(json_object_get(root, "decoder"), "ByteLevel")) {
        snprintf(why, size, "its decoder is not ByteLevel");
        return false;
    }
    // What transformers saves after opening ours: a template that puts no special token around the text.
    const json_t *after = json_object_get(root, "post_processor"), *special = json_object_get(after, "special_tokens");
    bool plain_template = type_is(after, "TemplateProcessing") && special && json_object_size(special) == 0;
    if (!member_is_null(root, "post_processor") && !type_is(after, "ByteLevel") && !plain_template) {
        snprintf(why, size, "its post_processor may add tokens");
        return false;
    }
    return true;
}

// The tokenizer.json that `path` is or holds; the caller frees.
static trireme_status find_file(const char *path, char **out, trireme_error *error) {
    struct stat info;
    if (stat(path, &info) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    char *file = S_ISDIR(info.st_mode) ? mem_printf("%s/tokenizer.json", path) : mem_strdup(path);
    if (!file_missing(file)) {
        *out = file;
        return TRIREME_OK;
    }
    free(file);
    FAIL(TRIREME_ERROR_USAGE,
         "%s has no tokenizer.json: its model was trained on tokens that `trireme prepare` did not make, and cannot "
         "generate text",
         path);
}

trireme_status tokenizer_load(const char *path, struct tokenizer **out, trireme_error *error) {
    char *file = NULL;
    TRY(find_file(path, &file, error));
    json_t *root = NULL;
    const json_t *model;
    char why[200];
    trireme_status status = json_parse_file(file, FILE_LIMIT, &root, error);
    if (status == TRIREME_OK)
        status = json_read_object(root, file, "model", JSON_REQUIRED, &model, error);
    if (status == TRIREME_OK && !is_byte_tokenizer(root, why, sizeof why))
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s: only the byte tokenizer (256 entries, no merges) is built in so far, and this is "
                           "another because %s",
                           file, why);
    if (status == TRIREME_OK)
        *out = tokenizer_create_bytes();
    json_decref(root);
    free(file);
    return status;
}

bool tokenizer_differs(const struct tokenizer *t, const char *directory, char why[200]) {
    char *file = mem_printf("%s/tokenizer.json", directory), own[CHECKSUM_HEX], its[CHECKSUM_HEX];
    bool has = !file_missing(file);
    struct tokenizer *other = NULL;
    trireme_error error = {0};
    free(file);
    if (!has)
        return false;
    trireme_status status = tokenizer_load(directory, &other, &error);
    snprintf(why, 200, "%.199s", status == TRIREME_OK ? "its tokens stand for other text" : error.message);
    if (status != TRIREME_OK)
        return true;
    tokenizer_checksum(t, own);
    tokenizer_checksum(other, its);
    tokenizer_free(other);
    return strcmp(own, its) != 0;
}
