#include "engine/whole_tensors.h"

#include "kernels/bf16.h"

enum { DISMISSED = -1, ANY_STAGE = -1 };

// What rank 0 asks all ranks for: a window of a parameter.
struct request {
    int32_t what, number, island;
    struct parameter_window window;
};

// What a rank has of a parameter: for each part, as much of a struct parameter as parameter_runs needs. If it has
// values in the window, they follow, run by run.
struct offer {
    int32_t parts;
    struct {
        int64_t begin, end, columns;
        int32_t regions;
        struct parameter_region region[3];
    } part[WHOLE_PARTS];
};

static bool one_rank(const struct whole *w) {
    return mesh_ranks(&w->engine->parallel->mesh) == 1;
}

void whole_create(struct whole *w, const struct engine *e, struct communicator *control) {
    *w = (struct whole){.engine = e, .control = control, .islands = mesh_group_size(&e->parallel->mesh, AXES_ISLAND)};
    w->share = mem_alloc((size_t)w->islands * sizeof *w->share);
    w->view = mem_alloc((size_t)(w->islands + 1) * ENGINE_VALUES * sizeof *w->view);
    for (int k = 0; k < (w->islands + 1) * ENGINE_VALUES; k++)
        w->view[k] = (struct whole_view){.whole = w,
                                         .what = (enum engine_values)(k % ENGINE_VALUES),
                                         .island = k / ENGINE_VALUES < w->islands ? k / ENGINE_VALUES : WHOLE_MEAN};
    w->stage = mem_alloc(e->table->parameters.count * sizeof *w->stage);
    // A tied embedding is on the last stage too: the first one that has a unit counts.
    for (int s = e->parallel->mesh.degree[AXIS_PP] - 1; s > 0; s--) {
        struct parallel parallel = *e->parallel;
        parallel.stage = s;
        bool *sections = parallel_sections(&parallel, e->table->units.count);
        for (size_t i = 0; i < e->table->parameters.count; i++)
            if (sections[e->table->parameters.item[i].unit])
                w->stage[i] = s;
        free(sections);
    }
    for (size_t i = 0; i < e->table->parameters.count; i++)
        if (e->parallel->split.vocabulary_stages > 1 && e->table->parameters.item[i].is_vocabulary)
            w->stage[i] = ANY_STAGE;
}

void whole_release(struct whole *w) {
    free(w->stage);
    free(w->share);
    free(w->view);
    free(w->window.data);
    free(w->message.data);
    free(w->mean.data);
    free(w->rounded.data);
    *w = (struct whole){0};
}

static enum dtype dtype_of(const struct whole *w, enum engine_values what) {
    enum dtype dtype = w->engine->stage->state.dtype;
    return what == ENGINE_PARAMETERS ? dtype : what == ENGINE_REMAINDERS ? DTYPE_U16 : dtype_accumulate(dtype);
}

static char *room_for(struct whole_room *room, int64_t bytes) {
    if (bytes > room->bytes) {
        free(room->data);
        *room = (struct whole_room){mem_alloc((size_t)bytes), bytes};
    }
    return room->data;
}

// ---- saving

// Whether `rank` is the first, on its island, of those that differ along no axis of `apart`, nor in their stage.
static bool first_replica(const struct whole *w, int rank, axis_set apart) {
    return mesh_index(&w->engine->parallel->mesh, rank, AXES_WITHIN & ~AXES_STAGE & ~apart) == 0;
}

// Whether `rank` may have a part to give: of replicas the first gives.
static bool may_give(const struct whole *w, int rank, const struct request *request) {
    const struct mesh *mesh = &w->engine->parallel->mesh;
    const struct model_units *units = &w->engine->stage->state.units;
    const int stage = w->stage[request->number];
    return (stage == ANY_STAGE || mesh_coordinate(mesh, rank, AXIS_PP) == stage) &&
           first_replica(w, rank, units_apart(&units->layout, mesh)) &&
           mesh_index(mesh, rank, AXES_ISLAND) == request->island;
}

// Whether this rank gives its part of a local parameter.
static bool tensor_gives(const struct whole *w, const struct parameter *local) {
    const struct unit_axes *axes = &w->engine->stage->state.units.axes[local->unit];
    return first_replica(w, w->engine->member.rank, axes->split | axes->shards);
}

static struct offer offer_of(const struct whole *w, const struct request *request, const void *data[WHOLE_PARTS]) {
    const struct engine *e = w->engine;
    struct offer offer = {0};
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i];
        if (p->whole != request->number || !tensor_gives(w, p))
            continue;
        struct engine_part part = engine_part(e, (enum engine_values)request->what, i);
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

static int64_t tensor_size_of(const struct whole *w, const struct request *request) {
    return dtype_size(dtype_of(w, (enum engine_values)request->what));
}

static int64_t window_bytes(const struct whole *w, const struct request *request) {
    return request->window.rows * request->window.columns * tensor_size_of(w, request);
}

// Copies the elements that part `k` of an offer has in the window; returns how many. `from`: the rank's elements; NULL:
// they are taken from `packed`, where they lie one after the other. `to`: the window, where they go to their places;
// NULL: they go to `packed`. If both are NULL, nothing is copied.
static int64_t copy_part(const struct offer *offer, int k, const struct parameter_window *window, const char *from,
                         char *packed, char *to, int64_t size) {
    struct parameter local = {.dim = {0, offer->part[k].columns}, .regions = offer->part[k].regions};
    memcpy(local.region, offer->part[k].region, sizeof local.region);
    const struct parameter_span held = {offer->part[k].begin, offer->part[k].end};
    struct parameter_runs runs = parameter_runs(&local, held, window);
    int64_t count = 0;
    for (struct parameter_run run; parameter_next(&runs, &run); count += run.count)
        if (from || to)
            memcpy(to ? to + run.window * size : packed + count * size,
                   from ? from + run.held * size : packed + count * size, (size_t)(run.count * size));
    return count;
}

static trireme_status send_offer(struct whole *w, const struct request *request, trireme_error *error) {
    if (!may_give(w, w->engine->member.rank, request))
        return TRIREME_OK;
    const void *data[WHOLE_PARTS];
    struct offer offer = offer_of(w, request, data);
    TRY(comm_send(w->control, &offer, sizeof offer, 0, error));
    const int64_t size = tensor_size_of(w, request);
    char *message = room_for(&w->message, window_bytes(w, request));
    int64_t count = 0;
    for (int k = 0; k < offer.parts; k++)
        count += copy_part(&offer, k, &request->window, data[k], message + count * size, NULL, size);
    return count > 0 ? comm_send(w->control, message, count * size, 0, error) : TRIREME_OK;
}

static trireme_status receive_offer(struct whole *w, const struct request *request, int rank, trireme_error *error) {
    struct offer offer;
    TRY(comm_receive(w->control, &offer, sizeof offer, rank, error));
    const int64_t size = tensor_size_of(w, request);
    int64_t count = 0;
    for (int k = 0; k < offer.parts; k++)
        count += copy_part(&offer, k, &request->window, NULL, NULL, NULL, size);
    if (count == 0)
        return TRIREME_OK;
    char *message = room_for(&w->message, window_bytes(w, request));
    TRY(comm_receive(w->control, message, count * size, rank, error));
    for (int k = 0; k < offer.parts; k++)
        message += size * copy_part(&offer, k, &request->window, NULL, message, w->window.data, size);
    return TRIREME_OK;
}

static trireme_status tensor_ask(struct whole *w, struct request *request, trireme_error *error) {
    return comm_broadcast(w->control, request, sizeof *request, 0, error);
}

static trireme_status put_together(struct whole *w, struct request request, trireme_error *error) {
    const int64_t bytes = window_bytes(w, &request), size = tensor_size_of(w, &request);
    char *to = memset(room_for(&w->window, bytes), 0, (size_t)bytes);
    TRY(tensor_ask(w, &request, error));
    for (int rank = 0; rank < mesh_ranks(&w->engine->parallel->mesh); rank++) {
        if (!may_give(w, rank, &request))
            continue;
        if (rank > 0) {
            TRY(receive_offer(w, &request, rank, error));
            continue;
        }
        const void *own[WHOLE_PARTS];
        struct offer offer = offer_of(w, &request, own);
        for (int k = 0; k < offer.parts; k++)
            copy_part(&offer, k, &request.window, own[k], NULL, to, size);
    }
    return TRIREME_OK;
}

static double tensor_element(const void *data, enum dtype dtype, const uint16_t *low, int64_t i) {
    return dtype == DTYPE_F64 ? ((const double *)data)[i]
           : low              ? master_join(((const uint16_t *)data)[i], low[i])
                              : float_at(dtype == DTYPE_BF16, data, i);
}

// Puts together the parameters that an island has in a window, as f64 master weights, at out[count].
static trireme_status tensor_masters(struct whole *w, struct request request, int64_t count, double *out,
                                     trireme_error *error) {
    const enum dtype dtype = dtype_of(w, ENGINE_PARAMETERS);
    const void *data;
    uint16_t *low = NULL;
    if (dtype == DTYPE_BF16) {
        request.what = ENGINE_REMAINDERS;
        TRY(put_together(w, request, error));
        low = memcpy(room_for(&w->rounded, count * (int64_t)sizeof *low), w->window.data, (size_t)count * sizeof *low);
    }
    request.what = ENGINE_PARAMETERS;
    TRY(put_together(w, request, error));
    data = w->window.data;
    for (int64_t i = 0; i < count; i++)
        out[i] = tensor_element(data, dtype, low, i);
    return TRIREME_OK;
}

// The weighted mean over the islands. What they all have alike it gives exactly.
static trireme_status tensor_mean(struct whole *w, struct request request, const void **data, trireme_error *error) {
    const int64_t count = request.window.rows * request.window.columns;
    const enum dtype dtype = dtype_of(w, ENGINE_PARAMETERS);
    double *first = (double *)room_for(&w->mean, 3 * count * (int64_t)sizeof *first), *other = first + count,
           *apart = other + count;
    memset(apart, 0, (size_t)count * sizeof *apart);
    request.island = 0;
    TRY(tensor_masters(w, request, count, first, error));
    for (request.island = 1; request.island < w->islands; request.island++) {
        TRY(tensor_masters(w, request, count, other, error));
        for (int64_t i = 0; i < count; i++)
            apart[i] += w->share[request.island] * (other[i] - first[i]);
    }
    char *out = room_for(&w->rounded, count * (int64_t)sizeof *first);
    for (int64_t i = 0; i < count; i++) {
        const double x = first[i] + apart[i];
        uint16_t low;
        if (dtype == DTYPE_F64)
            ((double *)out)[i] = x;
        else if (dtype == DTYPE_BF16)
            master_split((float)x, (uint16_t *)out + i, &low);
        else
            ((float *)out)[i] = (float)x;
    }
    *data = out;
    return TRIREME_OK;
}

static trireme_status whole_tensor_get(const struct parameter_values *values, size_t number, int64_t columns,
                                       const struct parameter_window *window, const void **data, int64_t *stride,
                                       trireme_error *error) {
    const struct whole_view *view = values->user;
    struct whole *w = view->whole;
    if (one_rank(w)) {
        *data = (const char *)engine_part(w->engine, view->what, number).data +
                (window->row * columns + window->column) * dtype_size(values->dtype);
        *stride = columns;
        return TRIREME_OK;
    }
    *stride = window->columns;
    const struct request request = {(int32_t)view->what, (int32_t)number, MAX(view->island, 0), *window};
    if (view->island == WHOLE_MEAN && w->islands > 1) {
        CHECK(view->what == ENGINE_PARAMETERS);
        return tensor_mean(w, request, data, error);
    }
    TRY(put_together(w, request, error));
    *data = w->window.data;
    return TRIREME_OK;
}

void whole_weigh(struct whole *w, const double *weights) {
    double total = 0;
    for (int i = 0; i < w->islands; i++)
        total += weights[i];
    for (int i = 0; i < w->islands; i++)
        w->share[i] = total > 0 ? weights[i] / total : 1.0 / w->islands;
}

trireme_status whole_serve(struct whole *w, trireme_error *error) {
    for (struct request request;;) {
        TRY(tensor_ask(w, &request, error));
        if (request.what == DISMISSED)
            return TRIREME_OK;
        TRY(send_offer(w, &request, error));
    }
}

trireme_status whole_dismiss(struct whole *w, trireme_error *error) {
    return one_rank(w) ? TRIREME_OK : tensor_ask(w, &(struct request){.what = DISMISSED}, error);
}

// ---- loading

static bool tensor_begin(const struct parameter_values *values, size_t number, size_t bytes) {
    (void)bytes;
    struct whole_view *view = values->user;
    struct whole *w = view->whole;
    const struct engine *e = w->engine;
    // No rank gets ahead of the others by more than one parameter, so that none waits for long: files may be slow to
    // read on one machine and cached on another. Remainders do not count: not all ranks ask for them.
    trireme_error late; // ignored: the next wait fails with it, too
    if (w->control && view->what != ENGINE_REMAINDERS)
        comm_barrier(w->control, &late);
    view->parts = 0;
    if (view->island != WHOLE_MEAN && mesh_index(&e->parallel->mesh, e->member.rank, AXES_ISLAND) != view->island)
        return false;
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

static void whole_tensor_put(const struct parameter_values *values, size_t number, size_t at, size_t bytes,
                             const void *from) {
    struct whole_view *view = values->user;
    const struct parameter *whole = &view->whole->engine->table->parameters.item[number];
    int64_t size = dtype_size(values->dtype), first = (int64_t)at / size;
    const struct parameter_span given = {first, first + (int64_t)bytes / size};
    for (int i = 0; i < view->parts; i++) {
        const struct engine_part *own = &view->part[i].own;
        parameter_take(view->part[i].local, whole, given, from, (struct parameter_span){own->begin, own->end},
                       own->data, size);
    }
}

struct parameter_values whole_values(struct whole *w, enum engine_values what, int island) {
    struct whole_view *view = &w->view[(island == WHOLE_MEAN ? w->islands : island) * ENGINE_VALUES + (int)what];
    return (struct parameter_values){dtype_of(w, what), view, whole_tensor_get, tensor_begin, whole_tensor_put};
}
