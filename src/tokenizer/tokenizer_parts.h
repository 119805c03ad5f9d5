// What the file of a tokenizer says, whatever its form: everything that tokenizer.json has. Files of other forms
// (sentencepiece's .model, tiktoken's ranks) are read into the same parts, so that there is one way to make a tokenizer
// of them (tokenizer_create), and one to write it (tokenizer_parts_write).
//
// Tokens are spelt as in tokenizer.json: those of byte-level tokenizers in GPT-2's characters, one for each byte
// (byte_characters.h); those of sentencepiece with U+2581 for a space, and bytes as <0xNN>.
#ifndef TOKENIZER_TOKENIZER_PARTS_H
#define TOKENIZER_TOKENIZER_PARTS_H

#include "base/json.h"
#include "tokenizer/token_table.h"

// Two tokens, by id, that become one. The order of merges is that in which they are made.
struct token_merge {
    int32_t left, right;
};

struct tokenizer_parts {
    json_t *description;            // tokenizer.json's members but for model.vocab and model.merges
    struct token_table *tokens;     // of the model; without what "added_tokens" adds
    VEC(struct token_merge) merges; // BPE
    VEC(int32_t)
    ranks; // BPE: of each merge, ascending; merges of one rank are made from left to right.
           // Empty, as of tokenizer.json, which cannot say it: each merge has a rank of its own
    VEC(double)
    scores;            // Unigram: of each id; minus infinity: no text becomes that token, which
                       // tokenizer.json cannot say
    bool float_scores; // Unigram: sums of scores are rounded to single precision
    char *bos, *eos;   // tokens that begin and end texts, where the file names them (tokenizer.json never)
};

// Reads a tokenizer.json. CORRUPT names the member at fault; a merge whose tokens are not in the vocabulary is refused
// (one whose product is not, by tokenizer_create). Nothing to release after an error.
trireme_status tokenizer_parts_parse(struct tokenizer_parts *out, const char *text, size_t length, const char *where,
                                     trireme_error *error);
// Appends them as tokenizer.json, as `transformers` and `tokenizers` open it: merges as pairs, tokens in order of id.
void tokenizer_parts_write(const struct tokenizer_parts *parts, struct text *out);
void tokenizer_parts_release(struct tokenizer_parts *parts);

#endif
