#include "ckpt/convert.h"

#include "base/bf16.h"

#include <math.h>

enum safetensors_dtype convert_stored(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
        return SAFETENSORS_F32;
    case DTYPE_BF16:
        return SAFETENSORS_BF16;
    case DTYPE_F64:
        return SAFETENSORS_F64;
    case DTYPE_I32:
        return SAFETENSORS_I32;
    case DTYPE_U16:
        return SAFETENSORS_U16;
    case DTYPE_U8:
        return SAFETENSORS_U8;
    case DTYPE_COUNT:
        break;
    }
    bug(__FILE__, __LINE__, "no such dtype");
}

bool convert_readable(enum safetensors_dtype dtype) {
    return dtype == SAFETENSORS_F64 || dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 ||
           dtype == SAFETENSORS_BF16;
}

// IEEE binary16: sign, 5 bits of exponent, 10 of fraction.
static double half_to_double(uint16_t half) {
    int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    double magnitude;
    if (exponent == 0x1f)
        magnitude = fraction ? NAN : INFINITY;
    else
        magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 0x400, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

void convert_decode(enum safetensors_dtype dtype, const void *data, int64_t count, double *out) {
    CHECK(convert_readable(dtype));
    const unsigned char *at = data;
    for (int64_t i = 0; i < count; i++) {
        float single;
        uint16_t half;
        if (dtype == SAFETENSORS_F64)
            memcpy(&out[i], at + 8 * i, 8);
        else if (dtype == SAFETENSORS_F32) {
            memcpy(&single, at + 4 * i, 4);
            out[i] = single;
        } else {
            memcpy(&half, at + 2 * i, 2);
            out[i] = dtype == SAFETENSORS_BF16 ? bf16_to_float(half) : half_to_double(half);
        }
    }
}

void convert_encode(enum dtype dtype, const double *in, int64_t count, void *data, uint16_t *remainder, int64_t first) {
    CHECK(dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i;
        if (dtype == DTYPE_F64)
            ((double *)data)[at] = in[i];
        else if (dtype == DTYPE_F32)
            ((float *)data)[at] = (float)in[i];
        else if (remainder)
            master_split((float)in[i], (uint16_t *)data + at, remainder + at);
        else
            ((uint16_t *)data)[at] = bf16_from_float((float)in[i]);
    }
}

// Looks at exponents: that of infinities and NaNs has all bits set. Counts in place of leaving, so that it is fast.
#define FINITE(type, exponent)                                           \
    ({                                                                   \
        uint64_t not_finite = 0;                                         \
        for (int64_t i = 0; i < count; i++) {                            \
            type bits;                                                   \
            memcpy(&bits, (const type *)data + i, sizeof bits);          \
            not_finite += (bits & (type)(exponent)) == (type)(exponent); \
        }                                                                \
        not_finite == 0;                                                 \
    })

bool convert_finite(enum dtype dtype, const void *data, int64_t count) {
    CHECK(dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16);
    return dtype == DTYPE_F64   ? FINITE(uint64_t, UINT64_C(0x7ff) << 52)
           : dtype == DTYPE_F32 ? FINITE(uint32_t, UINT32_C(0xff) << 23)
                                : FINITE(uint16_t, 0xff << 7);
}
