// Worlds whose ranks are threads, and how their groups are opened.
#include "comm/threads/threads.h"

#include "base/parallel_for.h"

// Only the first `zeroed` bytes are zeroed; the rest takes no memory until it is used.
static void *world_aligned(size_t bytes, size_t zeroed) {
    return memset(mem_aligned(LINE, bytes), 0, zeroed);
}

static struct thread_world *world_of(struct world *world) {
    return (struct thread_world *)world;
}

// ---- breaking

static void gate_break(struct gate *gate) {
    atomic_fetch_or(&gate->word, BROKEN);
    gate_wake(gate);
}

static void group_fail(struct group *group, const struct comm_failure *failure) {
    if (atomic_load(&group->failed))
        return;
    group->failure = *failure;
    atomic_store(&group->failed, true);
    gate_break(&group->meeting);
    for (int i = 0; i < group->size; i++)
        gate_break(&group->member[i].mail);
}

static void threads_broken(struct world *base) {
    for (struct group *group = world_of(base)->groups; group; group = group->next)
        group_fail(group, &base->failure);
}

static void threads_fail(struct communicator *base, const struct comm_failure *failure) {
    group_fail(((struct thread_communicator *)base)->group, failure);
}

static const struct comm_failure *threads_failure(const struct communicator *base) {
    return &((const struct thread_communicator *)base)->group->failure;
}

// ---- groups

static struct group *group_create(struct thread_world *world, int size, const int *members, const char *name) {
    struct group *group = world_aligned(sizeof *group, sizeof *group);
    group->name = mem_strdup(name);
    group->size = size;
    group->rank = mem_alloc((size_t)size * sizeof *group->rank);
    memcpy(group->rank, members, (size_t)size * sizeof *members);
    group->is_in = mem_alloc((size_t)size * sizeof *group->is_in);
    group->member = world_aligned((size_t)size * sizeof *group->member, (size_t)size * sizeof *group->member);
    group->data = world_aligned((size_t)size * 2 * SLOT_BYTES, 0);
    group->chunk = world_aligned((size_t)size * sizeof *group->chunk, 0);
    for (int turn = 0; turn < 2; turn++) {
        group->copies[turn] = mem_alloc((size_t)size * sizeof(void *));
        group->in[turn] = mem_alloc((size_t)size * sizeof(void *));
        group->out[turn] = mem_alloc((size_t)size * sizeof(void *));
        for (int i = 0; i < size; i++)
            group->copies[turn][i] = group->member[i].posted[turn].data =
                group->data + (size_t)(2 * i + turn) * SLOT_BYTES;
    }
    struct group **last = &world->groups;
    while (*last)
        last = &(*last)->next;
    return *last = group;
}

static void group_release(struct thread_world *world, struct group *group) {
    if (--group->references > 0)
        return;
    struct group **at = &world->groups;
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
    free(group->name);
    free(group->rank);
    free(group->is_in);
    free(group->member);
    free(group->data);
    free(group->chunk);
    for (int turn = 0; turn < 2; turn++) {
        free(group->copies[turn]);
        free(group->in[turn]);
        free(group->out[turn]);
    }
    free(group);
}

static int index_of(const int *members, int size, int rank) {
    for (int i = 0; i < size; i++)
        if (members[i] == rank)
            return i;
    return -1;
}

static void threads_lose(struct world *base, const struct comm_failure *failure) {
    struct thread_world *world = world_of(base);
    CHECK(failure->rank >= 0 && failure->rank < base->ranks);
    if (!world->lost[failure->rank]) {
        world->lost[failure->rank] = mem_alloc(sizeof *failure);
        *world->lost[failure->rank] = *failure;
    }
    for (struct group *group = world->groups; group; group = group->next)
        if (index_of(group->rank, group->size, failure->rank) >= 0)
            group_fail(group, failure);
}

static bool world_is_named(const struct group *group, int size, const int *members, const char *name) {
    return strcmp(group->name, name) == 0 && group->size == size &&
           memcmp(group->rank, members, (size_t)size * sizeof *members) == 0;
}

// What keeps the rank from opening this group, in *failure: a member that is lost, or one that waits for it to open
// another group first. That group, which it does not open now, is returned, too.
static struct group *opening_refuse(const struct thread_world *world, int rank, int size, const int *members,
                                    const char *name, struct comm_failure *failure) {
    char mine[GROUP_PRINT_TEXT], theirs[GROUP_PRINT_TEXT];
    for (int i = 0; i < size; i++)
        if (world->lost[members[i]]) {
            *failure = *world->lost[members[i]];
            return NULL;
        }
    for (int i = 0; i < size; i++) {
        const int member = members[i];
        struct group *other = world->opening[member];
        if (!other || world_is_named(other, size, members, name))
            continue;
        int index = index_of(other->rank, other->size, rank);
        if (index < 0 || other->is_in[index])
            continue;
        failure->cause = COMM_DIFFERS;
        failure->rank = rank;
        snprintf(failure->reason, sizeof failure->reason, "rank %d opens group %s while rank %d opens group %s", rank,
                 group_print(name, size, MIN(size, 8), members, mine), member,
                 group_print(other->name, other->size, MIN(other->size, 8), other->rank, theirs));
        return other;
    }
    return NULL;
}

// The first group of this name and these members that the member at `index` has not opened yet; it opens it.
static struct group *group_join(struct thread_world *world, int index, int size, const int *members, const char *name) {
    struct group *group = world->groups;
    while (group && (!world_is_named(group, size, members, name) || group->is_in[index]))
        group = group->next;
    if (!group)
        group = group_create(world, size, members, name);
    group->is_in[index] = true;
    group->references++;
    return group;
}

static void threads_close(struct communicator *base) {
    struct thread_communicator *c = (struct thread_communicator *)base;
    pthread_mutex_lock(&base->world->lock);
    group_release(c->world, c->group);
    pthread_mutex_unlock(&base->world->lock);
    free(c);
}

// The group, which the rank has opened now; NULL, with *failure, where it may not.
static struct group *group_open(struct thread_world *world, int rank, int size, const int *members, const char *name,
                                struct comm_failure *failure) {
    int index = group_index(rank, world->base.ranks, size, members, name, failure->reason);
    if (index < 0) {
        failure->cause = COMM_DIFFERS;
        failure->rank = rank;
        return NULL;
    }
    if (atomic_load(&world->base.broken)) {
        *failure = world->base.failure;
        return NULL;
    }
    struct group *other = opening_refuse(world, rank, size, members, name, failure);
    if (other) // its members would wait for this rank
        group_fail(other, failure);
    return failure->cause == COMM_WHOLE ? group_join(world, index, size, members, name) : NULL;
}

static trireme_status threads_open(struct communicator **out, struct world *base, int rank, int size,
                                   const int *members, const char *name, trireme_error *error) {
    struct thread_world *world = world_of(base);
    CHECK(rank >= 0 && rank < base->ranks);
    struct comm_failure failure = {.cause = COMM_WHOLE};
    pthread_mutex_lock(&base->lock);
    struct group *group = world->opening[rank] = group_open(world, rank, size, members, name, &failure);
    pthread_mutex_unlock(&base->lock);
    if (!group) {
        if (atomic_load(&base->policy) == WORLD_ENDS)
            world_break(base, failure.cause, failure.rank, failure.reason);
        FAIL(TRIREME_ERROR_LOST, "group %s: rank %d cannot open it: %s", name, rank, failure.reason);
    }

    struct thread_communicator *c = world_aligned(sizeof *c, sizeof *c);
    c->base = (struct communicator){
        .world = base, .name = group->name, .size = size, .index = index_of(members, size, rank), .rank = group->rank};
    c->world = world;
    c->group = group;
    c->chunk = &group->chunk[c->base.index];
    trireme_status status = group_meet(c, &(struct comm_call){.operation = OPERATION_OPEN}, error);
    pthread_mutex_lock(&base->lock);
    world->opening[rank] = NULL;
    pthread_mutex_unlock(&base->lock);
    if (status != TRIREME_OK)
        threads_close(&c->base);
    else
        *out = &c->base;
    return status;
}

// ---- calls

static trireme_status threads_run(struct communicator *base, const struct comm_call *call, trireme_error *error) {
    struct thread_communicator *c = (struct thread_communicator *)base;
    if (atomic_load_explicit(&c->group->failed, memory_order_acquire))
        return call_lost(c, call, NULL, error);
    if (call->operation != OPERATION_SEND && call->operation != OPERATION_RECEIVE)
        c->calls++;
    return algorithm_choose(call, base->size, c->world->crowded)(c, call, error);
}

// ---- worlds

static bool threads_free(struct world *base) {
    struct thread_world *world = world_of(base);
    const bool broken = atomic_load(&base->broken);
    CHECK(!world->groups);
    for (int rank = 0; rank < base->ranks; rank++)
        free(world->lost[rank]);
    free(world->lost);
    free(world->opening);
    world_fini(base);
    free(world);
    return !broken;
}

static const struct transport THREADS = {
    .world_free = threads_free,
    .broken = threads_broken,
    .fail = threads_fail,
    .failure = threads_failure,
    .lose = threads_lose,
    .open = threads_open,
    .close = threads_close,
    .run = threads_run,
};

trireme_status world_create_threads(struct world **out, int ranks, double deadline, trireme_error *error) {
    if (ranks < 1)
        FAIL(TRIREME_ERROR_USAGE, "a world of %d ranks: there must be at least one", ranks);
    struct thread_world *world = mem_alloc(sizeof *world);
    world_init(&world->base, &THREADS, ranks, deadline);
    world->crowded = ranks > usable_cores();
    world->spin = world->crowded ? 0 : 20000;
    world->opening = mem_alloc((size_t)ranks * sizeof *world->opening);
    world->lost = mem_alloc((size_t)ranks * sizeof *world->lost);
    *out = &world->base;
    return TRIREME_OK;
}
