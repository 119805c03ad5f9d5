// A world whose ranks may go on without one: a failure is that of the communicators that it concerns.
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/clock.h"
#include "launch/ranks.h"
#include "support/team.h"
#include "support/test.h"

enum { START_SECONDS = 60 };

static struct communicator *open_some(struct teammate *mate, int size, const int *members, const char *name) {
    struct communicator *c = NULL;
    trireme_error error;
    teammate_failed(mate, communicator_open(&c, mate->world, mate->rank, size, members, name, &error), &error);
    return c;
}

// A sum over the communicator, of so few or so many elements that both kinds of algorithms are tried.
static void check_works(struct teammate *mate, struct communicator *c) {
    for (int64_t count = 1; c && count <= 50000; count *= 50000) {
        trireme_error error;
        int32_t *x = mem_alloc((size_t)count * sizeof *x);
        for (int64_t i = 0; i < count; i++)
            x[i] = 1;
        teammate_failed(mate, comm_all_reduce(c, x, x, count, DTYPE_I32, REDUCE_SUM, DTYPE_I32, &error), &error);
        for (int64_t i = 0; i < count; i++)
            if (x[i] != communicator_size(c))
                teammate_wrong(mate, "a sum of ones is %d", x[i]);
        free(x);
    }
}

static void check_failure(struct teammate *mate, struct communicator *c, trireme_status status,
                          const trireme_error *error, enum comm_cause cause, int rank) {
    struct comm_failure failure;
    if (status != TRIREME_ERROR_LOST || error->status != TRIREME_ERROR_LOST)
        teammate_wrong(mate, "a call with rank %d has status %d", rank, status);
    if (!communicator_failure(c, &failure) || failure.cause != cause || failure.rank != rank)
        teammate_wrong(mate, "the failure has cause %d and rank %d, not %d and %d: %s", failure.cause, failure.rank,
                       cause, rank, failure.reason);
    if (world_failure(mate->world, &failure))
        teammate_wrong(mate, "the world is broken: %s", failure.reason);
}

struct plan {
    pthread_barrier_t ready; // of all ranks
    pthread_barrier_t met;   // of those that stay
    enum how { LEAVES, HANGS, DIFFERS } how;
    atomic_bool goes_on; // the one that hangs
};

// What rank 3 does in place of the others' call; it takes no part in anything after that.
static void fail_as_planned(struct teammate *mate, struct communicator *pair, struct plan *plan) {
    trireme_error error = {0};
    char byte;
    switch (plan->how) {
    case LEAVES:
        communicator_free(pair);
        world_lose(mate->world, 3, "rank 3 has gone home");
        return;
    case HANGS:
        while (!atomic_load(&plan->goes_on))
            team_sleep_ms(5);
        check_failure(mate, pair, comm_barrier(pair, &error), &error, COMM_LOST, 3);
        break;
    case DIFFERS:
        check_failure(mate, pair, comm_broadcast(pair, &byte, 1, 0, &error), &error, COMM_DIFFERS, 3);
        break;
    }
    communicator_free(pair);
}

// Ranks 0 and 1 have a communicator, ranks 2 and 3 another one.
static void loses_one_of_four(struct teammate *mate) {
    struct plan *plan = mate->context;
    const int all[] = {0, 1, 2, 3}, first[] = {0, 1}, second[] = {2, 3};
    struct communicator *everybody = open_some(mate, 4, all, "all");
    if (!world_set_policy(mate->world, WORLD_GOES_ON))
        teammate_wrong(mate, "a world of threads has no such policy");
    struct communicator *pair = open_some(mate, 2, mate->rank < 2 ? first : second, "pair");
    check_works(mate, everybody);
    check_works(mate, pair);
    pthread_barrier_wait(&plan->ready);
    communicator_free(everybody);
    if (mate->rank == 3) {
        fail_as_planned(mate, pair, plan);
        return;
    }
    pthread_barrier_wait(&plan->met); // now only rank 2 calls anything
    if (mate->rank == 2) {
        trireme_error error = {0};
        if (plan->how == HANGS)
            world_deadline(mate->world, 0.3);
        trireme_status status =
            plan->how == LEAVES ? comm_receive(pair, &status, 1, 1, &error) : comm_barrier(pair, &error);
        check_failure(mate, pair, status, &error, plan->how == DIFFERS ? COMM_DIFFERS : COMM_LOST, 3);
        status = comm_barrier(pair, &error); // at once
        check_failure(mate, pair, status, &error, plan->how == DIFFERS ? COMM_DIFFERS : COMM_LOST, 3);
        communicator_free(pair);
        pair = NULL;
        world_deadline(mate->world, START_SECONDS);
        atomic_store(&plan->goes_on, true);
    }
    pthread_barrier_wait(&plan->met);
    for (int i = 0; i < 20; i++)
        check_works(mate, pair);
    // Those that are left.
    struct communicator *left = open_some(mate, 3, all, "left");
    check_works(mate, left);
    check_works(mate, pair);
    communicator_free(left);
    communicator_free(pair);
}

static void only_communicators_with_the_lost_rank_fail(void **state) {
    (void)state;
    for (enum how how = LEAVES; how <= DIFFERS; how++) {
        struct plan plan = {.how = how};
        pthread_barrier_init(&plan.ready, NULL, 4);
        pthread_barrier_init(&plan.met, NULL, 3);
        team_run(4, START_SECONDS, loses_one_of_four, &plan);
        pthread_barrier_destroy(&plan.ready);
        pthread_barrier_destroy(&plan.met);
    }
}

// A group with a rank that has left cannot be opened, by whoever comes first or waits already.
static void opens_with_the_lost(struct teammate *mate) {
    struct plan *plan = mate->context;
    trireme_error error = {0};
    const int all[] = {0, 1, 2}, both[] = {0, 1};
    struct communicator *c = open_some(mate, 3, all, "all");
    world_set_policy(mate->world, WORLD_GOES_ON);
    communicator_free(c);
    pthread_barrier_wait(&plan->ready);
    if (mate->rank == 2) {
        team_sleep_ms(50);
        world_lose(mate->world, 2, "rank 2 has gone home");
        return;
    }
    if (mate->rank == 1)
        team_sleep_ms(100);
    int64_t start = clock_now();
    if (teammate_open_members(mate, 3, all, "more", &error) == TRIREME_OK)
        teammate_wrong(mate, "opens a group with a rank that is gone");
    TEAMMATE_LOST(mate, &error, "rank 2 has gone home");
    if (clock_now() - start > START_SECONDS * INT64_C(500000000))
        teammate_wrong(mate, "waits for a rank that is gone");
    c = open_some(mate, 2, both, "both");
    check_works(mate, c);
    communicator_free(c);
}

static void no_group_is_opened_with_a_lost_rank(void **state) {
    (void)state;
    struct plan plan;
    pthread_barrier_init(&plan.ready, NULL, 3);
    team_run(3, START_SECONDS, opens_with_the_lost, &plan);
    pthread_barrier_destroy(&plan.ready);
}

// A call that is under way when a rank is lost fails as others do, and nobody works on its buffers after its end.
static void begins_and_loses(struct teammate *mate) {
    const int all[] = {0, 1, 2};
    enum { COUNT = 50000 };
    struct plan *plan = mate->context;
    trireme_error error = {0};
    struct communicator *c = open_some(mate, 3, all, "all");
    world_set_policy(mate->world, WORLD_GOES_ON);
    pthread_barrier_wait(&plan->ready);
    if (c && mate->rank == 2) {
        team_sleep_ms(20);
        world_lose(mate->world, 2, "rank 2 has gone home");
    } else if (c) {
        float *x = mem_alloc(COUNT * sizeof *x);
        struct comm_handle handle[2];
        for (int i = 0; i < 2; i++)
            handle[i] = comm_begin_all_reduce(c, x, x, COUNT, DTYPE_F32, REDUCE_SUM, DTYPE_F32);
        for (int i = 0; i < 2; i++)
            check_failure(mate, c, comm_end(handle[i], &error), &error, COMM_LOST, 2);
        handle[0] = comm_begin_all_reduce(c, x, x, COUNT, DTYPE_F32, REDUCE_SUM, DTYPE_F32);
        if (mate->rank == 0) // else the communicator ends it
            check_failure(mate, c, comm_end(handle[0], &error), &error, COMM_LOST, 2);
        communicator_free(c);
        free(x);
        return;
    }
    communicator_free(c);
}

static void calls_under_way_fail_with_their_communicator(void **state) {
    (void)state;
    struct plan plan;
    pthread_barrier_init(&plan.ready, NULL, 3);
    for (int i = 0; i < 5; i++)
        team_run(3, START_SECONDS, begins_and_loses, &plan);
    pthread_barrier_destroy(&plan.ready);
}

// Rank 1 fails for a reason of its own while a call is under way that rank 0 waits for: nobody waits until the
// deadline, and the reason is rank 1's.
static trireme_status leaves_calls(void *user, const struct member *member, trireme_error *error) {
    (void)user;
    struct communicator *c;
    TRY(ranks_control(&c, member, 2, error));
    int32_t x[2] = {1, 1};
    struct comm_handle handle = comm_begin_all_reduce(c, &x[0], &x[0], 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32);
    trireme_status status = comm_end(handle, error);
    if (status == TRIREME_OK && member->rank == 1) {
        comm_begin_barrier(c);
        comm_begin_all_reduce(c, &x[1], &x[1], 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32);
        status = error_set(error, TRIREME_ERROR_IO, "rank 1 has no bread");
    } else if (status == TRIREME_OK) {
        team_sleep_ms(50);
        status = comm_receive(c, &x[1], sizeof x[1], 1, error);
    }
    communicator_free(c);
    return status;
}

static void who_leaves_calls_behind_fails_for_its_own_reason(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        trireme_error error = {0};
        const int64_t start = clock_now();
        assert_int_equal(ranks_run(2, START_SECONDS, leaves_calls, NULL, &error), TRIREME_ERROR_IO);
        assert_string_equal(error.message, "rank 1 has no bread");
        assert_true(clock_now() - start < START_SECONDS * INT64_C(500000000));
    }
}

// Without the policy, the world ends.
static void ends_for_all(struct teammate *mate) {
    trireme_error error = {0};
    const int first[] = {0, 1}, second[] = {2, 3};
    struct communicator *all = teammate_open(mate);
    struct communicator *pair = open_some(mate, 2, mate->rank < 2 ? first : second, "pair");
    struct comm_failure failure;
    if (all) // all have opened their groups; some may already see the end
        comm_barrier(all, &error);
    if (mate->rank == 3)
        world_lose(mate->world, 3, "rank 3 has gone home");
    if (pair && mate->rank != 3)
        while (comm_barrier(pair, &error) == TRIREME_OK)
            ;
    if (!world_failure(mate->world, &failure) || failure.cause != COMM_LOST || failure.rank != 3)
        teammate_wrong(mate, "the world goes on without rank 3");
    communicator_free(pair);
    communicator_free(all);
}

static void by_default_the_world_ends(void **state) {
    (void)state;
    team_run(4, START_SECONDS, ends_for_all, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_communicators_with_the_lost_rank_fail),
        cmocka_unit_test(no_group_is_opened_with_a_lost_rank),
        cmocka_unit_test(calls_under_way_fail_with_their_communicator),
        cmocka_unit_test(who_leaves_calls_behind_fails_for_its_own_reason),
        cmocka_unit_test(by_default_the_world_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
