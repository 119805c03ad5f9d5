// Each type of pre-tokenizer is made of a few cuts, which go over all pieces one after the other: a ByteLevel puts a
// space in front, splits, and spells bytes. A sequence is then but a longer chain of cuts.
#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/byte_characters.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/pattern.h"
#include "tokenizer/step_types.h"
#include "tokenizer/text_work_parts.h"
#include "tokenizer/unicode.h"

// What becomes of a match, which parts what lies before it from what lies behind.
enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS };
static const char *const BEHAVIORS[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
// Whether two spans, of which the left one and the right one are matches or not, are one piece.
static const bool JOINED[][2][2] = {
    [SPLIT_REMOVED] = {{false, false}, {false, false}},      [SPLIT_ISOLATED] = {{false, false}, {false, false}},
    [SPLIT_WITH_PREVIOUS] = {{false, true}, {false, false}}, [SPLIT_WITH_NEXT] = {{false, false}, {true, false}},
    [SPLIT_CONTIGUOUS] = {{true, false}, {false, true}},
};

// GPT-2's pattern (Radford et al. 2019).
static const char GPT2_PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// Words and what lies between them and white space. Two characters that join others (U+200C, U+200D) belong to words
// for the library that `tokenizers` has for this one pattern.
static const char WORD_PATTERN[] = "[\\w\\u200c\\u200d]+|[^\\w\\s\\u200c\\u200d]+";

// The pieces that a cut gets.
struct cut_input {
    const char *bytes;
    const size_t *end; // of each
    size_t count;
    bool first; // the first one begins where the text does
};

struct cut {
    // Appends what becomes of the pieces to *out; *first: the first of them begins where the text does.
    trireme_status (*apply)(const struct cut *c, struct text_work *work, const struct cut_input *in, struct pieces *out,
                            bool *first, trireme_error *error);
    struct pattern *pattern;    // split at it,
    uint32_t ascii, categories; // or, where there is none, at characters of these sets
    enum split_behavior behavior;
    bool invert;                        // what does not match counts as a match
    char character[UTF8_BYTES_MAX + 1]; // put in front, or in the place of spaces
    enum metaspace_scheme scheme;
    size_t length; // of pieces, in characters
};

struct pre_tokenizer {
    VEC(struct cut);
};

// ---- cuts

static size_t input_begin(const struct cut_input *in, size_t i) {
    return i ? in->end[i - 1] : 0;
}

// Where nothing is removed, the pieces' bytes are taken over at once, and only their ends are found.
static void split_kept(const struct cut *c, const struct spans *spans, size_t begin, struct pieces *out) {
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *s = &spans->item[i];
        bool joined = i + 1 < spans->count && JOINED[c->behavior][s->match != c->invert][s[1].match != c->invert];
        size_t end = begin + s->end, last = out->end.count ? out->end.item[out->end.count - 1] : 0;
        if (!joined && end > last)
            VEC_PUSH(&out->end, end);
    }
}

static void split_removed(const struct cut *c, const struct spans *spans, const char *text, struct pieces *out) {
    size_t start = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *s = &spans->item[i];
        if (s->match == c->invert && s->end > start)
            pieces_add(out, text + start, s->end - start);
        start = s->end;
    }
}

static trireme_status cut_split(const struct cut *c, struct text_work *work, const struct cut_input *in,
                                struct pieces *out, bool *first, trireme_error *error) {
    struct spans *spans = &work->spans;
    const size_t base = out->bytes.length;
    if (c->behavior != SPLIT_REMOVED)
        text_add_bytes(&out->bytes, in->bytes, input_begin(in, in->count));
    for (size_t i = 0; i < in->count; i++) {
        const size_t begin = input_begin(in, i), length = in->end[i] - begin;
        spans->count = 0;
        if (c->pattern)
            TRY(pattern_find(c->pattern, work, in->bytes + begin, length, spans, error));
        else
            spans_find_categories(in->bytes + begin, length, c->ascii, c->categories, spans);
        if (c->behavior != SPLIT_REMOVED) {
            split_kept(c, spans, base + begin, out);
            continue;
        }
        if (i == 0) // what is removed at the start?
            for (size_t s = 0; s < spans->count && spans->item[s].match != c->invert; s++)
                *first = *first && spans->item[s].end == 0;
        split_removed(c, spans, in->bytes + begin, out);
    }
    return TRIREME_OK;
}

static trireme_status cut_prepend(const struct cut *c, struct text_work *work, const struct cut_input *in,
                                  struct pieces *out, bool *first, trireme_error *error) {
    (void)work, (void)first, (void)error;
    const size_t bytes = strlen(c->character);
    for (size_t i = 0; i < in->count; i++) {
        const size_t begin = input_begin(in, i), length = in->end[i] - begin;
        bool there = length >= bytes && memcmp(in->bytes + begin, c->character, bytes) == 0;
        if (!there && (c->scheme == METASPACE_ALWAYS || (in->first && i == 0)))
            text_add_bytes(&out->bytes, c->character, bytes);
        pieces_add(out, in->bytes + begin, length);
    }
    return TRIREME_OK;
}

static trireme_status cut_replace_spaces(const struct cut *c, struct text_work *work, const struct cut_input *in,
                                         struct pieces *out, bool *first, trireme_error *error) {
    (void)work, (void)first, (void)error;
    const size_t bytes = strlen(c->character);
    for (size_t i = 0; i < in->count; i++) {
        const char *at = in->bytes + input_begin(in, i), *end = in->bytes + in->end[i];
        for (const char *space; (space = memchr(at, ' ', (size_t)(end - at))) != NULL; at = space + 1) {
            text_add_bytes(&out->bytes, at, (size_t)(space - at));
            text_add_bytes(&out->bytes, c->character, bytes);
        }
        pieces_add(out, at, (size_t)(end - at));
    }
    return TRIREME_OK;
}

// Pieces are short: what is spelt is collected over many of them.
static trireme_status cut_spell(const struct cut *c, struct text_work *work, const struct cut_input *in,
                                struct pieces *out, bool *first, trireme_error *error) {
    (void)c, (void)work, (void)first, (void)error;
    char part[1024];
    size_t used = 0, at = 0;
    for (size_t i = 0; i < in->count; i++) {
        for (; at < in->end[i]; at++) {
            if (used > sizeof part - BYTE_CHARACTER_UTF8_MAX) {
                text_add_bytes(&out->bytes, part, used);
                used = 0;
            }
            used += byte_character_write((uint8_t)in->bytes[at], part + used);
        }
        VEC_PUSH(&out->end, out->bytes.length + used);
    }
    text_add_bytes(&out->bytes, part, used);
    return TRIREME_OK;
}

static trireme_status cut_lengths(const struct cut *c, struct text_work *work, const struct cut_input *in,
                                  struct pieces *out, bool *first, trireme_error *error) {
    (void)work, (void)first, (void)error;
    for (size_t i = 0; i < in->count; i++) {
        size_t start = input_begin(in, i), at = start, characters = 0;
        for (size_t bytes; at < in->end[i]; at += bytes) {
            if (characters++ % c->length == 0 && at > start) {
                pieces_add(out, in->bytes + start, at - start);
                start = at;
            }
            unicode_decode(in->bytes + at, &bytes);
        }
        if (at > start)
            pieces_add(out, in->bytes + start, at - start);
    }
    return TRIREME_OK;
}

// ---- types: each adds its cuts

static struct cut *add_cut(struct pre_tokenizer *p, struct cut c) {
    VEC_PUSH(p, c);
    return &p->item[p->count - 1];
}

// A split at characters of some categories.
static void add_category_split(struct pre_tokenizer *p, uint32_t ascii, uint32_t categories,
                               enum split_behavior behavior) {
    add_cut(p, (struct cut){.apply = cut_split, .ascii = ascii, .categories = categories, .behavior = behavior});
}

// Symbols of ASCII count as punctuation.
static void add_punctuation_split(struct pre_tokenizer *p, enum split_behavior behavior) {
    add_category_split(p, UNICODE_PUNCTUATION | UNICODE_SYMBOLS, UNICODE_PUNCTUATION, behavior);
}

static trireme_status add_split(struct pre_tokenizer *p, const char *regex, enum split_behavior behavior, bool invert,
                                trireme_error *error) {
    struct cut *c = add_cut(p, (struct cut){.apply = cut_split, .behavior = behavior, .invert = invert});
    return pattern_create_regex(&c->pattern, regex, error);
}

// Splits at one character, which is not in the way of patterns.
static trireme_status add_character_split(struct pre_tokenizer *p, const char *character, enum split_behavior behavior,
                                          const char *where, trireme_error *error) {
    struct cut *c = add_cut(p, (struct cut){.apply = cut_split, .behavior = behavior});
    json_t *literal = json_pack("{s:s}", "String", character);
    trireme_status status = pattern_create(&c->pattern, literal, where, error);
    json_decref(literal);
    return status;
}

static trireme_status read_byte_level(struct pre_tokenizer *p, const json_t *step, const char *where,
                                      trireme_error *error) {
    bool space = true, use_regex = true, trim;
    TRY(json_read_boolean(step, where, "add_prefix_space", JSON_REQUIRED, &space, error));
    TRY(json_read_boolean(step, where, "trim_offsets", JSON_OPTIONAL, &trim, error)); // of no matter for ids
    TRY(json_read_boolean(step, where, "use_regex", JSON_OPTIONAL, &use_regex, error));
    if (space)
        add_cut(p, (struct cut){.apply = cut_prepend, .character = " "});
    if (use_regex)
        TRY(add_split(p, GPT2_PATTERN, SPLIT_ISOLATED, false, error));
    add_cut(p, (struct cut){.apply = cut_spell});
    return TRIREME_OK;
}

static trireme_status read_split(struct pre_tokenizer *p, const json_t *step, const char *where, trireme_error *error) {
    int behavior;
    struct cut *c = add_cut(p, (struct cut){.apply = cut_split});
    TRY(step_read_word(step, where, "behavior", JSON_REQUIRED, BEHAVIORS, ARRAY_LENGTH(BEHAVIORS), &behavior, error));
    TRY(json_read_boolean(step, where, "invert", JSON_REQUIRED, &c->invert, error));
    c->behavior = (enum split_behavior)behavior;
    return pattern_create(&c->pattern, json_object_get(step, "pattern"), where, error);
}

static trireme_status read_whitespace(struct pre_tokenizer *p, const json_t *step, const char *where,
                                      trireme_error *error) {
    (void)step, (void)where;
    return add_split(p, WORD_PATTERN, SPLIT_REMOVED, true, error);
}

static trireme_status read_whitespace_split(struct pre_tokenizer *p, const json_t *step, const char *where,
                                            trireme_error *error) {
    (void)step, (void)where, (void)error;
    add_category_split(p, UNICODE_WHITE_SPACE, UNICODE_WHITE_SPACE, SPLIT_REMOVED);
    return TRIREME_OK;
}

static trireme_status read_metaspace(struct pre_tokenizer *p, const json_t *step, const char *where,
                                     trireme_error *error) {
    struct metaspace m;
    TRY(metaspace_read(&m, step, where, error));
    struct cut c = {.scheme = m.scheme};
    strcpy(c.character, m.replacement);
    c.apply = cut_replace_spaces;
    add_cut(p, c);
    c.apply = cut_prepend;
    if (m.scheme != METASPACE_NEVER)
        add_cut(p, c);
    return m.split ? add_character_split(p, m.replacement, SPLIT_WITH_NEXT, where, error) : TRIREME_OK;
}

static trireme_status read_digits(struct pre_tokenizer *p, const json_t *step, const char *where,
                                  trireme_error *error) {
    bool single;
    TRY(json_read_boolean(step, where, "individual_digits", JSON_REQUIRED, &single, error));
    add_category_split(p, UNICODE_NUMBERS, UNICODE_NUMBERS, single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
    return TRIREME_OK;
}

static trireme_status read_punctuation(struct pre_tokenizer *p, const json_t *step, const char *where,
                                       trireme_error *error) {
    int behavior = SPLIT_ISOLATED;
    TRY(step_read_word(step, where, "behavior", JSON_OPTIONAL, BEHAVIORS, ARRAY_LENGTH(BEHAVIORS), &behavior, error));
    add_punctuation_split(p, (enum split_behavior)behavior);
    return TRIREME_OK;
}

static trireme_status read_delimiter(struct pre_tokenizer *p, const json_t *step, const char *where,
                                     trireme_error *error) {
    const char *delimiter;
    TRY(step_read_character(step, where, "delimiter", &delimiter, error));
    return add_character_split(p, delimiter, SPLIT_REMOVED, where, error);
}

static trireme_status read_bert(struct pre_tokenizer *p, const json_t *step, const char *where, trireme_error *error) {
    TRY(read_whitespace_split(p, step, where, error));
    add_punctuation_split(p, SPLIT_ISOLATED);
    return TRIREME_OK;
}

static trireme_status read_fixed_length(struct pre_tokenizer *p, const json_t *step, const char *where,
                                        trireme_error *error) {
    int64_t length = 5;
    TRY(json_read_integer(step, where, "length", JSON_OPTIONAL, 1, INT32_MAX, &length, error));
    add_cut(p, (struct cut){.apply = cut_lengths, .length = (size_t)length});
    return TRIREME_OK;
}

static const struct cut_type {
    struct step_type type;
    trireme_status (*read)(struct pre_tokenizer *p, const json_t *step, const char *where, trireme_error *error);
} CUT_TYPES[] = {
    {{"ByteLevel", "add_prefix_space trim_offsets use_regex"}, read_byte_level},
    {{"Split", "pattern behavior invert"}, read_split},
    {{"Whitespace", ""}, read_whitespace},
    {{"WhitespaceSplit", ""}, read_whitespace_split},
    {{"Metaspace", METASPACE_MEMBERS}, read_metaspace},
    {{"Digits", "individual_digits"}, read_digits},
    {{"Punctuation", "behavior"}, read_punctuation},
    {{"CharDelimiterSplit", "delimiter"}, read_delimiter},
    {{"BertPreTokenizer", ""}, read_bert},
    {{"FixedLength", "length"}, read_fixed_length},
};
static const struct step_kind PRE_TOKENIZERS = {"pre_tokenizer", "pretokenizers", &CUT_TYPES[0].type,
                                                ARRAY_LENGTH(CUT_TYPES), sizeof *CUT_TYPES};

static trireme_status add_pre_tokenizer(void *user, size_t row, const json_t *step, const char *where,
                                        trireme_error *error) {
    return CUT_TYPES[row].read(user, step, where, error);
}

// ---- the whole

trireme_status pre_tokenizer_create(struct pre_tokenizer **out, const json_t *description, const char *where,
                                    trireme_error *error) {
    *out = NULL;
    if (!description || json_is_null(description))
        return TRIREME_OK;
    struct pre_tokenizer *p = mem_alloc(sizeof *p);
    trireme_status status = steps_read(&PRE_TOKENIZERS, description, where, add_pre_tokenizer, p, error);
    if (status == TRIREME_OK)
        *out = p;
    else
        pre_tokenizer_free(p);
    return status;
}

void pre_tokenizer_free(struct pre_tokenizer *p) {
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        pattern_free(p->item[i].pattern);
    VEC_RELEASE(p);
    free(p);
}

trireme_status pre_tokenizer_cut(const struct pre_tokenizer *p, struct text_work *work, const char *text, size_t length,
                                 bool first, struct pieces *out, trireme_error *error) {
    if (!length)
        return TRIREME_OK;
    if (!p || !p->count) {
        pieces_add(out, text, length);
        return TRIREME_OK;
    }
    const size_t limit = steps_limit(length);
    struct cut_input in = {.bytes = text, .end = &length, .count = 1, .first = first};
    for (size_t i = 0; i < p->count; i++) {
        struct pieces *to = i + 1 < p->count ? &work->pieces[i % 2] : out;
        if (to != out)
            pieces_clear(to);
        const size_t begin = to->bytes.length;
        TRY(p->item[i].apply(&p->item[i], work, &in, to, &first, error));
        if (to->bytes.length - begin > limit)
            return steps_refuse_growth(PRE_TOKENIZERS.name, error);
        in = (struct cut_input){.bytes = to->bytes.text, .end = to->end.item, .count = to->end.count, .first = first};
    }
    return TRIREME_OK;
}

// ---- seams

static enum pattern_seam cut_seam(const struct cut *c, uint32_t left, uint32_t right) {
    if (c->pattern)
        return pattern_seam(c->pattern, left, right);
    const uint8_t *categories = unicode_categories();
    const bool l = unicode_is(categories, left, left < 0x80 ? c->ascii : c->categories);
    const bool r = unicode_is(categories, right, right < 0x80 ? c->ascii : c->categories);
    return l ? (r ? SEAM_BOTH : SEAM_LEFT) : r ? SEAM_RIGHT : SEAM_WITHIN;
}

static uint32_t last_character(const struct text *t) {
    size_t at = t->length - 1, bytes;
    while (at > 0 && ((uint8_t)t->text[at] & 0xC0) == 0x80)
        at--;
    return unicode_decode(t->text + at, &bytes);
}

// Applies a cut that leaves one piece one piece.
static void seam_spell(const struct cut *c, struct text_work *work, struct text *text) {
    struct pieces *out = &work->pieces[0];
    const struct cut_input in = {.bytes = text->text, .end = &text->length, .count = 1};
    bool first = false;
    pieces_clear(out);
    CHECK(c->apply(c, work, &in, out, &first, NULL) == TRIREME_OK);
    text->length = 0;
    text_add_bytes(text, out->bytes.text, out->bytes.length);
}

enum piece_seam pre_tokenizer_seam(const struct pre_tokenizer *p, struct text_work *work, struct text *left,
                                   struct text *right) {
    for (size_t i = 0; p && i < p->count; i++) {
        const struct cut *c = &p->item[i];
        size_t bytes;
        if (c->apply == cut_replace_spaces || c->apply == cut_spell) {
            seam_spell(c, work, left);
            seam_spell(c, work, right);
            continue;
        }
        // A text that begins with what is put in front gets nothing.
        if (c->apply == cut_prepend) {
            if (c->scheme != METASPACE_FIRST && strncmp(right->text, c->character, strlen(c->character)) != 0)
                return PIECE_SEAM_UNKNOWN;
            continue;
        }
        if (c->apply != cut_split)
            return PIECE_SEAM_UNKNOWN;
        const enum pattern_seam seam = cut_seam(c, last_character(left), unicode_decode(right->text, &bytes));
        const bool l = seam == SEAM_LEFT || seam == SEAM_BOTH, r = seam == SEAM_RIGHT || seam == SEAM_BOTH;
        if (seam == SEAM_UNKNOWN || (seam != SEAM_WITHIN && JOINED[c->behavior][l != c->invert][r != c->invert]))
            return PIECE_SEAM_UNKNOWN;
        if (seam != SEAM_WITHIN)
            return PIECE_SEAM_BETWEEN;
    }
    return PIECE_SEAM_WITHIN;
}
