#include "tokenizer/piece_cache.h"

#include "base/xxh3.h"

enum {
    BITS = 17,
    PROBES = 8, // of slots that a piece may be in, so that pieces that collide on purpose cost little
    PIECES_MAX = 1 << (BITS - 1),
    BYTES_MAX = 4 << 20, // of all pieces
    TOKENS_MAX = 1 << 20,
};

struct piece_slot {
    uint64_t hash;
    uint32_t bytes, tokens; // where they begin
    uint32_t count;         // of tokens
    uint32_t length;        // of the piece, which is never empty; 0: a free slot
};

struct piece_cache {
    struct piece_slot *slots;
    VEC(char) bytes;
    struct token_list tokens;
    size_t count;
};

struct piece_cache *piece_cache_create(void) {
    struct piece_cache *c = mem_alloc(sizeof *c);
    c->slots = mem_alloc((sizeof *c->slots) << BITS);
    return c;
}

void piece_cache_free(struct piece_cache *c) {
    if (!c)
        return;
    free(c->slots);
    VEC_RELEASE(&c->bytes);
    VEC_RELEASE(&c->tokens);
    free(c);
}

uint64_t piece_cache_hash(const char *piece, size_t length) {
    return xxh3_of(piece, length);
}

static struct piece_slot *piece_slot_at(const struct piece_cache *c, uint64_t hash, size_t probe) {
    return &c->slots[((hash >> (64 - BITS)) + probe) & ((1u << BITS) - 1)];
}

bool piece_cache_find(const struct piece_cache *c, uint64_t hash, const char *piece, size_t length,
                      struct token_list *out) {
    for (size_t probe = 0; probe < PROBES; probe++) {
        const struct piece_slot *slot = piece_slot_at(c, hash, probe);
        if (slot->length == 0)
            return false;
        if (slot->hash != hash || slot->length != length || memcmp(c->bytes.item + slot->bytes, piece, length) != 0)
            continue;
        token_list_append(out, c->tokens.item + slot->tokens, slot->count);
        return true;
    }
    return false;
}

void piece_cache_put(struct piece_cache *c, uint64_t hash, const char *piece, size_t length, const int32_t *tokens,
                     size_t count) {
    if (c->count == PIECES_MAX || c->bytes.count + length > BYTES_MAX || c->tokens.count + count > TOKENS_MAX) {
        memset(c->slots, 0, (sizeof *c->slots) << BITS);
        c->count = c->bytes.count = c->tokens.count = 0;
    }
    for (size_t probe = 0; probe < PROBES; probe++) {
        struct piece_slot *slot = piece_slot_at(c, hash, probe);
        if (slot->length)
            continue;
        *slot = (struct piece_slot){hash, (uint32_t)c->bytes.count, (uint32_t)c->tokens.count, (uint32_t)count,
                                    (uint32_t)length};
        VEC_RESERVE(&c->bytes, c->bytes.count + length);
        memcpy(c->bytes.item + c->bytes.count, piece, length);
        c->bytes.count += length;
        token_list_append(&c->tokens, tokens, count);
        c->count++;
        return;
    }
}
