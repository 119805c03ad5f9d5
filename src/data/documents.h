// Finds the text files that `prepare` was given and streams their documents, checked as UTF-8.
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include "base/text.h"

enum document_format {
    DOCUMENT_TEXT,   // .txt: the file is one document
    DOCUMENT_LINES,  // .jsonl: each line is a JSON object, its text in one field; blank lines do not count
    DOCUMENT_STREAM, // standard input: as .jsonl where it begins with {, perhaps after blanks, else as .txt
};

struct document_file {
    char *path;
    enum document_format format;
    int64_t bytes; // 0 for a stream
};

// Files that were passed over.
struct document_others {
    char *ending; // ".md"; the whole name where it has no point
    int64_t count;
};

// Zero-initialise.
struct document_files {
    VEC(struct document_file);
    VEC(struct document_others) others;
    int64_t bytes; // of all files
    bool stream;   // standard input is one of them
};

// Adds a .txt or .jsonl file, perhaps packed (.txt.gz, .jsonl.zst; unpacker.h), which must not be empty, or all such
// files below a directory in sorted order (strcmp of names, file by file and folder by folder; empty ones are kept;
// other files, and names that begin with '.', are passed over, the former counted in `others`). "-" is standard input.
// USAGE when there is nothing to add.
trireme_status document_files_add(struct document_files *files, const char *path, trireme_error *error);
// Appends "12 .md, 3 .csv": what was passed over.
void document_files_describe_others(const struct document_files *files, struct text *out);
void document_files_release(struct document_files *files);

// Where documents go. Each function may fail, which ends the reading with its status.
struct document_sink {
    void *user;
    trireme_status (*add)(void *user, const char *bytes, size_t length, trireme_error *error); // piece of a document
    trireme_status (*end)(void *user, trireme_error *error);                                   // end of a document
    trireme_status (*advance)(void *user, size_t bytes, trireme_error *error); // this many more bytes were read
    // A line that is a chat: an object without the field for text, but with "messages", "conversations", or "prompt"
    // and "completion". json[0, length) is all of it, which was only looked through; `line` is its number. NULL: none
    // is taken.
    trireme_status (*chat)(void *user, const char *json, size_t length, int64_t line, trireme_error *error);
};

// Lines of a .jsonl from which no text can be had, whatever the reason: they were cut short, are not UTF-8, have no
// such field, or a null in it. Zero-initialise.
struct document_bad_lines {
    int64_t count;
    trireme_error first; // why the first is bad
};

struct document_options {
    const char *field;  // of a JSON line; NULL: "text"
    size_t line_limit;  // longest JSON line, bytes; 0: 1 GiB. Memory is bounded by twice the longest line.
    size_t block_bytes; // bytes that are read at once, and the longest piece; 0: 1 MiB
    struct document_bad_lines
        *bad_lines; // where lines without a text are counted, to be left out; NULL: they are refused
};

// Passes the file's documents to the sink, piece by piece. Messages name file and byte offset, and the line's number in
// a .jsonl.
trireme_status document_file_read(const struct document_file *file, const struct document_options *options,
                                  const struct document_sink *sink, trireme_error *error);

#endif
