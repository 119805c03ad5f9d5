// The upper half of an f32, rounded.
#include "base/bf16.h"
#include "codec/codec.h"

static void bf16_encode(const float *x, int64_t count, uint8_t *code) {
    for (int64_t i = 0; i < count; i++) {
        const uint16_t bits = bf16_from_float(x[i]);
        memcpy(code + i * 2, &bits, sizeof bits);
    }
}

static float bf16_value(const uint8_t *code, int64_t i) {
    uint16_t bits;
    memcpy(&bits, code + i * 2, sizeof bits);
    return bf16_to_float(bits);
}

static void bf16_decode(const uint8_t *code, int64_t count, float *y) {
    for (int64_t i = 0; i < count; i++)
        y[i] = bf16_value(code, i);
}

static void bf16_decode_add(const uint8_t *code, int64_t count, float weight, float *sum) {
    for (int64_t i = 0; i < count; i++)
        sum[i] += weight * bf16_value(code, i);
}

const struct codec_format codec_bf16 = {
    .name = "bf16", .block = 1, .bits = 16, .plain = {bf16_encode, bf16_decode, bf16_decode_add}};
