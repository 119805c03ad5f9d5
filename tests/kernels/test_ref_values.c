// What the reference kernels compute, compared with formulas that are written again here in the plainest way (with the
// C library's functions) or with numbers from PyTorch 1.13. Backward ops: tests/kernels/test_backward_ops.c.
#include "base/bf16.h"
#include "support/op_table.h"
#include "support/ops.h"

#include <math.h>

#include "support/test.h"

// Operands of a case in f64, all contiguous and present.
static struct op_instance make(const char *spec) {
    struct op_instance instance;
    struct op_options options = {.model = DTYPE_F64, .threads = 1, .seed = 9};
    trireme_error error;
    if (op_instance_create(&instance, table, spec, &options, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return instance;
}

static void run(struct op_instance *instance) {
    struct kernel kernel = kernel_find(instance->info->op, DTYPE_F64, KERNELS_REFERENCE);
    trireme_error error;
    if (op_instance_run(instance, &kernel, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
}

static double *in(const struct op_instance *instance, int i) {
    return instance->call.in[i].data;
}

static const int32_t *in_int(const struct op_instance *instance, int i) {
    return instance->call.in[i].data;
}

static double *out(const struct op_instance *instance, int i) {
    return instance->call.out[i].data;
}

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-13 * fmax(1, fabs(expected))))
        fail_msg("%.17g should be %.17g", got, expected);
}

static void embed(void **state) {
    (void)state;
    struct op_instance i = make("embed v=7 m=9 C=5");
    run(&i);
    for (int m = 0; m < 9; m++)
        for (int c = 0; c < 5; c++)
            assert_true(out(&i, 0)[m * 5 + c] == in(&i, 1)[in_int(&i, 0)[m] * 5 + c]);
    op_instance_release(&i);
}

static void matmul(void **state) {
    (void)state;
    struct op_instance i = make("matmul m=70 k=37 n=67"); // more than one tile each way
    run(&i);
    for (int m = 0; m < 70; m++)
        for (int n = 0; n < 67; n++) {
            double sum = 0;
            for (int k = 0; k < 37; k++)
                sum += in(&i, 0)[m * 37 + k] * in(&i, 1)[n * 37 + k];
            check_near(out(&i, 0)[m * 67 + n], sum + in(&i, 2)[n] + in(&i, 3)[m * 67 + n]);
        }
    op_instance_release(&i);
}

static void add(void **state) {
    (void)state;
    struct op_instance i = make("add m=3 c=7");
    run(&i);
    for (int k = 0; k < 21; k++)
        assert_true(out(&i, 0)[k] == in(&i, 0)[k] + in(&i, 1)[k]);
    op_instance_release(&i);
}

static void norms(void **state) {
    (void)state;
    struct op_instance l = make("layernorm m=3 C=7 eps=0.01"), r = make("rmsnorm m=3 C=7 eps=0.01");
    run(&l);
    run(&r);
    for (int m = 0; m < 3; m++) {
        const double *x = in(&l, 0) + 7 * m, *z = in(&r, 0) + 7 * m;
        double mean = 0, variance = 0, square = 0;
        for (int c = 0; c < 7; c++) {
            mean += x[c] / 7;
            square += z[c] * z[c] / 7;
        }
        for (int c = 0; c < 7; c++)
            variance += (x[c] - mean) * (x[c] - mean) / 7;
        check_near(out(&l, 1)[m], mean);
        check_near(out(&l, 2)[m], 1 / sqrt(variance + 0.01));
        check_near(out(&r, 1)[m], 1 / sqrt(square + 0.01));
        for (int c = 0; c < 7; c++) {
            check_near(out(&l, 0)[7 * m + c], (x[c] - mean) / sqrt(variance + 0.01) * in(&l, 1)[c] + in(&l, 2)[c]);
            check_near(out(&r, 0)[7 * m + c], z[c] / sqrt(square + 0.01) * in(&r, 1)[c]);
        }
    }
    op_instance_release(&l);
    op_instance_release(&r);
}

static void qknorm(void **state) {
    (void)state;
    struct op_instance i = make("qknorm m=3 D=4 h=6 c=32 heads=4 kv_heads=2 eps=0.01");
    run(&i);
    for (int m = 0; m < 3; m++)
        for (int h = 0; h < 8; h++) {
            const double *x = in(&i, 0) + 32 * m + 4 * h, *y = out(&i, 0) + 32 * m + 4 * h;
            double square = (x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]) / 4;
            const double *w = h < 4 ? in(&i, 1) : in(&i, 2);
            for (int d = 0; d < 4; d++)
                check_near(y[d], h < 6 ? x[d] / sqrt(square + 0.01) * w[d] : x[d]);
            if (h < 6)
                check_near(out(&i, 1)[6 * m + h], 1 / sqrt(square + 0.01));
        }
    op_instance_release(&i);
}

// Pairs (i, i + D/2) as complex numbers, turned by the angle of the row's position; rope_dx turns them back.
static void rope(void **state) {
    (void)state;
    struct op_instance i = make("rope m=5 S=9 D=6 c=24 heads=3"), back = make("rope_dx m=5 S=9 D=6 c=24 heads=3");
    for (int p = 0; p < 9; p++)
        for (int k = 0; k < 3; k++) {
            in(&i, 2)[6 * p + k] = cos(p * pow(100, -k / 3.0));
            in(&i, 2)[6 * p + 3 + k] = sin(p * pow(100, -k / 3.0));
        }
    run(&i);
    for (int m = 0; m < 5; m++) {
        const double *x = in(&i, 0) + 24 * m, *y = out(&i, 0) + 24 * m;
        for (int h = 0; h < 3; h++)
            for (int k = 0; k < 3; k++) {
                double a = x[6 * h + k], b = x[6 * h + 3 + k];
                double angle = in_int(&i, 1)[m] * pow(100, -k / 3.0), turned = atan2(b, a) + angle;
                check_near(y[6 * h + k], hypot(a, b) * cos(turned));
                check_near(y[6 * h + 3 + k], hypot(a, b) * sin(turned));
            }
        for (int c = 18; c < 24; c++)
            assert_true(y[c] == x[c]);
    }
    memcpy(in(&back, 0), out(&i, 0), 5 * 24 * sizeof(double));
    memcpy(in(&back, 2), in(&i, 2), 9 * 6 * sizeof(double));
    memcpy(back.call.in[1].data, i.call.in[1].data, 5 * sizeof(int32_t));
    run(&back);
    for (int k = 0; k < 5 * 24; k++)
        check_near(out(&back, 0)[k], in(&i, 0)[k]);
    op_instance_release(&i);
    op_instance_release(&back);
}

static void check_attention(int window, const char *spec) {
    enum { B = 2, T = 9, H = 4, G = 2, D = 6 };
    struct op_instance i = make(spec);
    run(&i);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++) {
                double total = exp(in(&i, 5)[h]), sum[D] = {0};
                for (int j = 0; j < T; j++) {
                    if (j > t || j < in_int(&i, 3)[b * T + t] || (window && j <= t - window))
                        continue;
                    double score = 0;
                    for (int d = 0; d < D; d++)
                        score +=
                            in(&i, 0)[((b * T + t) * H + h) * D + d] * in(&i, 1)[((b * T + j) * G + h / 2) * D + d];
                    total += exp(0.4 * score);
                    for (int d = 0; d < D; d++)
                        sum[d] += exp(0.4 * score) * in(&i, 2)[((b * T + j) * G + h / 2) * D + d];
                }
                check_near(out(&i, 1)[(b * H + h) * T + t], log(total));
                for (int d = 0; d < D; d++)
                    check_near(out(&i, 0)[((b * T + t) * H + h) * D + d], sum[d] / total);
            }
    op_instance_release(&i);
}

static void attention(void **state) {
    (void)state;
    check_attention(0, "attention b=2 T=9 h=4 g=2 D=6 scale=0.4 window=0");
    check_attention(3, "attention b=2 T=9 h=4 g=2 D=6 scale=0.4 window=3");
}

// Large scores must not overflow: softmax is taken relative to the largest.
static void attention_of_large_scores(void **state) {
    (void)state;
    struct op_instance i = make("attention b=1 T=4 h=1 g=1 D=2 scale=4000 window=0");
    run(&i);
    for (int k = 0; k < 8; k++)
        assert_true(isfinite(out(&i, 0)[k]));
    op_instance_release(&i);
}

// Rows appended one by one, or several at once, and attended to through the cache: as attention over all of them.
static void cached_attention(void **state) {
    (void)state;
    enum { T = 7, H = 4, G = 2, D = 6 };
    struct op_instance whole = make("attention b=1 T=7 h=4 g=2 D=6 scale=0.4 window=3");
    memset(whole.call.in[3].data, 0, T * sizeof(int32_t));
    run(&whole);
    struct op_instance append = make("cache_append m=1 g=2 D=6 S=9");
    struct op_instance attend = make("attention_cached m=1 h=4 g=2 D=6 S=9 scale=0.4 window=3");
    for (int32_t t = 0; t < T; t++) {
        memcpy(in(&append, 0), in(&whole, 1) + t * G * D, G * D * sizeof(double));
        memcpy(in(&append, 1), in(&whole, 2) + t * G * D, G * D * sizeof(double));
        *(int32_t *)append.call.in[2].data = *(int32_t *)attend.call.in[3].data = t;
        run(&append);
        for (int c = 0; c < 2; c++) { // the caches that came out go in again
            memcpy(in(&append, 3 + c), out(&append, c), 9 * G * D * sizeof(double));
            memcpy(in(&attend, 1 + c), out(&append, c), 9 * G * D * sizeof(double));
        }
        memcpy(in(&attend, 0), in(&whole, 0) + t * H * D, H * D * sizeof(double));
        run(&attend);
        for (int k = 0; k < H * D; k++)
            assert_true(out(&attend, 0)[k] == out(&whole, 0)[t * H * D + k]);
    }
    op_instance_release(&append);
    op_instance_release(&attend);
    struct op_instance rows = make("attention_cached m=4 h=4 g=2 D=6 S=9 scale=0.4 window=3");
    *(int32_t *)rows.call.in[3].data = 3;
    memcpy(in(&rows, 0), in(&whole, 0) + 3 * H * D, 4 * H * D * sizeof(double));
    memcpy(in(&rows, 1), in(&whole, 1), T * G * D * sizeof(double));
    memcpy(in(&rows, 2), in(&whole, 2), T * G * D * sizeof(double));
    run(&rows);
    for (int k = 0; k < 4 * H * D; k++)
        assert_true(out(&rows, 0)[k] == out(&whole, 0)[3 * H * D + k]);
    op_instance_release(&rows);
    op_instance_release(&whole);
}

static const double points[] = {-6, -2.5, -1, -0.1, 0, 0.3, 1, 2, 5};

static void check_activation(const char *spec, const double *expected) {
    struct op_instance i = make(spec);
    memcpy(in(&i, 0), points, sizeof points);
    for (int k = 9; k < (i.info->op == OP_SWIGLU ? 18 : 9); k++)
        in(&i, 0)[k] = k;
    run(&i);
    for (int k = 0; k < 9; k++)
        check_near(out(&i, 0)[k], i.info->op == OP_SWIGLU ? (k + 9) * expected[k] : expected[k]);
    op_instance_release(&i);
}

static void activations(void **state) {
    (void)state;
    static const double gelu_erf[] = {
        -5.919525869479969e-09, -0.015524163314440398, -0.15865525393145702, -0.0460172162722971, 0.0,
        0.1853734266566858,     0.841344746068543,     1.9544997361036416,   4.999998566742141};
    static const double gelu_tanh[] = {
        -8.43964897967453e-11, -0.015084266089998577, -0.1588080093917233, -0.04601724895456484, 0.0,
        0.18537092354275922,   0.8411919906082768,    1.954597694087775,   4.999999770820381};
    static const double silu[] = {
        -0.014835738939808647, -0.18964545005310887, -0.2689414213699951, -0.047502081252106004, 0.0,
        0.1723327550434977,    0.7310585786300049,   1.7615941559557646,  4.966535745378576};
    check_activation("gelu m=1 f=9 tanh=0", gelu_erf);
    check_activation("gelu m=1 f=9 tanh=1", gelu_tanh);
    check_activation("swiglu m=1 c=18 f=9", silu);
}

// Every token sees all tokens of its document up to itself, each weighted by q k and by the decays between the two.
static void linear_attention(void **state) {
    (void)state;
    enum { T = 23, H = 2, K = 3, V = 4 };
    struct op_instance i = make("linear_attention b=2 T=23 h=2 K=3 V=4 scale=0.7");
    run(&i);
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) {
                double expected[V] = {0};
                for (int j = in_int(&i, 4)[b * T + t]; j <= t; j++) {
                    double score = 0;
                    for (int c = 0; c < K; c++) {
                        double fades = 0;
                        for (int s = j + 1; s <= t; s++)
                            fades += in(&i, 3)[((b * T + s) * H + h) * K + c];
                        score += in(&i, 0)[((b * T + t) * H + h) * K + c] * in(&i, 1)[((b * T + j) * H + h) * K + c] *
                                 exp(fades);
                    }
                    for (int c = 0; c < V; c++)
                        expected[c] += 0.7 * score * in(&i, 2)[((b * T + j) * H + h) * V + c];
                }
                for (int c = 0; c < V; c++)
                    check_near(out(&i, 0)[((b * T + t) * H + h) * V + c], expected[c]);
            }
    op_instance_release(&i);
}

// Parts one after another are the whole. The state before a part is what the tokens before it would give a query.
static void linear_attention_over_parts(void **state) {
    (void)state;
    enum { B = 2, T = 24, H = 2, K = 3, V = 4, P = 4, N = T / P };
    struct op_instance whole = make("linear_attention b=2 T=24 h=2 K=3 V=4 scale=0.7"),
                       parts = make("linear_parts b=2 t=24 h=2 K=3 V=4 s=12 scale=0.7 parts=4");
    for (int k = 0; k < 4; k++)
        memcpy(in(&parts, k), in(&whole, k), (size_t)(B * T * H * (k == 2 ? V : K)) * sizeof(double));
    memcpy(parts.call.in[4].data, in_int(&whole, 4), B * T * sizeof(int32_t));
    run(&whole);
    run(&parts);
    for (int k = 0; k < B * T * H * V; k++)
        check_near(out(&parts, 0)[k], out(&whole, 0)[k]);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int row = 0; row < P * K; row++)
                for (int c = 0; c < V; c++) {
                    const int end = row / K * N, i = row % K;
                    double expected = 0, left = 1;
                    for (int j = end - 1; j >= 0; j--) {
                        const int at = (b * T + j) * H + h;
                        expected += left * in(&whole, 1)[at * K + i] * in(&whole, 2)[at * V + c];
                        if (in_int(&whole, 4)[b * T + j] == j)
                            break;
                        left *= exp(in(&whole, 3)[at * K + i]);
                    }
                    check_near(out(&parts, 1)[((b * H + h) * P * K + row) * V + c], expected);
                }
    op_instance_release(&whole);
    op_instance_release(&parts);
}

static void gates(void **state) {
    (void)state;
    struct op_instance l = make("log_sigmoid m=3 c=7 divisor=16"), n = make("gated_rmsnorm m=3 h=2 D=5 eps=0.01");
    in(&l, 0)[0] = 800, in(&l, 0)[1] = -800;
    run(&l);
    check_near(out(&l, 0)[0], 0);
    check_near(out(&l, 0)[1], -50);
    for (int k = 2; k < 21; k++)
        check_near(out(&l, 0)[k], log(1 / (1 + exp(-in(&l, 0)[k]))) / 16);
    run(&n);
    for (int row = 0; row < 6; row++) {
        const double *x = in(&n, 0) + 5 * row, *gate = in(&n, 1) + 5 * row;
        double square = 0;
        for (int d = 0; d < 5; d++)
            square += x[d] * x[d] / 5;
        check_near(out(&n, 1)[row], 1 / sqrt(square + 0.01));
        for (int d = 0; d < 5; d++)
            check_near(out(&n, 0)[5 * row + d],
                       x[d] / sqrt(square + 0.01) * in(&n, 2)[d] * gate[d] / (1 + exp(-gate[d])));
    }
    op_instance_release(&l);
    op_instance_release(&n);
}

static void cross_entropy(void **state) {
    (void)state;
    struct op_instance i = make("cross_entropy m=5 V=9 vocab=7"), g = make("cross_entropy_grad m=5 V=9 vocab=7");
    int32_t targets[] = {0, 6, -1, 3, 3};
    memcpy(i.call.in[1].data, targets, sizeof targets);
    memcpy(g.call.in[1].data, targets, sizeof targets);
    in(&i, 0)[9 * 4] = in(&g, 0)[9 * 4] = 900; // exp overflows
    run(&i);
    run(&g);
    for (int m = 0; m < 5; m++) {
        const double *x = in(&i, 0) + 9 * m;
        double total = 0, largest = m == 4 ? 900 : 0;
        for (int v = 0; v < 7; v++)
            total += exp(x[v] - largest);
        double expected = targets[m] < 0 ? 0 : log(total) + largest - x[targets[m]];
        check_near(out(&i, 0)[m], expected);
        check_near(out(&g, 0)[m], expected);
        for (int v = 0; v < 9; v++) {
            double d = targets[m] < 0 || v >= 7 ? 0 : (exp(x[v] - largest) / total - (v == targets[m])) * 0.37;
            check_near(out(&g, 1)[9 * m + v], d);
        }
    }
    op_instance_release(&i);
    op_instance_release(&g);
}

static void run_scalars(const char *spec, double a, double b, double *first, double *second, int32_t *third) {
    struct op_instance i = make(spec);
    in(&i, 0)[0] = a;
    if (i.info->inputs > 1)
        in(&i, 1)[0] = b;
    run(&i);
    *first = out(&i, 0)[0];
    if (second)
        *second = out(&i, 1)[0];
    if (third)
        *third = *(int32_t *)i.call.out[2].data;
    op_instance_release(&i);
}

static void check_clip(const char *spec, double sum, double loss, double norm, double factor, int32_t finite) {
    double got_norm, got_factor;
    int32_t got_finite;
    run_scalars(spec, sum, loss, &got_norm, &got_factor, &got_finite);
    assert_true(got_norm == norm || (isnan(norm) && isnan(got_norm)));
    check_near(got_factor, factor);
    assert_int_equal(got_finite, finite);
}

static void scalars(void **state) {
    (void)state;
    double x;
    struct op_instance count = make("targets_count m=2 t=3"), nll = make("loss_sum m=3"), g = make("square_sum n=3");
    memcpy(count.call.in[0].data, (int32_t[]){-1, 0, 5, -100, -1, 7}, 6 * sizeof(int32_t));
    run(&count);
    assert_true(out(&count, 0)[0] == 3);
    memcpy(in(&nll, 0), (double[]){1, 2, 4}, 3 * sizeof(double));
    in(&nll, 1)[0] = 0.5;
    run(&nll);
    assert_true(out(&nll, 0)[0] == 3.5);
    memcpy(in(&g, 0), (double[]){1, -2, 4}, 3 * sizeof(double));
    run(&g);
    assert_true(out(&g, 0)[0] == 21);
    op_instance_release(&count);
    op_instance_release(&nll);
    op_instance_release(&g);
    run_scalars("reciprocal weight=0.5", 8, 0, &x, NULL, NULL);
    assert_true(x == 0.0625);
    run_scalars("reciprocal weight=0.5", 0, 0, &x, NULL, NULL);
    assert_true(x == 0);
    run_scalars("increment", 41, 0, &x, NULL, NULL);
    assert_true(x == 42);
    check_clip("clip max_norm=1", 25, 2, 5, 1 / (5 + 1e-6), 1);
    check_clip("clip max_norm=1", 0.25, 2, 0.5, 1, 1);
    check_clip("clip max_norm=0", 25, 2, 5, 1, 1);
    check_clip("clip max_norm=1", 25, NAN, 5, 1 / (5 + 1e-6), 0);
    check_clip("clip max_norm=1", INFINITY, 2, INFINITY, 0, 0);
    check_clip("clip max_norm=1", NAN, 2, NAN, 1, 0);
}

// Three steps on five elements, of which the first three decay; the gradient doubles and triples, and is halved by
// `factor`.
static void check_optimizer(const char *spec, const double *expected, double accuracy) {
    struct op_instance i = make(spec);
    int states = i.info->outputs - 2; // outputs: parameter, remainder, states
    memcpy(in(&i, 0), (double[]){0.5, -1.25, 2, 0.75, -0.1}, 5 * sizeof(double));
    for (int s = 0; s < states; s++)
        memset(in(&i, 3 + s), 0, 5 * sizeof(double));
    const struct op_info *info = i.info;
    for (int step = 0; step < 3; step++) {
        for (int k = 0; k < 5; k++)
            in(&i, 2)[k] = (double[]){0.1, -0.2, 0.3, -0.4, 1e-5}[k] * (k < 3 ? step + 1 : 2 - step);
        for (int k = 0; k < info->inputs; k++) {
            double *x = in(&i, k);
            if (strcmp(info->in[k].name, "lr") == 0)
                *x = 0.01;
            else if (strcmp(info->in[k].name, "factor") == 0)
                *x = 0.5;
            else if (strcmp(info->in[k].name, "t") == 0)
                *x = step + 1;
            else if (strcmp(info->in[k].name, "decayed") == 0)
                *x = 3;
        }
        run(&i);
        memcpy(in(&i, 0), out(&i, 0), 5 * sizeof(double));
        for (int s = 0; s < states; s++)
            memcpy(in(&i, 3 + s), out(&i, 2 + s), 5 * sizeof(double));
    }
    for (int k = 0; k < 5; k++)
        if (!(fabs(in(&i, 0)[k] - expected[k]) <= accuracy))
            fail_msg("%s: element %d is %.17g, should be %.17g", spec, k, in(&i, 0)[k], expected[k]);
    op_instance_release(&i);
}

static void optimizers(void **state) {
    (void)state;
    static const double adamw[] = {0.46950611622024446, -1.2172583634406267, 1.9650106120140873, 0.776747573833958,
                                   -0.12671401078530853};
    static const double sgd[] = {0.492445299, -1.2334892977499998, 1.9745332965, 0.7646400000000001,
                                 -0.10000036600000001};
    check_optimizer("adamw n=5 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1", adamw, 1e-15);
    check_optimizer("sgd n=5 momentum=0.9 weight_decay=0.1", sgd, 1e-15);
}

// Signs that turn as gradients do, a factor that changes, and a direction of exactly zero.
static void lion(void **state) {
    (void)state;
    struct op_instance i = make("lion n=3 beta1=0.7 beta2=0.9 weight_decay=0.1");
    double *p = in(&i, 0), *m = in(&i, 3), expected[3], moment[3] = {0};
    memset(m, 0, sizeof moment);
    memcpy(expected, p, sizeof expected);
    in(&i, 4)[0] = 0.01;
    in(&i, 6)[0] = 2;
    for (int step = 0; step < 12; step++) {
        double factor = in(&i, 5)[0] = step % 3 ? 1 : 0.25;
        for (int k = 0; k < 3; k++) {
            double g = in(&i, 2)[k] = k == 1 && step < 2 ? 0 : sin(2.3 * step + k);
            double c = 0.7 * moment[k] + 0.3 * factor * g;
            expected[k] -= 0.01 * ((c > 0) - (c < 0) + (k < 2 ? 0.1 * expected[k] : 0));
            moment[k] = 0.9 * moment[k] + 0.1 * factor * g;
        }
        run(&i);
        for (int k = 0; k < 3; k++) {
            check_near(p[k] = out(&i, 0)[k], expected[k]);
            check_near(m[k] = out(&i, 2)[k], moment[k]);
        }
    }
    op_instance_release(&i);
}

// Two steps by a divisor, the least where that is less; a meeting of islands that have done 4 and 2 updates, of weights
// 3 and 1; and one of islands that have done none.
static void scaled(void **state) {
    (void)state;
    struct op_instance i = make("scaled n=3 eps=0.125 weight_decay=0.1");
    const double divisor[] = {0.5, 0.0625, 2}, squares[] = {0, 1, 4}, x[] = {1, -2, 4};
    memcpy(in(&i, 0), x, sizeof x);
    memcpy(in(&i, 2), (double[]){0.5, 0.25, -1}, 3 * sizeof(double));
    memcpy(in(&i, 3), squares, sizeof squares);
    memcpy(in(&i, 4), divisor, sizeof divisor);
    in(&i, 5)[0] = 0.01, in(&i, 6)[0] = 0.5, in(&i, 7)[0] = 2;
    run(&i);
    check_near(out(&i, 0)[0], 1 - 0.001 - 0.01 * 0.25 / 0.5);
    check_near(out(&i, 0)[1], -2 + 0.002 - 0.01 * 0.125 / 0.125);
    check_near(out(&i, 0)[2], 4 + 0.01 * 0.5 / 2);
    for (int k = 0; k < 3; k++)
        check_near(out(&i, 2)[k], squares[k] + (double[]){0.0625, 0.015625, 0.25}[k]);
    op_instance_release(&i);

    double sum[3] = {0}, updates = 0;
    for (int island = 0; island < 2; island++) {
        i = make("weigh_squares n=3");
        memcpy(in(&i, 0), squares, sizeof squares);
        in(&i, 1)[0] = island ? 1 : 3, in(&i, 2)[0] = island ? 9 : 11, in(&i, 3)[0] = 7;
        run(&i);
        for (int k = 0; k < 3; k++) {
            sum[k] += out(&i, 0)[k];
            assert_true(out(&i, 2)[k] == 0);
        }
        updates += out(&i, 1)[0];
        op_instance_release(&i);
    }
    assert_true(updates == 3 * 4 + 1 * 2);
    for (int round = 0; round < 3; round++) {
        i = make("rescale n=3 beta2=0.5");
        memcpy(in(&i, 0), divisor, sizeof divisor);
        memcpy(in(&i, 1), sum, sizeof sum);
        in(&i, 2)[0] = round < 2 ? updates : 0, in(&i, 3)[0] = round;
        run(&i);
        const double before = round == 0 ? 0 : 1. / 3; // (1/2 - 1/4) / (1 - 1/4)
        for (int k = 0; k < 3; k++)
            check_near(out(&i, 0)[k],
                       round == 2 ? divisor[k]
                                  : sqrt(before * divisor[k] * divisor[k] + (1 - before) * 4 * squares[k] / 14));
        op_instance_release(&i);
    }
}

// A matrix [rows, columns] of sines, in blocks of columns, brought to singular values near 1.
static void check_newton_schulz(const char *spec, const double *expected) {
    struct op_instance i = make(spec);
    const struct tensor *u = &i.call.in[0];
    const int64_t blocks = u->dim[0], rows = u->dim[1], width = u->dim[2], columns = blocks * width;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            in(&i, 0)[(c / width * rows + r) * width + c % width] = sin((double)(1 + r * columns + c));
    run(&i);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            check_near(out(&i, 0)[(c / width * rows + r) * width + c % width], expected[r * columns + c]);
    op_instance_release(&i);
}

static void newton_schulz(void **state) {
    (void)state;
    static const double wide[] = {0.16909422704789595,  0.18480970881109393,  0.03061199658700131,
                                  -0.15173024412471658, -0.1921479283940867,  -0.05570899467100689,
                                  0.13194853183739186,  0.1982931866863348,   0.0820983082660007,
                                  -0.11198205082822375, -0.20310662882267538, -0.10749590895175971};
    static const double tall[] = {0.15651808865077294, 0.14665266778339636, 0.12978101017603944, -0.21786735515562028,
                                  -0.2645340023080756, 0.03467695348641178, 0.09038896626328087, 0.18900594616669475,
                                  0.1893038375696142,  -0.19198540665815095};
    check_newton_schulz("newton_schulz S=1 R=3 C=4 iterations=5 scale=0.4", wide);
    check_newton_schulz("newton_schulz S=2 R=3 C=2 iterations=5 scale=0.4", wide);
    check_newton_schulz("newton_schulz S=1 R=5 C=2 iterations=5 scale=0.447213595499958", tall);
    check_newton_schulz("newton_schulz S=2 R=5 C=1 iterations=5 scale=0.447213595499958", tall);
}

// Three steps of a matrix [2, 3], all of whose elements decay.
static void muon(void **state) {
    (void)state;
    static const double expected[] = {0.4936990358341165, -1.2407455731860366, 1.9894308112450778,
                                      0.7541624989491458, -0.1021681362225831, 0.29348525741573694};
    struct op_instance momentum = make("muon_momentum n=6 momentum=0.95"), update = make("muon n=6 weight_decay=0.1"),
                       middle = make("newton_schulz S=1 R=2 C=3 iterations=5 scale=0.34641016151377546");
    memcpy(in(&update, 0), (double[]){0.5, -1.25, 2, 0.75, -0.1, 0.3}, 6 * sizeof(double));
    memset(in(&momentum, 1), 0, 6 * sizeof(double));
    in(&momentum, 2)[0] = 0.5;
    in(&update, 3)[0] = 0.01;
    in(&update, 4)[0] = 6;
    for (int step = 0; step < 3; step++) {
        for (int k = 0; k < 6; k++)
            in(&momentum, 0)[k] = (double[]){0.1, -0.2, 0.3, -0.4, 0.05, 0.6}[k] * (k < 3 ? step + 1 : 2 - step);
        run(&momentum);
        memcpy(in(&middle, 0), out(&momentum, 0), 6 * sizeof(double));
        run(&middle);
        memcpy(in(&update, 2), out(&middle, 0), 6 * sizeof(double));
        run(&update);
        memcpy(in(&update, 0), out(&update, 0), 6 * sizeof(double));
        memcpy(in(&momentum, 1), out(&momentum, 1), 6 * sizeof(double));
    }
    for (int k = 0; k < 6; k++)
        check_near(in(&update, 0)[k], expected[k]);
    op_instance_release(&momentum);
    op_instance_release(&middle);
    op_instance_release(&update);
}

// A bf16 parameter with its remainder takes exactly the steps that an f32 parameter takes.
static void check_master(const char *spec) {
    struct op_instance wide, narrow;
    struct op_options options = {.model = DTYPE_F32, .threads = 1, .seed = 9};
    trireme_error error;
    assert_int_equal(op_instance_create(&wide, table, spec, &options, &error), TRIREME_OK);
    options.model = DTYPE_BF16;
    assert_int_equal(op_instance_create(&narrow, table, spec, &options, &error), TRIREME_OK);
    struct kernel kernel = kernel_find(wide.info->op, DTYPE_F32, KERNELS_REFERENCE);
    enum { N = 101 };
    float *p = wide.call.in[0].data;
    uint16_t *upper = narrow.call.in[0].data, *rem = narrow.call.in[1].data;
    for (int k = 0; k < N; k++)
        master_split(p[k], &upper[k], &rem[k]);
    for (int step = 0; step < 10; step++) {
        kernel.run(&wide.call);
        kernel.run(&narrow.call);
        memcpy(p, wide.call.out[0].data, N * sizeof(float));
        memcpy(upper, narrow.call.out[0].data, N * sizeof(uint16_t));
        memcpy(rem, narrow.call.out[1].data, N * sizeof(uint16_t));
        for (int k = 0; k < N; k++)
            assert_true(master_join(upper[k], rem[k]) == p[k]);
        for (int s = 2; s < wide.info->outputs; s++) {
            memcpy(wide.call.in[s + 1].data, wide.call.out[s].data, N * sizeof(float));
            memcpy(narrow.call.in[s + 1].data, narrow.call.out[s].data, N * sizeof(float));
        }
    }
    op_instance_release(&wide);
    op_instance_release(&narrow);
}

static void master_weights(void **state) {
    (void)state;
    check_master("adamw n=101 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1");
    check_master("lion n=101 beta1=0.9 beta2=0.95 weight_decay=0.1");
    check_master("sgd n=101 momentum=0.9 weight_decay=0.1");
    check_master("scaled n=101 eps=1e-2 weight_decay=0.1");
    check_master("muon n=101 weight_decay=0.1");
}

// Codes of values that lie apart, one after another; and the values again.
static void codecs_give_back_what_they_keep(void **state) {
    (void)state;
    static const uint32_t BITS[] = {0x3f800000, 0xc0490fdb, 0x00000001, 0x7f7fffff, 0xff800000, 0x7fc01234};
    enum { COUNT = ARRAY_LENGTH(BITS) };
    float x[2 * COUNT], y[COUNT];
    uint8_t code[4 * COUNT];
    for (int i = 0; i < COUNT; i++)
        memcpy(&x[2 * i], &BITS[i], sizeof *x);
    for (int rounds = 0; rounds < 2; rounds++) {
        const int64_t width = rounds ? 2 : 4;
        struct call call = {.op = rounds ? OP_ENCODE_BF16 : OP_ENCODE_BYTES, .inputs = 1, .outputs = 1, .threads = 1};
        call.in[0] = (struct tensor){.data = x, .dtype = DTYPE_F32, .ndim = 1, .dim = {COUNT}, .stride = {2}};
        call.out[0] =
            (struct tensor){.data = code, .dtype = DTYPE_U8, .ndim = 2, .dim = {COUNT, width}, .stride = {width, 1}};
        kernel_find(call.op, DTYPE_F32, KERNELS_REFERENCE).run(&call);
        call.op = rounds ? OP_DECODE_BF16 : OP_DECODE_BYTES;
        call.in[0] = call.out[0];
        call.out[0] = (struct tensor){.data = y, .dtype = DTYPE_F32, .ndim = 1, .dim = {COUNT}, .stride = {1}};
        kernel_find(call.op, DTYPE_F32, KERNELS_REFERENCE).run(&call);
        for (int i = 0; i < COUNT; i++) {
            uint32_t bits, expected = BITS[i];
            memcpy(&bits, &y[i], sizeof bits);
            if (rounds)
                expected = (uint32_t)bf16_from_float(x[2 * i]) << 16;
            assert_int_equal(bits, expected);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_give_back_what_they_keep),
        cmocka_unit_test(embed),
        cmocka_unit_test(matmul),
        cmocka_unit_test(add),
        cmocka_unit_test(norms),
        cmocka_unit_test(qknorm),
        cmocka_unit_test(rope),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_of_large_scores),
        cmocka_unit_test(cached_attention),
        cmocka_unit_test(activations),
        cmocka_unit_test(linear_attention),
        cmocka_unit_test(linear_attention_over_parts),
        cmocka_unit_test(gates),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(scalars),
        cmocka_unit_test(optimizers),
        cmocka_unit_test(lion),
        cmocka_unit_test(scaled),
        cmocka_unit_test(newton_schulz),
        cmocka_unit_test(muon),
        cmocka_unit_test(master_weights),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
