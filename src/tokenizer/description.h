// Members of tokenizer.json as trees, for tokenizers that come from other files. Each function returns a new tree, and
// takes over those that it is given.
#ifndef TOKENIZER_DESCRIPTION_H
#define TOKENIZER_DESCRIPTION_H

#include "base/json.h"

// The whole, but for the vocabulary and the merges of the model.
json_t *description_json(json_t *added_tokens, json_t *normalizer, json_t *pre_tokenizer, json_t *decoder,
                         json_t *model);
// A special token of "added_tokens".
json_t *description_special(int32_t id, const char *content, size_t length);
// Steps in their order; `members` is "normalizers", "pretokenizers" or "decoders". null where there are none.
json_t *description_sequence(const char *members, json_t *steps);
// Pre-tokenizer and decoder of byte-level tokenizers. `splits`: text is cut by GPT-2's pattern.
json_t *description_byte_level(bool splits);
// A pre-tokenizer that cuts text at what a pattern matches, and keeps both.
json_t *description_split(const char *pattern);
// A model of type BPE. `unknown` is the token for characters that there is none for, or null; `ignores_merges`: a piece
// that is a token is not made by merges.
json_t *description_bpe(json_t *unknown, bool byte_fallback, bool ignores_merges);

#endif
