#include "sim/efficiency.h"

#include <ctype.h>

enum { EXTENT_MOST = 1000000000 };

static const double HALF_MOST = 1e6, COMPUTE_LEAST = 1e-6, SECONDS_LEAST = 1e-9, SECONDS_MOST = 1e5;

bool efficiency_has_letter(const struct op_table *table, enum op op, char letter) {
    bool has = false;
    for (int row = 0; row < OP_COUNT; row++) {
        const struct op_info *info = &table->op[row];
        const bool computes = info->role != ROLE_COMMUNICATION && info->role != ROLE_TRANSFER;
        bool asked = op == OP_COUNT ? info->like == info->op && computes : row == (int)op;
        for (int i = 0; asked && i < info->inputs + info->outputs; i++) {
            const struct op_operand *operand = op_operand_at(info, i);
            has |= memchr(operand->dim, letter, (size_t)operand->ndim) != NULL;
        }
    }
    return has && isalpha((unsigned char)letter);
}

// What a curve is of: an op, or OP_COUNT for all ops without one of their own.
struct subject {
    const struct op_table *table;
    enum op op;
};

static const char *subject_name(struct subject s) {
    return s.op == OP_COUNT ? "other ops" : s.table->op[s.op].name;
}

static trireme_status refuse_letter(const struct outline *t, int node, struct subject s, trireme_error *error) {
    struct text letters = {0};
    for (char c = 'A'; c <= 'z'; c++)
        if (efficiency_has_letter(s.table, s.op, c))
            text_add(&letters, "%s%c", letters.length ? ", " : "", c);
    trireme_status status =
        outline_refuse(t, node, error, "expected a letter of the dims of %s: %s", subject_name(s), letters.text);
    text_release(&letters);
    return status;
}

static trireme_status read_half(const struct outline *t, int mapping, struct subject s, struct curve *curve,
                                trireme_error *error) {
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    curve->letters = 0;
    for (int node = t->nodes.item[mapping].child; node >= 0; node = t->nodes.item[node].next) {
        const char *key = t->nodes.item[node].key;
        if (strlen(key) != 1 || !efficiency_has_letter(s.table, s.op, *key))
            return refuse_letter(t, node, s, error);
        if (curve->letters == CURVE_LETTERS_MAX)
            return outline_refuse(t, node, error, "more than %d letters", CURVE_LETTERS_MAX);
        double half;
        TRY(outline_figure(t, node, QUANTITY_NUMBER, 0, HALF_MOST, &half, error));
        curve->half[curve->letters].letter = *key;
        curve->half[curve->letters++].half = half;
    }
    return TRIREME_OK;
}

static trireme_status read_fused(const struct outline *t, int mapping, struct subject s, struct curve *curve,
                                 trireme_error *error) {
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    TRY(outline_known(t, mapping, "multiple_of else", error));
    TRY(outline_need_integer(t, mapping, "multiple_of", 1, 4096, &curve->fused, error));
    TRY(outline_need_integer(t, mapping, "else", 1, 100, &curve->unfused, error));
    if (!efficiency_has_letter(s.table, s.op, 'b') && !efficiency_has_letter(s.table, s.op, 'h'))
        return outline_refuse(t, mapping, error, "%s has neither dim b nor dim h", subject_name(s));
    return TRIREME_OK;
}

// 0: only bytes cost time, operations do not. Otherwise the share may be small, but not so small that steps never end.
static trireme_status read_compute(const struct outline *t, int mapping, struct curve *curve, trireme_error *error) {
    TRY(outline_may_figure(t, mapping, "compute", QUANTITY_NUMBER, 0, 1, &curve->compute, error));
    if (curve->compute > 0 && curve->compute < COMPUTE_LEAST) {
        int node = outline_member(t, mapping, "compute");
        return outline_refuse(t, node, error, "given %.40s, expected 0, or from %g to 1", t->nodes.item[node].text,
                              COMPUTE_LEAST);
    }
    return TRIREME_OK;
}

static trireme_status read_curve(const struct outline *t, int mapping, struct subject s, struct curve *curve,
                                 trireme_error *error) {
    TRY(read_compute(t, mapping, curve, error));
    // May be above 1: what lies in a cache comes faster than from memory.
    TRY(outline_may_figure(t, mapping, "memory", QUANTITY_NUMBER, 1e-4, 100, &curve->memory, error));
    TRY(outline_may_figure(t, mapping, "half_bytes", QUANTITY_BYTES, 0, CLUSTER_BYTES_MOST, &curve->half_bytes, error));
    TRY(outline_may_figure(t, mapping, "launch", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &curve->launch, error));
    TRY(outline_may_figure(t, mapping, "least", QUANTITY_SECONDS, 0, CLUSTER_SECONDS_MOST, &curve->least, error));
    int fused = outline_member(t, mapping, "fused");
    if (fused >= 0)
        TRY(read_fused(t, fused, s, curve, error));
    int half = outline_member(t, mapping, "half");
    return half < 0 ? TRIREME_OK : read_half(t, half, s, curve, error);
}

trireme_status efficiency_read_transfer(const struct outline *t, int bytes_node, int seconds_node, double *bytes,
                                        double *seconds, trireme_error *error) {
    TRY(outline_figure(t, bytes_node, QUANTITY_BYTES, 1, CLUSTER_BYTES_MOST, bytes, error));
    TRY(outline_figure(t, seconds_node, QUANTITY_SECONDS, SECONDS_LEAST, SECONDS_MOST, seconds, error));
    if (*bytes / *seconds > CLUSTER_RATE_MOST)
        return outline_refuse(t, seconds_node, error, "given %.40s for %.40s, %.4g TB/s, expected up to %.0f TB/s",
                              t->nodes.item[seconds_node].text, t->nodes.item[bytes_node].text,
                              1e-12 * *bytes / *seconds, 1e-12 * CLUSTER_RATE_MOST);
    return TRIREME_OK;
}

// Reads a point: [m, n, k, dtype, rate] of a matrix product, [bytes, dtype, seconds] of any other op.
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
    for (int i = 0; i < 3 && product; i++) {
        int64_t whole;
        TRY(outline_integer(t, node[i], 1, EXTENT_MOST, &whole, error));
        *extent[i] = (double)whole;
    }
    int dtype = node[count - 2], figure = node[count - 1];
    TRY(outline_expect(t, dtype, OUTLINE_SCALAR, error));
    if (!dtype_parse(t->nodes.item[dtype].text, &point.dtype) || device->peak[point.dtype] <= 0)
        return outline_refuse(t, dtype, error, "expected a dtype that the device has a peak of");
    if (product) {
        TRY(outline_figure(t, figure, QUANTITY_FLOPS, 1, 1.05 * device->peak[point.dtype], &rate, error));
        point.seconds = 2 * point.m * point.n * point.k / rate;
        if (point.seconds > SECONDS_MOST)
            return outline_refuse(t, figure, error, "given %.40s for [%.0f, %.0f, %.0f], %.4g s, expected up to %g s",
                                  t->nodes.item[figure].text, point.m, point.n, point.k, point.seconds, SECONDS_MOST);
        point.bytes = product_bytes(point.m, point.n, point.k, point.dtype);
    } else {
        TRY(efficiency_read_transfer(t, node[0], figure, &point.bytes, &point.seconds, error));
    }
    VEC_PUSH(&device->points[op], point);
    return TRIREME_OK;
}

// Of an op, or of one dtype of an op.
#define CURVE_KEYS "compute memory half_bytes launch least fused half"

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

bool efficiency_follows_points(const struct op_table *table, enum op op) {
    const struct op_info *info = &table->op[op], *like = &table->op[info->like];
    return like != info && has_letters(info, "mnk") == has_letters(like, "mnk");
}

// A matrix product of a list, and its node.
struct listed {
    struct curve_point point;
    int node;
};

static int efficiency_compare_shapes(const struct curve_point *a, const struct curve_point *b) {
    return COMPARE(a->dtype, b->dtype) ?: COMPARE(a->m, b->m) ?: COMPARE(a->n, b->n) ?: COMPARE(a->k, b->k);
}

static int compare_listed(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    return efficiency_compare_shapes(&x->point, &y->point) ?: COMPARE(x->node, y->node);
}

// Refuses a matrix product that is listed twice. (Other ops that move equally many bytes may still differ in shape.)
static trireme_status refuse_twice(const struct outline *t, int list, const struct curve_point *points, size_t count,
                                   trireme_error *error) {
    struct listed *sorted = mem_alloc(count * sizeof *sorted);
    int node = t->nodes.item[list].child;
    for (size_t i = 0; i < count; i++, node = t->nodes.item[node].next)
        sorted[i] = (struct listed){points[i], node};
    qsort(sorted, count, sizeof *sorted, compare_listed);
    trireme_status status = TRIREME_OK;
    for (size_t i = 1; i < count && status == TRIREME_OK; i++) {
        const struct curve_point *p = &sorted[i].point;
        if (efficiency_compare_shapes(&sorted[i - 1].point, p) == 0)
            status = outline_refuse(t, sorted[i].node, error, "the product [%.0f, %.0f, %.0f, %s] is there twice", p->m,
                                    p->n, p->k, dtype_name(p->dtype));
    }
    free(sorted);
    return status;
}

static trireme_status read_points(const struct outline *t, const struct op_table *table, int mapping,
                                  struct device *device, enum op op, trireme_error *error) {
    int list = outline_member(t, mapping, "measured");
    if (list < 0)
        return TRIREME_OK;
    TRY(outline_expect(t, list, OUTLINE_LIST, error));
    if (op == OP_COUNT)
        return outline_refuse(t, list, error, "points are of one op, not of all others");
    bool product = has_letters(&table->op[op], "mnk");
    device->points[op].count = 0;
    for (int node = t->nodes.item[list].child; node >= 0; node = t->nodes.item[node].next)
        TRY(read_point(t, node, device, op, product, error));
    return product ? refuse_twice(t, list, device->points[op].item, device->points[op].count, error) : TRIREME_OK;
}

// Reads an op's curves: what holds for all dtypes, then what single dtypes have of their own.
static trireme_status efficiency_read_op(const struct outline *t, int mapping, struct subject s,
                                         struct curve curve[DTYPE_COUNT], trireme_error *error) {
    TRY(outline_known(t, mapping, CURVE_KEYS " measured f32 bf16 f64", error));
    for (int d = 0; d < DTYPE_COUNT; d++) {
        TRY(read_curve(t, mapping, s, &curve[d], error));
        int own = outline_member(t, mapping, dtype_name((enum dtype)d));
        if (own < 0)
            continue;
        TRY(outline_known(t, own, CURVE_KEYS, error));
        TRY(read_curve(t, own, s, &curve[d], error));
    }
    return TRIREME_OK;
}

static trireme_status check_ops(const struct outline *t, const struct op_table *table, int mapping,
                                trireme_error *error) {
    TRY(outline_expect(t, mapping, OUTLINE_MAPPING, error));
    struct text known = {0};
    text_add(&known, "other");
    for (int op = 0; op < OP_COUNT; op++)
        if (table->op[op].role != ROLE_COMMUNICATION && table->op[op].role != ROLE_TRANSFER)
            text_add(&known, " %s", table->op[op].name);
    trireme_status status = outline_known(t, mapping, known.text, error);
    text_release(&known);
    return status;
}

trireme_status efficiency_read(struct device *device, const struct outline *t, const struct op_table *table,
                               int mapping, trireme_error *error) {
    TRY(check_ops(t, table, mapping, error));
    int node;
    struct curve other[DTYPE_COUNT] = {0};
    for (int d = 0; d < DTYPE_COUNT; d++)
        other[d].compute = 1; // without a figure, the peak alone is the bound
    TRY(outline_need(t, mapping, "other", &node, error));
    TRY(efficiency_read_op(t, node, (struct subject){table, OP_COUNT}, other, error));
    TRY(read_points(t, table, node, device, OP_COUNT, error));
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (other[d].memory <= 0)
            return outline_refuse(t, node, error, "memory is missing: the share of the bandwidth that is reached");
    memcpy(device->other, other, sizeof device->other);
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &table->op[op];
        bool follows = info->like != info->op;
        const struct curve *base = follows ? device->curve[info->like] : other;
        memcpy(device->curve[op], base, sizeof device->curve[op]);
        if (efficiency_follows_points(table, (enum op)op))
            for (size_t i = 0; i < device->points[info->like].count; i++)
                VEC_PUSH(&device->points[op], device->points[info->like].item[i]);
        node = outline_member(t, mapping, info->name);
        if (node < 0)
            continue;
        TRY(efficiency_read_op(t, node, (struct subject){table, (enum op)op}, device->curve[op], error));
        TRY(read_points(t, table, node, device, (enum op)op, error));
    }
    return TRIREME_OK;
}
