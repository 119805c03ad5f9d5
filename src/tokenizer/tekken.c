// The tokens are nearly all of the file: they are found in the text and read where they stand, as many of them as the
// vocabulary has room for beside the special tokens. The rest becomes trees.
#include "tokenizer/tekken.h"

#include "base/base64.h"
#include "base/json_line.h"
#include "base/utf8.h"
#include "tokenizer/byte_characters.h"
#include "tokenizer/rank_parts.h"

#include <inttypes.h>

// The special tokens of files that name none (versions up to 7), by id.
static const char *const SPECIALS[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
static const char BEGIN[] = "<s>", END[] = "</s>";

struct tekken {
    struct json_part config, vocab, specials; // of the file
    const char *pattern;                      // of `tree`
    json_t *tree;                             // of the config
    int32_t special_count, token_count;
    const char *where;
};

// ---- tokens

// Where an object that begins at `at`, in a text that is JSON, ends.
static const char *object_end(const char *at) {
    for (int depth = 0;; at++) {
        if (*at == '"')
            for (at++; *at != '"'; at++)
                at += *at == '\\';
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (!depth)
            return at + 1;
    }
}

static const char *blanks_end(const char *at) {
    return at + strspn(at, " \t\r\n");
}

// {"rank": 300, "token_bytes": "INA=", "token_str": null}, of which the rank must be `rank`. What is wrong, or NULL.
static const char *token_read(struct json_part object, int32_t rank, struct text *bytes) {
    struct json_wanted wanted[] = {{.key = "rank"}, {.key = "token_bytes"}};
    char digits[16];
    const size_t length = (size_t)snprintf(digits, sizeof digits, "%d", rank);
    if (json_line_find_members(object.text, object.length, 0, wanted, ARRAY_LENGTH(wanted), NULL) != TRIREME_OK)
        return "is no object";
    const struct json_part given = wanted[0].value, spelt = wanted[1].value;
    if (wanted[0].found != 1 || given.length != length || memcmp(given.text, digits, length) != 0)
        return "must have its place, from 0 on, as its \"rank\"";
    bytes->length = 0;
    if (wanted[1].found != 1 || *spelt.text != '"' || !base64_read(spelt.text + 1, spelt.length - 2, bytes) ||
        !bytes->length)
        return "must have its bytes in base64 as its \"token_bytes\"";
    return NULL;
}

static trireme_status token_add(const struct tekken *k, struct tokenizer_parts *parts, int32_t rank,
                                const struct text *spelt, trireme_error *error) {
    bool added;
    const trireme_status status =
        token_table_add(parts->tokens, spelt->text, spelt->length, k->special_count + rank, &added, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s: \"vocab\"", k->where);
    if (!added)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"vocab\": entry %d: the token is there twice", k->where, rank);
    return TRIREME_OK;
}

static trireme_status tokens_read(const struct tekken *k, struct tokenizer_parts *parts, trireme_error *error) {
    struct text bytes = {0}, spelt = {0};
    trireme_status status = TRIREME_OK;
    const char *at = blanks_end(k->vocab.text + 1);
    int32_t rank = 0;
    for (; rank < k->token_count && *at == '{' && status == TRIREME_OK; rank++) {
        const struct json_part object = {at, (size_t)(object_end(at) - at)};
        const char *wrong = token_read(object, rank, &bytes);
        spelt.length = 0;
        byte_characters_spell(bytes.text, bytes.length, &spelt);
        status = wrong ? error_set(error, TRIREME_ERROR_CORRUPT, "%s: \"vocab\": entry %d %s", k->where, rank, wrong)
                       : token_add(k, parts, rank, &spelt, error);
        at = blanks_end(at + object.length);
        at = *at == ',' ? blanks_end(at + 1) : at;
    }
    text_release(&bytes);
    text_release(&spelt);
    if (status == TRIREME_OK && rank < k->token_count)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"vocab\" has %d tokens, and \"config\" asks for %d", k->where, rank,
             k->token_count);
    return status;
}

// ---- special tokens

static trireme_status named_specials_add(const struct tekken *k, const json_t *named, struct tokenizer_parts *parts,
                                         json_t *specials, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < json_array_size(named) && status == TRIREME_OK; i++) {
        const json_t *entry = json_array_get(named, i);
        char *where = mem_printf("%s: \"special_tokens\": entry %zu", k->where, i);
        const char *content;
        int64_t id;
        status = json_read_integer(entry, where, "rank", JSON_REQUIRED, 0, k->special_count - 1, &id, error);
        if (status == TRIREME_OK)
            status = json_read_string(entry, where, "token_str", JSON_REQUIRED, &content, error);
        if (status == TRIREME_OK)
            status = rank_parts_add_special(parts, specials, (int32_t)id, content, where, error);
        free(where);
    }
    return status;
}

// Gives names to the ids that have none.
static trireme_status specials_fill(const struct tekken *k, struct tokenizer_parts *parts, json_t *specials,
                                    trireme_error *error) {
    for (int32_t id = 0; id < k->special_count; id++) {
        char filler[32];
        snprintf(filler, sizeof filler, "<SPECIAL_%d>", id);
        const bool known = !k->specials.text && id < (int32_t)ARRAY_LENGTH(SPECIALS);
        if (!token_table_token(parts->tokens, id).bytes)
            TRY(rank_parts_add_special(parts, specials, id, known ? SPECIALS[id] : filler, k->where, error));
    }
    return TRIREME_OK;
}

static trireme_status specials_add(const struct tekken *k, struct tokenizer_parts *parts, trireme_error *error) {
    json_t *specials = rank_parts_describe(parts, k->pattern, false), *named = NULL;
    char *where = mem_printf("%s: \"special_tokens\"", k->where);
    trireme_status status = TRIREME_OK;
    if (k->specials.text)
        status = json_parse(k->specials.text, k->specials.length, where, &named, error);
    free(where);
    if (status == TRIREME_OK)
        status = named_specials_add(k, named, parts, specials, error);
    if (status == TRIREME_OK)
        status = specials_fill(k, parts, specials, error);
    json_decref(named);
    if (status == TRIREME_OK && token_table_find(parts->tokens, BEGIN, sizeof BEGIN - 1) >= 0)
        parts->bos = mem_strdup(BEGIN);
    if (status == TRIREME_OK && token_table_find(parts->tokens, END, sizeof END - 1) >= 0)
        parts->eos = mem_strdup(END);
    return status;
}

// ---- file

static bool is_of(struct json_part part, char first) {
    return part.text && *part.text == first;
}

bool tekken_is(const char *bytes, size_t length) {
    static const char MEMBER[] = "\"token_bytes\"";
    struct json_wanted wanted[] = {{.key = "config"}, {.key = "vocab"}, {.key = "model"}};
    return bytes[strspn(bytes, " \t\r\n")] == '{' && memmem(bytes, length, MEMBER, sizeof MEMBER - 1) &&
           json_line_find_members(bytes, length, 0, wanted, ARRAY_LENGTH(wanted), NULL) == TRIREME_OK &&
           is_of(wanted[0].value, '{') && is_of(wanted[1].value, '[') && !wanted[2].found;
}

static trireme_status config_read(struct tekken *k, trireme_error *error) {
    char *where = mem_printf("%s: \"config\"", k->where);
    int64_t size = 0, special = 0;
    trireme_status status = json_parse(k->config.text, k->config.length, where, &k->tree, error);
    if (status == TRIREME_OK)
        status = json_read_string(k->tree, where, "pattern", JSON_REQUIRED, &k->pattern, error);
    if (status == TRIREME_OK)
        status = json_read_integer(k->tree, where, "default_vocab_size", JSON_REQUIRED, 1, INT32_MAX, &size, error);
    if (status == TRIREME_OK)
        status = json_read_integer(k->tree, where, "default_num_special_tokens", JSON_REQUIRED, 0, size - 1, &special,
                                   error);
    free(where);
    k->special_count = (int32_t)special;
    k->token_count = (int32_t)(size - special);
    return status;
}

static trireme_status tekken_find(struct tekken *k, const char *bytes, size_t length, trireme_error *error) {
    struct utf8_checker utf8 = {0};
    struct json_wanted wanted[] = {{.key = "config"}, {.key = "vocab"}, {.key = "special_tokens"}};
    if (!utf8_check(&utf8, bytes, length) || !utf8_finish(&utf8))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %" PRId64 ": not UTF-8", k->where, utf8.start);
    const trireme_status status = json_line_find_members(bytes, length, 0, wanted, ARRAY_LENGTH(wanted), error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", k->where);
    for (size_t i = 0; i < ARRAY_LENGTH(wanted); i++)
        if (wanted[i].found > 1)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" is there twice", k->where, wanted[i].key);
    k->config = wanted[0].value;
    k->vocab = wanted[1].value;
    if (is_of(wanted[2].value, '['))
        k->specials = wanted[2].value;
    else if (wanted[2].found && !is_of(wanted[2].value, 'n'))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"special_tokens\" must be an array", k->where);
    if (!is_of(k->vocab, '['))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"vocab\" must be an array", k->where);
    return is_of(k->config, '{')
               ? TRIREME_OK
               : error_set(error, TRIREME_ERROR_CORRUPT, "%s: \"config\" must be an object", k->where);
}

trireme_status tekken_parse(struct tokenizer_parts *out, const char *bytes, size_t length, const char *where,
                            trireme_error *error) {
    struct tekken k = {.where = where};
    TRY(tekken_find(&k, bytes, length, error));
    *out = (struct tokenizer_parts){.tokens = token_table_create()};
    trireme_status status = config_read(&k, error);
    if (status == TRIREME_OK)
        status = tokens_read(&k, out, error);
    if (status == TRIREME_OK)
        status = rank_parts_merge(out, where, error);
    if (status == TRIREME_OK)
        status = specials_add(&k, out, error);
    if (status != TRIREME_OK)
        tokenizer_parts_release(out);
    json_decref(k.tree);
    return status;
}
