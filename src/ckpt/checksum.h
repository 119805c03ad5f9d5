// ckpt/: files that hold models and training state: safetensors, directories that are complete or not there,
// checkpoints. May include base, config, mesh, program, kernels, model, optim, codec, parallel, comm and data.
//
// Here: checksums. BLAKE2b of 256 bits, written as 64 lower-case hexadecimal digits, as `b2sum -l 256` prints them.
#ifndef CKPT_CHECKSUM_H
#define CKPT_CHECKSUM_H

#include "base/base.h"

#include <sodium.h>

#define CHECKSUM_BYTES 32
#define CHECKSUM_HEX (2 * CHECKSUM_BYTES + 1)

// Being computed. Not to be copied: libsodium's state lies at the first 64-byte boundary inside.
struct checksum {
    unsigned char memory[sizeof(crypto_generichash_state) + 64];
};

void checksum_begin(struct checksum *c);
void checksum_add(struct checksum *c, const void *data, size_t bytes);
void checksum_end(struct checksum *c, char hex[CHECKSUM_HEX]);
void checksum_of(const void *data, size_t bytes, char hex[CHECKSUM_HEX]);

// A run of bytes inside a file with a checksum of its own: a tensor, or the header of a safetensors file.
struct checksum_part {
    char *name;
    uint64_t bytes;
    char hex[CHECKSUM_HEX];
};

// The header's part of a safetensors file; no tensor may be called so.
#define CHECKSUM_HEADER "__header__"

// What is known of a file: its size, and either one checksum or the checksums of parts that cover it from first to last
// byte.
struct checksum_file {
    char *name; // relative to its directory
    uint64_t bytes;
    char hex[CHECKSUM_HEX]; // empty when there are parts
    VEC(struct checksum_part) part;
};

void checksum_file_release(struct checksum_file *f);
void checksum_file_copy(struct checksum_file *to, const struct checksum_file *from);
// Reads the file `path` and compares. The message names the file and the first tensor that is damaged or cut off, with
// the checksum or size expected and found. sizes_only looks at no content.
trireme_status checksum_file_verify(const struct checksum_file *f, const char *path, bool sizes_only,
                                    trireme_error *error);
// Fills bytes and hex of *f (whose name the caller sets) from the open file; `path` is for messages.
trireme_status checksum_file_compute(struct checksum_file *f, int fd, const char *path, trireme_error *error);

#endif
