// The values themselves.
#include "codec/codec.h"

static void none_encode(const float *x, int64_t count, uint8_t *code) {
    memcpy(code, x, (size_t)count * sizeof *x);
}

static void none_decode(const uint8_t *code, int64_t count, float *y) {
    memcpy(y, code, (size_t)count * sizeof *y);
}

static void none_decode_add(const uint8_t *code, int64_t count, float weight, float *sum) {
    for (int64_t i = 0; i < count; i++) {
        float y;
        memcpy(&y, code + i * 4, sizeof y);
        sum[i] += weight * y;
    }
}

const struct codec_format codec_none = {
    .name = "none", .block = 1, .bits = 32, .plain = {none_encode, none_decode, none_decode_add}};
