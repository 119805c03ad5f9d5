// ckpt/: files that hold models and training state: safetensors, directories that are complete or not there,
// checkpoints. Includes base/, program/, kernels/, model/.
//
// Here: checksums of files and of the parts that they consist of.
#ifndef CKPT_CHECKSUM_FILE_H
#define CKPT_CHECKSUM_FILE_H

#include "base/checksum.h"

// A run of bytes inside a file with a checksum of its own: a tensor, or the header of a safetensors file.
struct checksum_part {
    char *name;
    uint64_t bytes;
    char hex[CHECKSUM_HEX];
};

// The header's part of a safetensors file; no tensor may be called so.
#define CHECKSUM_HEADER "__header__"

// A file's size, and either one checksum; or XXH3 sums of its blocks, each of which may have been written by another
// rank; or, in files of before those, the checksums of parts that cover it from first to last byte.
struct checksum_file {
    char *name; // relative to its directory
    uint64_t bytes;
    char hex[CHECKSUM_HEX]; // empty when there are parts or blocks
    VEC(struct checksum_part) part;
    uint64_t block_bytes; // of all blocks but the last
    VEC(uint64_t) block;
    char model[CHECKSUM_HEX]; // for a config.json: model_config_identify of its model; else empty
};

// `read` is called while content is read: after each 64 MB, and at the end of each file.
struct checksum_watch {
    void (*read)(void *user);
    void *user;
};

void checksum_file_release(struct checksum_file *f);
void checksum_file_copy(struct checksum_file *to, const struct checksum_file *from);
// Which of a file's parts or blocks are read and checked, besides its size: none; the first part (with the header of a
// safetensors file; a file without parts counts as one), and no blocks; all.
enum checksum_depth { CHECKSUM_NONE, CHECKSUM_FIRST, CHECKSUM_ALL };
// How several ranks verify the same files together. What has a checksum of its own - a block, a part, or a file without
// either - is a piece; pieces are numbered through all files, and each rank reads every `ranks`-th one.
struct checksum_share {
    int ranks, rank;
    int64_t next;   // number of the next file's first piece, 0 at first: the same on all ranks
    int64_t failed; // where verifying has failed: at which piece
};
#define CHECKSUM_WHOLE ((struct checksum_share){.ranks = 1})
size_t checksum_file_pieces(const struct checksum_file *f);
// The bytes [*begin, *end) of the file that a piece has.
void checksum_file_piece(const struct checksum_file *f, size_t piece, uint64_t *begin, uint64_t *end);
// Reads the rank's share of the file `path` and compares. The message names the file and the first tensor or bytes that
// are damaged or cut off, with the checksum or size expected and found. `watch` may be NULL.
trireme_status checksum_file_verify(const struct checksum_file *f, const char *path, enum checksum_depth depth,
                                    struct checksum_share *share, const struct checksum_watch *watch,
                                    trireme_error *error);
// Fills bytes and hex of *f (whose name the caller sets) from the open file; `path` is for messages.
trireme_status checksum_file_compute(struct checksum_file *f, int fd, const char *path, trireme_error *error);

#endif
