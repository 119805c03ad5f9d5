// The merges of a tokenizer whose file has none, since it merges whichever two neighbours spell a token, the best token
// first (sentencepiece by score, tiktoken by rank). In a list of merges, which is what tokenizer.json has, that is a
// merge for each place at which a token can be cut into two tokens, in order of the tokens that are made.
#ifndef TOKENIZER_MERGE_RECOVERY_H
#define TOKENIZER_MERGE_RECOVERY_H

#include "tokenizer/tokenizer_parts.h"

// What becomes of a token among the neighbours that merge.
enum merge_role {
    MERGE_FREE,     // is made by merges, and merged further
    MERGE_FROZEN,   // is there before the merges, and is never merged
    MERGE_RESERVED, // is never there: a text that looks like it consists of other tokens
};

struct merge_recovery {
    const uint8_t *role;  // enum merge_role of each id; NULL: all are free
    const int32_t *order; // ids of the tokens that may be made, the one that is made first at the front
    const int32_t *rank;  // of each of these, ascending: tokens of one rank are made from left to right
    size_t count;
    const char *where; // names the file in messages
};

// Fills parts->merges and their ranks, for the tokens in parts->tokens. USAGE where a token is made of a character that
// is no token, which a list of merges cannot say, and where tokens are so long that taking them apart would take
// minutes.
trireme_status merges_recover(const struct merge_recovery *recovery, struct tokenizer_parts *parts,
                              trireme_error *error);

#endif
