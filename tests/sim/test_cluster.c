// Cluster files: what is read from them, and what is refused, with line and key.
#include "support/checkpoint.h"

#include "sim/cost.h"
#include "sim/shipped.h"

#include <math.h>

static struct op_table *ops;

static const char GOOD[] =
    "about: two of a kind\n"                                                                        // 1
    "devices:\n"                                                                                    // 2
    "  small:\n"                                                                                    // 3
    "    peak: {f32: 1 TFLOP/s, bf16: 2 TFLOP/s}\n"                                                 // 4
    "    memory: 16 GiB\n"                                                                          // 5
    "    runtime_memory: 500 MB\n"                                                                  // 6
    "    bandwidth: 100 GB/s\n"                                                                     // 7
    "    launch: 5 us\n"                                                                            // 8
    "    efficiency:\n"                                                                             // 9
    "      other: {memory: 0.5, least: 3 us}\n"                                                     // 10
    "      matmul: {compute: 0.8, half: {m: 10}, bf16: {compute: 0.7},\n"                           // 11
    "               measured: [[64, 64, 64, f32, 100 GFLOP/s]]}\n"                                  // 12
    "nodes:\n"                                                                                      // 13
    "  - {device: small, nodes: 3, devices: 4}\n"                                                   // 14
    "links:\n"                                                                                      // 15
    "  - {name: bus, spans: node, latency: 1 us, bandwidth: 10 GB/s, start: 2 us, message: 7 us}\n" // 16
    "  - name: net\n"                                                                               // 17
    "    spans: all\n"                                                                              // 18
    "    latency: 10 us\n"                                                                          // 19
    "    bandwidth: 8 Gbit/s\n"                                                                     // 20
    "    adapters: 1\n"                                                                             // 21
    "stragglers: [{device: 5, slower: 1.5}]\n";                                                     // 22

static trireme_status parse(struct cluster *c, const char *text, trireme_error *error) {
    return cluster_parse(c, ops, "my.yaml", text, strlen(text), error);
}

static void figures_have_units(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    assert_ok(parse(&c, GOOD, &error), &error);
    const struct device *d = &c.devices.item[0];
    assert_true(d->peak[DTYPE_BF16] == 2e12);
    assert_true(d->memory == (int64_t)16 << 30);
    assert_true(d->runtime_memory == 500000000);
    assert_true(fabs(d->launch - 5e-6) < 1e-18);
    assert_true(c.level[1].bandwidth == 1e9);
    assert_int_equal(c.level[1].adapters, 1);
    assert_true(fabs(c.level[0].start - 2e-6) < 1e-18 && fabs(c.level[0].message - 7e-6) < 1e-18);
    assert_true(c.level[1].message == c.level[1].start);
    assert_true(fabs(d->curve[OP_MATMUL][DTYPE_BF16].least - 3e-6) < 1e-18);
    assert_int_equal(c.total_devices, 12);
    assert_int_equal(cluster_node(&c, 7), 1);
    assert_true(d->curve[OP_MATMUL][DTYPE_F32].compute == 0.8);
    assert_true(d->curve[OP_MATMUL][DTYPE_BF16].compute == 0.7);
    // Backward rows follow their forward row, all others `other`.
    assert_true(d->curve[OP_MATMUL_DW][DTYPE_F32].compute == 0.8);
    assert_true(d->points[OP_MATMUL_DX].count == 1);
    assert_true(d->curve[OP_ADAMW][DTYPE_F32].memory == 0.5);
    cluster_release(&c);
}

// GOOD with one line in place of another.
static char *with_line(int number, const char *line) {
    struct text out = {0};
    const char *at = GOOD;
    for (int i = 1; *at; i++) {
        size_t length = strcspn(at, "\n") + 1;
        if (i == number)
            text_add(&out, "%s\n", line);
        else
            text_add_bytes(&out, at, length);
        at += length;
    }
    return out.text;
}

static void all_units_are_what_they_say(void **unused) {
    (void)unused;
    static const struct {
        int line;
        const char *before, *figure, *after;
        double value;
    } FIGURES[] = {
#define BYTES 10, "      other: {memory: 0.5, half_bytes: "
        {BYTES, "3000 B", "}", 3000},
        {BYTES, "3 kB", "}", 3e3},
        {BYTES, "3 MB", "}", 3e6},
        {BYTES, "3 GB", "}", 3e9},
        {BYTES, "3 TB", "}", 3e12},
        {BYTES, "3 KiB", "}", 3072},
        {BYTES, "3 MiB", "}", 3145728},
        {BYTES, "3 GiB", "}", 3221225472},
        {BYTES, "3 TiB", "}", 3298534883328},
#undef BYTES
        {7, "    bandwidth: ", "8000 B/s", "", 8e3},
        {7, "    bandwidth: ", "8 kB/s", "", 8e3},
        {7, "    bandwidth: ", "8 MB/s", "", 8e6},
        {7, "    bandwidth: ", "8 GB/s", "", 8e9},
        {7, "    bandwidth: ", "8 TB/s", "", 8e12},
        {7, "    bandwidth: ", "8 kbit/s", "", 1e3},
        {7, "    bandwidth: ", "8 Mbit/s", "", 1e6},
        {7, "    bandwidth: ", "8 Gbit/s", "", 1e9},
        {7, "    bandwidth: ", "8 Tbit/s", "", 1e12},
        {8, "    launch: ", "0.25 s", "", .25},
        {8, "    launch: ", "250 ms", "", .25},
        {8, "    launch: ", "250 us", "", 25e-5},
        {8, "    launch: ", "250 ns", "", 25e-8},
        {4, "    peak: {f32: 1 TFLOP/s, bf16: ", "3e9 FLOP/s", "}", 3e9},
        {4, "    peak: {f32: 1 TFLOP/s, bf16: ", "3 MFLOP/s", "}", 3e6},
        {4, "    peak: {f32: 1 TFLOP/s, bf16: ", "3 GFLOP/s", "}", 3e9},
        {4, "    peak: {f32: 1 TFLOP/s, bf16: ", "3 TFLOP/s", "}", 3e12},
        {4, "    peak: {f32: 1 TFLOP/s, bf16: ", "3 PFLOP/s", "}", 3e15},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(FIGURES); i++) {
        struct cluster c;
        trireme_error error = {0};
        char *line = mem_printf("%s%s%s", FIGURES[i].before, FIGURES[i].figure, FIGURES[i].after);
        char *text = with_line(FIGURES[i].line, line);
        assert_ok(parse(&c, text, &error), &error);
        const struct device *d = &c.devices.item[0];
        const double of_line[] = {[4] = d->peak[DTYPE_BF16],
                                  [7] = d->bandwidth,
                                  [8] = d->launch,
                                  [10] = d->curve[OP_ADAMW][DTYPE_F32].half_bytes};
        if (fabs(of_line[FIGURES[i].line] / FIGURES[i].value - 1) > 1e-12)
            fail_msg("%s is taken for %.17g", FIGURES[i].figure, of_line[FIGURES[i].line]);
        cluster_release(&c);
        free(text);
        free(line);
    }
}

static void refusals_name_line_and_key(void **unused) {
    (void)unused;
    static const struct {
        int line;
        const char *text, *place, *why;
    } BAD[] = {
        {3, "  small one:", "my.yaml:3: devices.small one", "a name has 1 to"},
        {5, "    memory: 16", "my.yaml:5: devices.small.memory", "without a unit"},
        {5, "    memory: -16 GB", "my.yaml:5: devices.small.memory", "given -16 GB"},
        {5, "    memory: 16 GB/s", "my.yaml:5: devices.small.memory", "expected bytes"},
        {5, "    memory: 1e9 TB", "my.yaml:5: devices.small.memory", "expected from"},
        {5, "    memory: lots", "my.yaml:5: devices.small.memory", "expected bytes"},
        {5, "    memory: 0x10 GB", "my.yaml:5: devices.small.memory", "expected bytes"},
        {5, "    # memory", "my.yaml:3: devices.small", "memory is missing"},
        {7, "    bandwith: 100 GB/s", "my.yaml:7: devices.small.bandwith", "the nearest is bandwidth"},
        {7, "    speed: 100 GB/s", "my.yaml:7: devices.small.speed", "there is no such key; there are peak memory "},
        {7, "    bandwidth: 0 GB/s", "my.yaml:7: devices.small.bandwidth", "given 0 GB/s"},
        {7, "    bandwidth: [1, 2]", "my.yaml:7: devices.small.bandwidth", "expected a word or number"},
        {8, "    launch: 5 s/us", "my.yaml:8: devices.small.launch", "expected a time"},
        {8, "    meeting: 2", "my.yaml:8: devices.small.meeting", "without a unit"},
        {8, "    jitter: 1.5", "my.yaml:8: devices.small.jitter", "expected from 0 to 1"},
        {8, "    communication: 1.5", "my.yaml:8: devices.small.communication", "expected from 0 to 1"},
        {8, "    communication: [cores]", "my.yaml:8: devices.small.communication", "expected a word or number"},
        {8, "    communication: core", "my.yaml:8: devices.small.communication", "expected own, cores, or a number"},
        {4, "    peak: {f16: 1 TFLOP/s}", "my.yaml:4: devices.small.peak.f16", "there is no such key"},
        {4, "    peak: {f32: 1000 PFLOP/s}", "my.yaml:4: devices.small.peak.f32", "expected from"},
        {8, "    launch: 5 s", "my.yaml:8: devices.small.launch", "expected from 0 ns to 1 s"},
        {4, "    peak: {f32: 1 TFLOP}", "my.yaml:4: devices.small.peak.f32", "expected operations"},
        {8,
         "    cores: 2\n    shared: {2: half}\n    efficiency: {other: {memory: 1}}\n  half:\n"
         "    peak: {f32: 1 TFLOP/s}\n    memory: 8 GB\n    bandwidth: 50 GB/s",
         "my.yaml:9: devices.small.shared.2", "half has no peak of bf16, which small has"},
        {9, "    shared:", "my.yaml:3: devices.small", "as in {other: {memory: 0.8}, matmul: "},
        {10, "      other: {compute: 0.5}", "my.yaml:10: devices.small.efficiency.other", "memory is missing"},
        {10, "      other: {memory: 0.5}\n      matmull: {compute: 1}", "my.yaml:11: devices.small.efficiency.matmull",
         "the nearest is matmul"},
        {10, "      other: {memory: 0.5, compute: 1.5}", "my.yaml:10: devices.small.efficiency.other.compute",
         "expected from"},
        {10, "      other: {memory: 0.5, fused: 4}", "my.yaml:10: devices.small.efficiency.other.fused",
         "expected keys"},
        {10, "      other: {memory: 0.5, fused: {multiple_of: 4}}", "my.yaml:10: devices.small.efficiency.other.fused",
         "else is missing"},
        {10, "      other: {memory: 0.5, fused: {multiple_of: 0, else: 5}}", "efficiency.other.fused.multiple_of",
         "expected from 1"},
        {10, "      other: {memory: 0.5, fused: {multiple: 4, else: 5}}", "efficiency.other.fused.multiple",
         "the nearest is multiple_of"},
        {10, "      other: {memory: 0.5}\n      attention: {half: {m: 100000}}",
         "my.yaml:11: devices.small.efficiency.attention.half.m",
         "expected a letter of the dims of attention: D, T, b, g, h"},
        {10, "      other: {memory: 0.5}\n      rmsnorm: {bf16: {half: {k: 100000}}}",
         "my.yaml:11: devices.small.efficiency.rmsnorm.bf16.half.k", "of rmsnorm: C, m"},
        {10, "      other: {memory: 0.5}\n      embed: {half: {1: 100}}", "efficiency.embed.half.1",
         "of embed: C, m, v"},
        {10, "      other: {memory: 0.5, half: {s: 100}}", "my.yaml:10: devices.small.efficiency.other.half.s",
         "of other ops: "},
        {10, "      other: {memory: 0.5}\n      rmsnorm: {fused: {multiple_of: 2, else: 50}}",
         "my.yaml:11: devices.small.efficiency.rmsnorm.fused", "rmsnorm has neither dim b nor dim h"},
        {10, "      other: {memory: 0.5, compute: 1e-300}", "my.yaml:10: devices.small.efficiency.other.compute",
         "given 1e-300, expected 0, or from 1e-06 to 1"},
        {10, "      other: {memory: 0.5}\n      adamw: {measured: [[1 MB, f32, 1 us], [64 TB, f32, 1 us]]}",
         "my.yaml:11: devices.small.efficiency.adamw.measured[1][2]", "given 1 us for 64 TB, 6.4e+07 TB/s"},
        {12, "               measured: [[64, 64.5, 64, f32, 100 GFLOP/s]]}", "efficiency.matmul.measured[0][1]",
         "given 64.5, expected a whole number"},
        {12, "               measured: [[64, 0, 64, f32, 100 GFLOP/s]]}", "efficiency.matmul.measured[0][1]",
         "given 0, expected from 1 to 1000000000"},
        {12, "               measured: [[1e6, 1e6, 1e6, f32, 1 GFLOP/s]]}", "efficiency.matmul.measured[0][4]",
         "given 1 GFLOP/s for [1000000, 1000000, 1000000], 2e+09 s, expected up to 100000 s"},
        {12, "               measured: [[64, 64, 64, f32, 2 TFLOP/s]]}", "efficiency.matmul.measured[0][4]",
         "expected from"},
        {12, "               measured: [[64, 64, f32, 1 GFLOP/s]]}", "efficiency.matmul.measured[0]",
         "expected [m, n, k"},
        {12,
         "               measured: [[64, 64, 64, f32, 100 GFLOP/s], [64, 64, 64, bf16, 100 GFLOP/s],\n"
         "                          [64, 32, 64, f32, 100 GFLOP/s], [64, 64, 64, f32, 90 GFLOP/s]]}",
         "my.yaml:13: devices.small.efficiency.matmul.measured[3]", "the product [64, 64, 64, f32] is there twice"},
        {14, "  - {device: big, nodes: 3, devices: 4}", "my.yaml:14: nodes[0].device", "no device is called \"big\""},
        {14, "  - {device: small, nodes: 0, devices: 4}", "my.yaml:14: nodes[0].nodes", "expected from 1 to 1048576"},
        {14, "  - {device: small, nodes: 1.5, devices: 4}", "my.yaml:14: nodes[0].nodes", "whole number"},
        {14, "  - {device: small, nodes: 1000000, devices: 4000}", "my.yaml:14: nodes[0]", "devices in all"},
        {16, "  - {name: bus, spans: rack, latency: 1 us, bandwidth: 10 GB/s}", "my.yaml:16: links[0].spans",
         "\"rack\""},
        {16,
         "  - {name: two, spans: 2 nodes, latency: 1 us, bandwidth: 10 GB/s}\n"
         "  - {name: three, spans: 3 nodes, latency: 1 us, bandwidth: 10 GB/s}",
         "my.yaml:17: links[1].spans", "no whole number of two"},
        {16, "  - {name: three, spans: 3 nodes, latency: 1 us, bandwidth: 10 GB/s}", "my.yaml:16: links[0].spans",
         "given \"3 nodes\", but there are 3: what joins them all spans all"},
        {17, "  - name: bus", "my.yaml:17: links[1].name", "two links are called bus"},
        {18, "    spans: node", "my.yaml:18: links[1].spans", "no more than bus"},
        {20, "    bandwidth: 8", "my.yaml:20: links[1].bandwidth", "without a unit"},
        {21, "    algorithm: star", "my.yaml:21: links[1].algorithm", "given \"star\", expected ring, tree or direct"},
        {21, "    wiring: star", "my.yaml:21: links[1].wiring", "given \"star\", expected switch or direct"},
        {21, "    wiring: direct\n    duplex: both", "my.yaml:22: links[1].duplex", "\"both\", expected full or half"},
        {21, "    duplex: half", "my.yaml:21: links[1].duplex", "says nothing without wiring: switch or direct"},
        {22, "collectives: star", "my.yaml:22: collectives", "given \"star\", expected in_turn, pipelined or ring"},
        {21, "    adaptors: 1", "my.yaml:21: links[1].adaptors", "the nearest is adapters"},
        {21, "    measured: [[all_reduce, 8, 16 MiB, 1 us], [all_reduce, 8, 16 GiB, 1 ns]]",
         "my.yaml:21: links[1].measured[1][3]", "given 1 ns for 16 GiB, 1.718e+07 TB/s, expected up to 1000 TB/s"},
        {21, "    measured: [[all_reduce, 12, 16 MiB, 1 ms],\n               [all_reduce, 999, 16 MiB, 1 ms]]",
         "my.yaml:22: links[1].measured[1][1]", "given 999 ranks, but net joins 12 at most"},
        {16,
         "  - {name: bus, spans: node, latency: 1 us, bandwidth: 10 GB/s, measured: [[all_gather, 5, 1 MiB, 1 ms]]}",
         "my.yaml:16: links[0].measured[0][1]", "given 5 ranks, but bus joins 4 at most"},
        {16, "  - {name: two, spans: 2 nodes, latency: 1 us, bandwidth: 10 GB/s, measured: [[send, 9, 1 MiB, 1 ms]]}",
         "my.yaml:16: links[0].measured[0][1]", "given 9 ranks, but two joins 8 at most"},
        {21, "    measured: [[reduce, 2, 1 MiB, 1 ms]]", "my.yaml:21: links[1].measured[0][0]",
         "a reduce is made as an all_reduce"},
        {21, "    measured: [[receive, 2, 1 MiB, 1 ms]]", "my.yaml:21: links[1].measured[0][0]", "given \"receive\""},
        {22, "stragglers: [{device: 12, slower: 1.5}]", "my.yaml:22: stragglers[0].device", "expected from 0 to 11"},
        {22, "stragglers: [{device: 1, slower: 2}, {device: 1, slower: 3}]", "my.yaml:22: stragglers[1]",
         "device 1 is there twice"},
        {22, "stragglers: [{device: 1, slower: 0.3}]", "my.yaml:22: stragglers[0].slower", "expected from 1"},
        {22, "about: again", "my.yaml:22", "given twice (before: line 1)"},
        {22, "---", "my.yaml:22", "a second document begins; this file is one"},
        {22, "x: *a", "my.yaml:22", "aliases are not accepted"},
        {22, "speed: 1", "my.yaml:22: speed", "there is no such key"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(BAD); i++) {
        struct cluster c;
        trireme_error error = {0};
        char *text = with_line(BAD[i].line, BAD[i].text);
        assert_int_equal(parse(&c, text, &error), TRIREME_ERROR_USAGE);
        if (!strstr(error.message, BAD[i].place) || !strstr(error.message, BAD[i].why) || strchr(error.message, '\n'))
            fail_msg("%s: \"%s\"", BAD[i].text, error.message);
        free(text);
    }
}

static bool has_letters(const struct op_operand *operand, const char *letters, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!memchr(operand->dim, letters[i], OP_MAX_DIMS))
            return false;
    return true;
}

// Whether operations are more than the elements of any operand: a term of letters that no operand has all of.
static bool is_product(const struct op_info *info) {
    for (const char *s = info->flops; *s;) {
        s += strspn(s, "0123456789+");
        const size_t letters = strcspn(s, "0123456789+");
        bool alone = letters >= 3;
        for (int k = 0; k < info->inputs + info->outputs; k++)
            alone &= !has_letters(op_operand_at(info, k), s, letters);
        if (alone)
            return true;
        s += letters;
    }
    return false;
}

static void one_rank_needs_no_links(void **unused) {
    (void)unused;
    static const char ONE[] = "devices:\n"
                              "  d: {peak: {f32: 1 TFLOP/s}, memory: 1 GB, bandwidth: 1 GB/s, cores: %d,\n"
                              "      efficiency: {other: {memory: 1}}}\n"
                              "nodes: [{device: d, nodes: 1, devices: %d}]\n";
    for (int cores = 1; cores <= 2; cores++)
        for (int devices = 1; devices <= 2; devices++) {
            char *text = mem_printf(ONE, cores, devices);
            struct cluster c, again;
            trireme_error error = {0};
            struct text printed = {0};
            if (cores * devices > 1) {
                assert_refused(parse(&c, text, &error), TRIREME_ERROR_USAGE, &error, "my.yaml:1: links is missing");
            } else {
                assert_ok(parse(&c, text, &error), &error);
                cluster_print(&c, ops, &printed);
                assert_ok(parse(&again, printed.text, &error), &error);
                assert_int_equal(again.levels, 0);
                cluster_release(&again);
                cluster_release(&c);
            }
            text_release(&printed);
            free(text);
        }
}

// Products, which are bound by their operations, must have a rate for them in the cluster.
static void check_products(const struct cluster *c) {
    int products = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        products += is_product(&ops->op[op]);
        for (size_t i = 0; i < c->devices.count && is_product(&ops->op[op]); i++)
            for (int t = 0; t < DTYPE_COUNT; t++)
                if (c->devices.item[i].peak[t] > 0 && c->devices.item[i].curve[op][t].compute <= 0)
                    fail_msg("%s, %s: operations of %s cost nothing", c->name, dtype_name((enum dtype)t),
                             ops->op[op].name);
    }
    assert_true(products >= 6);
}

static void shipped_clusters_are_good(void **unused) {
    (void)unused;
    int count = 0;
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++, count++) {
        struct cluster c;
        trireme_error error = {0};
        assert_ok(cluster_load(&c, ops, s->name, &error), &error);
        assert_non_null(c.about);
        check_products(&c);
        cluster_release(&c);
    }
    assert_true(count >= 2);
    struct cluster c;
    trireme_error error = {0};
    assert_int_equal(cluster_load(&c, ops, "h1000", &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, "h100"));
}

// What joins the only node, or the cores of the only device, joins all.
static void the_only_node_is_all(void **unused) {
    (void)unused;
    static const char ONE[] = "devices:\n"
                              "  d: {peak: {f32: 1 TFLOP/s}, memory: 1 GB, bandwidth: 1 GB/s, cores: 2,\n"
                              "      efficiency: {other: {memory: 1}}}\n"
                              "nodes: [{device: d, nodes: %d, devices: %d}]\n"
                              "links: [{name: l, spans: %s, latency: 1 us, bandwidth: 1 GB/s}]\n";
    static const struct {
        int nodes, devices;
        const char *spans;
        bool good;
    } CASES[] = {{1, 4, "node", true},    {1, 1, "device", true},  {1, 1, "node", true},
                 {1, 4, "device", false}, {2, 1, "device", false}, {2, 4, "node", false}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        char *text = mem_printf(ONE, CASES[i].nodes, CASES[i].devices, CASES[i].spans);
        struct cluster c;
        trireme_error error = {0};
        if (CASES[i].good) {
            assert_ok(parse(&c, text, &error), &error);
            assert_int_equal(c.level[0].span, SPAN_ALL);
            cluster_release(&c);
        } else {
            assert_refused(parse(&c, text, &error), TRIREME_ERROR_USAGE, &error, "must span all");
        }
        free(text);
    }
}

static void resizing_keeps_nodes_whole(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    assert_ok(parse(&c, GOOD, &error), &error);
    assert_ok(cluster_resize(&c, 6, &error), &error);
    assert_int_equal(c.total_devices, 6);
    assert_int_equal(c.groups.count, 2); // a whole node, and one of two devices
    assert_int_equal(c.groups.item[0].nodes, 1);
    assert_int_equal(c.groups.item[1].nodes * c.groups.item[1].devices, 2);
    assert_int_equal(cluster_node(&c, 5), 1);
    assert_int_equal(c.stragglers.count, 1);
    assert_ok(cluster_resize(&c, 3, &error), &error);
    assert_int_equal(cluster_node(&c, 2), 0);
    assert_int_equal(c.stragglers.count, 0);
    assert_int_equal(cluster_resize(&c, 4, &error), TRIREME_ERROR_USAGE);
    cluster_release(&c);
}

// ---- what lies between ranks

static void adapters_are_shared_by_groups(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    assert_ok(parse(&c, GOOD, &error), &error);
    c.stragglers.count = 0;
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 4;
    mesh.degree[AXIS_DP] = 3;
    const struct link_use uses[] = {{AXES(AXIS_TP), 0, false}, {AXES(AXIS_DP), 0, false}};
    struct topology p;
    // So it is for the factors of one axis.
    struct mesh cut = mesh_single();
    cut.degree[AXIS_FSDP] = 12;
    assert_ok(mesh_cut(&cut, AXES_FSDP, 4, &error), &error);
    const struct link_use factors[] = {{mesh_between(&cut, AXES_FSDP, 1, 4), 0, false},
                                       {mesh_between(&cut, AXES_FSDP, 4, 12), 0, false},
                                       {mesh_present(&cut, AXES_FSDP), 0, false}};
    assert_ok(topology_create(&p, &c, &cut, factors, 3, &error), &error);
    for (int rank = 0; rank < 12; rank++) {
        assert_int_equal(p.route[0][rank].parts[0], 4);
        assert_int_equal(p.route[0][rank].parts[1], 1);
        assert_int_equal(p.route[1][rank].parts[0], 1);
        assert_int_equal(p.route[1][rank].parts[1], 3);
        assert_int_equal(p.route[2][rank].ranks, 12);
    }
    topology_release(&p);
    assert_ok(topology_create(&p, &c, &mesh, uses, 2, &error), &error);
    // Four tensor ranks inside a node; four groups of data ranks that leave it by one adapter.
    assert_int_equal(p.route[0][0].parts[0], 4);
    assert_int_equal(p.route[0][0].parts[1], 1);
    assert_int_equal(p.route[1][0].parts[0], 1);
    assert_int_equal(p.route[1][0].parts[1], 3);
    assert_true(p.route[1][0].bandwidth[1] == 1e9 / 4);
    assert_int_equal(route_only_level(&c, &p.route[0][0]), 0);
    assert_int_equal(route_only_level(&c, &p.route[1][0]), 1);
    topology_classify(&p, AXES_STAGE);
    assert_int_equal(p.classes, 1);
    assert_int_equal(topology_members(&p, 0), 12);
    topology_release(&p);
    // A group over all has the adapter to itself: each of its ranks in the node a quarter.
    const struct link_use all[] = {{AXES(AXIS_TP) | AXES(AXIS_DP), 0, false}};
    assert_ok(topology_create(&p, &c, &mesh, all, 1, &error), &error);
    assert_int_equal(p.route[0][0].parts[0], 4);
    assert_int_equal(p.route[0][0].parts[1], 3);
    assert_true(p.route[0][0].bandwidth[1] == 1e9 / 4);
    assert_int_equal(route_only_level(&c, &p.route[0][0]), NONE); // what was measured of one level says nothing of it
    topology_release(&p);
    // Of several, each rank reaches those that are its own part, or one that it shares.
    for (int adapters = 2; adapters <= 8; adapters *= 2) {
        c.level[1].adapters = adapters;
        const struct link_use both[] = {all[0], uses[1]};
        assert_ok(topology_create(&p, &c, &mesh, both, 2, &error), &error);
        for (int use = 0; use < 2; use++)
            assert_true(p.route[use][0].bandwidth[1] == 1e9 * adapters / 4);
        topology_release(&p);
    }
    cluster_release(&c);
}

// Of three ranks each, on nodes of eight: two leave the second node, one the first and one the last.
static void groups_within_a_node_leave_its_adapters_alone(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    char *eights = with_line(14, "  - {device: small, nodes: 3, devices: 8}");
    assert_ok(parse(&c, eights, &error), &error);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 3;
    mesh.degree[AXIS_DP] = 8;
    const struct link_use use = {AXES(AXIS_TP), 0, false};
    struct topology p;
    assert_ok(topology_create(&p, &c, &mesh, &use, 1, &error), &error);
    for (int rank = 0; rank < 24; rank++) {
        const struct route *route = &p.route[0][rank];
        const bool divided = rank / 3 == 2 || rank / 3 == 5;
        assert_int_equal(route->parts[0], divided ? 2 : 3);
        assert_int_equal(route->parts[1], divided ? 2 : 1);
        assert_true(route->bandwidth[1] == (divided ? 1e9 / 2 / 2 : 1e9)); // half an adapter for each of two ranks
    }
    topology_release(&p);
    cluster_release(&c);
    free(eights);
}

// As when estimates measure the tensor ranks whose links are slowest, which come after many others.
static void ranks_may_be_far_behind_the_first(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    char *many = with_line(14, "  - {device: small, nodes: 500000, devices: 2}");
    assert_ok(parse(&c, many, &error), &error);
    c.ranks_before = 999997; // one on the last node but one, two on the last
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 3;
    const struct link_use use = {AXES(AXIS_TP), 0, false};
    struct topology p;
    assert_ok(topology_create(&p, &c, &mesh, &use, 1, &error), &error);
    assert_int_equal(p.route[0][0].parts[0], 2);
    assert_int_equal(p.route[0][0].parts[1], 2);
    assert_true(p.route[0][0].bandwidth[1] == 1e9 / 2); // of a node's one adapter, which two of its ranks share
    topology_release(&p);
    cluster_release(&c);
    free(many);
}

// Three stages on two nodes. The ends of the pipeline lie on both, though the middle one is beside the first.
static void pairs_have_their_own_route(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    assert_ok(parse(&c, GOOD, &error), &error);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 2;
    mesh.degree[AXIS_PP] = 3;
    const struct link_use uses[] = {{AXES(AXIS_PP), 2, false}, {AXES(AXIS_PP), -2, false}};
    struct topology p;
    assert_ok(topology_create(&p, &c, &mesh, uses, 2, &error), &error);
    for (int tensor = 0; tensor < 2; tensor++)
        for (int use = 0; use < 2; use++) {
            const struct route *end = &p.route[use][use ? 4 + tensor : tensor];
            assert_int_equal(end->ranks, 2);
            assert_int_equal(end->parts[0], 1);
            assert_int_equal(end->parts[1], 2);
            assert_true(end->bandwidth[1] == 1e9 / 2); // of one adapter, which the two pairs share
        }
    topology_release(&p);
    cluster_release(&c);
}

static void stragglers_make_classes(void **unused) {
    (void)unused;
    struct cluster c;
    trireme_error error = {0};
    assert_ok(parse(&c, GOOD, &error), &error);
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = 4;
    mesh.degree[AXIS_DP] = 3;
    struct topology p;
    assert_ok(topology_create(&p, &c, &mesh, NULL, 0, &error), &error);
    topology_classify(&p, AXES_STAGE);
    assert_int_equal(p.classes, 4);
    int members = 0;
    for (int who = 0; who < p.classes; who++) {
        members += topology_members(&p, who);
        assert_int_equal(topology_class(&p, topology_rank(&p, who)), who);
        bool slow = topology_station(&p, topology_rank(&p, who)).slower > 1;
        assert_int_equal(slow, topology_rank(&p, who) == 5);
    }
    assert_int_equal(members, 12);
    topology_release(&p);
    mesh.degree[AXIS_DP] = 4;
    assert_int_equal(topology_create(&p, &c, &mesh, NULL, 0, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, "16 ranks"));
    cluster_release(&c);
}

// NCCL's all-reduce on the 8 A100 of a node.
static void all_reduces_take_what_is_published(void **unused) {
    (void)unused;
    static const struct {
        double bytes, seconds;
    } PUBLISHED[] = {{0x1p20, 93e-6}, {0x1p24, 232e-6}, {0x1p28, 2162e-6}, {0x1p30, 8193e-6}};
    struct cluster c;
    trireme_error error = {0};
    assert_ok(cluster_load(&c, ops, "a100", &error), &error);
    struct route route = {.ranks = 8, .parts = {8, 1}, .bandwidth = {c.level[0].bandwidth, c.level[1].bandwidth}};
    for (size_t i = 0; i < ARRAY_LENGTH(PUBLISHED); i++) {
        double seconds = cost_communicate(&c, &route, OP_ALL_REDUCE, PUBLISHED[i].bytes);
        assert_true(fabs(seconds / PUBLISHED[i].seconds - 1) < .1);
    }
    cluster_release(&c);
}

int main(void) {
    ops = op_table_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduces_take_what_is_published),
        cmocka_unit_test(figures_have_units),
        cmocka_unit_test(all_units_are_what_they_say),
        cmocka_unit_test(one_rank_needs_no_links),
        cmocka_unit_test(the_only_node_is_all),
        cmocka_unit_test(refusals_name_line_and_key),
        cmocka_unit_test(shipped_clusters_are_good),
        cmocka_unit_test(resizing_keeps_nodes_whole),
        cmocka_unit_test(adapters_are_shared_by_groups),
        cmocka_unit_test(groups_within_a_node_leave_its_adapters_alone),
        cmocka_unit_test(ranks_may_be_far_behind_the_first),
        cmocka_unit_test(pairs_have_their_own_route),
        cmocka_unit_test(stragglers_make_classes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(ops);
    return failed;
}
