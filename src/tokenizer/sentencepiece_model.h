// A .model file of sentencepiece as the parts of a tokenizer (BPE or Unigram), which give text the ids that the
// library gives it.
//
// Where `transformers` makes other ids of the same file, the library is followed: a text always gets its dummy prefix,
// also where it begins with a space; nothing but spaces is taken away at its ends; pieces that were defined by the user
// are found in the normalized text, and never merged. But control pieces are special tokens, as those of every other
// tokenizer here are: a text that spells one gets it.
#ifndef TOKENIZER_SENTENCEPIECE_MODEL_H
#define TOKENIZER_SENTENCEPIECE_MODEL_H

#include "tokenizer/tokenizer_parts.h"

// Whether a file is one, by its first bytes.
bool sentencepiece_model_is(const char *bytes, size_t length);
// Reads a file. CORRUPT: no such model, or one that the library refuses; USAGE names what the parts of a tokenizer
// cannot say. Of bos and eos it tells the names alone: no text gets them, as in the library. The caller releases *out;
// there is nothing to release after an error.
trireme_status sentencepiece_model_parse(struct tokenizer_parts *out, const char *bytes, size_t length,
                                         const char *where, trireme_error *error);

#endif
