// Ranks that call different things, that have many calls at once, or that crowd on few cores.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "support/team.h"
#include "support/test.h"

// ---- mismatched calls

// What ranks 0 and 2 of three ranks call, and what rank 1 calls.
struct mismatch {
    int call, other;
    const char *words, *other_words;
};

static trireme_status one_of_many(struct communicator *c, int which, float *a, float *b, trireme_error *error) {
    static const int64_t sizes[] = {4, 4, 4}, offsets[] = {0, 4, 8}, longer[] = {4, 4, 8};
    switch (which) {
    case 0:
        return comm_all_reduce(c, a, b, 6, DTYPE_F32, REDUCE_SUM, DTYPE_F32, error);
    case 1:
        return comm_all_reduce(c, a, b, 5, DTYPE_F32, REDUCE_SUM, DTYPE_F32, error);
    case 2:
        return comm_all_reduce(c, a, b, 6, DTYPE_I32, REDUCE_SUM, DTYPE_I32, error);
    case 3:
        return comm_all_reduce(c, a, b, 6, DTYPE_F32, REDUCE_MAX, DTYPE_F32, error);
    case 4:
        return comm_all_reduce(c, a, b, 6, DTYPE_F32, REDUCE_SUM, DTYPE_BF16, error);
    case 5:
        return comm_all_gather(c, a, b, 6, DTYPE_F32, error);
    case 6:
        return comm_reduce_scatter(c, a, b, 6, DTYPE_F32, REDUCE_SUM, DTYPE_F32, false, error);
    case 7:
        return comm_broadcast(c, a, 24, 0, error);
    case 8:
        return comm_broadcast(c, a, 24, 1, error);
    case 9:
        return comm_all_to_all(c, a, b, 4, error);
    case 10:
        return comm_barrier(c, error);
    case 11:
        return comm_all_to_all_v(c, a, offsets, sizes, b, offsets, sizes, error);
    case 12:
        return comm_all_to_all_v(c, a, offsets, longer, b, offsets, sizes, error);
    default:
        return comm_all_reduce(c, a, b, 100000, DTYPE_F32, REDUCE_SUM, DTYPE_F32, error);
    }
}

static void mismatched(struct teammate *mate) {
    const struct mismatch *mismatch = mate->context;
    float *a = mem_alloc(100000 * sizeof *a), *b = mem_alloc(100000 * sizeof *b);
    trireme_error error = {0};
    struct communicator *c = teammate_open(mate);
    if (c && one_of_many(c, 13, a, b, &error) == TRIREME_OK)
        one_of_many(c, mate->rank == 1 ? mismatch->other : mismatch->call, a, b, &error);
    TEAMMATE_LOST(mate, &error, "group all", "rank 1", mismatch->words, mismatch->other_words);
    if (c && comm_barrier(c, &error) == TRIREME_OK)
        teammate_wrong(mate, "the world goes on");
    TEAMMATE_LOST(mate, &error, "barrier", mismatch->other_words);
    communicator_free(c);
    free(a);
    free(b);
}

static void mismatched_calls_break_the_world_and_are_named(void **state) {
    (void)state;
    const struct mismatch mismatches[] = {
        {0, 1, "rank 0 calls all_reduce of 6 f32 (sum)", "rank 1 calls all_reduce of 5 f32 (sum)"},
        {0, 2, "all_reduce of 6 f32 (sum)", "all_reduce of 6 i32 (sum)"},
        {0, 3, "all_reduce of 6 f32 (sum)", "all_reduce of 6 f32 (max)"},
        {0, 4, "all_reduce of 6 f32 (sum)", "all_reduce of 6 f32 (sum, wire bf16)"},
        {0, 13, "all_reduce of 6 f32 (sum)", "all_reduce of 100000 f32 (sum)"},
        {5, 6, "all_gather of 6 f32", "reduce_scatter of 6 f32 (sum)"},
        {7, 8, "broadcast of 24 bytes from index 0", "broadcast of 24 bytes from index 1"},
        {9, 10, "all_to_all of 4 bytes", "barrier"},
        {11, 9, "all_to_all_v", "all_to_all of 4 bytes"},
        {11, 12, "rank 1 sends 8 bytes to rank 2, which expects 4", "all_to_all_v"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(mismatches); i++)
        team_run(3, 30, mismatched, (void *)&mismatches[i]);
}

static void mismatched_sizes(struct teammate *mate) {
    char data[8] = {0};
    trireme_error error = {0};
    struct communicator *c = teammate_open(mate);
    if (c && mate->rank == 0)
        comm_send(c, data, 5, 1, &error);
    else if (c)
        comm_receive(c, data, 6, 0, &error);
    TEAMMATE_LOST(mate, &error, "rank 0 sends 5 bytes to rank 1, which expects 6");
    communicator_free(c);
}

static void a_receive_of_another_size_than_the_send_is_refused(void **state) {
    (void)state;
    team_run(2, 30, mismatched_sizes, NULL);
}

// ---- opening

static void opens_other_groups(struct teammate *mate) {
    trireme_error error = {0};
    int both[] = {0, 1}, three[] = {0, 1, 2};
    if (mate->rank == 2)
        return;
    if (mate->context)
        teammate_open_members(mate, 2, both, mate->rank ? "dp" : "tp", &error);
    else
        teammate_open_members(mate, mate->rank ? 3 : 2, mate->rank ? three : both, "tp", &error);
    TEAMMATE_LOST(mate, &error, "tp (ranks 0, 1)", mate->context ? "dp (ranks 0, 1)" : "tp (ranks 0, 1, 2)",
                  "while rank");
}

static void opens_nonsense(struct teammate *mate) {
    static const int members[][2] = {{0, 0}, {0, 3}, {1, 1}};
    static const char *const words[] = {"0 is there twice", "3 is no rank", "1 is there twice"};
    trireme_error error = {0};
    size_t which = (size_t)(mate->context ? *(int *)mate->context : 0);
    if (mate->rank == 0)
        teammate_open_members(mate, 2, members[which], "tp", &error);
    else
        teammate_open_members(mate, 2, (int[]){0, 1}, "tp", &error);
    TEAMMATE_LOST(mate, &error, "tp", words[which]);
}

static void opens_without_itself(struct teammate *mate) {
    trireme_error error = {0};
    teammate_open_members(mate, 1, (int[]){1 - mate->rank}, "tp", &error);
    TEAMMATE_LOST(mate, &error, "tp", "in which it is not");
}

static void groups_that_do_not_match_are_refused_at_once(void **state) {
    (void)state;
    int64_t start = clock_now();
    int one = 1;
    team_run(3, 60, opens_other_groups, NULL);
    team_run(3, 60, opens_other_groups, &one);
    for (int i = 0; i < 3; i++)
        team_run(2, 60, opens_nonsense, &i);
    team_run(2, 60, opens_without_itself, NULL);
    assert_true(clock_now() - start < 20000000000);
}

static void opens_many(struct teammate *mate) {
    trireme_error error;
    int all[4] = {0, 1, 2, 3}, pair[2] = {mate->rank & ~1, mate->rank | 1};
    struct communicator *c[6];
    for (int i = 0; i < 6; i++) {
        const int *members = i % 2 ? pair : all;
        if (teammate_failed(
                mate,
                communicator_open(&c[i], mate->world, mate->rank, i % 2 ? 2 : 4, members, i < 4 ? "a" : "b", &error),
                &error))
            return;
    }
    for (int i = 6; i-- > 0;) {
        int64_t sum = 0;
        int32_t x = 1 << mate->rank;
        teammate_failed(mate, comm_all_reduce(c[i], &x, &x, 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32, &error), &error);
        for (int m = 0; m < (i % 2 ? 2 : 4); m++)
            sum += 1 << (i % 2 ? pair[m] : all[m]);
        if (x != sum || communicator_index(c[i]) != mate->rank % communicator_size(c[i]))
            teammate_wrong(mate, "communicator %d reaches others", i);
        communicator_free(c[i]);
    }
}

static void groups_of_one_name_are_told_apart_by_order(void **state) {
    (void)state;
    team_run(4, 60, opens_many, NULL);
}

// ---- many at once

enum { STREAMS = 3, ROUNDS = 150 };

struct stream {
    struct teammate *mate;
    struct communicator *communicator;
    int index;
    char wrong[200];
};

static void *stream_run(void *argument) {
    struct stream *s = argument;
    trireme_error error;
    int32_t *data = mem_alloc(9000 * sizeof *data);
    for (int round = 0; round < ROUNDS && !s->wrong[0]; round++) {
        int64_t count = (round * 7919 + s->index * 104729) % 9000;
        for (int i = 0; i < count; i++)
            data[i] = i + round * (s->mate->rank + 1) + s->index;
        if (comm_all_reduce(s->communicator, data, data, count, DTYPE_I32, REDUCE_SUM, DTYPE_I32, &error) != TRIREME_OK)
            snprintf(s->wrong, sizeof s->wrong, "%.150s", error.message);
        for (int i = 0; i < count && !s->wrong[0]; i++)
            if (data[i] != 4 * i + 10 * round + 4 * s->index)
                snprintf(s->wrong, sizeof s->wrong, "stream %d, round %d: element %d", s->index, round, i);
    }
    free(data);
    return NULL;
}

static void streams(struct teammate *mate) {
    struct stream stream[STREAMS];
    pthread_t threads[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        stream[i] = (struct stream){.mate = mate, .communicator = teammate_open(mate), .index = i};
    for (int i = 0; i < STREAMS && !mate->wrong[0]; i++)
        pthread_create(&threads[i], NULL, stream_run, &stream[i]);
    for (int i = 0; i < STREAMS; i++) {
        pthread_join(threads[i], NULL);
        if (stream[i].wrong[0])
            teammate_wrong(mate, "%s", stream[i].wrong);
        communicator_free(stream[i].communicator);
    }
}

static void communicators_are_independent(void **state) {
    (void)state;
    team_run(4, 60, streams, NULL);
}

static void letters(struct teammate *mate) {
    trireme_error error = {0};
    struct communicator *c = teammate_open(mate);
    int64_t *data = mem_alloc(4000 * sizeof *data);
    for (int round = 0; c && round < 200 && !mate->wrong[0]; round++) {
        int64_t count = round * 37 % 4000;
        if (mate->rank > 0) {
            for (int64_t i = 0; i < count; i++)
                data[i] = mate->rank * 1000000 + round * 1000 + i;
            teammate_failed(mate, comm_send(c, data, 8 * count, 0, &error), &error);
        } else {
            // In another order each time, and with either rank sending first.
            for (int k = 0; k < 3; k++) {
                int from = 1 + (k + round) % 3;
                teammate_failed(mate, comm_receive(c, data, 8 * count, from, &error), &error);
                for (int64_t i = 0; i < count; i++)
                    if (data[i] != from * 1000000 + round * 1000 + i)
                        teammate_wrong(mate, "round %d: not what rank %d sent", round, from);
            }
        }
    }
    // Around the ring, even ranks sending first, with a collective now and then.
    for (int round = 0; c && round < 100 && !mate->wrong[0]; round++) {
        int64_t out = mate->rank * 1000 + round, in = 0;
        int next = (mate->rank + 1) % mate->ranks, last = (mate->rank + mate->ranks - 1) % mate->ranks;
        for (int k = 0; k < 2; k++)
            if ((mate->rank + k) % 2 == 0)
                teammate_failed(mate, comm_send(c, &out, 8, next, &error), &error);
            else
                teammate_failed(mate, comm_receive(c, &in, 8, last, &error), &error);
        if (in != last * 1000 + round)
            teammate_wrong(mate, "round %d of the ring", round);
        if (round % 10 == 0)
            teammate_failed(mate, comm_barrier(c, &error), &error);
    }
    free(data);
    communicator_free(c);
}

static void sends_and_receives_match_in_order(void **state) {
    (void)state;
    team_run(4, 60, letters, NULL);
}

// ---- time

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void crowd(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    float *data = mem_alloc(20000 * sizeof *data);
    for (int round = 0; c && round < 200 && !mate->wrong[0]; round++)
        teammate_failed(
            mate, comm_all_reduce(c, data, data, round % 2 ? 20000 : 20, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error),
            &error);
    free(data);
    communicator_free(c);
}

static void sixteen_ranks_on_two_cores_make_progress(void **state) {
    (void)state;
    cpu_set_t before, two;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&two);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    int64_t start = clock_now();
    team_run(16, 60, crowd, NULL);
    double seconds = (double)(clock_now() - start) * 1e-9;
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    if (seconds > 20)
        fail_msg("200 all-reduces took %g s", seconds);
}

static void waits(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    for (int i = 0; c && i < 5; i++) {
        if (mate->rank == 0)
            team_sleep_ms(100);
        teammate_failed(mate, comm_barrier(c, &error), &error);
    }
    communicator_free(c);
}

static void who_waits_sleeps(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        double start = cpu_seconds();
        team_run(ranks, 60, waits, NULL);
        double used = cpu_seconds() - start;
        if (used > 0.1)
            fail_msg("%d ranks used %g s of processor time to wait half a second", ranks, used);
    }
}

// ---- the same bits

static void rushes(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    enum { COUNT = 5000 };
    float *in = mem_alloc(COUNT * sizeof *in), *first = mem_alloc(COUNT * sizeof *in),
          *out = mem_alloc(COUNT * sizeof *in);
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)((i * 7919 + mate->rank * 104729) % 1009) / (float)(1 + (i + 31 * mate->rank) % 97);
    for (int round = 0; c && round < 40 && !mate->wrong[0]; round++) {
        // One after the other, in any order; in one piece or two, each with another algorithm.
        if ((round + mate->rank) % 3 == 0)
            team_sleep_ms((round * 31 + mate->rank * 17) % 5);
        int cut = round % 4 * 70;
        float *to = round ? out : first;
        teammate_failed(mate, comm_all_reduce(c, in, to, cut, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error), &error);
        teammate_failed(mate,
                        comm_all_reduce(c, in + cut, to + cut, COUNT - cut, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error),
                        &error);
        if (round && memcmp(first, out, COUNT * sizeof *out) != 0)
            teammate_wrong(mate, "round %d gives other bits", round);
    }
    // All ranks hold what rank 0 holds.
    memcpy(out, first, COUNT * sizeof *out);
    if (c)
        teammate_failed(mate, comm_broadcast(c, out, COUNT * sizeof *out, 0, &error), &error);
    if (memcmp(first, out, COUNT * sizeof *out) != 0)
        teammate_wrong(mate, "the bits of rank 0 are others");
    free(in);
    free(first);
    free(out);
    communicator_free(c);
}

static void repeated_sums_have_the_same_bits_on_all_ranks(void **state) {
    (void)state;
    team_run(5, 60, rushes, NULL);
}

static void a_world_has_a_rank(void **state) {
    (void)state;
    struct world *world = NULL;
    trireme_error error;
    assert_int_equal(world_create_threads(&world, 0, 1, &error), TRIREME_ERROR_USAGE);
    assert_null(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatched_calls_break_the_world_and_are_named),
        cmocka_unit_test(a_receive_of_another_size_than_the_send_is_refused),
        cmocka_unit_test(groups_that_do_not_match_are_refused_at_once),
        cmocka_unit_test(groups_of_one_name_are_told_apart_by_order),
        cmocka_unit_test(communicators_are_independent),
        cmocka_unit_test(sends_and_receives_match_in_order),
        cmocka_unit_test(sixteen_ranks_on_two_cores_make_progress),
        cmocka_unit_test(who_waits_sleeps),
        cmocka_unit_test(repeated_sums_have_the_same_bits_on_all_ranks),
        cmocka_unit_test(a_world_has_a_rank),
    };
    cmocka_set_test_filter(getenv("TEAM_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
