// data/: text into tokens, tokens into batches. May include base/ only.
//
//   prepare     text -> PREFIX.bin, PREFIX.idx (Megatron's indexed dataset) and PREFIX.json (token_manifest.h)
//   tokenizer   text <-> token ids
//   token_set   one interface to token files, whichever their format and however many shards
//   sampler     (seed, step, row) -> a window of a token_set
// Text and tokens stream through constant memory everywhere; nothing in a file is trusted.
//
// A token set is a sequence of tokens, addressed from 0, with a document boundary before some of them. It is read-only:
// any number of threads may read one.
#ifndef DATA_TOKEN_SET_H
#define DATA_TOKEN_SET_H

#include "base/base.h"

struct token_set;

// Opens `path`: PREFIX, PREFIX.bin or PREFIX.idx of Megatron's pair; a shard of llm.c; or a glob of .bin files, which
// are joined in the order of their names. Takes some nanoseconds for each document, whatever the number of tokens, and
// constant memory. Caller closes.
trireme_status token_set_open(const char *path, struct token_set **out, trireme_error *error);
void token_set_close(struct token_set *set);
// Refuses two sets, or a set and itself, whose files say that they hold tokens of different tokenizers: names two such
// files.
trireme_status token_set_same_tokenizer(const struct token_set *a, const struct token_set *b, trireme_error *error);
// The tokenizer whose tokens the set's files say they hold ("GPT-2"); NULL where they do not say.
const char *token_set_tokenizer(const struct token_set *set);

int64_t token_set_tokens(const struct token_set *set);
// Its files, in order: how many there are, the path of a file's .bin, and a file's number of tokens.
size_t token_set_shards(const struct token_set *set);
const char *token_set_shard_path(const struct token_set *set, size_t shard);
int64_t token_set_shard_tokens(const struct token_set *set, size_t shard);
// The path of the first file that was written to since it was opened; NULL: none.
const char *token_set_rewritten(const struct token_set *set);
// Copies tokens [begin, end) to out[end - begin]. A token outside of [0, vocab_size) is refused, naming its position.
trireme_status token_set_read(const struct token_set *set, int64_t begin, int64_t end, int32_t vocab_size, int32_t *out,
                              trireme_error *error);
// Calls `each` for the tokens in [from, limit) with which documents begin, in order, as long as it returns true. They
// are found by binary search in an index; llm.c's shards have none and are scanned.
trireme_status token_set_documents(const struct token_set *set, int64_t from, int64_t limit,
                                   bool (*each)(void *user, int64_t position), void *user, trireme_error *error);
// *out = the first of these, or `limit` if there is none.
trireme_status token_set_next_document(const struct token_set *set, int64_t from, int64_t limit, int64_t *out,
                                       trireme_error *error);
// Whether the document that begins at `position` begins with a token that also ends the document before it (llm.c's
// end-of-text), so that predicting it is part of the task.
bool token_set_delimited(const struct token_set *set, int64_t position);

// `path` without its .bin or .idx; caller frees.
char *token_prefix(const char *path);

#endif
