// Text to token ids and back. One tokenizer so far: "bytes", where a token is a byte and its id the byte's value.
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/checksum.h"
#include "tokenizer/tokenizer_files.h"

struct tokenizer;

// Grows with VEC_PUSH; VEC_RELEASE frees.
struct token_list {
    VEC(int32_t);
};

// Caller frees with tokenizer_free, which takes NULL too.
struct tokenizer *tokenizer_create_bytes(void);
void tokenizer_free(struct tokenizer *t);

// `path` is a tokenizer.json or a directory with one. USAGE when there is none, or it is not one that is built in.
// Caller frees.
trireme_status tokenizer_load(const char *path, struct tokenizer **out, trireme_error *error);
// tokenizer.json and tokenizer_config.json, as Hugging Face's AutoTokenizer opens them. The caller releases.
struct tokenizer_files tokenizer_files(const struct tokenizer *t);

const char *tokenizer_kind(const struct tokenizer *t); // "bytes"
int32_t tokenizer_vocab_size(const struct tokenizer *t);
// BLAKE2b-256 over every token's bytes in order of id: equal for tokenizers that give text the same ids, however the
// JSON is written.
void tokenizer_checksum(const struct tokenizer *t, char hex[CHECKSUM_HEX]);
// Whether a model's directory has a tokenizer.json whose tokenizer gives text other tokens than `t`; why[200] then says
// in what it differs.
bool tokenizer_differs(const struct tokenizer *t, const char *directory, char why[200]);

// Appends the tokens of text[0, length). Bytes need not be UTF-8.
void tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, struct token_list *out);
// Appends the bytes of tokens[0, count), which may end inside a character. USAGE names the first token that is not in
// the vocabulary; nothing is appended then.
trireme_status tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t count, struct text *out,
                                trireme_error *error);
// Bytes of text that a token of the vocabulary stands for: the denominator of bits per byte.
int64_t tokenizer_token_bytes(const struct tokenizer *t, int32_t token);

#endif
