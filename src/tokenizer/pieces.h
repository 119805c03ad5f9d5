// Text that was cut into pieces, one after the other.
#ifndef TOKENIZER_PIECES_H
#define TOKENIZER_PIECES_H

#include "base/text.h"

// Zero-initialise; pieces_release frees.
struct pieces {
    struct text bytes; // of all pieces
    VEC(size_t) end;   // of each piece, where it ends in `bytes`
};

static inline size_t pieces_begin(const struct pieces *p, size_t i) {
    return i ? p->end.item[i - 1] : 0;
}

static inline void pieces_add(struct pieces *p, const char *bytes, size_t length) {
    text_add_bytes(&p->bytes, bytes, length);
    VEC_PUSH(&p->end, p->bytes.length);
}

static inline void pieces_clear(struct pieces *p) {
    p->bytes.length = p->end.count = 0;
}

static inline void pieces_release(struct pieces *p) {
    text_release(&p->bytes);
    VEC_RELEASE(&p->end);
}

#endif
