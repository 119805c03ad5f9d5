#include "tokenizer/piece_counts.h"

#include "base/xxh3.h"

enum { SLOTS_LEAST = 1 << 12 };

// The slot of a piece, or the free one where it goes. The high half of the hash says where to begin, the low half tells
// pieces apart.
static uint32_t *piece_slot(const struct piece_counts *c, uint64_t hash, const char *piece, size_t length) {
    const size_t mask = c->slots.count - 1;
    for (size_t at = (size_t)(hash >> 32) & mask;; at = (at + 1) & mask) {
        uint32_t *slot = &c->slots.item[at];
        if (!*slot)
            return slot;
        const struct piece_count *p = &c->pieces.item[*slot - 1];
        if (p->tag == (uint32_t)hash && p->length == length && memcmp(c->bytes.item + p->begin, piece, length) == 0)
            return slot;
    }
}

static uint64_t piece_hash(const struct piece_counts *c, const struct piece_count *p) {
    return xxh3_of(c->bytes.item + p->begin, p->length);
}

static void piece_counts_grow(struct piece_counts *c) {
    const size_t count = MAX(2 * c->slots.count, (size_t)SLOTS_LEAST);
    free(c->slots.item);
    c->slots.item = mem_alloc(count * sizeof *c->slots.item);
    c->slots.count = c->slots.capacity = count;
    for (size_t i = 0; i < c->pieces.count; i++) {
        size_t at = (size_t)(piece_hash(c, &c->pieces.item[i]) >> 32) & (count - 1);
        while (c->slots.item[at])
            at = (at + 1) & (count - 1);
        c->slots.item[at] = (uint32_t)(i + 1);
    }
}

void piece_counts_add(struct piece_counts *c, const char *piece, size_t length, uint64_t count) {
    if (2 * (c->pieces.count + 1) > c->slots.count)
        piece_counts_grow(c);
    const uint64_t hash = xxh3_of(piece, length);
    uint32_t *slot = piece_slot(c, hash, piece, length);
    if (*slot) {
        c->pieces.item[*slot - 1].count += count;
        return;
    }
    CHECK(c->pieces.count < UINT32_MAX && length < UINT32_MAX);
    VEC_PUSH(&c->pieces, (struct piece_count){count, c->bytes.count, (uint32_t)length, (uint32_t)hash});
    *slot = (uint32_t)c->pieces.count;
    VEC_RESERVE(&c->bytes, c->bytes.count + length);
    memcpy(c->bytes.item + c->bytes.count, piece, length);
    c->bytes.count += length;
}

void piece_counts_add_all(struct piece_counts *c, const struct piece_counts *other) {
    for (size_t i = 0; i < other->pieces.count; i++) {
        const struct piece_count *p = &other->pieces.item[i];
        piece_counts_add(c, other->bytes.item + p->begin, p->length, p->count);
    }
}

void piece_counts_release(struct piece_counts *c) {
    VEC_RELEASE(&c->pieces);
    VEC_RELEASE(&c->bytes);
    VEC_RELEASE(&c->slots);
}
