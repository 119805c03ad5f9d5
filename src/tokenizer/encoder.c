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
    // While a text is encoded: places in it that are still to be found, the first tokens of all, and how many bytes
    // were looked at to find places.
    struct encoder_place *place;
    size_t places, begin, searched;
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

// The text, or what it becomes where it is not UTF-8.
static void encoder_repair(struct encoder *e, const char **text, size_t *length) {
    struct utf8_checker check = {0};
    if (utf8_check(&check, *text, *length) && utf8_finish(&check))
        return;
    e->repaired.length = 0;
    text_add_utf8(&e->repaired, *text, *length);
    *text = e->repaired.text;
    *length = e->repaired.length;
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
// from another part of a document. Adds to *spelt the bytes with which its tokens are spelt. `out` may be NULL: then
// they are only counted.
static trireme_status encoder_add_part(struct encoder *e, const char *text, size_t length, bool first, bool continues,
                                       struct token_list *out, size_t *spelt, trireme_error *error) {
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
            *spelt += part.end - part.begin;
            if (out)
                VEC_PUSH(out, part.id);
            continue;
        }
        pieces_clear(&e->pieces);
        TRY(pre_tokenizer_cut(t->pre_tokenizer, e->work, text + part.begin, part.end - part.begin,
                              first && part.begin == 0, &e->pieces, error));
        *spelt += e->pieces.bytes.length;
        if (out)
            TRY(encoder_add_pieces(e, out, error));
    }
    return TRIREME_OK;
}

// ---- places

// Text between tokens of the raw text, all of whose tokens were appended from `first` on.
struct placed_part {
    const char *text;
    size_t begin, end; // in the raw text
    size_t first;
    size_t spelt;
    bool plain; // tokens lie one after the other in the raw text as it is
};

// How many bytes a token is spelt with.
static size_t encoder_spelt(const struct encoder *e, const struct placed_part *part, int32_t token) {
    const struct tokenizer *t = e->t;
    if (part->plain)
        return (size_t)t->text_bytes[token];
    const struct added_token *added = added_tokens_find_id(t->added, token);
    if (added)
        return added->normalized ? added->normal_length : added->length;
    const json_t *model = json_object_get(t->parts.description, "model");
    const struct token_bytes spelling = token_table_token(t->parts.tokens, token);
    return json_is_true(json_object_get(model, "byte_fallback")) && token_spells_byte(spelling) ? 1 : spelling.length;
}

// Whether the tokens of a part stand for its bytes one after the other, or else for those with which it is spelt.
static trireme_status encoder_check_part(const struct encoder *e, struct placed_part *part,
                                         const struct token_list *out, trireme_error *error) {
    const size_t length = part->end - part->begin;
    const bool same = !e->t->normalizer ||
                      (e->normal.length == length && memcmp(e->normal.text, part->text + part->begin, length) == 0);
    size_t bytes = 0, spelt = 0;
    for (size_t i = part->first; i < out->count; i++)
        bytes += (size_t)e->t->text_bytes[out->item[i]];
    part->plain = same && bytes == length;
    for (size_t i = part->first; i < out->count && !part->plain; i++)
        spelt += encoder_spelt(e, part, out->item[i]);
    if (!part->plain && spelt != part->spelt)
        FAIL(TRIREME_ERROR_USAGE, "it cannot be told where in the text tokens lie: the tokenizer lacks characters");
    return TRIREME_OK;
}

// Where a token of a part lies, from the part's beginning, in the bytes with which its tokens are spelt.
struct placed_token {
    size_t begin, end; // without white space, where offsets are trimmed
    size_t next;       // where the next token begins
};

// How many bytes of white space token[0, length) begins with, or ends with. Byte-level tokens have a character of their
// own for the space, which is one byte of a plain part. `least`: so many characters of it stay.
static size_t white_bytes(const struct placed_part *part, struct token_bytes token, bool last, int least) {
    static const char SPACE[] = "\xC4\xA0"; // U+0120
    const uint8_t *categories = unicode_categories();
    size_t white = 0;
    for (size_t begin = 0, end = token.length, bytes; begin < end;) {
        size_t at = last ? end - 1 : begin;
        while (last && at > 0 && ((uint8_t)token.bytes[at] & 0xC0) == 0x80)
            at--;
        const uint32_t code = unicode_decode(token.bytes + at, &bytes);
        const bool space = bytes == 2 && memcmp(token.bytes + at, SPACE, 2) == 0;
        if (!space && !unicode_is(categories, code, UNICODE_WHITE_SPACE))
            break;
        if (least-- <= 0)
            white += space && part->plain ? 1 : bytes;
        *(last ? &end : &begin) = last ? at : at + bytes;
    }
    return white;
}

// A token that takes the bytes from `at` to `end` and is written as `bytes`, without its white space.
static struct placed_token encoder_trim(const struct encoder *e, const struct placed_part *part,
                                        struct token_bytes bytes, size_t at, size_t end) {
    const bool keeps = e->t->trims_offsets == TRIMS_ALL_BUT_FIRST && at == 0 && part->begin == 0;
    const size_t begin = MIN(end, at + white_bytes(part, bytes, false, keeps));
    return (struct placed_token){begin, MAX(begin, end - MIN(end, white_bytes(part, bytes, true, 0))), end};
}

static struct placed_token encoder_place_token(const struct encoder *e, const struct placed_part *part, int32_t token,
                                               size_t at) {
    const size_t end = at + encoder_spelt(e, part, token);
    if (!e->t->trims_offsets)
        return (struct placed_token){at, end, end};
    const struct added_token *added = added_tokens_find_id(e->t->added, token);
    const struct token_bytes bytes = added ? (struct token_bytes){added->content, (uint32_t)added->length}
                                           : token_table_token(e->t->parts.tokens, token);
    return encoder_trim(e, part, bytes, at, end);
}

// Finds the places in a part that was encoded, and at its end. What comes before a place is spelt by itself to count
// its bytes.
static trireme_status encoder_find_places(struct encoder *e, struct placed_part *part, const struct token_list *out,
                                          trireme_error *error) {
    static const size_t SEARCHED_MAX = (size_t)1 << 30;
    size_t ended = part->first, begun = part->first; // tokens so far
    size_t ended_at = 0, begun_at = 0;               // where the next one begins
    TRY(encoder_check_part(e, part, out, error));
    for (; e->places && e->place->at <= part->end; e->place++, e->places--) {
        const size_t before = e->place->at - part->begin;
        const bool measured = !part->plain && e->place->at < part->end;
        size_t to = measured ? 0 : part->plain ? before : part->spelt;
        if (measured) {
            e->searched += before;
            if (e->searched > SEARCHED_MAX)
                FAIL(TRIREME_ERROR_USAGE, "the text is too long to find places in it");
            TRY(encoder_add_part(e, part->text + part->begin, before, part->begin == 0, false, NULL, &to, error));
        }
        for (; ended < out->count && encoder_place_token(e, part, out->item[ended], ended_at).end <= to; ended++)
            ended_at = encoder_place_token(e, part, out->item[ended], ended_at).next;
        for (; begun < out->count && encoder_place_token(e, part, out->item[begun], begun_at).begin < to; begun++)
            begun_at = encoder_place_token(e, part, out->item[begun], begun_at).next;
        e->place->ended = ended - e->begin;
        e->place->begun = begun - e->begin;
    }
    return TRIREME_OK;
}

// Fills in the places in a part that is one token of the raw text, perhaps with white space that it takes.
static void encoder_pass_token(struct encoder *e, const struct placed_part *part) {
    const struct token_bytes bytes = {part->text + part->begin, (uint32_t)(part->end - part->begin)};
    const struct placed_token token = e->t->trims_offsets ? encoder_trim(e, part, bytes, 0, bytes.length)
                                                          : (struct placed_token){0, bytes.length, bytes.length};
    for (; e->places && e->place->at < part->end; e->place++, e->places--) {
        const size_t at = e->place->at - part->begin;
        e->place->ended = part->first - e->begin + (token.end <= at);
        e->place->begun = part->first - e->begin + (token.begin < at);
    }
}

// Fills in the places up to `at`, before which tokens are complete.
static void encoder_pass_places(struct encoder *e, size_t at, const struct token_list *out) {
    for (; e->places && e->place->at <= at; e->place++, e->places--)
        e->place->ended = e->place->begun = out->count - e->begin;
}

static void encoder_add_bytes(const char *text, size_t length, struct token_list *out) {
    VEC_RESERVE(out, out->count + length);
    for (size_t i = 0; i < length; i++)
        out->item[out->count++] = (uint8_t)text[i];
}

static trireme_status encoder_add_text(struct encoder *e, const char *text, size_t length, bool begins,
                                       struct token_list *out, trireme_error *error) {
    e->parts.count = 0;
    added_tokens_cut(e->t->added, false, text, length, &e->parts);
    for (size_t i = 0; i < e->parts.count; i++) {
        const struct added_part part = e->parts.item[i];
        struct placed_part placed = {.text = text, .begin = part.begin, .end = part.end, .first = out->count};
        const bool at_start = part.begin == 0;
        encoder_pass_places(e, part.begin, out);
        if (part.id >= 0) {
            VEC_PUSH(out, part.id);
            encoder_pass_token(e, &placed);
            continue;
        }
        if (e->t->type == TOKENIZER_BYTES)
            encoder_add_bytes(text + part.begin, part.end - part.begin, out);
        else
            TRY(encoder_add_part(e, text + part.begin, part.end - part.begin, begins && at_start, !begins && at_start,
                                 out, &placed.spelt, error));
        if (e->places && e->place->at <= part.end)
            TRY(encoder_find_places(e, &placed, out, error));
    }
    encoder_pass_places(e, length, out);
    return TRIREME_OK;
}

trireme_status encoder_encode_part(struct encoder *e, const char *text, size_t length, struct encoder_part part,
                                   enum encoder_specials specials, struct token_list *out, trireme_error *error) {
    const struct tokenizer *t = e->t;
    if (length > TEXT_MAX)
        FAIL(TRIREME_ERROR_USAGE, "a text of %zu bytes is too long to be encoded at once, at most %zu", length,
             TEXT_MAX);
    if (t->type != TOKENIZER_BYTES)
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

trireme_status encoder_encode_places(struct encoder *e, const char *text, size_t length, enum encoder_specials specials,
                                     struct encoder_place *place, size_t count, struct token_list *out,
                                     trireme_error *error) {
    e->place = place;
    e->places = count;
    e->begin = out->count;
    e->searched = 0;
    trireme_status status = encoder_encode(e, text, length, specials, out, error);
    e->places = 0;
    return status;
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

// Of bytes everything is a seam, but the beginning of an added token, or the whole of one, at the end: what follows
// tells whether it is one, and whether it ends the text.
static size_t encoder_seam_of_bytes(const struct encoder *e, const char *text, size_t length) {
    const struct added_tokens *added = e->t->added;
    size_t held = 0; // bytes at the end
    for (size_t i = 0; i < added_tokens_count(added); i++) {
        const struct added_token *token = added_tokens_at(added, i);
        for (size_t part = MIN(token->length, length); part > held; part--)
            if (memcmp(text + length - part, token->content, part) == 0)
                held = part;
    }
    return length - held;
}

size_t encoder_seam(struct encoder *e, const char *text, size_t length) {
    if (e->t->type == TOKENIZER_BYTES)
        return encoder_seam_of_bytes(e, text, length);
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
