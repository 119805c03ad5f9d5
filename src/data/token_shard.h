// One mapped token file: Megatron's pair PREFIX.bin + PREFIX.idx, a shard of llm.c, or tokens and nothing else
// (nanoGPT), which are one document. Everything is little-endian.
//
// PREFIX.idx, byte by byte, for S sequences and D entries of the document index (documents + 1):
//      0  "MMIDIDX\0\0"           9 bytes
//      9  version                 u64, 1
//     17  dtype code              u8, enum token_dtype
//     18  S                       u64
//     26  D                       u64
//     34  sequence lengths        i32[S], tokens
//         sequence pointers       i64[S], byte offset of each sequence in PREFIX.bin
//         document index          i64[D], the first sequence of each document; S at the end
// PREFIX.bin holds the tokens of all sequences one after another and nothing else.
//
// Where only some tokens of a document are to be predicted, those of its sequences are in turns: the first, the third
// and so on are, the others are only read. A sequence may be empty. The index does not tell: `masked` says so.
//
// A shard of llm.c begins with 256 i32 (magic, version, number of tokens, zeros), then the tokens. A document begins
// with the end-of-text token, so documents are found by looking at the tokens.
//
// Beside either there may be PREFIX.sums, checksums of these files (block_sums.h).
//
// Opening checks sizes and all of the index; tokens are checked when they are read. A file that has become shorter
// since is refused by token_shard_read. But if another process cuts the file short after that, the search for
// documents, which touches the mapped file, still ends the process with SIGBUS.
#ifndef DATA_TOKEN_SHARD_H
#define DATA_TOKEN_SHARD_H

#include "data/token_mapping.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read and written in the machine's order");

#define MEGATRON_MAGIC "MMIDIDX\0" // and the string's own NUL: 9 bytes
enum { MEGATRON_MAGIC_BYTES = 9, MEGATRON_VERSION = 1, MEGATRON_HEADER_BYTES = 34 };
enum token_dtype { TOKEN_U8 = 1, TOKEN_I32 = 4, TOKEN_I64 = 5, TOKEN_U16 = 8 };

struct token_shard {
    struct token_mapping bin;
    struct token_mapping index; // of Megatron's pair, else data is NULL
    int64_t offset;             // of the first token in bin, bytes
    int64_t tokens;
    int width;                    // bytes per token: 1, 2, 4 or 8
    int32_t delimiter;            // token that begins each document in a shard of llm.c; -1: none does
    const char *tokenizer;        // of a shard of llm.c ("GPT-2"); NULL where only a manifest may name it
    int64_t sequences, documents; // S and D - 1
    bool masked;                  // set after it was opened, by who knows (token_manifest.h)
};

// `path` is the .bin; `bare`: it has tokens of so many bytes and nothing else; 0: it says what it is. CORRUPT names the
// byte offset, what is there and what was expected.
trireme_status token_shard_open(struct token_shard *shard, const char *path, int bare, trireme_error *error);
void token_shard_release(struct token_shard *shard);
// Copies tokens [begin, end) of the shard to out[end - begin]. CORRUPT names the position of a token that is not in
// [0, vocab_size).
trireme_status token_shard_read(const struct token_shard *shard, int64_t begin, int64_t end, int32_t vocab_size,
                                int32_t *out, trireme_error *error);
// Calls `each` for the tokens of the shard in [from, limit) with which documents begin, in order, as long as it returns
// true.
trireme_status token_shard_documents(const struct token_shard *shard, int64_t from, int64_t limit,
                                     bool (*each)(void *user, int64_t position), void *user, trireme_error *error);
// Calls `each` for the runs of tokens in [from, limit) that are only read, in order, as long as it returns true. A run
// may be told in several parts.
trireme_status token_shard_masked(const struct token_shard *shard, int64_t from, int64_t limit,
                                  bool (*each)(void *user, int64_t begin, int64_t end), void *user,
                                  trireme_error *error);

#endif
