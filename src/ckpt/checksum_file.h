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

// A file's size, and either one checksum or the checksums of parts that cover it from first to last byte.
struct checksum_file {
    char *name; // relative to its directory
    uint64_t bytes;
    char hex[CHECKSUM_HEX]; // empty when there are parts
    VEC(struct checksum_part) part;
    char model[CHECKSUM_HEX]; // for a config.json: model_config_identify of its model; else empty
};

// `read` is called while content is read: after each 64 MB, and at the end of each file.
struct checksum_watch {
    void (*read)(void *user);
    void *user;
};

void checksum_file_release(struct checksum_file *f);
void checksum_file_copy(struct checksum_file *to, const struct checksum_file *from);
// Which of a file's parts are read and checked, besides its size: none; the first (the header of a safetensors file; a
// file without parts counts as one part); all.
enum checksum_depth { CHECKSUM_NONE, CHECKSUM_FIRST, CHECKSUM_ALL };
// Reads the file `path` and compares. The message names the file and the first tensor that is damaged or cut off, with
// the checksum or size expected and found. `watch` may be NULL.
trireme_status checksum_file_verify(const struct checksum_file *f, const char *path, enum checksum_depth depth,
                                    const struct checksum_watch *watch, trireme_error *error);
// Fills bytes and hex of *f (whose name the caller sets) from the open file; `path` is for messages.
trireme_status checksum_file_compute(struct checksum_file *f, int fd, const char *path, trireme_error *error);

#endif
