#include "train/ranks.h"

#include <pthread.h>

struct team {
    trireme_status (*body)(void *user, const struct member *member, trireme_error *error);
    void *user;
    struct world *world;
    pthread_mutex_t mutex;
    trireme_error first; // to fail
};

struct rank_thread {
    struct team *team;
    int rank;
    pthread_t thread;
};

static void *run(void *argument) {
    struct rank_thread *t = argument;
    struct team *team = t->team;
    struct member member = {team->world, t->rank};
    trireme_error error = {0};
    if (team->body(team->user, &member, &error) == TRIREME_OK)
        return NULL;
    pthread_mutex_lock(&team->mutex);
    if (team->first.status == TRIREME_OK)
        team->first = error;
    pthread_mutex_unlock(&team->mutex);
    world_break(team->world, error.message);
    return NULL;
}

trireme_status ranks_run(int ranks, double deadline,
                         trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                         void *user, trireme_error *error) {
    struct team team = {.body = body, .user = user};
    TRY(world_create_threads(&team.world, ranks, deadline, error));
    pthread_mutex_init(&team.mutex, NULL);
    struct rank_thread *thread = mem_alloc((size_t)ranks * sizeof *thread);
    int started = 0;
    for (; started < ranks; started++) {
        thread[started] = (struct rank_thread){.team = &team, .rank = started};
        if (pthread_create(&thread[started].thread, NULL, run, &thread[started])) {
            error_set(&team.first, TRIREME_ERROR_IO, "cannot start the thread of rank %d", started);
            world_break(team.world, team.first.message);
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(thread[i].thread, NULL);
    free(thread);
    pthread_mutex_destroy(&team.mutex);
    world_free(team.world);
    if (team.first.status == TRIREME_OK)
        return TRIREME_OK;
    *error = team.first;
    return error->status;
}
