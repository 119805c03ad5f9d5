#include "data/token_manifest.h"

#include "base/json.h"
#include "data/token_files.h"

#include <inttypes.h>

enum { FILE_LIMIT = 1 << 20, VERSION = 1, VERSION_MASKED = 2 };
static const char FORMAT_NAME[] = "trireme-tokens";

void token_manifest_print(const struct token_manifest *m, struct text *out) {
    text_add(out, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n", FORMAT_NAME, m->masked ? VERSION_MASKED : VERSION);
    text_add(out, "  \"tokenizer\": {\"kind\": \"%s\", \"vocab_size\": %" PRId64 ", \"checksum\": \"%s\"},\n",
             m->tokenizer_kind, m->vocab_size, m->tokenizer_checksum);
    text_add(out, "  \"tokens\": %" PRId64 ",\n  \"documents\": %" PRId64 ",\n  \"text_bytes\": %" PRId64 "%s\n}\n",
             m->tokens, m->documents, m->text_bytes, m->masked ? ",\n  \"masked\": true" : "");
}

static trireme_status read_string(const json_t *object, const char *where, const char *key, char *out, size_t size,
                                  trireme_error *error) {
    const char *string;
    char excerpt[JSON_EXCERPT_BYTES];
    TRY(json_read_string(object, where, key, JSON_REQUIRED, &string, error));
    if (strlen(string) >= size)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" has more than %zu bytes: %s", where, key, size - 1,
             json_excerpt(string, excerpt));
    snprintf(out, size, "%s", string);
    return TRIREME_OK;
}

static trireme_status manifest_parse(const json_t *root, const char *where, struct token_manifest *m,
                                     trireme_error *error) {
    char format[32], excerpt[JSON_EXCERPT_BYTES];
    const json_t *tokenizer;
    int64_t version;
    TRY(read_string(root, where, "format", format, sizeof format, error));
    if (strcmp(format, FORMAT_NAME) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"format\" is %s, expected \"%s\"", where, json_excerpt(format, excerpt),
             FORMAT_NAME);
    TRY(json_read_integer(root, where, "version", JSON_REQUIRED, VERSION, VERSION_MASKED, &version, error));
    TRY(json_read_boolean(root, where, "masked", JSON_OPTIONAL, &m->masked, error));
    TRY(json_read_object(root, where, "tokenizer", JSON_REQUIRED, &tokenizer, error));
    TRY(read_string(tokenizer, where, "kind", m->tokenizer_kind, sizeof m->tokenizer_kind, error));
    TRY(read_string(tokenizer, where, "checksum", m->tokenizer_checksum, sizeof m->tokenizer_checksum, error));
    TRY(json_read_integer(tokenizer, where, "vocab_size", JSON_REQUIRED, 1, INT32_MAX, &m->vocab_size, error));
    TRY(json_read_integer(root, where, "tokens", JSON_REQUIRED, 1, INT64_MAX, &m->tokens, error));
    TRY(json_read_integer(root, where, "documents", JSON_REQUIRED, 1, INT64_MAX, &m->documents, error));
    return json_read_integer(root, where, "text_bytes", JSON_REQUIRED, 0, INT64_MAX, &m->text_bytes, error);
}

trireme_status token_manifest_read(const char *path, int64_t tokens, struct token_manifest *out, bool *found,
                                   trireme_error *error) {
    char *prefix = token_prefix(path), *file = mem_printf("%s.json", prefix);
    free(prefix);
    json_t *root = NULL;
    struct token_manifest m = {0};
    trireme_status status = TRIREME_OK;
    bool exists = !file_missing(file);
    if (exists) {
        status = json_parse_file(file, FILE_LIMIT, &root, error);
        if (status == TRIREME_OK)
            status = manifest_parse(root, file, &m, error);
        if (status == TRIREME_OK && m.tokens != tokens)
            status = error_set(error, TRIREME_ERROR_CORRUPT,
                               "%s: tells of %" PRId64 " tokens, but the token files hold %" PRId64
                               ": it belongs to other files, prepare them again",
                               file, m.tokens, tokens);
    }
    if (status == TRIREME_OK) {
        *found = exists;
        if (exists)
            *out = m;
    }
    json_decref(root);
    free(file);
    return status;
}

trireme_status token_manifest_of_set(const struct token_set *set, struct token_manifest *out, bool *found,
                                     trireme_error *error) {
    struct token_manifest first = {0};
    bool first_has = false;
    const char *first_path = token_set_shard_path(set, 0);
    for (size_t i = 0; i < token_set_shards(set); i++) {
        const char *path = token_set_shard_path(set, i);
        struct token_manifest m = {0};
        bool has;
        TRY(token_manifest_read(path, token_set_shard_tokens(set, i), &m, &has, error));
        if (i == 0) {
            first = m;
            first_has = has;
        }
        if (has != first_has)
            FAIL(TRIREME_ERROR_USAGE,
                 "%s was made by `trireme prepare`, %s was not: they may be of different tokenizers",
                 has ? path : first_path, has ? first_path : path);
        if (strcmp(m.tokenizer_checksum, first.tokenizer_checksum) != 0 || m.vocab_size != first.vocab_size)
            FAIL(TRIREME_ERROR_USAGE, "%s and %s were made with different tokenizers", first_path, path);
    }
    *found = first_has;
    *out = first;
    return TRIREME_OK;
}

bool token_manifest_recognise(const char *path) {
    json_t *root = NULL;
    if (json_parse_file(path, FILE_LIMIT, &root, NULL) != TRIREME_OK)
        return false;
    const char *format = json_string_value(json_object_get(root, "format"));
    bool ours = format && strcmp(format, FORMAT_NAME) == 0;
    json_decref(root);
    return ours;
}

static trireme_status manifest_load_tokenizer(const struct token_manifest *m, const char *path, struct tokenizer **out,
                                              trireme_error *error) {
    char *prefix = token_prefix(path), *directory = token_file_path(prefix, TOKEN_FILE_TOKENIZER, "");
    char excerpt[JSON_EXCERPT_BYTES];
    trireme_status status =
        file_missing(directory)
            ? error_set(error, TRIREME_ERROR_USAGE,
                        "%s is missing: the tokenizer (%s) of the tokens in %s.bin, which `trireme prepare` put there",
                        directory, json_excerpt(m->tokenizer_kind, excerpt), prefix)
            : tokenizer_load(directory, out, error);
    free(prefix);
    free(directory);
    return status;
}

trireme_status token_manifest_tokenizer(const struct token_manifest *m, const char *path, struct tokenizer **out,
                                        trireme_error *error) {
    const bool alone = m->vocab_size == TOKENIZER_BYTES_ALONE;
    struct tokenizer *t = tokenizer_create_bytes(alone ? TOKENIZER_BYTES_ALONE : TOKENIZER_BYTES_AND_ENDS);
    char checksum[CHECKSUM_HEX], excerpt[JSON_EXCERPT_BYTES];
    if (strcmp(m->tokenizer_kind, tokenizer_kind(t)) != 0) {
        tokenizer_free(t);
        TRY(manifest_load_tokenizer(m, path, &t, error));
    }
    tokenizer_checksum(t, checksum);
    if (strcmp(m->tokenizer_checksum, checksum) == 0 && m->vocab_size == tokenizer_vocab_size(t)) {
        *out = t;
        return TRIREME_OK;
    }
    error_set(error, TRIREME_ERROR_CORRUPT,
              "%s: the tokens were made with another tokenizer of the kind \"%s\": vocabulary %" PRId64
              " and checksum %s, expected %d and %s",
              path, tokenizer_kind(t), m->vocab_size, json_excerpt(m->tokenizer_checksum, excerpt),
              tokenizer_vocab_size(t), checksum);
    tokenizer_free(t);
    return TRIREME_ERROR_CORRUPT;
}
