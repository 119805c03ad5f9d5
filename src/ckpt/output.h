// A file being written: buffered, checksummed on the way, synced at the end, removed when anything fails.
#ifndef CKPT_OUTPUT_H
#define CKPT_OUTPUT_H

#include "ckpt/checksum_file.h"

struct output;

// Creates `directory`/`name`, or empties it if it exists. `expected` is the size it will have, for messages (0:
// unknown).
trireme_status output_create(const char *directory, const char *name, uint64_t expected, struct output **out,
                             trireme_error *error);
// Appends a piece of any size. On failure the message gives path, bytes written, bytes expected and free space, and
// only output_abort may follow.
trireme_status output_add(struct output *o, const void *data, size_t bytes, trireme_error *error);
// Flushes, syncs and closes; fills *file (caller releases). Frees `o` whether it succeeds or not; a file that failed is
// removed.
trireme_status output_finish(struct output *o, struct checksum_file *file, trireme_error *error);
// All of it at once: writes and syncs `directory`/`name`.
trireme_status output_write(const char *directory, const char *name, const void *data, size_t bytes,
                            trireme_error *error);
// Closes, removes and frees. NULL is allowed.
void output_abort(struct output *o);

#endif
