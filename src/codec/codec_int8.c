// Integers, with one scale for a block: the largest value of a block is 127 of them. A scale by the largest value, and
// not by the spread of all values with those beyond it cut off: then the error has a bound, and a block needs to know
// of no other.
#include "codec/codec.h"

#include <float.h>
#include <math.h>

enum { BLOCK = 256, SCALE = 4, MOST = 127 };

// 0 where there is none; NaN if a value is not finite.
static float int8_largest(const float *x, int64_t n) {
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    return largest;
}

static void int8_encode_block(const float *x, int64_t n, uint8_t *code) {
    const float largest = int8_largest(x, n);
    // Below 2^-100 the quotients would leave f32's normal numbers; 127 times a 127th of FLT_MAX is infinity.
    const float a = fminf(fmaxf(largest, 0x1p-100f), nextafterf(FLT_MAX, 0));
    const float scale = isnan(largest) ? NAN : a / MOST, inverse = MOST / a;
    memcpy(code, &scale, SCALE);
    for (int64_t i = 0; i < n; i++)
        code[SCALE + i] = isnan(largest) ? 0 : (uint8_t)(int8_t)rintf(x[i] * inverse);
}

static float int8_value(const uint8_t *code, int64_t i) {
    float scale;
    memcpy(&scale, code, SCALE);
    return scale * (float)(int8_t)code[SCALE + i];
}

static void int8_encode(const float *x, int64_t count, uint8_t *code) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK)
        int8_encode_block(x + at, MIN(BLOCK, count - at), code);
}

static void int8_decode(const uint8_t *code, int64_t count, float *y) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK)
        for (int64_t i = 0; i < MIN(BLOCK, count - at); i++)
            y[at + i] = int8_value(code, i);
}

static void int8_decode_add(const uint8_t *code, int64_t count, float weight, float *sum) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK)
        for (int64_t i = 0; i < MIN(BLOCK, count - at); i++)
            sum[at + i] += weight * int8_value(code, i);
}

const struct codec_format codec_int8 = {.name = "int8",
                                        .block = BLOCK,
                                        .scale_bytes = SCALE,
                                        .bits = 8,
                                        .plain = {int8_encode, int8_decode, int8_decode_add}};
