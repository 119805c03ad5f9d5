#include "comm/transport.h"

void world_init(struct world *world, const struct transport *transport, int ranks, double deadline) {
    world->transport = transport;
    world->ranks = ranks;
    atomic_init(&world->speaker, INT_MAX);
    world_deadline(world, deadline);
    pthread_mutex_init(&world->lock, NULL);
}

void world_fini(struct world *world) {
    pthread_mutex_destroy(&world->lock);
}

void world_keep(struct world *world, void *what, void (*release)(void *what)) {
    struct world_kept *kept = mem_alloc(sizeof *kept);
    *kept = (struct world_kept){what, release, atomic_load(&world->kept)};
    while (!atomic_compare_exchange_weak(&world->kept, &kept->next, kept))
        ;
}

bool world_free(struct world *world) {
    if (!world)
        return true;
    if (world->left)
        return false;
    for (struct world_kept *kept = atomic_load(&world->kept), *next; kept; kept = next) {
        next = kept->next;
        kept->release(kept->what);
        free(kept);
    }
    return world->transport->world_free(world);
}

void world_leave(struct world *world) {
    world->left = true;
}

const struct world_place *world_place(const struct world *world) {
    return world && world->place.ranks ? &world->place : NULL;
}

void world_deadline(struct world *world, double seconds) {
    atomic_store(&world->deadline, (int64_t)(MIN(MAX(seconds, 0), 1e9) * 1e9));
}

trireme_status communicator_open(struct communicator **out, struct world *world, int rank, int size, const int *members,
                                 const char *name, trireme_error *error) {
    return world->transport->open(out, world, rank, size, members, name, error);
}

void communicator_free(struct communicator *communicator) {
    if (!communicator)
        return;
    under_way_release(communicator);
    communicator->world->transport->close(communicator);
}

void communicator_wanted(struct communicator *communicator, bool sends, const _Atomic int64_t *since) {
    communicator->wanted[sends] = since;
}

void communicator_patience(struct communicator *communicator, int64_t times) {
    atomic_store(&communicator->patience, times);
}

int communicator_size(const struct communicator *communicator) {
    return communicator->size;
}

int communicator_index(const struct communicator *communicator) {
    return communicator->index;
}

// ---- calls

static void check_call(const struct communicator *communicator, const struct comm_call *call) {
    CHECK(call->count >= 0);
    CHECK(call->peer >= 0 && call->peer < communicator->size);
}

// A call that blocks: made by the calling thread, unless others are under way, behind which it has its place.
static inline trireme_status comm_run(struct communicator *communicator, struct comm_call call, trireme_error *error) {
    check_call(communicator, &call);
    call.patience = atomic_load(&communicator->patience);
    const bool sends = call.operation == OPERATION_SEND;
    if (!sends && under_way_any(communicator))
        return comm_end(under_way_begin(communicator, &call), error);
    call.wanted = communicator->wanted[sends];
    return communicator->world->transport->run(communicator, &call, error);
}

static struct comm_handle comm_begin(struct communicator *communicator, struct comm_call call) {
    check_call(communicator, &call);
    call.patience = atomic_load(&communicator->patience);
    return under_way_begin(communicator, &call);
}

static void check_reduction(enum dtype dtype, enum reduction reduction, enum dtype wire) {
    CHECK(dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F64 || dtype == DTYPE_I32);
    CHECK(reduction == REDUCE_SUM || reduction == REDUCE_MAX);
    CHECK(wire == dtype || (dtype == DTYPE_F32 && wire == DTYPE_BF16));
}

static struct comm_call all_reduce_of(const void *in, void *out, int64_t count, enum dtype dtype,
                                      enum reduction reduction, enum dtype wire) {
    check_reduction(dtype, reduction, wire);
    return (struct comm_call){.operation = OPERATION_ALL_REDUCE,
                              .dtype = dtype,
                              .wire = wire,
                              .reduction = reduction,
                              .count = count,
                              .in = in,
                              .out = out};
}

static struct comm_call reduce_scatter_of(const void *in, void *out, int64_t count, enum dtype dtype,
                                          enum reduction reduction, enum dtype wire, bool accumulate) {
    struct comm_call call = all_reduce_of(in, out, count, dtype, reduction, wire);
    call.operation = OPERATION_REDUCE_SCATTER;
    call.accumulate = accumulate;
    return call;
}

static struct comm_call all_gather_of(const void *in, void *out, int64_t count, enum dtype dtype) {
    return (struct comm_call){
        .operation = OPERATION_ALL_GATHER, .dtype = dtype, .wire = dtype, .count = count, .in = in, .out = out};
}

static struct comm_call broadcast_of(void *data, int64_t bytes, int root) {
    return (struct comm_call){.operation = OPERATION_BROADCAST, .peer = root, .count = bytes, .in = data, .out = data};
}

static struct comm_call all_to_all_of(const void *in, void *out, int64_t bytes) {
    return (struct comm_call){.operation = OPERATION_ALL_TO_ALL, .count = bytes, .in = in, .out = out};
}

static struct comm_call all_to_all_v_of(const void *in, const int64_t *in_offset, const int64_t *in_bytes, void *out,
                                        const int64_t *out_offset, const int64_t *out_bytes) {
    return (struct comm_call){.operation = OPERATION_ALL_TO_ALL_V,
                              .in = in,
                              .out = out,
                              .in_offset = in_offset,
                              .in_bytes = in_bytes,
                              .out_offset = out_offset,
                              .out_bytes = out_bytes};
}

trireme_status comm_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, enum reduction reduction, enum dtype wire, trireme_error *error) {
    return comm_run(communicator, all_reduce_of(in, out, count, dtype, reduction, wire), error);
}

struct comm_handle comm_begin_all_reduce(struct communicator *communicator, const void *in, void *out, int64_t count,
                                         enum dtype dtype, enum reduction reduction, enum dtype wire) {
    return comm_begin(communicator, all_reduce_of(in, out, count, dtype, reduction, wire));
}

trireme_status comm_reduce_scatter(struct communicator *communicator, const void *in, void *out, int64_t count,
                                   enum dtype dtype, enum reduction reduction, enum dtype wire, bool accumulate,
                                   trireme_error *error) {
    return comm_run(communicator, reduce_scatter_of(in, out, count, dtype, reduction, wire, accumulate), error);
}

struct comm_handle comm_begin_reduce_scatter(struct communicator *communicator, const void *in, void *out,
                                             int64_t count, enum dtype dtype, enum reduction reduction, enum dtype wire,
                                             bool accumulate) {
    return comm_begin(communicator, reduce_scatter_of(in, out, count, dtype, reduction, wire, accumulate));
}

trireme_status comm_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                               enum dtype dtype, trireme_error *error) {
    return comm_run(communicator, all_gather_of(in, out, count, dtype), error);
}

struct comm_handle comm_begin_all_gather(struct communicator *communicator, const void *in, void *out, int64_t count,
                                         enum dtype dtype) {
    return comm_begin(communicator, all_gather_of(in, out, count, dtype));
}

trireme_status comm_all_gather_bytes(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                                     trireme_error *error) {
    return comm_run(communicator, all_gather_of(in, out, bytes, DTYPE_COUNT), error);
}

struct comm_handle comm_begin_all_gather_bytes(struct communicator *communicator, const void *in, void *out,
                                               int64_t bytes) {
    return comm_begin(communicator, all_gather_of(in, out, bytes, DTYPE_COUNT));
}

trireme_status comm_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root,
                              trireme_error *error) {
    return comm_run(communicator, broadcast_of(data, bytes, root), error);
}

struct comm_handle comm_begin_broadcast(struct communicator *communicator, void *data, int64_t bytes, int root) {
    return comm_begin(communicator, broadcast_of(data, bytes, root));
}

trireme_status comm_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes,
                               trireme_error *error) {
    return comm_run(communicator, all_to_all_of(in, out, bytes), error);
}

struct comm_handle comm_begin_all_to_all(struct communicator *communicator, const void *in, void *out, int64_t bytes) {
    return comm_begin(communicator, all_to_all_of(in, out, bytes));
}

trireme_status comm_all_to_all_v(struct communicator *communicator, const void *in, const int64_t *in_offset,
                                 const int64_t *in_bytes, void *out, const int64_t *out_offset,
                                 const int64_t *out_bytes, trireme_error *error) {
    return comm_run(communicator, all_to_all_v_of(in, in_offset, in_bytes, out, out_offset, out_bytes), error);
}

struct comm_handle comm_begin_all_to_all_v(struct communicator *communicator, const void *in, const int64_t *in_offset,
                                           const int64_t *in_bytes, void *out, const int64_t *out_offset,
                                           const int64_t *out_bytes) {
    return comm_begin(communicator, all_to_all_v_of(in, in_offset, in_bytes, out, out_offset, out_bytes));
}

trireme_status comm_send(struct communicator *communicator, const void *data, int64_t bytes, int peer,
                         trireme_error *error) {
    CHECK(peer != communicator->index);
    const struct comm_call call = {.operation = OPERATION_SEND, .peer = peer, .count = bytes, .in = data};
    return comm_run(communicator, call, error);
}

trireme_status comm_receive(struct communicator *communicator, void *data, int64_t bytes, int peer,
                            trireme_error *error) {
    CHECK(peer != communicator->index);
    const struct comm_call call = {.operation = OPERATION_RECEIVE, .peer = peer, .count = bytes, .out = data};
    return comm_run(communicator, call, error);
}

trireme_status comm_barrier(struct communicator *communicator, trireme_error *error) {
    return comm_run(communicator, (struct comm_call){.operation = OPERATION_BARRIER}, error);
}

struct comm_handle comm_begin_barrier(struct communicator *communicator) {
    return comm_begin(communicator, (struct comm_call){.operation = OPERATION_BARRIER});
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

struct deadline comm_call_deadline(const struct world *world, const struct comm_call *call) {
    const int64_t most = INT64_MAX / 4, limit = world->deadline, times = MAX(call->patience, 1);
    return deadline_begin(limit > most / times ? most : limit * times, call->wanted);
}

bool comm_calls_agree(const struct comm_call *a, const struct comm_call *b) {
    return a->operation == b->operation && a->dtype == b->dtype && a->wire == b->wire && a->reduction == b->reduction &&
           a->peer == b->peer && a->count == b->count;
}

int64_t comm_call_bytes(const struct comm_call *call) {
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE_SCATTER:
    case OPERATION_ALL_GATHER:
        return call->dtype == DTYPE_COUNT ? call->count : call->count * dtype_size(call->dtype);
    default:
        return call->count;
    }
}

const char *comm_call_print(const struct comm_call *call, char text[COMM_CALL_TEXT]) {
    const char *name = NAMES[call->operation], *dtype = call->dtype == DTYPE_COUNT ? "bytes" : dtype_name(call->dtype);
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

int group_index(int rank, int ranks, int size, const int *members, const char *name, char reason[COMM_REASON]) {
    char text[GROUP_PRINT_TEXT];
    int index = -1;
    group_print(name, size, MIN(size, 8), members, text);
    for (int i = 0; i < size; i++) {
        bool exists = members[i] >= 0 && members[i] < ranks, twice = false;
        for (int k = 0; k < i; k++)
            twice |= members[k] == members[i];
        if (!exists || twice) {
            snprintf(reason, COMM_REASON, "rank %d opens group %s: %d is %s", rank, text, members[i],
                     exists ? "there twice" : "no rank");
            return -1;
        }
        if (members[i] == rank)
            index = i;
    }
    if (index < 0)
        snprintf(reason, COMM_REASON, "rank %d opens group %s, in which it is not", rank, text);
    return index;
}

void missing_add(struct missing *missing, int rank) {
    size_t n = strlen(missing->list), limit = sizeof missing->list;
    if (missing->count++ == 0)
        missing->first = rank;
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
