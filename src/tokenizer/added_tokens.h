// The member "added_tokens" of tokenizer.json: tokens that are found in a text as they are, before it is cut. Special
// ones are no text.
#ifndef TOKENIZER_ADDED_TOKENS_H
#define TOKENIZER_ADDED_TOKENS_H

#include "tokenizer/normalizer.h"
#include "tokenizer/token_table.h"

struct added_token {
    int32_t id;
    char *content;
    char *normal; // its content as the normalizer makes it, if `normalized`
    size_t length, normal_length;
    bool single_word;    // not found inside a word
    bool lstrip, rstrip; // takes the white space before and after it
    bool normalized;     // looked for in the normalized text, not in the raw one
    bool special;
};

struct added_tokens;

// `description` may be NULL: there are none. Ids must be those that `tokenizers` gives: the vocabulary's, or, for what
// is not in it, the next ones after it in their order. The caller frees *out.
trireme_status added_tokens_create(struct added_tokens **out, const json_t *description,
                                   const struct token_table *vocabulary, const struct normalizer *normalizer,
                                   const char *where, trireme_error *error);
void added_tokens_free(struct added_tokens *a);

// In order of id.
size_t added_tokens_count(const struct added_tokens *a);
const struct added_token *added_tokens_at(const struct added_tokens *a, size_t i);
// NULL where there is none of that id, or content.
const struct added_token *added_tokens_find_id(const struct added_tokens *a, int32_t id);
const struct added_token *added_tokens_find(const struct added_tokens *a, const char *content);

// A part of a text: a token, or text between tokens.
struct added_part {
    size_t begin, end;
    int32_t id; // -1: text
};
struct added_parts {
    VEC(struct added_part);
};
// Appends the parts of text[0, length), which is UTF-8, the tokens among them found from left to right, at each place
// the longest. `normalized`: those that are looked for in the normalized text, else the others.
void added_tokens_cut(const struct added_tokens *a, bool normalized, const char *text, size_t length,
                      struct added_parts *out);
// Whether a token may end or begin at text[at], at < length, or reach across it, whatever comes behind this text.
// `normalized` as above.
bool added_tokens_touch(const struct added_tokens *a, bool normalized, const char *text, size_t length, size_t at);
// Bytes of the longest text that is looked for.
size_t added_tokens_reach(const struct added_tokens *a);

#endif
