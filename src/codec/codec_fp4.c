// Powers of two with a sign: E3M0. The scale of a block is a power of two as well, so nothing is ever multiplied.
#include "codec/codec.h"

#include <float.h>
#include <math.h>

// TOP: the code of the block's largest values.
enum { BLOCK = 256, SCALE = 1, TOP = 7, BIAS = 127, SCALE_LEAST = TOP, SCALE_MOST = 254, SCALE_NAN = 255 };

// The byte for the power of two nearest to the largest value.
static int fp4_scale(const float *x, int64_t n) {
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return SCALE_NAN;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    if (largest == 0)
        return SCALE_LEAST;
    int exponent;
    const float fraction = frexpf(largest, &exponent); // largest = fraction * 2^exponent, 0.5 <= fraction < 1
    const int nearest = BIAS + (fraction < 0.75f ? exponent - 1 : exponent);
    return MIN(MAX(nearest, SCALE_LEAST), SCALE_MOST);
}

// What the magnitude m stands for in a block of that scale.
static float fp4_level(int scale, int m) {
    return m == 0 ? 0 : ldexpf(1, scale - BIAS - TOP + m);
}

static uint8_t fp4_code(float x, int scale) {
    int m = TOP;
    // Midpoints of neighbours are representable.
    while (m > 0 && fabsf(x) < (fp4_level(scale, m) + fp4_level(scale, m - 1)) / 2)
        m--;
    return (uint8_t)(m | (signbit(x) ? 8 : 0));
}

static float fp4_value(int scale, uint8_t code) {
    return scale == SCALE_NAN ? NAN : copysignf(fp4_level(scale, code & 7), code & 8 ? -1.0f : 1.0f);
}

static float fp4_value_at(const uint8_t *block, int64_t n, int64_t i) {
    const int64_t half = divide_up(n, 2);
    return fp4_value(block[0], i < half ? block[SCALE + i] & 15 : block[SCALE + i - half] >> 4);
}

static void fp4_encode(const float *x, int64_t count, uint8_t *code) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK / 2) {
        const int64_t n = MIN(BLOCK, count - at), half = divide_up(n, 2);
        const int scale = fp4_scale(x + at, n);
        code[0] = (uint8_t)scale;
        memset(code + SCALE, 0, (size_t)half);
        for (int64_t i = 0; i < n && scale != SCALE_NAN; i++)
            code[SCALE + (i < half ? i : i - half)] |= (uint8_t)(fp4_code(x[at + i], scale) << (i < half ? 0 : 4));
    }
}

static void fp4_decode(const uint8_t *code, int64_t count, float *y) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK / 2)
        for (int64_t i = 0, n = MIN(BLOCK, count - at); i < n; i++)
            y[at + i] = fp4_value_at(code, n, i);
}

static void fp4_decode_add(const uint8_t *code, int64_t count, float weight, float *sum) {
    for (int64_t at = 0; at < count; at += BLOCK, code += SCALE + BLOCK / 2)
        for (int64_t i = 0, n = MIN(BLOCK, count - at); i < n; i++)
            sum[at + i] += weight * fp4_value_at(code, n, i);
}

const struct codec_format codec_fp4 = {
    .name = "fp4", .block = BLOCK, .scale_bytes = SCALE, .bits = 4, .plain = {fp4_encode, fp4_decode, fp4_decode_add}};
