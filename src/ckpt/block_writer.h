// Writes blocks of files that are there already in their sizes, and reads them back, a few at a time, so that the disk
// is busy while the next block is made.
//
// Through io_uring where there is one (uring.h), else by plain calls; and past the system's cache (O_DIRECT) where the
// file system, the place and the memory allow: a disk takes and gives back long blocks faster so, and what is read back
// is what the disk has.
#ifndef CKPT_BLOCK_WRITER_H
#define CKPT_BLOCK_WRITER_H

#include "base/base.h"

struct block_writer; // for one thread at a time

// To be written past the cache, a block begins at a multiple of this in its file and in memory.
enum { BLOCK_ALIGNMENT = 4096 };

enum block_way { BLOCK_URING, BLOCK_PLAIN }; // the first where there is one

// For `files` files, with up to `depth` transfers under way.
struct block_writer *block_writer_create(size_t files, int depth, enum block_way way);
void block_writer_free(struct block_writer *w); // with no file open; NULL is allowed
// Opens file number `file`, unless it is open. Message and status as below.
trireme_status block_writer_open(struct block_writer *w, size_t file, const char *path, trireme_error *error);
bool block_writer_is_open(const struct block_writer *w, size_t file);
// The number of transfers that have begun and not ended.
int block_writer_under_way(const struct block_writer *w);
// Begins to write `bytes` at `begin` of an open file. `data` must not change until the transfer has ended. Fewer than
// `depth` may be under way. What goes wrong is said at the end.
void block_writer_write(struct block_writer *w, size_t file, uint64_t begin, const void *data, int64_t bytes);
// The same for reading back, from the disk, what was written and synced. `data` has room for `bytes`, rounded up to
// BLOCK_ALIGNMENT.
void block_writer_read(struct block_writer *w, size_t file, uint64_t begin, void *data, int64_t bytes);
// Waits for the transfer that has begun first of those under way. TRIREME_ERROR_IO says which file and bytes could not
// be written or read, and why.
trireme_status block_writer_end(struct block_writer *w, trireme_error *error);
// Has the disk take what was written to an open file.
trireme_status block_writer_sync(struct block_writer *w, size_t file, trireme_error *error);
// Closes all files, with no transfer under way.
trireme_status block_writer_close(struct block_writer *w, trireme_error *error);

#endif
