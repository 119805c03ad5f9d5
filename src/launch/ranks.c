#include "launch/ranks.h"

#include "base/clock.h"
#include "base/parallel_for.h"

#include <pthread.h>
#include <time.h>

enum {
    GRACE_SECONDS = 5,
    THREADS_MOST = 1024, // at the start each meets all others: with this many in a quarter of a minute on two cores
};

struct rank_thread {
    struct team *team;
    int rank;
    pthread_t thread;
    bool ended;    // guarded by the team's mutex
    bool returned; // from the body; read when ended
};

struct team {
    trireme_status (*body)(void *user, const struct member *member, trireme_error *error);
    void *user;
    struct world *world;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int started, ended;
    trireme_error first; // of the rank that failed first
    struct rank_thread *thread;
};

// The first failure is that of the run; but others may see that a rank has failed before that one has said why.
static void ranks_note(struct team *team, int rank, const trireme_error *error) {
    struct comm_failure failure;
    const bool is_blamed = world_failure(team->world, &failure) && failure.cause == COMM_FAILED && failure.rank == rank;
    pthread_mutex_lock(&team->mutex);
    if (team->first.status == TRIREME_OK || (team->first.status == TRIREME_ERROR_LOST && is_blamed))
        team->first = *error;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

// A rank that fails by itself ends the run on all ranks.
static void ranks_fail(struct team *team, int rank, const trireme_error *error) {
    ranks_note(team, rank, error);
    world_break(team->world, COMM_FAILED, rank, error->message);
}

// What a rank that is gone means for the others is the world's policy.
static void ranks_lose(struct team *team, int rank, const trireme_error *error) {
    ranks_note(team, rank, error);
    world_lose(team->world, rank, error->message);
}

// Runs when the thread ends, for whatever reason.
static void ranks_end(void *argument) {
    struct rank_thread *t = argument;
    struct team *team = t->team;
    if (!t->returned) {
        trireme_error error;
        error_set(&error, TRIREME_ERROR_LOST, "the thread of rank %d has died", t->rank);
        ranks_lose(team, t->rank, &error);
    }
    pthread_mutex_lock(&team->mutex);
    t->ended = true;
    team->ended++;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

static void *ranks_run_body(void *argument) {
    struct rank_thread *t = argument;
    struct member member = {t->team->world, t->rank};
    trireme_error error = {0};
    pthread_cleanup_push(ranks_end, t);
    if (t->team->body(t->team->user, &member, &error) != TRIREME_OK)
        ranks_fail(t->team, t->rank, &error);
    t->returned = true;
    pthread_cleanup_pop(1);
    return NULL;
}

static struct team *team_create(int ranks) {
    struct team *team = mem_alloc(sizeof *team);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    team->thread = mem_alloc((size_t)ranks * sizeof *team->thread);
    return team;
}

static void team_free(struct team *team) {
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->mutex);
    free(team->thread);
    free(team);
}

static void ranks_start(struct team *team, int ranks) {
    for (int i = 0; i < ranks; i++) {
        team->thread[i] = (struct rank_thread){.team = team, .rank = i};
        char what[40];
        trireme_error error;
        snprintf(what, sizeof what, "the thread of rank %d", i);
        if (thread_start(&team->thread[i].thread, ranks_run_body, &team->thread[i], what, &error) != TRIREME_OK) {
            ranks_lose(team, i, &error);
            return;
        }
        team->started++;
    }
}

// Waits for all threads; false where some have not ended GRACE_SECONDS after the first failure, unless it is `patient`.
static bool ranks_await(struct team *team, bool patient) {
    struct timespec until;
    bool failed = false, in_time = true;
    pthread_mutex_lock(&team->mutex);
    while (team->ended < team->started && in_time) {
        if (!failed && team->first.status != TRIREME_OK) {
            failed = true;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += GRACE_SECONDS;
        }
        if (failed && !patient)
            in_time = pthread_cond_timedwait(&team->changed, &team->mutex, &until) == 0;
        else
            pthread_cond_wait(&team->changed, &team->mutex);
    }
    bool ended = team->ended == team->started;
    pthread_mutex_unlock(&team->mutex);
    return ended;
}

static trireme_status run_team(int ranks, double deadline,
                               trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                               void *user, bool *stuck, trireme_error *error) {
    struct world *world;
    if (ranks == 1)
        return body(user, NULL, error);
    if (ranks > THREADS_MOST)
        FAIL(TRIREME_ERROR_USAGE,
             "the mesh has %d ranks, and one process has room for %d: start as many processes with mpirun, or predict "
             "the step with `trireme simulate`",
             ranks, THREADS_MOST);
    TRY(world_create_threads(&world, ranks, deadline, error));
    struct team *team = team_create(ranks);
    team->world = world;
    team->body = body;
    team->user = user;
    ranks_start(team, ranks);
    bool clean = ranks_await(team, !stuck);
    pthread_mutex_lock(&team->mutex);
    trireme_error first = team->first;
    for (int i = 0; i < team->started; i++) {
        clean &= team->thread[i].returned; // else it has released nothing of what it had
        if (team->thread[i].ended)
            pthread_join(team->thread[i].thread, NULL);
        else
            pthread_detach(team->thread[i].thread);
    }
    pthread_mutex_unlock(&team->mutex);
    if (stuck)
        *stuck = !clean;
    if (clean) {
        world_free(world);
        team_free(team);
    }
    if (first.status == TRIREME_OK)
        return TRIREME_OK;
    *error = first;
    return first.status;
}

trireme_status ranks_run(int ranks, double deadline,
                         trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                         void *user, trireme_error *error) {
    return run_team(ranks, deadline, body, user, NULL, error);
}

trireme_status ranks_run_guarded(int ranks, double deadline,
                                 trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                                 void *user, bool *stuck, trireme_error *error) {
    return run_team(ranks, deadline, body, user, stuck, error);
}

trireme_status ranks_open(struct communicator **out, const struct member *member, int ranks, const char *name,
                          trireme_error *error) {
    *out = NULL;
    if (!member)
        return TRIREME_OK;
    int *all = mem_alloc((size_t)ranks * sizeof *all);
    for (int i = 0; i < ranks; i++)
        all[i] = i;
    trireme_status status = communicator_open(out, member->world, member->rank, ranks, all, name, error);
    free(all);
    return status;
}

trireme_status ranks_control(struct communicator **out, const struct member *member, int ranks, trireme_error *error) {
    return ranks_open(out, member, ranks, "control", error);
}

// What rank 0 tells the others.
enum { WORK_ENDS, WORK_GOES_ON, WORK_OF_ALL };

static trireme_status ranks_tell(struct communicator *all, int32_t what, trireme_error *error) {
    return all ? comm_broadcast(all, &what, sizeof what, 0, error) : TRIREME_OK;
}

void ranks_tell_more(void *all) {
    trireme_error ignored;
    ranks_tell(all, WORK_GOES_ON, &ignored);
}

trireme_status ranks_tell_part(struct communicator *all, trireme_error *error) {
    return ranks_tell(all, WORK_OF_ALL, error);
}

trireme_status ranks_tell_end(struct communicator *all, trireme_error *error) {
    return ranks_tell(all, WORK_ENDS, error);
}

trireme_status ranks_await_end(struct communicator *all, const struct ranks_part *part, trireme_error *error) {
    for (int32_t what = WORK_GOES_ON; what != WORK_ENDS && all;) {
        TRY(comm_broadcast(all, &what, sizeof what, 0, error));
        if (what == WORK_OF_ALL)
            TRY(part->work(part->user, error));
    }
    return TRIREME_OK;
}

// Ranks that still work, and those that are done, meet about so often.
#define WORK_NANOSECONDS INT64_C(200000000)

static trireme_status ranks_work_meet(struct ranks_work *work, int32_t *busy, trireme_error *error) {
    const trireme_status status = ranks_max(work->all, busy, error);
    work->next = clock_now() + WORK_NANOSECONDS;
    return status;
}

struct ranks_work ranks_work_begin(struct communicator *all) {
    return (struct ranks_work){all, clock_now() + WORK_NANOSECONDS};
}

void ranks_work_on(void *work) {
    struct ranks_work *own = work;
    int32_t busy = 1;
    trireme_error ignored; // the next meeting fails with it, too
    if (own->all && clock_now() >= own->next)
        ranks_work_meet(own, &busy, &ignored);
}

trireme_status ranks_work_end(struct ranks_work *work, trireme_error *error) {
    for (int32_t busy = 1; busy && work->all;) {
        busy = 0;
        TRY(ranks_work_meet(work, &busy, error));
    }
    return TRIREME_OK;
}

trireme_status ranks_meet(struct communicator *all, trireme_error *error) {
    return all ? comm_barrier(all, error) : TRIREME_OK;
}

trireme_status ranks_sum(struct communicator *all, double *values, int64_t count, trireme_error *error) {
    return all ? comm_all_reduce(all, values, values, count, DTYPE_F64, REDUCE_SUM, DTYPE_F64, error) : TRIREME_OK;
}

trireme_status ranks_most(struct communicator *all, double *values, int64_t count, trireme_error *error) {
    return all ? comm_all_reduce(all, values, values, count, DTYPE_F64, REDUCE_MAX, DTYPE_F64, error) : TRIREME_OK;
}

trireme_status ranks_max(struct communicator *all, int32_t *value, trireme_error *error) {
    return all ? comm_all_reduce(all, value, value, 1, DTYPE_I32, REDUCE_MAX, DTYPE_I32, error) : TRIREME_OK;
}

trireme_status ranks_share(struct communicator *all, void *data, size_t bytes, trireme_error *error) {
    return all ? comm_broadcast(all, data, (int64_t)bytes, 0, error) : TRIREME_OK;
}
