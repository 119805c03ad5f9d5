// codec/: vectors of f32 as fewer bytes, and back. Here are the formats and, in plain C, what makes and reads them, one
// file per codec; kernels/codec_loops.h has fast versions with the same bits. Includes base/.
//
// A codec cuts a vector into blocks of `block` values, the last one shorter, and encodes each by itself: its scale, if
// it has one, then the codes of its values. So a piece that begins at a multiple of `block` has the same bytes alone as
// within the whole, and they begin codec_bytes of what is before it. Numbers of more than one byte are little-endian.
//
//   none   4 bytes a value: its bits
//   bf16   2 bytes a value: the nearest bf16, ties to even
//   int8   block 256. Scale: f32 s = a / 127, where a is the largest |x| of the block, at least 2^-100 and at most the
//          number below the largest f32. Code of x: the integer nearest to x * r, ties to even, as a signed byte, where
//          r is the f32 127 / a and the product is rounded to f32. It stands for s * code, rounded to f32.
//   fp4    E3M0. block 256. Scale: a byte e: 2^(e - 127) is the power of two nearest to the largest |x| of the block,
//          but e is 7 at least and 254 at most. Code of x: bit 3 is its sign; bits 0-2 are m, where 0 stands for 0 and
//          m > 0 for 2^(e - 127 - 7 + m), whichever is nearest to |x|. Ties go to the greater magnitude. A block of n
//          values has divide_up(n, 2) bytes; byte i has the code of value i in its lower half and that of value
//          i + divide_up(n, 2) in its upper half, which is 0 where there is none.
//
// |y - x|, where y is what x is decoded as:
//   none   0
//   bf16   |x| 2^-8, or 2^-134 where |x| < 2^-126; the largest values become infinity
//   int8   1.0001 a / 254
//   fp4    the larger of |x| / 3 and 2^(e - 127) / 128; |x| / 2 where |x| > 1.5 * 2^127
//
// Values that are not finite are never lost: none keeps them, bf16 keeps infinity and that it is NaN. In int8 and fp4
// all values of a block that has one are decoded as NaN: its scale is NaN (0x7fc00000; 255), its codes are 0.
//
// A vector of f64 goes through none with its own bits, 8 bytes a value; through the others rounded to f32, to nearest.
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include "base/base.h"

enum codec { CODEC_NONE, CODEC_BF16, CODEC_INT8, CODEC_FP4, CODEC_COUNT };

// Each codes and values in arrays of the caller, which do not overlap; `code` needs no alignment.
struct codec_loops {
    void (*encode)(const float *x, int64_t count, uint8_t *code);
    void (*decode)(const uint8_t *code, int64_t count, float *y);
    // sum[i] += weight * y[i]: the product is rounded, then the sum.
    void (*decode_add)(const uint8_t *code, int64_t count, float weight, float *sum);
};

struct codec_format {
    const char *name;
    int64_t block;       // values; 1: each by itself
    int64_t scale_bytes; // of each block
    int64_t bits;        // of a code
    struct codec_loops plain;
};

extern const struct codec_format codec_none, codec_bf16, codec_int8, codec_fp4;
const struct codec_format *codec_format(enum codec codec);
// CODEC_COUNT: there is none of that name.
enum codec codec_named(const char *name);
// Of `count` values, which are f32, or f64 where `f64` says so.
int64_t codec_bytes(enum codec codec, int64_t count, bool f64);

// Of this many values all codecs have whole blocks.
enum { CODEC_PIECE = 256 };

// The same for vectors of f64, the sums in f64.
void codec_encode_f64(enum codec codec, const double *x, int64_t count, uint8_t *code);
void codec_decode_f64(enum codec codec, const uint8_t *code, int64_t count, double *y);
void codec_decode_add_f64(enum codec codec, const uint8_t *code, int64_t count, double weight, double *sum);

#endif
