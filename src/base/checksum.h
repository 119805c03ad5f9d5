// Checksums: BLAKE2b of 256 bits, written as 64 lower-case hexadecimal digits, as `b2sum -l 256` prints them.
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "base/base.h"

#include <sodium.h>

#define CHECKSUM_BYTES 32
#define CHECKSUM_HEX (2 * CHECKSUM_BYTES + 1)

// A checksum being computed. Must not be copied: libsodium's state lies at the first 64-byte boundary inside.
struct checksum {
    unsigned char memory[sizeof(crypto_generichash_state) + 64];
};

void checksum_begin(struct checksum *c);
void checksum_add(struct checksum *c, const void *data, size_t bytes);
void checksum_end(struct checksum *c, char hex[CHECKSUM_HEX]);
void checksum_of(const void *data, size_t bytes, char hex[CHECKSUM_HEX]);

#endif
