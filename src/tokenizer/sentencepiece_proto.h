// What a .model file of sentencepiece says: a protobuf message ModelProto, whose fields sentencepiece_model.proto of
// that library describes. Of training it keeps what decides how text is encoded.
#ifndef TOKENIZER_SENTENCEPIECE_PROTO_H
#define TOKENIZER_SENTENCEPIECE_PROTO_H

#include "base/base.h"

// The numbers are the file's.
enum sentencepiece_type {
    SENTENCEPIECE_NORMAL = 1,
    SENTENCEPIECE_UNKNOWN,
    SENTENCEPIECE_CONTROL,      // <s>: no text becomes it
    SENTENCEPIECE_USER_DEFINED, // wherever it stands in a text, it is one token
    SENTENCEPIECE_UNUSED,
    SENTENCEPIECE_BYTE, // <0x0A>
};
enum sentencepiece_kind { SENTENCEPIECE_UNIGRAM = 1, SENTENCEPIECE_BPE, SENTENCEPIECE_WORD, SENTENCEPIECE_CHAR };

// Bytes inside the file, not NUL-terminated.
struct sentencepiece_string {
    const char *bytes;
    size_t length;
};

struct sentencepiece {
    struct sentencepiece_string text; // UTF-8, not empty, no NUL in it
    float score;                      // finite
    enum sentencepiece_type type;
};

struct sentencepiece_proto {
    VEC(struct sentencepiece) pieces; // the index is the id
    int32_t unknown;                  // the id of the one piece of that type
    enum sentencepiece_kind kind;
    bool byte_fallback; // then there is a piece for each of the 256 bytes
    bool whitespace_as_suffix;
    struct sentencepiece_string unknown_surface; // the text that the unknown piece becomes
    struct sentencepiece_string bos, eos, pad;   // pieces, which need not be there
    struct sentencepiece_string charsmap;        // empty: characters stay as they are
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
};

// Whether a file looks like one: it begins with a piece (which begins with its text), as all that are written do.
bool sentencepiece_proto_is(const char *bytes, size_t length);
// Reads a file, of which *out borrows `bytes`. CORRUPT names what is wrong, as the library would refuse it; USAGE what
// is not supported: unused pieces, rules for text that is decoded, kinds that are neither Unigram nor BPE. Nothing to
// release after an error.
trireme_status sentencepiece_proto_read(struct sentencepiece_proto *out, const char *bytes, size_t length,
                                        const char *where, trireme_error *error);
void sentencepiece_proto_release(struct sentencepiece_proto *proto);
// The piece with this text that is of type CONTROL; -1: there is none.
int32_t sentencepiece_proto_control(const struct sentencepiece_proto *proto, struct sentencepiece_string text);
// The byte that a piece such as <0x0A> spells; -1: none.
int sentencepiece_byte(struct sentencepiece_string text);

#endif
