// bfloat16, the upper half of an f32's bits, and the split of an f32 master weight into a bf16 parameter and a 16-bit
// remainder. All functions are branch-free, so that loops over them vectorise. Includes no other header of src/.
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Exact.
static inline float bf16_to_float(uint16_t x) {
    return float_from_bits((uint32_t)x << 16);
}

// Element i of bf16 or f32.
static inline float float_at(bool bf16, const void *p, int64_t i) {
    return bf16 ? bf16_to_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

// Rounds to nearest, ties to even; beyond the largest bf16 to infinity; a NaN stays a NaN of the same sign, made quiet.
static inline uint16_t bf16_from_float(float x) {
    uint32_t bits = float_bits(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

// The f32 master weight that the pair stands for: its bits are p * 65536 plus rem read as a signed number.
static inline float master_join(uint16_t p, uint16_t rem) {
    return float_from_bits(((uint32_t)p << 16) + (uint32_t)(int32_t)(int16_t)rem);
}

// Splits an f32 so that master_join gives back the same bits, for everything but a NaN (which becomes a quiet NaN in
// *p, remainder 0). *p is the bf16 nearest to `master`, as bf16_from_float rounds it except that a tie goes to the
// greater magnitude, not to even, because a remainder of +32768 does not fit.
static inline void master_split(float master, uint16_t *p, uint16_t *rem) {
    uint32_t bits = float_bits(master);
    uint32_t nan = (bits & 0x7fffffff) > 0x7f800000;
    *p = (uint16_t)(nan ? bits >> 16 | 0x40 : (bits + 0x8000) >> 16);
    *rem = (uint16_t)(nan ? 0 : bits);
}

#endif
