// Programs of a few instructions on clusters of a few devices: seconds and bytes as computed by hand from
// docs/simulator.md.
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/streams.h"

#include "memory/memory_plan.h"
#include "sim/memory.h"
#include "sim/simulate.h"
#include "verify/verify.h"

#include <math.h>

static struct op_table *ops;

// A byte of memory takes a nanosecond.
#define DEVICES(more)                                           \
    "devices:\n  d: {peak: {f32: 1 GFLOP/s, bf16: 1 GFLOP/s}, " \
    "memory: 1 GB, bandwidth: 1 GB/s, launch: 1 us, " more "}\n"
#define PLAIN DEVICES("efficiency: {other: {memory: 1}}")
#define LINK "latency: 1 us, bandwidth: 1 GB/s"
#define ONE_NODE(devices) \
    "nodes: [{device: d, nodes: 1, devices: " devices "}]\nlinks: [{name: l, spans: all, " LINK "}]\n"
static const double LAUNCH = 1e-6;

struct trial {
    struct cluster cluster;
    struct program stage[2]; // of one template that is run once
    int stages;
    struct simulation result;
};

__attribute__((format(printf, 3, 4))) static void begin(struct trial *t, struct mesh mesh, const char *cluster, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, cluster);
    vsnprintf(text, sizeof text, cluster, arguments);
    va_end(arguments);
    trireme_error error = {0};
    assert_ok(cluster_parse(&t->cluster, ops, "test", text, strlen(text), &error), &error);
    t->stages = mesh.degree[AXIS_PP];
    for (int i = 0; i < t->stages; i++) {
        program_init(&t->stage[i], "trial", 1);
        test_streams(&t->stage[i]);
        t->stage[i].mesh = mesh;
        program_template(&t->stage[i], "all", PHASE_FORWARD, 0);
        program_invoke(&t->stage[i], 0, 0, true, true);
    }
}

static struct mesh mesh_of(int tensor, int data, int stages) {
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_TP] = tensor;
    mesh.degree[AXIS_DP] = data;
    mesh.degree[AXIS_PP] = stages;
    return mesh;
}

static void play_with(struct trial *t, const struct simulation_options *options) {
    const struct program *program[2] = {&t->stage[0], &t->stage[1]};
    trireme_error error = {0};
    assert_ok(simulate(&t->result, program, ops, &t->cluster, options, &error), &error);
}

static void play(struct trial *t) {
    play_with(t, NULL);
}

static void end(struct trial *t) {
    simulation_release(&t->result);
    for (int i = 0; i < t->stages; i++)
        program_release(&t->stage[i]);
    cluster_release(&t->cluster);
}

static double play_to_the_end(struct trial *t) {
    play(t);
    double seconds = t->result.seconds;
    end(t);
    return seconds;
}

static double end_of(const struct trial *t, int rank) {
    return t->result.of_class[t->result.class_of[rank]].end;
}

#define assert_seconds(found, expected) assert_near(#found, __LINE__, found, expected)
static void assert_near(const char *what, int line, double found, double expected) {
    if (!(fabs(found - expected) <= 3e-6 * expected)) // points hold as much
        fail_msg("line %d, %s: %.9g s, expected %.9g s", line, what, found, expected);
}

// ---- instructions

static struct operand values(struct program *p, int64_t rows, int64_t columns) {
    char name[16];
    snprintf(name, sizeof name, "b%zu", p->buffers.count);
    int64_t dim[] = {rows, columns};
    return operand_whole(p, program_buffer(p, name, DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 2, dim));
}

// As many operations, 12 bytes each.
static void add(struct program *p, int64_t elements) {
    struct operand in[] = {values(p, 1, elements), values(p, 1, elements)}, out = values(p, 1, elements);
    program_emit(p, 0, OP_ADD, PHASE_FORWARD, NONE, 2, in, 1, &out, NULL);
}

static void multiply(struct program *p, int64_t m, int64_t n, int64_t k) {
    struct operand in[] = {values(p, m, k), values(p, n, k), operand_none(), operand_none()}, out = values(p, m, n);
    program_emit(p, 0, OP_MATMUL, PHASE_FORWARD, NONE, 4, in, 1, &out, NULL);
}

// One sequence of `length` positions and one head; each position attends to the last `window` positions, 0: to all
// before.
static void attend(struct program *p, int64_t length, int64_t window) {
    const int64_t dim[] = {1, length, 1, 8}, at[] = {1, length};
    struct operand in[6], out[3];
    for (int i = 0; i < 3; i++)
        in[i] = operand_shape(values(p, length, 8), 4, dim);
    in[3] = operand_whole(p, program_buffer(p, "starts", DTYPE_I32, KIND_INPUT, SCOPE_LOCAL, 2, at));
    in[4] = in[5] = operand_none();
    out[0] = operand_shape(values(p, length, 8), 4, dim);
    out[1] = operand_shape(values(p, 1, length), 3, (int64_t[]){1, 1, length});
    out[2] = operand_none();
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.f = 1}, {.i = window}};
    program_emit(p, 0, OP_ATTENTION, PHASE_FORWARD, NONE, 6, in, 3, out, attribute);
}

// Behind all that was computed; 4 bytes each.
static void all_reduce(struct program *p, enum axis axis, int64_t elements) {
    struct operand x = values(p, 1, elements);
    program_communicate(p, 0, OP_ALL_REDUCE, PHASE_FORWARD, STREAM_REDUCE, AXES(axis), x, x)->wait[STREAM_COMPUTE] = 1;
}

static void message(struct program *p, bool receives, enum axis axis, int peer, bool to_previous, int64_t elements) {
    struct operand x = values(p, 1, elements);
    const int stream = STREAM_MESSAGES + 2 * to_previous + receives;
    struct instruction *in =
        program_communicate(p, 0, receives ? OP_RECEIVE : OP_SEND, PHASE_FORWARD, stream, AXES(axis),
                            receives ? operand_none() : x, receives ? x : operand_none());
    in->peer = peer;
    in->wait[STREAM_COMPUTE] = !receives;
}

// Each rank sends a message to the next rank, and in `ways` 2 one to the previous rank, too.
static void swap_messages(struct program *p, int ways, int64_t elements) {
    for (int way = 0; way < ways; way++)
        for (int receives = 0; receives < 2; receives++)
            message(p, receives, AXIS_DP, way == receives ? 1 : -1, way, elements);
}

// ---- computing

// launch + max(least, flops / (peak compute f), (bytes + half_bytes) / (bandwidth memory)) of a million elements.
static void an_op_takes_what_its_curve_says(void **unused) {
    (void)unused;
    static const struct {
        const char *add;
        double ms;
    } CURVES[] = {
        {"memory: 1", 12},
        {"memory: 0.5", 12 / .5},
        {"memory: 0.5, half_bytes: 4 MB", (12 + 4) / .5},
        {"memory: 0.5, half_bytes: 4 MB, f32: {half_bytes: 8 MB}", (12 + 8) / .5},
        {"least: 11 ms", 12},
        {"least: 50 ms, launch: 3 ms", 3 + 50},
        {"compute: 0.01", 1 / .01},
        {"compute: 0.01, half: {c: 250000}", 1 / (.01 * .8)},
        {"compute: 0.5", 12},
        {"memory: 100", 1}, // nothing is faster than the peak
        {"memory: 100, compute: 0", .12},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CURVES); i++) {
        struct trial t;
        begin(&t, mesh_single(), DEVICES("efficiency: {other: {memory: 1}, add: {%s}}") ONE_NODE("1"), CURVES[i].add);
        add(&t.stage[0], 1000000);
        assert_seconds(play_to_the_end(&t), LAUNCH + CURVES[i].ms * 1e-3);
    }
}

// Of the triangle of T rows, the part that lies within a window: all but a triangle of T - window rows.
static void a_window_leaves_out_what_it_does_not_see(void **unused) {
    (void)unused;
    static const struct {
        int64_t window;
        double part;
    } CASES[] = {{0, 1}, {16, 1 - .75 * .75}, {32, .75}, {64, 1}, {100, 1}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_single(), DEVICES("efficiency: {other: {memory: 100}}") ONE_NODE("1"));
        attend(&t.stage[0], 64, CASES[i].window);
        assert_seconds(play_to_the_end(&t), LAUNCH + 2 * 64 * 64 * 8 * 1e-9 * CASES[i].part);
    }
}

// At a point of its dtype what was measured; 12 octaves away what the curve says; between, something between.
static void points_are_of_their_neighbourhood(void **unused) {
    (void)unused;
    static const char MEASURED[] = "add: {measured: [[12 MB, bf16, 9 s], [12 MB, f32, 30 ms]]}, "
                                   "matmul: {measured: [[64, 64, 64, f32, 0.5 GFLOP/s]]}";
    static const double FAR = 4096;
    for (int product = 0; product < 2; product++) {
        double curve = product ? 2 * 64 * 64 * 64 * 1e-9 : 12e-3, measured = product ? 2 * curve : 30e-3, found[3];
        const int64_t times[] = {1, 2, (int64_t)FAR};
        for (int i = 0; i < 3; i++) {
            struct trial t;
            begin(&t, mesh_single(), DEVICES("efficiency: {other: {memory: 1, compute: 1}, %s}") ONE_NODE("1"),
                  MEASURED);
            if (product)
                multiply(&t.stage[0], times[i] * 64, 64, 64);
            else
                add(&t.stage[0], times[i] * 1000000);
            found[i] = play_to_the_end(&t) - LAUNCH;
        }
        assert_seconds(found[0], measured);
        assert_true(found[1] > 1.1 * 2 * curve && found[1] < .9 * 2 * measured);
        assert_seconds(found[2], FAR * curve);
    }
}

// An op that is made of products runs at their rate, whatever was measured of single ones; of a matrix and of its
// transpose it takes the same.
static void ops_of_several_products_run_at_their_rate(void **unused) {
    (void)unused;
    static const char MATMUL[] = "matmul: {compute: 0.5, measured: [[64, 64, 64, f32, 0.125 GFLOP/s]]}";
    for (int tall = 0; tall < 2; tall++) {
        struct trial t;
        begin(&t, mesh_single(), DEVICES("efficiency: {other: {memory: 100}, %s}") ONE_NODE("1"), MATMUL);
        struct program *p = &t.stage[0];
        const int64_t dim[] = {1, tall ? 128 : 64, tall ? 64 : 128};
        struct operand u = operand_shape(values(p, 64, 128), 3, dim), o = operand_shape(values(p, 64, 128), 3, dim);
        program_emit(p, 0, OP_NEWTON_SCHULZ, PHASE_OPTIMIZER, NONE, 1, &u, 1, &o, NULL);
        assert_seconds(play_to_the_end(&t), LAUNCH + (20 * 64 * 64 * 128 + 10 * 64 * 64 * 64) * 1e-9 / .5);
    }
}

// Each rank has a part of the rates and of the memory; together they have what the device has.
static void ranks_that_share_a_device_have_parts_of_it(void **unused) {
    (void)unused;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        struct trial t;
        begin(&t, mesh_of(1, ranks, 1), DEVICES("cores: 4, efficiency: {other: {memory: 1}}") ONE_NODE("1"));
        add(&t.stage[0], 1000);
        play(&t);
        assert_seconds(t.result.seconds, LAUNCH + ranks * 12e-6);
        assert_int_equal(t.result.of_class[0].station.room, 1000000000 / ranks);
        assert_true(simulation_peak(&t.result, DTYPE_F32) == 1e9);
        end(&t);
    }
}

static void ranks_that_share_a_device_may_have_rates_of_another(void **unused) {
    (void)unused;
    static const char CLUSTER[] =
        "devices:\n"
        "  d: {peak: {f32: 1 GFLOP/s}, memory: 1 GB, bandwidth: 1 GB/s, cores: 4, shared: {2: half},\n"
        "      efficiency: {other: {memory: 1}}}\n"
        "  half: {peak: {f32: 1 GFLOP/s}, memory: 6 GB, bandwidth: 0.75 GB/s, efficiency: {other: {memory: 1}}}\n";
    struct trial t;
    begin(&t, mesh_of(1, 2, 1), "%s" ONE_NODE("1"), CLUSTER);
    add(&t.stage[0], 1000);
    play(&t);
    assert_seconds(t.result.seconds, 12e-6 / .75);
    assert_int_equal(t.result.of_class[0].station.room, 500000000);
    end(&t);
}

// ---- collectives

// An all_reduce, of 4 kB, gathers in twice the steps of its algorithm.
static void an_algorithm_has_so_many_steps(void **unused) {
    (void)unused;
    static const struct {
        const char *algorithm;
        int ranks, steps;
    } CASES[] = {{"ring", 2, 1}, {"ring", 5, 4}, {"tree", 2, 1}, {"tree", 5, 3}, {"tree", 8, 3}, {"direct", 5, 1}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_of(1, CASES[i].ranks, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: %d}]\n"
                    "links: [{name: l, spans: all, algorithm: %s, " LINK "}]\n",
              CASES[i].ranks, CASES[i].algorithm);
        all_reduce(&t.stage[0], AXIS_DP, 1000);
        double share = (CASES[i].ranks - 1.) / CASES[i].ranks;
        assert_seconds(play_to_the_end(&t), 2 * CASES[i].steps * 1e-6 + 2 * share * 4000e-9);
    }
}

// Of 8 MB over two nodes of four: 2 * 3/4 of them within, of a quarter 2 * 1/2 between; in a ring 2 * 7/8.
static void levels_go_in_turn_or_together(void **unused) {
    (void)unused;
    static const struct {
        const char *collectives;
        double bandwidth, seconds; // GB/s between nodes
    } CASES[] = {
        {"in_turn", 1, 3e-3 + 2e-3}, {"pipelined", 1, 3e-3}, {"in_turn", .5, 3e-3 + 4e-3},
        {"pipelined", .5, 4e-3},     {"ring", 1, 3.5e-3},    {"ring", .5, 7e-3},
    };
    static const double START = 50e-6, STEPS = 2 * 3 * 1e-6 + 2 * 1 * 10e-6;
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_of(1, 8, 1),
              PLAIN "nodes: [{device: d, nodes: 2, devices: 4}]\n"
                    "links:\n"
                    "  - {name: bus, spans: node, start: 50 us, latency: 1 us, bandwidth: 4 GB/s}\n"
                    "  - {name: net, spans: all, start: 20 us, latency: 10 us, bandwidth: %g GB/s}\n"
                    "collectives: %s\n",
              CASES[i].bandwidth, CASES[i].collectives);
        all_reduce(&t.stage[0], AXIS_DP, 2000000);
        assert_seconds(play_to_the_end(&t), START + STEPS + CASES[i].seconds);
    }
}

static void exchange(struct program *p, enum axis axis, int64_t ranks, int64_t elements) {
    const int64_t dim[] = {ranks, 1, elements / ranks};
    struct operand x = values(p, ranks, elements / ranks), y = values(p, ranks, elements / ranks);
    program_communicate(p, 0, OP_ALL_TO_ALL, PHASE_FORWARD, STREAM_REDUCE, AXES(axis), operand_shape(x, 3, dim),
                        operand_shape(y, 3, dim));
}

// Of 8 MB that a rank has for two nodes of four, 3/8 are for others of its node and 4/8 for the other node: nobody has
// less to send out of the node because others are beside it. With one adapter four ranks share it.
static void what_is_for_another_node_leaves_this_one(void **unused) {
    (void)unused;
    static const struct {
        const char *collectives, *adapters;
        double seconds;
    } CASES[] = {{"in_turn", "", .75e-3 + 4e-3},
                 {"pipelined", "", 4e-3},
                 {"ring", "", 4e-3},
                 {"pipelined", "adapters: 1, ", 16e-3}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_of(1, 8, 1),
              PLAIN "nodes: [{device: d, nodes: 2, devices: 4}]\n"
                    "links:\n"
                    "  - {name: bus, spans: node, latency: 1 us, bandwidth: 4 GB/s}\n"
                    "  - {name: net, spans: all, %slatency: 10 us, bandwidth: 1 GB/s}\n"
                    "collectives: %s\n",
              CASES[i].adapters, CASES[i].collectives);
        exchange(&t.stage[0], AXIS_DP, 8, 2000000);
        assert_seconds(play_to_the_end(&t), 3 * 1e-6 + 10e-6 + CASES[i].seconds);
    }
}

// Of 8 MB over five ranks, of which a node, before the other or behind it, has four: 2 * 3/4 of them within, to the
// rank that is alone 2 * 1/2 of all; in a ring 2 * 4/5. With adapters each node has as many.
static void the_smallest_part_of_a_group_takes_in_all(void **unused) {
    (void)unused;
    static const struct {
        const char *collectives, *adapters;
        double seconds;
    } CASES[] = {{"in_turn", "", 3e-3 + 8e-3},
                 {"pipelined", "", 8e-3},
                 {"ring", "", 12.8e-3},
                 {"ring", "adapters: 1, ", 12.8e-3},
                 {"ring", "adapters: 4, ", 3.2e-3}};
    static const double START = 50e-6, STEPS = 2 * 3 * 1e-6 + 2 * 1 * 10e-6;
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(CASES); i++) {
        const int first = i % 2 ? 1 : 4;
        struct trial t;
        begin(&t, mesh_of(1, 5, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: %d}, {device: d, nodes: 1, devices: %d}]\n"
                    "links:\n"
                    "  - {name: bus, spans: node, start: 50 us, latency: 1 us, bandwidth: 4 GB/s}\n"
                    "  - {name: net, spans: all, start: 20 us, latency: 10 us, %sbandwidth: 1 GB/s}\n"
                    "collectives: %s\n",
              first, 5 - first, CASES[i / 2].adapters, CASES[i / 2].collectives);
        all_reduce(&t.stage[0], AXIS_DP, 2000000);
        assert_seconds(play_to_the_end(&t), START + STEPS + CASES[i / 2].seconds);
    }
}

// When f32 travels as bf16, half of the bytes do.
static void narrow_gradients_travel_in_half_the_bytes(void **unused) {
    (void)unused;
    for (int scatters = 0; scatters < 2; scatters++)
        for (int wire = 0; wire < 2; wire++) {
            struct trial t;
            begin(&t, mesh_of(1, 2, 1), PLAIN ONE_NODE("2"));
            struct program *p = &t.stage[0];
            struct instruction *in =
                program_communicate(p, 0, scatters ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, PHASE_FORWARD, STREAM_REDUCE,
                                    AXES(AXIS_DP), values(p, 1, 1000), values(p, 1, scatters ? 500 : 1000));
            in->attribute[scatters ? 0 : 1].i = wire;
            int passes = scatters ? 1 : 2;
            assert_seconds(play_to_the_end(&t), passes * (1e-6 + .5 * (wire ? 2 : 4) * 1000e-9));
        }
}

// Tensor ranks fill a node; each has a group over all nodes.
static void groups_that_leave_a_node_share_its_adapters(void **unused) {
    (void)unused;
    static const struct {
        int groups, adapters;
        double part;
    } CASES[] = {{1, 1, 1}, {2, 1, .5}, {4, 1, .25}, {4, 2, .5}, {4, 4, 1}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_of(CASES[i].groups, 2, 1),
              PLAIN "nodes: [{device: d, nodes: 2, devices: %d}]\n"
                    "links: [{name: bus, spans: node, " LINK "}, {name: net, spans: all, adapters: %d, " LINK "}]\n",
              CASES[i].groups, CASES[i].adapters);
        all_reduce(&t.stage[0], AXIS_DP, 1000);
        assert_seconds(play_to_the_end(&t), 2 * 1e-6 + 2 * .5 * 4000e-9 / CASES[i].part);
    }
}

// Between points a straight line in logarithms; above the largest its bytes per second; below the smallest its time
// times the ratio of the formula, which is 2 us and 1 ns for each byte.
static void collectives_go_along_their_points(void **unused) {
    (void)unused;
    static const struct {
        int64_t bytes;
        double seconds;
    } CASES[] = {{250000, 1e-3 * 252 / 1002}, {1000000, 1e-3}, {2000000, 3e-3}, {4000000, 9e-3}, {16000000, 4 * 9e-3}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct trial t;
        begin(&t, mesh_of(1, 2, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: 2}]\n"
                    "links: [{name: l, spans: all, " LINK
                    ", measured: [[all_reduce, 2, 1 MB, 1 ms], [all_reduce, 2, 4 MB, 9 ms]]}]\n");
        all_reduce(&t.stage[0], AXIS_DP, CASES[i].bytes / 4);
        assert_seconds(play_to_the_end(&t), CASES[i].seconds);
    }
}

// Points are of a single group; four groups that share an adapter take four times as long for their bytes, but not for
// their steps.
static void groups_that_share_adapters_are_slower_than_their_points(void **unused) {
    (void)unused;
    for (int groups = 1; groups <= 4; groups *= 2) {
        struct trial t;
        begin(&t, mesh_of(groups, 2, 1),
              PLAIN "nodes: [{device: d, nodes: 2, devices: %d}]\n"
                    "links: [{name: bus, spans: node, " LINK "}, {name: net, spans: all, adapters: 1, " LINK
                    ", measured: [[all_reduce, 2, 4 kB, 12 us]]}]\n",
              groups);
        all_reduce(&t.stage[0], AXIS_DP, 1000);
        assert_seconds(play_to_the_end(&t), 12e-6 * (2 + 4 * groups) / (2 + 4));
    }
}

// ---- ranks that meet

// Whoever comes last, and whoever has more to give (which stage_programs_meet refuses, and simulate takes).
static void a_meeting_is_as_late_and_as_long_as_any(void **unused) {
    (void)unused;
    for (int late = 0; late < 2; late++)
        for (int large = 0; large < 2; large++) {
            struct trial t;
            begin(&t, mesh_of(1, 1, 2), PLAIN ONE_NODE("2"));
            for (int i = 0; i < 2; i++) {
                add(&t.stage[i], i == late ? 3000 : 1000);
                all_reduce(&t.stage[i], AXIS_PP, i == large ? 2000 : 500);
            }
            play(&t);
            double begins = LAUNCH + 36e-6, takes = 2 * 1e-6 + 8000e-9;
            for (int i = 0; i < 2; i++) {
                assert_seconds(end_of(&t, i), begins + takes);
                assert_seconds(t.result.of_class[i].exposed[AXIS_PP], takes);
            }
            end(&t);
        }
}

// Two ranks share an adapter; the two with which they exchange messages have one each.
static void a_message_goes_by_its_senders_adapters(void **unused) {
    (void)unused;
    for (int sender = 0; sender < 2; sender++) {
        struct trial t;
        begin(&t, mesh_of(2, 1, 2),
              PLAIN "nodes: [{device: d, nodes: 1, devices: 2}, {device: d, nodes: 2, devices: 1}]\n"
                    "links:\n"
                    "  - {name: bus, spans: node, " LINK "}\n"
                    "  - {name: net, spans: all, adapters: 1, start: 9 us, message: 3 us, " LINK "}\n");
        int distance = sender ? -1 : 1;
        message(&t.stage[sender], false, AXIS_PP, distance, sender, 1000);
        message(&t.stage[!sender], true, AXIS_PP, -distance, sender, 1000);
        assert_seconds(play_to_the_end(&t), 3e-6 + 1e-6 + 4000e-9 / (sender ? 1 : .5));
    }
}

// A ring of replicas, each sending to the next. The neighbours of the slow one are not like the others.
static void neighbours_of_a_slow_rank_are_told_apart(void **unused) {
    (void)unused;
    struct trial t;
    begin(&t, mesh_of(1, 4, 1), PLAIN ONE_NODE("4") "stragglers: [{device: 2, slower: 3}]\n");
    add(&t.stage[0], 1000);
    message(&t.stage[0], false, AXIS_DP, 1, false, 1000);
    message(&t.stage[0], true, AXIS_DP, -1, false, 1000);
    play(&t);
    static const double COMPUTING = 13e-6, MESSAGE = 5e-6;
    assert_int_equal(t.result.classes, 4);
    for (int rank = 0; rank < 4; rank++)
        assert_seconds(end_of(&t, rank), COMPUTING * (rank < 2 ? 1 : 3) + MESSAGE);
    end(&t);
}

// How many times as long as alone the bytes of a message take. Two ranks are both next and previous to each other.
static void messages_share_links_as_they_are_wired(void **unused) {
    (void)unused;
    static const struct {
        const char *wiring;
        int ranks, times[2]; // with messages one way, both ways
    } CASES[] = {
        {"", 4, {1, 1}},
        {", wiring: switch", 4, {1, 2}},
        {", wiring: switch, duplex: full", 2, {1, 2}},
        {", wiring: switch, duplex: half", 4, {2, 4}},
        {", wiring: switch, duplex: half", 2, {2, 4}},
        {", wiring: direct", 4, {1, 1}},
        {", wiring: direct, duplex: full", 3, {1, 1}},
        {", wiring: direct", 2, {1, 2}},
        {", wiring: direct, duplex: half", 4, {1, 2}},
        {", wiring: direct, duplex: half", 3, {1, 2}},
        {", wiring: direct, duplex: half", 2, {2, 4}},
    };
    for (size_t i = 0; i < 4 * ARRAY_LENGTH(CASES); i++) {
        const int ways = 1 + i % 2, ranks = CASES[i / 4].ranks;
        const struct simulation_options options = {.every_rank = i / 2 % 2};
        struct trial t;
        begin(&t, mesh_of(1, ranks, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: %d}]\nlinks: [{name: l, spans: all, " LINK "%s}]\n", ranks,
              CASES[i / 4].wiring);
        swap_messages(&t.stage[0], ways, 1000);
        play_with(&t, &options);
        assert_int_equal(t.result.classes, options.every_rank ? ranks : 1);
        assert_seconds(t.result.seconds, 1e-6 + CASES[i / 4].times[ways - 1] * 4e-6);
        end(&t);
    }
}

// Both ways between each two neighbours; of the messages to and from the slow rank, those that it sends are late. Those
// between ranks 0 and 1, and 0 and 3, share links.
static void a_direct_link_is_between_two_ranks(void **unused) {
    (void)unused;
    struct trial t;
    begin(&t, mesh_of(1, 4, 1),
          PLAIN "nodes: [{device: d, nodes: 1, devices: 4}]\n"
                "links: [{name: l, spans: all, wiring: direct, duplex: half, " LINK "}]\n"
                "stragglers: [{device: 2, slower: 3}]\n");
    add(&t.stage[0], 1000);
    swap_messages(&t.stage[0], 2, 1000);
    play(&t);
    static const double ALONE = 5e-6, SHARED = 9e-6;
    static const int OF_SHARED[] = {4, 2, 0, 2}; // messages that each rank sends or receives
    for (int rank = 0; rank < 4; rank++)
        assert_seconds(t.result.of_class[rank].moving[AXIS_DP],
                       OF_SHARED[rank] * SHARED + (4 - OF_SHARED[rank]) * ALONE);
    assert_seconds(t.result.seconds, 3 * 13e-6 + ALONE);
    end(&t);
}

// The first message has 12 kB; the second, of 4 kB, has half of the link from 5 us on, until it ends at 13 us, when
// computing goes on. Then the first has all of it again.
static void messages_have_equal_parts_while_they_share(void **unused) {
    (void)unused;
    for (int computes = 0; computes < 2; computes++) {
        struct trial t;
        begin(&t, mesh_of(1, 4, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: 4}]\n"
                    "links: [{name: l, spans: all, wiring: switch, " LINK "}]\n");
        struct program *p = &t.stage[0];
        message(p, false, AXIS_DP, 1, false, 3000);
        message(p, true, AXIS_DP, -1, false, 3000);
        add(p, 250);
        message(p, false, AXIS_DP, -1, true, 1000);
        message(p, true, AXIS_DP, 1, true, 1000);
        if (computes) {
            add(p, 1000);
            p->templates.item[0].instructions.item[5].wait[STREAM_MESSAGES + 3] = 1;
        }
        assert_seconds(play_to_the_end(&t), computes ? 13e-6 + LAUNCH + 12e-6 : 17e-6);
    }
}

// Where both directions share a link, a rank receives over it while it sends; but not in a ring of links each of which
// carries one direction.
static void collectives_share_both_directions(void **unused) {
    (void)unused;
    static const struct {
        const char *wiring;
        int ranks, times[2]; // of an all_reduce, of an all_to_all
    } CASES[] = {
        {"duplex: full, wiring: switch", 4, {1, 1}}, {"duplex: half, wiring: switch", 4, {2, 2}},
        {"duplex: full, wiring: direct", 4, {1, 1}}, {"duplex: half, wiring: direct", 4, {1, 2}},
        {"duplex: half, wiring: direct", 2, {2, 2}}, {"duplex: half, wiring: direct, algorithm: tree", 4, {2, 2}},
    };
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(CASES); i++) {
        const int ranks = CASES[i / 2].ranks, steps = strstr(CASES[i / 2].wiring, "tree") ? 2 : ranks - 1;
        const double share = (ranks - 1.) / ranks * 4000e-9 * CASES[i / 2].times[i % 2];
        struct trial t;
        begin(&t, mesh_of(1, ranks, 1),
              PLAIN "nodes: [{device: d, nodes: 1, devices: %d}]\nlinks: [{name: l, spans: all, %s, " LINK "}]\n",
              ranks, CASES[i / 2].wiring);
        struct program *p = &t.stage[0];
        if (i % 2)
            exchange(p, AXIS_DP, ranks, 1000);
        else
            all_reduce(p, AXIS_DP, 1000);
        assert_seconds(play_to_the_end(&t), (i % 2 ? 1 : 2) * (steps * 1e-6 + share));
    }
}

// Ranks pass on what they have received. Between nodes it takes 10 us and 8 us, within them 1 us and 4 us.
static void a_ring_is_as_fast_as_its_slowest_link(void **unused) {
    (void)unused;
    enum { ROUNDS = 3 };
    struct trial t;
    begin(&t, mesh_of(1, 4, 1),
          PLAIN "nodes: [{device: d, nodes: 2, devices: 2}]\n"
                "links:\n"
                "  - {name: bus, spans: node, " LINK "}\n"
                "  - {name: net, spans: all, latency: 10 us, bandwidth: 0.5 GB/s}\n");
    struct program *p = &t.stage[0];
    for (int i = 0; i < ROUNDS; i++) {
        swap_messages(p, 1, 1000);
        p->templates.item[0].instructions.item[2 * i].wait[STREAM_MESSAGES + 1] = i > 0;
    }
    play(&t);
    assert_int_equal(t.result.classes, 4);
    assert_seconds(t.result.seconds, ROUNDS * 18e-6);
    // Rank 0 sends within its node, for the last time when it has received twice.
    assert_seconds(t.result.of_class[0].moving[AXIS_DP], ROUNDS * (5e-6 + 18e-6));
    end(&t);
}

// ---- memory

static struct operand kept(struct program *p, const char *name, enum buffer_kind kind, enum buffer_scope scope,
                           int64_t rows) {
    return operand_whole(p, program_buffer(p, name, DTYPE_F32, kind, scope, 2, (int64_t[]){rows, 16}));
}

// In rows of 64 bytes. What is gathered is communication, of parameters too; the input is there for each microbatch.
static void memory_is_told_by_what_it_holds(void **unused) {
    (void)unused;
    struct program p;
    program_init(&p, "trial", 3);
    test_streams(&p);
    p.mesh.degree[AXIS_TP] = p.mesh.degree[AXIS_FSDP] = 4;
    struct operand input = kept(&p, "input", KIND_INPUT, SCOPE_MICROBATCH, 8);
    struct operand shard = kept(&p, "shard", KIND_PARAM, SCOPE_STATE, 2);
    struct operand whole = kept(&p, "whole", KIND_PARAM, SCOPE_LOCAL, 8);
    struct operand x = kept(&p, "x", KIND_ACT, SCOPE_LOCAL, 8), y = kept(&p, "y", KIND_ACT, SCOPE_LOCAL, 4);
    struct operand part = operand_part(&p, operand_shape(input, 1, (int64_t[]){128}), AXES(AXIS_TP));
    kept(&p, "gradient", KIND_GRAD, SCOPE_STATE, 3);
    kept(&p, "moment", KIND_OPTIM, SCOPE_STATE, 5);
    program_template(&p, "all", PHASE_FORWARD, 0);
    program_communicate(&p, 0, OP_ALL_GATHER, PHASE_FORWARD, STREAM_GATHER, AXES(AXIS_FSDP), shard, whole);
    program_communicate(&p, 0, OP_ALL_GATHER, PHASE_FORWARD, STREAM_TENSOR, AXES(AXIS_TP), part, x);
    struct operand in[] = {x, whole, operand_none(), operand_none()}, out = operand_shape(y, 2, (int64_t[]){8, 8});
    program_emit(&p, 0, OP_MATMUL, PHASE_FORWARD, NONE, 4, in, 1, &out, NULL);
    for (int i = 0; i < 3; i++)
        program_invoke(&p, 0, i, i == 0, i == 2);
    trireme_error error = {0};
    place_state(&p);
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    struct sim_memory m;
    memory_of_program(&m, &p, ops);
    const int64_t ROW = 64;
    const int64_t expected[MEMORY_RUNTIME] = {
        [MEMORY_PARAMETERS] = 2 * ROW,        [MEMORY_GRADIENTS] = 3 * ROW,   [MEMORY_OPTIMIZER] = 5 * ROW,
        [MEMORY_COMMUNICATION] = 8 * 2 * ROW, [MEMORY_ACTIVATIONS] = 4 * ROW, [MEMORY_BATCH] = 3 * 8 * ROW,
    };
    int64_t total = 0;
    for (int i = 0; i < MEMORY_RUNTIME; i++) {
        if (m.part[i] != expected[i])
            fail_msg("%s: %lld bytes, expected %lld", memory_part_name((enum memory_part)i), (long long)m.part[i],
                     (long long)expected[i]);
        total += expected[i];
    }
    assert_int_equal(m.total, total);
    const struct device device = {.runtime_memory = 1000};
    assert_int_equal(memory_on(&m, &device).total, total + 1000);
    assert_int_equal(memory_on(&m, &device).part[MEMORY_RUNTIME], 1000);
    program_release(&p);
}

// From the stage before, in rows of 64 bytes.
static void what_is_received_is_communication(void **unused) {
    (void)unused;
    struct program p;
    program_init(&p, "trial", 1);
    test_streams(&p);
    p.mesh.degree[AXIS_PP] = 2;
    struct operand w = kept(&p, "w", KIND_PARAM, SCOPE_STATE, 8), x = kept(&p, "x", KIND_ACT, SCOPE_LOCAL, 8),
                   y = kept(&p, "y", KIND_ACT, SCOPE_LOCAL, 4);
    program_template(&p, "all", PHASE_FORWARD, 0);
    program_communicate(&p, 0, OP_RECEIVE, PHASE_FORWARD, STREAM_MESSAGES + 1, AXES(AXIS_PP), operand_none(), x)->peer =
        -1;
    struct operand in[] = {x, w, operand_none(), operand_none()}, out = operand_shape(y, 2, (int64_t[]){8, 8});
    program_emit(&p, 0, OP_MATMUL, PHASE_FORWARD, NONE, 4, in, 1, &out, NULL);
    program_invoke(&p, 0, 0, true, true);
    trireme_error error = {0};
    place_state(&p);
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    struct sim_memory m;
    memory_of_program(&m, &p, ops);
    assert_int_equal(m.part[MEMORY_COMMUNICATION], 8 * 64);
    assert_int_equal(m.part[MEMORY_ACTIVATIONS], 4 * 64);
    program_release(&p);
}

// Computing beside a transfer loses a part of the transfer's time, but not of the time in which it waits for the
// transfer.
static void computing_loses_a_part_beside_a_transfer(void **unused) {
    (void)unused;
    static const struct {
        const char *key;
        double part;
    } PARTS[] = {{"own", 0}, {"0", 0}, {"0.25", .25}, {"cores", 1}};
    static const int64_t BESIDE[] = {1000000, 100000};
    const double transfer = 2 * 1e-6 + 4e-3;
    for (size_t i = 0; i < ARRAY_LENGTH(PARTS) * ARRAY_LENGTH(BESIDE); i++) {
        int64_t elements = BESIDE[i % ARRAY_LENGTH(BESIDE)];
        double beside = LAUNCH + 12e-9 * (double)elements, alone = 2 * (LAUNCH + 12e-6);
        struct trial t;
        begin(&t, mesh_of(1, 2, 1), DEVICES("communication: %s, efficiency: {other: {memory: 1}}") ONE_NODE("2"),
              PARTS[i / ARRAY_LENGTH(BESIDE)].key);
        add(&t.stage[0], 1000);
        all_reduce(&t.stage[0], AXIS_DP, 1000000);
        add(&t.stage[0], elements);
        add(&t.stage[0], 1000);
        t.stage[0].templates.item[0].instructions.item[3].wait[STREAM_REDUCE] = 1;
        assert_seconds(play_to_the_end(&t),
                       alone + MAX(transfer, beside) + PARTS[i / ARRAY_LENGTH(BESIDE)].part * MIN(transfer, beside));
    }
}

// What a rank sends and receives at the same time, both ways, costs its computing no more than one transfer.
static void computing_loses_no_more_beside_several_transfers(void **unused) {
    (void)unused;
    enum { LAST = 6 };
    const double transfer = 1e-6 + 4e-3, beside = LAUNCH + 12e-3, part = .25;
    for (int longer = 0; longer < 2; longer++) {
        struct trial t;
        begin(&t, mesh_of(1, 4, 1), DEVICES("communication: %g, efficiency: {other: {memory: 1}}") ONE_NODE("4"), part);
        struct program *p = &t.stage[0];
        add(p, 1000);
        swap_messages(p, 1, 1000000);
        message(p, false, AXIS_DP, -1, true, longer ? 2000000 : 1000000);
        message(p, true, AXIS_DP, 1, true, longer ? 2000000 : 1000000);
        add(p, 1000000);
        add(p, 1000);
        for (int s = 0; s < 4; s++)
            p->templates.item[0].instructions.item[LAST].wait[STREAM_MESSAGES + s] = 1;
        play(&t);
        const double lost = part * (longer ? 1e-6 + 8e-3 : transfer);
        assert_seconds(t.result.of_class[0].exposed[AXIS_DP], lost);
        assert_seconds(t.result.seconds, 2 * 13e-6 + beside + lost);
        end(&t);
    }
}

// It pays for the messages of one way first, then for the sums, which were there before, and last for the messages of
// the other way, beside which it has paid.
static void computing_pays_in_any_order(void **unused) {
    (void)unused;
    const double sum = 6e-6 + 3e-3, messages = 1e-6 + 4e-3, part = .25;
    struct trial t;
    begin(&t, mesh_of(1, 4, 1), DEVICES("communication: %g, efficiency: {other: {memory: 1}}") ONE_NODE("4"), part);
    struct program *p = &t.stage[0];
    add(p, 1000);
    all_reduce(p, AXIS_DP, 500000);
    all_reduce(p, AXIS_DP, 500000);
    add(p, 1000000);
    swap_messages(p, 2, 1000000);
    add(p, 1000000);
    for (int i = 0; i < 4; i++)
        add(p, 1000);
    struct instruction *in = p->templates.item[0].instructions.item;
    in[2].stream = STREAM_REPLICAS;
    in[9].wait[STREAM_MESSAGES] = in[9].wait[STREAM_MESSAGES + 1] = 1;
    in[10].wait[STREAM_REDUCE] = 1;
    in[11].wait[STREAM_REPLICAS] = 1;
    in[12].wait[STREAM_MESSAGES + 2] = in[12].wait[STREAM_MESSAGES + 3] = 1;
    play(&t);
    assert_seconds(t.result.of_class[0].exposed[AXIS_DP], part * (2 * sum + messages));
    end(&t);
}

// It waits for the second transfer, which waits for the first on their link: it has nothing to lose by either.
static void computing_that_stands_still_loses_nothing(void **unused) {
    (void)unused;
    const double transfer = 2 * 1e-6 + 4e-3, alone = 2 * (LAUNCH + 12e-6);
    struct trial t;
    begin(&t, mesh_of(1, 2, 1), DEVICES("communication: cores, efficiency: {other: {memory: 1}}") ONE_NODE("2"));
    add(&t.stage[0], 1000);
    all_reduce(&t.stage[0], AXIS_DP, 1000000);
    all_reduce(&t.stage[0], AXIS_DP, 1000000);
    add(&t.stage[0], 1000);
    struct instruction *in = t.stage[0].templates.item[0].instructions.item;
    in[1].stream = STREAM_REPLICAS;
    in[3].wait[STREAM_REDUCE] = 1;
    play(&t);
    assert_seconds(t.result.of_class[0].exposed[AXIS_DP], 2 * transfer);
    assert_seconds(t.result.seconds, alone + 2 * transfer);
    end(&t);
}

// Ranks wait a tenth of what each has computed before they meet, not of what it computes meanwhile.
static void tensor_ranks_wait_by_what_they_have_computed(void **unused) {
    (void)unused;
    static const double JITTER = .1;
    const double first = LAUNCH + 12e-6, beside = LAUNCH + 1.2e-3, transfer = 2 * 1e-6 + 4e-3;
    struct trial t;
    begin(&t, mesh_of(2, 1, 1), DEVICES("jitter: %g, efficiency: {other: {memory: 1}}") ONE_NODE("2"), JITTER);
    for (int meeting = 0; meeting < 2; meeting++) {
        add(&t.stage[0], 1000);
        all_reduce(&t.stage[0], AXIS_TP, 1000000);
        add(&t.stage[0], 100000);
    }
    struct instruction *in = t.stage[0].templates.item[0].instructions.item;
    in[1].stream = in[4].stream = STREAM_TENSOR;
    in[3].wait[STREAM_TENSOR] = 1;
    assert_seconds(play_to_the_end(&t),
                   first + JITTER * first + transfer + first + JITTER * (beside + first) + transfer);
}

int main(void) {
    ops = op_table_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computing_loses_a_part_beside_a_transfer),
        cmocka_unit_test(computing_loses_no_more_beside_several_transfers),
        cmocka_unit_test(computing_pays_in_any_order),
        cmocka_unit_test(computing_that_stands_still_loses_nothing),
        cmocka_unit_test(tensor_ranks_wait_by_what_they_have_computed),
        cmocka_unit_test(an_op_takes_what_its_curve_says),
        cmocka_unit_test(a_window_leaves_out_what_it_does_not_see),
        cmocka_unit_test(an_algorithm_has_so_many_steps),
        cmocka_unit_test(points_are_of_their_neighbourhood),
        cmocka_unit_test(ops_of_several_products_run_at_their_rate),
        cmocka_unit_test(ranks_that_share_a_device_have_parts_of_it),
        cmocka_unit_test(ranks_that_share_a_device_may_have_rates_of_another),
        cmocka_unit_test(levels_go_in_turn_or_together),
        cmocka_unit_test(what_is_for_another_node_leaves_this_one),
        cmocka_unit_test(the_smallest_part_of_a_group_takes_in_all),
        cmocka_unit_test(narrow_gradients_travel_in_half_the_bytes),
        cmocka_unit_test(groups_that_leave_a_node_share_its_adapters),
        cmocka_unit_test(collectives_go_along_their_points),
        cmocka_unit_test(groups_that_share_adapters_are_slower_than_their_points),
        cmocka_unit_test(a_meeting_is_as_late_and_as_long_as_any),
        cmocka_unit_test(a_message_goes_by_its_senders_adapters),
        cmocka_unit_test(neighbours_of_a_slow_rank_are_told_apart),
        cmocka_unit_test(messages_share_links_as_they_are_wired),
        cmocka_unit_test(a_direct_link_is_between_two_ranks),
        cmocka_unit_test(messages_have_equal_parts_while_they_share),
        cmocka_unit_test(collectives_share_both_directions),
        cmocka_unit_test(a_ring_is_as_fast_as_its_slowest_link),
        cmocka_unit_test(memory_is_told_by_what_it_holds),
        cmocka_unit_test(what_is_received_is_communication),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(ops);
    return failed;
}
