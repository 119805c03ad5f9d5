#include "support/team.h"

#include <pthread.h>
#include <time.h>

#include "launch/ranks.h"
#include "support/test.h"

bool teammate_wrong(struct teammate *mate, const char *format, ...) {
    if (mate->wrong[0])
        return true;
    va_list args;
    va_start(args, format);
    vsnprintf(mate->wrong, sizeof mate->wrong, format, args);
    va_end(args);
    return true;
}

bool teammate_failed(struct teammate *mate, trireme_status status, const trireme_error *error) {
    return status != TRIREME_OK && teammate_wrong(mate, "%s", error->message);
}

struct communicator *teammate_open(struct teammate *mate) {
    int *members = mem_alloc((size_t)mate->ranks * sizeof *members);
    for (int i = 0; i < mate->ranks; i++)
        members[i] = i;
    struct communicator *communicator = NULL;
    trireme_error error;
    teammate_failed(
        mate, communicator_open(&communicator, mate->world, mate->rank, mate->ranks, members, "all", &error), &error);
    free(members);
    return communicator;
}

trireme_status teammate_open_members(struct teammate *mate, int size, const int *members, const char *name,
                                     trireme_error *error) {
    struct communicator *c = NULL;
    trireme_status status = communicator_open(&c, mate->world, mate->rank, size, members, name, error);
    communicator_free(c);
    return status;
}

void teammate_lost(struct teammate *mate, const trireme_error *error, const char *const *words, size_t count) {
    if (error->status != TRIREME_ERROR_LOST)
        teammate_wrong(mate, "status %d: %s", error->status, error->message);
    for (size_t i = 0; i < count; i++)
        if (!strstr(error->message, words[i]))
            teammate_wrong(mate, "\"%s\" is not in \"%s\"", words[i], error->message);
}

void team_sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

void teammate_await_break(struct teammate *mate) {
    for (int ms = 0; ms < 60000 && !world_failure(mate->world, NULL); ms++)
        team_sleep_ms(1);
}

struct start {
    struct teammate mate;
    void (*body)(struct teammate *mate);
};

static void *start(void *argument) {
    struct start *s = argument;
    s->body(&s->mate);
    return NULL;
}

static void run_threads(int ranks, double deadline, void (*body)(struct teammate *mate), void *context) {
    struct world *world;
    trireme_error error;
    assert_int_equal(world_create_threads(&world, ranks, deadline, &error), TRIREME_OK);
    struct start *starts = mem_alloc((size_t)ranks * sizeof *starts);
    pthread_t *threads = mem_alloc((size_t)ranks * sizeof *threads);
    for (int i = 0; i < ranks; i++) {
        starts[i] = (struct start){.mate = {.world = world, .rank = i, .ranks = ranks, .context = context}};
        starts[i].body = body;
        assert_int_equal(pthread_create(&threads[i], NULL, start, &starts[i]), 0);
    }
    char wrong[sizeof starts->mate.wrong + 40] = "";
    for (int i = 0; i < ranks; i++) {
        pthread_join(threads[i], NULL);
        if (starts[i].mate.wrong[0] && !wrong[0])
            snprintf(wrong, sizeof wrong, "rank %d of %d: %s", i, ranks, starts[i].mate.wrong);
    }
    world_free(world);
    free(threads);
    free(starts);
    if (wrong[0])
        fail_msg("%s", wrong);
}

// ---- processes

// Set where the test has been started by an MPI launcher: this many ranks, this process is one of them. Teams of other
// sizes are left out; TEAM_ONLY=k runs the k-th that is left in, alone.
int team_processes(void) {
    const char *size = getenv("TEAM_PROCESSES");
    return size ? atoi(size) : 0;
}

static struct world *shared;
static int teams;

static trireme_status open_world(double deadline, trireme_error *error) {
    if (!shared)
        TRY(world_create_mpi(&shared, deadline, error));
    int started = world_place(shared)->ranks;
    if (started != team_processes())
        FAIL(TRIREME_ERROR_USAGE, "%d processes of %d were started", started, team_processes());
    return TRIREME_OK;
}

void team_end(void) {
    world_free(shared);
    shared = NULL;
}

static void run_process(double deadline, void (*body)(struct teammate *mate), void *context) {
    const char *only = getenv("TEAM_ONLY");
    if (only && atoi(only) != ++teams)
        return;
    trireme_error error;
    if (open_world(deadline, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    world_deadline(shared, deadline);
    const struct world_place *place = world_place(shared);
    printf("a team of %d\n", place->ranks); // before the body, which may end the process
    fflush(stdout);
    struct teammate mate = {.world = shared, .rank = place->rank, .ranks = place->ranks, .context = context};
    if (getenv("TEAM_LOCALS"))
        mate.locals = atoi(getenv("TEAM_LOCALS"));
    body(&mate);
    if (!mate.wrong[0])
        return;
    world_break(shared, COMM_FAILED, mate.rank, mate.wrong);
    fail_msg("rank %d of %d: %s", mate.rank, mate.ranks, mate.wrong);
}

void team_run(int ranks, double deadline, void (*body)(struct teammate *mate), void *context) {
    if (!team_processes())
        run_threads(ranks, deadline, body, context);
    else if (team_processes() == ranks)
        run_process(deadline, body, context);
}

// ---- bodies of launch/ranks.h

trireme_status team_ranks_run(int ranks, double deadline,
                              trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                              void *user, trireme_error *error) {
    if (!team_processes())
        return ranks_run(ranks, deadline, body, user, error);
    TRY(open_world(deadline, error));
    if (ranks != team_processes())
        FAIL(TRIREME_ERROR_USAGE, "%d ranks are asked for, there are %d", ranks, team_processes());
    struct member member = {shared, world_place(shared)->rank};
    trireme_status status = body(user, &member, error);
    if (status != TRIREME_OK)
        world_break(shared, COMM_FAILED, member.rank, error->message);
    return status;
}

trireme_status team_most(double *value, int64_t count, trireme_error *error) {
    if (!team_processes())
        return TRIREME_OK;
    struct communicator *all;
    TRY(open_world(0, error));
    TRY(ranks_control(&all, &(struct member){shared, world_place(shared)->rank}, team_processes(), error));
    trireme_status status = comm_all_reduce(all, value, value, count, DTYPE_F64, REDUCE_MAX, DTYPE_F64, error);
    communicator_free(all);
    return status;
}
