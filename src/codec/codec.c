#include "codec/codec.h"

const struct codec_format *codec_format(enum codec codec) {
    static const struct codec_format *const FORMATS[CODEC_COUNT] = {
        [CODEC_NONE] = &codec_none, [CODEC_BF16] = &codec_bf16, [CODEC_INT8] = &codec_int8, [CODEC_FP4] = &codec_fp4};
    return FORMATS[codec];
}

enum codec codec_named(const char *name) {
    enum codec codec = 0;
    while (codec < CODEC_COUNT && strcmp(codec_format(codec)->name, name) != 0)
        codec++;
    return codec;
}

int64_t codec_bytes(enum codec codec, int64_t count, bool f64) {
    const struct codec_format *format = codec_format(codec);
    // A full block has whole bytes of codes, so that those of all blocks are rounded up once.
    const int64_t scales = format->scale_bytes ? divide_up(count, format->block) * format->scale_bytes : 0;
    return scales + (codec == CODEC_NONE && f64 ? 8 * count : divide_up(count * format->bits, 8));
}

// ---- f64: by pieces

void codec_encode_f64(enum codec codec, const double *x, int64_t count, uint8_t *code) {
    if (codec == CODEC_NONE) {
        memcpy(code, x, (size_t)count * sizeof *x);
        return;
    }
    for (int64_t at = 0; at < count; at += CODEC_PIECE) {
        float piece[CODEC_PIECE];
        const int64_t n = MIN(CODEC_PIECE, count - at);
        for (int64_t i = 0; i < n; i++)
            piece[i] = (float)x[at + i];
        codec_format(codec)->plain.encode(piece, n, code + codec_bytes(codec, at, true));
    }
}

void codec_decode_f64(enum codec codec, const uint8_t *code, int64_t count, double *y) {
    if (codec == CODEC_NONE) {
        memcpy(y, code, (size_t)count * sizeof *y);
        return;
    }
    for (int64_t at = 0; at < count; at += CODEC_PIECE) {
        float piece[CODEC_PIECE];
        const int64_t n = MIN(CODEC_PIECE, count - at);
        codec_format(codec)->plain.decode(code + codec_bytes(codec, at, true), n, piece);
        for (int64_t i = 0; i < n; i++)
            y[at + i] = (double)piece[i];
    }
}

void codec_decode_add_f64(enum codec codec, const uint8_t *code, int64_t count, double weight, double *sum) {
    for (int64_t at = 0; at < count; at += CODEC_PIECE) {
        double piece[CODEC_PIECE];
        const int64_t n = MIN(CODEC_PIECE, count - at);
        codec_decode_f64(codec, code + codec_bytes(codec, at, true), n, piece);
        for (int64_t i = 0; i < n; i++)
            sum[at + i] += weight * piece[i];
    }
}
