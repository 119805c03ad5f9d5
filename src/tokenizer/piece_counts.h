// How often each of many pieces of text occurs. Takes memory by distinct pieces.
#ifndef TOKENIZER_PIECE_COUNTS_H
#define TOKENIZER_PIECE_COUNTS_H

#include "base/base.h"

struct piece_count {
    uint64_t count;
    size_t begin;    // of its bytes in piece_counts.bytes
    uint32_t length; // bytes
    uint32_t tag;    // of the hash
};

// Zero-initialise; piece_counts_release frees. Pieces are in the order in which they came first.
struct piece_counts {
    VEC(struct piece_count) pieces;
    VEC(char) bytes;
    VEC(uint32_t) slots; // open addressing: index plus 1, 0: free
};

// Counts a piece `count` times more. CHECKs that there are fewer than 2^32 distinct pieces, each shorter than 4 GiB.
void piece_counts_add(struct piece_counts *counts, const char *piece, size_t length, uint64_t count);
// Adds all of `other`.
void piece_counts_add_all(struct piece_counts *counts, const struct piece_counts *other);
void piece_counts_release(struct piece_counts *counts);

#endif
