// The kinds of devices that estimates tell apart.
#include "planner/estimate.h"
#include "support/checkpoint.h"

enum { RANKS = 12 };

static const char CLUSTER[] =
    "devices:\n"
    "  large: {peak: {f32: 1 TFLOP/s}, memory: 8 GB, runtime_memory: 1 GB, bandwidth: 1 GB/s, "
    "efficiency: {other: {memory: 1}}}\n"
    "  small: {peak: {f32: 1 TFLOP/s}, memory: 4 GB, bandwidth: 1 GB/s, efficiency: {other: {memory: 1}}}\n"
    "nodes: [{device: large, nodes: 4, devices: 2}, {device: small, nodes: 2, devices: 2}]\n"
    "links: [{name: net, spans: all, latency: 1 us, bandwidth: 1 GB/s}]\n"
    "stragglers: [{device: 0, slower: 1.003}, {device: 1, slower: 1.006}, {device: 3, slower: 1.5}, "
    "{device: 4, slower: 1.504}]\n";

// A rank that is hardly slower is not another kind, since each kind has to be measured.
static void kinds_are_few(void **unused) {
    (void)unused;
    static const int KINDS[RANKS] = {0, 0, 0, 1, 1, 0, 0, 0, 2, 2, 2, 2}, NEXT[] = {3, 5, 8, 12};
    struct op_table *ops = op_table_create();
    struct cluster cluster;
    trireme_error error = {0};
    assert_ok(cluster_parse(&cluster, ops, "test", CLUSTER, strlen(CLUSTER), &error), &error);
    struct plan_request request = {.cluster = &cluster, .ops = ops, .ranks = RANKS};
    struct estimator e = {.request = &request};
    estimator_devices(&e);
    assert_int_equal(e.kinds.count, 3);
    assert_memory_equal(e.kind, KINDS, sizeof KINDS);
    for (int r = 0, i = 0; r < RANKS; r = e.next[r])
        assert_int_equal(e.next[r], NEXT[i++]);
    assert_true(e.room == 7e9);
    // Of three stages the last has small devices; of two the last some.
    static const double ROOMS[][3] = {{7e9, 4e9}, {7e9, 7e9, 4e9}};
    for (int stages = 2; stages <= 3; stages++)
        for (int stage = 0; stage < stages; stage++)
            assert_true(room_of_stage(&e, stages, stage) == ROOMS[stages - 2][stage]);
    estimator_devices_release(&e);
    cluster_release(&cluster);
    free(ops);
}

// Also where the small devices come first.
static void least_room_is_anywhere_in_a_stage(void **unused) {
    (void)unused;
    static const char SMALL_FIRST[] =
        "devices:\n"
        "  large: {peak: {f32: 1 TFLOP/s}, memory: 8 GB, bandwidth: 1 GB/s, efficiency: {other: {memory: 1}}}\n"
        "  small: {peak: {f32: 1 TFLOP/s}, memory: 4 GB, bandwidth: 1 GB/s, efficiency: {other: {memory: 1}}}\n"
        "nodes: [{device: small, nodes: 1, devices: 2}, {device: large, nodes: 1, devices: 4}]\n"
        "links: [{name: net, spans: all, latency: 1 us, bandwidth: 1 GB/s}]\n";
    struct op_table *ops = op_table_create();
    struct cluster cluster;
    trireme_error error = {0};
    assert_ok(cluster_parse(&cluster, ops, "test", SMALL_FIRST, strlen(SMALL_FIRST), &error), &error);
    struct plan_request request = {.cluster = &cluster, .ops = ops, .ranks = 6};
    struct estimator e = {.request = &request};
    estimator_devices(&e);
    assert_true(e.room == 8e9 && room_of_stage(&e, 1, 0) == 4e9);
    assert_true(room_of_stage(&e, 2, 0) == 4e9 && room_of_stage(&e, 2, 1) == 8e9);
    estimator_devices_release(&e);
    cluster_release(&cluster);
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_are_few),
                                       cmocka_unit_test(least_room_is_anywhere_in_a_stage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
