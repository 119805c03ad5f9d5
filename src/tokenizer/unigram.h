// The unigram language model (Kudo 2018): of all ways to make a piece of tokens, the one whose scores have the largest
// sum, by Viterbi's algorithm. Gives the ids that the Unigram model of `tokenizers` gives, ties and rounding included.
#ifndef TOKENIZER_UNIGRAM_H
#define TOKENIZER_UNIGRAM_H

#include "tokenizer/piece_cache.h"
#include "tokenizer/tokenizer_parts.h"

struct unigram;

// Of one thread. Zero-initialise; unigram_work_release frees. `cache` belongs to the caller, and may be NULL.
struct unigram_step {
    double score;   // of the best way to this byte
    uint32_t begin; // of its last token
    int32_t token;  // negative: no way leads here
};
struct unigram_work {
    struct piece_cache *cache;
    VEC(struct unigram_step) steps;
    struct token_list reversed;
};
void unigram_work_release(struct unigram_work *work);

// Takes the settings of parts->description's "model", and keeps pointers to parts->tokens and its scores. What it does
// not know is refused by name. The caller frees *out.
trireme_status unigram_create(struct unigram **out, const struct tokenizer_parts *parts, const char *where,
                              trireme_error *error);
void unigram_free(struct unigram *u);
// Appends the tokens of a piece, which is UTF-8 and shorter than 4 GiB. Takes 16 bytes of memory a byte. Fails where
// there is an unknown character and no "unk_id".
trireme_status unigram_encode(const struct unigram *u, struct unigram_work *work, const char *piece, size_t length,
                              struct token_list *out, trireme_error *error);

#endif
