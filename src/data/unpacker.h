// Reads text that may be packed: by gzip (RFC 1952) or Zstandard (RFC 8878), several packed parts after one another
// included. Which one it is, its first bytes tell. Memory is constant, whatever the text; of Zstandard's windows, those
// up to 128 MiB are read.
#ifndef DATA_UNPACKER_H
#define DATA_UNPACKER_H

#include "base/base.h"

struct unpacker;

// Where bytes come from: up to `want` to `at`; *got = 0 at their end.
struct unpacker_source {
    void *user;
    trireme_status (*read)(void *user, char *at, size_t want, size_t *got, trireme_error *error);
};

// `path` is for messages; it must outlive the unpacker.
struct unpacker *unpacker_create(const char *path, struct unpacker_source source);
void unpacker_free(struct unpacker *u);
// Puts up to `want` bytes of text to `at`; *got = 0 at its end. CORRUPT, with the byte of the packed text, where it is
// damaged, or ends too early.
trireme_status unpacker_read(struct unpacker *u, char *at, size_t want, size_t *got, trireme_error *error);

#endif
