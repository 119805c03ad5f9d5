#include "tokenizer/encoder.h"

#include "base/utf8.h"
#include "tokenizer/tokenizer_internal.h"
#include "tokenizer/unicode.h"

static const size_t TEXT_MAX = (size_t)1 << 30;

struct encoder {
    const struct tokenizer *t;
    struct text_work *work;
    struct bpe_work bpe;
    struct unigram_work unigram;
    struct text repaired, normal;
    struct text left, right; // of a seam
    struct added_parts parts, normal_parts;
    struct pieces pieces;
};

struct encoder *encoder_create(const struct tokenizer *t) {
    struct encoder *e = mem_alloc(sizeof *e);
    e->t = t;
    if (t->type == TOKENIZER_BYTES)
        return e;
    e->work = text_work_create();
    e->bpe.cache = e->unigram.cache = piece_cache_create();
    return e;
}

void encoder_free(struct encoder *e) {
    if (!e)
        return;
    piece_cache_free(e->bpe.cache);
    bpe_work_release(&e->bpe);
    unigram_work_release(&e->unigram);
    text_work_free(e->work);
    text_release(&e->repaired);
    text_release(&e->normal);
    text_release(&e->left);
    text_release(&e->right);
    VEC_RELEASE(&e->parts);
    VEC_RELEASE(&e->normal_parts);
    pieces_release(&e->pieces);
    free(e);
}

// The number of bytes of the ill-formed sequence that s[0, length) begins with: as many as might begin a character.
static size_t ill_formed_bytes(const char *s, size_t length) {
    size_t count = 1;
    for (; count < length && count < UTF8_BYTES_MAX; count++) {
        struct utf8_checker part = {0};
        if (!utf8_check(&part, s, count + 1))
            break;
    }
    return count;
}

// The text, or what it becomes where it is not UTF-8.
static void encoder_repair(struct encoder *e, const char **text, size_t *length) {
    static const char REPLACEMENT[] = "\xEF\xBF\xBD";
    struct utf8_checker check = {0};
    if (utf8_check(&check, *text, *length) && utf8_finish(&check))
        return;
    struct text *out = &e->repaired;
    out->length = 0;
    for (size_t at = 0; at < *length;) {
        const size_t whole = utf8_prefix(*text + at, *length - at);
        text_add_bytes(out, *text + at, whole);
        at += whole;
        if (at == *length)
            break;
        text_add_bytes(out, REPLACEMENT, sizeof REPLACEMENT - 1);
        at += ill_formed_bytes(*text + at, *length - at);
    }
    *text = out->text;
    *length = out->length;
}

static trireme_status encoder_add_pieces(struct encoder *e, struct token_list *out, trireme_error *error) {
    const struct tokenizer *t = e->t;
    for (size_t i = 0; i < e->pieces.end.count; i++) {
        const size_t begin = pieces_begin(&e->pieces, i);
        const char *piece = e->pieces.bytes.text + begin;
        const size_t length = e->pieces.end.item[i] - begin;
        TRY(t->bpe ? bpe_encode(t->bpe, &e->bpe, piece, length, out, error)
                   : unigram_encode(t->unigram, &e->unigram, piece, length, out, error));
    }
    return TRIREME_OK;
}

// Text between tokens that were found in the raw text. `first`: the whole text begins with it; `continues`: it goes on
// from another part of a document.
static trireme_status encoder_add_part(struct encoder *e, const char *text, size_t length, bool first, bool continues,
                                       struct token_list *out, trireme_error *error) {
    const struct tokenizer *t = e->t;
    if (t->normalizer) {
        e->normal.length = 0;
        TRY(normalizer_apply(t->normalizer, e->work, text, length, continues, &e->normal, error));
        text = e->normal.text ? e->normal.text : "";
        length = e->normal.length;
    }
    e->normal_parts.count = 0;
    added_tokens_cut(t->added, true, text, length, &e->normal_parts);
    for (size_t i = 0; i < e->normal_parts.count; i++) {
        const struct added_part part = e->normal_parts.item[i];
        if (part.id >= 0) {
            VEC_PUSH(out, part.id);
            continue;
        }
        pieces_clear(&e->pieces);
        TRY(pre_tokenizer_cut(t->pre_tokenizer, e->work, text + part.begin, part.end - part.begin,
                              first && part.begin == 0, &e->pieces, error));
        TRY(encoder_add_pieces(e, out, error));
    }
    return TRIREME_OK;
}

static trireme_status encoder_add_text(struct encoder *e, const char *text, size_t length, bool begins,
                                       struct token_list *out, trireme_error *error) {
    e->parts.count = 0;
    added_tokens_cut(e->t->added, false, text, length, &e->parts);
    for (size_t i = 0; i < e->parts.count; i++) {
        const struct added_part part = e->parts.item[i];
        if (part.id >= 0)
            VEC_PUSH(out, part.id);
        else
            TRY(encoder_add_part(e, text + part.begin, part.end - part.begin, begins && part.begin == 0,
                                 !begins && part.begin == 0, out, error));
    }
    return TRIREME_OK;
}

static void encoder_add_bytes(const char *text, size_t length, struct token_list *out) {
    VEC_RESERVE(out, out->count + length);
    for (size_t i = 0; i < length; i++)
        out->item[out->count++] = (uint8_t)text[i];
}

trireme_status encoder_encode_part(struct encoder *e, const char *text, size_t length, struct encoder_part part,
                                   enum encoder_specials specials, struct token_list *out, trireme_error *error) {
    const struct tokenizer *t = e->t;
    if (t->type == TOKENIZER_BYTES) {
        encoder_add_bytes(text, length, out);
        return TRIREME_OK;
    }
    if (length > TEXT_MAX)
        FAIL(TRIREME_ERROR_USAGE, "a text of %zu bytes is too long to be encoded at once, at most %zu", length,
             TEXT_MAX);
    encoder_repair(e, &text, &length);
    const size_t begin = out->count;
    bool after = false; // the text
    for (size_t i = 0; i < t->template.steps.count; i++) {
        const int32_t step = t->template.steps.item[i];
        const bool wanted = specials != ENCODER_TEXT_ALONE && !(specials == ENCODER_PROMPT && after) &&
                            (after ? part.ends : part.begins);
        after |= step == TEMPLATE_TEXT;
        if (step == TEMPLATE_TEXT)
            TRY(encoder_add_text(e, text, length, part.begins, out, error));
        else if (wanted)
            VEC_PUSH(out, step);
    }
    const bool ended = out->count > begin && out->item[out->count - 1] == t->eos;
    if (specials == ENCODER_DOCUMENT && part.ends && t->eos >= 0 && !ended)
        VEC_PUSH(out, t->eos);
    return TRIREME_OK;
}

trireme_status encoder_encode(struct encoder *e, const char *text, size_t length, enum encoder_specials specials,
                              struct token_list *out, trireme_error *error) {
    return encoder_encode_part(e, text, length, (struct encoder_part){true, true}, specials, out, error);
}

// ---- seams

enum { SEAMS_TRIED = 256, NEIGHBOURS_LEAST = 256 };

// The start of the last character before `at`.
static size_t character_start(const char *text, size_t at) {
    at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

// Step by step: no added token is there, in the text or in what the normalizer makes of it; the normalizer makes the
// same of the parts; the pieces end there, or the model makes the same tokens of two pieces as of one.
static bool encoder_seam_holds(struct encoder *e, const char *text, size_t length, size_t at) {
    const struct tokenizer *t = e->t;
    const size_t reach = NEIGHBOURS_LEAST + 4 * added_tokens_reach(t->added);
    size_t begin = at - MIN(at, reach), end = at + MIN(length - at, reach);
    while (begin > 0 && ((uint8_t)text[begin] & 0xC0) == 0x80)
        begin--;
    while (end < length && ((uint8_t)text[end] & 0xC0) == 0x80)
        end++;
    e->left.length = e->right.length = 0;
    if (!normalizer_has_seams(t->normalizer) ||
        normalizer_apply(t->normalizer, e->work, text + begin, at - begin, true, &e->left, NULL) != TRIREME_OK ||
        normalizer_apply(t->normalizer, e->work, text + at, end - at, true, &e->right, NULL) != TRIREME_OK ||
        e->left.length < MIN(at, 1 + added_tokens_reach(t->added)) || e->right.length == 0)
        return false;
    e->normal.length = 0;
    text_add_bytes(&e->normal, e->left.text, e->left.length);
    text_add_bytes(&e->normal, e->right.text, e->right.length);
    if (added_tokens_touch(t->added, false, text, length, at) ||
        added_tokens_touch(t->added, true, e->normal.text, e->normal.length, e->left.length))
        return false;
    const enum piece_seam seam = pre_tokenizer_seam(t->pre_tokenizer, e->work, &e->left, &e->right);
    return seam == PIECE_SEAM_BETWEEN ||
           (seam == PIECE_SEAM_WITHIN && t->bpe && bpe_has_seam(t->bpe, &e->left, &e->right));
}

size_t encoder_seam(struct encoder *e, const char *text, size_t length) {
    if (e->t->type == TOKENIZER_BYTES)
        return length;
    const uint8_t *categories = unicode_categories();
    int tried = 0;
    for (size_t at = utf8_prefix(text, length); at > 1 && tried < SEAMS_TRIED;) {
        const size_t next = at; // behind the space
        at = character_start(text, at);
        if ((text[at] != ' ' && text[at] != '\n') || at == 0 || next == length)
            continue;
        size_t bytes;
        const uint32_t before = unicode_decode(text + character_start(text, at), &bytes),
                       after = unicode_decode(text + next, &bytes);
        if (next + bytes > length || !unicode_is(categories, before, UNICODE_LETTERS) ||
            !unicode_is(categories, after, UNICODE_LETTERS))
            continue;
        if (encoder_seam_holds(e, text, length, at))
            return at;
        tried++;
    }
    return 0;
}
