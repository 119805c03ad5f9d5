// Numbers between the dtypes of files and of memory.
#ifndef CKPT_CONVERT_H
#define CKPT_CONVERT_H

#include "ckpt/safetensors.h"
#include "program/ops.h"

// How files call a dtype of ours.
enum safetensors_dtype convert_stored(enum dtype dtype);
// Whether model files may hold it: F64, F32, F16 and BF16.
bool convert_readable(enum safetensors_dtype dtype);
// `count` numbers at `data` (aligned or not), of a readable dtype: exact.
void convert_decode(enum safetensors_dtype dtype, const void *data, int64_t count, double *out);
// `count` numbers to data[first...], of dtype f32, f64 or bf16, to nearest; to bf16 by way of f32, as others do. bf16
// with `remainder` keeps an f32 exactly (kernels/bf16.h) in data[i] and remainder[i]; without, remainder is NULL.
void convert_encode(enum dtype dtype, const double *in, int64_t count, void *data, uint16_t *remainder, int64_t first);
// Whether all of `count` numbers of dtype f32, f64 or bf16 are finite.
bool convert_finite(enum dtype dtype, const void *data, int64_t count);

#endif
