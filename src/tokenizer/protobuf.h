// Messages of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), read field by field. Nothing is
// copied, and no length is believed before it is known to lie inside the message.
#ifndef TOKENIZER_PROTOBUF_H
#define TOKENIZER_PROTOBUF_H

#include "base/base.h"

// How a field is written.
enum protobuf_wire {
    PROTOBUF_VARINT = 0,
    PROTOBUF_64_BITS = 1,
    PROTOBUF_BYTES = 2, // also strings, and messages inside
    PROTOBUF_32_BITS = 5,
};

struct protobuf_field {
    uint32_t number;
    enum protobuf_wire wire;
    uint64_t value;    // of a number: its bits
    const char *bytes; // of PROTOBUF_BYTES: `length` bytes, inside the message
    size_t length;
    size_t position; // where the field begins in the file, bytes
};

// A message that is being read: bytes [at, end) of a file that begins at `file`.
struct protobuf {
    const char *file, *at, *end;
};

static inline struct protobuf protobuf_of_file(const char *bytes, size_t length) {
    return (struct protobuf){bytes, bytes, bytes + length};
}
// The message that a field of PROTOBUF_BYTES is.
static inline struct protobuf protobuf_inside(const struct protobuf *p, const struct protobuf_field *field) {
    return (struct protobuf){p->file, field->bytes, field->bytes + field->length};
}

// Reads the next field; *more is false after the last one. CORRUPT: what is there is no field; `where` names the file.
trireme_status protobuf_next(struct protobuf *p, struct protobuf_field *out, bool *more, const char *where,
                             trireme_error *error);
// The value of a field of 32 bits.
float protobuf_float(const struct protobuf_field *field);

#endif
