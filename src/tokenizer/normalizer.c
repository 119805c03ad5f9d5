// Each type of normalizer is made of a few steps, each of which makes a new text of the one before.
#include "tokenizer/normalizer.h"

#include "tokenizer/byte_characters.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/pattern.h"
#include "tokenizer/step_types.h"
#include "tokenizer/text_work_parts.h"
#include "tokenizer/unicode.h"

struct normal_step {
    // Appends what becomes of text[0, length). May stop where *out is longer than work->limit.
    trireme_status (*apply)(const struct normal_step *s, struct text_work *work, const char *text, size_t length,
                            struct text *out, trireme_error *error);
    // Of steps that go character by character: appends what becomes of one. Then there is no `apply`.
    void (*map)(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out);
    enum normal_form form;
    uint32_t categories;       // are removed
    bool left, right;          // ends at which white space is removed
    struct pattern *pattern;   // replaced
    char *content;             // by, or put in front
    struct charsmap *charsmap; // rules
    bool seams;                // normalizer_has_seams, of `apply`
};

struct normalizer {
    VEC(struct normal_step);
};

// ---- steps

static trireme_status apply_form(const struct normal_step *s, struct text_work *work, const char *text, size_t length,
                                 struct text *out, trireme_error *error) {
    (void)error;
    normal_form_add(s->form, work, text, length, out);
    return TRIREME_OK;
}

static trireme_status apply_prepend(const struct normal_step *s, struct text_work *work, const char *text,
                                    size_t length, struct text *out, trireme_error *error) {
    (void)work, (void)error;
    if (length)
        text_add_bytes(out, s->content, strlen(s->content));
    text_add_bytes(out, text, length);
    return TRIREME_OK;
}

static trireme_status apply_replace(const struct normal_step *s, struct text_work *work, const char *text,
                                    size_t length, struct text *out, trireme_error *error) {
    work->spans.count = 0;
    TRY(pattern_find(s->pattern, work, text, length, &work->spans, error));
    const size_t bytes = strlen(s->content);
    size_t start = 0;
    for (size_t i = 0; i < work->spans.count && out->length <= work->limit; i++) {
        const struct span *span = &work->spans.item[i];
        if (span->match)
            text_add_bytes(out, s->content, bytes);
        else
            text_add_bytes(out, text + start, span->end - start);
        start = span->end;
    }
    return TRIREME_OK;
}

static trireme_status apply_strip(const struct normal_step *s, struct text_work *work, const char *text, size_t length,
                                  struct text *out, trireme_error *error) {
    (void)work, (void)error;
    const uint8_t *categories = unicode_categories();
    size_t first = 0, end = length, bytes;
    while (s->left && first < end && unicode_is(categories, unicode_decode(text + first, &bytes), UNICODE_WHITE_SPACE))
        first += bytes;
    while (s->right && end > first) {
        size_t last = end - 1;
        while (last > first && ((unsigned char)text[last] & 0xC0) == 0x80)
            last--;
        if (!unicode_is(categories, unicode_decode(text + last, &bytes), UNICODE_WHITE_SPACE))
            break;
        end = last;
    }
    text_add_bytes(out, text + first, end - first);
    return TRIREME_OK;
}

static trireme_status apply_charsmap(const struct normal_step *s, struct text_work *work, const char *text,
                                     size_t length, struct text *out, trireme_error *error) {
    (void)error;
    charsmap_add(s->charsmap, text, length, work->limit, out);
    return TRIREME_OK;
}

static trireme_status apply_spell(const struct normal_step *s, struct text_work *work, const char *text, size_t length,
                                  struct text *out, trireme_error *error) {
    (void)s, (void)work, (void)error;
    byte_characters_spell(text, length, out);
    return TRIREME_OK;
}

static void map_lower(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out) {
    (void)s, (void)categories;
    uint32_t second;
    unicode_add(out, unicode_lower(code, &second));
    if (second)
        unicode_add(out, second);
}

static void map_without(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out) {
    if (!unicode_is(categories, code, s->categories))
        unicode_add(out, code);
}

struct code_range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t code, const struct code_range *range, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (code >= range[i].first && code <= range[i].last)
            return true;
    return false;
}

// The rules of sentencepiece's "nmt", as `tokenizers` has them.
static void map_nmt(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out) {
    (void)s, (void)categories;
    static const struct code_range REMOVED[] = {{0x01, 0x08}, {0x0B, 0x0B}, {0x0E, 0x1F},
                                                {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
    static const struct code_range SPACES[] = {{0x09, 0x0A},     {0x0C, 0x0D},     {0x1680, 0x1680}, {0x200B, 0x200F},
                                               {0x2028, 0x2029}, {0x2581, 0x2581}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
    if (!in_ranges(code, REMOVED, ARRAY_LENGTH(REMOVED)))
        unicode_add(out, in_ranges(code, SPACES, ARRAY_LENGTH(SPACES)) ? ' ' : code);
}

// BERT's cleaning (Devlin et al. 2018, tokenization.py): without controls, all white space a space.
static void map_clean(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out) {
    (void)s;
    if (unicode_is(categories, code, UNICODE_WHITE_SPACE) && code != 0x0B && code != 0x0C && code != 0x85)
        unicode_add(out, ' ');
    else if (code && code != 0xFFFD && !unicode_is(categories, code, UNICODE_OTHERS))
        unicode_add(out, code);
}

static void map_chinese(const struct normal_step *s, const uint8_t *categories, uint32_t code, struct text *out) {
    (void)s, (void)categories;
    // U+2B920 is `tokenizers`' number, where BERT has U+2B820.
    static const struct code_range CHINESE[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                                {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    bool chinese = code >= CHINESE[0].first && in_ranges(code, CHINESE, ARRAY_LENGTH(CHINESE));
    if (chinese)
        unicode_add(out, ' ');
    unicode_add(out, code);
    if (chinese)
        unicode_add(out, ' ');
}

// ---- types: each adds its steps

static struct normal_step *add_step(struct normalizer *n, struct normal_step s) {
    VEC_PUSH(n, s);
    return &n->item[n->count - 1];
}

static trireme_status read_prepend(struct normalizer *n, const json_t *step, const char *where, trireme_error *error) {
    const char *content;
    TRY(json_read_string(step, where, "prepend", JSON_REQUIRED, &content, error));
    add_step(n, (struct normal_step){.apply = apply_prepend, .content = mem_strdup(content), .seams = true});
    return TRIREME_OK;
}

static trireme_status read_replace(struct normalizer *n, const json_t *step, const char *where, trireme_error *error) {
    const char *content;
    TRY(json_read_string(step, where, "content", JSON_REQUIRED, &content, error));
    struct normal_step *s = add_step(n, (struct normal_step){.apply = apply_replace, .content = mem_strdup(content)});
    TRY(pattern_create(&s->pattern, json_object_get(step, "pattern"), where, error));
    s->seams = pattern_is_character(s->pattern);
    return TRIREME_OK;
}

static trireme_status read_strip(struct normalizer *n, const json_t *step, const char *where, trireme_error *error) {
    struct normal_step *s = add_step(n, (struct normal_step){.apply = apply_strip});
    TRY(json_read_boolean(step, where, "strip_left", JSON_REQUIRED, &s->left, error));
    return json_read_boolean(step, where, "strip_right", JSON_REQUIRED, &s->right, error);
}

// Two members are ours, for models of sentencepiece; `tokenizers` passes them over. "longest": rules are applied as
// that library applies them; "kept": texts to which none is applied.
static trireme_status read_precompiled(struct normalizer *n, const json_t *step, const char *where,
                                       trireme_error *error) {
    const char *base64;
    bool longest = false;
    const json_t *kept = NULL, *text;
    size_t i;
    TRY(json_read_string(step, where, "precompiled_charsmap", JSON_REQUIRED, &base64, error));
    TRY(json_read_boolean(step, where, "longest", JSON_OPTIONAL, &longest, error));
    TRY(json_read_array(step, where, "kept", JSON_OPTIONAL, &kept, error));
    struct normal_step *s = add_step(n, (struct normal_step){.apply = apply_charsmap});
    trireme_status status = charsmap_create(&s->charsmap, base64, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", where);
    s->seams = !longest; // a letter and what is behind it are two clusters
    if (longest)
        charsmap_use_longest(s->charsmap);
    json_array_foreach((json_t *)kept, i,
                       text) if (!json_is_string(text) ||
                                 !charsmap_keep(s->charsmap, json_string_value(text), json_string_length(text)))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"kept\": element %zu is no text, or there twice", where, i);
    return TRIREME_OK;
}

static trireme_status read_bert(struct normalizer *n, const json_t *step, const char *where, trireme_error *error) {
    bool clean, chinese, lowercase;
    TRY(json_read_boolean(step, where, "clean_text", JSON_REQUIRED, &clean, error));
    TRY(json_read_boolean(step, where, "handle_chinese_chars", JSON_REQUIRED, &chinese, error));
    TRY(json_read_boolean(step, where, "lowercase", JSON_REQUIRED, &lowercase, error));
    bool strip = lowercase;
    TRY(json_read_boolean(step, where, "strip_accents", JSON_OPTIONAL, &strip, error));
    if (clean)
        add_step(n, (struct normal_step){.map = map_clean});
    if (chinese)
        add_step(n, (struct normal_step){.map = map_chinese});
    if (strip) {
        add_step(n, (struct normal_step){.apply = apply_form, .form = NORMAL_NFD, .seams = true});
        add_step(n, (struct normal_step){.map = map_without, .categories = 1u << CATEGORY_MN});
    }
    if (lowercase)
        add_step(n, (struct normal_step){.map = map_lower});
    return TRIREME_OK;
}

static const struct normalizer_type {
    struct step_type type;
    trireme_status (*read)(struct normalizer *n, const json_t *step, const char *where, trireme_error *error);
    struct normal_step step; // added where there is nothing to read
} NORMALIZER_TYPES[] = {
    {{"NFC", ""}, NULL, {.apply = apply_form, .form = NORMAL_NFC, .seams = true}},
    {{"NFD", ""}, NULL, {.apply = apply_form, .form = NORMAL_NFD, .seams = true}},
    {{"NFKC", ""}, NULL, {.apply = apply_form, .form = NORMAL_NFKC, .seams = true}},
    {{"NFKD", ""}, NULL, {.apply = apply_form, .form = NORMAL_NFKD, .seams = true}},
    {{"Lowercase", ""}, NULL, {.map = map_lower}},
    {{"Prepend", "prepend"}, read_prepend, {0}},
    {{"Replace", "pattern content"}, read_replace, {0}},
    {{"Strip", "strip_left strip_right"}, read_strip, {0}},
    {{"StripAccents", ""}, NULL, {.map = map_without, .categories = UNICODE_MARKS}},
    {{"Nmt", ""}, NULL, {.map = map_nmt}},
    {{"Precompiled", "precompiled_charsmap longest kept"}, read_precompiled, {0}},
    {{"BertNormalizer", "clean_text handle_chinese_chars strip_accents lowercase"}, read_bert, {0}},
    {{"ByteLevel", ""}, NULL, {.apply = apply_spell, .seams = true}},
};
static const struct step_kind NORMALIZERS = {"normalizer", "normalizers", &NORMALIZER_TYPES[0].type,
                                             ARRAY_LENGTH(NORMALIZER_TYPES), sizeof *NORMALIZER_TYPES};

static trireme_status add_normalizer(void *user, size_t row, const json_t *step, const char *where,
                                     trireme_error *error) {
    if (NORMALIZER_TYPES[row].read)
        return NORMALIZER_TYPES[row].read(user, step, where, error);
    add_step(user, NORMALIZER_TYPES[row].step);
    return TRIREME_OK;
}

// ---- the whole

trireme_status normalizer_create(struct normalizer **out, const json_t *description, const char *where,
                                 trireme_error *error) {
    *out = NULL;
    if (!description || json_is_null(description))
        return TRIREME_OK;
    struct normalizer *n = mem_alloc(sizeof *n);
    trireme_status status = steps_read(&NORMALIZERS, description, where, add_normalizer, n, error);
    if (status == TRIREME_OK)
        *out = n;
    else
        normalizer_free(n);
    return status;
}

void normalizer_free(struct normalizer *n) {
    if (!n)
        return;
    for (size_t i = 0; i < n->count; i++) {
        pattern_free(n->item[i].pattern);
        free(n->item[i].content);
        charsmap_free(n->item[i].charsmap);
    }
    VEC_RELEASE(n);
    free(n);
}

trireme_status normalizer_apply(const struct normalizer *n, struct text_work *work, const char *text, size_t length,
                                bool continues, struct text *out, trireme_error *error) {
    if (!n || !n->count) {
        text_add_bytes(out, text, length);
        return TRIREME_OK;
    }
    const uint8_t *categories = unicode_categories();
    const size_t limit = steps_limit(length);
    for (size_t i = 0; i < n->count && length; i++) {
        const struct normal_step *s = &n->item[i];
        const bool last = i + 1 == n->count;
        struct text *to = last ? out : &work->text[i % 2];
        if (!last)
            to->length = 0;
        const size_t begin = to->length;
        work->limit = begin + limit;
        if (continues && s->apply == apply_prepend)
            text_add_bytes(to, text, length);
        else if (s->apply)
            TRY(s->apply(s, work, text, length, to, error));
        else
            for (size_t at = 0, bytes; at < length; at += bytes)
                s->map(s, categories, unicode_decode(text + at, &bytes), to);
        if (to->length > work->limit)
            return steps_refuse_growth(NORMALIZERS.name, error);
        text = to->text;
        length = to->length - begin;
    }
    return TRIREME_OK;
}

bool normalizer_has_seams(const struct normalizer *n) {
    for (size_t i = 0; n && i < n->count; i++)
        if (n->item[i].apply && !n->item[i].seams)
            return false;
    return true;
}
