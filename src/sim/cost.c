#include "sim/cost.h"

#include "kernels/call.h"
#include "program/places.h"

#include <math.h>

// ---- computing

static double shape_factor(const struct curve *c, const int64_t extent[DIM_LETTERS]) {
    double factor = 1;
    for (int i = 0; i < c->letters; i++) {
        double x = (double)extent[(unsigned char)c->half[i].letter];
        if (x > 0)
            factor *= x / (x + c->half[i].half);
    }
    return factor;
}

static double peak_of(const struct device *d, enum dtype dtype) {
    double best = d->peak[dtype];
    for (int i = 0; i < DTYPE_COUNT && d->peak[dtype] <= 0; i++)
        best = MAX(best, d->peak[i]);
    return best;
}

// Seconds by the curve alone, on the whole device.
static double smooth_seconds(const struct device *d, const struct curve *c, enum dtype dtype, double flops,
                             double bytes, const int64_t extent[DIM_LETTERS]) {
    double seconds = (bytes + c->half_bytes) / (d->bandwidth * c->memory);
    if (flops > 0 && c->compute > 0)
        seconds = MAX(seconds, flops / (peak_of(d, dtype) * c->compute * shape_factor(c, extent)));
    return seconds;
}

// The factor by which measured points correct the curve near them: fully at a point, and not at all some octaves away.
static double near_points(const struct device *d, const struct curve *curve, enum op op, enum dtype dtype, double flops,
                          double bytes, const int64_t extent[DIM_LETTERS]) {
    static const double REACH = 1.0; // octaves: standard deviation
    double sum = 0, weights = 1;
    for (size_t i = 0; i < d->points[op].count; i++) {
        const struct curve_point *p = &d->points[op].item[i];
        if (p->dtype != dtype)
            continue;
        double distance = 0, there_flops = flops * p->bytes / bytes;
        int64_t there[DIM_LETTERS];
        memcpy(there, extent, 128 * sizeof *there);
        if (p->m > 0) {
            const double at[3] = {p->m, p->n, p->k};
            there_flops = 2 * p->m * p->n * p->k;
            for (int k = 0; k < 3; k++) {
                int letter = "mnk"[k];
                double octaves = log2((double)MAX(extent[letter], 1) / at[k]);
                distance += octaves * octaves;
                there[letter] = (int64_t)at[k];
            }
        } else {
            distance = log2(bytes / p->bytes) * log2(bytes / p->bytes);
        }
        double weight = exp(-distance / (2 * REACH * REACH)) / (distance + 1e-6);
        sum += weight * log(p->seconds / smooth_seconds(d, curve, dtype, there_flops, p->bytes, there));
        weights += weight;
    }
    return exp(sum / weights);
}

// The part of its operations that attention to the last `window` positions alone needs.
static double window_factor(const struct op_info *info, const struct instruction *in,
                            const int64_t extent[DIM_LETTERS]) {
    int window = op_attribute_find(info, "window");
    if (window < 0 || extent['T'] <= 0)
        return 1;
    double share = (double)in->attribute[window].i / (double)extent['T'];
    return share > 0 && share < 1 ? 2 * share - share * share : 1;
}

// ---- attention of parts of sequences

// Whether the instruction's keys are those of one part, and not those of all parts, which have been gathered.
static bool attends_to_part(const struct instruction *in) {
    return in->op == OP_ATTENTION_BLOCK || in->op == OP_ATTENTION_BLOCK_BWD;
}

// Whether the rank's queries are a part of each sequence: then the place of the first one says which.
static bool attends_from_part(const struct instruction *in) {
    return attends_to_part(in) ||
           ((in->op == OP_ATTENTION || in->op == OP_ATTENTION_BWD) && in->in[INPUT(ATTENTION, first)].buffer != NONE);
}

_Static_assert((int)INPUT(ATTENTION, q) == (int)INPUT(ATTENTION_BLOCK, q) &&
                   (int)INPUT(ATTENTION, k) == (int)INPUT(ATTENTION_BLOCK, k) &&
                   (int)INPUT(ATTENTION, first) == (int)INPUT(ATTENTION_BLOCK, first) &&
                   (int)INPUT(ATTENTION, first) == (int)INPUT(ATTENTION_BWD, first) &&
                   (int)INPUT(ATTENTION_BLOCK, first) == (int)INPUT(ATTENTION_BLOCK_BWD, first) &&
                   (int)ATTRIBUTE(ATTENTION, window) == (int)ATTRIBUTE(ATTENTION_BLOCK, window),
               "in the same order");

static int64_t rows_of(const struct instruction *in, int input) {
    return in->in[input].dim[1];
}

static struct places places_of(const struct instruction *in) {
    const int64_t rows = rows_of(in, INPUT(ATTENTION, q));
    if (attends_to_part(in))
        return (struct places){in->attribute[ATTRIBUTE(ATTENTION_BLOCK, layout)].i,
                               in->attribute[ATTRIBUTE(ATTENTION_BLOCK, parts)].i, rows};
    return (struct places){PLACES_CONTIGUOUS, rows_of(in, INPUT(ATTENTION, k)) / rows, rows};
}

// The axes whose ranks have the parts.
static axis_set parts_axes(const struct program *program, const struct instruction *in) {
    const struct buffer *first = &program->buffers.item[in->in[INPUT(ATTENTION, first)].buffer];
    axis_set axes = AXES_NONE;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (first->placement[a] >= PLACE_SHARD(0))
            axes |= AXES(a);
    return axes;
}

// Pairs of a query and a key that the rank with part `own` attends to, in a sequence of one document.
static int64_t pairs_of(const struct instruction *in, int64_t own) {
    const struct places places = places_of(in);
    const int64_t window = in->attribute[ATTRIBUTE(ATTENTION, window)].i;
    if (!attends_to_part(in))
        return places_seen(&places, own, window);
    const int64_t inner = in->attribute[ATTRIBUTE(ATTENTION_BLOCK, inner)].i;
    return places_pairs(&places,
                        places_before(&places, own, in->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i, inner),
                        places_before(&places, own, in->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i, inner), window);
}

axis_set cost_unequal(const struct program *program, const struct instruction *in) {
    if (!attends_from_part(in))
        return AXES_NONE;
    const int64_t parts = places_of(in).parts, first = pairs_of(in, 0);
    for (int64_t own = 1; own < parts; own++)
        if (pairs_of(in, own) != first)
            return parts_axes(program, in);
    return AXES_NONE;
}

// What part of the operations that its row says, those of a causal mask, an instruction does on the rank.
static double pairs_factor(const struct program *program, const struct instruction *in, int rank) {
    const double queries = (double)rows_of(in, INPUT(ATTENTION, q)), keys = (double)rows_of(in, INPUT(ATTENTION, k));
    const int own = mesh_index(&program->mesh, rank, parts_axes(program, in));
    return 2 * (double)pairs_of(in, own) / (queries * keys);
}

// How many kernels do the op.
static int kernels_of(const struct curve *c, const int64_t extent[DIM_LETTERS]) {
    bool has = extent['b'] > 0 || extent['h'] > 0; // else `fused` comes from a curve that other ops share
    return c->fused > 0 && has && MAX(1, extent['b']) * MAX(1, extent['h']) % c->fused ? c->unfused : 1;
}

static double file_bandwidth(const struct device *d) {
    return d->file_bandwidth > 0 ? d->file_bandwidth : FILE_BANDWIDTH;
}

double cost_compute(const struct station *s, const struct program *program, const struct op_table *table,
                    const struct instruction *in, int rank, bool accumulates) {
    const struct device *d = s->device;
    if (in->op == OP_TRANSFER)
        return (d->launch + communicated_bytes(program, in) / (file_bandwidth(d) * s->part)) * s->slower;
    enum dtype dtype = instruction_dtype(program, table, in);
    const struct curve *c = &d->curve[in->op][dtype];
    struct invocation as = {.first = !accumulates};
    int64_t extent[DIM_LETTERS];
    instruction_expected(program, table, in, extent);
    double bytes = instruction_bytes(program, table, in, &as);
    double flops =
        instruction_flops(program, table, in) *
        (attends_from_part(in) ? pairs_factor(program, in, rank) : window_factor(&table->op[in->op], in, extent));
    double seconds = smooth_seconds(d, c, dtype, flops, bytes, extent);
    if (d->points[in->op].count && bytes > 0)
        seconds *= near_points(d, c, in->op, dtype, flops, bytes, extent);
    int kernels = kernels_of(c, extent);
    return (kernels * (d->launch + c->launch) + MAX(kernels * c->least, seconds / s->part)) * s->slower;
}

// ---- communication

static double steps_of(enum link_algorithm algorithm, int parts) {
    switch (algorithm) {
    case LINK_RING:
        return parts - 1;
    case LINK_TREE:
        return ceil(log2(parts));
    default:
        return 1;
    }
}

int route_only_level(const struct cluster *c, const struct route *route) {
    int only = NONE;
    for (int i = 0; i < c->levels; i++)
        if (route->parts[i] > 1) {
            if (only != NONE)
                return NONE;
            only = i;
        }
    return only;
}

// Whether each rank has something else for each other one, which nobody can add up or pass on to several.
static bool is_each_with_each(enum op op) {
    return op_traffic[op].takes == HOLDING_BAND || op_traffic[op].takes == HOLDING_ROWS;
}

// How often a level's links carry what a rank sends in a collective.
static double times_over_links(const struct link_level *level, enum op op, double members) {
    const bool one_way =
        level->wiring == WIRING_DIRECT && level->algorithm == LINK_RING && members > 2 && !is_each_with_each(op);
    return level->half_duplex && !one_way ? 2 : 1;
}

// What part of a collective's bytes a rank sends over a level that joins `parts` parts of `below` ranks each.
static double share_over_level(const struct cluster *c, const struct route *route, enum op op, double parts,
                               double below) {
    if (is_each_with_each(op))
        return (parts - 1) * below / route->ranks;
    const double members = c->collectives == COLLECTIVES_RING ? route->ranks : parts;
    return op_traffic[op].times / below * (members - 1) / members;
}

static double by_formula(const struct cluster *c, const struct route *route, enum op op, double bytes) {
    double start = 0, latency = 0, sum = 0, slowest = 0, below = 1;
    const bool message = op_is_message(op);
    for (int i = 0; i < c->levels; i++) {
        const struct link_level *level = &c->level[i];
        int parts = route->parts[i];
        if (parts < 2)
            continue;
        start = MAX(start, message ? level->message : level->start);
        const double members = c->collectives == COLLECTIVES_RING ? route->ranks : parts,
                     moved = message ? bytes
                                     : times_over_links(level, op, members) * bytes *
                                           share_over_level(c, route, op, parts, below);
        latency += (message ? 1 : op_traffic[op].times * steps_of(level->algorithm, parts)) * level->latency;
        sum += moved / route->bandwidth[i];
        slowest = MAX(slowest, moved / route->bandwidth[i]);
        below *= parts;
    }
    return start + latency + (c->collectives == COLLECTIVES_IN_TURN ? sum : slowest);
}

// Seconds by the measured points of this collective and number of ranks; false where there are none. Between points a
// straight line in logarithms; above the largest its bytes per second; below the smallest its seconds times the ratio
// of the formula. Points were measured on a group that has its links to itself: while other groups use them it takes
// longer, again by the ratio of the formula.
static bool from_points(const struct cluster *c, const struct route *route, int level, enum op op, double bytes,
                        double *out) {
    const struct link_point *below = NULL, *above = NULL;
    struct route alone = *route;
    for (size_t i = 0; i < c->level[level].points.count; i++) {
        const struct link_point *p = &c->level[level].points.item[i];
        if (p->op != op || p->ranks != route->ranks)
            continue;
        if (p->bytes <= bytes)
            below = p;
        else if (!above)
            above = p;
    }
    if (!below && !above)
        return false;
    const bool crowded = route->alone[level] > route->bandwidth[level];
    if (crowded)
        alone.bandwidth[level] = route->alone[level];
    const double formula = by_formula(c, &alone, op, bytes);
    if (!below)
        *out = above->seconds * formula / by_formula(c, &alone, op, above->bytes);
    else if (!above)
        *out = below->seconds * bytes / below->bytes;
    else
        *out = below->seconds *
               pow(above->seconds / below->seconds, log(bytes / below->bytes) / log(above->bytes / below->bytes));
    if (crowded && formula > 0)
        *out *= by_formula(c, route, op, bytes) / formula;
    return true;
}

double cost_communicate(const struct cluster *c, const struct route *route, enum op op, double bytes) {
    int only = route_only_level(c, route);
    double measured;
    if (only != NONE && (from_points(c, route, only, op, bytes, &measured) ||
                         from_points(c, route, only, op_traffic[op].like, bytes, &measured)))
        return measured;
    return by_formula(c, route, op, bytes);
}

double cost_latency(const struct cluster *c, const struct route *route) {
    return by_formula(c, route, OP_SEND, 0);
}

double communicated_bytes(const struct program *program, const struct instruction *in) {
    const struct operand *operand = op_takes_in(in->op) ? &in->out[0] : &in->in[0];
    enum dtype dtype = program->buffers.item[operand->buffer].dtype;
    const int wire = op_wire(in->op);
    const bool narrow = wire >= 0 && in->attribute[wire].i != 0;
    return (double)(operand_expected(program, operand) * dtype_size(narrow ? DTYPE_BF16 : dtype));
}
