// Open addressing (linear probing) over ids. The bytes of all tokens lie in one block, one after the other, and where
// each begins is found by its id. So a vocabulary takes three allocations, whatever its size.
#include "tokenizer/token_table.h"

#include "base/xxh3.h"

enum {
    SLOTS_LEAST = 64,
    IDS_FREE = 1 << 20, // ids below this are taken in any order; those above must be near the number of tokens
    IDS_PER_TOKEN = 16
};

struct token_place {
    uint32_t begin, length; // begin: of the block, plus 1; 0: no token has that id
};

struct token_slot {
    uint32_t tag; // of the hash, so that most other tokens are told apart without a look at their bytes
    int32_t id;   // plus 1; 0: free
};

struct token_table {
    VEC(char) bytes;
    VEC(struct token_place) places; // of each id
    struct token_slot *slots;       // 1 << bits of them, at most half of them taken
    int bits;
    int32_t count;
    uint64_t mix; // odd, and another one for each table: nobody can choose tokens that collide
};

struct token_table *token_table_create(void) {
    struct token_table *t = mem_alloc(sizeof *t);
    t->bits = __builtin_ctz(SLOTS_LEAST);
    t->slots = mem_alloc(SLOTS_LEAST * sizeof *t->slots);
    t->mix = ((uint64_t)(uintptr_t)t * 0x9E3779B97F4A7C15) | 1;
    return t;
}

void token_table_free(struct token_table *t) {
    if (!t)
        return;
    VEC_RELEASE(&t->bytes);
    VEC_RELEASE(&t->places);
    free(t->slots);
    free(t);
}

static uint64_t token_hash(const struct token_table *t, const char *bytes, size_t length) {
    return xxh3_of(bytes, length) * t->mix;
}

static size_t token_slot_first(const struct token_table *t, uint64_t hash) {
    return (size_t)(hash >> (64 - t->bits));
}

static bool token_is(const struct token_table *t, int32_t id, const char *bytes, size_t length) {
    const struct token_place *p = &t->places.item[id];
    return p->length == length && memcmp(t->bytes.item + p->begin - 1, bytes, length) == 0;
}

// The slot that holds the token, or else the free one in which it would be put.
static struct token_slot *token_slot_of(const struct token_table *t, uint64_t hash, const char *bytes, size_t length) {
    const size_t mask = ((size_t)1 << t->bits) - 1;
    size_t at = token_slot_first(t, hash);
    while (t->slots[at].id && !(t->slots[at].tag == (uint32_t)hash && token_is(t, t->slots[at].id - 1, bytes, length)))
        at = (at + 1) & mask;
    return &t->slots[at];
}

static void token_table_grow(struct token_table *t) {
    struct token_slot *old = t->slots;
    const size_t count = (size_t)1 << t->bits++;
    const size_t mask = 2 * count - 1;
    t->slots = mem_alloc(2 * count * sizeof *t->slots);
    for (size_t i = 0; i < count; i++) {
        if (!old[i].id)
            continue;
        const struct token_bytes token = token_table_token(t, old[i].id - 1);
        size_t at = token_slot_first(t, token_hash(t, token.bytes, token.length));
        while (t->slots[at].id)
            at = (at + 1) & mask;
        t->slots[at] = old[i];
    }
    free(old);
}

trireme_status token_table_add(struct token_table *t, const char *bytes, size_t length, int32_t id, bool *added,
                               trireme_error *error) {
    if (id < 0 || (id >= IDS_FREE && id / IDS_PER_TOKEN > t->count))
        FAIL(TRIREME_ERROR_USAGE, "the id %d is far beyond the number of tokens, %d so far", id, t->count);
    if (length >= UINT32_MAX - 1 - t->bytes.count)
        FAIL(TRIREME_ERROR_USAGE, "the tokens have more than 4 GiB in all");
    *added = false;
    if ((size_t)id < t->places.count && t->places.item[id].begin)
        return TRIREME_OK;
    const uint64_t hash = token_hash(t, bytes, length);
    struct token_slot *slot = token_slot_of(t, hash, bytes, length);
    if (slot->id)
        return TRIREME_OK;
    *slot = (struct token_slot){(uint32_t)hash, id + 1};
    if ((size_t)id >= t->places.count) {
        VEC_RESERVE(&t->places, (size_t)id + 1);
        memset(t->places.item + t->places.count, 0, ((size_t)id + 1 - t->places.count) * sizeof *t->places.item);
        t->places.count = (size_t)id + 1;
    }
    t->places.item[id] = (struct token_place){(uint32_t)t->bytes.count + 1, (uint32_t)length};
    VEC_RESERVE(&t->bytes, t->bytes.count + length + 1); // an empty token has an address, too
    if (length)
        memcpy(t->bytes.item + t->bytes.count, bytes, length);
    t->bytes.count += length;
    if (2 * (size_t)++t->count > (size_t)1 << t->bits)
        token_table_grow(t);
    *added = true;
    return TRIREME_OK;
}

int32_t token_table_size(const struct token_table *t) {
    return (int32_t)t->places.count;
}

int32_t token_table_count(const struct token_table *t) {
    return t->count;
}

struct token_bytes token_table_token(const struct token_table *t, int32_t id) {
    if (id < 0 || (size_t)id >= t->places.count || !t->places.item[id].begin)
        return (struct token_bytes){0};
    const struct token_place *p = &t->places.item[id];
    return (struct token_bytes){t->bytes.item + p->begin - 1, p->length};
}

int32_t token_table_find(const struct token_table *t, const char *bytes, size_t length) {
    return token_slot_of(t, token_hash(t, bytes, length), bytes, length)->id - 1;
}
