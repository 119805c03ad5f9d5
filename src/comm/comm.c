#include "comm/transport.h"

void world_keep(struct world *world, void *what, void (*release)(void *what)) {
    struct world_kept *kept = mem_alloc(sizeof *kept);
    *kept = (struct world_kept){what, release, atomic_load(&world->kept)};
    while (!atomic_compare_exchange_weak(&world->kept, &kept->next, kept))
        ;
}

bool world_free(struct world *world) {
    if (!world)
        return true;
    for (struct world_kept *kept = atomic_load(&world->kept), *next; kept; kept = next) {
        next = kept->next;
        kept->release(kept->what);
        free(kept);
    }
    return world->transport->world_free(world);
}

void world_break(struct world *world, const char *reason) {
    world->transport->world_break(world, reason);
}

const struct world_place *world_place(const struct world *world) {
    return world && world->place.ranks ? &world->place : NULL;
}

void world_deadline(struct world *world, double seconds) {
    atomic_store(&world->deadline, (int64_t)(MIN(MAX(seconds, 0), 1e9) * 1e9));
}

void world_reason(struct world *world, char *text, size_t limit) {
    world->transport->world_reason(world, text, limit);
}

trireme_status communicator_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                                 const char *name, trireme_error *error) {
    return world->transport->open(out, world, rank, size, members, name, error);
}

void communicator_free(struct communicator *communicator) {
    if (communicator)
        communicator->transport->close(communicator);
}

void communicator_wanted(struct communicator *communicator, bool sends, const _Atomic int64_t *since) {
    communicator->wanted[sends] = since;
}

int communicator_size(const struct communicator *communicator) {
    return communicator->size;
}

int communicator_index(const struct communicator *communicator) {
    return communicator->index;
}

// ---- calls

static trireme_status comm_run(struct communicator *communicator, struct comm_call *call, trireme_error *error) {
    CHECK(call->count >= 0);
    CHECK(call->peer >= 0 && call->peer < communicator->size);
    call->wanted = communicator->wanted[call->operation == OPERATION_SEND];
    return communicator->transport->run(communicator, call, error);
}

static void check_reduction(enum dtype dtype, enum reduction reduction, enum dtype wire) {
    CHECK(dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F64 || dtype == DTYPE_I32);
    CHECK(reduction == REDUCE_SUM || reduction == REDUCE_MAX);
    CHECK(wire == dtype || (dtype == DTYPE_F32 && wire == DTYPE_BF16));
}

trireme_status comm_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, enum reduction reduction, enum dtype wire, trireme_error *error) {
    check_reduction(dtype, reduction, wire);
    struct comm_call call = {.operation = OPERATION_ALL_REDUCE, .dtype = dtype, .wire = wire, .reduction = reduction};
    call.count = count;
    call.in = in;
    call.out = out;
    return comm_run(communicator, &call, error);
}

trireme_status comm_reduce_scatter(struct communicator *communicator, const void *in, void *out, int64_t count,
                                   enum dtype dtype, enum reduction reduction, enum dtype wire, bool accumulate,
                                   trireme_error *error) {
    check_reduction(dtype, reduction, wire);
    struct comm_call call = {.operation = OPERATION_REDUCE_SCATTER, .dtype = dtype, .wire = wire};
    call.reduction = reduction;
    call.count = count;
    call.accumulate = accumulate;
    call.in = in;
    call.out = out;
    return comm_run(communicator, &call, error);
}

trireme_status comm_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, trireme_error *error) {
    struct comm_call call = {.operation = OPERATION_ALL_GATHER, .dtype = dtype, .wire = dtype, .count = count};
    call.in = in;
    call.out = out;
    return comm_run(communicator, &call, error);
}

trireme_status comm_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root,
                              trireme_error *error) {
    struct comm_call call = {.operation = OPERATION_BROADCAST, .peer = root, .count = bytes, .in = data, .out = data};
    return comm_run(communicator, &call, error);
}

trireme_status comm_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                               trireme_error *error) {
    struct comm_call call = {.operation = OPERATION_ALL_TO_ALL, .count = bytes, .in = in, .out = out};
    return comm_run(communicator, &call, error);
}

trireme_status comm_all_to_all_v(struct communicator *communicator, const void *in, const int64_t *in_offset,
                                 const int64_t *in_bytes, void *out, const int64_t *out_offset,
                                 const int64_t *out_bytes, trireme_error *error) {
    struct comm_call call = {.operation = OPERATION_ALL_TO_ALL_V, .in = in, .out = out};
    call.in_offset = in_offset;
    call.in_bytes = in_bytes;
    call.out_offset = out_offset;
    call.out_bytes = out_bytes;
    return comm_run(communicator, &call, error);
}

trireme_status comm_send(struct communicator *communicator, const void *data, int64_t bytes, int peer,
                         trireme_error *error) {
    CHECK(peer != communicator->index);
    struct comm_call call = {.operation = OPERATION_SEND, .peer = peer, .count = bytes, .in = data};
    return comm_run(communicator, &call, error);
}

trireme_status comm_receive(struct communicator *communicator, void *data, int64_t bytes, int peer,
                            trireme_error *error) {
    CHECK(peer != communicator->index);
    struct comm_call call = {.operation = OPERATION_RECEIVE, .peer = peer, .count = bytes, .out = data};
    return comm_run(communicator, &call, error);
}

trireme_status comm_barrier(struct communicator *communicator, trireme_error *error) {
    struct comm_call call = {.operation = OPERATION_BARRIER};
    return comm_run(communicator, &call, error);
}

// ---- words

static const char *const NAMES[OPERATION_COUNT] = {
    [OPERATION_OPEN] = "open",
    [OPERATION_ALL_REDUCE] = "all_reduce",
    [OPERATION_REDUCE_SCATTER] = "reduce_scatter",
    [OPERATION_ALL_GATHER] = "all_gather",
    [OPERATION_BROADCAST] = "broadcast",
    [OPERATION_ALL_TO_ALL] = "all_to_all",
    [OPERATION_ALL_TO_ALL_V] = "all_to_all_v",
    [OPERATION_BARRIER] = "barrier",
    [OPERATION_SEND] = "send",
    [OPERATION_RECEIVE] = "receive",
};

bool comm_calls_agree(const struct comm_call *a, const struct comm_call *b) {
    return a->operation == b->operation && a->dtype == b->dtype && a->wire == b->wire && a->reduction == b->reduction &&
           a->peer == b->peer && a->count == b->count;
}

int64_t comm_call_bytes(const struct comm_call *call) {
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE_SCATTER:
    case OPERATION_ALL_GATHER:
        return call->count * dtype_size(call->dtype);
    default:
        return call->count;
    }
}

const char *comm_call_print(const struct comm_call *call, char text[COMM_CALL_TEXT]) {
    const char *name = NAMES[call->operation], *dtype = dtype_name(call->dtype);
    long long count = (long long)call->count;
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE_SCATTER: {
        const char *reduction = call->reduction == REDUCE_SUM ? "sum" : "max";
        if (call->wire == call->dtype)
            snprintf(text, COMM_CALL_TEXT, "%s of %lld %s (%s)", name, count, dtype, reduction);
        else
            snprintf(text, COMM_CALL_TEXT, "%s of %lld %s (%s, wire %s)", name, count, dtype, reduction,
                     dtype_name(call->wire));
        break;
    }
    case OPERATION_ALL_GATHER:
        snprintf(text, COMM_CALL_TEXT, "%s of %lld %s", name, count, dtype);
        break;
    case OPERATION_BROADCAST:
        snprintf(text, COMM_CALL_TEXT, "%s of %lld bytes from index %d", name, count, call->peer);
        break;
    case OPERATION_ALL_TO_ALL:
    case OPERATION_SEND:
    case OPERATION_RECEIVE:
        snprintf(text, COMM_CALL_TEXT, "%s of %lld bytes", name, count);
        break;
    default:
        snprintf(text, COMM_CALL_TEXT, "%s", name);
    }
    return text;
}

const char *group_print(const char *name, int size, int shown, const int *members, char text[GROUP_PRINT_TEXT]) {
    size_t limit = GROUP_PRINT_TEXT, n = (size_t)snprintf(text, limit, "%.40s (ranks", name);
    for (int i = 0; i < size && i <= shown && n + 24 < limit; i++)
        n += i < shown ? (size_t)snprintf(text + n, limit - n, "%s %d", i ? "," : "", members[i])
                       : (size_t)snprintf(text + n, limit - n, ", ...");
    snprintf(text + n, limit - n, ")");
    return text;
}

int group_index(int rank, int ranks, int size, const int *members, const char *name, char reason[BREAK_TEXT]) {
    char text[GROUP_PRINT_TEXT];
    int index = -1;
    group_print(name, size, MIN(size, 8), members, text);
    for (int i = 0; i < size; i++) {
        bool exists = members[i] >= 0 && members[i] < ranks, twice = false;
        for (int k = 0; k < i; k++)
            twice |= members[k] == members[i];
        if (!exists || twice) {
            snprintf(reason, BREAK_TEXT, "rank %d opens group %s: %d is %s", rank, text, members[i],
                     exists ? "there twice" : "no rank");
            return -1;
        }
        if (members[i] == rank)
            index = i;
    }
    if (index < 0)
        snprintf(reason, BREAK_TEXT, "rank %d opens group %s, in which it is not", rank, text);
    return index;
}

void missing_add(struct missing *missing, int rank) {
    size_t n = strlen(missing->list), limit = sizeof missing->list;
    missing->count++;
    if (missing->cut)
        return;
    missing->cut = n + 24 >= limit;
    if (missing->cut)
        snprintf(missing->list + n, limit - n, ", ...");
    else
        snprintf(missing->list + n, limit - n, "%s %d", missing->count > 1 ? "," : "", rank);
}

void missing_text(const struct missing *missing, char text[MISSING_TEXT]) {
    snprintf(text, MISSING_TEXT, " rank%s%s", missing->count > 1 ? "s" : "", missing->list);
}
