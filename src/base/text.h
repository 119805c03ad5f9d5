// Growing strings, whole files, and the comparison of words.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/base.h"

// A string that grows. `text` is NULL until something is added, then NUL-terminated. Zero-initialise; text_release
// frees.
struct text {
    char *text;
    size_t length, capacity;
};

void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *t, const char *bytes, size_t length);
// Adds bytes with U+FFFD for each ill-formed sequence of them (utf8.h).
void text_add_utf8(struct text *t, const char *bytes, size_t length);
// Adds arbitrary bytes in a form that is safe to send to a terminal: each byte of a control character (except tabs and
// line ends), and each byte that belongs to no UTF-8 character, is written \xNN. Returns how many bytes it took: unless
// the text `ends` with them, bytes at the end that may be the beginning of a character or of a line end are left.
size_t text_add_shown(struct text *t, const char *bytes, size_t length, bool ends);
// Adds a text, as of names of files, in that form and on one line: tabs and line ends are written \xNN, too.
void text_add_line(struct text *t, const char *line);
void text_add_numbers(struct text *t, const int *number, int count); // "3,0,2"
void text_release(struct text *t);

// Whether nothing exists at `path`. False where that cannot be told, as below a directory that may not be searched:
// opening it will say why.
bool file_missing(const char *path);
// Opens a file for reading. A pipe that nobody writes to is refused after a second, in which its writer may start.
trireme_status file_open(const char *path, int *file, trireme_error *error);
// Reads a whole file of at most `limit` bytes into *out (NUL-terminated; the caller frees) and its size into *length.
trireme_status file_read(const char *path, size_t limit, char **out, size_t *length, trireme_error *error);
// The same for a file that the user names: where it cannot be read, TRIREME_ERROR_USAGE, as nothing was started.
trireme_status file_read_named(const char *path, size_t limit, char **out, size_t *length, trireme_error *error);
// A line of a file, without its end; not NUL-terminated.
struct file_line {
    const char *text;
    size_t length, number; // from 1
    const char *where;     // "PATH:NUMBER", for messages
};
// Calls `each` for the lines of such a file that are not blank. A mark before the first is left out.
trireme_status file_each_line(const char *path, size_t limit,
                              trireme_status (*each)(void *user, const struct file_line *line, trireme_error *error),
                              void *user, trireme_error *error);
// Whether `path` is to be written in place, since no file can replace it: a pipe, a terminal or another device.
bool file_is_device(const char *path);
// Opens such a path for writing. A pipe that nobody reads is refused after a second.
trireme_status file_open_device(const char *path, int *file, trireme_error *error);
// Writes bytes to `path`.tmp, syncs, and renames over `path`: afterwards there is the old file or the new one, never
// half of one. A device is written in place.
// Appends to the file `file`, which no other process writes, all bytes or none. `path` is for messages.
trireme_status file_append(int file, const char *path, const void *bytes, size_t length, trireme_error *error);
trireme_status file_write_atomic(const char *path, const void *bytes, size_t length, trireme_error *error);
// Writes `length` bytes at the descriptor's position. Returns how many it wrote; where that is fewer, errno says why.
size_t file_write(int file, const void *bytes, size_t length);
// Makes a rename or a creation in the directory of `path` survive a power failure, where the system lets us.
trireme_status file_sync_directory(const char *path, trireme_error *error);
// Locks the whole file through `file`, a descriptor open for writing, which holds the lock until it is closed. False,
// with errno set, where it cannot: EAGAIN where another holds the lock.
bool file_lock(int file);
// Whether somebody holds that lock. Looking takes no lock, which would keep others from theirs.
bool file_is_locked(const char *path);
// Creates `path` and its missing parents, so that they survive a power failure.
trireme_status directory_create(const char *path, trireme_error *error);

// The least number of single-character insertions, deletions, replacements and neighbour swaps that turn a into b.
size_t text_distance(const char *a, const char *b);
// The largest distance at which `word` may be a misspelling of another: always so small that a letter of it is left.
size_t text_misspelt_distance(const char *word);
// Of `count` known words the nearest one that `word` may be a misspelling of, else one that begins with `word`; NULL if
// there is none. The words are members of an array of structures of `stride` bytes each: text_nearest(word,
// &table[0].name, count, sizeof *table).
const char *text_nearest(const char *word, const char *const *first, size_t count, size_t stride);
// Whether `text` ends with `end`.
bool text_ends(const char *text, const char *end);
// Compares two `char *` elements byte by byte: for qsort.
int text_compare(const void *a, const void *b);
// Whether `word` is one of a list of words separated by spaces.
bool text_lists(const char *list, const char *word);
// Reads a list such as "3,0,2" of at most `most` numbers, none negative. Returns how many there are; 0 if the text is
// not such a list.
int numbers_read(const char *list, int most, int *out);
// How many numbers are in `list`, which numbers_read must accept, or which is empty.
int numbers_count(const char *list);

#endif
