// The accuracy of the reference kernels' elementary functions, compared with the C library's in extended precision, and
// their exact bits.
#include "base/base.h"
#include "base/math.h"
#include "base/rng.h"

#include <math.h>

#include "support/test.h"

enum { SAMPLES = 40000 };

// Error in units of the last place of the exact value rounded to double.
static double error_in_ulp(double got, long double exact) {
    double rounded = fabs((double)exact), ulp = nextafter(rounded, INFINITY) - rounded;
    return (double)(fabsl((long double)got - exact) / (long double)ulp);
}

// Ranges between `low` and `high`, evenly or by magnitude; both signs where `both`. `worst` is what was found, rounded
// up.
static const struct {
    const char *name;
    double (*ours)(double);
    long double (*theirs)(long double);
    double low, high;
    bool by_magnitude, both;
    double worst;
} RANGES[] = {
    {"exp", math_exp, expl, 0, 1, false, true, 0.85},
    {"exp", math_exp, expl, 0, 708, false, true, 0.9},
    {"exp", math_exp, expl, -744, -708, false, false, 0.85}, // subnormal results
    {"exp", math_exp, expl, 1e-300, 1, true, true, 0.85},
    {"log", math_log, logl, 0.5, 2, false, false, 0.9},
    {"log", math_log, logl, 0.999, 1.001, false, false, 0.6},
    {"log", math_log, logl, 5e-324, 1.7e308, true, false, 0.8},
    {"tanh", math_tanh, tanhl, 0, 2, false, true, 1.5},
    {"tanh", math_tanh, tanhl, 1e-300, 25, true, true, 1.5},
    {"erf", math_erf, erfl, 0, 7, false, true, 1.7},
    {"erf", math_erf, erfl, 1e-300, 1, true, true, 1.7},
    {"sin", math_sin, sinl, 0, 10, false, true, 0.85},
    {"sin", math_sin, sinl, 1e-300, 0x1p28, true, true, 0.85},
    {"cos", math_cos, cosl, 0, 10, false, true, 0.85},
    {"cos", math_cos, cosl, 1e-300, 0x1p28, true, true, 0.85},
};

static void accuracy(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(RANGES); i++) {
        double worst = 0, where = 0;
        for (uint64_t k = 0; k < SAMPLES; k++) {
            double u = ((double)k + rng_uniform(1, i, k)) / SAMPLES, low = RANGES[i].low, high = RANGES[i].high;
            double x = RANGES[i].by_magnitude ? exp(log(low) + (log(high) - log(low)) * u) : low + (high - low) * u;
            for (int sign = 0; sign <= RANGES[i].both; sign++, x = -x) {
                double error = error_in_ulp(RANGES[i].ours(x), RANGES[i].theirs(x));
                if (worst == worst && !(error <= worst)) {
                    worst = error;
                    where = x;
                }
            }
        }
        print_message("%-5s %9.3g ... %-9.3g worst %.3f ulp at %.17g\n", RANGES[i].name, RANGES[i].low, RANGES[i].high,
                      worst, where);
        if (!(worst <= RANGES[i].worst))
            fail_msg("%s is off by %g ulp at %.17g", RANGES[i].name, worst, where);
    }
}

static void powers(void **state) {
    (void)state;
    static const struct {
        double base_low, base_high, exponent_low, exponent_high;
        bool whole;
    } ranges[] = {{1e-8, 1e8, -30, 30, false}, // by and large
                  {0.8, 1, 0, 3000, true},     // bias corrections
                  {0.999, 1, 0, 600000, true}, // of long runs
                  {1e4, 1e6, -1, 0, false}};   // frequencies of rotary positions
    double worst = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++)
        for (uint64_t k = 0; k < SAMPLES; k++) {
            double u = rng_uniform(2, 2 * i, k), v = rng_uniform(2, 2 * i + 1, k);
            double x = exp(log(ranges[i].base_low) + (log(ranges[i].base_high) - log(ranges[i].base_low)) * u);
            double y = ranges[i].exponent_low + (ranges[i].exponent_high - ranges[i].exponent_low) * v;
            y = ranges[i].whole ? floor(y) : y;
            long double exact = powl(x, y);
            if (exact > 1e-300L && exact < 1e300L)
                worst = farther(worst, error_in_ulp(math_pow(x, y), exact));
        }
    print_message("pow worst %.3f ulp\n", worst);
    assert_true(worst <= 1);
}

static void special_values(void **state) {
    (void)state;
    assert_true(math_exp(0) == 1 && math_exp(-INFINITY) == 0 && isinf(math_exp(INFINITY)) && isinf(math_exp(710)));
    assert_true(math_exp(-1000) == 0 && isnan(math_exp(NAN)) && math_exp(-745) > 0);
    assert_true(math_log(1) == 0 && math_log(0) == -INFINITY && isnan(math_log(-1)) && isnan(math_log(NAN)));
    assert_true(math_log(INFINITY) == INFINITY);
    assert_true(math_tanh(0) == 0 && math_tanh(INFINITY) == 1 && math_tanh(-INFINITY) == -1 && isnan(math_tanh(NAN)));
    assert_true(math_erf(0) == 0 && math_erf(INFINITY) == 1 && math_erf(-9) == -1 && isnan(math_erf(NAN)));
    assert_true(math_sin(0) == 0 && math_cos(0) == 1 && isnan(math_sin(INFINITY)) && isnan(math_cos(1e300)));
    assert_true(math_pow(2, 10) == 1024 && math_pow(2, -1074) == 0x1p-1074 && math_pow(3, 0) == 1);
    assert_true(math_pow(0, 2) == 0 && isinf(math_pow(0, -2)) && isnan(math_pow(-1, 2)) && isnan(math_pow(2, NAN)));
    assert_true(math_pow(2, 1e300) == INFINITY && math_pow(0.5, 1e300) == 0 && math_pow(0.5, INFINITY) == 0);
    assert_true(math_pow(1, INFINITY) == 1 && math_pow(INFINITY, -1) == 0);
}

static uint64_t mix(uint64_t hash, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (hash ^ bits) * 0x100000001b3;
}

// The exact bits, on every machine and with every compiler. Arguments come from arithmetic in which nothing can be
// contracted to a multiply-add.
static void bits_are_pinned(void **state) {
    (void)state;
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t k = 0; k < 20000; k++) {
        double u = rng_uniform(3, 0, k), v = rng_uniform(3, 1, k), x = 40 * (u - 0.5);
        hash = mix(hash, math_exp(x));
        hash = mix(hash, math_log(u + 1e-9));
        hash = mix(hash, math_tanh(0.1 * x));
        hash = mix(hash, math_erf(0.3 * x));
        double sine, cosine;
        math_sin_cos(1000 * x, &sine, &cosine);
        assert_true(sine == math_sin(1000 * x) && cosine == math_cos(1000 * x));
        hash = mix(hash, sine);
        hash = mix(hash, cosine);
        hash = mix(hash, math_pow(10 * u, 20 * (v - 0.5)));
    }
    assert_true(hash == 0x8521ac4fb1aa3693);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracy),
        cmocka_unit_test(powers),
        cmocka_unit_test(special_values),
        cmocka_unit_test(bits_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
