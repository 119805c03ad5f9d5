// Worlds whose ranks are threads, and how their groups are opened.
#include "comm/threads/threads.h"

#include "base/crew.h"

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

static void threads_break(struct world *base, const char *reason) {
    struct thread_world *world = world_of(base);
    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->broken)) {
        snprintf(world->reason, sizeof world->reason, "%s", reason);
        atomic_store(&world->broken, true);
        for (struct group *group = world->groups; group; group = group->next) {
            gate_break(&group->meeting);
            for (int i = 0; i < group->size; i++)
                gate_break(&group->member[i].mail);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static void threads_reason(struct world *base, char *text, size_t limit) {
    struct thread_world *world = world_of(base);
    pthread_mutex_lock(&world->lock);
    snprintf(text, limit, "%s", world->reason);
    pthread_mutex_unlock(&world->lock);
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

static bool world_is_named(const struct group *group, int size, const int *members, const char *name) {
    return strcmp(group->name, name) == 0 && group->size == size &&
           memcmp(group->rank, members, (size_t)size * sizeof *members) == 0;
}

// Whether the rank may open this group: no member waits for it to open another one first. Else `reason` says so.
static bool may_open(const struct thread_world *world, int rank, int size, const int *members, const char *name,
                     char reason[BREAK_TEXT]) {
    char mine[GROUP_PRINT_TEXT], theirs[GROUP_PRINT_TEXT];
    group_print(name, size, MIN(size, 8), members, mine);
    for (int i = 0; i < size; i++) {
        const struct group *other = world->opening[members[i]];
        if (!other || world_is_named(other, size, members, name))
            continue;
        int index = index_of(other->rank, other->size, rank);
        if (index >= 0 && !other->is_in[index]) {
            snprintf(reason, BREAK_TEXT, "rank %d opens group %s while rank %d opens group %s", rank, mine, members[i],
                     group_print(other->name, other->size, MIN(other->size, 8), other->rank, theirs));
            return false;
        }
    }
    return true;
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
    pthread_mutex_lock(&c->world->lock);
    group_release(c->world, c->group);
    pthread_mutex_unlock(&c->world->lock);
    free(c);
}

static trireme_status threads_open(struct communicator **out, struct world *base, int rank, int size,
                                   const int *members, const char *name, trireme_error *error) {
    struct thread_world *world = world_of(base);
    CHECK(rank >= 0 && rank < world->ranks);
    char reason[BREAK_TEXT];
    int index = group_index(rank, world->ranks, size, members, name, reason);
    struct group *group = NULL;
    pthread_mutex_lock(&world->lock);
    if (atomic_load(&world->broken))
        snprintf(reason, sizeof reason, "%s", world->reason);
    else if (index >= 0 && may_open(world, rank, size, members, name, reason))
        world->opening[rank] = group = group_join(world, index, size, members, name);
    pthread_mutex_unlock(&world->lock);
    if (!group) {
        threads_break(base, reason);
        FAIL(TRIREME_ERROR_LOST, "group %s: rank %d cannot open it: %s", name, rank, reason);
    }

    struct thread_communicator *c = world_aligned(sizeof *c, sizeof *c);
    c->base = (struct communicator){.transport = base->transport, .size = size, .index = index};
    c->world = world;
    c->group = group;
    c->chunk = &group->chunk[index];
    trireme_status status = group_meet(c, &(struct comm_call){.operation = OPERATION_OPEN}, error);
    pthread_mutex_lock(&world->lock);
    world->opening[rank] = NULL;
    pthread_mutex_unlock(&world->lock);
    if (status != TRIREME_OK)
        threads_close(&c->base);
    else
        *out = &c->base;
    return status;
}

// ---- calls

static trireme_status threads_run(struct communicator *base, const struct comm_call *call, trireme_error *error) {
    struct thread_communicator *c = (struct thread_communicator *)base;
    if (atomic_load_explicit(&c->world->broken, memory_order_acquire))
        return call_lost(c, call, "", error);
    if (call->operation != OPERATION_SEND && call->operation != OPERATION_RECEIVE)
        c->calls++;
    return algorithm_choose(call, base->size, c->world->crowded)(c, call, error);
}

// ---- worlds

static bool threads_free(struct world *base) {
    struct thread_world *world = world_of(base);
    const bool broken = atomic_load(&world->broken);
    CHECK(!world->groups);
    pthread_mutex_destroy(&world->lock);
    free(world->opening);
    free(world);
    return !broken;
}

static const struct transport THREADS = {
    .world_free = threads_free,
    .world_break = threads_break,
    .world_reason = threads_reason,
    .open = threads_open,
    .close = threads_close,
    .run = threads_run,
};

trireme_status world_create_threads(struct world **out, int ranks, double deadline, trireme_error *error) {
    if (ranks < 1)
        FAIL(TRIREME_ERROR_USAGE, "a world of %d ranks: there must be at least one", ranks);
    struct thread_world *world = mem_alloc(sizeof *world);
    world->base.transport = &THREADS;
    world->ranks = ranks;
    world_deadline(&world->base, deadline);
    world->crowded = ranks > usable_cores();
    world->spin = world->crowded ? 0 : 20000;
    pthread_mutex_init(&world->lock, NULL);
    world->opening = mem_alloc((size_t)ranks * sizeof *world->opening);
    *out = &world->base;
    return TRIREME_OK;
}
