// Text to token ids and back, as `tokenizers` does it for the same tokenizer.json. One kind is special: "bytes", where
// a token is a byte and its id the byte's value; it takes text that is not UTF-8 as it is. A text begins with the token
// 256 and ends with 257; there are files of older versions without these.
//
// A tokenizer does not change once it is made: threads share it. What a thread needs besides, is an encoder.
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/checksum.h"
#include "tokenizer/token_list.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/tokenizer_parts.h"

struct added_tokens;
struct token_template;
struct tokenizer;

// Numbers of tokens of the kind "bytes": those of a new one, and without the tokens that begin and end texts.
enum { TOKENIZER_BYTES_ALONE = 256, TOKENIZER_BYTES_AND_ENDS = 258 };
// The kind "bytes" with so many tokens. Caller frees with tokenizer_free, which takes NULL too.
struct tokenizer *tokenizer_create_bytes(int32_t vocab_size);
// Takes over *parts, whether it succeeds or not. `config` is the tree of tokenizer_config.json, which says how texts
// begin and end, or NULL: then the post-processor does. What is not supported is refused by name (USAGE), what makes no
// sense is CORRUPT; `where` names the file.
trireme_status tokenizer_create(struct tokenizer **out, struct tokenizer_parts *parts, const json_t *config,
                                const char *where, trireme_error *error);
void tokenizer_free(struct tokenizer *t);

// `path` is a tokenizer's file, of any form that tokenizer_load.c lists, told apart by its content, or a directory with
// one. tokenizer_config.json beside a file named tokenizer.json counts. USAGE when there is none. Caller frees.
trireme_status tokenizer_load(const char *path, struct tokenizer **out, trireme_error *error);
// The same, where the user gave tokenizer.pattern, by which text is cut (split_patterns.h): USAGE where the file is not
// one of tiktoken's ranks, which do not say it. NULL: none was given; a file TOKENIZER_PATTERN beside it counts then.
trireme_status tokenizer_load_with(const char *path, const char *pattern, struct tokenizer **out, trireme_error *error);
// Files with which Hugging Face's AutoTokenizer opens it: those that it was loaded from, byte for byte, or else
// tokenizer.json and tokenizer_config.json. The caller releases.
struct tokenizer_files tokenizer_files(const struct tokenizer *t);

const char *tokenizer_kind(const struct tokenizer *t); // "bytes", "BPE", "Unigram"
// The largest id plus 1.
int32_t tokenizer_vocab_size(const struct tokenizer *t);
// BLAKE2b-256 over everything on which ids depend: equal for tokenizers that give text the same ids, however the JSON
// is written.
void tokenizer_checksum(const struct tokenizer *t, char hex[CHECKSUM_HEX]);
// Whether a model's directory has a tokenizer that gives text other tokens than `t`; why[200] then says in what it
// differs.
bool tokenizer_differs(const struct tokenizer *t, const char *directory, char why[200]);
// Whether a model's directory has a tokenizer whose tokens stand for the same text as those of `t` with the same ids,
// as far as both have them: one of the two has more at the end.
bool tokenizer_continues(const struct tokenizer *t, const char *directory);

// The tokens with which a text begins, and ends; -1 where it has none. They are in the vocabulary.
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
// What chats are made into text with, as the tokenizer's files have it (Jinja); NULL: nothing.
const char *tokenizer_chat_template(const struct tokenizer *t);
// What it was made of.
const struct tokenizer_parts *tokenizer_parts_of(const struct tokenizer *t);
const struct added_tokens *tokenizer_added(const struct tokenizer *t);
const struct token_template *tokenizer_template(const struct tokenizer *t);

// Appends the text of tokens[0, count), which may end inside a character. `special`: special tokens are shown, else
// left out. USAGE names the first token that is not in the vocabulary; nothing is appended then.
trireme_status tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t count, bool special,
                                struct text *out, trireme_error *error);
// Bytes of text that a token of the vocabulary stands for: the denominator of bits per byte. 0 for a special token, and
// for an id that no token has.
int64_t tokenizer_token_bytes(const struct tokenizer *t, int32_t token);

#endif
