// Reads clusters from files.
#include "sim/cluster.h"

#include "sim/efficiency.h"
#include "sim/shipped.h"

enum { NAME_BYTES_MAX = 64 };
// Figures beyond these are refused as absurd: no machine of the next decades is faster, and a pocket calculator is not
// slower.
static const double PEAK_LEAST = 1e6, PEAK_MOST = 1e17;

struct reading {
    const struct outline *outline;
    const struct op_table *table;
    struct cluster *cluster;
};

static const char *text_of(const struct outline *t, int node) {
    return t->nodes.item[node].text;
}

// ---- devices

static trireme_status check_name(const struct outline *t, int node, const char *name, trireme_error *error) {
    size_t length = strlen(name);
    bool good = length > 0 && length <= NAME_BYTES_MAX;
    for (size_t i = 0; i < length && good; i++)
        good = name[i] > ' ' && name[i] < 127;
    return good ? TRIREME_OK
                : outline_refuse(t, node, error, "a name has 1 to %d letters without spaces", NAME_BYTES_MAX);
}

static trireme_status read_peak(const struct outline *t, int mapping, struct device *device, trireme_error *error) {
    TRY(outline_known(t, mapping, "f32 bf16 f64", error));
    bool any = false;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        TRY(outline_may_figure(t, mapping, dtype_name((enum dtype)d), QUANTITY_FLOPS, PEAK_LEAST, PEAK_MOST,
                               &device->peak[d], error));
        any |= device->peak[d] > 0;
    }
    return any ? TRIREME_OK : outline_refuse(t, mapping, error, "the peak of f32, bf16 or f64 is missing");
}

// Reads which part of its computing rate a device loses during a transfer.
static trireme_status read_communication(const struct outline *t, int mapping, double *out, trireme_error *error) {
    int node = outline_member(t, mapping, "communication");
    if (node < 0)
        return TRIREME_OK;
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    const char *word = text_of(t, node);
    *out = strcmp(word, "cores") == 0;
    if (*out == 1 || strcmp(word, "own") == 0)
        return TRIREME_OK;
    if (!strchr("0123456789.+-", word[0]))
        return outline_refuse(t, node, error, "given \"%.40s\", expected own, cores, or a number from 0 to 1", word);
    return outline_figure(t, node, QUANTITY_NUMBER, 0, 1, out, error);
}

static trireme_status read_device(const struct reading *r, int mapping, trireme_error *error) {
    const struct outline *t = r->outline;
    VEC_PUSH(&r->cluster->devices, (struct device){.name = mem_strdup(t->nodes.item[mapping].key), .cores = 1});
    struct device *d = &r->cluster->devices.item[r->cluster->devices.count - 1];
    TRY(check_name(t, mapping, d->name, error));
    TRY(outline_known(t, mapping,
                      "peak memory runtime_memory bandwidth file_bandwidth launch cores shared communication meeting "
                      "jitter efficiency",
                      error));
    int node;
    TRY(outline_need(t, mapping, "peak", &node, error));
    TRY(read_peak(t, node, d, error));
    double memory, runtime = 0;
    TRY(outline_need_figure(t, mapping, "memory", QUANTITY_BYTES, 1e6, CLUSTER_BYTES_MOST, &memory, error));
    TRY(outline_may_figure(t, mapping, "runtime_memory", QUANTITY_BYTES, 0, memory, &runtime, error));
    d->memory = (int64_t)memory;
    d->runtime_memory = (int64_t)runtime;
    TRY(outline_need_figure(t, mapping, "bandwidth", QUANTITY_RATE, CLUSTER_RATE_LEAST, CLUSTER_RATE_MOST,
                            &d->bandwidth, error));
    TRY(outline_may_figure(t, mapping, "file_bandwidth", QUANTITY_RATE, CLUSTER_RATE_LEAST, CLUSTER_RATE_MOST,
                           &d->file_bandwidth, error));
    TRY(outline_may_figure(t, mapping, "launch", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &d->launch, error));
    TRY(outline_may_integer(t, mapping, "cores", 1, 4096, &d->cores, error));
    TRY(outline_may_figure(t, mapping, "meeting", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &d->meeting, error));
    TRY(outline_may_figure(t, mapping, "jitter", QUANTITY_NUMBER, 0, 1, &d->jitter, error));
    TRY(read_communication(t, mapping, &d->communication, error));
    node = outline_member(t, mapping, "efficiency");
    if (node < 0)
        return outline_refuse(t, mapping, error,
                              "efficiency is missing: which parts of peak and bandwidth ops reach, as in "
                              "{other: {memory: 0.8}, matmul: {compute: 0.6}, attention: {compute: 0.4}}");
    return efficiency_read(d, t, r->table, node, error);
}

static int find_device(const struct cluster *c, const char *name) {
    for (size_t i = 0; i < c->devices.count; i++)
        if (strcmp(c->devices.item[i].name, name) == 0)
            return (int)i;
    return NONE;
}

static trireme_status read_device_name(const struct reading *r, int node, int *out, trireme_error *error) {
    TRY(outline_expect(r->outline, node, OUTLINE_SCALAR, error));
    *out = find_device(r->cluster, text_of(r->outline, node));
    if (*out != NONE)
        return TRIREME_OK;
    struct text names = {0};
    for (size_t i = 0; i < r->cluster->devices.count; i++)
        text_add(&names, "%s%s", i ? ", " : "", r->cluster->devices.item[i].name);
    trireme_status status = outline_refuse(r->outline, node, error, "no device is called \"%.64s\"; there is %.300s",
                                           text_of(r->outline, node), names.text);
    text_release(&names);
    return status;
}

// Reads `shared`: numbers of ranks that share the device, each with the device whose rates every one of them then has.
static trireme_status read_shared(const struct reading *r, int mapping, struct device *device, trireme_error *error) {
    const struct outline *t = r->outline;
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    for (int node = t->nodes.item[mapping].child; node >= 0; node = t->nodes.item[node].next) {
        char *end;
        long ranks = strtol(t->nodes.item[node].key, &end, 10);
        if (*end || ranks < 2 || ranks > device->cores)
            return outline_refuse(t, node, error, "expected a number of ranks from 2 to the device's cores, %d",
                                  device->cores);
        int other;
        TRY(read_device_name(r, node, &other, error));
        for (int d = 0; d < DTYPE_COUNT; d++)
            if (device->peak[d] > 0 && r->cluster->devices.item[other].peak[d] <= 0)
                return outline_refuse(t, node, error, "%s has no peak of %s, which %s has", text_of(t, node),
                                      dtype_name((enum dtype)d), device->name);
        VEC_PUSH(&device->shared, (struct shared){(int)ranks, other});
    }
    return TRIREME_OK;
}

static trireme_status read_devices(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    int mapping;
    TRY(outline_need(t, 0, "devices", &mapping, error));
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    if (t->nodes.item[mapping].child < 0)
        return outline_refuse(t, mapping, error, "no device is described");
    for (int node = t->nodes.item[mapping].child; node >= 0; node = t->nodes.item[node].next)
        TRY(read_device(r, node, error));
    int number = 0;
    for (int node = t->nodes.item[mapping].child; node >= 0; node = t->nodes.item[node].next, number++) {
        int shared = outline_member(t, node, "shared");
        if (shared >= 0)
            TRY(read_shared(r, shared, &r->cluster->devices.item[number], error));
    }
    return TRIREME_OK;
}

static trireme_status read_groups(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    int list, device;
    TRY(outline_need(t, 0, "nodes", &list, error));
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    int64_t devices = 0;
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next) {
        struct node_group g = {.nodes = 1, .devices = 1};
        TRY(outline_known(t, node, "device nodes devices", error));
        TRY(outline_need(t, node, "device", &device, error));
        TRY(read_device_name(r, device, &g.device, error));
        TRY(outline_need_integer(t, node, "nodes", 1, CLUSTER_DEVICES_MAX, &g.nodes, error));
        TRY(outline_need_integer(t, node, "devices", 1, 4096, &g.devices, error));
        devices += (int64_t)g.nodes * g.devices;
        if (devices > CLUSTER_DEVICES_MAX)
            return outline_refuse(t, node, error, "more than %d devices in all", CLUSTER_DEVICES_MAX);
        VEC_PUSH(&r->cluster->groups, g);
    }
    if (devices == 0)
        return outline_refuse(t, list, error, "no nodes are listed");
    r->cluster->total_devices = (int)devices;
    return TRIREME_OK;
}

// ---- links

static trireme_status read_span(const struct outline *t, int node, struct link_level *level, trireme_error *error) {
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    const char *text = text_of(t, node);
    char *end;
    long nodes = strtol(text, &end, 10);
    level->span = strcmp(text, "device") == 0 ? SPAN_DEVICE : strcmp(text, "node") == 0 ? SPAN_NODE : SPAN_ALL;
    if (end != text && strcmp(end, " nodes") == 0 && nodes >= 2 && nodes <= CLUSTER_DEVICES_MAX) {
        level->span = SPAN_NODES;
        level->nodes = (int)nodes;
    } else if (level->span == SPAN_ALL && strcmp(text, "all") != 0) {
        return outline_refuse(t, node, error,
                              "given \"%.40s\", expected device, node, a number of nodes as in 4 nodes, "
                              "or all",
                              text);
    }
    return TRIREME_OK;
}

// The index of a word, in `words` of which the first `count` are expected.
static trireme_status read_word(const struct outline *t, int node, const char *const words[], int count, int *out,
                                trireme_error *error) {
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    struct text expected = {0};
    for (int i = 0; i < count; i++) {
        if (strcmp(text_of(t, node), words[i]) == 0) {
            *out = i;
            text_release(&expected);
            return TRIREME_OK;
        }
        text_add(&expected, "%s%s", i == 0 ? "" : i < count - 1 ? ", " : " or ", words[i]);
    }
    const trireme_status status =
        outline_refuse(t, node, error, "given \"%.40s\", expected %s", text_of(t, node), expected.text);
    text_release(&expected);
    return status;
}

static trireme_status read_algorithm(const struct outline *t, int mapping, enum link_algorithm *out,
                                     trireme_error *error) {
    static const char *const WORDS[] = {"ring", "tree", "direct"};
    const int node = outline_member(t, mapping, "algorithm");
    int word = LINK_RING;
    if (node >= 0)
        TRY(read_word(t, node, WORDS, ARRAY_LENGTH(WORDS), &word, error));
    *out = (enum link_algorithm)word;
    return TRIREME_OK;
}

static trireme_status read_wiring(const struct outline *t, int mapping, struct link_level *level,
                                  trireme_error *error) {
    static const char *const WIRINGS[] = {"switch", "direct"}, *const DUPLEXES[] = {"full", "half"};
    const int wiring = outline_member(t, mapping, "wiring"), duplex = outline_member(t, mapping, "duplex");
    int word = 0;
    if (wiring >= 0) {
        TRY(read_word(t, wiring, WIRINGS, ARRAY_LENGTH(WIRINGS), &word, error));
        level->wiring = (enum link_wiring)(WIRING_SWITCH + word);
    }
    if (duplex < 0)
        return TRIREME_OK;
    if (wiring < 0)
        return outline_refuse(t, duplex, error, "says nothing without wiring: switch or direct");
    TRY(read_word(t, duplex, DUPLEXES, ARRAY_LENGTH(DUPLEXES), &word, error));
    level->half_duplex = word;
    return TRIREME_OK;
}

// How many ranks the largest part of the level can have: as many as its devices have cores.
static int64_t ranks_of_part(const struct cluster *c, const struct link_level *level) {
    int64_t device = 0, node = 0, all = 0;
    for (size_t i = 0; i < c->groups.count; i++) {
        const struct node_group *g = &c->groups.item[i];
        int64_t cores = c->devices.item[g->device].cores;
        device = MAX(device, cores);
        node = MAX(node, g->devices * cores);
        all += g->nodes * g->devices * cores;
    }
    switch (level->span) {
    case SPAN_DEVICE:
        return device;
    case SPAN_NODE:
        return node;
    case SPAN_NODES:
        return MIN(all, level->nodes * node);
    default:
        return all;
    }
}

// [all_reduce, ranks, bytes, seconds]
static trireme_status read_link_point(const struct reading *r, int list, struct link_level *level,
                                      trireme_error *error) {
    const struct outline *t = r->outline;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    if (outline_children(t, list) != 4)
        return outline_refuse(t, list, error,
                              "expected [collective, ranks, bytes, seconds], as in "
                              "[all_reduce, 8, 16 MiB, 232 us]");
    int op = t->nodes.item[list].child, ranks = t->nodes.item[op].next, bytes = t->nodes.item[ranks].next,
        seconds = t->nodes.item[bytes].next;
    struct link_point point;
    int64_t count;
    TRY(outline_expect(t, op, OUTLINE_SCALAR, error));
    point.op = op_find(r->table, text_of(t, op));
    // One end of a message stands for both, and what is always made as another op has no times of its own.
    const bool known = point.op < OP_COUNT && op_traffic[point.op].call != CALL_NONE && point.op != OP_RECEIVE;
    if (point.op == OP_REDUCE)
        return outline_refuse(t, op, error, "a reduce is made as an all_reduce, whose points it takes");
    if (!known)
        return outline_refuse(t, op, error, "given \"%.40s\", expected a collective such as all_reduce, or send",
                              text_of(t, op));
    int64_t most = ranks_of_part(r->cluster, level);
    TRY(outline_integer(t, ranks, 2, CLUSTER_DEVICES_MAX, &count, error));
    if (count > most)
        return outline_refuse(t, ranks, error, "given %lld ranks, but %s joins %lld at most", (long long)count,
                              level->name, (long long)most);
    point.ranks = (int)count;
    TRY(efficiency_read_transfer(t, bytes, seconds, &point.bytes, &point.seconds, error));
    VEC_PUSH(&level->points, point);
    return TRIREME_OK;
}

int link_point_compare(const void *a, const void *b) {
    const struct link_point *x = a, *y = b;
    return COMPARE(x->op, y->op) ?: COMPARE(x->ranks, y->ranks) ?: COMPARE(x->bytes, y->bytes);
}

static trireme_status read_measured(const struct reading *r, int list, struct link_level *level, trireme_error *error) {
    const struct outline *t = r->outline;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next)
        TRY(read_link_point(r, node, level, error));
    VEC_SORT(&level->points, link_point_compare);
    for (size_t i = 1; i < level->points.count; i++)
        if (link_point_compare(&level->points.item[i - 1], &level->points.item[i]) == 0)
            return outline_refuse(t, list, error, "two points of %s among %d ranks of %.0f bytes",
                                  r->table->op[level->points.item[i].op].name, level->points.item[i].ranks,
                                  level->points.item[i].bytes);
    return TRIREME_OK;
}

static int nodes_of(const struct cluster *c) {
    int nodes = 0;
    for (size_t i = 0; i < c->groups.count; i++)
        nodes += c->groups.item[i].nodes;
    return nodes;
}

static trireme_status read_level(const struct reading *r, int mapping, trireme_error *error) {
    const struct outline *t = r->outline;
    struct cluster *c = r->cluster;
    struct link_level *level = &c->level[c->levels];
    int node;
    TRY(outline_known(t, mapping,
                      "name spans start message latency bandwidth adapters wiring duplex algorithm measured", error));
    TRY(outline_need(t, mapping, "name", &node, error));
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    TRY(check_name(t, node, text_of(t, node), error));
    for (int i = 0; i < c->levels; i++)
        if (strcmp(c->level[i].name, text_of(t, node)) == 0)
            return outline_refuse(t, node, error, "two links are called %s", c->level[i].name);
    level->name = mem_strdup(text_of(t, node));
    c->levels++;
    TRY(outline_need(t, mapping, "spans", &node, error));
    TRY(read_span(t, node, level, error));
    const struct link_level *below = c->levels > 1 ? level - 1 : NULL;
    if (below && (level->span < below->span || (level->span == below->span && level->nodes <= below->nodes)))
        return outline_refuse(t, node, error,
                              "spans no more than %s, which comes before: list links from the inside out", below->name);
    if (below && below->span == level->span && level->nodes % below->nodes)
        return outline_refuse(t, node, error, "spans no whole number of %s, which comes before", below->name);
    if (level->span == SPAN_NODES && level->nodes >= nodes_of(c))
        return outline_refuse(t, node, error, "given \"%.40s\", but there are %d: what joins them all spans all",
                              text_of(t, node), nodes_of(c));
    TRY(outline_need_figure(t, mapping, "bandwidth", QUANTITY_RATE, CLUSTER_RATE_LEAST, CLUSTER_RATE_MOST,
                            &level->bandwidth, error));
    TRY(outline_need_figure(t, mapping, "latency", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &level->latency, error));
    TRY(outline_may_figure(t, mapping, "start", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &level->start, error));
    level->message = level->start;
    TRY(outline_may_figure(t, mapping, "message", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &level->message, error));
    TRY(outline_may_integer(t, mapping, "adapters", 1, 4096, &level->adapters, error));
    TRY(read_algorithm(t, mapping, &level->algorithm, error));
    TRY(read_wiring(t, mapping, level, error));
    node = outline_member(t, mapping, "measured");
    return node < 0 ? TRIREME_OK : read_measured(r, node, level, error);
}

// What joins the only node, or the cores of the only device, joins all.
static bool joins_all(const struct cluster *c, const struct link_level *l) {
    return l->span == SPAN_ALL ||
           (nodes_of(c) == 1 && (l->span == SPAN_NODE || (l->span == SPAN_DEVICE && c->total_devices == 1)));
}

static trireme_status read_links(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    struct cluster *c = r->cluster;
    // A single rank has nobody to be linked to.
    if (c->total_devices == 1 && c->devices.item[c->groups.item[0].device].cores == 1 &&
        outline_member(t, 0, "links") < 0)
        return TRIREME_OK;
    int list;
    TRY(outline_need(t, 0, "links", &list, error));
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next) {
        if (c->levels == CLUSTER_LINKS_MAX)
            return outline_refuse(t, node, error, "more than %d levels of links", CLUSTER_LINKS_MAX);
        TRY(read_level(r, node, error));
    }
    if (c->levels == 0 || !joins_all(c, &c->level[c->levels - 1]))
        return outline_refuse(t, list, error, "the last of the links must span all");
    c->level[c->levels - 1].span = SPAN_ALL;
    return TRIREME_OK;
}

const char *const COLLECTIVES_WORDS[COLLECTIVES_COUNT] = {"in_turn", "pipelined", "ring"};

static trireme_status cluster_read_collectives(const struct reading *r, trireme_error *error) {
    int node = outline_member(r->outline, 0, "collectives");
    if (node < 0)
        return TRIREME_OK;
    int word;
    TRY(read_word(r->outline, node, COLLECTIVES_WORDS, COLLECTIVES_COUNT, &word, error));
    r->cluster->collectives = (enum collectives)word;
    return TRIREME_OK;
}

static trireme_status read_stragglers(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    int list = outline_member(t, 0, "stragglers");
    if (list < 0)
        return TRIREME_OK;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next) {
        struct straggler s = {0};
        TRY(outline_known(t, node, "device slower", error));
        TRY(outline_need_integer(t, node, "device", 0, r->cluster->total_devices - 1, &s.device, error));
        TRY(outline_need_figure(t, node, "slower", QUANTITY_NUMBER, 1, 1000, &s.slower, error));
        for (size_t i = 0; i < r->cluster->stragglers.count; i++)
            if (r->cluster->stragglers.item[i].device == s.device)
                return outline_refuse(t, node, error, "device %d is there twice", s.device);
        VEC_PUSH(&r->cluster->stragglers, s);
    }
    return TRIREME_OK;
}

static trireme_status read_cluster(const struct reading *r, trireme_error *error) {
    TRY(outline_known(r->outline, 0, "about devices nodes links collectives stragglers", error));
    int about = outline_member(r->outline, 0, "about");
    if (about >= 0)
        TRY(outline_expect(r->outline, about, OUTLINE_SCALAR, error));
    TRY(read_devices(r, error));
    TRY(read_groups(r, error));
    TRY(read_links(r, error));
    TRY(cluster_read_collectives(r, error));
    if (about >= 0)
        r->cluster->about = mem_strdup(text_of(r->outline, about));
    return read_stragglers(r, error);
}

trireme_status cluster_parse(struct cluster *out, const struct op_table *table, const char *name, const char *yaml,
                             size_t length, trireme_error *error) {
    struct outline outline;
    TRY(outline_parse(&outline, name, yaml, length, error));
    struct cluster cluster = {.name = mem_strdup(name)};
    struct reading reading = {&outline, table, &cluster};
    trireme_status status = read_cluster(&reading, error);
    outline_release(&outline);
    if (status == TRIREME_OK)
        *out = cluster;
    else
        cluster_release(&cluster);
    return status;
}

trireme_status cluster_refuse(const char *why, trireme_error *error) {
    struct text names = {0};
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
        text_add(&names, "%s%s", s == shipped_clusters ? "" : ", ", s->name);
    error_set(error, TRIREME_ERROR_USAGE, "%s; clusters are %.300s, or give the path of a file, as in ./mine.yaml", why,
              names.text);
    text_release(&names);
    return TRIREME_ERROR_USAGE;
}

trireme_status cluster_load(struct cluster *out, const struct op_table *table, const char *what, trireme_error *error) {
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
        if (strcmp(s->name, what) == 0)
            return cluster_parse(out, table, what, s->text, strlen(s->text), error);
    char *text;
    size_t length;
    if (!strchr(what, '/') && !strchr(what, '.')) {
        char why[128];
        snprintf(why, sizeof why, "no cluster is called \"%.80s\"", what);
        return cluster_refuse(why, error);
    }
    TRY(file_read_named(what, OUTLINE_BYTES_MAX, &text, &length, error));
    trireme_status status = cluster_parse(out, table, what, text, length, error);
    free(text);
    return status;
}

trireme_status cluster_join_islands(struct cluster *c, const char *bandwidth, const char *latency,
                                    trireme_error *error) {
    struct link_level level = {.span = SPAN_ISLANDS, .adapters = 1, .algorithm = LINK_RING};
    if (latency && !bandwidth)
        FAIL(TRIREME_ERROR_USAGE, "island_latency=%.80s: island_bandwidth= is missing", latency);
    if (!bandwidth)
        return TRIREME_OK;
    TRY(figure_read("island_bandwidth", bandwidth, QUANTITY_RATE, CLUSTER_RATE_LEAST, CLUSTER_RATE_MOST,
                    &level.bandwidth, error));
    if (latency)
        TRY(figure_read("island_latency", latency, QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &level.latency, error));
    level.name = mem_strdup("islands");
    c->level[c->levels++] = level;
    return TRIREME_OK;
}

void cluster_release(struct cluster *c) {
    for (size_t i = 0; i < c->devices.count; i++) {
        struct device *d = &c->devices.item[i];
        for (int op = 0; op < OP_COUNT; op++)
            VEC_RELEASE(&d->points[op]);
        VEC_RELEASE(&d->shared);
        free(d->name);
    }
    for (int i = 0; i < c->levels; i++) {
        VEC_RELEASE(&c->level[i].points);
        free(c->level[i].name);
    }
    VEC_RELEASE(&c->devices);
    VEC_RELEASE(&c->groups);
    VEC_RELEASE(&c->stragglers);
    free(c->about);
    free(c->name);
    *c = (struct cluster){0};
}

// ---- devices by their number

// The group that a device is in; *device becomes its number in the group, *nodes the number of nodes before the group.
static const struct node_group *cluster_group_of(const struct cluster *c, int *device, int *nodes) {
    *nodes = 0;
    for (size_t i = 0;; i++) {
        CHECK(i < c->groups.count);
        const struct node_group *g = &c->groups.item[i];
        if (*device < g->nodes * g->devices)
            return g;
        *device -= g->nodes * g->devices;
        *nodes += g->nodes;
    }
}

int cluster_node(const struct cluster *c, int device) {
    int nodes;
    const struct node_group *g = cluster_group_of(c, &device, &nodes);
    return nodes + device / g->devices;
}

int cluster_type(const struct cluster *c, int device) {
    int nodes;
    return cluster_group_of(c, &device, &nodes)->device;
}

bool cluster_has_cores(const struct cluster *c) {
    bool has = false;
    for (size_t i = 0; i < c->groups.count; i++)
        has |= c->devices.item[c->groups.item[i].device].cores > 1;
    return has;
}

trireme_status cluster_resize(struct cluster *c, int devices, trireme_error *error) {
    if (devices < 1 || devices > c->total_devices)
        FAIL(TRIREME_ERROR_USAGE, "devices: given %d, but %s has %d", devices, c->name, c->total_devices);
    int left = devices, device = devices - 1, nodes;
    const struct node_group *last = cluster_group_of(c, &device, &nodes);
    size_t index = (size_t)(last - c->groups.item);
    for (size_t i = 0; i < index; i++)
        left -= c->groups.item[i].nodes * c->groups.item[i].devices;
    struct node_group whole = *last, part = {whole.device, 1, left % whole.devices};
    whole.nodes = left / whole.devices;
    c->groups.count = index;
    if (whole.nodes)
        VEC_PUSH(&c->groups, whole);
    if (part.devices)
        VEC_PUSH(&c->groups, part);
    c->total_devices = devices;
    size_t kept = 0;
    for (size_t i = 0; i < c->stragglers.count; i++)
        if (c->stragglers.item[i].device < devices)
            c->stragglers.item[kept++] = c->stragglers.item[i];
    c->stragglers.count = kept;
    return TRIREME_OK;
}

trireme_status clusters_help(struct text *out, const struct op_table *table, trireme_error *error) {
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++) {
        struct cluster c;
        TRY(cluster_parse(&c, table, s->name, s->text, strlen(s->text), error));
        text_add(out, "%-14s %s\n", s->name, c.about ? c.about : "");
        cluster_release(&c);
    }
    text_add(out, "\nA cluster of your own is a file: docs/simulator.md describes it, trireme bench calibrate writes "
                  "one of this machine.\n");
    return TRIREME_OK;
}
