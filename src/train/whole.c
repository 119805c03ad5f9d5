#include "train/whole.h"

enum { CHUNK_BYTES = 1 << 20, DISMISSED = -1, EVERY_STAGE = -1 };

// What rank 0 asks all ranks for.
struct request {
    int32_t what, number;
};

// What a rank has of a parameter: of each part as much of a struct parameter as parameter_give needs. Values follow,
// part by part, in chunks.
struct offer {
    int32_t parts;
    struct {
        int64_t begin, end, columns;
        int32_t regions;
        struct parameter_region region[3];
    } part[WHOLE_PARTS];
};

static bool one_rank(const struct whole *w) {
    return mesh_ranks(&w->engine->parallel.mesh) == 1;
}

void whole_create(struct whole *w, const struct engine *e, struct communicator *control) {
    *w = (struct whole){.engine = e, .control = control, .held = NONE};
    for (int what = 0; what < WHOLE_KINDS; what++)
        w->view[what] = (struct whole_view){.whole = w, .what = (enum engine_values)what};
    w->stage = mem_alloc(e->table.parameters.count * sizeof *w->stage);
    // A tied embedding is on the last stage too: the first one that has a unit counts.
    for (int s = e->parallel.mesh.degree[AXIS_PP] - 1; s > 0; s--) {
        struct parallel parallel = e->parallel;
        parallel.stage = s;
        bool *sections = parallel_sections(&parallel, e->table.units.count);
        for (size_t i = 0; i < e->table.parameters.count; i++)
            if (sections[e->table.parameters.item[i].unit])
                w->stage[i] = s;
        free(sections);
    }
    for (size_t i = 0; i < e->table.parameters.count; i++)
        if (e->parallel.split.vocabulary_stages > 1 && parameter_is_vocabulary(&e->table.parameters.item[i]))
            w->stage[i] = EVERY_STAGE;
}

void whole_release(struct whole *w) {
    free(w->stage);
    free(w->room);
    *w = (struct whole){0};
}

static enum dtype dtype_of(const struct whole *w, enum engine_values what) {
    enum dtype dtype = w->engine->dtype;
    return what == ENGINE_PARAMETERS ? dtype : what == ENGINE_REMAINDERS ? DTYPE_U16 : dtype_accumulate(dtype);
}

static char *room_for(struct whole *w, enum engine_values what, size_t number) {
    const struct parameter *p = &w->engine->table.parameters.item[number];
    int64_t bytes = p->dim[0] * p->dim[1] * dtype_size(dtype_of(w, what));
    if (bytes > w->room_bytes) {
        free(w->room);
        w->room = mem_alloc((size_t)bytes);
        w->room_bytes = bytes;
    }
    return w->room;
}

// ---- saving

// Whether `rank` may have a part that is its to give: of replicas the first gives.
static bool may_give(const struct whole *w, int rank, size_t number) {
    const struct mesh *mesh = &w->engine->parallel.mesh;
    bool stage = w->stage[number] == EVERY_STAGE || mesh_coordinate(mesh, rank, AXIS_PP) == w->stage[number];
    return mesh_coordinate(mesh, rank, AXIS_DP) == 0 && stage;
}

// The same of a local parameter of this rank.
static bool gives(const struct whole *w, const struct parameter *local) {
    const struct mesh *mesh = &w->engine->parallel.mesh;
    int rank = w->engine->member.rank, zero = w->engine->parallel.zero_stage;
    if (zero == 0 && mesh_coordinate(mesh, rank, AXIS_FSDP) > 0)
        return false;
    if (local->split == CLASS_KV)
        return mesh_coordinate(mesh, rank, AXIS_KV) == 0;
    return local->split == CLASS_SPLIT || local->split == CLASS_VOCABULARY || mesh_index(mesh, rank, AXES_TENSOR) == 0;
}

static struct offer offer_of(const struct whole *w, struct request request, const void *data[WHOLE_PARTS]) {
    const struct engine *e = w->engine;
    struct offer offer = {0};
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i];
        if (p->whole != request.number || !gives(w, p))
            continue;
        struct engine_part part = engine_part(e, (enum engine_values)request.what, i);
        if (part.begin >= part.end)
            continue;
        CHECK(offer.parts < WHOLE_PARTS);
        data[offer.parts] = part.data;
        offer.part[offer.parts].begin = part.begin;
        offer.part[offer.parts].end = part.end;
        offer.part[offer.parts].columns = p->dim[1];
        offer.part[offer.parts].regions = p->regions;
        memcpy(offer.part[offer.parts].region, p->region, sizeof p->region);
        offer.parts++;
    }
    return offer;
}

// Elements [begin, end) of part `k` of an offer, which lie at `from`, to their places in the whole.
static void place(const struct whole *w, size_t number, const struct offer *offer, int k, int64_t begin, int64_t end,
                  const void *from, int64_t size) {
    struct parameter local = {.dim = {0, offer->part[k].columns}, .regions = offer->part[k].regions};
    memcpy(local.region, offer->part[k].region, sizeof local.region);
    parameter_give(&local, &w->engine->table.parameters.item[number], begin, end, from, w->room, size);
}

static int64_t size_of(const struct whole *w, struct request request) {
    return dtype_size(dtype_of(w, (enum engine_values)request.what));
}

static trireme_status send_offer(struct whole *w, struct request request, trireme_error *error) {
    if (!may_give(w, w->engine->member.rank, (size_t)request.number))
        return TRIREME_OK;
    const void *data[WHOLE_PARTS];
    struct offer offer = offer_of(w, request, data);
    TRY(comm_send(w->control, &offer, sizeof offer, 0, error));
    int64_t size = size_of(w, request), chunk = CHUNK_BYTES / size;
    for (int k = 0; k < offer.parts; k++)
        for (int64_t at = offer.part[k].begin; at < offer.part[k].end; at += chunk) {
            int64_t count = MIN(chunk, offer.part[k].end - at);
            const char *from = (const char *)data[k] + (at - offer.part[k].begin) * size;
            TRY(comm_send(w->control, from, count * size, 0, error));
        }
    return TRIREME_OK;
}

static trireme_status receive_offer(struct whole *w, struct request request, int rank, trireme_error *error) {
    struct offer offer;
    TRY(comm_receive(w->control, &offer, sizeof offer, rank, error));
    int64_t size = size_of(w, request), chunk = CHUNK_BYTES / size;
    char *received = mem_alloc(CHUNK_BYTES);
    trireme_status status = TRIREME_OK;
    for (int k = 0; k < offer.parts; k++)
        for (int64_t at = offer.part[k].begin; at < offer.part[k].end && status == TRIREME_OK; at += chunk) {
            int64_t end = MIN(at + chunk, offer.part[k].end);
            status = comm_receive(w->control, received, (end - at) * size, rank, error);
            if (status == TRIREME_OK)
                place(w, (size_t)request.number, &offer, k, at, end, received, size);
        }
    free(received);
    return status;
}

static trireme_status ask(struct whole *w, struct request *request, trireme_error *error) {
    return comm_broadcast(w->control, request, sizeof *request, 0, error);
}

static trireme_status put_together(struct whole *w, struct request request, trireme_error *error) {
    const struct parameter *p = &w->engine->table.parameters.item[request.number];
    int64_t size = size_of(w, request);
    char *data = room_for(w, (enum engine_values)request.what, (size_t)request.number);
    memset(data, 0, (size_t)(p->dim[0] * p->dim[1] * size));
    TRY(ask(w, &request, error));
    for (int rank = 0; rank < mesh_ranks(&w->engine->parallel.mesh); rank++) {
        if (!may_give(w, rank, (size_t)request.number))
            continue;
        if (rank > 0) {
            TRY(receive_offer(w, request, rank, error));
            continue;
        }
        const void *own[WHOLE_PARTS];
        struct offer offer = offer_of(w, request, own);
        for (int k = 0; k < offer.parts; k++)
            place(w, (size_t)request.number, &offer, k, offer.part[k].begin, offer.part[k].end, own[k], size);
    }
    return TRIREME_OK;
}

static trireme_status get(void *user, size_t number, const void **data, trireme_error *error) {
    struct whole_view *view = user;
    struct whole *w = view->whole;
    if (one_rank(w)) {
        *data = engine_part(w->engine, view->what, number).data;
        return TRIREME_OK;
    }
    if (w->held != (int)view->what || w->number != number) {
        w->held = NONE;
        TRY(put_together(w, (struct request){(int32_t)view->what, (int32_t)number}, error));
        w->held = (int)view->what;
        w->number = number;
    }
    *data = w->room;
    return TRIREME_OK;
}

trireme_status whole_serve(struct whole *w, trireme_error *error) {
    for (struct request request;;) {
        TRY(ask(w, &request, error));
        if (request.what == DISMISSED)
            return TRIREME_OK;
        TRY(send_offer(w, request, error));
    }
}

trireme_status whole_dismiss(struct whole *w, trireme_error *error) {
    return one_rank(w) ? TRIREME_OK : ask(w, &(struct request){DISMISSED, 0}, error);
}

// ---- loading

static bool begin(void *user, size_t number, size_t bytes) {
    (void)bytes;
    struct whole_view *view = user;
    struct whole *w = view->whole;
    const struct engine *e = w->engine;
    // None is ahead of others by more than one parameter, so that nobody waits for long: files may be slow to read on
    // one machine and known already on another. Remainders are asked for beside their parameter, not by all.
    trireme_error late; // which who waits next meets, too
    if (w->control && view->what != ENGINE_REMAINDERS)
        comm_barrier(w->control, &late);
    view->parts = 0;
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        if (e->local.parameters.item[i].whole != (int)number)
            continue;
        struct engine_part part = engine_part(e, view->what, i);
        if (part.begin >= part.end)
            continue;
        CHECK(view->parts < WHOLE_PARTS);
        memset(part.data, 0, (size_t)((part.end - part.begin) * dtype_size(part.dtype)));
        view->part[view->parts++] = (struct whole_part){&e->local.parameters.item[i], part};
    }
    return view->parts > 0;
}

static void put(void *user, size_t number, size_t at, size_t bytes, const void *from) {
    struct whole_view *view = user;
    const struct parameter *whole = &view->whole->engine->table.parameters.item[number];
    int64_t size = dtype_size(dtype_of(view->whole, view->what)), first = (int64_t)at / size;
    const struct parameter_span given = {first, first + (int64_t)bytes / size};
    for (int i = 0; i < view->parts; i++) {
        const struct engine_part *own = &view->part[i].own;
        parameter_take(view->part[i].local, whole, given, from, (struct parameter_span){own->begin, own->end},
                       own->data, size);
    }
}

struct parameter_values whole_values(struct whole *w, enum engine_values what) {
    return (struct parameter_values){dtype_of(w, what), &w->view[what], get, begin, put};
}
