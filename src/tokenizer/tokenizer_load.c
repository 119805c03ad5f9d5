// Tokenizers in files and directories.
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tekken.h"
#include "tokenizer/tiktoken_ranks.h"
#include "tokenizer/tokenizer_internal.h"

#include <errno.h>
#include <sys/stat.h>

enum { FILE_LIMIT = 256 << 20 };

#define TOKENIZER_JSON "tokenizer.json"
static const char TOKENIZER_CONFIG[] = "tokenizer_config.json";

// In a directory, the first one that is there counts.
static const char *const NAMED[] = {TOKENIZER_SOURCE, TOKENIZER_JSON, "tokenizer.model", "tekken.json"};

// A form of files, told apart by their content.
struct tokenizer_form {
    bool (*recognise)(const char *bytes, size_t length);
    trireme_status (*read)(struct tokenizer_parts *out, const char *bytes, size_t length, const char *where,
                           trireme_error *error);
};

// "1 '\x00' 1": an id, a token as Python writes it, and how many bytes it has.
static bool rwkv_vocabulary_is(const char *bytes, size_t length) {
    const size_t digits = strspn(bytes, "0123456789");
    return digits && digits + 2 < length && bytes[digits] == ' ' && strchr("'\"b", bytes[digits + 1]);
}

static bool is_json(const char *bytes, size_t length) {
    const size_t blank = strspn(bytes, " \t\r\n");
    return blank < length && bytes[blank] == '{';
}

static const struct tokenizer_form FORMS[] = {
    {tekken_is, tekken_parse},
    {is_json, tokenizer_parts_parse},
    {sentencepiece_model_is, sentencepiece_model_parse},
};

// The tokenizer's file in a directory, NULL if there is none; the caller frees.
static char *find_named(const char *directory) {
    for (size_t i = 0; i < ARRAY_LENGTH(NAMED); i++) {
        char *file = mem_printf("%s/%s", directory, NAMED[i]);
        if (!file_missing(file))
            return file;
        free(file);
    }
    return NULL;
}

// The tokenizer's file that `path` is or holds; the caller frees. *directory: where tokenizer_config.json may lie
// beside it, "" where none counts; the caller frees.
static trireme_status find_file(const char *path, char **out, char **directory, trireme_error *error) {
    struct stat info;
    if (stat(path, &info) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        const char *slash = strrchr(path, '/');
        const bool named = strcmp(slash ? slash + 1 : path, TOKENIZER_JSON) == 0;
        *out = mem_strdup(path);
        *directory = !named ? mem_strdup("") : slash ? mem_printf("%.*s", (int)(slash - path), path) : mem_strdup(".");
        return TRIREME_OK;
    }
    *out = find_named(path);
    *directory = *out ? mem_strdup(path) : NULL;
    if (*out)
        return TRIREME_OK;
    char *vocab = mem_printf("%s/vocab.json", path);
    const bool is_old = !file_missing(vocab);
    free(vocab);
    if (is_old)
        FAIL(TRIREME_ERROR_USAGE,
             "%s has a vocab.json, but no tokenizer.json, into which transformers turns it: "
             "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
             path);
    FAIL(TRIREME_ERROR_USAGE,
         "%s has no tokenizer.json: its model was trained on tokens that `trireme prepare` did not make, and cannot "
         "generate text",
         path);
}

static const struct tokenizer_file *find_kept(const struct tokenizer_files *files, const char *name) {
    for (size_t i = 0; i < files->files.count; i++)
        if (strcmp(files->files.item[i].name, name) == 0)
            return &files->files.item[i];
    return NULL;
}

// tokenizer_config.json of a directory's files, if they have one.
static trireme_status read_config(const struct tokenizer_files *files, const char *directory, json_t **out,
                                  trireme_error *error) {
    const struct tokenizer_file *file = find_kept(files, TOKENIZER_CONFIG);
    char *path = mem_printf("%s/%s", directory, TOKENIZER_CONFIG);
    trireme_status status = file ? json_parse(file->bytes, file->length, path, out, error) : TRIREME_OK;
    free(path);
    return status;
}

// *is_source: it is no tokenizer.json, but one could be made of it.
static trireme_status read_parts(struct tokenizer_parts *out, const char *bytes, size_t length, const char *pattern,
                                 const char *where, bool *is_source, trireme_error *error) {
    *is_source = true;
    if (tiktoken_ranks_are(bytes, length))
        return tiktoken_ranks_parse(out, bytes, length, pattern, where, error);
    for (size_t i = 0; i < ARRAY_LENGTH(FORMS); i++) {
        if (!FORMS[i].recognise(bytes, length))
            continue;
        if (pattern)
            FAIL(TRIREME_ERROR_USAGE,
                 "tokenizer.pattern is for files of tiktoken's ranks; %s says itself how text is cut", where);
        *is_source = FORMS[i].read != tokenizer_parts_parse;
        return FORMS[i].read(out, bytes, length, where, error);
    }
    if (rwkv_vocabulary_is(bytes, length))
        FAIL(TRIREME_ERROR_USAGE,
             "%s: a vocabulary of RWKV, whose tokens are the longest that fit: it is not supported; give a "
             "tokenizer.json, "
             "a .model of sentencepiece, tiktoken's ranks or a tekken.json",
             where);
    FAIL(TRIREME_ERROR_USAGE,
         "%s: no tokenizer: expected a tokenizer.json, a .model of sentencepiece, tiktoken's ranks or a tekken.json",
         where);
}

static void add_config_token(const struct tokenizer *t, const char *key, int32_t id, struct text *json) {
    const struct added_token *added = added_tokens_find_id(t->added, id);
    const struct token_bytes token = token_table_token(t->parts.tokens, id);
    const struct text spelt = {.text = (char *)(added ? added->content : token.bytes),
                               .length = added ? added->length : token.length};
    if (id < 0)
        json_add_value(json, key, json_null());
    else
        json_add_text(json, key, &spelt);
}

// Adds a file, unless there is one of that name.
static void keep_bytes(struct tokenizer_files *files, const char *name, const char *bytes, size_t length) {
    struct text copy = {0};
    if (find_kept(files, name))
        return;
    text_add_bytes(&copy, bytes, length);
    tokenizer_files_add(files, name, copy.text, copy.length);
}

// Keeps the files that a tokenizer came with.
static void keep_files(struct tokenizer *t, struct tokenizer_files *files, const char *bytes, size_t length,
                       bool is_source, const char *pattern) {
    t->files = *files;
    *files = (struct tokenizer_files){0};
    keep_bytes(&t->files, is_source ? TOKENIZER_SOURCE : TOKENIZER_JSON, bytes, length);
    if (pattern)
        keep_bytes(&t->files, TOKENIZER_PATTERN, pattern, strlen(pattern));
    const struct tokenizer_file *template = find_kept(&t->files, TOKENIZER_CHAT_TEMPLATE);
    if (!template)
        return;
    free(t->chat_template); // of tokenizer_config.json, which `transformers`, too, passes over then
    t->chat_template = mem_strdup(template->bytes);
}

static void drop_file(struct tokenizer_files *files, const char *name) {
    for (size_t i = 0; i < files->files.count; i++)
        if (strcmp(files->files.item[i].name, name) == 0) {
            free(files->files.item[i].bytes);
            files->files.item[i] = files->files.item[--files->files.count];
        }
}

// Files of a directory that define its tokenizer, but not what its model generates.
static trireme_status read_beside(struct tokenizer_files *out, const char *directory, trireme_error *error) {
    if (!*directory)
        return TRIREME_OK;
    TRY(tokenizer_files_read(out, directory, error));
    drop_file(out, "generation_config.json");
    return TRIREME_OK;
}

static trireme_status load_file(const char *file, const char *directory, const char *pattern, struct tokenizer **out,
                                trireme_error *error) {
    struct tokenizer_files beside = {0};
    struct tokenizer_parts parts = {0};
    char *bytes = NULL;
    size_t length = 0;
    bool is_source = false;
    json_t *config = NULL;
    TRY(file_read(file, FILE_LIMIT, &bytes, &length, error));
    trireme_status status = read_beside(&beside, directory, error);
    if (pattern)
        drop_file(&beside, TOKENIZER_PATTERN);
    const struct tokenizer_file *kept = find_kept(&beside, TOKENIZER_PATTERN);
    if (kept)
        pattern = kept->bytes;
    if (status == TRIREME_OK)
        status = read_config(&beside, directory, &config, error);
    if (status == TRIREME_OK)
        status = read_parts(&parts, bytes, length, pattern, file, &is_source, error);
    if (status == TRIREME_OK)
        status = tokenizer_create(out, &parts, config, file, error);
    if (status == TRIREME_OK)
        keep_files(*out, &beside, bytes, length, is_source, pattern);
    tokenizer_files_release(&beside);
    json_decref(config);
    free(bytes);
    return status;
}

trireme_status tokenizer_load_with(const char *path, const char *pattern, struct tokenizer **out,
                                   trireme_error *error) {
    char *file = NULL, *directory = NULL;
    TRY(find_file(path, &file, &directory, error));
    trireme_status status = load_file(file, directory, pattern, out, error);
    free(file);
    free(directory);
    return status;
}

trireme_status tokenizer_load(const char *path, struct tokenizer **out, trireme_error *error) {
    return tokenizer_load_with(path, NULL, out, error);
}

struct tokenizer_files tokenizer_files(const struct tokenizer *t) {
    struct tokenizer_files files = {0};
    for (size_t i = 0; i < t->files.files.count; i++) {
        const struct tokenizer_file *file = &t->files.files.item[i];
        keep_bytes(&files, file->name, file->bytes, file->length);
    }
    if (!find_kept(&files, TOKENIZER_JSON)) {
        struct text json = {0};
        tokenizer_parts_write(&t->parts, &json);
        tokenizer_files_add(&files, TOKENIZER_JSON, json.text, json.length);
    }
    if (!find_kept(&files, TOKENIZER_CONFIG)) {
        struct text json = {0};
        json_begin_object(&json, NULL);
        json_add_string(&json, "tokenizer_class", "PreTrainedTokenizerFast");
        add_config_token(t, "bos_token", t->bos, &json);
        add_config_token(t, "eos_token", t->eos, &json);
        if (t->type == TOKENIZER_BYTES) // which has no other token for what fills a batch
            add_config_token(t, "pad_token", t->eos, &json);
        json_add_boolean(&json, "clean_up_tokenization_spaces", false);
        json_end_object(&json);
        text_add(&json, "\n");
        tokenizer_files_add(&files, TOKENIZER_CONFIG, json.text, json.length);
    }
    return files;
}

bool tokenizer_differs(const struct tokenizer *t, const char *directory, char why[200]) {
    char *file = find_named(directory), own[CHECKSUM_HEX], its[CHECKSUM_HEX];
    const bool has = file != NULL;
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

bool tokenizer_continues(const struct tokenizer *t, const char *directory) {
    char *file = find_named(directory);
    struct tokenizer *other = NULL;
    bool same = file && tokenizer_load(directory, &other, NULL) == TRIREME_OK;
    const int32_t count = same ? MIN(t->vocab_size, other->vocab_size) : 0;
    for (int32_t id = 0; id < count && same; id++) {
        const struct token_bytes one = token_table_token(t->parts.tokens, id),
                                 its = token_table_token(other->parts.tokens, id);
        const struct added_token *added = added_tokens_find_id(t->added, id),
                                 *also = added_tokens_find_id(other->added, id);
        same = (added ? also && strcmp(added->content, also->content) == 0 : !also) && one.length == its.length &&
               (one.length == 0 || memcmp(one.bytes, its.bytes, one.length) == 0);
    }
    tokenizer_free(other);
    free(file);
    return same;
}
