// Tokens with ranks as the parts of a byte-level BPE tokenizer, whichever form of file they come from: whichever two
// neighbours spell a token are merged, those of the lowest rank first (tiktoken).
#ifndef TOKENIZER_RANK_PARTS_H
#define TOKENIZER_RANK_PARTS_H

#include "tokenizer/tokenizer_parts.h"

// parts->tokens has the tokens, in GPT-2's characters, with ids in order of rank, and no special tokens yet. Adds the
// merges. CORRUPT where a byte is no token.
trireme_status rank_parts_merge(struct tokenizer_parts *parts, const char *where, trireme_error *error);
// Makes the description: text is cut by `pattern` (a regular expression), after it has been normalized to NFC where
// `composes`. Returns its "added_tokens", which is empty.
json_t *rank_parts_describe(struct tokenizer_parts *parts, const char *pattern, bool composes);
// Adds a special token to `specials`, and to the tokens of the model: others than these get the next ids after the
// model's, and here there may be gaps.
trireme_status rank_parts_add_special(struct tokenizer_parts *parts, json_t *specials, int32_t id, const char *content,
                                      const char *where, trireme_error *error);

#endif
