// The devices that ranks are on, where they are not all alike.
#include "compile/options.h"
#include "plan/estimate.h"
#include "plan/evaluate.h"
#include "sim/place.h"

#include <math.h>

// Ranks that are more than devices share these.
static double *find_rooms(const struct plan_request *request) {
    const struct cluster *c = request->cluster;
    double *rooms = mem_alloc((size_t)request->ranks * sizeof *rooms);
    int shared = place_share(c, request->ranks);
    for (int r = 0; r < request->ranks; r++) {
        struct station s = station_on(c, r / shared, shared);
        rooms[r] = MAX(1, (double)(s.room - s.device->runtime_memory));
    }
    return rooms;
}

// By what products take, of ranks that have a device each. Stages are ranks that follow one another.
static double *compare_devices(const struct plan_request *request) {
    const struct cluster *c = request->cluster;
    const enum dtype dtype = options_dtype(request->config);
    int types = 0;
    for (size_t i = 0; i < c->groups.count; i++)
        types += i == 0 || c->groups.item[i].device != c->groups.item[0].device;
    if ((types == 1 && c->stragglers.count == 0) || request->ranks > c->total_devices)
        return NULL;
    double *slower = mem_alloc((size_t)request->ranks * sizeof *slower), first = 0;
    for (int r = 0; r < request->ranks; r++) {
        const struct device *d = station_on(c, r, 1).device;
        double compute = d->curve[OP_MATMUL][dtype].compute;
        slower[r] = 1 / (d->peak[dtype] * (compute > 0 ? compute : 1));
        first = r ? first : slower[0];
        slower[r] /= first;
    }
    for (size_t i = 0; i < c->stragglers.count; i++)
        if (c->stragglers.item[i].device < request->ranks)
            slower[c->stragglers.item[i].device] *= c->stragglers.item[i].slower;
    return slower;
}

static void make_plain(struct estimator *e) {
    const struct cluster *c = e->request->cluster;
    e->plain = *c;
    e->plain.stragglers.count = 0;
    e->plain.ranks_per_device = place_share(c, e->request->ranks);
    e->plain.groups.item = mem_alloc(c->groups.count * sizeof *c->groups.item);
    for (size_t i = 0; i < c->groups.count; i++) {
        e->plain.groups.item[i] = c->groups.item[i];
        e->plain.groups.item[i].device = c->groups.item[0].device;
    }
}

bool estimator_chooses_logits(const struct plan_request *request) {
    const struct cluster *c = request->cluster;
    bool cores = false;
    for (size_t i = 0; i < c->groups.count; i++)
        cores |= c->devices.item[c->groups.item[i].device].cores > 1;
    return !cores && !config_is_set(request->config, "training.logits_rows");
}

// Each chunk of logits is added to the gradient of the head, which is read and written as often as there are chunks.
int64_t estimator_logits_rows(const struct estimator *e, int tensor) {
    static const double SHARE = 1. / 32; // of a rank's memory, for logits and their gradients
    const double row = (double)e->request->model->vocab_size / tensor * dtype_size(options_dtype(e->request->config));
    int64_t rows = (int64_t)(SHARE * e->room / (2 * row)) / 64 * 64;
    return e->large_logits && (double)rows * row > LOGITS_CHUNK_BYTES ? rows : 0;
}

void estimator_devices(struct estimator *e) {
    e->rooms = find_rooms(e->request);
    e->slower = compare_devices(e->request);
    for (int r = 0; r < e->request->ranks; r++)
        e->room = MAX(e->room, e->rooms[r]);
    make_plain(e);
}

double slowest_of(const struct estimator *e, int stages, int stage) {
    int each = e->request->ranks / stages;
    double most = 0;
    for (int r = stage * each; r < (stage + 1) * each && e->slower; r++)
        most = MAX(most, e->slower[r]);
    return e->slower ? most : 1;
}

double room_of_stage(const struct estimator *e, int stages, int stage) {
    int each = e->request->ranks / stages;
    double least = INFINITY;
    for (int r = stage * each; r < (stage + 1) * each; r++)
        least = MIN(least, e->rooms[r]);
    return least;
}

bool stages_differ(const struct estimator *e, const struct plan_choice *c, int *stages, int **layers) {
    struct parallel plan;
    trireme_error none;
    *layers = NULL;
    if (!choice_resolve(&plan, e->request, c))
        return false;
    *layers = parallel_layers(&plan, stages);
    bool differ = e->slower != NULL;
    const struct link_use uses[] = {{mesh_present(&plan.mesh, AXES_DATA), 0, false},
                                    {mesh_present(&plan.mesh, AXES_TENSOR), 0, false}};
    struct place place;
    if (place_create(&place, e->request->cluster, &plan.mesh, uses, ARRAY_LENGTH(uses), false, &none) == TRIREME_OK) {
        const int each = place.ranks / c->stages;
        for (size_t u = 0; u < ARRAY_LENGTH(uses); u++)
            for (int rank = each; rank < place.ranks; rank += each)
                for (int level = 0; level < CLUSTER_LEVELS_MAX; level++)
                    differ |= place.route[u][rank].parts[level] != place.route[u][0].parts[level] ||
                              place.route[u][rank].bandwidth[level] != place.route[u][0].bandwidth[level];
        place_release(&place);
    }
    parallel_release(&plan);
    return differ;
}
