// Codecs: values as bytes, and back.
#include "codec/codec.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

static char *codec_row(const struct tensor *code, int64_t i) {
    return (char *)code->data + at1(code, i);
}

// The bits of the values.
void ref_encode_bytes(const struct call *call) {
    const struct tensor *x = &call->in[0], *code = &call->out[0];
    const int64_t size = dtype_size(x->dtype);
    for (int64_t i = 0; i < x->dim[0]; i++)
        memcpy(codec_row(code, i), (const char *)x->data + at1(x, i) * size, (size_t)size);
}

void ref_decode_bytes(const struct call *call) {
    const struct tensor *code = &call->in[0], *y = &call->out[0];
    const int64_t size = dtype_size(y->dtype);
    for (int64_t i = 0; i < y->dim[0]; i++)
        memcpy((char *)y->data + at1(y, i) * size, codec_row(code, i), (size_t)size);
}

// The upper half of an f32, rounded to nearest: off by no more than 2^-8 of the value.
void ref_encode_bf16(const struct call *call) {
    const struct tensor *x = &call->in[0], *code = &call->out[0];
    for (int64_t i = 0; i < x->dim[0]; i++) {
        const uint16_t bits = bf16_from_float((float)tensor_get(x, at1(x, i)));
        memcpy(codec_row(code, i), &bits, sizeof bits);
    }
}

void ref_decode_bf16(const struct call *call) {
    const struct tensor *code = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < y->dim[0]; i++) {
        uint16_t bits;
        memcpy(&bits, codec_row(code, i), sizeof bits);
        tensor_set(y, at1(y, i), bf16_to_float(bits));
    }
}

// ---- codecs that islands send with, piece by piece

// A piece of what is held in f32 or in f64.
struct codec_piece {
    enum codec codec;
    int64_t count;
    bool f64;
    float narrow[CODEC_PIECE];
    double wide[CODEC_PIECE];
};

static struct codec_piece piece_at(const struct tensor *x, enum codec codec, int64_t at) {
    return (struct codec_piece){
        .codec = codec, .count = MIN(CODEC_PIECE, x->dim[0] - at), .f64 = x->dtype == DTYPE_F64};
}

static void piece_encode(struct codec_piece *piece, const struct tensor *x, int64_t at, uint8_t *code) {
    for (int64_t i = 0; i < piece->count; i++) {
        piece->wide[i] = tensor_get(x, at1(x, at + i));
        piece->narrow[i] = (float)piece->wide[i];
    }
    if (piece->f64)
        codec_encode_f64(piece->codec, piece->wide, piece->count, code);
    else
        codec_format(piece->codec)->plain.encode(piece->narrow, piece->count, code);
}

static void piece_decode_add(struct codec_piece *piece, const uint8_t *code, double weight) {
    if (piece->f64)
        codec_decode_add_f64(piece->codec, code, piece->count, weight, piece->wide);
    else
        codec_format(piece->codec)->plain.decode_add(code, piece->count, (float)weight, piece->narrow);
}

static double piece_get(const struct codec_piece *piece, int64_t i) {
    return piece->f64 ? piece->wide[i] : piece->narrow[i];
}

// What x[at + i] is once it has been encoded and decoded.
static void piece_through_codec(struct codec_piece *piece, const struct tensor *x, int64_t at) {
    uint8_t code[CODEC_PIECE * sizeof(double)];
    piece_encode(piece, x, at, code);
    memset(piece->narrow, 0, sizeof piece->narrow);
    memset(piece->wide, 0, sizeof piece->wide);
    piece_decode_add(piece, code, 1);
}

void ref_compress(const struct call *call) {
    const struct tensor *taken = &call->in[0], *code = &call->out[0];
    const enum codec codec = (enum codec)call->attribute[0].i;
    for (int64_t at = 0; at < taken->dim[0]; at += CODEC_PIECE) {
        struct codec_piece piece = piece_at(taken, codec, at);
        piece_encode(&piece, taken, at, (uint8_t *)code->data + codec_bytes(codec, at, piece.f64));
    }
}

// Adds what each island has sent of a piece that begins at element `at`. A weight of zero makes zero of whatever it is.
static void piece_add_rows(struct codec_piece *piece, const struct tensor *codes, const struct tensor *weight,
                           int64_t at) {
    for (int64_t r = 0; r < codes->dim[0] && tensor_present(codes); r++)
        if (tensor_get(weight, at1(weight, r)) != 0)
            piece_decode_add(piece,
                             (const uint8_t *)codes->data + at2(codes, r, codec_bytes(piece->codec, at, piece->f64)),
                             tensor_get(weight, at1(weight, r)));
}

// In the order of the islands.
void ref_weigh_codes(const struct call *call) {
    const struct tensor *value = &call->out[0], *total = &call->out[1];
    double sum = 0;
    for (int64_t at = 0; at < value->dim[0]; at += CODEC_PIECE) {
        struct codec_piece piece = piece_at(value, (enum codec)call->attribute[0].i, at);
        piece_add_rows(&piece, &call->in[0], &call->in[1], at);
        piece_add_rows(&piece, &call->in[2], &call->in[3], at);
        for (int64_t i = 0; i < piece.count; i++)
            tensor_set(value, at1(value, at + i), piece_get(&piece, i));
    }
    for (int of = 1; of <= 3; of += 2)
        for (int64_t r = 0; r < call->in[of].dim[0] && tensor_present(&call->in[of]); r++)
            sum += tensor_get(&call->in[of], at1(&call->in[of], r));
    if (tensor_present(total))
        tensor_set(total, 0, sum);
}

void ref_eager(const struct call *call) {
    const struct tensor *value = &call->in[0], *taken = &call->in[1], *own = &call->in[2];
    for (int64_t at = 0; at < value->dim[0]; at += CODEC_PIECE) {
        struct codec_piece sent = piece_at(taken, (enum codec)call->attribute[0].i, at);
        piece_through_codec(&sent, taken, at);
        for (int64_t i = 0; i < sent.count; i++) {
            const double x = tensor_get(own, at1(own, at + i));
            tensor_set(&call->out[0], at1(&call->out[0], at + i),
                       tensor_get(value, at1(value, at + i)) + (x - piece_get(&sent, i)));
            tensor_set(&call->out[1], at1(&call->out[1], at + i), x);
        }
    }
}
