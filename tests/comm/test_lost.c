// Ranks that come late or never, that are stopped, or whose world is broken.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "support/team.h"
#include "support/test.h"

// All have deadlines that are long until they have met.
enum { START_SECONDS = 30 };

static struct communicator *open_with_deadline(struct teammate *mate, double seconds) {
    struct communicator *c = teammate_open(mate);
    world_deadline(mate->world, seconds);
    return c;
}

static void comes_never(struct teammate *mate) {
    trireme_error error = {0};
    float *data = mem_alloc(100000 * sizeof *data);
    struct communicator *c = open_with_deadline(mate, 0.5);
    int64_t start = clock_now();
    bool absent = mate->rank == 1 || mate->rank == 3;
    if (c && absent)
        teammate_await_break(mate);
    if (c)
        comm_all_reduce(c, data, data, *(int *)mate->context, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error);
    double seconds = (double)(clock_now() - start) * 1e-9;
    char own[32];
    snprintf(own, sizeof own, "rank %d", mate->rank);
    TEAMMATE_LOST(mate, &error, "group all: ", own, "all_reduce of", "waited 0.5 s in", "for ranks 1, 3");
    if (seconds > 5)
        teammate_wrong(mate, "took %g s", seconds);
    start = clock_now();
    world_deadline(mate->world, START_SECONDS);
    if (c && comm_barrier(c, &error) == TRIREME_OK)
        teammate_wrong(mate, "the world goes on");
    if (clock_now() - start > START_SECONDS * INT64_C(1000000000) / 2)
        teammate_wrong(mate, "a call of a broken world waits");
    communicator_free(c);
    free(data);
}

static void a_deadline_names_group_rank_and_who_is_missing(void **state) {
    (void)state;
    team_run(4, START_SECONDS, comes_never, &(int){10});
    team_run(4, START_SECONDS, comes_never, &(int){100000});
}

static void opens_never(struct teammate *mate) {
    trireme_error error = {0};
    struct communicator *c = open_with_deadline(mate, 0.3);
    if (c && mate->rank != 2) {
        teammate_open_members(mate, 3, (int[]){0, 1, 2}, "dp", &error);
        TEAMMATE_LOST(mate, &error, "group dp: rank", "in open for rank 2");
    }
    communicator_free(c);
}

static void sends_to_nobody(struct teammate *mate) {
    trireme_error error = {0};
    char byte = 0;
    struct communicator *c = open_with_deadline(mate, 0.3);
    if (c && mate->rank == 0) {
        comm_send(c, &byte, 1, 2, &error);
        TEAMMATE_LOST(mate, &error, "group all: rank 0", "send of 1 bytes", "for rank 2");
    } else if (c && mate->rank == 1) {
        comm_receive(c, &byte, 1, 2, &error);
        TEAMMATE_LOST(mate, &error, "group all: rank 1", "receive of 1 bytes", "for rank 2");
    }
    communicator_free(c);
}

static void deadlines_hold_for_opening_and_sending(void **state) {
    (void)state;
    team_run(3, START_SECONDS, opens_never, NULL);
    team_run(3, START_SECONDS, sends_to_nobody, NULL);
}

enum { LIMIT_MS = 300, SOON_MS = 500, STOP_MS = 1500 };

static void *want_soon(void *wanted) {
    team_sleep_ms(SOON_MS);
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
    struct communicator *c = open_with_deadline(mate, 1e-3 * LIMIT_MS);
    _Atomic int64_t wanted = 0;
    if (c && mate->rank == 0)
        communicator_wanted(c, which == 1, &wanted);
    if (c && mate->rank == 1)
        team_sleep_ms(3 * LIMIT_MS);
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
        TEAMMATE_LOST(mate, &error, "group all: rank 0 waited 0.3 s in", "for rank 1");
        pthread_join(soon, NULL);
        if (clock_now() - began < (LIMIT_MS + SOON_MS) * 1000000LL)
            teammate_wrong(mate, "the deadline came too soon");
        if (clock_now() - began > 10 * (LIMIT_MS + SOON_MS) * 1000000LL)
            teammate_wrong(mate, "the deadline came too late");
    }
    if (c && mate->rank == 1) // is there, and calls nothing
        teammate_await_break(mate);
    communicator_free(c);
    free(data);
}

static void deadlines_count_from_when_a_call_is_wanted(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++)
        team_run(2, START_SECONDS, is_not_wanted_yet, &which);
}

// Rank 1 is later than others may be, once, and then does not come.
static void is_waited_for_longer(struct teammate *mate) {
    enum { TIMES = 4 };
    const int which = *(const int *)mate->context;
    trireme_error error = {0};
    char *data = calloc(100000, 1);
    struct communicator *c = open_with_deadline(mate, 1e-3 * LIMIT_MS);
    if (c && mate->rank == 0)
        communicator_patience(c, TIMES);
    if (c && mate->rank == 1)
        team_sleep_ms(2 * LIMIT_MS);
    if (c && late_call(c, which, mate->rank, data, &error) != TRIREME_OK)
        teammate_wrong(mate, "the rank is lost: %s", error.message);
    if (c && mate->rank == 0)
        communicator_patience(c, 1);
    if (c && mate->rank == 0 && late_call(c, which, 0, data, &error) == TRIREME_OK)
        teammate_wrong(mate, "the rank is never lost");
    if (c && mate->rank == 0)
        TEAMMATE_LOST(mate, &error, "group all: rank 0 waited 0.3 s in", "for rank 1");
    if (c && mate->rank == 1)
        teammate_await_break(mate);
    communicator_free(c);
    free(data);
}

static void members_may_be_late_for_long(void **state) {
    (void)state;
    for (int which = 1; which < 4; which += 2)
        team_run(2, START_SECONDS, is_waited_for_longer, &which);
}

// Rank 1 calls long after rank 0 has begun, and before that one waits for it.
static void begins_early(struct teammate *mate) {
    const int64_t count = *(const int *)mate->context;
    trireme_error error = {0};
    int32_t *data = mem_alloc((size_t)count * sizeof *data);
    data[0] = 1;
    struct communicator *c = open_with_deadline(mate, 1e-3 * LIMIT_MS);
    trireme_status status = TRIREME_OK;
    if (c && mate->rank == 0) {
        struct comm_handle handle = comm_begin_all_reduce(c, data, data, count, DTYPE_I32, REDUCE_SUM, DTYPE_I32);
        team_sleep_ms(4 * LIMIT_MS);
        status = comm_end(handle, &error);
    } else if (c) {
        team_sleep_ms(3 * LIMIT_MS);
        status = comm_all_reduce(c, data, data, count, DTYPE_I32, REDUCE_SUM, DTYPE_I32, &error);
    }
    if (!teammate_failed(mate, status, &error) && data[0] != 2)
        teammate_wrong(mate, "a sum is %d", data[0]);
    communicator_free(c);
    free(data);
}

static void calls_that_are_begun_are_not_late_before_their_end(void **state) {
    (void)state;
    team_run(2, START_SECONDS, begins_early, &(int){10});
    team_run(2, START_SECONDS, begins_early, &(int){100000});
}

// Stops this process, as a shell or a batch system does.
static pid_t stop_for_a_while(void) {
    pid_t process = getpid(), helper = fork();
    if (helper)
        return helper;
    team_sleep_ms(100);
    kill(process, SIGSTOP);
    team_sleep_ms(STOP_MS);
    kill(process, SIGCONT);
    _exit(0);
}

// Rank 1 is at work when all are stopped, and for a moment after that, while rank 0 waits for it.
static void is_stopped_with_all(struct teammate *mate) {
    trireme_error error = {0};
    char *data = calloc(100000, 1);
    struct communicator *c = open_with_deadline(mate, 1);
    int64_t began = clock_now();
    pid_t helper = c && (mate->rank == 1 || team_processes()) ? stop_for_a_while() : 0;
    if (c && mate->rank == 1)
        while (waitpid(helper, NULL, WNOHANG) == 0)
            team_sleep_ms(10);
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
        team_run(2, START_SECONDS, is_stopped_with_all, &which);
}

static void is_woken(struct teammate *mate) {
    trireme_error error = {0};
    char byte = 0;
    struct communicator *c = teammate_open(mate);
    if (c && mate->rank == 0) {
        team_sleep_ms(200);
        world_break(mate->world, COMM_BROKEN, -1, "the captain has gone overboard");
        world_break(mate->world, COMM_BROKEN, -1, "something else");
        comm_barrier(c, &error);
    } else if (c && mate->rank == 1) {
        comm_receive(c, &byte, 1, 0, &error);
    } else if (c && mate->rank == 2) {
        comm_send(c, &byte, 1, 0, &error);
    } else if (c) {
        comm_barrier(c, &error);
    }
    TEAMMATE_LOST(mate, &error, "the captain has gone overboard");
    if (teammate_open_members(mate, 1, &mate->rank, "self", &error) == TRIREME_OK)
        teammate_wrong(mate, "opens a group in a broken world");
    TEAMMATE_LOST(mate, &error, "the captain has gone overboard");
    communicator_free(c);
}

static void breaking_wakes_all(void **state) {
    (void)state;
    team_run(4, 0, is_woken, NULL);
}

static void *break_soon(void *argument) {
    team_sleep_ms(1);
    world_break(argument, COMM_BROKEN, -1, "enough");
    return NULL;
}

// Buffers are freed as soon as a call has returned: no peer may still be at work on them.
static void frees_when_lost(struct teammate *mate) {
    trireme_error error = {0};
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
    TEAMMATE_LOST(mate, &error, "enough");
    communicator_free(c);
}

static void nobody_uses_a_buffer_after_its_call(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++)
        team_run(3, 30, frees_when_lost, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_names_group_rank_and_who_is_missing),
        cmocka_unit_test(deadlines_hold_for_opening_and_sending),
        cmocka_unit_test(deadlines_count_from_when_a_call_is_wanted),
        cmocka_unit_test(members_may_be_late_for_long),
        cmocka_unit_test(calls_that_are_begun_are_not_late_before_their_end),
        cmocka_unit_test(who_is_stopped_with_all_others_is_not_late),
        cmocka_unit_test(breaking_wakes_all),
        cmocka_unit_test(nobody_uses_a_buffer_after_its_call),
    };
    cmocka_set_test_filter(getenv("TEAM_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
