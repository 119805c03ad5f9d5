// Prints a cluster as the text of a file that reads back as the same cluster.
#include "sim/cluster.h"

#include "config/value.h"
#include "sim/efficiency.h"

struct figure {
    char text[40];
};

// With the prefix of thousands that fits, and all digits that matter.
static struct figure figure(double value, const char *unit) {
    static const char *const PREFIXES[] = {"n", "u", "m", "", "k", "M", "G", "T", "P"};
    struct figure f;
    int prefix = 3;
    bool time = strcmp(unit, "s") == 0;
    while (value > 0 && value < 1 && prefix > 0 && time) {
        value *= 1000;
        prefix--;
    }
    while (value >= 1000 && prefix < (strcmp(unit, "FLOP/s") == 0 ? 8 : 7) && !time) {
        value /= 1000;
        prefix++;
    }
    bool kilo_flops = prefix == 4 && strcmp(unit, "FLOP/s") == 0;
    snprintf(f.text, sizeof f.text, "%.6g %s%s", kilo_flops ? 1000 * value : value, kilo_flops ? "" : PREFIXES[prefix],
             unit);
    return f;
}

// The curve without letters and kernels that it took over from another and that mean nothing to the op.
static struct curve cluster_meant(const struct curve *c, const struct op_table *table, enum op op) {
    struct curve out = *c;
    out.letters = 0;
    for (int i = 0; i < c->letters; i++)
        if (efficiency_has_letter(table, op, c->half[i].letter))
            out.half[out.letters++] = c->half[i];
    if (!efficiency_has_letter(table, op, 'b') && !efficiency_has_letter(table, op, 'h'))
        out.fused = out.unfused = 0;
    return out;
}

// Prints what differs from `base`, too: the reader would take it over from there.
static void print_curve(struct text *out, const struct curve *c, const struct curve *base) {
    text_add(out, "{compute: %.5g, memory: %.5g", c->compute, c->memory);
    if (c->half_bytes != base->half_bytes)
        text_add(out, ", half_bytes: %s", figure(c->half_bytes, "B").text);
    if (c->launch != base->launch)
        text_add(out, ", launch: %s", figure(c->launch, "s").text);
    if (c->least != base->least)
        text_add(out, ", least: %s", figure(c->least, "s").text);
    if (c->fused != base->fused || c->unfused != base->unfused)
        text_add(out, ", fused: {multiple_of: %d, else: %d}", MAX(1, c->fused), MAX(1, c->unfused));
    if (c->letters || base->letters) {
        text_add(out, ", half: {");
        for (int i = 0; i < c->letters; i++)
            text_add(out, "%s%c: %.5g", i ? ", " : "", c->half[i].letter, c->half[i].half);
        text_add(out, "}");
    }
    text_add(out, "}");
}

static bool same_curve(const struct curve *a, const struct curve *b) {
    if (a->compute != b->compute || a->memory != b->memory || a->half_bytes != b->half_bytes ||
        a->launch != b->launch || a->least != b->least || a->fused != b->fused || a->unfused != b->unfused ||
        a->letters != b->letters)
        return false;
    for (int i = 0; i < a->letters; i++)
        if (a->half[i].letter != b->half[i].letter || a->half[i].half != b->half[i].half)
            return false;
    return true;
}

static void print_points(struct text *out, const struct device *d, int op) {
    enum { LINE = 114 };
    size_t line = out->length;
    text_add(out, "        measured: [");
    for (size_t i = 0; i < d->points[op].count; i++) {
        const struct curve_point *p = &d->points[op].item[i];
        struct text point = {0};
        if (p->m > 0)
            text_add(&point, "[%.0f, %.0f, %.0f, %s, %s]", p->m, p->n, p->k, dtype_name(p->dtype),
                     figure(2 * p->m * p->n * p->k / p->seconds, "FLOP/s").text);
        else
            text_add(&point, "[%.0f B, %s, %s]", p->bytes, dtype_name(p->dtype), figure(p->seconds, "s").text);
        bool full = i && out->length - line + point.length > LINE;
        if (full)
            line = out->length + 2;
        text_add(out, "%s%s", !i ? "" : full ? ",\n          " : ", ", point.text);
        text_release(&point);
    }
    text_add(out, "]\n");
}

// Whether curves of the dtype are used. Sums, and ops without a dtype of the model's, count as f32 (instruction_dtype),
// whether the device has a peak for that or not.
static bool is_used(const struct device *d, int dtype) {
    return d->peak[dtype] > 0 || dtype == DTYPE_F32;
}

static void print_curves(struct text *out, const struct device *d, const struct curve *curve, const struct curve *base,
                         const struct op_table *table, enum op op) {
    static const struct curve none;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (is_used(d, t)) {
            text_add(out, "        %s: ", dtype_name((enum dtype)t));
            struct curve own = cluster_meant(&curve[t], table, op),
                         taken = base ? cluster_meant(&base[t], table, op) : none;
            print_curve(out, &own, &taken);
            text_add(out, "\n");
        }
}

static void print_efficiency(struct text *out, const struct device *d, const struct op_table *table) {
    text_add(out, "    efficiency:\n      other:\n        memory: 1\n");
    print_curves(out, d, d->other, NULL, table, OP_COUNT);
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &table->op[op];
        if (info->role == ROLE_COMMUNICATION || info->role == ROLE_TRANSFER)
            continue;
        bool follows = info->like != info->op;
        const struct curve *base = follows ? d->curve[info->like] : d->other;
        bool points = d->points[op].count > 0 ||
                      (efficiency_follows_points(table, (enum op)op) && d->points[info->like].count > 0);
        bool differs = points;
        for (int t = 0; t < DTYPE_COUNT; t++) {
            struct curve own = cluster_meant(&d->curve[op][t], table, (enum op)op),
                         taken = cluster_meant(&base[t], table, (enum op)op);
            differs |= is_used(d, t) && !same_curve(&own, &taken);
        }
        if (!differs)
            continue;
        text_add(out, "      %s:\n", info->name);
        print_curves(out, d, d->curve[op], base, table, (enum op)op);
        if (points)
            print_points(out, d, op);
    }
}

static void print_device(struct text *out, const struct cluster *c, const struct device *d,
                         const struct op_table *table) {
    text_add(out, "  ");
    value_print_text(out, d->name);
    text_add(out, ":\n    peak: {");
    const char *comma = "";
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (d->peak[t] > 0) {
            text_add(out, "%s%s: %s", comma, dtype_name((enum dtype)t), figure(d->peak[t], "FLOP/s").text);
            comma = ", ";
        }
    text_add(out, "}\n    memory: %lld B\n    runtime_memory: %lld B\n    bandwidth: %s\n    launch: %s\n",
             (long long)d->memory, (long long)d->runtime_memory, figure(d->bandwidth, "B/s").text,
             figure(d->launch, "s").text);
    if (d->file_bandwidth > 0)
        text_add(out, "    file_bandwidth: %s\n", figure(d->file_bandwidth, "B/s").text);
    if (d->cores > 1)
        text_add(out, "    cores: %d\n", d->cores);
    if (d->communication == 1)
        text_add(out, "    communication: cores\n");
    else if (d->communication > 0)
        text_add(out, "    communication: %.4g\n", d->communication);
    if (d->meeting > 0)
        text_add(out, "    meeting: %s\n", figure(d->meeting, "s").text);
    if (d->jitter > 0)
        text_add(out, "    jitter: %.4g\n", d->jitter);
    if (d->shared.count) {
        text_add(out, "    shared: {");
        for (size_t i = 0; i < d->shared.count; i++) {
            text_add(out, "%s%d: ", i ? ", " : "", d->shared.item[i].ranks);
            value_print_text(out, c->devices.item[d->shared.item[i].device].name);
        }
        text_add(out, "}\n");
    }
    print_efficiency(out, d, table);
}

static void print_level(struct text *out, const struct link_level *l, const struct op_table *table) {
    static const char *const SPANS[] = {"device", "node", "", "all"}, *const ALGORITHMS[] = {"ring", "tree", "direct"};
    text_add(out, "  - name: ");
    value_print_text(out, l->name);
    text_add(out, "\n    spans: ");
    if (l->span == SPAN_NODES)
        text_add(out, "%d nodes\n", l->nodes);
    else
        text_add(out, "%s\n", SPANS[l->span]);
    text_add(out, "    start: %s\n    latency: %s\n    bandwidth: %s\n    algorithm: %s\n", figure(l->start, "s").text,
             figure(l->latency, "s").text, figure(l->bandwidth, "B/s").text, ALGORITHMS[l->algorithm]);
    if (l->message != l->start)
        text_add(out, "    message: %s\n", figure(l->message, "s").text);
    if (l->adapters)
        text_add(out, "    adapters: %d\n", l->adapters);
    if (l->wiring)
        text_add(out, "    wiring: %s\n    duplex: %s\n", l->wiring == WIRING_SWITCH ? "switch" : "direct",
                 l->half_duplex ? "half" : "full");
    if (l->points.count)
        text_add(out, "    measured:\n");
    for (size_t i = 0; i < l->points.count; i++) {
        const struct link_point *p = &l->points.item[i];
        text_add(out, "      - [%s, %d, %.0f B, %s]\n", table->op[p->op].name, p->ranks, p->bytes,
                 figure(p->seconds, "s").text);
    }
}

void cluster_print(const struct cluster *c, const struct op_table *table, struct text *out) {
    if (c->about) {
        text_add(out, "about: ");
        value_print_text(out, c->about);
        text_add(out, "\n");
    }
    text_add(out, "devices:\n");
    for (size_t i = 0; i < c->devices.count; i++)
        print_device(out, c, &c->devices.item[i], table);
    text_add(out, "nodes:\n");
    for (size_t i = 0; i < c->groups.count; i++) {
        text_add(out, "  - {device: ");
        value_print_text(out, c->devices.item[c->groups.item[i].device].name);
        text_add(out, ", nodes: %d, devices: %d}\n", c->groups.item[i].nodes, c->groups.item[i].devices);
    }
    text_add(out, c->levels ? "links:\n" : "");
    for (int i = 0; i < c->levels; i++)
        print_level(out, &c->level[i], table);
    text_add(out, "collectives: %s\n", COLLECTIVES_WORDS[c->collectives]);
    if (c->stragglers.count)
        text_add(out, "stragglers:\n");
    for (size_t i = 0; i < c->stragglers.count; i++)
        text_add(out, "  - {device: %d, slower: %.6g}\n", c->stragglers.item[i].device, c->stragglers.item[i].slower);
}
