#include "tokenizer/tokenizer_internal.h"

#include "base/utf8.h"
#include "tokenizer/step_types.h"

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
    if ((step_type_is(processor, "ByteLevel") || step_type_is(processor, "RobertaProcessing")) &&
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
        for (int byte = 0; byte < TOKENIZER_BYTES_ALONE; byte++) {
            const char c = (char)byte;
            sum_bytes(&sum, &c, 1);
        }
        if (added_tokens_count(t->added))
            sum_added(&sum, t->added);
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
        if (t->type == TOKENIZER_BYTES && (special || !added)) {
            const char byte = (char)tokens[i];
            text_add_bytes(out, added ? added->content : &byte, added ? added->length : 1);
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
