// Converts numbers between the dtypes of files and of memory.
#ifndef CKPT_CONVERT_H
#define CKPT_CONVERT_H

#include "ckpt/safetensors.h"
#include "program/ops.h"

// The dtype in which files store one of ours.
enum safetensors_dtype convert_stored(enum dtype dtype);
// Whether parameters may be read from this dtype: F64, F32, F16 and BF16.
bool convert_readable(enum safetensors_dtype dtype);
// Converts `count` numbers at `data` (aligned or not), of a readable dtype, to out[count]: exact.
void convert_decode(enum safetensors_dtype dtype, const void *data, int64_t count, double *out);
// Stores `count` numbers at data[first...] in dtype f32, f64 or bf16, rounded to nearest (to bf16 by way of f32, as
// other programs do). With `remainder` (NULL: none), bf16 keeps an f32 exactly in data[i] and remainder[i]
// (base/bf16.h).
void convert_encode(enum dtype dtype, const double *in, int64_t count, void *data, uint16_t *remainder, int64_t first);
// Whether all of `count` numbers of dtype f32, f64 or bf16 are finite.
bool convert_finite(enum dtype dtype, const void *data, int64_t count);

#endif
