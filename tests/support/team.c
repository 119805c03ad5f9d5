#include "support/team.h"

#include <pthread.h>

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
static int processes(void) {
    const char *size = getenv("TEAM_PROCESSES");
    return size ? atoi(size) : 0;
}

static struct world *shared;
static int teams;

void team_end(void) {
    world_free(shared);
    shared = NULL;
}

static void run_process(double deadline, void (*body)(struct teammate *mate), void *context) {
    const char *only = getenv("TEAM_ONLY");
    if (only && atoi(only) != ++teams)
        return;
    trireme_error error;
    if (!shared && world_create_mpi(&shared, deadline, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    const struct world_place *place = world_place(shared);
    assert_int_equal(place->ranks, processes());
    struct teammate mate = {.world = shared, .rank = place->rank, .ranks = place->ranks, .context = context};
    body(&mate);
    if (!mate.wrong[0])
        return;
    world_break(shared, mate.wrong);
    fail_msg("rank %d of %d: %s", mate.rank, mate.ranks, mate.wrong);
}

void team_run(int ranks, double deadline, void (*body)(struct teammate *mate), void *context) {
    if (!processes())
        run_threads(ranks, deadline, body, context);
    else if (processes() == ranks)
        run_process(deadline, body, context);
}
