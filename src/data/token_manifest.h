// PREFIX.json, which `prepare` writes beside PREFIX.bin and PREFIX.idx. It says which tokenizer made the tokens, so
// that a training run can put that tokenizer into its checkpoints and refuse a model with another vocabulary; and how
// many tokens, documents and bytes of text there are. Token files from elsewhere have none; they work, without a
// tokenizer.
//
//   {"format": "trireme-tokens", "version": 1,
//    "tokenizer": {"kind": "bytes", "vocab_size": 258, "checksum": "<BLAKE2b-256 in hexadecimal>"},
//    "tokens": 123, "documents": 4, "text_bytes": 123}
//
// Where some tokens are only read, as all but the answers of chats are, it has "masked": true (token_shard.h), and
// version 2, so that no program that does not know it trains on them.
#ifndef DATA_TOKEN_MANIFEST_H
#define DATA_TOKEN_MANIFEST_H

#include "data/token_set.h"
#include "tokenizer/tokenizer.h"

struct token_manifest {
    char tokenizer_kind[32];
    char tokenizer_checksum[CHECKSUM_HEX];
    int64_t vocab_size;
    int64_t tokens, documents; // documents without text are not stored and not counted
    int64_t text_bytes;        // of the text, in UTF-8
    bool masked;
};

// Appends the JSON.
void token_manifest_print(const struct token_manifest *m, struct text *out);
// Reads the manifest of the token files at `path` (PREFIX, PREFIX.bin or PREFIX.idx), which hold `tokens` tokens.
// Without a PREFIX.json, *found is false and *out untouched. CORRUPT when it belongs to other token files.
trireme_status token_manifest_read(const char *path, int64_t tokens, struct token_manifest *out, bool *found,
                                   trireme_error *error);
// The manifest of a set's first file, whose tokenizer all files share. *found is false where no file has a manifest.
// Refuses (TRIREME_ERROR_USAGE) files made by different tokenizers, and sets where only some files have a manifest.
trireme_status token_manifest_of_set(const struct token_set *set, struct token_manifest *out, bool *found,
                                     trireme_error *error);
// Whether the file at `path` is a token manifest, of any version.
bool token_manifest_recognise(const char *path);
// The tokenizer that made the tokens at `path` (as token_manifest_read takes it): that of bytes, or what is kept in
// PREFIX.tokenizer/. CORRUPT where that is another one. Caller frees.
trireme_status token_manifest_tokenizer(const struct token_manifest *m, const char *path, struct tokenizer **out,
                                        trireme_error *error);

#endif
