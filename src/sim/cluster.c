// From a file to a cluster.
#include "sim/cluster.h"

#include "config/outline.h"
#include "sim/shipped.h"

#include <math.h>

enum { NAME_BYTES_MAX = 64 };

struct reading {
    const struct outline *outline;
    const struct op_table *table;
    struct cluster *cluster;
};

static const char *text_of(const struct outline *t, int node) {
    return t->nodes.item[node].text;
}

// A member that must be there.
static trireme_status need(const struct outline *t, int mapping, const char *key, int *out, trireme_error *error) {
    *out = outline_member(t, mapping, key);
    return *out >= 0 ? TRIREME_OK : outline_refuse(t, mapping, error, "%s is missing", key);
}

static trireme_status need_figure(const struct outline *t, int mapping, const char *key, enum quantity quantity,
                                  double least, double most, double *out, trireme_error *error) {
    int node;
    TRY(need(t, mapping, key, &node, error));
    return outline_figure(t, node, quantity, least, most, out, error);
}

// One that may be left out: *out stays.
static trireme_status may_figure(const struct outline *t, int mapping, const char *key, enum quantity quantity,
                                 double least, double most, double *out, trireme_error *error) {
    int node = outline_member(t, mapping, key);
    return node < 0 ? TRIREME_OK : outline_figure(t, node, quantity, least, most, out, error);
}

static trireme_status may_integer(const struct outline *t, int mapping, const char *key, int64_t least, int64_t most,
                                  int *out, trireme_error *error) {
    int node = outline_member(t, mapping, key);
    int64_t value = *out;
    if (node >= 0)
        TRY(outline_integer(t, node, least, most, &value, error));
    *out = (int)value;
    return TRIREME_OK;
}

static trireme_status need_integer(const struct outline *t, int mapping, const char *key, int64_t least, int64_t most,
                                   int *out, trireme_error *error) {
    int node;
    TRY(need(t, mapping, key, &node, error));
    return may_integer(t, mapping, key, least, most, out, error);
}

// ---- efficiency

// Absurd is what no machine of the next decades reaches, and what is slower than a pocket calculator.
static const double PEAK_LEAST = 1e6, PEAK_MOST = 1e17, RATE_LEAST = 1e3, RATE_MOST = 1e15, SECONDS_MOST = 1,
                    BYTES_MOST = 1e15, HALF_MOST = 1e6;

static trireme_status read_half(const struct outline *t, int mapping, struct curve *curve, trireme_error *error) {
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    curve->letters = 0;
    for (int node = t->nodes.item[mapping].child; node >= 0; node = t->nodes.item[node].next) {
        const char *key = t->nodes.item[node].key;
        if (strlen(key) != 1 || !strchr("mnkbThgDCcfvVs", *key))
            return outline_refuse(t, node, error, "expected a letter of the op's dims, as m, n or k");
        if (curve->letters == CURVE_LETTERS_MAX)
            return outline_refuse(t, node, error, "more than %d letters", CURVE_LETTERS_MAX);
        double half;
        TRY(outline_figure(t, node, QUANTITY_NUMBER, 0, HALF_MOST, &half, error));
        curve->half[curve->letters].letter = *key;
        curve->half[curve->letters++].half = half;
    }
    return TRIREME_OK;
}

static trireme_status read_curve(const struct outline *t, int mapping, struct curve *curve, trireme_error *error) {
    TRY(may_figure(t, mapping, "compute", QUANTITY_NUMBER, 0, 1, &curve->compute, error));
    // Above one: what lies in a cache comes faster than from memory.
    TRY(may_figure(t, mapping, "memory", QUANTITY_NUMBER, 1e-4, 100, &curve->memory, error));
    TRY(may_figure(t, mapping, "half_bytes", QUANTITY_BYTES, 0, BYTES_MOST, &curve->half_bytes, error));
    TRY(may_figure(t, mapping, "launch", QUANTITY_SECONDS, 0, SECONDS_MOST, &curve->launch, error));
    TRY(may_figure(t, mapping, "least", QUANTITY_SECONDS, 0, SECONDS_MOST, &curve->least, error));
    int half = outline_member(t, mapping, "half");
    return half < 0 ? TRIREME_OK : read_half(t, half, curve, error);
}

// [m, n, k, dtype, rate] of a matrix product, [bytes, dtype, seconds] of another op.
static trireme_status read_point(const struct outline *t, int list, struct device *device, enum op op, bool product,
                                 trireme_error *error) {
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    int count = product ? 5 : 3, node[5], at = 0;
    if (outline_children(t, list) != count)
        return outline_refuse(t, list, error, "expected %s",
                              product ? "[m, n, k, dtype, rate], as in [4096, 4096, 1024, bf16, 250 TFLOP/s]"
                                      : "[bytes, dtype, time], as in [64 MB, f32, 90 us]");
    for (int child = t->nodes.item[list].child; child >= 0; child = t->nodes.item[child].next)
        node[at++] = child;
    struct curve_point point = {0};
    double *extent[3] = {&point.m, &point.n, &point.k}, rate;
    for (int i = 0; i < 3 && product; i++)
        TRY(outline_figure(t, node[i], QUANTITY_NUMBER, 1, 1e9, extent[i], error));
    if (!product)
        TRY(outline_figure(t, node[0], QUANTITY_BYTES, 1, BYTES_MOST, &point.bytes, error));
    int dtype = node[count - 2], figure = node[count - 1];
    TRY(outline_expect(t, dtype, OUTLINE_SCALAR, error));
    if (!dtype_parse(text_of(t, dtype), &point.dtype) || device->peak[point.dtype] <= 0)
        return outline_refuse(t, dtype, error, "expected a dtype that the device has a peak of");
    if (product) {
        TRY(outline_figure(t, figure, QUANTITY_FLOPS, 1, 1.05 * device->peak[point.dtype], &rate, error));
        point.seconds = 2 * point.m * point.n * point.k / rate;
        double elements = point.m * point.k + point.n * point.k + point.m * point.n;
        point.bytes = elements * (double)dtype_size(point.dtype);
    } else {
        TRY(outline_figure(t, figure, QUANTITY_SECONDS, 1e-9, 1e5, &point.seconds, error));
    }
    VEC_PUSH(&device->points[op], point);
    return TRIREME_OK;
}

static const char CURVE_KEYS[] = "compute memory half_bytes launch least half measured f32 bf16 f64";

static bool has_letters(const struct op_info *info, const char *letters) {
    for (; *letters; letters++) {
        bool found = false;
        for (int i = 0; i < info->inputs; i++)
            for (int d = 0; d < info->in[i].ndim; d++)
                found |= info->in[i].dim[d] == *letters;
        if (!found)
            return false;
    }
    return true;
}

static trireme_status read_points(const struct reading *r, int mapping, struct device *device, enum op op,
                                  trireme_error *error) {
    const struct outline *t = r->outline;
    int list = outline_member(t, mapping, "measured");
    if (list < 0)
        return TRIREME_OK;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    if (op == OP_COUNT)
        return outline_refuse(t, list, error, "points are of one op, not of all others");
    bool product = has_letters(&r->table->op[op], "mnk");
    device->points[op].count = 0;
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next)
        TRY(read_point(t, node, device, op, product, error));
    return TRIREME_OK;
}

// Of all dtypes, and then of those that have something of their own.
static trireme_status read_op(const struct outline *t, int mapping, struct curve curve[DTYPE_COUNT],
                              trireme_error *error) {
    TRY(outline_known(t, mapping, CURVE_KEYS, error));
    for (int d = 0; d < DTYPE_COUNT; d++) {
        TRY(read_curve(t, mapping, &curve[d], error));
        int own = outline_member(t, mapping, dtype_name((enum dtype)d));
        if (own < 0)
            continue;
        TRY(outline_known(t, own, "compute memory half_bytes launch least half", error));
        TRY(read_curve(t, own, &curve[d], error));
    }
    return TRIREME_OK;
}

static trireme_status check_ops(const struct reading *r, int mapping, trireme_error *error) {
    const struct outline *t = r->outline;
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    struct text known = {0};
    text_add(&known, "other");
    for (int op = 0; op < OP_COUNT; op++)
        if (r->table->op[op].role != ROLE_COMMUNICATION)
            text_add(&known, " %s", r->table->op[op].name);
    trireme_status status = outline_known(t, mapping, known.text, error);
    text_release(&known);
    return status;
}

static trireme_status read_efficiency(const struct reading *r, int mapping, struct device *device,
                                      trireme_error *error) {
    TRY(check_ops(r, mapping, error));
    int node;
    struct curve other[DTYPE_COUNT] = {0};
    TRY(need(r->outline, mapping, "other", &node, error));
    TRY(read_op(r->outline, node, other, error));
    TRY(read_points(r, node, device, OP_COUNT, error));
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (other[d].memory <= 0)
            return outline_refuse(r->outline, node, error,
                                  "memory is missing: the share of the bandwidth that is reached");
    memcpy(device->other, other, sizeof device->other);
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &r->table->op[op];
        bool follows = info->role == ROLE_BACKWARD && info->forward < (enum op)op;
        const struct curve *base = follows ? device->curve[info->forward] : other;
        memcpy(device->curve[op], base, sizeof device->curve[op]);
        if (follows)
            for (size_t i = 0; i < device->points[info->forward].count; i++)
                VEC_PUSH(&device->points[op], device->points[info->forward].item[i]);
        node = outline_member(r->outline, mapping, info->name);
        if (node < 0)
            continue;
        TRY(read_op(r->outline, node, device->curve[op], error));
        TRY(read_points(r, node, device, (enum op)op, error));
    }
    return TRIREME_OK;
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
        TRY(may_figure(t, mapping, dtype_name((enum dtype)d), QUANTITY_FLOPS, PEAK_LEAST, PEAK_MOST, &device->peak[d],
                       error));
        any |= device->peak[d] > 0;
    }
    return any ? TRIREME_OK : outline_refuse(t, mapping, error, "the peak of f32, bf16 or f64 is missing");
}

static trireme_status read_device(const struct reading *r, int mapping, trireme_error *error) {
    const struct outline *t = r->outline;
    VEC_PUSH(&r->cluster->devices, (struct device){.name = mem_strdup(t->nodes.item[mapping].key), .cores = 1});
    struct device *d = &r->cluster->devices.item[r->cluster->devices.count - 1];
    TRY(check_name(t, mapping, d->name, error));
    TRY(outline_known(t, mapping, "peak memory runtime_memory bandwidth launch cores shared communication efficiency",
                      error));
    int node;
    TRY(need(t, mapping, "peak", &node, error));
    TRY(read_peak(t, node, d, error));
    double memory, runtime = 0;
    TRY(need_figure(t, mapping, "memory", QUANTITY_BYTES, 1e6, BYTES_MOST, &memory, error));
    TRY(may_figure(t, mapping, "runtime_memory", QUANTITY_BYTES, 0, memory, &runtime, error));
    d->memory = (int64_t)memory;
    d->runtime_memory = (int64_t)runtime;
    TRY(need_figure(t, mapping, "bandwidth", QUANTITY_RATE, RATE_LEAST, RATE_MOST, &d->bandwidth, error));
    TRY(may_figure(t, mapping, "launch", QUANTITY_SECONDS, 0, SECONDS_MOST, &d->launch, error));
    TRY(may_integer(t, mapping, "cores", 1, 4096, &d->cores, error));
    node = outline_member(t, mapping, "communication");
    if (node >= 0) {
        TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
        d->cores_communicate = strcmp(text_of(t, node), "cores") == 0;
        if (!d->cores_communicate && strcmp(text_of(t, node), "own") != 0)
            return outline_refuse(t, node, error, "given \"%.40s\", expected own or cores", text_of(t, node));
    }
    TRY(need(t, mapping, "efficiency", &node, error));
    return read_efficiency(r, node, d, error);
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

// `shared`: the number of ranks that share the device, and the device whose rates each of them then has.
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
        VEC_PUSH(&device->shared, (struct shared){(int)ranks, other});
    }
    return TRIREME_OK;
}

static trireme_status read_devices(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    int mapping;
    TRY(need(t, 0, "devices", &mapping, error));
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
    TRY(need(t, 0, "nodes", &list, error));
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    int64_t nodes = 0, devices = 0;
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next) {
        struct node_group g = {.nodes = 1, .devices = 1};
        TRY(outline_known(t, node, "device nodes devices", error));
        TRY(need(t, node, "device", &device, error));
        TRY(read_device_name(r, device, &g.device, error));
        TRY(need_integer(t, node, "nodes", 1, CLUSTER_DEVICES_MAX, &g.nodes, error));
        TRY(need_integer(t, node, "devices", 1, 4096, &g.devices, error));
        nodes += g.nodes;
        devices += (int64_t)g.nodes * g.devices;
        if (devices > CLUSTER_DEVICES_MAX)
            return outline_refuse(t, node, error, "more than %d devices in all", CLUSTER_DEVICES_MAX);
        VEC_PUSH(&r->cluster->groups, g);
    }
    if (devices == 0)
        return outline_refuse(t, list, error, "no nodes are listed");
    r->cluster->total_nodes = (int)nodes;
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

static trireme_status read_algorithm(const struct outline *t, int node, enum link_algorithm *out,
                                     trireme_error *error) {
    static const char *const WORDS[] = {"ring", "tree", "direct"};
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    for (size_t i = 0; i < ARRAY_LENGTH(WORDS); i++)
        if (strcmp(text_of(t, node), WORDS[i]) == 0) {
            *out = (enum link_algorithm)i;
            return TRIREME_OK;
        }
    return outline_refuse(t, node, error, "given \"%.40s\", expected ring, tree or direct", text_of(t, node));
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
    static const enum op MEASURED[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                       OP_REDUCE,     OP_BROADCAST,  OP_SEND};
    bool known = false;
    for (size_t i = 0; i < ARRAY_LENGTH(MEASURED); i++)
        known |= point.op == MEASURED[i];
    if (!known)
        return outline_refuse(t, op, error,
                              "given \"%.40s\", expected all_reduce, all_gather, reduce_scatter, reduce, broadcast "
                              "or send",
                              text_of(t, op));
    TRY(outline_integer(t, ranks, 2, CLUSTER_DEVICES_MAX, &count, error));
    point.ranks = (int)count;
    TRY(outline_figure(t, bytes, QUANTITY_BYTES, 1, BYTES_MOST, &point.bytes, error));
    TRY(outline_figure(t, seconds, QUANTITY_SECONDS, 1e-9, 1e5, &point.seconds, error));
    VEC_PUSH(&level->points, point);
    return TRIREME_OK;
}

static int compare_points(const void *a, const void *b) {
    const struct link_point *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->ranks != y->ranks)
        return x->ranks < y->ranks ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static trireme_status read_measured(const struct reading *r, int list, struct link_level *level, trireme_error *error) {
    const struct outline *t = r->outline;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next)
        TRY(read_link_point(r, node, level, error));
    if (level->points.count)
        qsort(level->points.item, level->points.count, sizeof *level->points.item, compare_points);
    for (size_t i = 1; i < level->points.count; i++)
        if (compare_points(&level->points.item[i - 1], &level->points.item[i]) == 0)
            return outline_refuse(t, list, error, "two points of %s among %d ranks of %.0f bytes",
                                  r->table->op[level->points.item[i].op].name, level->points.item[i].ranks,
                                  level->points.item[i].bytes);
    return TRIREME_OK;
}

static trireme_status read_level(const struct reading *r, int mapping, trireme_error *error) {
    const struct outline *t = r->outline;
    struct cluster *c = r->cluster;
    struct link_level *level = &c->level[c->levels];
    int node;
    TRY(outline_known(t, mapping, "name spans start message latency bandwidth adapters algorithm measured", error));
    TRY(need(t, mapping, "name", &node, error));
    TRY(outline_expect(t, node, OUTLINE_SCALAR, error));
    TRY(check_name(t, node, text_of(t, node), error));
    level->name = mem_strdup(text_of(t, node));
    c->levels++;
    TRY(need(t, mapping, "spans", &node, error));
    TRY(read_span(t, node, level, error));
    const struct link_level *below = c->levels > 1 ? level - 1 : NULL;
    if (below && (level->span < below->span || (level->span == below->span && level->nodes <= below->nodes)))
        return outline_refuse(t, node, error,
                              "spans no more than %s, which comes before: list links from the inside out", below->name);
    TRY(need_figure(t, mapping, "bandwidth", QUANTITY_RATE, RATE_LEAST, RATE_MOST, &level->bandwidth, error));
    TRY(need_figure(t, mapping, "latency", QUANTITY_SECONDS, 0, SECONDS_MOST, &level->latency, error));
    TRY(may_figure(t, mapping, "start", QUANTITY_SECONDS, 0, SECONDS_MOST, &level->start, error));
    level->message = level->start;
    TRY(may_figure(t, mapping, "message", QUANTITY_SECONDS, 0, SECONDS_MOST, &level->message, error));
    TRY(may_integer(t, mapping, "adapters", 1, 4096, &level->adapters, error));
    node = outline_member(t, mapping, "algorithm");
    if (node >= 0)
        TRY(read_algorithm(t, node, &level->algorithm, error));
    node = outline_member(t, mapping, "measured");
    return node < 0 ? TRIREME_OK : read_measured(r, node, level, error);
}

static trireme_status read_links(const struct reading *r, trireme_error *error) {
    const struct outline *t = r->outline;
    int list;
    TRY(need(t, 0, "links", &list, error));
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next) {
        if (r->cluster->levels == CLUSTER_LEVELS_MAX)
            return outline_refuse(t, node, error, "more than %d levels of links", CLUSTER_LEVELS_MAX);
        TRY(read_level(r, node, error));
    }
    if (r->cluster->levels == 0 || r->cluster->level[r->cluster->levels - 1].span != SPAN_ALL)
        return outline_refuse(t, list, error, "the last of the links must span all");
    return TRIREME_OK;
}

static trireme_status read_collectives(const struct reading *r, trireme_error *error) {
    int node = outline_member(r->outline, 0, "collectives");
    if (node < 0)
        return TRIREME_OK;
    TRY(outline_expect(r->outline, node, OUTLINE_SCALAR, error));
    const char *text = text_of(r->outline, node);
    r->cluster->pipelined = strcmp(text, "pipelined") == 0;
    if (!r->cluster->pipelined && strcmp(text, "in_turn") != 0)
        return outline_refuse(r->outline, node, error, "given \"%.40s\", expected in_turn or pipelined", text);
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
        TRY(need_integer(t, node, "device", 0, r->cluster->total_devices - 1, &s.device, error));
        TRY(need_figure(t, node, "slower", QUANTITY_NUMBER, 0.01, 1000, &s.slower, error));
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
    TRY(read_collectives(r, error));
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

trireme_status cluster_load(struct cluster *out, const struct op_table *table, const char *what, trireme_error *error) {
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
        if (strcmp(s->name, what) == 0)
            return cluster_parse(out, table, what, s->text, strlen(s->text), error);
    char *text;
    size_t length;
    if (!strchr(what, '/') && !strchr(what, '.')) {
        struct text names = {0};
        for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
            text_add(&names, "%s%s", s == shipped_clusters ? "" : ", ", s->name);
        error_set(error, TRIREME_ERROR_USAGE,
                  "no cluster is called \"%.80s\"; there are %.300s, or give the path of a "
                  "file, as in ./mine.yaml",
                  what, names.text);
        text_release(&names);
        return TRIREME_ERROR_USAGE;
    }
    if (file_read(what, OUTLINE_BYTES_MAX, &text, &length, error) != TRIREME_OK)
        return error->status = TRIREME_ERROR_USAGE; // nothing was started
    trireme_status status = cluster_parse(out, table, what, text, length, error);
    free(text);
    return status;
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

// The group that a device is in, its number in the group, and the nodes before the group.
static const struct node_group *group_of(const struct cluster *c, int *device, int *nodes) {
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
    const struct node_group *g = group_of(c, &device, &nodes);
    return nodes + device / g->devices;
}

int cluster_type(const struct cluster *c, int device) {
    int nodes;
    return group_of(c, &device, &nodes)->device;
}

trireme_status cluster_resize(struct cluster *c, int devices, trireme_error *error) {
    if (devices < 1 || devices > c->total_devices)
        FAIL(TRIREME_ERROR_USAGE, "devices: given %d, but %s has %d", devices, c->name, c->total_devices);
    int left = devices, device = devices - 1, nodes;
    const struct node_group *last = group_of(c, &device, &nodes);
    size_t index = (size_t)(last - c->groups.item);
    for (size_t i = 0; i < index; i++)
        left -= c->groups.item[i].nodes * c->groups.item[i].devices;
    struct node_group whole = *last, part = *last;
    whole.nodes = left / whole.devices;
    part = (struct node_group){whole.device, 1, left % whole.devices};
    c->groups.count = index;
    if (whole.nodes)
        VEC_PUSH(&c->groups, whole);
    if (part.devices)
        VEC_PUSH(&c->groups, part);
    c->total_devices = devices;
    c->total_nodes = nodes + whole.nodes + (part.devices > 0);
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
        text_add(out, "%-8s %s\n", s->name, c.about ? c.about : "");
        cluster_release(&c);
    }
    text_add(out, "\nA cluster of your own is a file: docs/simulator.md describes it, trireme bench calibrate writes "
                  "one of this machine.\n");
    return TRIREME_OK;
}
