// Ranks that call different things, come late or not at all, or crowd on few cores.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "support/team.h"
#include "support/test.h"

static void expect_words(struct teammate *mate, const trireme_error *error, const char *const *words, size_t count) {
    if (error->status != TRIREME_ERROR_LOST)
        teammate_wrong(mate, "status %d: %s", error->status, error->message);
    for (size_t i = 0; i < count; i++)
        if (!strstr(error->message, words[i]))
            teammate_wrong(mate, "\"%s\" is not in \"%s\"", words[i], error->message);
}
#define EXPECT_WORDS(mate, error, ...) \
    expect_words(mate, error, (const char *const[]){__VA_ARGS__}, ARRAY_LENGTH(((const char *const[]){__VA_ARGS__})))

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// ---- mismatched calls

// What ranks 0 and 2 of three call, and what rank 1 calls.
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
    EXPECT_WORDS(mate, &error, "group all", "rank 1", mismatch->words, mismatch->other_words);
    if (c && comm_barrier(c, &error) == TRIREME_OK)
        teammate_wrong(mate, "the world goes on");
    EXPECT_WORDS(mate, &error, "barrier", mismatch->other_words);
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
    EXPECT_WORDS(mate, &error, "rank 0 sends 5 bytes to rank 1, which expects 6");
    communicator_free(c);
}

static void a_receive_of_another_size_than_the_send_is_refused(void **state) {
    (void)state;
    team_run(2, 30, mismatched_sizes, NULL);
}

// ---- opening

static trireme_status open_members(struct teammate *mate, int size, const int *members, const char *name,
                                   trireme_error *error) {
    struct communicator *c = NULL;
    trireme_status status = communicator_open(&c, mate->world, mate->rank, size, members, name, error);
    communicator_free(c);
    return status;
}

static void opens_other_groups(struct teammate *mate) {
    trireme_error error = {0};
    int both[] = {0, 1}, three[] = {0, 1, 2};
    if (mate->rank == 2)
        return;
    if (mate->context)
        open_members(mate, 2, both, mate->rank ? "dp" : "tp", &error);
    else
        open_members(mate, mate->rank ? 3 : 2, mate->rank ? three : both, "tp", &error);
    EXPECT_WORDS(mate, &error, "tp (ranks 0, 1)", mate->context ? "dp (ranks 0, 1)" : "tp (ranks 0, 1, 2)",
                 "while rank");
}

static void opens_nonsense(struct teammate *mate) {
    static const int members[][2] = {{0, 0}, {0, 3}, {1, 1}};
    static const char *const words[] = {"0 is there twice", "3 is no rank", "1 is there twice"};
    trireme_error error = {0};
    size_t which = (size_t)(mate->context ? *(int *)mate->context : 0);
    if (mate->rank == 0)
        open_members(mate, 2, members[which], "tp", &error);
    else
        open_members(mate, 2, (int[]){0, 1}, "tp", &error);
    EXPECT_WORDS(mate, &error, "tp", words[which]);
}

static void opens_without_itself(struct teammate *mate) {
    trireme_error error = {0};
    open_members(mate, 1, (int[]){1 - mate->rank}, "tp", &error);
    EXPECT_WORDS(mate, &error, "tp", "in which it is not");
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

// ---- late and lost

static void comes_never(struct teammate *mate) {
    trireme_error error = {0};
    float *data = mem_alloc(100000 * sizeof *data);
    struct communicator *c = teammate_open(mate);
    int64_t start = clock_now();
    bool absent = mate->rank == 1 || mate->rank == 3;
    if (c && absent)
        sleep_ms(1500); // and then finds the world broken
    if (c)
        comm_all_reduce(c, data, data, *(int *)mate->context, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error);
    double seconds = (double)(clock_now() - start) * 1e-9;
    char own[32];
    snprintf(own, sizeof own, "rank %d", mate->rank);
    EXPECT_WORDS(mate, &error, "group all: ", own, "all_reduce of", "waited 0.5 s in", "for ranks 1, 3");
    if (seconds > 5)
        teammate_wrong(mate, "took %g s", seconds);
    start = clock_now();
    if (c && comm_barrier(c, &error) == TRIREME_OK)
        teammate_wrong(mate, "the world goes on");
    if (clock_now() - start > 400000000)
        teammate_wrong(mate, "a call of a broken world waits");
    communicator_free(c);
    free(data);
}

static void a_deadline_names_group_rank_and_who_is_missing(void **state) {
    (void)state;
    team_run(4, 0.5, comes_never, &(int){10});
    team_run(4, 0.5, comes_never, &(int){100000});
}

static void opens_never(struct teammate *mate) {
    trireme_error error = {0};
    if (mate->rank == 2)
        return;
    open_members(mate, 3, (int[]){0, 1, 2}, "dp", &error);
    EXPECT_WORDS(mate, &error, "group dp: rank", "in open for rank 2");
}

static void sends_to_nobody(struct teammate *mate) {
    trireme_error error = {0};
    char byte = 0;
    struct communicator *c = teammate_open(mate);
    if (c && mate->rank == 0) {
        comm_send(c, &byte, 1, 2, &error);
        EXPECT_WORDS(mate, &error, "group all: rank 0", "send of 1 bytes", "for rank 2");
    } else if (c && mate->rank == 1) {
        comm_receive(c, &byte, 1, 2, &error);
        EXPECT_WORDS(mate, &error, "group all: rank 1", "receive of 1 bytes", "for rank 2");
    }
    communicator_free(c);
}

static void deadlines_hold_for_opening_and_sending(void **state) {
    (void)state;
    team_run(3, 0.3, opens_never, NULL);
    team_run(3, 0.3, sends_to_nobody, NULL);
}

enum { LIMIT_MS = 300, SOON_MS = 500, STOP_MS = 1500 };

static void *want_soon(void *wanted) {
    sleep_ms(SOON_MS);
    atomic_store((_Atomic int64_t *)wanted, clock_now());
    return NULL;
}

// What rank 1 calls late, as `which`: a receive, a send, a collective of few or of many bytes.
static trireme_status late_call(struct communicator *c, int which, int rank, char *data, trireme_error *error) {
    if (which == 0)
        return rank ? comm_send(c, data, 8, 0, error) : comm_receive(c, data, 8, 1, error);
    if (which == 1)
        return rank ? comm_receive(c, data, 8, 0, error) : comm_send(c, data, 8, 1, error);
    return comm_broadcast(c, data, which == 2 ? 8 : 100000, 1, error);
}

static void is_not_wanted_yet(struct teammate *mate) {
    const int which = *(const int *)mate->context;
    trireme_error error = {0};
    char *data = calloc(100000, 1);
    struct communicator *c = teammate_open(mate);
    _Atomic int64_t wanted = 0;
    if (c && mate->rank == 0)
        communicator_wanted(c, which == 1, &wanted);
    if (c && mate->rank == 1)
        sleep_ms(3 * LIMIT_MS);
    if (c && late_call(c, which, mate->rank, data, &error) != TRIREME_OK)
        teammate_wrong(mate, "a call that nobody waits for is late: %s", error.message);
    pthread_t soon;
    atomic_store(&wanted, 0);
    int64_t began = clock_now();
    if (c && mate->rank == 0)
        pthread_create(&soon, NULL, want_soon, &wanted);
    if (c && mate->rank == 0 && late_call(c, which, 0, data, &error) == TRIREME_OK)
        teammate_wrong(mate, "a call that is wanted is never late");
    if (c && mate->rank == 0) {
        EXPECT_WORDS(mate, &error, "group all: rank 0 waited 0.3 s in", "for rank 1");
        pthread_join(soon, NULL);
        if (clock_now() - began < (LIMIT_MS + SOON_MS) * 1000000LL)
            teammate_wrong(mate, "the deadline came too soon");
        if (clock_now() - began > 10 * (LIMIT_MS + SOON_MS) * 1000000LL)
            teammate_wrong(mate, "the deadline came too late");
    }
    if (c && mate->rank == 1) // is there, and calls nothing
        sleep_ms(2 * (LIMIT_MS + SOON_MS));
    communicator_free(c);
    free(data);
}

static void deadlines_count_from_when_a_call_is_wanted(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++)
        team_run(2, 1e-3 * LIMIT_MS, is_not_wanted_yet, &which);
}

// Of this process, as a shell or a batch system does it.
static pid_t stop_for_a_while(void) {
    pid_t process = getpid(), helper = fork();
    if (helper)
        return helper;
    sleep_ms(100);
    kill(process, SIGSTOP);
    sleep_ms(STOP_MS);
    kill(process, SIGCONT);
    _exit(0);
}

// Rank 1 is at work when all are stopped, and for a moment after that, while rank 0 waits for it.
static void is_stopped_with_all(struct teammate *mate) {
    trireme_error error = {0};
    char *data = calloc(100000, 1);
    struct communicator *c = teammate_open(mate);
    int64_t began = clock_now();
    pid_t helper = c && (mate->rank == 1 || team_processes()) ? stop_for_a_while() : 0;
    if (c && mate->rank == 1)
        while (waitpid(helper, NULL, WNOHANG) == 0)
            sleep_ms(10);
    if (c && late_call(c, *(const int *)mate->context, mate->rank, data, &error) != TRIREME_OK)
        teammate_wrong(mate, "a rank that was stopped with all others is late: %s", error.message);
    if (clock_now() - began < STOP_MS * 1000000LL)
        teammate_wrong(mate, "nobody was stopped");
    communicator_free(c);
    free(data);
}

static void who_is_stopped_with_all_others_is_not_late(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++)
        team_run(2, 1, is_stopped_with_all, &which);
}

static void is_woken(struct teammate *mate) {
    trireme_error error = {0};
    char byte = 0;
    struct communicator *c = teammate_open(mate);
    if (c && mate->rank == 0) {
        sleep_ms(200);
        world_break(mate->world, "the captain has gone overboard");
        world_break(mate->world, "something else");
        comm_barrier(c, &error);
    } else if (c && mate->rank == 1) {
        comm_receive(c, &byte, 1, 0, &error);
    } else if (c && mate->rank == 2) {
        comm_send(c, &byte, 1, 0, &error);
    } else if (c) {
        comm_barrier(c, &error);
    }
    EXPECT_WORDS(mate, &error, "the captain has gone overboard");
    if (open_members(mate, 1, &mate->rank, "self", &error) == TRIREME_OK)
        teammate_wrong(mate, "opens a group in a broken world");
    EXPECT_WORDS(mate, &error, "the captain has gone overboard");
    communicator_free(c);
}

static void breaking_wakes_all(void **state) {
    (void)state;
    team_run(4, 0, is_woken, NULL);
}

static void *break_soon(void *argument) {
    sleep_ms(1);
    world_break(argument, "enough");
    return NULL;
}

// Buffers are gone as soon as a call has returned: no peer may still be at work on them.
static void frees_when_lost(struct teammate *mate) {
    trireme_error error;
    pthread_t breaker;
    struct communicator *c = teammate_open(mate);
    enum { COUNT = 60000 };
    trireme_status status = TRIREME_OK;
    for (int i = 0; c && status == TRIREME_OK; i++) {
        float *in = mem_alloc(COUNT * sizeof *in), *out = mem_alloc(COUNT * sizeof *out);
        if (i % 4 == 0)
            status = comm_all_reduce(c, in, out, COUNT, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error);
        else if (i % 4 == 1)
            status = comm_all_gather(c, in, out, COUNT / 3, DTYPE_F32, &error);
        else if (i % 4 == 2)
            status = comm_reduce_scatter(c, in, out, COUNT / 3, DTYPE_F32, REDUCE_SUM, DTYPE_F32, false, &error);
        else if (mate->rank == 2)
            status = comm_receive(c, out, 4 * COUNT, i / 4 % 2, &error);
        else if (mate->rank == i / 4 % 2)
            status = comm_send(c, in, 4 * COUNT, 2, &error);
        free(in);
        free(out);
        if (mate->rank == 0 && i == 0)
            pthread_create(&breaker, NULL, break_soon, mate->world);
    }
    if (c && mate->rank == 0)
        pthread_join(breaker, NULL);
    communicator_free(c);
}

static void nobody_uses_a_buffer_after_its_call(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++)
        team_run(3, 30, frees_when_lost, NULL);
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
            // In another order every time, whoever sends first.
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
            sleep_ms(100);
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
            sleep_ms((round * 31 + mate->rank * 17) % 5);
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
        cmocka_unit_test(a_deadline_names_group_rank_and_who_is_missing),
        cmocka_unit_test(deadlines_hold_for_opening_and_sending),
        cmocka_unit_test(deadlines_count_from_when_a_call_is_wanted),
        cmocka_unit_test(who_is_stopped_with_all_others_is_not_late),
        cmocka_unit_test(breaking_wakes_all),
        cmocka_unit_test(nobody_uses_a_buffer_after_its_call),
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
