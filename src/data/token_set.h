// data/: text and chats into tokens, tokens into batches.
//
//   prepare     text -> PREFIX.bin, PREFIX.idx (Megatron's indexed dataset), PREFIX.json (token_manifest.h) and
//               PREFIX.sums (block_sums.h)
//   tokenizer   text <-> token ids
//   token_set   one interface to token files, whichever their format and however many shards
//   block_sums  checksums of token files, PREFIX.sums
//   mixture     proportions of several sources
//   sampler     (seed, step, row) -> a window of a token_set
// Text and tokens stream through constant memory everywhere; nothing in a file is trusted.
//
// A token set is a sequence of tokens, addressed from 0, with a document boundary before some of them. It is read-only:
// any number of threads may read one.
#ifndef DATA_TOKEN_SET_H
#define DATA_TOKEN_SET_H

#include "data/block_sums.h"

struct token_set;

// Opens `path`: PREFIX, PREFIX.bin or PREFIX.idx of Megatron's pair; a shard of llm.c; or a glob of .bin files, which
// are joined in the order of their names. uint16:PATH, uint32:PATH: the files have tokens and nothing else. Takes some
// nanoseconds for each document, whatever the number of tokens, and constant memory. Caller closes.
trireme_status token_set_open(const char *path, struct token_set **out, trireme_error *error);
// Opens several such paths, joined in their order: the sources of a mixture.
trireme_status token_set_open_sources(const char *const *path, int count, struct token_set **out, trireme_error *error);
void token_set_close(struct token_set *set);
// Refuses two sets, or a set and itself, whose files say that they hold tokens of different tokenizers: names two such
// files.
trireme_status token_set_same_tokenizer(const struct token_set *a, const struct token_set *b, trireme_error *error);
// The tokenizer whose tokens the set's files say they hold ("GPT-2"); NULL where they do not say.
const char *token_set_tokenizer(const struct token_set *set);

int64_t token_set_tokens(const struct token_set *set);
// How many sources it has, and the first token of one; for the number of sources, that of all tokens.
int token_set_sources(const struct token_set *set);
int64_t token_set_source(const struct token_set *set, int source);
// Its files, in order: how many there are, the path of a file's .bin, and a file's number of tokens.
size_t token_set_shards(const struct token_set *set);
const char *token_set_shard_path(const struct token_set *set, size_t shard);
int64_t token_set_shard_tokens(const struct token_set *set, size_t shard);

// What is in the files. A block of one (block_sums.h) is checked when it is first read; of a file without checksums,
// what is read then is what is expected from then on.
// CORRUPT where a file was written to since it was opened, and holds something else now than was expected.
trireme_status token_set_check_unchanged(struct token_set *set, trireme_error *error);
// Whether the checksums of all blocks are known, so that token_set_checksum reads none.
bool token_set_is_known(const struct token_set *set);
// *out = a checksum of sizes, indices, and of the tokens all blocks or, unless `all`, some of a large set.
trireme_status token_set_checksum(const struct token_set *set, bool all, uint64_t *out, trireme_error *error);
// Adds all files by their paths, with what is known of their content.
void token_set_list(const struct token_set *set, struct sums_list *out);
// Makes the checksums of all blocks that are not known, until *stop is set. What cannot be read is left to who needs
// it.
void token_set_learn(const struct token_set *set, const atomic_bool *stop);
// How many blocks are known.
int64_t token_set_known_blocks(const struct token_set *set);
// Compares the files, in their order, with a list that was made of them before, wherever they were then. Appends to
// *differs the first difference; without one, blocks that only the list knows are from then on expected to be as it
// says. What only it knows of a file that was written to since then is read now, and `read` called after every block;
// nothing is with `read` NULL. `path`: of the list, for messages.
trireme_status token_set_compare(struct token_set *set, const struct sums_list *list, const char *path,
                                 void (*read)(void *user), void *user, struct text *differs, trireme_error *error);
// Copies tokens [begin, end) to out[end - begin]. A token outside of [0, vocab_size) is refused, naming its position.
trireme_status token_set_read(const struct token_set *set, int64_t begin, int64_t end, int32_t vocab_size, int32_t *out,
                              trireme_error *error);
// Reads all tokens, on several threads, unless those of the files cannot be outside of [0, vocab_size). `more` is
// called now and then; may be NULL.
trireme_status token_set_check(const struct token_set *set, int32_t vocab_size, void (*more)(void *user), void *user,
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
// Calls `each` for the runs of tokens in [from, limit) that are only read, and not to be predicted, in order, as long
// as it returns true. A run may be told in several parts.
trireme_status token_set_masked(const struct token_set *set, int64_t from, int64_t limit,
                                bool (*each)(void *user, int64_t begin, int64_t end), void *user, trireme_error *error);
// Whether there may be any.
bool token_set_is_masked(const struct token_set *set);

// `path` without its .bin or .idx; caller frees.
char *token_prefix(const char *path);

#endif
