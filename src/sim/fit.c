#include "sim/fit.h"

#include "kernels/call.h"
#include "sim/efficiency.h"

#include <math.h>

struct fit_sample fit_sample_of(const struct program *program, const struct op_table *table,
                                const struct instruction *in, const struct invocation *v, double seconds) {
    int64_t extent[DIM_LETTERS];
    instruction_expected(program, table, in, extent);
    return (struct fit_sample){.op = in->op,
                               .dtype = instruction_dtype(program, table, in),
                               .flops = instruction_flops(program, table, in),
                               .bytes = instruction_bytes(program, table, in, v),
                               .seconds = seconds,
                               .m = extent['m'],
                               .n = extent['n'],
                               .k = extent['k'],
                               .T = extent['T']};
}

static bool is_product(const struct fit_sample *s, const struct op_info *info) {
    return s->flops > 0 && s->m > 0 && s->n > 0 && s->k > 0 && info->family == FAMILY_MATMUL;
}

static bool is_attention(const struct fit_sample *s) {
    return s->flops > 0 && s->T > 0;
}

// ---- one shape, one sample

static int fit_compare_shapes(const void *a, const void *b) {
    const struct fit_sample *x = a, *y = b;
    const double keys[][2] = {{x->op, y->op},
                              {x->dtype, y->dtype},
                              {(double)x->m, (double)y->m},
                              {(double)x->n, (double)y->n},
                              {(double)x->k, (double)y->k},
                              {(double)x->T, (double)y->T},
                              {x->bytes, y->bytes},
                              {x->flops, y->flops},
                              {x->seconds, y->seconds}};
    int order = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(keys) && order == 0; i++)
        order = COMPARE(keys[i][0], keys[i][1]);
    return order;
}

static bool same_shape(const struct fit_sample *a, const struct fit_sample *b) {
    return a->op == b->op && a->dtype == b->dtype && a->m == b->m && a->n == b->n && a->k == b->k && a->T == b->T &&
           a->bytes == b->bytes && a->flops == b->flops;
}

// Reduces the samples of each shape to one, their median.
static struct fit_samples fit_reduce(const struct fit_samples *samples, const struct op_table *table) {
    struct fit_samples all = {0}, out = {0};
    for (size_t i = 0; i < samples->count; i++) {
        struct fit_sample s = samples->item[i];
        if (s.seconds <= 0)
            continue;
        // A bias, or outputs that are added to, make no other shape of a product.
        if (is_product(&s, &table->op[s.op])) {
            s.bytes = 0;
            s.flops = 2 * (double)s.m * (double)s.n * (double)s.k;
        }
        VEC_PUSH(&all, s);
    }
    VEC_SORT(&all, fit_compare_shapes);
    for (size_t i = 0, next; i < all.count; i = next) {
        for (next = i + 1; next < all.count && same_shape(&all.item[i], &all.item[next]);)
            next++;
        struct fit_sample median = all.item[(i + next) / 2];
        median.seconds = (median.seconds + all.item[(i + next - 1) / 2].seconds) / 2;
        VEC_PUSH(&out, median);
    }
    VEC_RELEASE(&all);
    return out;
}

// ---- the curve of one op and dtype

enum { FIT_MOST = 6 };

struct fit {
    const struct device *device;
    const struct fit_sample *item;
    size_t count;
    bool product, attention;
    double parameter[FIT_MOST]; // product: compute, m, n, k; attention: compute, T, launch; else memory, launch
    int parameters;
};

static double fit_predict(const struct fit *f, const double *p, const struct fit_sample *s) {
    double peak = f->device->peak[s->dtype];
    if (f->product)
        return s->flops / (peak * p[0]) * (1 + p[1] / (double)s->m) * (1 + p[2] / (double)s->n) *
               (1 + p[3] / (double)s->k);
    if (f->attention)
        return s->flops / (peak * p[0]) * (1 + p[1] / (double)s->T) + p[2];
    return s->bytes / (f->device->bandwidth * p[0]) + p[1];
}

static double error_of(const void *fit, const double *p) {
    const struct fit *f = fit;
    double sum = 0;
    for (size_t i = 0; i < f->count; i++) {
        double off = log(fit_predict(f, p, &f->item[i]) / f->item[i].seconds);
        sum += fabs(off);
    }
    return sum;
}

void fit_descend(double *parameter, int count, double (*error)(const void *user, const double *parameter),
                 const void *user) {
    static const double FIRST = 4, LAST = 1.002; // factors
    static const double BETTER = 1 - 1e-9;       // what rounding does not make of an equal error
    double best = error(user, parameter);
    for (double step = FIRST; step > LAST;) {
        bool better = false;
        for (int i = 0; i < 2 * count; i++) {
            const double before = parameter[i / 2];
            parameter[i / 2] *= i % 2 ? step : 1 / step;
            const double now = error(user, parameter);
            if (now < best * BETTER) {
                best = now;
                better = true;
            } else {
                parameter[i / 2] = before;
            }
        }
        if (!better)
            step = sqrt(step);
    }
}

static void add_letter(struct curve *c, char letter, double half) {
    if (half < 0.05)
        return;
    c->half[c->letters].letter = letter;
    c->half[c->letters++].half = MIN(half, 1e5);
}

// Rounded down to whole nanoseconds, at most a second.
static double launch_of(double seconds) {
    return 1e-9 * floor(1e9 * MIN(seconds, 1));
}

static struct curve curve_of(struct fit *f) {
    struct curve c = {.memory = 1};
    static const double PRODUCT[] = {0.8, 20, 20, 20}, ATTENTION[] = {0.4, 50, 1e-6}, OTHER[] = {0.5, 1e-6};
    const double *from = f->product ? PRODUCT : f->attention ? ATTENTION : OTHER;
    f->parameters = f->product ? 4 : f->attention ? 3 : 2;
    memcpy(f->parameter, from, (size_t)f->parameters * sizeof *from);
    fit_descend(f->parameter, f->parameters, error_of, f);
    const double *p = f->parameter;
    if (f->product) {
        c.compute = MIN(1, p[0]);
        c.memory = 100; // products read from caches
        for (int i = 0; i < 3; i++)
            add_letter(&c, "mnk"[i], p[1 + i]);
    } else if (f->attention) {
        c.compute = MIN(1, p[0]);
        c.memory = 100;
        add_letter(&c, 'T', p[1]);
        c.launch = launch_of(p[2]);
    } else {
        c.memory = MAX(1e-4, MIN(100, p[0]));
        c.launch = launch_of(p[1]);
    }
    return c;
}

// ---- a device

// Points of an op and dtype: each instruction that is simulated is compared with all of them.
enum { POINTS_MOST = 64 };

static double fit_size_of(const struct fit *f, const struct fit_sample *s) {
    return f->product ? s->flops : s->bytes;
}

// The squared distance in octaves, as in cost.c.
static double fit_distance(const struct fit *f, const struct fit_sample *a, const struct fit_sample *b) {
    if (!f->product)
        return pow(log2(a->bytes / b->bytes), 2);
    return pow(log2((double)a->m / (double)b->m), 2) + pow(log2((double)a->n / (double)b->n), 2) +
           pow(log2((double)a->k / (double)b->k), 2);
}

// Which of the samples become points: all, or the largest, the smallest, and then one by one the sample that is
// farthest from all that are kept.
static void choose_points(const struct fit *f, bool *kept) {
    double *away = mem_alloc(f->count * sizeof *away); // distance to the nearest kept sample
    size_t next = 0, smallest = 0;
    for (size_t i = 0; i < f->count; i++) {
        away[i] = INFINITY;
        if (fit_size_of(f, &f->item[i]) > fit_size_of(f, &f->item[next]))
            next = i;
        if (fit_size_of(f, &f->item[i]) < fit_size_of(f, &f->item[smallest]))
            smallest = i;
    }
    for (size_t count = 0; count < MIN(f->count, (size_t)POINTS_MOST); count++) {
        if (count == 1 && !kept[smallest])
            next = smallest;
        kept[next] = true;
        away[next] = -1;
        size_t farthest = next;
        for (size_t i = 0; i < f->count; i++) {
            if (!kept[i])
                away[i] = MIN(away[i], fit_distance(f, &f->item[i], &f->item[next]));
            if (away[i] > away[farthest])
                farthest = i;
        }
        next = farthest;
    }
    free(away);
}

static void fit_add_points(struct device *d, const struct fit *f, enum op op) {
    bool *kept = mem_alloc(f->count * sizeof *kept);
    choose_points(f, kept);
    for (size_t i = 0; i < f->count; i++) {
        if (!kept[i])
            continue;
        const struct fit_sample *s = &f->item[i];
        struct curve_point point = {.dtype = s->dtype, .bytes = s->bytes, .seconds = s->seconds};
        if (f->product) {
            point.m = (double)s->m;
            point.n = (double)s->n;
            point.k = (double)s->k;
            point.seconds = MAX(point.seconds, s->flops / d->peak[s->dtype]); // the peak is a measurement, too
            point.bytes = product_bytes(point.m, point.n, point.k, s->dtype);
        } else {
            point.seconds -= d->curve[op][s->dtype].launch;
        }
        if (point.bytes >= 1 && point.seconds > 1e-9)
            VEC_PUSH(&d->points[op], point);
    }
    free(kept);
}

static void drop_points(struct device *d, enum op op, enum dtype dtype) {
    size_t kept = 0;
    for (size_t i = 0; i < d->points[op].count; i++)
        if (d->points[op].item[i].dtype != dtype)
            d->points[op].item[kept++] = d->points[op].item[i];
    d->points[op].count = kept;
}

// An op that was not measured takes the curve of the op that it is like (ops.def), if that was measured; it then counts
// as fitted, too.
static void fit_follow(struct device *d, const struct op_table *table, bool fitted[OP_COUNT][DTYPE_COUNT]) {
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DTYPE_COUNT; t++) {
            enum op like = table->op[op].like;
            if (fitted[op][t] || !fitted[like][t])
                continue;
            d->curve[op][t] = d->curve[like][t];
            drop_points(d, (enum op)op, (enum dtype)t);
            for (size_t i = 0; i < d->points[like].count && efficiency_follows_points(table, (enum op)op); i++)
                if (d->points[like].item[i].dtype == (enum dtype)t)
                    VEC_PUSH(&d->points[op], d->points[like].item[i]);
            fitted[op][t] = true;
        }
}

// Ops and dtypes that were not measured: as another dtype of the op, or as everything that moves bytes.
static void fit_rest(struct device *d, bool fitted[OP_COUNT][DTYPE_COUNT], double bytes, double seconds) {
    struct curve other = {.memory = bytes > 0 ? MAX(1e-4, MIN(100, bytes / seconds / d->bandwidth)) : 0.5};
    for (int t = 0; t < DTYPE_COUNT; t++)
        d->other[t] = other;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DTYPE_COUNT; t++) {
            int like = t;
            for (int u = 0; u < DTYPE_COUNT && !fitted[op][like]; u++)
                like = u;
            if (!fitted[op][t])
                d->curve[op][t] = fitted[op][like] ? d->curve[op][like] : other;
        }
}

void fit_device(struct device *d, const struct op_table *table, const struct fit_samples *samples, bool all) {
    struct fit_samples shapes = fit_reduce(samples, table);
    double bytes = 0, seconds = 0;
    bool fitted[OP_COUNT][DTYPE_COUNT] = {0};
    for (size_t i = 0, next; i < shapes.count; i = next) {
        const struct fit_sample *s = &shapes.item[i];
        for (next = i + 1; next < shapes.count && shapes.item[next].op == s->op && shapes.item[next].dtype == s->dtype;)
            next++;
        struct fit f = {.device = d, .item = s, .count = next - i, .product = is_product(s, &table->op[s->op])};
        f.attention = !f.product && is_attention(s);
        if (f.attention || f.product ? d->peak[s->dtype] <= 0 : s->bytes <= 0)
            continue;
        struct curve *curve = &d->curve[s->op][s->dtype];
        const struct curve before = *curve;
        *curve = curve_of(&f);
        if (!all) { // the host's, which a product's time does not tell
            curve->least = before.least;
            curve->launch += f.product ? before.launch : 0;
        }
        drop_points(d, s->op, s->dtype);
        fitted[s->op][s->dtype] = true;
        if (!f.attention)
            fit_add_points(d, &f, s->op);
        for (size_t k = i; k < next && !f.attention && !f.product; k++) {
            bytes += shapes.item[k].bytes;
            seconds += shapes.item[k].seconds;
        }
    }
    fit_follow(d, table, fitted);
    if (all)
        fit_rest(d, fitted, bytes, seconds);
    VEC_RELEASE(&shapes);
}

// Fits waited = meeting * meetings + jitter * computed, by least squares of the errors relative to `computed`.
void fit_waits(struct device *d, const struct fit_wait *waits, size_t count) {
    double rates = 0, squares = 0, shares = 0, products = 0, n = 0;
    for (size_t i = 0; i < count; i++) {
        if (waits[i].computed <= 0)
            continue;
        double rate = waits[i].meetings / waits[i].computed, share = waits[i].waited / waits[i].computed;
        rates += rate;
        squares += rate * rate;
        shares += share;
        products += rate * share;
        n++;
    }
    double determinant = squares * n - rates * rates;
    bool both = determinant > 1e-9 * squares * n;
    d->meeting = both ? (products * n - rates * shares) / determinant : 0;
    d->jitter = both ? (squares * shares - rates * products) / determinant : 0;
    // Where one of the two would be negative, the other one alone fits best.
    if (d->meeting <= 0 && n > 0)
        d->jitter = shares / n;
    else if (d->jitter < 0)
        d->meeting = products / squares;
    d->meeting = MIN(MAX(d->meeting, 0), 1);
    d->jitter = MIN(MAX(d->jitter, 0), 1);
}
