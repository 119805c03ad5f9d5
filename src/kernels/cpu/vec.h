// Vectors as wide as this copy's instruction set (isa.h) has registers, in GNU C's vector extensions: + - * / and
// comparisons work lane by lane, and `a * b + c` is contracted to a fused multiply-add where there is one. Loads and
// stores need no alignment.
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vec_f32 __attribute__((vector_size(4 * LANES)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * LANES)));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * LANES)));
typedef uint16_t vec_u16 __attribute__((vector_size(2 * LANES)));

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vec_f32 vec_splat(float x) {
    return x - (vec_f32){0};
}

VEC_INLINE vec_i32 vec_splat_i32(int32_t x) {
    return x - (vec_i32){0};
}

VEC_INLINE vec_f32 vec_load(const float *p) {
    vec_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE void vec_store(float *p, vec_f32 v) {
    memcpy(p, &v, sizeof v);
}

// a where mask is all ones, b where it is zero. Comparisons give such masks.
VEC_INLINE vec_f32 vec_select(vec_i32 mask, vec_f32 a, vec_f32 b) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)b, (__m512)a);
#elif defined(__AVX2__)
    return (vec_f32)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return (vec_f32)(((vec_i32)a & mask) | ((vec_i32)b & ~mask));
#endif
}

// a where x < y, else b (so b where either is NaN).
VEC_INLINE vec_f32 vec_select_less(vec_f32 x, vec_f32 y, vec_f32 a, vec_f32 b) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_LT_OQ), (__m512)b, (__m512)a);
#else
    return vec_select(x < y, a, b);
#endif
}

// a where a > b, else b (so b where either is NaN).
VEC_INLINE vec_f32 vec_max(vec_f32 a, vec_f32 b) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec_f32)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vec_f32)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vec_select(a > b, a, b);
#endif
}

// a where a < b, else b.
VEC_INLINE vec_f32 vec_min(vec_f32 a, vec_f32 b) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec_f32)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vec_f32)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vec_select(a < b, a, b);
#endif
}

// Sum of the lanes, by halves.
VEC_INLINE float vec_sum(vec_f32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__SSE2__)
#if defined(__AVX2__)
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
#else
    __m128 sum = (__m128)v;
#endif
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

VEC_INLINE float vec_max_lane(vec_f32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#elif defined(__SSE2__)
#if defined(__AVX2__)
    __m128 max = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
#else
    __m128 max = (__m128)v;
#endif
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_shuffle_ps(max, max, 1)));
#else
    float max = v[0];
    for (int i = 1; i < LANES; i++)
        max = v[i] > max ? v[i] : max;
    return max;
#endif
}

VEC_INLINE vec_f32 vec_from_bf16(vec_u16 v) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)v), 16);
#elif defined(__AVX2__)
    return (vec_f32)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)v), 16);
#elif defined(__SSE2__)
    int64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (vec_f32)_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_cvtsi64_si128(bits));
#else
    return (vec_f32)(__builtin_convertvector(v, vec_u32) << 16);
#endif
}

// The lower halves of the lanes.
VEC_INLINE vec_u16 vec_narrow(vec_u32 v) {
#if defined(__AVX512F__)
    return (vec_u16)_mm512_cvtepi32_epi16((__m512i)v);
#elif defined(__AVX2__)
    __m256i low = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(0xffff));
    __m128i pair = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    return (vec_u16)pair;
#else
    return __builtin_convertvector(v, vec_u16);
#endif
}

// Rounded to nearest, ties to even; NaN stays NaN. Where the CPU converts by itself, values below the smallest normal
// number become 0.
VEC_INLINE vec_u16 vec_to_bf16(vec_f32 v) {
#if defined(__AVX512BF16__)
    return (vec_u16)_mm512_cvtneps_pbh((__m512)v);
#else
    vec_u32 bits = (vec_u32)v;
    vec_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    rounded = (vec_u32)_mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)(bits >> 16), _mm512_set1_epi32(0x40));
#else
    vec_u32 nan = (vec_u32)(v != v);
    rounded = (rounded & ~nan) | (((bits >> 16) | 0x40u) & nan);
#endif
    return vec_narrow(rounded);
#endif
}

VEC_INLINE vec_f32 vec_load_bf16(const uint16_t *p) {
    vec_u16 v;
    memcpy(&v, p, sizeof v);
    return vec_from_bf16(v);
}

// Elements i to i + LANES of bf16 or f32.
VEC_INLINE vec_f32 vec_at(bool bf16, const void *p, int64_t i) {
    return bf16 ? vec_load_bf16((const uint16_t *)p + i) : vec_load((const float *)p + i);
}

VEC_INLINE void vec_store_bf16(uint16_t *p, vec_f32 v) {
    vec_u16 r = vec_to_bf16(v);
    memcpy(p, &r, sizeof r);
}

// e^x within 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, and 1 + r + r^2 P(r), P of degree 4 with
// the least greatest relative error (3.1e-9). Results below the smallest normal number are 0, above the largest finite
// one infinity; NaN stays NaN.
VEC_INLINE vec_f32 vec_exp(vec_f32 x) {
    const vec_f32 magic = vec_splat(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
    const vec_f32 one = vec_splat(1);
#if defined(__AVX512F__)
    __mmask16 positive = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.33655f), _CMP_NLE_UQ); // or NaN
    x = vec_min(vec_splat(89.0f), x);
#endif
    vec_f32 shifted = x * 1.44269504089f + magic;
    vec_f32 n = shifted - magic;
    vec_f32 r = x - n * 0.693145751953125f;
    r = r - n * 1.428606765330187e-6f;
    vec_f32 p = vec_splat(1.381417184e-3f);
    p = p * r + 8.368922005e-3f;
    p = p * r + 4.166840802e-2f;
    p = p * r + 1.666651894e-1f;
    p = p * r + 4.999999333e-1f;
    p = p * r + one;
    p = p * r + one;
#if defined(__AVX512F__)
    return (vec_f32)_mm512_maskz_scalef_ps(positive, (__m512)p, (__m512)n);
#else
    // n, the low bits of `shifted`, is added to the exponent of p. For an x far out of range that gives arbitrary bits.
    const vec_u32 y = (vec_u32)p + ((vec_u32)shifted << 23), normal = (vec_u32)(x > -87.33655f);
    return vec_select(x < 88.72284f, (vec_f32)(y & normal), x + __builtin_inff());
#endif
}

// tanh(x) within a few units in the last place: x + x^3 P(x^2) where |x| < 0.625, P of degree 4 with the least greatest
// relative error (4.4e-9); else from e^(2 |x|). NaN stays NaN.
VEC_INLINE vec_f32 vec_tanh(vec_f32 x) {
    const vec_f32 size = (vec_f32)((vec_i32)x & 0x7fffffff), square = x * x;
    vec_f32 p = vec_splat(-5.704985000e-3f);
    p = p * square + 2.063908614e-2f;
    p = p * square + -5.373971537e-2f;
    p = p * square + 1.333144158e-1f;
    p = p * square + -3.333328068e-1f;
    const vec_f32 large = 1.0f - 2.0f / (vec_exp(size + size) + 1.0f);
    const vec_f32 sign = (vec_f32)((vec_i32)x & (int32_t)0x80000000);
    return vec_select_less(size, vec_splat(0.625f), x + x * square * p, (vec_f32)((vec_i32)large | (vec_i32)sign));
}

#endif
