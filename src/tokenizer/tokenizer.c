#include "tokenizer/tokenizer_internal.h"

#include "base/utf8.h"
#include "tokenizer/byte_characters.h"

enum { BYTE_COUNT = 256 };

static const char *const KINDS[] = {
    [TOKENIZER_BYTES] = "bytes", [TOKENIZER_BPE] = "BPE", [TOKENIZER_UNIGRAM] = "Unigram"};

void tokenizer_free(struct tokenizer *t) {
    if (!t)
        return;
    bpe_free(t->bpe);
    unigram_free(t->unigram);
    normalizer_free(t->normalizer);
    pre_tokenizer_free(t->pre_tokenizer);
    decoder_free(t->decoder);
    added_tokens_free(t->added);
    token_template_release(&t->template);
    tokenizer_parts_release(&t->parts);
    tokenizer_files_release(&t->files);
    free(t->chat_template);
    free(t->text_bytes);
    free(t);
}

const char *tokenizer_kind(const struct tokenizer *t) {
    return KINDS[t->type];
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) {
    return t->vocab_size;
}

int32_t tokenizer_bos(const struct tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t) {
    return t->eos;
}

const char *tokenizer_chat_template(const struct tokenizer *t) {
    return t->chat_template;
}

const struct tokenizer_parts *tokenizer_parts_of(const struct tokenizer *t) {
    return &t->parts;
}

const struct added_tokens *tokenizer_added(const struct tokenizer *t) {
    return t->added;
}

const struct token_template *tokenizer_template(const struct tokenizer *t) {
    return &t->template;
}

// ---- making

// Whether a part of the description has this type.
static bool type_is(const json_t *part, const char *type) {
    const char *value = json_string_value(json_object_get(part, "type"));
    return value && strcmp(value, type) == 0;
}

// The name of the model's type. Old files have none.
static const char *tokenizer_model_type(const struct tokenizer_parts *parts) {
    const json_t *model = json_object_get(parts->description, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    return type ? type : parts->scores.count ? "Unigram" : parts->merges.count ? "BPE" : "";
}

static trireme_status tokenizer_make_model(struct tokenizer *t, const char *where, trireme_error *error) {
    const char *type = tokenizer_model_type(&t->parts);
    char excerpt[JSON_EXCERPT_BYTES];
    if (strcmp(type, KINDS[TOKENIZER_BPE]) == 0) {
        t->type = TOKENIZER_BPE;
        return bpe_create(&t->bpe, &t->parts, where, error);
    }
    if (strcmp(type, KINDS[TOKENIZER_UNIGRAM]) == 0) {
        t->type = TOKENIZER_UNIGRAM;
        return unigram_create(&t->unigram, &t->parts, where, error);
    }
    FAIL(TRIREME_ERROR_USAGE, "%s: its model is of the type %s; BPE and Unigram are supported", where,
         *type ? json_excerpt(type, excerpt) : "unknown");
}

// The id of a token; -1: there is none.
static int32_t tokenizer_find(const struct tokenizer *t, const char *token) {
    const struct added_token *added = added_tokens_find(t->added, token);
    return added ? added->id : token_table_find(t->parts.tokens, token, strlen(token));
}

static trireme_status tokenizer_name_special(const struct tokenizer *t, const char *token, const char *what,
                                             const char *where, int32_t *out, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    *out = token ? tokenizer_find(t, token) : -1;
    if (token && *out < 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the \"%s\" of its configuration, %s, is not in its vocabulary", where, what,
             json_excerpt(token, excerpt));
    return TRIREME_OK;
}

// A token in tokenizer_config.json: its text, or an object that has it; NULL: none.
static const char *config_token(const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

// What begins and ends texts: by name in tokenizer_config.json or in the file, or else what the template has there. If
// tokenizer_config.json says whether to add them, `transformers` takes that instead of the template.
static trireme_status tokenizer_find_ends(struct tokenizer *t, const json_t *config, const char *where,
                                          trireme_error *error) {
    const char *bos = config ? config_token(config, "bos_token") : t->parts.bos,
               *eos = config ? config_token(config, "eos_token") : t->parts.eos;
    const json_t *add_bos = json_object_get(config, "add_bos_token"),
                 *add_eos = json_object_get(config, "add_eos_token");
    TRY(tokenizer_name_special(t, bos, "bos_token", where, &t->bos, error));
    TRY(tokenizer_name_special(t, eos, "eos_token", where, &t->eos, error));
    if (!config && !t->parts.bos)
        t->bos = token_template_first(&t->template);
    if (!config && !t->parts.eos)
        t->eos = token_template_last(&t->template);
    if (!json_is_boolean(add_bos) && !json_is_boolean(add_eos))
        return TRIREME_OK;
    t->template.steps.count = 0;
    if (json_is_true(add_bos) && t->bos >= 0)
        VEC_PUSH(&t->template.steps, t->bos);
    VEC_PUSH(&t->template.steps, TEMPLATE_TEXT);
    if (json_is_true(add_eos) && t->eos >= 0)
        VEC_PUSH(&t->template.steps, t->eos);
    return TRIREME_OK;
}

static void tokenizer_find_trimming(struct tokenizer *t, const json_t *processor) {
    const json_t *processors = json_object_get(processor, "processors");
    if ((type_is(processor, "ByteLevel") || type_is(processor, "RobertaProcessing")) &&
        !json_is_false(json_object_get(processor, "trim_offsets")))
        t->trims_offsets =
            json_is_false(json_object_get(processor, "add_prefix_space")) ? TRIMS_ALL : TRIMS_ALL_BUT_FIRST;
    for (size_t i = 0; i < json_array_size(processors); i++)
        tokenizer_find_trimming(t, json_array_get(processors, i));
}

// A text, or a list of named ones, of which "default" counts.
static void tokenizer_take_chat_template(struct tokenizer *t, const json_t *config) {
    const json_t *template = json_object_get(config, "chat_template");
    const char *text = json_string_value(template);
    for (size_t i = 0; i < json_array_size(template); i++) {
        const json_t *one = json_array_get(template, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            text = json_string_value(json_object_get(one, "template"));
    }
    if (text)
        t->chat_template = mem_strdup(text);
}

// Whether tokens are exactly the bytes, with nothing around them.
static bool tokenizer_is_bytes(const struct tokenizer *t) {
    const struct tokenizer_parts *p = &t->parts;
    const json_t *split = json_object_get(p->description, "pre_tokenizer"),
                 *model = json_object_get(p->description, "model");
    if (t->type != TOKENIZER_BPE || p->merges.count || token_table_size(p->tokens) != BYTE_COUNT || t->normalizer ||
        added_tokens_count(t->added) || t->template.steps.count != 1)
        return false;
    for (int b = 0; b < BYTE_COUNT; b++) {
        char character[BYTE_CHARACTER_UTF8_MAX];
        if (token_table_find(p->tokens, character, byte_character_write((uint8_t)b, character)) != b)
            return false;
    }
    const char *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix")),
               *suffix = json_string_value(json_object_get(model, "end_of_word_suffix"));
    return type_is(split, "ByteLevel") && json_is_false(json_object_get(split, "add_prefix_space")) &&
           type_is(json_object_get(p->description, "decoder"), "ByteLevel") && !(prefix && *prefix) &&
           !(suffix && *suffix);
}

static trireme_status tokenizer_make(struct tokenizer *t, const json_t *config, const char *where,
                                     trireme_error *error) {
    const json_t *d = t->parts.description;
    const char *version = "1.0";
    TRY(json_read_string(d, where, "version", JSON_OPTIONAL, &version, error));
    if (strcmp(version, "1.0") != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: \"version\" must be \"1.0\"", where);
    TRY(tokenizer_make_model(t, where, error));
    TRY(normalizer_create(&t->normalizer, json_object_get(d, "normalizer"), where, error));
    TRY(pre_tokenizer_create(&t->pre_tokenizer, json_object_get(d, "pre_tokenizer"), where, error));
    TRY(decoder_create(&t->decoder, json_object_get(d, "decoder"), where, error));
    TRY(added_tokens_create(&t->added, json_object_get(d, "added_tokens"), t->parts.tokens, t->normalizer, where,
                            error));
    const size_t added = added_tokens_count(t->added);
    t->vocab_size = token_table_size(t->parts.tokens);
    if (added)
        t->vocab_size = MAX(t->vocab_size, added_tokens_at(t->added, added - 1)->id + 1);
    if (t->vocab_size == 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"model.vocab\" has no token", where);
    TRY(token_template_create(&t->template, json_object_get(d, "post_processor"), t->vocab_size, where, error));
    TRY(tokenizer_find_ends(t, config, where, error));
    tokenizer_take_chat_template(t, config);
    tokenizer_find_trimming(t, json_object_get(d, "post_processor"));
    if (tokenizer_is_bytes(t))
        t->type = TOKENIZER_BYTES;
    t->text_bytes = tokenizer_measure(t);
    return TRIREME_OK;
}

trireme_status tokenizer_create(struct tokenizer **out, struct tokenizer_parts *parts, const json_t *config,
                                const char *where, trireme_error *error) {
    struct tokenizer *t = mem_alloc(sizeof *t);
    t->parts = *parts;
    *parts = (struct tokenizer_parts){0};
    trireme_status status = tokenizer_make(t, config, where, error);
    if (status == TRIREME_OK)
        *out = t;
    else
        tokenizer_free(t);
    return status;
}

// ---- the byte tokenizer

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

struct tokenizer *tokenizer_create_bytes(void) {
    // Every special token is null: a byte tokenizer has none, and the default of a class would become a 257th entry.
    static const char CONFIG[] = "{\n"
                                 "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                 "  \"add_prefix_space\": false,\n"
                                 "  \"clean_up_tokenization_spaces\": false,\n"
                                 "  \"bos_token\": null,\n"
                                 "  \"eos_token\": null,\n"
                                 "  \"unk_token\": null,\n"
                                 "  \"pad_token\": null\n"
                                 "}\n";
    struct tokenizer *t = NULL;
    struct tokenizer_parts parts;
    struct text json = {0};
    trireme_error error;
    byte_tokenizer_json(&json);
    CHECK(tokenizer_parts_parse(&parts, json.text, json.length, "bytes", &error) == TRIREME_OK);
    CHECK(tokenizer_create(&t, &parts, NULL, "bytes", &error) == TRIREME_OK && t->type == TOKENIZER_BYTES);
    tokenizer_files_add(&t->files, "tokenizer.json", json.text, json.length);
    tokenizer_files_add(&t->files, "tokenizer_config.json", mem_strdup(CONFIG), sizeof CONFIG - 1);
    return t;
}

// ---- what tells tokenizers apart

static void sum_number(struct checksum *sum, uint32_t number) {
    const uint8_t bytes[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16),
                              (uint8_t)(number >> 24)};
    checksum_add(sum, bytes, sizeof bytes);
}

static void sum_bytes(struct checksum *sum, const char *bytes, size_t length) {
    sum_number(sum, (uint32_t)length);
    checksum_add(sum, bytes, length);
}

// A part of the description, however it is written. What concerns offsets into the text does not count.
static void sum_description(struct checksum *sum, const json_t *part) {
    json_t *copy = part ? json_deep_copy(part) : json_null();
    json_object_del(copy, "trim_offsets");
    char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    sum_bytes(sum, text ? text : "", text ? strlen(text) : 0);
    free(text);
    json_decref(copy);
}

static void sum_model(struct checksum *sum, const struct tokenizer *t) {
    const struct tokenizer_parts *p = &t->parts;
    const json_t *model = json_object_get(p->description, "model");
    static const char *const SETTINGS[] = {"unk_token",     "unk_id",        "continuing_subword_prefix", "fuse_unk",
                                           "byte_fallback", "ignore_merges", "end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_LENGTH(SETTINGS); i++) {
        const json_t *value = json_object_get(model, SETTINGS[i]);
        sum_description(sum, json_is_false(value) ? NULL : value); // absent: null, or false
    }
    sum_number(sum, (uint32_t)token_table_size(p->tokens));
    for (int32_t id = 0; id < token_table_size(p->tokens); id++) {
        const struct token_bytes token = token_table_token(p->tokens, id);
        sum_number(sum, token.bytes != NULL);
        sum_bytes(sum, token.bytes, token.length);
    }
    sum_number(sum, (uint32_t)p->merges.count);
    sum_number(sum, (uint32_t)p->ranks.count);
    for (size_t i = 0; i < p->merges.count; i++) {
        sum_number(sum, (uint32_t)p->merges.item[i].left);
        sum_number(sum, (uint32_t)p->merges.item[i].right);
    }
    for (size_t i = 0; i < p->ranks.count; i++)
        sum_number(sum, (uint32_t)p->ranks.item[i]);
    sum_number(sum, p->float_scores);
    sum_number(sum, (uint32_t)p->scores.count);
    checksum_add(sum, p->scores.item, p->scores.count * sizeof *p->scores.item);
}

static void sum_added(struct checksum *sum, const struct added_tokens *added) {
    sum_number(sum, (uint32_t)added_tokens_count(added));
    for (size_t i = 0; i < added_tokens_count(added); i++) {
        const struct added_token *t = added_tokens_at(added, i);
        const bool flags[] = {t->single_word, t->lstrip, t->rstrip, t->normalized};
        sum_number(sum, (uint32_t)t->id);
        sum_bytes(sum, t->content, t->length);
        for (size_t k = 0; k < ARRAY_LENGTH(flags); k++)
            sum_number(sum, flags[k]);
    }
}

void tokenizer_checksum(const struct tokenizer *t, char hex[CHECKSUM_HEX]) {
    struct checksum sum;
    checksum_begin(&sum);
    if (t->type == TOKENIZER_BYTES) {
        for (int byte = 0; byte < BYTE_COUNT; byte++) {
            const char c = (char)byte;
            sum_bytes(&sum, &c, 1);
        }
    } else {
        sum_bytes(&sum, KINDS[t->type], strlen(KINDS[t->type]));
        sum_description(&sum, json_object_get(t->parts.description, "normalizer"));
        sum_description(&sum, json_object_get(t->parts.description, "pre_tokenizer"));
        sum_model(&sum, t);
        sum_added(&sum, t->added);
        sum_number(&sum, (uint32_t)t->template.steps.count);
        for (size_t i = 0; i < t->template.steps.count; i++)
            sum_number(&sum, (uint32_t)t->template.steps.item[i]);
    }
    checksum_end(&sum, hex);
}

// ---- decoding

static trireme_status tokenizer_check_tokens(const struct tokenizer *t, const int32_t *tokens, size_t count,
                                             trireme_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!added_tokens_find_id(t->added, tokens[i]) && !token_table_token(t->parts.tokens, tokens[i]).bytes)
            FAIL(TRIREME_ERROR_USAGE, "token %d at index %zu is not in the tokenizer's vocabulary of %d", tokens[i], i,
                 t->vocab_size);
    return TRIREME_OK;
}

trireme_status tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t count, bool special,
                                struct text *out, trireme_error *error) {
    TRY(tokenizer_check_tokens(t, tokens, count, error));
    struct pieces pieces = {0};
    for (size_t i = 0; i < count; i++) {
        const struct added_token *added = added_tokens_find_id(t->added, tokens[i]);
        const struct token_bytes token = token_table_token(t->parts.tokens, tokens[i]);
        if (t->type == TOKENIZER_BYTES) {
            const char byte = (char)tokens[i];
            text_add_bytes(out, &byte, 1);
        } else if (!added) {
            pieces_add(&pieces, token.bytes, token.length);
        } else if (special || !added->special) {
            pieces_add(&pieces, added->normal ? added->normal : added->content,
                       added->normal ? added->normal_length : added->length);
        }
    }
    decoder_apply(t->decoder, &pieces, out);
    pieces_release(&pieces);
    return TRIREME_OK;
}

int64_t tokenizer_token_bytes(const struct tokenizer *t, int32_t token) {
    CHECK(token >= 0 && token < t->vocab_size);
    return t->text_bytes[token];
}
