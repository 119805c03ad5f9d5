#include "sim/topology.h"

#include "base/amount.h"

#include <math.h>

// ---- devices

struct station station_on(const struct cluster *c, int number, int ranks_per_device) {
    struct station s = {.device = &c->devices.item[cluster_type(c, number)], .part = 1, .slower = 1};
    const struct device *whole = s.device;
    s.room = whole->memory / ranks_per_device;
    if (ranks_per_device > 1)
        s.part = 1.0 / ranks_per_device;
    for (size_t i = 0; i < whole->shared.count; i++)
        if (whole->shared.item[i].ranks == ranks_per_device) {
            s.device = &c->devices.item[whole->shared.item[i].device];
            s.part = 1;
        }
    for (size_t i = 0; i < c->stragglers.count; i++)
        if (c->stragglers.item[i].device == number)
            s.slower *= c->stragglers.item[i].slower;
    return s;
}

int topology_device(const struct cluster *c, int rank, int ranks_per_device) {
    return (c->ranks_before + rank) / ranks_per_device;
}

static int device_of(const struct topology *p, int rank) {
    return topology_device(p->cluster, rank, p->ranks_per_device);
}

struct station topology_station(const struct topology *p, int rank) {
    return station_on(p->cluster, device_of(p, rank), p->ranks_per_device);
}

int topology_threads(const struct cluster *c, int64_t asked, int ranks_per_device) {
    return asked > 0 ? (int)asked : c->devices.item[c->groups.item[0].device].cores / ranks_per_device;
}

int topology_share(const struct cluster *c, int ranks) {
    return MAX(c->ranks_per_device, (ranks + c->total_devices - 1) / c->total_devices);
}

const struct device *topology_without(const struct cluster *c, int ranks, enum dtype dtype) {
    int64_t share = topology_share(c, ranks), in_use = divide_up(ranks, share), first = 0;
    for (size_t i = 0; i < c->groups.count && first < in_use; i++) {
        const struct node_group *g = &c->groups.item[i];
        if (c->devices.item[g->device].peak[dtype] <= 0)
            return &c->devices.item[g->device];
        first += (int64_t)g->nodes * g->devices;
    }
    return NULL;
}

trireme_status topology_check(const struct cluster *c, const struct mesh *mesh, int *ranks_per_device,
                              trireme_error *error) {
    int ranks = mesh_ranks(mesh), each = topology_share(c, ranks);
    for (size_t i = 0; i < c->groups.count; i++) {
        const struct device *d = &c->devices.item[c->groups.item[i].device];
        if (each > d->cores) {
            char *text = mesh_print(mesh);
            error_set(error, TRIREME_ERROR_USAGE, "the mesh has %d ranks (%s), but %s has %s%s", ranks, text, c->name,
                      counted(c->total_devices, "device").text, d->cores > 1 ? " of too few cores to share" : "");
            free(text);
            return TRIREME_ERROR_USAGE;
        }
    }
    *ranks_per_device = each;
    return TRIREME_OK;
}

// ---- links

// The axes along which a group meets over links of islands: then an island is one part at all levels below.
static axis_set axes_of_islands(const struct cluster *c, axis_set group) {
    return c->levels && c->level[c->levels - 1].span == SPAN_ISLANDS ? group & ~AXES_WITHIN : AXES_NONE;
}

// The number of the part that a rank belongs to at a level; at level -1 each rank is a part of its own.
static int topology_part_of(const struct topology *p, axis_set group, int rank, int level) {
    if (level < 0)
        return rank;
    const struct link_level *l = &p->cluster->level[level];
    const axis_set islands = axes_of_islands(p->cluster, group);
    if (islands && l->span != SPAN_ISLANDS)
        return mesh_index(&p->mesh, rank, islands);
    int device = device_of(p, rank);
    switch (l->span) {
    case SPAN_DEVICE:
        return device;
    case SPAN_NODE:
        return cluster_node(p->cluster, device);
    case SPAN_NODES:
        return cluster_node(p->cluster, device) / l->nodes;
    default:
        return 0;
    }
}

// For one use: the parts of all ranks at all levels, and how many groups or messages share the adapters of each part. A
// level's parts are numbered from the first rank's on, so the numbers are below the number of ranks wherever the ranks
// are on the cluster.
struct links {
    const struct topology *topology;
    const struct link_use *use;
    int *part[CLUSTER_LEVELS_MAX + 1];  // [level + 1][rank]
    int *ranks[CLUSTER_LEVELS_MAX + 1]; // how many each part has
    int *users[CLUSTER_LEVELS_MAX + 1]; // groups, or messages, that leave each part at the level above
};

static void links_create(struct links *l, const struct topology *p, const struct link_use *use) {
    *l = (struct links){.topology = p, .use = use};
    for (int level = 0; level <= p->cluster->levels; level++) {
        l->part[level] = mem_alloc((size_t)p->ranks * sizeof(int));
        l->ranks[level] = mem_alloc((size_t)p->ranks * sizeof(int));
        l->users[level] = mem_alloc((size_t)p->ranks * sizeof(int));
        for (int r = 0; r < p->ranks; r++)
            l->ranks[level][l->part[level][r] = topology_part_of(p, use->group, r, level - 1) -
                                                topology_part_of(p, use->group, 0, level - 1)]++;
    }
}

static void links_release(struct links *l) {
    for (int level = 0; level <= CLUSTER_LEVELS_MAX; level++) {
        free(l->part[level]);
        free(l->ranks[level]);
        free(l->users[level]);
    }
}

static int peer_of(const struct topology *p, int rank, const struct link_use *use) {
    return mesh_peer(&p->mesh, rank, use->group, use->peer);
}

// The end of the run of members that are in the same part as member `first`.
static int part_end(const int *part, const int *member, int count, int first) {
    int end = first + 1;
    while (end < count && part[member[end]] == part[member[first]])
        end++;
    return end;
}

// Whether the part of the level above holds other members of the group than those of this part.
static bool topology_leaves(const int *above, const int *member, int count, int first, int end) {
    const int own = above[member[first]];
    return (first > 0 && above[member[first - 1]] == own) || (end < count && above[member[end]] == own);
}

// Each part that the group leaves at the level above gets one more user.
static void count_users(struct links *l, const int *member, int count) {
    for (int level = 0; level < l->topology->cluster->levels; level++) {
        const int *part = l->part[level], *above = l->part[level + 1];
        for (int first = 0, end; first < count; first = end) {
            end = part_end(part, member, count, first);
            l->users[level][part[member[first]]] += topology_leaves(above, member, count, first, end);
        }
    }
}

// The bandwidth that a group's `own` ranks in one part have together, in units of the level's bandwidth, when the part
// has so many users.
static double links_of_ranks(const struct links *l, int level, int part, int own, int users) {
    const double adapters = l->topology->cluster->level[level].adapters;
    if (adapters == 0)
        return own;
    const double each = MAX(1, adapters / l->ranks[level][part]), shared = adapters / MAX(users, 1);
    return MIN(MIN(adapters, own * each), shared);
}

// Where parts have unlike numbers of the group's ranks, such as a whole node and a single rank, the part with the least
// bandwidth decides.
static void fill_route(const struct links *l, const int *member, int count, struct route *route) {
    const struct cluster *c = l->topology->cluster;
    int below = 1;
    route->ranks = count;
    for (int level = 0; level < c->levels; level++) {
        const int *part = l->part[level], *above = l->part[level + 1];
        int most = 1, parts = 0;
        double least = INFINITY, alone = INFINITY;
        for (int first = 0, end; first < count; first = end) {
            end = part_end(part, member, count, first);
            parts = first && above[member[first]] == above[member[first - 1]] ? parts + 1 : 1;
            most = MAX(most, parts);
            if (!topology_leaves(above, member, count, first, end))
                continue;
            const int number = part[member[first]];
            least = fmin(least, links_of_ranks(l, level, number, end - first, l->users[level][number]));
            alone = fmin(alone, links_of_ranks(l, level, number, end - first, 1));
        }
        route->parts[level] = most;
        route->bandwidth[level] = c->level[level].bandwidth * (isfinite(least) ? least / below : 1);
        route->alone[level] = c->level[level].bandwidth * (isfinite(alone) ? alone / below : 1);
        below *= most;
    }
}

// A message leaves its sender's part at one level.
static void count_message(struct links *l, int from, int to) {
    for (int level = 0; level < l->topology->cluster->levels; level++)
        if (l->part[level][from] != l->part[level][to] && l->part[level + 1][from] == l->part[level + 1][to])
            l->users[level][l->part[level][from]]++;
}

static void fill_message(const struct links *l, int from, int to, struct route *route) {
    const struct cluster *c = l->topology->cluster;
    route->ranks = 2;
    for (int level = 0; level < c->levels; level++) {
        int part = l->part[level][from];
        bool here = part != l->part[level][to] && l->part[level + 1][from] == l->part[level + 1][to];
        route->parts[level] = here ? 2 : 1;
        route->bandwidth[level] = route->alone[level] = c->level[level].bandwidth;
        if (here) {
            route->bandwidth[level] *= links_of_ranks(l, level, part, 1, l->users[level][part]);
            route->alone[level] *= links_of_ranks(l, level, part, 1, 1);
        }
    }
}

bool link_use_is_of(const struct mesh *mesh, const struct link_use *use, int rank) {
    const int end = mesh_index(mesh, rank, use->group) + use->peer;
    return use->message != LINK_OPEN_MESSAGE || (end >= 0 && end < mesh_group_size(mesh, use->group));
}

static void find_messages(struct links *l, struct route *route) {
    const struct topology *p = l->topology;
    for (int r = 0; r < p->ranks; r++)
        if (link_use_is_of(&p->mesh, l->use, r))
            count_message(l, r, peer_of(p, r, l->use));
    for (int r = 0; r < p->ranks; r++)
        if (link_use_is_of(&p->mesh, l->use, r))
            fill_message(l, r, peer_of(p, r, l->use), &route[r]);
}

// Whether a rank counts the users of its group: the first rank of each group does; of pairs, each rank whose peer is
// reached without wrapping around.
static bool topology_counts(const struct topology *p, int rank, const struct link_use *use) {
    int index = mesh_index(&p->mesh, rank, use->group), end = index + use->peer;
    return use->peer ? end >= 0 && end < mesh_group_size(&p->mesh, use->group) : index == 0;
}

// A group's route is found once for all of its ranks. A pair's route belongs to the rank whose peer the other one is:
// that rank may itself be the peer of a third.
static void find_collectives(struct links *l, struct route *route) {
    const struct topology *p = l->topology;
    int *member = mem_alloc((size_t)MAX(2, mesh_group_size(&p->mesh, l->use->group)) * sizeof *member);
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < p->ranks; r++) {
            bool pair = l->use->peer != 0, first = topology_counts(p, r, l->use);
            if (!first && (!pair || pass == 0))
                continue;
            int count = mesh_members(&p->mesh, r, l->use->group, l->use->peer, member);
            if (pass == 0) {
                count_users(l, member, count);
                continue;
            }
            struct route found = {0};
            fill_route(l, member, count, &found);
            for (int i = 0; i < count; i++)
                if (!pair || member[i] == r)
                    route[member[i]] = found;
        }
    free(member);
}

// The routes of all groups of one use, [ranks].
static struct route *find_routes(const struct topology *p, const struct link_use *use) {
    struct links l;
    links_create(&l, p, use);
    struct route *route = mem_alloc((size_t)p->ranks * sizeof *route);
    if (use->message)
        find_messages(&l, route);
    else
        find_collectives(&l, route);
    links_release(&l);
    return route;
}

// ---- ranks that are alike

static bool same_route(const struct route *a, const struct route *b, int levels) {
    if (a->ranks != b->ranks)
        return false;
    for (int i = 0; i < levels; i++)
        if (a->parts[i] != b->parts[i] ||
            (a->parts[i] > 1 && (a->bandwidth[i] != b->bandwidth[i] || a->alone[i] != b->alone[i])))
            return false;
    return true;
}

// A number for each rank: equal where station and routes do not tell ranks apart.
static int *describe_ranks(const struct topology *p) {
    int *number = mem_alloc((size_t)p->ranks * sizeof *number);
    struct station *station = mem_alloc((size_t)p->ranks * sizeof *station); // slow to find with many stragglers
    VEC(int) seen = {0};                                                     // the first rank of each description
    for (int r = 0; r < p->ranks; r++) {
        const struct station *s = &station[r];
        station[r] = topology_station(p, r);
        size_t k = 0;
        for (; k < seen.count; k++) {
            int other = seen.item[k];
            const struct station *t = &station[other];
            bool same = s->device == t->device && s->part == t->part && s->slower == t->slower;
            for (size_t u = 0; u < p->uses && same; u++)
                same = same_route(&p->route[u][r], &p->route[u][other], p->cluster->levels);
            if (same)
                break;
        }
        if (k == seen.count)
            VEC_PUSH(&seen, r);
        number[r] = (int)k;
    }
    VEC_RELEASE(&seen);
    free(station);
    return number;
}

// Whether ranks with coordinate a have the same numbers as those with coordinate b and otherwise the same coordinates.
static bool same_coordinates(const struct topology *p, const int *number, enum axis axis, int stride, int a, int b) {
    int degree = p->mesh.degree[axis];
    for (int outer = 0; outer < p->ranks; outer += stride * degree)
        for (int inner = 0; inner < stride; inner++)
            if (number[outer + a * stride + inner] != number[outer + b * stride + inner])
                return false;
    return true;
}

static void find_kinds(struct topology *p, const int *number, enum axis axis, int stride, bool apart) {
    int degree = p->mesh.degree[axis];
    p->kind[axis] = mem_alloc((size_t)degree * sizeof(int));
    p->first[axis] = mem_alloc((size_t)degree * sizeof(int));
    for (int i = 0; i < degree; i++) {
        int k = apart ? p->kinds[axis] : 0;
        while (k < p->kinds[axis] && !same_coordinates(p, number, axis, stride, p->first[axis][k], i))
            k++;
        p->kind[axis][i] = k;
        if (k == p->kinds[axis])
            p->first[axis][p->kinds[axis]++] = i;
    }
}

// Whether messages go along the axis: then coordinates with unlike neighbours are unlike, too.
static bool carries_messages(const struct topology *p, enum axis axis) {
    for (size_t u = 0; u < p->uses; u++)
        if (p->use[u].peer && p->use[u].group & AXES(axis))
            return true;
    return false;
}

void topology_classify(struct topology *p, axis_set apart) {
    int *number = describe_ranks(p), stride = 1;
    p->classes = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        enum axis axis = (enum axis)a;
        find_kinds(p, number, axis, stride, (apart & AXES(axis)) != AXES_NONE);
        if (p->kinds[a] > 1 && p->kinds[a] < p->mesh.degree[a] && carries_messages(p, axis)) {
            free(p->kind[a]);
            free(p->first[a]);
            p->kinds[a] = 0;
            find_kinds(p, number, axis, stride, true);
        }
        stride *= p->mesh.degree[a];
        p->classes *= p->kinds[a];
    }
    free(number);
}

// A class is numbered by its kinds as a rank is by its coordinates.
int topology_rank(const struct topology *p, int who) {
    int rank = 0, stride = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        rank += stride * p->first[a][who % p->kinds[a]];
        who /= p->kinds[a];
        stride *= p->mesh.degree[a];
    }
    return rank;
}

int topology_class(const struct topology *p, int rank) {
    int who = 0, stride = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        who += stride * p->kind[a][rank % p->mesh.degree[a]];
        rank /= p->mesh.degree[a];
        stride *= p->kinds[a];
    }
    return who;
}

int topology_members(const struct topology *p, int who) {
    int members = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        int count = 0;
        for (int i = 0; i < p->mesh.degree[a]; i++)
            count += p->kind[a][i] == who % p->kinds[a];
        members *= count;
        who /= p->kinds[a];
    }
    return members;
}

trireme_status topology_create(struct topology *out, const struct cluster *cluster, const struct mesh *mesh,
                               const struct link_use *uses, size_t count, trireme_error *error) {
    struct topology p = {.cluster = cluster, .mesh = *mesh, .ranks = mesh_ranks(mesh), .uses = count};
    TRY(topology_check(cluster, mesh, &p.ranks_per_device, error));
    p.use = mem_alloc(count * sizeof *p.use);
    for (size_t u = 0; u < count; u++)
        p.use[u] = uses[u];
    p.route = mem_alloc(count * sizeof *p.route);
    for (size_t u = 0; u < count; u++)
        p.route[u] = find_routes(&p, &p.use[u]);
    *out = p;
    return TRIREME_OK;
}

void topology_release(struct topology *p) {
    for (size_t u = 0; u < p->uses; u++)
        free(p->route[u]);
    for (int a = 0; a < AXIS_COUNT; a++) {
        free(p->kind[a]);
        free(p->first[a]);
    }
    free(p->route);
    free(p->use);
    *p = (struct topology){0};
}
