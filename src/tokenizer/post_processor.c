#include "tokenizer/post_processor.h"

// Of one type: adds its steps to *out. `where` names the description.
struct processor_type {
    const char *name;
    trireme_status (*read)(struct token_template *out, const json_t *description, int32_t vocab_size, const char *where,
                           trireme_error *error);
};

void token_template_release(struct token_template *t) {
    VEC_RELEASE(&t->steps);
}

static bool template_is_bare(const struct token_template *t) {
    return t->steps.count == 1 && t->steps.item[0] == TEMPLATE_TEXT;
}

int32_t token_template_first(const struct token_template *t) {
    return t->steps.count ? t->steps.item[0] : -1;
}

int32_t token_template_last(const struct token_template *t) {
    return t->steps.count ? t->steps.item[t->steps.count - 1] : -1;
}

static trireme_status template_add(struct token_template *t, int64_t id, int32_t vocab_size, const char *where,
                                   trireme_error *error) {
    if (id < 0 || id >= vocab_size)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the special token %lld is not in the vocabulary of %d", where, (long long)id,
             vocab_size);
    VEC_PUSH(&t->steps, (int32_t)id);
    return TRIREME_OK;
}

// Only offsets into the text are its concern.
static trireme_status read_byte_level(struct token_template *out, const json_t *description, int32_t vocab_size,
                                      const char *where, trireme_error *error) {
    (void)description, (void)vocab_size, (void)where, (void)error;
    VEC_PUSH(&out->steps, TEMPLATE_TEXT);
    return TRIREME_OK;
}

// "sep" or "cls" of BERT and RoBERTa: ["</s>", 2].
static trireme_status template_add_pair(struct token_template *t, const json_t *description, const char *key,
                                        int32_t vocab_size, const char *where, trireme_error *error) {
    const json_t *pair = NULL;
    TRY(json_read_array(description, where, key, JSON_REQUIRED, &pair, error));
    const json_t *id = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(id))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" must be a token and its id", where, key);
    return template_add(t, json_integer_value(id), vocab_size, where, error);
}

static trireme_status read_bert(struct token_template *out, const json_t *description, int32_t vocab_size,
                                const char *where, trireme_error *error) {
    TRY(template_add_pair(out, description, "cls", vocab_size, where, error));
    VEC_PUSH(&out->steps, TEMPLATE_TEXT);
    return template_add_pair(out, description, "sep", vocab_size, where, error);
}

static trireme_status template_add_special(struct token_template *t, const json_t *piece, const json_t *specials,
                                           int32_t vocab_size, const char *where, trireme_error *error) {
    const char *name = NULL;
    const json_t *special = NULL, *ids = NULL;
    TRY(json_read_string(piece, where, "id", JSON_REQUIRED, &name, error));
    TRY(json_read_object(specials, where, name, JSON_REQUIRED, &special, error));
    TRY(json_read_array(special, where, "ids", JSON_REQUIRED, &ids, error));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        TRY(template_add(t, json_is_integer(id) ? json_integer_value(id) : -1, vocab_size, where, error));
    }
    return TRIREME_OK;
}

static trireme_status read_template(struct token_template *out, const json_t *description, int32_t vocab_size,
                                    const char *where, trireme_error *error) {
    const json_t *single = NULL, *specials = NULL;
    TRY(json_read_array(description, where, "single", JSON_REQUIRED, &single, error));
    TRY(json_read_object(description, where, "special_tokens", JSON_REQUIRED, &specials, error));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *sequence = json_object_get(piece, "Sequence"),
                     *special = json_object_get(piece, "SpecialToken");
        const char *id = json_string_value(json_object_get(sequence, "id"));
        if (id && strcmp(id, "A") == 0)
            VEC_PUSH(&out->steps, TEMPLATE_TEXT);
        else if (special)
            TRY(template_add_special(out, special, specials, vocab_size, where, error));
        else
            FAIL(TRIREME_ERROR_USAGE, "%s: \"single\" must have SpecialToken and the Sequence A alone", where);
    }
    return TRIREME_OK;
}

static trireme_status read_sequence(struct token_template *out, const json_t *description, int32_t vocab_size,
                                    const char *where, trireme_error *error);

static const struct processor_type TYPES[] = {
    {"ByteLevel", read_byte_level},   {"TemplateProcessing", read_template}, {"BertProcessing", read_bert},
    {"RobertaProcessing", read_bert}, {"Sequence", read_sequence},
};

static trireme_status read_processor(struct token_template *out, const json_t *description, int32_t vocab_size,
                                     const char *where, trireme_error *error) {
    const char *type = NULL;
    char excerpt[JSON_EXCERPT_BYTES];
    TRY(json_read_string(description, where, "type", JSON_REQUIRED, &type, error));
    for (size_t i = 0; i < ARRAY_LENGTH(TYPES); i++)
        if (strcmp(type, TYPES[i].name) == 0)
            return TYPES[i].read(out, description, vocab_size, where, error);
    FAIL(TRIREME_ERROR_USAGE, "%s: the type %s is not supported", where, json_excerpt(type, excerpt));
}

static trireme_status read_sequence(struct token_template *out, const json_t *description, int32_t vocab_size,
                                    const char *where, trireme_error *error) {
    const json_t *processors = NULL;
    TRY(json_read_array(description, where, "processors", JSON_REQUIRED, &processors, error));
    VEC_PUSH(&out->steps, TEMPLATE_TEXT);
    for (size_t i = 0; i < json_array_size(processors); i++) {
        struct token_template next = {0};
        trireme_status status = read_processor(&next, json_array_get(processors, i), vocab_size, where, error);
        // `tokenizers` would take what the first one made for a pair of texts.
        if (status == TRIREME_OK && !template_is_bare(out) && !template_is_bare(&next))
            status = error_set(error, TRIREME_ERROR_USAGE, "%s: a Sequence with two that add tokens is not supported",
                               where);
        if (status != TRIREME_OK || template_is_bare(&next)) {
            token_template_release(&next);
            TRY(status);
        } else {
            token_template_release(out);
            *out = next;
        }
    }
    return TRIREME_OK;
}

trireme_status token_template_create(struct token_template *out, const json_t *description, int32_t vocab_size,
                                     const char *where, trireme_error *error) {
    *out = (struct token_template){0};
    if (!description || json_is_null(description)) {
        VEC_PUSH(&out->steps, TEMPLATE_TEXT);
        return TRIREME_OK;
    }
    char *member = mem_printf("%s: \"post_processor\"", where);
    trireme_status status = read_processor(out, description, vocab_size, member, error);
    free(member);
    if (status != TRIREME_OK)
        token_template_release(out);
    return status;
}
