// The codecs of codec/codec.h once more. Products and quotients of f32 are made in double and rounded to float: twice
// the bits and two more are enough for that to be the correctly rounded f32.
#include "reference/outer.h"

#include <float.h>
#include <math.h>

static void put(uint8_t *code, uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; i++)
        code[i] = (uint8_t)(bits >> 8 * i);
}

static uint64_t get(const uint8_t *code, int bytes) {
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits |= (uint64_t)code[i] << 8 * i;
    return bits;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double number_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

// ---- bf16: the nearer of the two neighbours whose lower half is 0

static uint16_t nearest_bf16(float x) {
    const uint32_t below = bits_of(x) & 0xffff0000, above = below + 0x10000; // in magnitude
    if (isnan(x))
        return (uint16_t)((below >> 16) | 0x40);
    if (isinf(x))
        return (uint16_t)(below >> 16);
    // Beyond the largest, 2^128 stands for infinity.
    const double size = fabs((double)x), low = fabs(number_of(below));
    const double high = isinf(number_of(above)) ? 0x1p128 : fabs(number_of(above));
    const bool up = size - low > high - size || (size - low == high - size && below & 0x10000);
    return (uint16_t)((up ? above : below) >> 16);
}

// ---- blocks of int8 and fp4

// NaN if a value is not finite.
static double largest_of(const double *x, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)(float)x[i]);
        if (!(size <= (double)FLT_MAX))
            return NAN;
        largest = fmax(largest, size);
    }
    return largest;
}

static void encode_int8(const double *x, int64_t n, uint8_t *code) {
    double a = largest_of(x, n);
    if (isnan(a)) {
        put(code, 0x7fc00000, 4);
        memset(code + 4, 0, (size_t)n);
        return;
    }
    a = fmin(fmax(a, 0x1p-100), (double)FLT_MAX - 0x1p104);
    put(code, bits_of((float)(a / 127)), 4);
    const float inverse = (float)(127 / a);
    for (int64_t i = 0; i < n; i++) {
        const float product = (float)((double)(float)x[i] * (double)inverse);
        code[4 + i] = (uint8_t)(int)nearbyint((double)product);
    }
}

static double decode_int8(const uint8_t *code, int64_t i) {
    const int q = code[4 + i] < 128 ? code[4 + i] : code[4 + i] - 256;
    return (double)(float)(number_of((uint32_t)get(code, 4)) * q);
}

static double level(int e, int m) {
    return m == 0 ? 0 : exp2(e - 127 - 7 + m);
}

// The highest of those that are nearest.
static int nearest_level(double size, int e) {
    int best = 0;
    for (int m = 1; m < 8; m++)
        if (fabs(size - level(e, m)) <= fabs(size - level(e, best)))
            best = m;
    return best;
}

static void encode_fp4(const double *x, int64_t n, uint8_t *code) {
    const double a = largest_of(x, n);
    const int64_t half = divide_up(n, 2);
    memset(code, 0, (size_t)half + 1);
    int e = 7;
    for (int other = 8; other < 255 && !isnan(a); other++)
        if (fabs(a - exp2(other - 127)) <= fabs(a - exp2(e - 127)))
            e = other;
    code[0] = (uint8_t)(isnan(a) ? 255 : e);
    for (int64_t i = 0; i < n && !isnan(a); i++) {
        const int value = nearest_level(fabs((double)(float)x[i]), e) + (signbit((float)x[i]) ? 8 : 0);
        code[1 + i % half] = (uint8_t)(code[1 + i % half] + (i < half ? value : 16 * value));
    }
}

static double decode_fp4(const uint8_t *code, int64_t n, int64_t i) {
    const int64_t half = divide_up(n, 2);
    const int value = i < half ? code[1 + i] % 16 : code[1 + i - half] / 16;
    return code[0] == 255 ? NAN : (value < 8 ? 1 : -1) * level(code[0], value % 8);
}

void plain_encode(enum codec codec, const double *x, int64_t count, uint8_t *code) {
    for (int64_t i = 0; i < count; i++)
        if (codec == CODEC_NONE) {
            uint64_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            put(code + 8 * i, bits, 8);
        } else if (codec == CODEC_BF16) {
            put(code + 2 * i, nearest_bf16((float)x[i]), 2);
        } else if (i % 256 == 0 && codec == CODEC_INT8) {
            encode_int8(x + i, MIN(256, count - i), code + i / 256 * 260);
        } else if (i % 256 == 0) {
            encode_fp4(x + i, MIN(256, count - i), code + i / 256 * 129);
        }
}

void plain_decode(enum codec codec, const uint8_t *code, int64_t count, double *y) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = i / 256, n = MIN(256, count - block * 256);
        if (codec == CODEC_NONE) {
            const uint64_t bits = get(code + 8 * i, 8);
            memcpy(&y[i], &bits, sizeof bits);
        } else if (codec == CODEC_BF16) {
            y[i] = number_of((uint32_t)get(code + 2 * i, 2) << 16);
        } else if (codec == CODEC_INT8) {
            y[i] = decode_int8(code + block * 260, i % 256);
        } else {
            y[i] = decode_fp4(code + block * 129, n, i % 256);
        }
    }
}
