#include "tokenizer/protobuf.h"

// Seven bits a byte, the lowest first; the highest bit says that another byte follows. False: it is cut short, or has
// more than 64 bits.
static bool varint_read(struct protobuf *p, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && p->at < p->end; shift += 7) {
        const uint64_t byte = (unsigned char)*p->at++;
        if (shift == 63 && byte > 1)
            return false;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

// Little-endian.
static bool fixed_read(struct protobuf *p, size_t bytes, uint64_t *out) {
    if ((size_t)(p->end - p->at) < bytes)
        return false;
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out |= (uint64_t)(unsigned char)p->at[i] << 8 * i;
    p->at += bytes;
    return true;
}

static bool value_read(struct protobuf *p, struct protobuf_field *field) {
    switch (field->wire) {
    case PROTOBUF_VARINT:
        return varint_read(p, &field->value);
    case PROTOBUF_64_BITS:
        return fixed_read(p, 8, &field->value);
    case PROTOBUF_32_BITS:
        return fixed_read(p, 4, &field->value);
    case PROTOBUF_BYTES:
        if (!varint_read(p, &field->value) || field->value > (uint64_t)(p->end - p->at))
            return false;
        field->bytes = p->at;
        field->length = field->value;
        p->at += field->length;
        return true;
    }
    return false; // groups (3 and 4), which nobody writes any more, and what is not defined
}

trireme_status protobuf_next(struct protobuf *p, struct protobuf_field *out, bool *more, const char *where,
                             trireme_error *error) {
    *more = p->at < p->end;
    if (!*more)
        return TRIREME_OK;
    uint64_t tag;
    *out = (struct protobuf_field){.position = (size_t)(p->at - p->file)};
    bool good = varint_read(p, &tag) && tag >> 3 && tag <= UINT32_MAX;
    if (good) {
        out->number = (uint32_t)(tag >> 3);
        out->wire = (enum protobuf_wire)(tag & 7);
        good = value_read(p, out);
    }
    if (!good)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %zu: no field of a protobuf message, or one that is cut short", where,
             out->position);
    return TRIREME_OK;
}

float protobuf_float(const struct protobuf_field *field) {
    const uint32_t bits = (uint32_t)field->value;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
