// A trie over bytes: which of many strings begin at a place of a text, all of them in one walk.
#ifndef TOKENIZER_BYTE_TRIE_H
#define TOKENIZER_BYTE_TRIE_H

#include "base/base.h"

struct byte_edge {
    uint32_t from;
    uint32_t to; // the byte in the upper 8 bits, then the node; 0: a free slot
};

// Nodes are numbers; 0 is the root. Edges are in a hash table, so that a walk takes a look-up a byte, and the trie as
// much memory as it has nodes.
struct byte_trie {
    VEC(int32_t) values;     // of each node; -1: no string ends there
    uint32_t first[256];     // the root's edges: the node of each first byte; 0: none
    struct byte_edge *edges; // 1 << bits slots, at most half of them taken
    int bits;
    size_t count; // of edges
};

enum { BYTE_TRIE_NODES_MAX = 1 << 24 };

void byte_trie_init(struct byte_trie *trie);
void byte_trie_release(struct byte_trie *trie);
// Adds a string that is not empty. False where it is there already, or the trie would have more than
// BYTE_TRIE_NODES_MAX nodes.
bool byte_trie_add(struct byte_trie *trie, const char *bytes, size_t length, int32_t value);

static inline size_t byte_trie_slot(const struct byte_trie *trie, uint32_t node, uint8_t byte) {
    return (size_t)((((uint64_t)node << 8 | byte) * 0x9E3779B97F4A7C15) >> (64 - trie->bits));
}

// The node to which a byte leads, 0 if there is none.
static inline uint32_t byte_trie_step(const struct byte_trie *trie, uint32_t node, uint8_t byte) {
    const size_t mask = ((size_t)1 << trie->bits) - 1;
    if (node == 0)
        return trie->first[byte];
    for (size_t at = byte_trie_slot(trie, node, byte);; at = (at + 1) & mask) {
        const struct byte_edge *edge = &trie->edges[at];
        if (edge->to == 0)
            return 0;
        if (edge->from == node && edge->to >> 24 == byte)
            return edge->to & 0xFFFFFF;
    }
}

#endif
