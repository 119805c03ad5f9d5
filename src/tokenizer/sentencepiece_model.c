#include "tokenizer/sentencepiece_model.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "tokenizer/description.h"
#include "tokenizer/merge_recovery.h"
#include "tokenizer/sentencepiece_proto.h"

#include <math.h>

// U+2581, by which pieces spell a space.
#define SPACE_MARK "\xE2\x96\x81"

// ---- description

// The text of a control piece, which the caller frees; NULL where the model has no such piece.
static char *control_text(const struct sentencepiece_proto *proto, struct sentencepiece_string text) {
    return sentencepiece_proto_control(proto, text) < 0 ? NULL : mem_printf("%.*s", (int)text.length, text.bytes);
}

static json_t *text_json(struct sentencepiece_string text) {
    return json_stringn(text.bytes, text.length);
}

// A step that replaces what a pattern ("Regex", or "String") finds.
static json_t *replace_json(const char *kind, const char *pattern, const char *content) {
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content", content);
}

// The rules for characters, of which none is applied to a piece that the user defined. "longest" and "kept" are ours
// (normalizer.c).
static json_t *charsmap_json(const struct sentencepiece_proto *proto) {
    struct text encoded = {0};
    json_t *kept = json_array();
    for (size_t i = 0; i < proto->pieces.count; i++)
        if (proto->pieces.item[i].type == SENTENCEPIECE_USER_DEFINED)
            json_array_append_new(kept, text_json(proto->pieces.item[i].text));
    base64_add(&encoded, proto->charsmap.bytes, proto->charsmap.length);
    json_t *step = json_pack("{s:s, s:s, s:b, s:o}", "type", "Precompiled", "precompiled_charsmap", encoded.text,
                             "longest", 1, "kept", kept);
    text_release(&encoded);
    return step;
}

// The library reads a text from left to right; the steps do the same one after the other. Spaces at the ends are those
// that rules for characters have left, and at the end also what is spelt as one.
static json_t *normalizer_json(const struct sentencepiece_proto *proto) {
    json_t *steps = json_array();
    const char *space = proto->escape_whitespaces ? SPACE_MARK : " ";
    if (proto->charsmap.length)
        json_array_append_new(steps, charsmap_json(proto));
    if (proto->remove_extra_whitespaces) {
        json_array_append_new(steps, replace_json("Regex", "\\A +", ""));
        json_array_append_new(steps, replace_json("Regex", " {2,}", " "));
    }
    if (proto->escape_whitespaces)
        json_array_append_new(steps, replace_json("String", " ", SPACE_MARK));
    if (proto->remove_extra_whitespaces) {
        char *ends = mem_printf("(?:%s)+\\z", space);
        json_array_append_new(steps, replace_json("Regex", ends, ""));
        free(ends);
    }
    if (proto->add_dummy_prefix && proto->whitespace_as_suffix)
        json_array_append_new(steps, replace_json("Regex", "\\z", space));
    else if (proto->add_dummy_prefix)
        json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", space));
    return description_sequence("normalizers", steps);
}

static int compare_longest(const void *a, const void *b) {
    const struct sentencepiece *x = *(const struct sentencepiece *const *)a,
                               *y = *(const struct sentencepiece *const *)b;
    return COMPARE(y->text.length, x->text.length)
               ?: memcmp(x->text.bytes, y->text.bytes, MIN(x->text.length, y->text.length));
}

// Where pieces were defined by the user, BPE finds them first, the longest at each place, and merges only between them.
static json_t *pre_tokenizer_json(const struct sentencepiece_proto *proto) {
    VEC(const struct sentencepiece *) defined = {0};
    struct text pattern = {0};
    for (size_t i = 0; i < proto->pieces.count; i++)
        if (proto->pieces.item[i].type == SENTENCEPIECE_USER_DEFINED)
            VEC_PUSH(&defined, &proto->pieces.item[i]);
    VEC_SORT(&defined, compare_longest);
    for (size_t i = 0; i < defined.count; i++) {
        const struct sentencepiece_string text = defined.item[i]->text;
        if (i)
            text_add_bytes(&pattern, "|", 1);
        for (size_t k = 0; k < text.length; k++) {
            if (strchr("\\^$.[]|()?*+{}-#&~ \t\n\r\v\f", text.bytes[k]))
                text_add_bytes(&pattern, "\\", 1);
            text_add_bytes(&pattern, text.bytes + k, 1);
        }
    }
    json_t *split = defined.count && proto->kind == SENTENCEPIECE_BPE ? description_split(pattern.text) : json_null();
    text_release(&pattern);
    VEC_RELEASE(&defined);
    return split;
}

enum { BLANKS_MOST = 1 << 30 };

static json_t *decoder_json(const struct sentencepiece_proto *proto) {
    json_t *steps = json_array(), *surface = replace_json("String", "", "");
    json_object_set_new(json_object_get(surface, "pattern"), "String",
                        text_json(proto->pieces.item[proto->unknown].text));
    json_object_set_new(surface, "content", text_json(proto->unknown_surface));
    // Before tokens are put together: others may spell it.
    json_array_append_new(steps, surface);
    if (proto->byte_fallback)
        json_array_append_new(steps, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(steps, json_pack("{s:s}", "type", "Fuse"));
    // A text begins with one blank that was added to it, or, where further ones were removed, with none at all. The
    // surface of an unknown piece keeps its own.
    if (proto->escape_whitespaces && (proto->add_dummy_prefix || proto->remove_extra_whitespaces))
        json_array_append_new(steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", SPACE_MARK, "start",
                                               proto->remove_extra_whitespaces ? BLANKS_MOST : 1, "stop", 0));
    if (proto->escape_whitespaces)
        json_array_append_new(steps, replace_json("String", SPACE_MARK, " "));
    return description_sequence("decoders", steps);
}

static json_t *model_json(const struct sentencepiece_proto *proto, bool defined) {
    if (proto->kind == SENTENCEPIECE_UNIGRAM)
        return json_pack("{s:s, s:i, s:b}", "type", "Unigram", "unk_id", proto->unknown, "byte_fallback",
                         proto->byte_fallback);
    // Pieces that were defined by the user are one token each, without merges that make them.
    return description_bpe(text_json(proto->pieces.item[proto->unknown].text), proto->byte_fallback, defined);
}

static json_t *sentencepiece_describe(const struct sentencepiece_proto *proto) {
    json_t *added = json_array(), *split = pre_tokenizer_json(proto);
    for (int32_t id = 0; id < (int32_t)proto->pieces.count; id++) {
        const struct sentencepiece *piece = &proto->pieces.item[id];
        if (piece->type == SENTENCEPIECE_CONTROL)
            json_array_append_new(added, description_special(id, piece->text.bytes, piece->text.length));
    }
    json_t *model = model_json(proto, !json_is_null(split));
    return description_json(added, normalizer_json(proto), split, decoder_json(proto), model);
}

// ---- merges

static int compare_scores(const void *a, const void *b) {
    const struct sentencepiece *x = *(const struct sentencepiece *const *)a,
                               *y = *(const struct sentencepiece *const *)b;
    return COMPARE(y->score, x->score) ?: COMPARE(x, y);
}

static bool is_character(struct sentencepiece_string text) {
    uint32_t code;
    return utf8_decode(text.bytes, text.length, &code) == text.length;
}

static trireme_status merges_make(const struct sentencepiece_proto *proto, struct tokenizer_parts *out,
                                  const char *where, trireme_error *error) {
    static const uint8_t ROLE[] = {[SENTENCEPIECE_NORMAL] = MERGE_FREE,
                                   [SENTENCEPIECE_UNKNOWN] = MERGE_RESERVED,
                                   [SENTENCEPIECE_CONTROL] = MERGE_RESERVED,
                                   [SENTENCEPIECE_USER_DEFINED] = MERGE_FROZEN,
                                   [SENTENCEPIECE_BYTE] = MERGE_RESERVED};
    const struct sentencepiece *piece = proto->pieces.item;
    const size_t count = proto->pieces.count;
    VEC(const struct sentencepiece *) made = {0};
    uint8_t *role = mem_alloc(count);
    int32_t *order = mem_alloc(count * sizeof *order), *rank = mem_alloc(count * sizeof *rank);
    for (size_t i = 0; i < count; i++) {
        role[i] = ROLE[piece[i].type];
        if (role[i] == MERGE_FREE && !is_character(piece[i].text))
            VEC_PUSH(&made, &piece[i]);
    }
    VEC_SORT(&made, compare_scores);
    for (size_t i = 0; i < made.count; i++) {
        order[i] = (int32_t)(made.item[i] - piece);
        rank[i] = i && made.item[i]->score == made.item[i - 1]->score ? rank[i - 1] : (int32_t)i;
    }
    const struct merge_recovery recovery = {role, order, rank, made.count, where};
    const trireme_status status = merges_recover(&recovery, out, error);
    VEC_RELEASE(&made);
    free(role);
    free(order);
    free(rank);
    return status;
}

// ---- parts

// What the library (0.2.2 and later) takes for the score of a piece. Those that the user defined are preferred to
// others, the longest first, whatever the file says; control pieces, bytes and the unknown piece are not found in a
// text that looks like them.
static double piece_score(const struct sentencepiece *piece) {
    return piece->type == SENTENCEPIECE_NORMAL         ? piece->score
           : piece->type == SENTENCEPIECE_USER_DEFINED ? (float)(0.1 * (double)(piece->text.length - 1))
                                                       : -INFINITY;
}

static trireme_status parts_make(const struct sentencepiece_proto *proto, struct tokenizer_parts *out,
                                 const char *where, trireme_error *error) {
    for (int32_t id = 0; id < (int32_t)proto->pieces.count; id++) {
        const struct sentencepiece *piece = &proto->pieces.item[id];
        bool added;
        TRY(token_table_add(out->tokens, piece->text.bytes, piece->text.length, id, &added, error));
        if (!added) {
            char shown[JSON_EXCERPT_BYTES];
            FAIL(TRIREME_ERROR_CORRUPT, "%s: piece %d, %s, is there twice", where, id,
                 json_excerpt_bytes(piece->text.bytes, piece->text.length, shown));
        }
        if (proto->kind == SENTENCEPIECE_UNIGRAM)
            VEC_PUSH(&out->scores, piece_score(piece));
    }
    if (proto->kind == SENTENCEPIECE_UNIGRAM)
        return TRIREME_OK;
    return merges_make(proto, out, where, error);
}

bool sentencepiece_model_is(const char *bytes, size_t length) {
    return sentencepiece_proto_is(bytes, length);
}

trireme_status sentencepiece_model_parse(struct tokenizer_parts *out, const char *bytes, size_t length,
                                         const char *where, trireme_error *error) {
    struct sentencepiece_proto proto;
    TRY(sentencepiece_proto_read(&proto, bytes, length, where, error));
    *out = (struct tokenizer_parts){.tokens = token_table_create(), .float_scores = true};
    const trireme_status status = parts_make(&proto, out, where, error);
    if (status == TRIREME_OK) {
        out->description = sentencepiece_describe(&proto);
        out->bos = control_text(&proto, proto.bos);
        out->eos = control_text(&proto, proto.eos);
    } else {
        tokenizer_parts_release(out);
    }
    sentencepiece_proto_release(&proto);
    return status;
}
