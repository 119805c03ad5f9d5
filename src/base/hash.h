// 64-bit FNV-1a (Fowler, Noll, Vo) of bytes, or a variant of it for whole numbers. No protection against forgery.
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdint.h>

// The hash of nothing: FNV's offset basis.
#define HASH_NOTHING ((uint64_t)0xCBF29CE484222325)

// Extends `hash` by one byte, or by one number of up to 32 bits.
static inline uint64_t hash_add(uint64_t hash, uint32_t value) {
    return (hash ^ value) * 0x100000001B3;
}

#endif
