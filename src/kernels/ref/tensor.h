// Elements of tensors of any dtype as doubles: read exactly, rounded to nearest when written. What keeps the reference
// kernels generic. Positions are elements from the tensor's start; at1..at4 compute them from indices.
#ifndef KERNELS_REF_TENSOR_H
#define KERNELS_REF_TENSOR_H

#include "base/bf16.h"
#include "kernels/kernels.h"

static inline double tensor_get(const struct tensor *t, int64_t at) {
    switch (t->dtype) {
    case DTYPE_F32:
        return ((const float *)t->data)[at];
    case DTYPE_BF16:
        return bf16_to_float(((const uint16_t *)t->data)[at]);
    case DTYPE_F64:
        return ((const double *)t->data)[at];
    case DTYPE_I32:
        return ((const int32_t *)t->data)[at];
    case DTYPE_U16:
        return ((const uint16_t *)t->data)[at];
    case DTYPE_U8:
        return ((const uint8_t *)t->data)[at];
    default:
        CHECK(!"a dtype that tensors do not have");
        return 0;
    }
}

// For bf16 the value is first rounded to f32.
static inline void tensor_set(const struct tensor *t, int64_t at, double x) {
    switch (t->dtype) {
    case DTYPE_F32:
        ((float *)t->data)[at] = (float)x;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->data)[at] = bf16_from_float((float)x);
        break;
    case DTYPE_F64:
        ((double *)t->data)[at] = x;
        break;
    case DTYPE_I32:
        ((int32_t *)t->data)[at] = (int32_t)x;
        break;
    case DTYPE_U16:
        ((uint16_t *)t->data)[at] = (uint16_t)x;
        break;
    case DTYPE_U8:
        ((uint8_t *)t->data)[at] = (uint8_t)x;
        break;
    default:
        CHECK(!"a dtype that tensors do not have");
    }
}

// Writes x, or adds it to what is there.
static inline void tensor_put(const struct tensor *t, int64_t at, double x, bool accumulate) {
    tensor_set(t, at, accumulate ? tensor_get(t, at) + x : x);
}

static inline bool tensor_present(const struct tensor *t) {
    return t->data != NULL;
}

static inline int32_t tensor_int(const struct tensor *t, int64_t at) {
    CHECK(t->dtype == DTYPE_I32);
    return ((const int32_t *)t->data)[at];
}

static inline double tensor_scalar(const struct tensor *t) {
    return tensor_get(t, 0);
}

static inline int64_t at1(const struct tensor *t, int64_t i) {
    return i * t->stride[0];
}

static inline int64_t at2(const struct tensor *t, int64_t i, int64_t j) {
    return i * t->stride[0] + j * t->stride[1];
}

static inline int64_t at3(const struct tensor *t, int64_t i, int64_t j, int64_t k) {
    return at2(t, i, j) + k * t->stride[2];
}

static inline int64_t at4(const struct tensor *t, int64_t i, int64_t j, int64_t k, int64_t l) {
    return at3(t, i, j, k) + l * t->stride[3];
}

// The product of n consecutive elements of each, summed in order.
static inline double tensor_dot(const struct tensor *a, int64_t a_at, const struct tensor *b, int64_t b_at, int64_t n) {
    double sum = 0;
    if (a->dtype == DTYPE_F64 && b->dtype == DTYPE_F64) { // the same, faster: tests train small models in f64
        const double *x = (const double *)a->data + a_at, *y = (const double *)b->data + b_at;
        for (int64_t i = 0; i < n; i++)
            sum += x[i] * y[i];
        return sum;
    }
    for (int64_t i = 0; i < n; i++)
        sum += tensor_get(a, a_at + i) * tensor_get(b, b_at + i);
    return sum;
}

#endif
