// Byte pair encoding learnt from counted pieces (Sennrich et al. 2016): the pair of neighbouring tokens that occurs
// most often becomes a token, again and again. The same merges as the trainer of `tokenizers`, ties included.
#ifndef TOKENIZER_BPE_MERGES_H
#define TOKENIZER_BPE_MERGES_H

#include "tokenizer/piece_counts.h"
#include "tokenizer/tokenizer_parts.h"

struct bpe_learning {
    const struct piece_counts *pieces; // spelt in GPT-2's characters, all of which are tokens
    int32_t vocab_size;                // tokens to end with; fewer where no pair is left
    uint64_t min_frequency;            // pairs that occur less often do not become tokens
    // Called now and then with the number of tokens so far; may be NULL. False: to end now (INTERRUPTED).
    bool (*progress)(void *user, int32_t tokens);
    void *user;
};

// Adds tokens to parts->tokens, which has the special tokens and the bytes, and their merges to parts->merges.
trireme_status bpe_learn(const struct bpe_learning *learning, struct tokenizer_parts *parts, trireme_error *error);

#endif
