// XXH3 of 64 bits (xxhash): finds what disks and copies have changed, faster than memory is read. No protection against
// forgery, for which there is base/checksum.h.
#ifndef BASE_XXH3_H
#define BASE_XXH3_H

#include "base/base.h"

// Of bytes that come piece by piece.
struct xxh3 {
    void *state;
};

struct xxh3 xxh3_begin(void);
void xxh3_add(struct xxh3 *x, const void *data, size_t bytes);
uint64_t xxh3_end(struct xxh3 *x); // frees
uint64_t xxh3_of(const void *data, size_t bytes);

#endif
