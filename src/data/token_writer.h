// Writes Megatron's indexed dataset (the layout is in token_shard.h) in constant memory.
//
// All files, PREFIX.sums (block_sums.h) among them, and perhaps the directory PREFIX.tokenizer, are written under
// temporary names (PREFIX.bin.tmp and so on), synced, and renamed only when every byte is on the disk (token_files.h):
// whatever fails leaves the files of an earlier run as they were, and nothing else. A writer that is killed leaves the
// old files, or all new ones, or what token_files_mend makes the old files of again; and what it had written, so that a
// later one can go on from where it last saved (token_journal.h). A second writer of the same prefix is refused while
// the first runs, where files can be locked; what a killed writer left is taken over. The process must ignore SIGXFSZ
// if its file size may be limited.
#ifndef DATA_TOKEN_WRITER_H
#define DATA_TOKEN_WRITER_H

#include "base/json.h"
#include "data/token_manifest.h"

struct token_writer;

// Tokens are stored as uint16 when vocab_size < 65500, else as int32, as Megatron does. Missing directories of `prefix`
// are made. Refuses (USAGE) to replace a file that is neither a token file of this format nor its manifest.
// `sequence_limit`: tokens of the longest sequence, 1 to INT32_MAX (what the format holds), 0 for INT32_MAX; a longer
// document is stored as several sequences, with an empty one between each two.
trireme_status token_writer_create(const char *prefix, int32_t vocab_size, int32_t sequence_limit,
                                   struct token_writer **out, trireme_error *error);
// The same, going on from where a writer of the same `of` last saved: *position is what it then was given, which the
// caller releases; NULL: there is none, the tokens begin anew.
trireme_status token_writer_go_on(const char *prefix, int32_t vocab_size, int32_t sequence_limit, const char *of,
                                  struct token_writer **out, json_t **position, trireme_error *error);
// Saves what was written: syncs it, and then notes how far it has come. `position`, an object, is kept with that.
trireme_status token_writer_save(struct token_writer *w, const char *of, json_t *position, trireme_error *error);
// Stops where the last save was, which stays. Frees the writer.
void token_writer_leave(struct token_writer *w);
// Appends tokens, each in [0, vocab_size), to the document in progress.
trireme_status token_writer_add(struct token_writer *w, const int32_t *tokens, size_t count, trireme_error *error);
// What follows of the document is only read, not predicted (token_shard.h); after the next call, it is predicted again.
trireme_status token_writer_turn(struct token_writer *w, trireme_error *error);
// Ends the document in progress; one without tokens is not stored.
trireme_status token_writer_end_document(struct token_writer *w, trireme_error *error);
int64_t token_writer_tokens(const struct token_writer *w);
int64_t token_writer_documents(const struct token_writer *w);
// The files of the tokenizer, which become PREFIX.tokenizer/; without this call there will be none. They must live
// until the writer is finished.
void token_writer_keep(struct token_writer *w, const struct tokenizer_files *files);
// Puts the files in place, with PREFIX.json unless `manifest` is NULL (then an old one is removed). Frees the writer
// whether it succeeds or not. The last document must have been ended; no document at all is refused.
trireme_status token_writer_finish(struct token_writer *w, const struct token_manifest *manifest, trireme_error *error);
// Gives up: removes the temporary files and the directories it made, frees the writer. NULL is fine.
void token_writer_discard(struct token_writer *w);

#endif
