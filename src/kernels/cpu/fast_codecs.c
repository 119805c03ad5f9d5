// Loops that compilers vectorise: on the bits of values, without branches. Compiled without contraction
// (cmake/isa.cmake), so that all copies round alike. Full blocks have a copy of their own, in which the number of
// values is a constant.
#include "kernels/cpu/fast_codecs.h"

#include "base/bf16.h"
#include "kernels/cpu/vec.h"

enum { BLOCK = 256, INFINITE = 0x7f800000 };

// The bits of the largest magnitude; INFINITE or more if a value is not finite.
VEC_INLINE int32_t codec_largest(const float *x, int64_t n) {
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = (int32_t)(float_bits(x[i]) & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

// What is done with a decoded value.
struct codec_use {
    bool add;
    float weight;
};

VEC_INLINE void codec_put(struct codec_use use, float *y, float value) {
    *y = use.add ? *y + use.weight * value : value;
}

// ---- none, bf16

static void none_encode(const float *x, int64_t count, uint8_t *code) {
    memcpy(code, x, (size_t)count * sizeof *x);
}

static void none_decode(const uint8_t *code, int64_t count, float *y) {
    memcpy(y, code, (size_t)count * sizeof *y);
}

static void none_decode_add(const uint8_t *restrict code, int64_t count, float weight, float *restrict sum) {
    for (int64_t i = 0; i < count; i++) {
        float y;
        memcpy(&y, code + i * 4, sizeof y);
        sum[i] += weight * y;
    }
}

static void bf16_encode(const float *restrict x, int64_t count, uint8_t *restrict code) {
    for (int64_t i = 0; i < count; i++) {
        const uint16_t bits = bf16_from_float(x[i]);
        memcpy(code + i * 2, &bits, sizeof bits);
    }
}

VEC_INLINE void bf16_read(struct codec_use use, const uint8_t *restrict code, int64_t count, float *restrict y) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, code + i * 2, sizeof bits);
        codec_put(use, y + i, bf16_to_float(bits));
    }
}

// ---- int8

VEC_INLINE void int8_encode_block(const float *restrict x, int64_t n, uint8_t *restrict code) {
    const int32_t largest = codec_largest(x, n);
    const float a = float_from_bits((uint32_t)MIN(MAX(largest, 27 << 23), INFINITE - 2)); // 2^-100 to below FLT_MAX
    const uint32_t scale = largest < INFINITE ? float_bits(a / 127) : 0x7fc00000;
    memcpy(code, &scale, sizeof scale);
    if (largest >= INFINITE) {
        memset(code + sizeof scale, 0, (size_t)n);
        return;
    }
    // Adding 1.5 * 2^23 rounds to an integer, whose lowest byte is then the sum's lowest.
    const float inverse = 127 / a, magic = 12582912.0f;
    for (int64_t i = 0; i < n; i++)
        code[sizeof scale + (size_t)i] = (uint8_t)float_bits(x[i] * inverse + magic);
}

VEC_INLINE void int8_read_block(struct codec_use use, const uint8_t *restrict code, int64_t n, float *restrict y) {
    float scale;
    memcpy(&scale, code, sizeof scale);
    const int8_t *restrict q = (const int8_t *)code + sizeof scale;
    for (int64_t i = 0; i < n; i++)
        codec_put(use, y + i, scale * (float)q[i]);
}

// ---- fp4: the upper halves of values are enough to tell what is nearest, and twice as many fit into a register

// Sign, 8 bits of exponent, 7 of the fraction.
enum { UPPER_ONE = 1 << 7, UPPER_HALF = 1 << 6, UPPER_INFINITE = INFINITE >> 16 };

// The code of the value with that upper half, in a block where m = 0 begins at the exponent `zero`, and m = 1 at the
// magnitude `least`.
VEC_INLINE uint16_t fp4_code(uint16_t upper, int16_t zero, int16_t least) {
    const int16_t magnitude = (int16_t)(upper & 0x7fff);
    int16_t m = (int16_t)((int16_t)((int16_t)(magnitude + UPPER_HALF) >> 7) - zero); // of the nearest power of two
    const int16_t one = magnitude >= least;
    m = m > one ? m : one;
    m = m < 7 ? m : 7;
    return (uint16_t)((uint16_t)m | (uint16_t)(upper >> 15 << 3));
}

VEC_INLINE void fp4_encode_block(const float *restrict x, int64_t n, uint8_t *restrict code) {
    uint16_t upper[BLOCK];
    for (int64_t i = 0; i < n; i++)
        upper[i] = (uint16_t)(float_bits(x[i]) >> 16);
    int16_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const int16_t magnitude = (int16_t)(upper[i] & 0x7fff);
        largest = magnitude > largest ? magnitude : largest;
    }
    const int64_t half = (n + 1) / 2;
    const int scale = largest < UPPER_INFINITE ? MIN(MAX((largest + UPPER_HALF) / UPPER_ONE, 7), 254) : 255;
    code[0] = (uint8_t)scale;
    if (scale == 255) {
        memset(code + 1, 0, (size_t)half);
        return;
    }
    // Half of the lowest power of two, which beside the least scale is not a normal number.
    const int16_t zero = (int16_t)(scale - 7), least = (int16_t)MAX(zero * UPPER_ONE, UPPER_HALF);
    for (int64_t i = 0; i < n / 2; i++)
        code[1 + i] = (uint8_t)(fp4_code(upper[i], zero, least) | fp4_code(upper[half + i], zero, least) << 4);
    if (n % 2)
        code[half] = (uint8_t)fp4_code(upper[half - 1], zero, least);
}

// The upper half of what a code stands for.
VEC_INLINE uint16_t fp4_upper(uint16_t code, uint16_t zero) {
    const uint16_t m = code & 7, power = (uint16_t)((uint16_t)(zero + m) << 7);
    return (uint16_t)((m ? power : 0) | (uint16_t)((code & 8) << 12));
}

VEC_INLINE void fp4_read_block(struct codec_use use, const uint8_t *restrict code, int64_t n, float *restrict y) {
    uint16_t upper[BLOCK];
    const int64_t half = (n + 1) / 2;
    const uint16_t zero = (uint16_t)(code[0] - 7);
    for (int64_t i = 0; i < half; i++)
        upper[i] = code[0] < 255 ? fp4_upper(code[1 + i], zero) : 0x7fc0;
    for (int64_t i = 0; i < n / 2; i++)
        upper[half + i] = code[0] < 255 ? fp4_upper(code[1 + i] >> 4, zero) : 0x7fc0;
    for (int64_t i = 0; i < n; i++)
        codec_put(use, y + i, float_from_bits((uint32_t)upper[i] << 16));
}

// ---- blocks of a vector

#define ENCODE(name, bytes)                                                                     \
    static void name##_encode(const float *restrict x, int64_t count, uint8_t *restrict code) { \
        int64_t at = 0;                                                                         \
        for (; at + BLOCK <= count; at += BLOCK, code += (bytes))                               \
            name##_encode_block(x + at, BLOCK, code);                                           \
        if (at < count)                                                                         \
            name##_encode_block(x + at, count - at, code);                                      \
    }
#define READ(name, bytes)                                                                          \
    VEC_INLINE void name##_read(struct codec_use use, const uint8_t *restrict code, int64_t count, \
                                float *restrict y) {                                               \
        int64_t at = 0;                                                                            \
        for (; at + BLOCK <= count; at += BLOCK, code += (bytes))                                  \
            name##_read_block(use, code, BLOCK, y + at);                                           \
        if (at < count)                                                                            \
            name##_read_block(use, code, count - at, y + at);                                      \
    }
#define DECODE(name)                                                                              \
    static void name##_decode(const uint8_t *code, int64_t count, float *y) {                     \
        name##_read((struct codec_use){.add = false}, code, count, y);                            \
    }                                                                                             \
    static void name##_decode_add(const uint8_t *code, int64_t count, float weight, float *sum) { \
        name##_read((struct codec_use){.add = true, .weight = weight}, code, count, sum);         \
    }
ENCODE(int8, 4 + BLOCK)
READ(int8, 4 + BLOCK)
ENCODE(fp4, 1 + BLOCK / 2)
READ(fp4, 1 + BLOCK / 2)
DECODE(bf16)
DECODE(int8)
DECODE(fp4)

const struct codec_loops *ISA(cpu_codec_loops)(enum codec codec);

const struct codec_loops *ISA(cpu_codec_loops)(enum codec codec) {
    static const struct codec_loops LOOPS[CODEC_COUNT] = {
        [CODEC_NONE] = {none_encode, none_decode, none_decode_add},
        [CODEC_BF16] = {bf16_encode, bf16_decode, bf16_decode_add},
        [CODEC_INT8] = {int8_encode, int8_decode, int8_decode_add},
        [CODEC_FP4] = {fp4_encode, fp4_decode, fp4_decode_add},
    };
    return &LOOPS[codec];
}
