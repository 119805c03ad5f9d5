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
    // Called now and then with the bytes of input done, and the total, 0 where standard input is read; may be NULL.
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
    const atomic_bool *cancel; // once true, INTERRUPTED is returned; may be NULL
};

struct prepare_result {
    struct token_manifest manifest;
    int64_t files;
    int64_t empty_documents;             // documents without text, which were left out
    struct document_bad_lines bad_lines; // which were left out
    char passed_over[256];               // files of directories that were passed over: "12 .md, 3 .csv", or ""
};

// Turns all inputs into token files, in constant memory. When it fails or is cancelled, files of an earlier run at
// `prefix` stay as they were, and nothing else is left. Inputs without any text are refused.
trireme_status prepare_tokens(const struct prepare_options *options, struct prepare_result *out, trireme_error *error);

#endif
