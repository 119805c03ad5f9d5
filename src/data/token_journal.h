// PREFIX.prepare.tmp: how far a token writer has come, beside what it has written so far (PREFIX.bin.tmp and
// PREFIX.idx.tmp), which was synced before. A writer that is killed leaves all three, and a later one of the same
// tokens goes on from there.
#ifndef DATA_TOKEN_JOURNAL_H
#define DATA_TOKEN_JOURNAL_H

#include "base/json.h"

// Zero-initialise; token_journal_release frees.
struct token_journal {
    char *of;             // what the tokens are made of, and how: another writer's are of no use
    int64_t bytes, index; // of the tokens, and of the index
    int64_t tokens, sequences, documents;
    int64_t sequence_length; // tokens in the sequence in progress
    int64_t document_tokens; // and in the document
    struct text continued;   // a bit for each sequence: whether it does not begin a document
    json_t *position;        // an object of the caller's: where it was in its input
};

trireme_status token_journal_write(const char *prefix, const struct token_journal *j, trireme_error *error);
// Whether there is one of `of`. What cannot be read counts as none.
bool token_journal_read(const char *prefix, const char *of, struct token_journal *out);
void token_journal_remove(const char *prefix);
void token_journal_release(struct token_journal *j);

#endif
