// Byte pair encoding (Sennrich et al. 2016): a piece begins as the tokens of its characters, and the pair of neighbours
// whose merge comes first is made one token, again and again, until no merge applies. Gives the ids that the BPE model
// of `tokenizers` gives.
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "tokenizer/piece_cache.h"
#include "tokenizer/tokenizer_parts.h"

struct bpe;

// Of one thread. Zero-initialise; bpe_work_release frees. `cache` belongs to the caller, and may be NULL.
struct bpe_symbol {
    int32_t token;
    uint32_t before, after; // neighbours, by index; before: plus 1
};
struct bpe_work {
    struct piece_cache *cache;
    VEC(struct bpe_symbol) symbols;
    VEC(uint64_t) queue;
    struct text spelling;
};
void bpe_work_release(struct bpe_work *work);

// Takes the settings of parts->description's "model", and keeps a pointer to parts->tokens. What it does not know is
// refused by name. The caller frees *out.
trireme_status bpe_create(struct bpe **out, const struct tokenizer_parts *parts, const char *where,
                          trireme_error *error);
void bpe_free(struct bpe *b);
// Appends the tokens of a piece, which is UTF-8 and shorter than 4 GiB. Takes n log n steps for n characters. Fails
// where there is an unknown character and "unk_token" names no token.
trireme_status bpe_encode(const struct bpe *b, struct bpe_work *work, const char *piece, size_t length,
                          struct token_list *out, trireme_error *error);
// Whether no merge joins tokens of which one ends with a character and the next begins with another, so that a piece of
// two characters and more may be cut between them.
bool bpe_has_seam(const struct bpe *b, const struct text *left, const struct text *right);

#endif
