// The files of a Hugging Face directory that define its tokenizer, of whatever kind. They are kept byte for byte, so
// that a model that is trained further keeps its own tokenizer.
#ifndef TOKENIZER_TOKENIZER_FILES_H
#define TOKENIZER_TOKENIZER_FILES_H

#include "base/text.h"

// A file of another form than tokenizer.json, from which that beside it was made. It comes first, since tokenizer.json
// cannot say that merges have one rank, or that sums are rounded: ids would be others.
#define TOKENIZER_SOURCE "tokenizer.source"
// The pattern by which text is cut, where that file does not say it.
#define TOKENIZER_PATTERN "tokenizer.pattern"
// What chats are made into text with, before what tokenizer_config.json says of it.
#define TOKENIZER_CHAT_TEMPLATE "chat_template.jinja"

struct tokenizer_file {
    const char *name; // within the directory; a constant
    char *bytes;
    size_t length;
};

struct tokenizer_files {
    VEC(struct tokenizer_file) files;
};

// Reads those files that the directory has, perhaps none. Nothing to release after an error.
trireme_status tokenizer_files_read(struct tokenizer_files *out, const char *directory, trireme_error *error);
// Adds a file, in place of one of that name; takes over `bytes`.
void tokenizer_files_add(struct tokenizer_files *files, const char *name, char *bytes, size_t length);
// Writes them into an existing directory, replacing files of the same names.
trireme_status tokenizer_files_write(const struct tokenizer_files *files, const char *directory, trireme_error *error);
// Whether a directory holds nothing else than such files, and those that a write which was cut short left.
bool tokenizer_files_recognise(const char *directory);
// Removes such files from a directory, which need not be there, and then itself if nothing is left in it.
void tokenizer_files_remove(const char *directory);
void tokenizer_files_release(struct tokenizer_files *files);

#endif
