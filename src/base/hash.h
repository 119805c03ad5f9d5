// FNV-1a with 64 bits (Fowler, Noll, Vo), of bytes, or as a variant of whole numbers; it keeps nobody from forging one.
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdint.h>

// Of nothing: the offset basis.
#define HASH_NOTHING ((uint64_t)0xCBF29CE484222325)

// The hash of what `hash` is of, and behind it one byte or one number of up to 32 bits.
static inline uint64_t hash_add(uint64_t hash, uint32_t value) {
    return (hash ^ value) * 0x100000001B3;
}

#endif
