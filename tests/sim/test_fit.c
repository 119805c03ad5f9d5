// From measurements to clusters and back.
#include "support/checkpoint.h"

#include "sim/cost.h"
#include "sim/fit.h"

#include <math.h>

static struct op_table *ops;

static struct cluster load(const char *name) {
    struct cluster c;
    trireme_error error = {0};
    assert_ok(cluster_load(&c, ops, name, &error), &error);
    return c;
}

// Two replicas on two of its devices; the route between them.
static const struct route *pair_topology(struct topology *topology, const struct cluster *c) {
    struct mesh mesh = mesh_single();
    trireme_error error = {0};
    mesh.degree[AXIS_DP] = 2;
    const struct link_use use = {AXES(AXIS_DP), 0, false};
    assert_ok(topology_create(topology, c, &mesh, &use, 1, &error), &error);
    return &topology->route[0][0];
}

static void printed_clusters_read_back(void **unused) {
    (void)unused;
    static const char *const NAMES[] = {"a100", "a100-flash", "h100", "h100-compiled"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        struct cluster c = load(NAMES[i]), again;
        struct text first = {0}, second = {0};
        trireme_error error = {0};
        VEC_PUSH(&c.devices.item[0].points[OP_ADAMW], (struct curve_point){DTYPE_F32, 0, 0, 0, 1e6, 2e-6});
        VEC_PUSH(&c.devices.item[0].points[OP_MATMUL], (struct curve_point){DTYPE_F32, 64, 64, 64, 49152, 9e-6});
        VEC_PUSH(&c.level[0].points, (struct link_point){OP_ALL_REDUCE, 8, 1 << 20, 93e-6});
        c.level[0].message = 3e-6;
        c.level[0].wiring = i ? WIRING_DIRECT : WIRING_SWITCH;
        c.level[0].half_duplex = i == 1;
        assert_true(c.level[0].start > 3e-6);
        VEC_PUSH(&c.stragglers, (struct straggler){3, 1.25});
        c.devices.item[0].jitter = .04;
        c.devices.item[0].communication = i ? .375 : 1;
        c.devices.item[0].meeting = 150e-6;
        cluster_print(&c, ops, &first);
        assert_ok(cluster_parse(&again, ops, "printed", first.text, first.length, &error), &error);
        cluster_print(&again, ops, &second);
        assert_string_equal(first.text, second.text);
        assert_int_equal(again.total_devices, c.total_devices);
        assert_true(again.devices.item[0].communication == (i ? .375 : 1));
        assert_true(again.devices.item[0].jitter == .04 && again.devices.item[0].meeting == 150e-6);
        assert_true(again.level[0].message == 3e-6 && again.level[0].start == c.level[0].start);
        assert_int_equal(again.level[0].wiring, c.level[0].wiring);
        assert_int_equal(again.level[0].half_duplex, i == 1);
        for (int op = 0; op < OP_COUNT; op++)
            assert_int_equal(again.devices.item[0].points[op].count, op == OP_ADAMW || op == OP_MATMUL);
        for (int op = 0; op < OP_COUNT; op++)
            for (int t = 0; t < DTYPE_COUNT; t++) {
                const struct curve *a = &c.devices.item[0].curve[op][t], *b = &again.devices.item[0].curve[op][t];
                if (c.devices.item[0].peak[t] > 0 && ops->op[op].role != ROLE_COMMUNICATION)
                    assert_true(fabs(a->memory - b->memory) < 1e-4 && fabs(a->compute - b->compute) < 1e-4 &&
                                a->letters == b->letters && a->fused == b->fused && a->unfused == b->unfused);
            }
        text_release(&first);
        text_release(&second);
        cluster_release(&again);
        cluster_release(&c);
    }
}

// Instructions without a dtype of the model's count as f32, even on a device without a peak for that.
static void curves_without_a_peak_read_back(void **unused) {
    (void)unused;
    static const char ONE[] = "devices:\n"
                              "  d: {peak: {bf16: 1 TFLOP/s}, memory: 1 GB, bandwidth: 1 GB/s,\n"
                              "      efficiency: {other: {memory: 0.125}, zero: {f32: {memory: 0.25}}}}\n"
                              "nodes: [{device: d, nodes: 1, devices: 1}]\n";
    struct cluster c, again;
    trireme_error error = {0};
    struct text printed = {0};
    assert_ok(cluster_parse(&c, ops, "one", ONE, strlen(ONE), &error), &error);
    cluster_print(&c, ops, &printed);
    assert_ok(cluster_parse(&again, ops, "printed", printed.text, printed.length, &error), &error);
    assert_true(again.devices.item[0].curve[OP_NORM_SUM][DTYPE_F32].memory == 0.125);
    assert_true(again.devices.item[0].curve[OP_ZERO][DTYPE_F32].memory == 0.25);
    text_release(&printed);
    cluster_release(&again);
    cluster_release(&c);
}

// Names and a line about it that YAML would take for something else come back as they were.
static void printed_names_read_back(void **unused) {
    (void)unused;
    static const char *const NAMES[] = {"a:b", "*x", "[x]", "{x}", "&x", "#x", "null", "12", "-", "a,b", "\"x\\", "'x"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        struct cluster c = load("a100"), again;
        struct text yaml = {0};
        trireme_error error = {0};
        free(c.about);
        free(c.devices.item[0].name);
        free(c.level[0].name);
        c.about = mem_printf("%s: this #and\n\"that\" of 5 \xc2\xb5s", NAMES[i]);
        c.devices.item[0].name = mem_strdup(NAMES[i]);
        c.devices.item[0].cores = 2;
        VEC_PUSH(&c.devices.item[0].shared, (struct shared){2, 0});
        c.level[0].name = mem_strdup(NAMES[i]);
        cluster_print(&c, ops, &yaml);
        assert_ok(cluster_parse(&again, ops, "printed", yaml.text, yaml.length, &error), &error);
        assert_string_equal(again.about, c.about);
        assert_string_equal(again.devices.item[0].name, NAMES[i]);
        assert_int_equal(again.devices.item[0].shared.item[0].device, 0);
        assert_string_equal(again.level[0].name, NAMES[i]);
        text_release(&yaml);
        cluster_release(&again);
        cluster_release(&c);
    }
}

// A matmul, as the only instruction of a program.
static double seconds_of_product(const struct device *device, enum op op, int64_t m, int64_t n, int64_t k) {
    struct program p;
    program_init(&p, "one", 1);
    int x = program_buffer(&p, "x", DTYPE_BF16, KIND_ACT, SCOPE_STEP, 2, (int64_t[]){m, k});
    int w = program_buffer(&p, "w", DTYPE_BF16, KIND_PARAM, SCOPE_STATE, 2, (int64_t[]){n, k});
    int y = program_buffer(&p, "y", DTYPE_BF16, KIND_ACT, SCOPE_STEP, 2, (int64_t[]){m, n});
    int t = program_template(&p, "t", PHASE_FORWARD, 0);
    struct operand none = operand_none(), ox = operand_whole(&p, x), ow = operand_whole(&p, w),
                   oy = operand_whole(&p, y);
    if (op == OP_MATMUL)
        program_emit(&p, t, op, PHASE_FORWARD, NONE, 4, (struct operand[]){ox, ow, none, none}, 1, &oy, NULL);
    else
        program_emit(&p, t, op, PHASE_BACKWARD, NONE, 2, (struct operand[]){oy, ow}, 1, &ox, NULL);
    struct station station = {device, 1, 1, 0};
    double seconds = cost_compute(&station, &p, ops, &p.templates.item[t].instructions.item[0], 0, false);
    program_release(&p);
    return seconds;
}

// Letters that an op takes over and has no dims for mean nothing to it, and are not written as its own.
static void letters_of_others_are_left_out(void **unused) {
    (void)unused;
    struct cluster c = load("a100"), again;
    struct text first = {0}, second = {0};
    trireme_error error = {0};
    struct device *d = &c.devices.item[0];
    VEC_PUSH(&d->points[OP_ADAMW], (struct curve_point){DTYPE_F32, 0, 0, 0, 1e6, 2e-6});
    for (int t = 0; t < DTYPE_COUNT; t++) {
        struct curve other = {.memory = .5, .fused = 4, .unfused = 9, .letters = 1, .half = {{'m', 7}}};
        d->other[t] = other;
        d->curve[OP_ATTENTION][t].letters = 1;
        d->curve[OP_ATTENTION][t].half[0].letter = 'T';
        d->curve[OP_ATTENTION_CACHED][t] = d->curve[OP_ATTENTION][t];
        d->curve[OP_ATTENTION_CACHED][t].compute = .1;
    }
    double usual = seconds_of_product(d, OP_MATMUL, 512, 512, 512);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        d->curve[OP_MATMUL][t].fused = 4;
        d->curve[OP_MATMUL][t].unfused = 9;
    }
    assert_true(seconds_of_product(d, OP_MATMUL, 512, 512, 512) == usual);
    cluster_print(&c, ops, &first);
    assert_ok(cluster_parse(&again, ops, "printed", first.text, first.length, &error), &error);
    cluster_print(&again, ops, &second);
    assert_string_equal(first.text, second.text);
    assert_true(again.devices.item[0].curve[OP_ATTENTION_CACHED][DTYPE_F32].compute == .1);
    text_release(&first);
    text_release(&second);
    cluster_release(&again);
    cluster_release(&c);
}

static void products_come_from_a_table(void **unused) {
    (void)unused;
    struct cluster c = load("a100-flash");
    trireme_error error = {0};
    struct text csv = {0};
    text_add(&csv, "# timings\nM, N, K, dtype, tflops\n");
    // A device that reaches 300 * 0.9 TFLOP/s * n / (n + 500).
    for (int m = 512; m <= 8192; m *= 2)
        for (int n = 512; n <= 8192; n *= 2)
            text_add(&csv, "%d,%d,4096,bfloat16,%.9g\n", m, n, 270.0 * n / (n + 500));
    assert_ok(fit_import(&c, ops, "gemm.csv", csv.text, csv.length, &error), &error);
    const struct device *d = &c.devices.item[0];
    for (int m = 700; m < 8000; m += 999)
        for (int n = 700; n < 8000; n += 999) {
            double right = 2.0 * m * n * 4096 / (270e12 * n / (n + 500));
            assert_true(fabs((seconds_of_product(d, OP_MATMUL, m, n, 4096) - d->launch) / right - 1) < 0.02);
        }
    double right = 2.0 * 2048 * 4096 * 4096 / (270e12 * 4096 / 4596);
    assert_true(fabs((seconds_of_product(d, OP_MATMUL, 2048, 4096, 4096) - d->launch) / right - 1) < 1e-5);
    // The backward follows, and the head's product that comes before the loss.
    assert_true(fabs((seconds_of_product(d, OP_MATMUL_DX, 2048, 4096, 4096) - d->launch) / right - 1) < 1e-5);
    assert_true(fabs((seconds_of_product(d, OP_LOGITS_TIMES, 2048, 4096, 4096) - d->launch) / right - 1) < 1e-5);
    text_release(&csv);
    cluster_release(&c);
}

static void times_count_beside_rates(void **unused) {
    (void)unused;
    struct cluster c = load("a100");
    trireme_error error = {0};
    const char *table = "tflops,m,n,k,dtype,ms,note\n130,4096,4096,4096,bf16,1,\n";
    assert_ok(fit_import(&c, ops, "gemm.csv", table, strlen(table), &error), &error);
    assert_true(fabs(1e3 * c.devices.item[0].points[OP_MATMUL].item[0].seconds - 1) < 1e-12);
    cluster_release(&c);
}

// Of the ops that follow, too: nothing is left of what was measured before.
static void the_last_table_counts(void **unused) {
    (void)unused;
    static const char *const TABLES[] = {"m,n,k,dtype,tflops\n1024,4096,4096,bf16,61\n4096,4096,4096,bf16,64\n",
                                         "m,n,k,dtype,tflops\n1024,4096,4096,bf16,161\n"};
    struct cluster c = load("a100");
    const struct device *d = &c.devices.item[0];
    trireme_error error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(TABLES); i++) {
        assert_ok(fit_import(&c, ops, "gemm.csv", TABLES[i], strlen(TABLES[i]), &error), &error);
        for (int op = 0; op < OP_COUNT; op++)
            if (ops->op[op].like == OP_MATMUL) {
                const bool several = op == OP_NEWTON_SCHULZ || op == OP_CROSS_ENTROPY_HEAD; // products, or more
                const size_t points = several ? 0 : 2 - i;
                assert_int_equal(d->points[op].count, points);
                for (size_t k = 0; k < points; k++)
                    assert_true(d->points[op].item[k].seconds == d->points[OP_MATMUL].item[k].seconds);
            }
    }
    assert_int_equal(d->points[OP_MATMUL_DX].count, 1);
    cluster_release(&c);
}

// A sample that is faster than the device can be counts as its peak, so that what is written can be read.
static void products_are_not_faster_than_the_peak(void **unused) {
    (void)unused;
    struct cluster c = load("a100"), again;
    struct device *d = &c.devices.item[0];
    struct fit_samples samples = {0};
    struct text printed = {0};
    trireme_error error = {0};
    const double flops = 2e12, least = flops / d->peak[DTYPE_F32];
    VEC_PUSH(&samples, (struct fit_sample){OP_MATMUL, DTYPE_F32, flops, 12e8, least / 1.2, 10000, 10000, 10000, -1});
    fit_device(d, ops, &samples, true);
    assert_int_equal(d->points[OP_MATMUL].count, 1);
    assert_true(d->points[OP_MATMUL].item[0].seconds == least);
    cluster_print(&c, ops, &printed);
    assert_ok(cluster_parse(&again, ops, "printed", printed.text, printed.length, &error), &error);
    text_release(&printed);
    VEC_RELEASE(&samples);
    cluster_release(&again);
    cluster_release(&c);
}

// Two rows of one shape, in any order, count as their mean, three as the one between.
static void rows_of_one_shape_are_one(void **unused) {
    (void)unused;
    static const char *const TABLES[] = {"4,4,4,f32,3\n4,4,4,f32,1\n", "4,4,4,f32,1\n4,4,4,f32,3\n",
                                         "4,4,4,f32,9\n4,4,4,f32,1\n4,4,4,f32,2\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(TABLES); i++) {
        struct cluster c = load("a100");
        trireme_error error = {0};
        char *csv = mem_printf("m,n,k,dtype,ms\n%s", TABLES[i]);
        assert_ok(fit_import(&c, ops, "gemm.csv", csv, strlen(csv), &error), &error);
        assert_int_equal(c.devices.item[0].points[OP_MATMUL].count, 1);
        assert_true(fabs(c.devices.item[0].points[OP_MATMUL].item[0].seconds - 2e-3) < 1e-9);
        free(csv);
        cluster_release(&c);
    }
}

// With more shapes than become points, those are taken that are spread over all: the largest, the smallest, and one
// near each of the rest.
static void many_shapes_are_thinned_evenly(void **unused) {
    (void)unused;
    struct cluster c = load("a100");
    trireme_error error = {0};
    struct text csv = {0};
    text_add(&csv, "m,n,k,dtype,tflops\n");
    for (int i = 1; i <= 100; i++)
        text_add(&csv, "%d,4096,%d,bf16,200\n", 64 * i, i % 2 ? 1024 : 4096);
    assert_ok(fit_import(&c, ops, "gemm.csv", csv.text, csv.length, &error), &error);
    const struct device *d = &c.devices.item[0];
    assert_int_equal(d->points[OP_MATMUL].count, 64);
    assert_int_equal(d->points[OP_MATMUL_DX].count, 64);
    assert_true(d->points[OP_MATMUL].item[0].m == 64 && d->points[OP_MATMUL].item[63].m == 6400);
    for (int i = 1; i <= 100; i++) {
        double nearest = INFINITY;
        for (size_t k = 0; k < 64; k++) {
            const struct curve_point *p = &d->points[OP_MATMUL].item[k];
            if (p->k == (i % 2 ? 1024 : 4096))
                nearest = MIN(nearest, fabs(log2(p->m / (64 * i))));
        }
        assert_true(nearest < .15);
    }
    text_release(&csv);
    cluster_release(&c);
    // Samples of other ops with equally many bytes have no distance from one another.
    struct fit_samples samples = {0};
    c = load("a100");
    for (int i = 0; i < 70; i++)
        VEC_PUSH(&samples, (struct fit_sample){OP_GELU, DTYPE_F32, i, i < 69 ? 1e6 : 1e7,
                                               (i < 69 ? 1e-3 : 1e-2) + 1e-6 * i, -1, -1, -1, -1});
    fit_device(&c.devices.item[0], ops, &samples, false);
    assert_int_equal(c.devices.item[0].points[OP_GELU].count, 64);
    assert_true(c.devices.item[0].points[OP_GELU].item[63].bytes == 1e7);
    VEC_RELEASE(&samples);
    cluster_release(&c);
}

// The time that a host takes to issue an op cannot be told from products.
static void products_leave_the_host(void **unused) {
    (void)unused;
    static const char CSV[] = "m,n,k,dtype,us\n4096,4096,4096,bf16,600\n256,256,256,bf16,9\n";
    struct cluster c = load("a100");
    struct curve *curve = c.devices.item[0].curve[OP_MATMUL];
    const double least = curve[DTYPE_BF16].least, compute = curve[DTYPE_BF16].compute;
    trireme_error error = {0};
    assert_true(least > 0);
    curve[DTYPE_BF16].launch = 3e-6;
    assert_ok(fit_import(&c, ops, "gemm.csv", CSV, strlen(CSV), &error), &error);
    assert_true(curve[DTYPE_BF16].least == least && curve[DTYPE_BF16].compute != compute);
    assert_true(curve[DTYPE_BF16].launch == 3e-6);
    cluster_release(&c);
}

// Cells may be empty, quoted, or have blanks around.
static void cells_stay_in_their_columns(void **unused) {
    (void)unused;
    static const char *const TABLES[] = {
        "m\tn\tk\tdtype\tnote\tus\tgbps\n4096\t4096\t4096\tbf16\t\t600\t700\n",
        "\tm\tn\tk\tdtype\tus\n\t4096\t 4096\t4096 \tbf16\t600\r\n\t\t\n",
        "# a, b\n\"m\",\"n\",\"k\",\"dtype\",\"note\",\"us\"\n4096,4096,4096,\"bf16\",\"a, b\",\"600\"\n",
        "m,n,k,dtype,note,us\n4096,\t4096,\t4096,\tbf16,\t,\t600\n",
        "m;n;k;dtype;note;us\r\n4096;4096;4096;bf16;1,5;600\r\n",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(TABLES); i++) {
        struct cluster c = load("a100");
        trireme_error error = {0};
        assert_ok(fit_import(&c, ops, "gemm.csv", TABLES[i], strlen(TABLES[i]), &error), &error);
        assert_int_equal(c.devices.item[0].points[OP_MATMUL].count, 1);
        assert_true(fabs(c.devices.item[0].points[OP_MATMUL].item[0].seconds - 600e-6) < 1e-12);
        cluster_release(&c);
    }
}

#define RANKS "# size count type redop root time algbw busbw\n# Rank 0 a\n# Rank 1 b\n"

static void wrong_tables_are_refused(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *why;
    } BAD[] = {
        {"", "no matrix products"},
        {"m,n,k,dtype,seconds\n", "no matrix products"},
        {"m,n,dtype,seconds\n1,2,bf16,1\n", "x.csv:1: neither"},
        {"m,n,k,dtype,hours\n1,2,3,bf16,1\n", "no column seconds"},
        {"m,n,k,dtype,seconds\n1,2,3,bf16\n", "x.csv:2: fewer columns"},
        {"m,n,k,dtype,seconds\n1,2,3,bf16,1,1\n", "x.csv:2: more columns"},
        {"m,n,k,dtype,s,ms\n1,2,3,bf16,1,1000\n", "x.csv:1: two columns s and ms"},
        {"m,n,k,dtype,ms,tflops\n4096,4096,4096,bf16,1,99\n", "x.csv:2: 1.374e+11 operations in 0.001 s are not"},
        {"tflops,m,n,k,dtype,ms\nx,4096,4096,4096,bf16,1\n", "\"x\" as rate"},
        {"m,n,k,dtype,seconds\n\n0,2,3,bf16,1\n", "x.csv:3: m"},
        {"m,n,k,dtype,seconds\n1,2,3,int8,1\n", "x.csv:2: dtype"},
        {"m,n,k,dtype,seconds\n1,2,3,bf16,-1\n", "above 0"},
        {"m,n,k,dtype,tflops\n1024,1024,1024,bf16,400\n", "more than the peak"},
        {"# size busbw\n", "nccl-tests"},
        {RANKS "4096 1024 float sum -1 -50 .08 .08 0\n", "x.csv:4: 4096 bytes in -50 us"},
        {RANKS "-1 1024 float sum -1 50 .08 .08 0\n", "x.csv:4: -1 bytes"},
        {RANKS "1048576 262144 float sum -1 5e9 20.9 20.9 0\n", "x.csv:4: 1048576 bytes in 5e9 us are not 20.9 GB/s"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(BAD); i++) {
        struct cluster c = load("a100");
        trireme_error error = {0};
        assert_int_equal(fit_import(&c, ops, "x.csv", BAD[i].text, strlen(BAD[i].text), &error), TRIREME_ERROR_USAGE);
        if (!strstr(error.message, BAD[i].why))
            fail_msg("%s: \"%s\"", BAD[i].text, error.message);
        cluster_release(&c);
    }
}

static void collectives_come_from_nccl_tests(void **unused) {
    (void)unused;
    // All-reduce of 8 in a node: 60 us and 200 GB/s of bus bandwidth.
    struct text out = {0};
    text_add(&out, "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 4(factor)\n# Using devices\n");
    for (int r = 0; r < 8; r++)
        text_add(&out, "#  Rank  %d Group  0 Pid 7 on host device  %d [0x07] NVIDIA A100-SXM4-80GB\n", r, r);
    text_add(&out, "#       size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n");
    for (double bytes = 1 << 20; bytes <= 1 << 30; bytes *= 4) {
        double us = 60 + 1.75 * bytes / 200e3, algorithm = 1e-3 * bytes / us;
        text_add(&out, "  %.0f  %.0f  float  sum  -1  %.2f  %.2f  %.2f  0  %.2f  1  1  0\n", bytes, bytes / 4, us,
                 algorithm, 1.75 * algorithm, us);
    }
    text_add(&out, "  1048576  262144  float  sum  -1  69.18  15.16  26.52  0\n"); // once more
    struct cluster c = load("a100");
    trireme_error error = {0};
    // Measured before: of as many ranks, which goes and does not count, and of others, which stays.
    VEC_PUSH(&c.level[0].points, (struct link_point){OP_ALL_REDUCE, 4, 4096, 44e-6});
    VEC_PUSH(&c.level[0].points, (struct link_point){OP_ALL_REDUCE, 8, 4096, 1e-3});
    assert_ok(fit_import(&c, ops, "nccl.txt", out.text, out.length, &error), &error);
    assert_int_equal(c.level[0].points.count, 1 + 6);
    assert_true(c.level[0].points.item[0].ranks == 4 && c.level[0].points.item[0].seconds == 44e-6);
    assert_true(c.level[0].points.item[1].ranks == 8 && c.level[0].points.item[1].bytes == 1 << 20);
    assert_true(fabs(c.level[0].bandwidth / 200e9 - 1) < 0.03);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_DP] = 8;
    const struct link_use use = {AXES(AXIS_DP), 0, false};
    struct topology topology;
    assert_ok(topology_create(&topology, &c, &mesh, &use, 1, &error), &error);
    double seconds = cost_communicate(&c, &topology.route[0][0], OP_ALL_REDUCE, 1 << 24);
    assert_true(fabs(seconds / (60e-6 + 1.75 * (1 << 24) / 200e9) - 1) < 1e-3);
    // A size that occurs twice becomes one point, so that the written file reads back.
    struct text printed = {0};
    struct cluster again;
    cluster_print(&c, ops, &printed);
    assert_ok(cluster_parse(&again, ops, "printed", printed.text, printed.length, &error), &error);
    cluster_release(&again);
    text_release(&printed);
    // Others follow the links that were fitted.
    double gather = cost_communicate(&c, &topology.route[0][0], OP_ALL_GATHER, 1 << 28);
    assert_true(fabs(gather / (30e-6 + 0.875 * (1 << 28) / 200e9) - 1) < 0.05);
    topology_release(&topology);
    cluster_release(&c);
    text_release(&out);
}

// Ops with a root are recognised. A reduce costs as much as an all_reduce and has no points of its own; a broadcast
// without points costs as much as an all_gather.
static void rooted_collectives_are_told_apart(void **unused) {
    (void)unused;
    static const struct {
        const char *redop, *root;
        enum op op;
    } KINDS[] = {{"sum", "0", OP_REDUCE}, {"none", "0", OP_BROADCAST}, {"none", "-1", OP_SEND}};
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++) {
        struct text out = {0};
        struct cluster c = load("a100");
        trireme_error error = {0};
        struct topology topology;
        const struct route *route = pair_topology(&topology, &c);
        assert_true(cost_communicate(&c, route, OP_REDUCE, 1 << 20) ==
                    cost_communicate(&c, route, OP_ALL_REDUCE, 1 << 20));
        assert_true(cost_communicate(&c, route, OP_BROADCAST, 1 << 20) ==
                    cost_communicate(&c, route, OP_ALL_GATHER, 1 << 20));
        text_add(&out,
                 "#  Rank  0 a\n#  Rank  1 b\n#  size count type redop root time algbw busbw\n"
                 "1048576 262144 float %s %s 77 13.6 13.6 0\n",
                 KINDS[i].redop, KINDS[i].root);
        trireme_status status = fit_import(&c, ops, "nccl.txt", out.text, out.length, &error);
        if (KINDS[i].op == OP_REDUCE) {
            assert_int_equal(status, TRIREME_ERROR_USAGE);
            assert_non_null(strstr(error.message, "as of no collective that is used here"));
            assert_int_equal(c.level[0].points.count, 0);
            text_release(&out);
            topology_release(&topology);
            cluster_release(&c);
            continue;
        }
        assert_ok(status, &error);
        assert_int_equal(c.level[0].points.count, 1);
        assert_int_equal(c.level[0].points.item[0].op, KINDS[i].op);
        assert_true(fabs(cost_communicate(&c, route, KINDS[i].op, 1 << 20) - 77e-6) < 1e-12);
        assert_true(cost_communicate(&c, route, OP_REDUCE, 1 << 20) ==
                    cost_communicate(&c, route, OP_ALL_REDUCE, 1 << 20));
        // It is written, and read back.
        struct text yaml = {0};
        struct cluster again;
        cluster_print(&c, ops, &yaml);
        assert_ok(cluster_parse(&again, ops, "again", yaml.text, yaml.length, &error), &error);
        assert_int_equal(again.level[0].points.item[0].op, KINDS[i].op);
        cluster_release(&again);
        text_release(&yaml);
        text_release(&out);
        topology_release(&topology);
        cluster_release(&c);
    }
}

// All programs print the same columns: the name in the first lines counts more than a guess from the columns.
static void collectives_go_by_their_names(void **unused) {
    (void)unused;
    static const struct {
        const char *name, *redop;
        double ratio;
        enum op op;
        const char *why;
    } RUNS[] = {
        {"sendrecv_perf", "sum", 1, OP_SEND, NULL},
        {"all_reduce_perf_mpi", "sum", 1, OP_ALL_REDUCE, NULL},
        {"all_gather_perf", "none", .5, OP_ALL_GATHER, NULL},
        {"alltoall_perf", "none", .5, OP_COUNT, "nccl.txt:2: alltoall_perf is not used here, but all_reduce_perf"},
        {"reduce_perf", "sum", 1, OP_COUNT, "nccl.txt:2: reduce_perf is not used here, but all_reduce_perf"},
        {"all_gather_perf", "none", 1, OP_COUNT, "busbw is 1 of algbw among 2 ranks"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(RUNS); i++) {
        struct cluster c = load("a100");
        trireme_error error = {0};
        char *out = mem_printf("# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
                               "# Collective test starting: %s\n#  Rank  0 a\n#  Rank  1 b\n"
                               "#  size count type redop root time algbw busbw\n"
                               "1048576 262144 float %s -1 77 13.6 %.2f 0\n",
                               RUNS[i].name, RUNS[i].redop, 13.6 * RUNS[i].ratio);
        trireme_status status = fit_import(&c, ops, "nccl.txt", out, strlen(out), &error);
        if (RUNS[i].why) {
            assert_int_equal(status, TRIREME_ERROR_USAGE);
            assert_non_null(strstr(error.message, RUNS[i].why));
        } else {
            assert_ok(status, &error);
            assert_int_equal(c.level[0].points.count, 1);
            assert_int_equal(c.level[0].points.item[0].op, RUNS[i].op);
        }
        free(out);
        cluster_release(&c);
    }
}

// Measured points of an all_gather stand for a broadcast, of which there are none, and those of an all_reduce for a
// reduce.
static void measured_siblings_stand_in(void **unused) {
    (void)unused;
    struct cluster c = load("a100");
    struct topology topology;
    VEC_PUSH(&c.level[0].points, (struct link_point){OP_ALL_GATHER, 2, 1 << 20, 77e-6});
    VEC_PUSH(&c.level[0].points, (struct link_point){OP_ALL_REDUCE, 2, 1 << 20, 99e-6});
    const struct route *route = pair_topology(&topology, &c);
    assert_true(fabs(cost_communicate(&c, route, OP_BROADCAST, 1 << 20) - 77e-6) < 1e-12);
    assert_true(fabs(cost_communicate(&c, route, OP_REDUCE, 1 << 20) - 99e-6) < 1e-12);
    topology_release(&topology);
    cluster_release(&c);
}

static void curves_are_found_again(void **unused) {
    (void)unused;
    struct cluster c = load("a100");
    struct device *d = &c.devices.item[0];
    struct fit_samples samples = {0};
    for (double bytes = 1e5; bytes < 1e9; bytes *= 3)
        VEC_PUSH(&samples, (struct fit_sample){OP_GELU, DTYPE_F32, 0, bytes, 3e-6 + bytes / (0.6 * d->bandwidth), -1,
                                               -1, -1, -1});
    fit_device(d, ops, &samples, true);
    const struct curve *gelu = &d->curve[OP_GELU][DTYPE_F32];
    assert_true(fabs(gelu->memory / 0.6 - 1) < 0.02);
    assert_true(fabs(gelu->launch / 3e-6 - 1) < 0.05);
    assert_int_equal(d->points[OP_GELU].count, samples.count);
    for (size_t i = 0; i < samples.count; i++) // what an op takes at a point is the launch and the point
        assert_true(fabs(gelu->launch + d->points[OP_GELU].item[i].seconds - samples.item[i].seconds) < 1e-12);
    assert_true(d->curve[OP_ADAMW][DTYPE_BF16].memory > 0.4 && d->curve[OP_ADAMW][DTYPE_BF16].memory < 0.7);
    assert_true(d->curve[OP_GELU_DX][DTYPE_F32].launch == gelu->launch); // not measured: as what it is like
    VEC_RELEASE(&samples);
    cluster_release(&c);
}

static void waits_are_told_apart(void **unused) {
    (void)unused;
    struct device d = {0};
    // 300 us each time and a hundredth of what is computed; steps of a model with nothing to compute count nothing.
    const struct fit_wait both[] = {{100, 1, .04}, {400, 2, .14}, {50, 3, .045}, {7, 0, 1}};
    fit_waits(&d, both, ARRAY_LENGTH(both));
    assert_true(fabs(d.meeting - 300e-6) < 1e-12 && fabs(d.jitter - .01) < 1e-12);
    // Off the same way whatever was computed: a short step weighs as much as a long one.
    const struct fit_wait off[] = {{100, 1, .04 + .001}, {200, 2, .08 - .002}, {200, 1, .07}, {400, 2, .14}};
    fit_waits(&d, off, ARRAY_LENGTH(off));
    assert_true(fabs(d.meeting - 300e-6) < 1e-12 && fabs(d.jitter - .01) < 1e-12);
    // The more often ranks meet, the less they wait: no time each, and what they wait on average.
    const struct fit_wait shares[] = {{100, 1, .02}, {200, 1, .01}};
    fit_waits(&d, shares, ARRAY_LENGTH(shares));
    assert_true(d.meeting == 0 && fabs(d.jitter - .015) < 1e-12);
    // Waits grow more than in proportion to meetings: only a time for each.
    const struct fit_wait times[] = {{100, 1, .01}, {200, 1, .03}};
    fit_waits(&d, times, ARRAY_LENGTH(times));
    assert_true(d.jitter == 0 && fabs(d.meeting - 140e-6) < 1e-12);
    // With one model the two cannot be told apart.
    fit_waits(&d, both, 1);
    assert_true(d.meeting == 0 && fabs(d.jitter - .04) < 1e-12);
    fit_waits(&d, both, 0);
    assert_true(d.meeting == 0 && d.jitter == 0);
}

int main(void) {
    ops = op_table_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_clusters_read_back),
        cmocka_unit_test(products_come_from_a_table),
        cmocka_unit_test(rows_of_one_shape_are_one),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(collectives_come_from_nccl_tests),
        cmocka_unit_test(rooted_collectives_are_told_apart),
        cmocka_unit_test(collectives_go_by_their_names),
        cmocka_unit_test(measured_siblings_stand_in),
        cmocka_unit_test(curves_are_found_again),
        cmocka_unit_test(waits_are_told_apart),
        cmocka_unit_test(printed_names_read_back),
        cmocka_unit_test(products_leave_the_host),
        cmocka_unit_test(cells_stay_in_their_columns),
        cmocka_unit_test(letters_of_others_are_left_out),
        cmocka_unit_test(many_shapes_are_thinned_evenly),
        cmocka_unit_test(curves_without_a_peak_read_back),
        cmocka_unit_test(times_count_beside_rates),
        cmocka_unit_test(the_last_table_counts),
        cmocka_unit_test(products_are_not_faster_than_the_peak),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(ops);
    return failed;
}
