// Growing strings and whole files.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/base.h"

// A string that grows. `text` is NUL-terminated once anything was added, else NULL. Zero-initialise; text_release
// frees.
struct text {
    char *text;
    size_t length, capacity;
};

void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *t, const char *bytes, size_t length);
// Adds bytes of any kind as a terminal may be sent them: each byte of a control character, but for tabs and ends of
// lines, and each that is of no UTF-8 character, is written \xNN. Returns how many were taken: unless the text ends
// with them, what may be the beginning of a character, or of the end of a line, is left.
size_t text_add_shown(struct text *t, const char *bytes, size_t length, bool ends);
void text_add_numbers(struct text *t, const int *number, int count); // "3,0,2"
void text_release(struct text *t);

// Whether nothing is there. What cannot be told, as below a directory that is not to be searched, opening it tells.
bool file_missing(const char *path);
// Opens what is to be read. A pipe that nobody writes to is refused after a second, in which that program may begin.
trireme_status file_open(const char *path, int *file, trireme_error *error);
// Reads a whole file of at most `limit` bytes into *out (NUL-terminated; caller frees) and its length.
trireme_status file_read(const char *path, size_t limit, char **out, size_t *length, trireme_error *error);
// Whether it is something to write to that no file can take the place of: a pipe, a terminal or another device.
bool file_is_device(const char *path);
// Opens such a thing, to write to it. A pipe that nobody reads is refused after a second.
trireme_status file_open_device(const char *path, int *file, trireme_error *error);
// Writes bytes to `path`.tmp, syncs, and renames over `path`: the old file or the new one, never half of one. A device
// is written to.
trireme_status file_write_atomic(const char *path, const void *bytes, size_t length, trireme_error *error);
// Writes `length` bytes where the descriptor stands. Returns how many it wrote; where that is fewer, errno says why.
size_t file_write(int file, const void *bytes, size_t length);
// Makes a rename or a creation in the directory of `path` last through a power failure.
trireme_status file_sync_directory(const char *path, trireme_error *error);
// Takes the lock of the whole file, which a descriptor to write has until it is closed. False, with errno set, where it
// cannot: EAGAIN where another has it.
bool file_lock(int file);
// Whether somebody has it. To look takes no lock, which would keep others from theirs.
bool file_is_locked(const char *path);
// Creates `path` and its missing parents.
trireme_status directory_create(const char *path, trireme_error *error);

// Number of single-character insertions, deletions, replacements and neighbour swaps that turn a into b.
size_t text_distance(const char *a, const char *b);
// How far `word` may be from the one that was meant: not so far that no letter of it is left.
size_t text_misspelt_distance(const char *word);
// Of `count` known words the nearest to one that is misspelt, else one that it begins; NULL where none is near. The
// words are members of an array of structures, of `stride` bytes each: text_nearest(word, &table[0].name, count,
// sizeof *table).
const char *text_nearest(const char *word, const char *const *first, size_t count, size_t stride);
// Whether the last of it is `end`.
bool text_ends(const char *text, const char *end);
// Of two `char *`, byte by byte: for qsort.
int text_compare(const void *a, const void *b);
// Whether `word` is one of a list of words separated by spaces.
bool text_lists(const char *list, const char *word);
// Reads a list such as "3,0,2" of at most `most` numbers, none of which is negative. Returns how many there are, 0
// where the text is no such list.
int numbers_read(const char *list, int most, int *out);
// How many numbers_read finds in what is such a list, or empty.
int numbers_count(const char *list);

#endif
