// The kinds of ranks, where the devices that they are on are not all alike.
#include "planner/estimate.h"
#include "planner/evaluate.h"
#include "sim/topology.h"

#include <math.h>

// Ranks whose slowness differs by less are of one kind: estimates are not that exact, and each kind has to be measured.
static const double ALIKE = 1.01;

// The kind of a rank, which is added if it is new. Where there are more ranks than devices, they share devices.
static int devices_kind_of(struct estimator *e, int rank) {
    const struct cluster *c = e->request->cluster;
    const int shared = topology_share(c, e->request->ranks), device = cluster_type(c, rank / shared);
    const struct station s = station_on(c, rank / shared, shared);
    for (size_t i = 0; i < e->kinds.count; i++) {
        const struct rank_kind *kind = &e->kinds.item[i];
        if (kind->device == device && fmax(kind->slower / s.slower, s.slower / kind->slower) < ALIKE)
            return (int)i;
    }
    VEC_PUSH(&e->kinds, (struct rank_kind){.device = device,
                                           .slower = s.slower,
                                           .room = fmax(1, (double)(s.room - s.device->runtime_memory))});
    return (int)e->kinds.count - 1;
}

static void make_plain(struct rank_kind *kind, const struct plan_request *request) {
    const struct cluster *c = request->cluster;
    struct cluster *plain = &kind->plain;
    *plain = *c;
    plain->ranks_per_device = topology_share(c, request->ranks);
    plain->groups.item = mem_alloc(c->groups.count * sizeof *c->groups.item);
    for (size_t i = 0; i < c->groups.count; i++) {
        plain->groups.item[i] = c->groups.item[i];
        plain->groups.item[i].device = kind->device;
    }
    memset(&plain->stragglers, 0, sizeof plain->stragglers);
    for (int device = 0; device < request->ranks && kind->slower != 1; device++)
        VEC_PUSH(&plain->stragglers, (struct straggler){.device = device, .slower = kind->slower});
}

void estimator_devices(struct estimator *e) {
    const int ranks = e->request->ranks;
    e->kind = mem_alloc((size_t)ranks * sizeof *e->kind);
    e->next = mem_alloc((size_t)ranks * sizeof *e->next);
    for (int r = 0; r < ranks; r++)
        e->kind[r] = devices_kind_of(e, r);
    for (int r = ranks; r-- > 0;)
        e->next[r] = r + 1 < ranks && e->kind[r + 1] == e->kind[r] ? e->next[r + 1] : r + 1;
    for (size_t i = 0; i < e->kinds.count; i++) {
        e->room = MAX(e->room, e->kinds.item[i].room);
        make_plain(&e->kinds.item[i], e->request);
    }
}

void estimator_devices_release(struct estimator *e) {
    for (size_t i = 0; i < e->kinds.count; i++) {
        free(e->kinds.item[i].plain.groups.item);
        VEC_RELEASE(&e->kinds.item[i].plain.stragglers);
    }
    VEC_RELEASE(&e->kinds);
    free(e->kind);
    free(e->next);
}

int slowest_group(const struct estimator *e, int ranks) {
    static const double BYTES = 1e6;
    const struct cluster *c = e->request->cluster;
    const struct link_use use = {AXES(AXIS_TP), 0, false};
    struct mesh mesh = mesh_single();
    struct topology topology;
    trireme_error none;
    int slowest = 0;
    double most = 0;
    mesh.degree[AXIS_TP] = ranks;
    mesh.degree[AXIS_DP] = e->request->ranks / ranks;
    if (ranks == 1 || topology_create(&topology, c, &mesh, &use, 1, &none) != TRIREME_OK)
        return 0;
    for (int rank = 0; rank < topology.ranks; rank += ranks) {
        double seconds = cost_communicate(c, &topology.route[0][rank], OP_ALL_REDUCE, BYTES);
        if (seconds > most) {
            most = seconds;
            slowest = rank;
        }
    }
    topology_release(&topology);
    return slowest;
}

int slowest_kind(const struct estimator *e, const struct probe *of_kind, int stages, int stage) {
    int each = e->request->ranks / stages, slowest = e->kind[stage * each];
    for (int r = e->next[stage * each]; r < (stage + 1) * each; r = e->next[r]) {
        const struct probe_part *one = &of_kind[e->kind[r]].layer, *most = &of_kind[slowest].layer;
        if (one->forward + one->backward > most->forward + most->backward)
            slowest = e->kind[r];
    }
    return slowest;
}

double room_of_stage(const struct estimator *e, int stages, int stage) {
    int each = e->request->ranks / stages;
    double least = INFINITY;
    for (int r = stage * each; r < (stage + 1) * each; r = e->next[r])
        least = MIN(least, e->kinds.item[e->kind[r]].room);
    return least;
}

bool stages_differ(const struct estimator *e, const struct plan_choice *c, int *stages, int **layers) {
    struct parallel plan;
    trireme_error none;
    *layers = NULL;
    if (!choice_resolve(&plan, e->request, c))
        return false;
    *layers = parallel_layers(&plan, stages);
    bool differ = e->kinds.count > 1;
    const struct link_use uses[] = {{mesh_present(&plan.mesh, AXES_DATA), 0, false},
                                    {mesh_present(&plan.mesh, AXES_TENSOR), 0, false}};
    struct topology topology;
    if (topology_create(&topology, e->request->cluster, &plan.mesh, uses, ARRAY_LENGTH(uses), &none) == TRIREME_OK) {
        const int each = topology.ranks / c->stages;
        for (size_t u = 0; u < ARRAY_LENGTH(uses); u++)
            for (int rank = each; rank < topology.ranks; rank += each)
                for (int level = 0; level < CLUSTER_LEVELS_MAX; level++)
                    differ |= topology.route[u][rank].parts[level] != topology.route[u][0].parts[level] ||
                              topology.route[u][rank].bandwidth[level] != topology.route[u][0].bandwidth[level];
        topology_release(&topology);
    }
    parallel_release(&plan);
    return differ;
}
