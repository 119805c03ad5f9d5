// Codecs: values as bytes, and back.
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
