// bf16 conversion and the master weight's split: every bf16, every low half under many upper halves.
#include "base/bf16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_bf16_survives(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float x = bf16_to_float((uint16_t)i);
        uint16_t back = bf16_from_float(x);
        if (isnan(x))
            assert_int_equal(back, i | 0x40);
        else
            assert_int_equal(back, i);
    }
}

// Upper halves worth trying: both signs, zero, subnormals, ordinary ones (odd and even), the largest.
static const uint32_t uppers[] = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f80, 0x3f81, 0x4049, 0x7f7e, 0x7f7f,
                                  0x8000, 0x8001, 0x807f, 0x8080, 0xbf80, 0xbf81, 0xc049, 0xff7e, 0xff7f};

static void rounds_to_nearest_even(void **state) {
    (void)state;
    for (size_t u = 0; u < sizeof uppers / sizeof uppers[0]; u++)
        for (uint32_t low = 0; low < 65536; low++) {
            float x = float_from_bits(uppers[u] << 16 | low);
            uint16_t got = bf16_from_float(x);
            uint32_t expected = low < 0x8000 ? uppers[u] : low > 0x8000 ? uppers[u] + 1 : uppers[u] + (uppers[u] & 1);
            assert_int_equal(got, expected);
        }
}

static void nan_and_infinity(void **state) {
    (void)state;
    assert_int_equal(bf16_from_float(INFINITY), 0x7f80);
    assert_int_equal(bf16_from_float(-INFINITY), 0xff80);
    uint32_t patterns[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000, 0xffbfffff};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        float nan = float_from_bits(patterns[i]);
        assert_true(isnan(bf16_to_float(bf16_from_float(nan))));
        uint16_t p, rem;
        master_split(nan, &p, &rem);
        assert_true(isnan(bf16_to_float(p)));
        assert_true(isnan(master_join(p, rem)));
        assert_int_equal(p >> 15, patterns[i] >> 31);
    }
}

static void check_split(uint32_t bits) {
    uint16_t p, rem;
    master_split(float_from_bits(bits), &p, &rem);
    assert_int_equal(float_bits(master_join(p, rem)), bits);
    uint16_t nearest = bf16_from_float(float_from_bits(bits));
    uint32_t upper = bits >> 16;
    assert_int_equal(p, (bits & 0xffff) == 0x8000 ? upper + 1 : nearest);
}

static void split_is_exact(void **state) {
    (void)state;
    for (size_t u = 0; u < sizeof uppers / sizeof uppers[0]; u++)
        for (uint32_t low = 0; low < 65536; low++)
            check_split(uppers[u] << 16 | low);
    // Every upper half that is finite with a stride of low halves, the ends and the tie among them.
    for (uint32_t upper = 0; upper < 65536; upper++) {
        if ((upper & 0x7f80) == 0x7f80)
            continue;
        uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t i = 0; i < 6; i++)
            check_split(upper << 16 | lows[i]);
        for (uint32_t low = upper % 997; low < 65536; low += 4999)
            check_split(upper << 16 | low);
    }
    check_split(0x7f800000);
    check_split(0xff800000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(nan_and_infinity),
        cmocka_unit_test(split_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
