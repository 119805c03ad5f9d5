// The tokens of pieces that were met before, since most of a text is made of few words. Of one thread; its memory is
// bounded: where it is full it is emptied.
#ifndef TOKENIZER_PIECE_CACHE_H
#define TOKENIZER_PIECE_CACHE_H

#include "tokenizer/token_list.h"

enum { PIECE_CACHE_BYTES_MAX = 128 }; // of a piece that is kept

struct piece_cache;

struct piece_cache *piece_cache_create(void);
void piece_cache_free(struct piece_cache *cache);

// Of a piece, what finds it: computed once for both functions below.
uint64_t piece_cache_hash(const char *piece, size_t length);
// Appends the tokens of the piece if they are known; false if they are not.
bool piece_cache_find(const struct piece_cache *cache, uint64_t hash, const char *piece, size_t length,
                      struct token_list *out);
// Keeps the tokens of a piece of at most PIECE_CACHE_BYTES_MAX bytes.
void piece_cache_put(struct piece_cache *cache, uint64_t hash, const char *piece, size_t length, const int32_t *tokens,
                     size_t count);

#endif
