// Turns text into token files: PREFIX.bin, PREFIX.idx, PREFIX.json (token_manifest.h) and PREFIX.sums (block_sums.h).
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/documents.h"
#include "data/token_manifest.h"

#include <stdatomic.h>

struct prepare_options {
    const char *const *inputs; // .txt, .jsonl, directories, "-": documents.h
    size_t input_count;
    const char *prefix;
    const struct tokenizer *tokenizer; // caller keeps it
    struct document_options documents; // bad_lines is not used:
    bool skips_bad_lines;              // this says whether they are left out
    const char *chat_template;         // chat_template_create; NULL: "", the tokenizer's own
    // Called now and then with the bytes of input done, and the total, 0 where standard input is read; may be NULL.
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
    const atomic_bool *cancel; // once true, INTERRUPTED is returned; may be NULL
    // The tokens do not depend on these:
    int threads;        // that encode; 0: as many as there are cores, at most 32
    size_t job_bytes;   // of text that a thread takes at once, about; 0: 256 KiB
    int64_t save_after; // nanoseconds between saves; 0: 10 seconds
};

struct prepare_result {
    struct token_manifest manifest;
    int64_t files;
    int64_t empty_documents; // documents without text, which were left out
    int64_t resumed_tokens;  // that an earlier run had saved
    int64_t chats;           // of the documents; of these only answers are to be predicted
    int64_t answer_tokens;   // of chats
    int64_t chats_without_answers;
    struct document_bad_lines bad_lines; // which were left out
    char passed_over[256];               // files of directories that were passed over: "12 .md, 3 .csv", or ""
};

// Turns all inputs into token files, on several threads, in constant memory: of long documents, parts are encoded by
// themselves where the tokenizer allows it (encoder_seam); else memory is taken for the longest document, at most 1 GiB
// of text. When it fails, files of an earlier run at `prefix` stay as they were, and nothing else is left. When it is
// cancelled or killed, what it had saved is left, too (token_journal.h), unless standard input is read; the same call
// goes on from there, if no input has changed. Inputs without any text are refused.
trireme_status prepare_tokens(const struct prepare_options *options, struct prepare_result *out, trireme_error *error);

#endif
