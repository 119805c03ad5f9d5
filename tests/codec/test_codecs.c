// Codecs: their exact sizes, bytes written by hand, error bounds, values that are not finite, blocks that do not depend
// on the cut; and the fast loops of every instruction set, which give the bits of the plain functions.
#include "codec/codec.h"

#include <float.h>
#include <math.h>

#include "base/bf16.h"
#include "base/rng.h"
#include "kernels/cpu/fast_codecs.h"
#include "support/test.h"

enum { MOST = 1100 };

static void sizes_are_exact(void **state) {
    (void)state;
    for (int64_t n = 0; n <= MOST; n++) {
        const int64_t blocks = n / 256 + (n % 256 != 0);
        assert_int_equal(codec_bytes(CODEC_NONE, n, false), 4 * n);
        assert_int_equal(codec_bytes(CODEC_NONE, n, true), 8 * n);
        assert_int_equal(codec_bytes(CODEC_BF16, n, n % 2), 2 * n);
        assert_int_equal(codec_bytes(CODEC_INT8, n, n % 2), n + 4 * blocks);
        assert_int_equal(codec_bytes(CODEC_FP4, n, n % 2), n / 2 + n % 2 + blocks);
    }
    assert_int_equal(codec_bytes(CODEC_FP4, INT64_C(1) << 40, false), 129 * (INT64_C(1) << 32));
}

static void names_are_found(void **state) {
    (void)state;
    for (enum codec codec = 0; codec < CODEC_COUNT; codec++)
        assert_int_equal(codec_named(codec_format(codec)->name), codec);
    assert_int_equal(codec_named("int4"), CODEC_COUNT);
}

// Every codec writes codec_bytes and no more; what it reads back.
static void round_trip(enum codec codec, const struct codec_loops *loops, const float *x, int64_t n, uint8_t *code,
                       float *y) {
    const int64_t bytes = codec_bytes(codec, n, false);
    memset(code, 0xa5, (size_t)bytes + 8);
    loops->encode(x, n, code);
    for (int64_t i = bytes; i < bytes + 8; i++)
        assert_int_equal(code[i], 0xa5);
    loops->decode(code, n, y);
}

// ---- bytes by hand

static void bytes_of_int8(void **state) {
    (void)state;
    // a = 127, so that the scale is 1: ties go to the even integer.
    const float x[] = {127, -127, 0.5f, 1.5f, -0.5f, -2.5f, 126.75f, -0.0f};
    const uint8_t expected[] = {0, 0, 0x80, 0x3f, 127, 129, 0, 2, 0, 254, 127, 0};
    uint8_t code[sizeof expected + 8];
    float y[ARRAY_LENGTH(x)];
    round_trip(CODEC_INT8, &codec_int8.plain, x, ARRAY_LENGTH(x), code, y);
    assert_memory_equal(code, expected, sizeof expected);
    const float back[] = {127, -127, 0, 2, 0, -2, 127, 0};
    for (size_t i = 0; i < ARRAY_LENGTH(x); i++)
        assert_true(y[i] == back[i]);
}

static void bytes_of_fp4(void **state) {
    (void)state;
    // The largest is 3, nearest to 2 and 4 alike: the scale is 4, byte 129; levels are 4, 2, ... 1/16, 0.
    const float x[] = {3, -2.9f, 1, -0.046875f, 0.03125f, -0.03124f, 0.75f};
    const uint8_t magnitude[] = {7, 6, 5, 1, 1, 0, 5};
    const float back[] = {4, -2, 1, -0.0625f, 0.0625f, -0.0f, 1};
    uint8_t expected[] = {129, 7 | 1 << 4, (8 + 6) | 8 << 4, 5 | 5 << 4, 8 + 1}, code[sizeof expected + 8];
    float y[ARRAY_LENGTH(x)];
    round_trip(CODEC_FP4, &codec_fp4.plain, x, ARRAY_LENGTH(x), code, y);
    assert_memory_equal(code, expected, sizeof expected);
    for (size_t i = 0; i < ARRAY_LENGTH(x); i++) {
        assert_int_equal(code[1 + i % 4] >> (i < 4 ? 0 : 4) & 7, magnitude[i]);
        assert_int_equal(float_bits(y[i]), float_bits(back[i]));
    }
}

// ---- values of all kinds

enum kind { ORDINARY, WIDE, TINY, VAST, MOSTLY_ZERO, ANY_FINITE, ANY_BITS, KINDS };

// Value i of that kind; each is a pure function of `draw`.
static float value_of(enum kind kind, uint64_t draw) {
    const double u = rng_uniform(1, kind, 2 * draw) - 0.5, v = rng_uniform(1, kind, 2 * draw + 1);
    switch (kind) {
    case ORDINARY:
        return (float)u;
    case WIDE:
        return (float)(u * exp2(-20 * v));
    case TINY:
        return (float)(u * exp2(-100 - 50 * v));
    case VAST:
        return (float)(u * 2 * (double)FLT_MAX);
    case MOSTLY_ZERO:
        return v < 0.9 ? -0.0f : (float)u;
    default: {
        const float x = float_from_bits((uint32_t)(v * 4294967296.0));
        return kind == ANY_FINITE && !isfinite(x) ? FLT_MAX : x;
    }
    }
}

static void fill(enum kind kind, uint64_t draw, int64_t n, float *x) {
    for (int64_t i = 0; i < n; i++)
        x[i] = value_of(kind, draw + (uint64_t)i);
}

static const int64_t lengths[] = {1, 2, 3, 15, 16, 17, 127, 128, 129, 255, 256, 257, 511, 512, 1000, MOST};

// Runs check(x, n) for values of each kind and each length.
static void for_values(enum kind kinds, void (*check)(const float *x, int64_t n)) {
    uint64_t draw = 0;
    for (enum kind kind = 0; kind < kinds; kind++)
        for (size_t l = 0; l < ARRAY_LENGTH(lengths); l++) {
            float x[MOST];
            fill(kind, draw, lengths[l], x);
            draw += (uint64_t)lengths[l];
            check(x, lengths[l]);
        }
}

// The bound that codec.h states for x in a block whose largest magnitude is `largest`.
static double bound_of(enum codec codec, double x, double largest) {
    x = fabs(x);
    switch (codec) {
    case CODEC_BF16:
        return x < 0x1p-126 ? 0x1p-134 : x * 0x1p-8;
    case CODEC_INT8:
        return 1.0001 * fmax(largest, 0x1p-100) / 254;
    case CODEC_FP4: {
        // The scale is at most 4/3 of the largest.
        const double scale = fmin(fmax(exp2(floor(log2(largest / 1.5) + 1)), 0x1p-120), 0x1p127);
        return x > 1.5 * 0x1p127 ? x / 2 : fmax(x / 3, scale / 128) * (1 + 1e-12);
    }
    default:
        return 0;
    }
}

static void check_bounds(const float *x, int64_t n) {
    for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
        uint8_t code[4 * MOST + 8];
        float y[MOST];
        round_trip(codec, &codec_format(codec)->plain, x, n, code, y);
        for (int64_t at = 0; at < n; at += 256) {
            double largest = 0;
            for (int64_t i = at; i < MIN(at + 256, n); i++)
                largest = fmax(largest, fabs((double)x[i]));
            for (int64_t i = at; i < MIN(at + 256, n); i++) {
                if (codec == CODEC_BF16 && isinf(y[i])) {
                    assert_true(fabsf(x[i]) >= 0x1.ffp127f);
                    continue;
                }
                const double error = fabs((double)y[i] - (double)x[i]), bound = bound_of(codec, (double)x[i], largest);
                if (!(error <= bound))
                    fail_msg("%s: %a is decoded as %a; the block's largest is %a", codec_format(codec)->name,
                             (double)x[i], (double)y[i], largest);
            }
        }
    }
}

static void errors_are_bounded(void **state) {
    (void)state;
    for_values(ANY_BITS, check_bounds);
    const float largest[] = {FLT_MAX, -FLT_MAX, 0x1.7p127f, 1};
    check_bounds(largest, ARRAY_LENGTH(largest));
}

// ---- what is not finite

static void not_finite_is_seen(void **state) {
    (void)state;
    const float odd[] = {INFINITY, -INFINITY, NAN};
    for (size_t o = 0; o < ARRAY_LENGTH(odd); o++)
        for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
            float x[600], y[600];
            uint8_t code[4 * 600 + 8];
            fill(ORDINARY, 0, 600, x);
            x[300] = odd[o];
            round_trip(codec, &codec_format(codec)->plain, x, 600, code, y);
            for (int i = 0; i < 600; i++)
                if (codec_format(codec)->block == 1)
                    assert_true(i == 300 ? memcmp(&y[i], &odd[o], 4) == 0 : isfinite(y[i]));
                else
                    assert_int_equal(isnan(y[i]) != 0, i >= 256 && i < 512);
            const uint8_t *second = code + codec_bytes(codec, 256, false);
            for (int i = 0; codec == CODEC_FP4 && i < 129; i++)
                assert_int_equal(second[i], i == 0 ? 255 : 0);
            const uint8_t scale[] = {0, 0, 0xc0, 0x7f, 0};
            if (codec == CODEC_INT8)
                assert_memory_equal(second, scale, sizeof scale);
        }
}

// ---- pieces

static void check_pieces(const float *x, int64_t n) {
    for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
        const struct codec_loops *loops = &codec_format(codec)->plain;
        uint8_t whole[4 * MOST], pieces[4 * MOST];
        loops->encode(x, n, whole);
        for (int64_t cut = 0; cut <= n; cut += 256) {
            const int64_t before = codec_bytes(codec, cut, false);
            loops->encode(x + cut, n - cut, pieces + before);
            loops->encode(x, cut, pieces);
            assert_int_equal(before + codec_bytes(codec, n - cut, false), codec_bytes(codec, n, false));
            assert_memory_equal(pieces, whole, (size_t)codec_bytes(codec, n, false));
        }
    }
}

static void pieces_have_the_same_bytes(void **state) {
    (void)state;
    for_values(KINDS, check_pieces);
}

// ---- f64

static void check_f64(const float *x, int64_t n) {
    for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
        // A little beside f32: rounded to it, except where nothing is.
        double wide[MOST], back[MOST], sum[MOST];
        float y[MOST];
        uint8_t code[4 * MOST], code64[8 * MOST];
        for (int64_t i = 0; i < n; i++) {
            wide[i] = (double)x[i] * (1 + 0x1p-30);
            sum[i] = (double)i;
        }
        codec_encode_f64(codec, wide, n, code64);
        codec_decode_f64(codec, code64, n, back);
        codec_decode_add_f64(codec, code64, n, 1.0 / 3, sum);
        codec_format(codec)->plain.encode(x, n, code);
        codec_format(codec)->plain.decode(code, n, y);
        if (codec != CODEC_NONE)
            assert_memory_equal(code64, code, (size_t)codec_bytes(codec, n, true));
        for (int64_t i = 0; i < n; i++) {
            assert_true(back[i] == (codec == CODEC_NONE ? wide[i] : (double)y[i]));
            volatile double product = 1.0 / 3 * back[i]; // rounded by itself
            assert_true(sum[i] == (double)i + product);
        }
    }
}

static void f64_is_rounded_to_f32(void **state) {
    (void)state;
    for_values(TINY, check_f64);
}

// ---- instruction sets

static void assert_same_bits(const float *x, const float *y, int64_t n, enum codec codec, enum isa isa) {
    for (int64_t i = 0; i < n; i++)
        if (float_bits(x[i]) != float_bits(y[i]) && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("%s for %s: value %lld of %lld is %a, not %a", codec_format(codec)->name, isa_name(isa),
                     (long long)i, (long long)n, (double)y[i], (double)x[i]);
}

static void check_loops(const float *x, int64_t n) {
    for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
        const struct codec_loops *plain = &codec_format(codec)->plain;
        float y[MOST], sum[MOST];
        uint8_t code[4 * MOST + 8];
        round_trip(codec, plain, x, n, code, y);
        fill(WIDE, 0, n, sum);
        plain->decode_add(code, n, 0.3f, sum);
        for (int64_t i = 0; i < n; i++) {         // what decode_add means
            volatile float product = 0.3f * y[i]; // rounded by itself
            const float expected = value_of(WIDE, (uint64_t)i) + product;
            assert_true(sum[i] == expected || (isnan(sum[i]) && isnan(expected)));
        }
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
            const struct codec_loops *loops = cpu_codec_loops_for(codec, isa);
            float fast_y[MOST], fast_sum[MOST];
            uint8_t fast[4 * MOST + 8];
            round_trip(codec, loops, x, n, fast, fast_y);
            assert_memory_equal(fast, code, (size_t)codec_bytes(codec, n, false));
            assert_same_bits(y, fast_y, n, codec, isa);
            fill(WIDE, 0, n, fast_sum);
            loops->decode_add(code, n, 0.3f, fast_sum);
            assert_same_bits(sum, fast_sum, n, codec, isa);
        }
    }
}

static void loops_have_the_same_bits(void **state) {
    (void)state;
    for_values(KINDS, check_loops);
    // Around each midpoint and each power of two.
    for (int exponent = -140; exponent < 128; exponent++) {
        float x[256];
        for (int i = 0; i < 256; i++) {
            const float corner = ldexpf(i % 2 ? 1.5f : 1, exponent - i / 6 % 12);
            const uint32_t bits = float_bits(corner) + (uint32_t)(i % 3) - 1;
            x[i] = float_from_bits(bits > 0x7f7fffff ? 0x7f7fffff : bits);
        }
        check_loops(x, 256);
        check_bounds(x, 256);
    }
}

// ---- the kernels with which islands compress and weigh

static struct tensor vector(void *data, enum dtype dtype, int64_t count) {
    return (struct tensor){.data = data, .dtype = dtype, .ndim = 1, .dim = {count}, .stride = {1}};
}

static struct tensor rows(void *data, int64_t count, int64_t each) {
    return (struct tensor){.data = data, .dtype = DTYPE_U8, .ndim = 2, .dim = {count, each}, .stride = {each, 1}};
}

enum { ISLANDS = 3, LARGE = 40001 };
static const double WEIGHTS[ISLANDS] = {3, 0, 0.25};

// What islands of values x[ISLANDS][n] send, and what their sum is then. `code` has 8 bytes more than it needs.
static double islands_meet(const struct kernel *compress, const struct kernel *weigh, enum codec codec,
                           enum dtype dtype, char *x, int64_t n, int threads, uint8_t *code, void *sum) {
    const int64_t bytes = codec_bytes(codec, n, dtype == DTYPE_F64);
    double total = 0;
    memset(code, 0xa5, (size_t)(ISLANDS * bytes) + 8);
    for (int64_t i = ISLANDS; i-- > 0;) {
        struct call call = {.op = OP_COMPRESS, .inputs = 1, .outputs = 1, .threads = threads};
        call.in[0] = vector(x + i * n * dtype_size(dtype), dtype, n);
        call.out[0] = rows(code + i * bytes, 1, bytes);
        call.attribute[0].i = codec;
        compress->run(&call);
    }
    struct call call = {.op = OP_WEIGH_CODES, .inputs = 2, .outputs = 2, .threads = threads};
    call.in[0] = rows(code, ISLANDS, bytes);
    call.in[1] = vector((void *)WEIGHTS, DTYPE_F64, ISLANDS);
    call.out[0] = vector(sum, dtype, n);
    call.out[1] = vector(&total, DTYPE_F64, 1);
    call.attribute[0].i = codec;
    weigh->run(&call);
    // The first island's and what is from the last one are the same sum: the other has no weight.
    double both = 0;
    void *again = mem_alloc((size_t)(n * dtype_size(dtype)));
    call.inputs = 4;
    call.in[0] = rows(code, 1, bytes);
    call.in[1] = vector((void *)WEIGHTS, DTYPE_F64, 1);
    call.in[2] = rows(code + (ISLANDS - 1) * bytes, 1, bytes);
    call.in[3] = vector((void *)(WEIGHTS + ISLANDS - 1), DTYPE_F64, 1);
    call.out[0] = vector(again, dtype, n);
    call.out[1] = vector(&both, DTYPE_F64, 1);
    weigh->run(&call);
    assert_memory_equal(again, sum, (size_t)(n * dtype_size(dtype)));
    assert_true(both == total);
    free(again);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(code[ISLANDS * bytes + i], 0xa5);
    return total;
}

// In f64 the sum is that of what is decoded, whatever the island of no weight has; in f32 it has the bits of a plain
// sum, with any threads and instruction set.
static void islands_add_up_what_they_send(void **state) {
    (void)state;
    static double x[ISLANDS * LARGE], y[LARGE], sum[LARGE];
    static float narrow[ISLANDS * LARGE], plain[LARGE], fast[LARGE];
    static uint8_t code[8 * ISLANDS * LARGE + 8], code1[8 * ISLANDS * LARGE + 8];
    static const int64_t COUNTS[] = {1, 255, 257, 1000, LARGE};
    for (size_t k = 0; k < ARRAY_LENGTH(COUNTS); k++)
        for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
            const int64_t n = COUNTS[k], wide = codec_bytes(codec, n, true), bytes = codec_bytes(codec, n, false);
            const struct kernel compress = kernel_find(OP_COMPRESS, DTYPE_F64, KERNELS_REFERENCE),
                                weigh = kernel_find(OP_WEIGH_CODES, DTYPE_F64, KERNELS_REFERENCE);
            for (int64_t i = 0; i < ISLANDS * n; i++)
                narrow[i] = (float)(x[i] = rng_uniform(7, (uint64_t)codec, (uint64_t)i) - 0.5);
            x[n] = narrow[n] = NAN; // of the island of no weight
            assert_true(islands_meet(&compress, &weigh, codec, DTYPE_F64, (char *)x, n, 1, code, sum) == 3.25);
            memset(y, 0, sizeof y);
            codec_decode_add_f64(codec, code, n, 3, y);
            codec_decode_add_f64(codec, code + 2 * wide, n, 0.25, y);
            for (int64_t i = 0; i < n; i++)
                assert_true(sum[i] == y[i]);
            assert_true(islands_meet(&compress, &weigh, codec, DTYPE_F32, (char *)narrow, n, 1, code, plain) == 3.25);
            for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++)
                for (int threads = 1; threads <= 3; threads += 2) {
                    const struct kernel *kernels = cpu_kernel_table_for(DTYPE_F32, isa);
                    islands_meet(&kernels[OP_COMPRESS], &kernels[OP_WEIGH_CODES], codec, DTYPE_F32, (char *)narrow, n,
                                 threads, code1, fast);
                    assert_memory_equal(code, code1, (size_t)(ISLANDS * bytes));
                    assert_memory_equal(plain, fast, (size_t)n * sizeof *fast);
                }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(bytes_of_int8),
        cmocka_unit_test(bytes_of_fp4),
        cmocka_unit_test(errors_are_bounded),
        cmocka_unit_test(not_finite_is_seen),
        cmocka_unit_test(pieces_have_the_same_bytes),
        cmocka_unit_test(f64_is_rounded_to_f32),
        cmocka_unit_test(loops_have_the_same_bits),
        cmocka_unit_test(islands_add_up_what_they_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
