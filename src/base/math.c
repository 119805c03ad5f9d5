#include "base/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

// Terms of a series are summed from the smallest, by Horner's rule: s = c[0] + x (c[1] + x (c[2] + ...)).
static double polynomial(double x, const double *c, int n) {
    double s = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        s = c[i] + x * s;
    return s;
}

// ---- numbers as unevaluated sums of two doubles (Dekker, "A floating-point technique for extending the available
// precision", Numer. Math. 18, 1971)

struct two {
    double hi, lo;
};

static struct two two_sum(double a, double b) {
    double s = a + b, t = s - a;
    return (struct two){s, (a - (s - t)) + (b - t)};
}

// Needs |a| >= |b|.
static struct two two_normal(double a, double b) {
    double s = a + b;
    return (struct two){s, b - (s - a)};
}

// Exact while nothing over- or underflows: splits each factor into halves of 26 bits.
static struct two two_product(double a, double b) {
    const double split = 134217729; // 2^27 + 1
    double p = a * b;
    double a_hi = split * a - (split * a - a), a_lo = a - a_hi;
    double b_hi = split * b - (split * b - b), b_lo = b - b_hi;
    return (struct two){p, ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo};
}

static struct two two_multiply(struct two a, struct two b) {
    struct two p = two_product(a.hi, b.hi);
    return two_normal(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static struct two two_add(struct two a, struct two b) {
    struct two s = two_sum(a.hi, b.hi);
    return two_normal(s.hi, s.lo + (a.lo + b.lo));
}

// ---- exponential and logarithm

static double power_of_two(int n) { // -1022 <= n <= 1023
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static const double ln2_hi = 0x1.62e42feep-1, ln2_lo = 0x1.a39ef35793c76p-33; // the first has 21 trailing zero bits

// e^(x + tail), |tail| tiny beside x. x = n ln 2 + r, |r| <= ln(2)/2; e^r by Taylor's series.
static double exp_with_tail(double x, double tail) {
    static const double c[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    int n = (int)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
    double high = x - n * ln2_hi, low = tail - n * ln2_lo;
    double r = high + low, error = (high - r) + low;
    double y = 1 + (r + (r * r * polynomial(r, c, 12) + error * (1 + r)));
    int half = n / 2; // 2^n may be out of range while the result is not
    return y * power_of_two(half) * power_of_two(n - half);
}

double math_exp(double x) {
    return isnan(x) ? x : exp_with_tail(x, 0);
}

// x = 2^*exponent (1 + *f) with 1 + f in [sqrt(1/2), sqrt(2)); x positive and finite.
static void math_decompose(double x, int *exponent, double *f) {
    uint64_t bits;
    int e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    memcpy(&bits, &x, sizeof bits);
    e += (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m /= 2;
        e++;
    }
    *exponent = e;
    *f = m - 1;
}

// With s = f / (2 + f): log(1 + f) = 2 (s + s^3/3 + s^5/5 + ...). These are 2/5, 2/7, ... of the series from s^5 on.
static const double log_series[] = {2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                                    2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};

// The value of log where it is not finite, else 0.
static double log_special(double x) {
    return isnan(x) ? x : x < 0 ? NAN : x == 0 ? -INFINITY : isinf(x) ? x : 0;
}

double math_log(double x) {
    double special = log_special(x);
    if (special != 0)
        return special;
    int n;
    double f;
    math_decompose(x, &n, &f);
    // 2 s = f - s f, and s f = (f^2 - s f^2) / 2: the rounding error of s touches only a small part of the sum.
    double s = f / (2 + f), z = s * s, square = 0.5 * f * f;
    double rest = z * (2.0 / 3 + z * polynomial(z, log_series, 10));
    return n * ln2_hi + (f - (square - (s * (square + rest) + n * ln2_lo)));
}

// The logarithm to about 65 bits, for powers.
static struct two log_two(double x) {
    static const struct two ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
    static const struct two two_thirds = {0x1.5555555555555p-1, 0x1.5555555555555p-55};
    int n;
    double f;
    math_decompose(x, &n, &f);
    struct two divisor = two_sum(2, f);
    double s = f / divisor.hi;
    struct two product = two_product(s, divisor.hi);
    struct two quotient = two_normal(s, (((f - product.hi) - product.lo) - s * divisor.lo) / divisor.hi);
    struct two z = two_multiply(quotient, quotient), cube = two_multiply(z, quotient);
    struct two log_1f = {2 * quotient.hi, 2 * quotient.lo};
    log_1f = two_add(log_1f, two_multiply(two_thirds, cube));
    log_1f = two_add(log_1f, (struct two){z.hi * cube.hi * polynomial(z.hi, log_series, 10), 0});
    return two_add(two_multiply((struct two){n, 0}, ln2), log_1f);
}

double math_pow(double x, double y) {
    if (y == 0 || x == 1)
        return 1;
    double special = log_special(x);
    if (special != 0)
        return isnan(special) || isnan(y) ? NAN : math_exp(special * y);
    if (!isfinite(y))
        return math_exp(math_log(x) * y);
    struct two l = log_two(x);
    if (!(y * l.hi < 1000 && y * l.hi > -1000)) // splitting a huge y would overflow
        return math_exp(y * l.hi);
    struct two product = two_multiply(l, (struct two){y, 0});
    return exp_with_tail(product.hi, product.lo);
}

// ---- hyperbolic tangent and error function

double math_tanh(double x) {
    double a = x < 0 ? -x : x;
    if (a < 0.55) {
        // tanh x = x - x D / cosh x, where D = cosh x - sinh x / x = sum of 2k x^2k / (2k + 1)!.
        static const double d[] = {2.0 / 6,         4.0 / 120,         6.0 / 5040,          8.0 / 362880,
                                   10.0 / 39916800, 12.0 / 6227020800, 14.0 / 1307674368000};
        static const double cosh_series[] = {1,           1.0 / 2,       1.0 / 24,        1.0 / 720,
                                             1.0 / 40320, 1.0 / 3628800, 1.0 / 479001600, 1.0 / 87178291200};
        double z = x * x;
        return x - x * (z * polynomial(z, d, 7) / polynomial(z, cosh_series, 8));
    }
    double t = a > 20 ? 1 : 1 - 2 / (math_exp(2 * a) + 1);
    return isnan(x) ? x : x < 0 ? -t : t;
}

// Taylor's series around the nearest multiple a of 1/4 (around 0 as far as 1/4, for the relative error). The derivative
// of erf at a + h is slope(a) g(h) with g(h) = e^(-2ah - h^2), whose coefficients follow from g' = -2 (a + h) g: (n +
// 1) g[n+1] = -2 a g[n] - 2 g[n-1].
double math_erf(double x) {
    static const struct {
        double erf, slope; // at a: erf(a), 2/sqrt(pi) e^(-a^2)
    } node[] = {
        {0, 1.1283791670955126},
        {0.27632639016823696, 1.0600141293761143},
        {0.5204998778130465, 0.8787825789354448},
        {0.7111556336535151, 0.6429310691952074},
        {0.8427007929497149, 0.4151074974205947},
        {0.9229001282564583, 0.2365211224472908},
        {0.9661051464753108, 0.11893028922362937},
        {0.9866716712191824, 0.05277499593015037},
        {0.9953222650189527, 0.020666985354092053},
        {0.9985372834133188, 0.007142319022017983},
        {0.999593047982555, 0.0021782842303527095},
        {0.9998993780778803, 0.0005862772470937923},
        {0.9999779095030014, 0.00013925305194674786},
        {0.9999956972205363, 2.9189025383581702e-05},
        {0.9999992569016276, 5.399426777384783e-06},
        {0.9999998862727434, 8.814321912318039e-07},
        {0.9999999845827421, 1.2698234671866558e-07},
        {0.9999999981494259, 1.6143993719507412e-08},
        {0.9999999998033839, 1.81130589590869e-09},
        {0.9999999999815149, 1.7934357034341337e-10},
        {0.9999999999984626, 1.5670866531017336e-11},
        {0.9999999999998869, 1.2084074716006755e-12},
        {0.9999999999999927, 8.223316045262922e-14},
        {0.9999999999999996, 4.938485140964219e-15},
        {1, 2.617301239249265e-16},
    };
    enum { TERMS = 20 };
    if (isnan(x))
        return x;
    double absolute = x < 0 ? -x : x;
    if (absolute >= 6)
        return x < 0 ? -1 : 1;
    int i = absolute < 0.25 ? 0 : (int)(4 * absolute + 0.5);
    double a = 0.25 * i, h = absolute - a;
    double g[TERMS] = {1, -2 * a};
    for (int n = 1; n + 1 < TERMS; n++)
        g[n + 1] = -2 * (a * g[n] + g[n - 1]) / (n + 1);
    for (int n = 0; n < TERMS; n++)
        g[n] /= n + 1;
    double y = node[i].erf + node[i].slope * (h * polynomial(h, g, TERMS));
    return x < 0 ? -y : y;
}

// ---- sine and cosine

// x = n pi/2 + r, |r| <= pi/4, pi/2 in pieces of 24 bits so that n times each is exact. Returns n; NaN has none.
static int64_t math_reduce(double x, struct two *r) {
    static const double half_pi[] = {0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48, 0x1.8cc516p-72,
                                     0x1.01b839a25204ap-96};
    *r = (struct two){NAN, NAN};
    if (!(x <= 0x1p28 && x >= -0x1p28))
        return 0;
    int64_t n = (int64_t)(x * 0x1.45f306dc9c883p-1 + (x < 0 ? -0.5 : 0.5));
    *r = (struct two){x, 0};
    for (int i = 0; i < 5; i++)
        *r = two_add(*r, (struct two){-(double)n * half_pi[i], 0});
    return n;
}

// The sine of r + quarter * pi/2.
static double sine(struct two r, int64_t quarter) {
    static const double sine_series[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    static const double cosine_series[] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
    double z = r.hi * r.hi, y;
    if (quarter & 1) {
        double rest = z * z * polynomial(z, cosine_series, 8) - r.hi * r.lo;
        double w = 1 - 0.5 * z;
        y = w + (((1 - w) - 0.5 * z) + rest);
    } else {
        y = r.hi + (r.hi * z * polynomial(z, sine_series, 8) + r.lo * (1 - 0.5 * z));
    }
    return quarter & 2 ? -y : y;
}

void math_sin_cos(double x, double *sin, double *cos) {
    struct two r;
    const int64_t n = math_reduce(x, &r);
    *sin = sine(r, n);
    *cos = sine(r, n + 1);
}

double math_sin(double x) {
    struct two r;
    const int64_t n = math_reduce(x, &r);
    return sine(r, n);
}

double math_cos(double x) {
    struct two r;
    const int64_t n = math_reduce(x, &r);
    return sine(r, n + 1);
}
