#include "tokenizer/byte_trie.h"

enum { BITS_LEAST = 4 };

void byte_trie_init(struct byte_trie *t) {
    *t = (struct byte_trie){.bits = BITS_LEAST};
    t->edges = mem_alloc(sizeof *t->edges << t->bits);
    VEC_PUSH(&t->values, -1);
}

void byte_trie_release(struct byte_trie *t) {
    VEC_RELEASE(&t->values);
    free(t->edges);
    *t = (struct byte_trie){0};
}

static void byte_trie_put(struct byte_trie *t, struct byte_edge edge) {
    const size_t mask = ((size_t)1 << t->bits) - 1;
    size_t at = byte_trie_slot(t, edge.from, (uint8_t)(edge.to >> 24));
    while (t->edges[at].to)
        at = (at + 1) & mask;
    t->edges[at] = edge;
}

static void byte_trie_grow(struct byte_trie *t) {
    struct byte_edge *old = t->edges;
    const size_t slots = (size_t)1 << t->bits++;
    t->edges = mem_alloc(sizeof *t->edges << t->bits);
    for (size_t i = 0; i < slots; i++)
        if (old[i].to)
            byte_trie_put(t, old[i]);
    free(old);
}

bool byte_trie_add(struct byte_trie *t, const char *bytes, size_t length, int32_t value) {
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        const uint8_t byte = (uint8_t)bytes[i];
        uint32_t next = byte_trie_step(t, node, byte);
        if (next == 0) {
            if (t->values.count == BYTE_TRIE_NODES_MAX)
                return false;
            next = (uint32_t)t->values.count;
            VEC_PUSH(&t->values, -1);
            if (node == 0) {
                t->first[byte] = next;
            } else {
                if (2 * ++t->count > (size_t)1 << t->bits)
                    byte_trie_grow(t);
                byte_trie_put(t, (struct byte_edge){node, (uint32_t)byte << 24 | next});
            }
        }
        node = next;
    }
    if (node == 0 || t->values.item[node] >= 0)
        return false;
    t->values.item[node] = value;
    return true;
}
