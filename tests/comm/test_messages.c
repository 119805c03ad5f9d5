// The collectives of comm/messages over a wire that knows nothing of MPI.
#include "base/base.h"
#include "base/clock.h"
#include "support/collectives.h"
#include "support/fake_wire.h"
#include "support/test.h"

// Short, so that much travels in pieces.
enum { MOST = 3 * 4321 };

// Every rank on a node of its own, two to a node, three, and nodes of which one has fewer.
static const int shapes[][2] = {{1, 1}, {2, 1}, {3, 1}, {5, 1}, {4, 2}, {6, 3}, {5, 2}};

static void over_all_shapes(void (*body)(struct teammate *mate), void *context) {
    for (size_t i = 0; i < ARRAY_LENGTH(shapes); i++) {
        const int ranks = shapes[i][0];
        const struct fake_wire_count count = fake_wire_run(ranks, shapes[i][1], MOST, 60, body, context);
        assert_true(count.longest <= MOST);
        assert_true(ranks == 1 || count.messages > ranks);
    }
}

static void reductions_over_any_wire(void **state) {
    (void)state;
    over_all_shapes(collectives_reduce, NULL);
}

static void moves_over_any_wire(void **state) {
    (void)state;
    over_all_shapes(collectives_move, NULL);
}

static void calls_end_later_over_any_wire(void **state) {
    (void)state;
    for (int locals = 1; locals <= 4; locals *= 2)
        fake_wire_run(4, locals, MOST, 60, collectives_begin, NULL);
}

static void large_data_over_any_wire(void **state) {
    (void)state;
    int64_t count = 300001;
    fake_wire_run(2, 1, 1 << 20, 60, collectives_large, &count);
    fake_wire_run(4, 2, 1 << 20, 60, collectives_large, &count);
}

// Members of one node need no messages but those that open groups and end the world.
static void stays_on_its_node(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    for (int i = 0; c && i < *(const int *)mate->context; i++) {
        float x = 1;
        teammate_failed(mate, comm_all_reduce(c, &x, &x, 1, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error), &error);
    }
    communicator_free(c);
}

static void a_node_needs_no_messages(void **state) {
    (void)state;
    int few = 1, many = 100;
    const int64_t less = fake_wire_run(3, 3, MOST, 60, stays_on_its_node, &few).messages;
    assert_int_equal(fake_wire_run(3, 3, MOST, 60, stays_on_its_node, &many).messages, less);
    assert_true(fake_wire_run(3, 1, MOST, 60, stays_on_its_node, &many).messages > less + 99 * 6);
}

static void sends_along(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    enum { COUNT = 20000 };
    char *data = mem_alloc(COUNT);
    for (int64_t bytes = 0; c && bytes <= COUNT && !mate->wrong[0]; bytes += 1 + bytes * 3) {
        for (int64_t i = 0; i < bytes && mate->rank == 0; i++)
            data[i] = (char)(i * 7 + bytes);
        if (mate->rank > 0)
            teammate_failed(mate, comm_receive(c, data, bytes, mate->rank - 1, &error), &error);
        if (mate->rank + 1 < mate->ranks)
            teammate_failed(mate, comm_send(c, data, bytes, mate->rank + 1, &error), &error);
        for (int64_t i = 0; i < bytes; i++)
            if (data[i] != (char)(i * 7 + bytes))
                teammate_wrong(mate, "byte %lld of %lld", (long long)i, (long long)bytes);
    }
    free(data);
    communicator_free(c);
}

static void sends_over_any_wire(void **state) {
    (void)state;
    over_all_shapes(sends_along, NULL);
}

// ---- failures

static void calls_something_else(struct teammate *mate) {
    trireme_error error = {0};
    struct communicator *c = teammate_open(mate);
    struct comm_failure failure;
    float x[6] = {0}, y[18];
    if (c && mate->rank == 1)
        comm_all_gather(c, x, y, 6, DTYPE_F32, &error);
    else if (c)
        comm_all_reduce(c, x, y, 6, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error);
    TEAMMATE_LOST(mate, &error, "rank 0 calls all_reduce of 6 f32 (sum), but rank 1 calls all_gather of 6 f32");
    if (!c || !communicator_failure(c, &failure) || failure.cause != COMM_DIFFERS || failure.rank != 1)
        teammate_wrong(mate, "the failure does not name rank 1");
    if (world_set_policy(mate->world, WORLD_GOES_ON))
        teammate_wrong(mate, "a world of processes goes on without one");
    communicator_free(c);
}

// Others may see it before they have opened the group.
static void is_cut_off(struct teammate *mate) {
    trireme_error error = {0};
    struct communicator *c = NULL;
    struct comm_failure failure;
    float *x = mem_alloc(20000 * sizeof *x);
    communicator_open(&c, mate->world, mate->rank, 3, (int[]){0, 1, 2}, "all", &error);
    if (c && mate->rank == 1)
        fake_wire_cut(mate);
    if (c)
        comm_all_reduce(c, x, x, 20000, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error);
    TEAMMATE_LOST(mate, &error, "the fake wire says: the fake cable is cut");
    if (!world_failure(mate->world, &failure) || failure.cause != COMM_BROKEN)
        teammate_wrong(mate, "the world is not broken");
    communicator_free(c);
    free(x);
}

static void never_calls(struct teammate *mate) {
    trireme_error error = {0};
    struct communicator *c = teammate_open(mate);
    struct comm_failure failure;
    world_deadline(mate->world, 0.3);
    if (c && mate->rank == 2)
        teammate_await_break(mate);
    if (c)
        comm_barrier(c, &error);
    TEAMMATE_LOST(mate, &error, "waited 0.3 s in barrier for rank 2");
    if (!world_failure(mate->world, &failure) || failure.cause != COMM_LOST || failure.rank != 2)
        teammate_wrong(mate, "the failure does not name rank 2");
    communicator_free(c);
}

static void failures_reach_all_over_any_wire(void **state) {
    (void)state;
    for (int locals = 1; locals <= 3; locals += 2)
        fake_wire_run(3, locals, MOST, 30, calls_something_else, NULL);
    fake_wire_run(3, 1, MOST, 30, is_cut_off, NULL);
    fake_wire_run(3, 1, MOST, 30, never_calls, NULL);
    fake_wire_run(3, 3, MOST, 30, never_calls, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_over_any_wire),         cmocka_unit_test(moves_over_any_wire),
        cmocka_unit_test(calls_end_later_over_any_wire),    cmocka_unit_test(large_data_over_any_wire),
        cmocka_unit_test(a_node_needs_no_messages),         cmocka_unit_test(sends_over_any_wire),
        cmocka_unit_test(failures_reach_all_over_any_wire),
    };
    cmocka_set_test_filter(getenv("TEAM_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
