#include "tokenizer/sentencepiece_proto.h"

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/protobuf.h"

#include <math.h>

enum { PIECE_BYTES_MAX = 8000 }; // as in the library

// A message being read. `read` takes each of its fields.
struct proto_reading {
    struct sentencepiece_proto *proto;
    const char *where;
};
typedef trireme_status proto_field(const struct proto_reading *r, struct protobuf *message,
                                   const struct protobuf_field *field, trireme_error *error);

static trireme_status message_read(const struct proto_reading *r, struct protobuf message, proto_field *read,
                                   trireme_error *error) {
    for (;;) {
        struct protobuf_field field;
        bool more;
        TRY(protobuf_next(&message, &field, &more, r->where, error));
        if (!more)
            return TRIREME_OK;
        TRY(read(r, &message, &field, error));
    }
}

// What of a message is kept, one row for each field; the others are skipped.
enum member_kind { MEMBER_BOOL, MEMBER_STRING, MEMBER_FLOAT, MEMBER_ENUM };
struct proto_member {
    uint32_t number;
    enum member_kind kind;
    size_t offset; // in the structure that is filled
    int most;      // the largest number of MEMBER_ENUM; the least is 1
    const char *name;
};

static enum protobuf_wire member_wire(enum member_kind kind) {
    return kind == MEMBER_STRING ? PROTOBUF_BYTES : kind == MEMBER_FLOAT ? PROTOBUF_32_BITS : PROTOBUF_VARINT;
}

static trireme_status member_read(const struct proto_member *table, size_t count, void *structure, const char *where,
                                  const struct protobuf_field *field, trireme_error *error) {
    for (size_t i = 0; i < count; i++) {
        const struct proto_member *m = &table[i];
        void *at = (char *)structure + m->offset;
        if (m->number != field->number)
            continue;
        if (member_wire(m->kind) != field->wire)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %zu: the type of the field %s is not that of sentencepiece", where,
                 field->position, m->name);
        if (m->kind == MEMBER_BOOL)
            *(bool *)at = field->value != 0;
        else if (m->kind == MEMBER_FLOAT)
            *(float *)at = protobuf_float(field);
        else if (m->kind == MEMBER_STRING)
            *(struct sentencepiece_string *)at = (struct sentencepiece_string){field->bytes, field->length};
        else if (field->value >= 1 && field->value <= (uint64_t)m->most)
            *(int *)at = (int)field->value;
        else
            FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %zu: %s is %llu, which is not known", where, field->position, m->name,
                 (unsigned long long)field->value);
    }
    return TRIREME_OK;
}

static const struct proto_member PIECE[] = {
    {1, MEMBER_STRING, offsetof(struct sentencepiece, text), 0, "piece"},
    {2, MEMBER_FLOAT, offsetof(struct sentencepiece, score), 0, "score"},
    {3, MEMBER_ENUM, offsetof(struct sentencepiece, type), SENTENCEPIECE_BYTE, "type"},
};
static const struct proto_member TRAINER[] = {
    {3, MEMBER_ENUM, offsetof(struct sentencepiece_proto, kind), SENTENCEPIECE_CHAR, "model_type"},
    {24, MEMBER_BOOL, offsetof(struct sentencepiece_proto, whitespace_as_suffix), 0, "treat_whitespace_as_suffix"},
    {35, MEMBER_BOOL, offsetof(struct sentencepiece_proto, byte_fallback), 0, "byte_fallback"},
    {44, MEMBER_STRING, offsetof(struct sentencepiece_proto, unknown_surface), 0, "unk_surface"},
    {46, MEMBER_STRING, offsetof(struct sentencepiece_proto, bos), 0, "bos_piece"},
    {47, MEMBER_STRING, offsetof(struct sentencepiece_proto, eos), 0, "eos_piece"},
    {48, MEMBER_STRING, offsetof(struct sentencepiece_proto, pad), 0, "pad_piece"},
};
static const struct proto_member NORMALIZER[] = {
    {2, MEMBER_STRING, offsetof(struct sentencepiece_proto, charsmap), 0, "precompiled_charsmap"},
    {3, MEMBER_BOOL, offsetof(struct sentencepiece_proto, add_dummy_prefix), 0, "add_dummy_prefix"},
    {4, MEMBER_BOOL, offsetof(struct sentencepiece_proto, remove_extra_whitespaces), 0, "remove_extra_whitespaces"},
    {5, MEMBER_BOOL, offsetof(struct sentencepiece_proto, escape_whitespaces), 0, "escape_whitespaces"},
};

static trireme_status piece_field(const struct proto_reading *r, struct protobuf *message,
                                  const struct protobuf_field *field, trireme_error *error) {
    (void)message;
    struct sentencepiece *piece = &r->proto->pieces.item[r->proto->pieces.count - 1];
    return member_read(PIECE, ARRAY_LENGTH(PIECE), piece, r->where, field, error);
}

static trireme_status trainer_field(const struct proto_reading *r, struct protobuf *message,
                                    const struct protobuf_field *field, trireme_error *error) {
    (void)message;
    return member_read(TRAINER, ARRAY_LENGTH(TRAINER), r->proto, r->where, field, error);
}

static trireme_status normalizer_field(const struct proto_reading *r, struct protobuf *message,
                                       const struct protobuf_field *field, trireme_error *error) {
    (void)message;
    return member_read(NORMALIZER, ARRAY_LENGTH(NORMALIZER), r->proto, r->where, field, error);
}

// Rules for text that is decoded: the same message as that of the normalizer.
static trireme_status denormalizer_field(const struct proto_reading *r, struct protobuf *message,
                                         const struct protobuf_field *field, trireme_error *error) {
    (void)message;
    if (field->number == 2 && field->length)
        FAIL(TRIREME_ERROR_USAGE,
             "%s: it changes the characters of decoded text (denormalizer_spec), which is not "
             "supported",
             r->where);
    return TRIREME_OK;
}

static trireme_status model_field(const struct proto_reading *r, struct protobuf *message,
                                  const struct protobuf_field *field, trireme_error *error) {
    static proto_field *const READ[] = {NULL, piece_field, trainer_field, normalizer_field, NULL, denormalizer_field};
    if (field->number >= ARRAY_LENGTH(READ) || !READ[field->number])
        return TRIREME_OK;
    if (field->wire != PROTOBUF_BYTES)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %zu: field %u is no message, as it is in a model of sentencepiece",
             r->where, field->position, field->number);
    if (READ[field->number] == piece_field)
        VEC_PUSH(&r->proto->pieces, (struct sentencepiece){.type = SENTENCEPIECE_NORMAL});
    return message_read(r, protobuf_inside(message, field), READ[field->number], error);
}

int sentencepiece_byte(struct sentencepiece_string text) {
    static const char DIGITS[] = "0123456789ABCDEF";
    if (text.length != 6 || memcmp(text.bytes, "<0x", 3) != 0 || text.bytes[5] != '>')
        return -1;
    const char *high = memchr(DIGITS, text.bytes[3], 16), *low = memchr(DIGITS, text.bytes[4], 16);
    return high && low ? (int)(16 * (high - DIGITS) + (low - DIGITS)) : -1;
}

static bool piece_is_text(struct sentencepiece_string text) {
    uint32_t code;
    size_t step;
    for (size_t i = 0; i < text.length; i += step)
        if (!(step = utf8_decode(text.bytes + i, text.length - i, &code)) || !code)
            return false;
    return text.length > 0;
}

// One piece, after all has been read; `bytes` collects which bytes there are.
static trireme_status piece_check(struct sentencepiece_proto *proto, int32_t id, bool bytes[256], const char *where,
                                  trireme_error *error) {
    const struct sentencepiece *piece = &proto->pieces.item[id];
    char shown[JSON_EXCERPT_BYTES];
    if (!piece_is_text(piece->text) || piece->text.length >= PIECE_BYTES_MAX)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: piece %d is no UTF-8 text of 1 to %d bytes without NUL", where, id,
             PIECE_BYTES_MAX - 1);
    json_excerpt_bytes(piece->text.bytes, piece->text.length, shown);
    if (!isfinite(piece->score))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the score of piece %d, %s, is not finite", where, id, shown);
    if (piece->type == SENTENCEPIECE_UNUSED)
        FAIL(TRIREME_ERROR_USAGE, "%s: piece %d, %s, is marked as unused, which is not supported", where, id, shown);
    if (piece->type == SENTENCEPIECE_UNKNOWN) {
        if (proto->unknown >= 0)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: pieces %d and %d are both the unknown piece", where, proto->unknown, id);
        proto->unknown = id;
    }
    if (piece->type == SENTENCEPIECE_BYTE) {
        const int byte = sentencepiece_byte(piece->text);
        if (byte < 0 || !proto->byte_fallback)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: piece %d, %s, is said to be a byte, %s", where, id, shown,
                 byte < 0 ? "and spells none" : "and the model uses no bytes (byte_fallback)");
        bytes[byte] = true;
    }
    return TRIREME_OK;
}

static trireme_status proto_check(struct sentencepiece_proto *proto, const char *where, trireme_error *error) {
    static const char *const KINDS[] = {"", "Unigram", "BPE", "WORD", "CHAR"};
    bool bytes[256] = {false};
    if (!proto->pieces.count || proto->pieces.count >= INT32_MAX)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: no model of sentencepiece: it has %zu pieces", where, proto->pieces.count);
    if (proto->kind > SENTENCEPIECE_BPE)
        FAIL(TRIREME_ERROR_USAGE, "%s: a model of type %s; only Unigram and BPE are supported", where,
             KINDS[proto->kind]);
    for (int32_t id = 0; id < (int32_t)proto->pieces.count; id++)
        TRY(piece_check(proto, id, bytes, where, error));
    if (proto->unknown < 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: none of its pieces is the unknown piece", where);
    for (int byte = 0; byte < 256 && proto->byte_fallback; byte++)
        if (!bytes[byte])
            FAIL(TRIREME_ERROR_CORRUPT, "%s: it falls back to bytes, and has no piece for byte <0x%02X>", where, byte);
    return TRIREME_OK;
}

bool sentencepiece_proto_is(const char *bytes, size_t length) {
    struct protobuf file = protobuf_of_file(bytes, length);
    struct protobuf_field piece, text;
    bool more;
    if (protobuf_next(&file, &piece, &more, "", NULL) != TRIREME_OK || !more || piece.number != 1 ||
        piece.wire != PROTOBUF_BYTES)
        return false;
    struct protobuf inside = protobuf_inside(&file, &piece);
    return protobuf_next(&inside, &text, &more, "", NULL) == TRIREME_OK && more && text.number == 1 &&
           text.wire == PROTOBUF_BYTES && text.length > 0;
}

trireme_status sentencepiece_proto_read(struct sentencepiece_proto *out, const char *bytes, size_t length,
                                        const char *where, trireme_error *error) {
#define STRING(text) ((struct sentencepiece_string){text, sizeof text - 1})
    *out = (struct sentencepiece_proto){.unknown = -1,
                                        .kind = SENTENCEPIECE_UNIGRAM,
                                        .unknown_surface = STRING(" \xE2\x81\x87 "),
                                        .bos = STRING("<s>"),
                                        .eos = STRING("</s>"),
                                        .pad = STRING("<pad>"),
                                        .add_dummy_prefix = true,
                                        .remove_extra_whitespaces = true,
                                        .escape_whitespaces = true};
#undef STRING
    const struct proto_reading reading = {out, where};
    trireme_status status = message_read(&reading, protobuf_of_file(bytes, length), model_field, error);
    if (status == TRIREME_OK)
        status = proto_check(out, where, error);
    if (status != TRIREME_OK)
        sentencepiece_proto_release(out);
    return status;
}

void sentencepiece_proto_release(struct sentencepiece_proto *proto) {
    VEC_RELEASE(&proto->pieces);
}

int32_t sentencepiece_proto_control(const struct sentencepiece_proto *proto, struct sentencepiece_string text) {
    for (int32_t id = 0; id < (int32_t)proto->pieces.count; id++) {
        const struct sentencepiece *piece = &proto->pieces.item[id];
        if (piece->type == SENTENCEPIECE_CONTROL && piece->text.length == text.length &&
            memcmp(piece->text.bytes, text.bytes, text.length) == 0)
            return id;
    }
    return -1;
}
