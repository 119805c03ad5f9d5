// The files of a Hugging Face directory that say how text becomes the model's tokens, of whatever kind: kept as they
// are, so that a model that is trained further goes on with its own.
#ifndef DATA_TOKENIZER_FILES_H
#define DATA_TOKENIZER_FILES_H

#include "base/text.h"

struct tokenizer_file {
    const char *name; // within the directory; a constant
    char *bytes;
    size_t length;
};

struct tokenizer_files {
    VEC(struct tokenizer_file) files;
};

// Those that the directory has, perhaps none. Nothing to release after an error.
trireme_status tokenizer_files_read(struct tokenizer_files *out, const char *directory, trireme_error *error);
// Adds a file; takes over `bytes`.
void tokenizer_files_add(struct tokenizer_files *files, const char *name, char *bytes, size_t length);
// Into a directory, which exists; files of these names are replaced.
trireme_status tokenizer_files_write(const struct tokenizer_files *files, const char *directory, trireme_error *error);
void tokenizer_files_release(struct tokenizer_files *files);

#endif
