// Cross-entropy of softmax and its gradient. A row of logits is read from memory once, in chunks that stay in the first
// cache: a running maximum and the sum of exponentials relative to it (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018). The gradient's pass follows at once, while the row is in the second cache.
#include <float.h>
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { CHUNK_ELEMENTS = 1024 };

struct loss {
    bool bf16;
    int64_t vocab, columns; // the columns from vocab on are padding
    struct rows logits, dlogits;
    const int32_t *target;
    float *nll;
    double scale;
};

VEC_INLINE void max_lanes(int64_t i, int count, int slot, vec_f32 *max, const void *x, bool bf16) {
    vec_f32 v = row_load(x, i, count, bf16);
    if (count < LANES) // fill the other lanes with the first element
        for (int k = count; k < LANES; k++)
            v[k] = v[0];
    max[slot] = vec_max(v, max[slot]);
}

// Meanwhile it prefetches the same part of the next chunk: the pass for that one's maximum has no time to wait.
VEC_INLINE void exp_lanes(int64_t i, int count, int slot, vec_f32 *sum, const void *x, float max, bool bf16) {
    __builtin_prefetch(row_part(x, i + CHUNK_ELEMENTS, bf16));
    sum[slot] += vec_first(vec_exp(row_load(x, i, count, bf16) - max), count);
}

VEC_INLINE void grad_lanes(int64_t i, int count, void *dx, const void *x, float max, float scale, bool bf16) {
    row_store(dx, i, count, vec_exp(row_load(x, i, count, bf16) - max) * scale, bf16);
}

VEC_INLINE void set_element(void *row, int64_t i, float x, bool bf16) {
    if (bf16)
        ((uint16_t *)row)[i] = bf16_from_float(x);
    else
        ((float *)row)[i] = x;
}

// The largest logit and the sum of exp(logit - largest). A NaN among the logits makes the sum NaN.
VEC_INLINE double softmax_sum(const void *row, int64_t n, float *largest, bool bf16) {
    float max = -FLT_MAX; // finite, so that chunks of -infinity add zero
    double sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK_ELEMENTS) {
        const void *chunk = row_part(row, i, bf16);
        int64_t length = MIN(CHUNK_ELEMENTS, n - i);
        vec_f32 high[SLOTS];
        for (int k = 0; k < SLOTS; k++)
            high[k] = vec_splat(max);
        ROW_SUM(length, max_lanes, high, chunk, bf16);
        float new_max = vec_max_lane(vec_max(vec_max(high[0], high[1]), vec_max(high[2], high[3])));
        if (new_max > max && i > 0)
            sum *= exp((double)max - new_max);
        max = new_max;
        vec_f32 part[SLOTS] = {0};
        ROW_SUM(length, exp_lanes, part, chunk, max, bf16);
        sum += slots_sum(part);
    }
    *largest = max;
    return sum;
}

// dx = (exp(x - max) / sum - onehot(target)) scale for the first n columns, 0 for the others. target -1: none of these
// columns. dx may be x.
VEC_INLINE void gradient_row(void *dx, const void *x, int64_t n, int64_t columns, int64_t target, float max, double sum,
                             double scale, bool bf16) {
    double p = target < 0 ? 0 : exp((double)float_at(bf16, x, target) - max) / sum; // before dx overwrites it
    ROW_EACH(n, grad_lanes, dx, x, max, (float)(scale / sum), bf16);
    if (target >= 0)
        set_element(dx, target, (float)((p - 1) * scale), bf16);
    memset(row_part(dx, n, bf16), 0, (size_t)(columns - n) * (bf16 ? 2 : 4));
}

VEC_INLINE void loss_row(const struct loss *loss, int64_t r, bool bf16) {
    const void *x = row_at(loss->logits, r);
    void *dx = loss->dlogits.data ? row_at(loss->dlogits, r) : NULL;
    int64_t target = loss->target[r];
    if (target < 0) {
        loss->nll[r] = 0;
        if (dx)
            memset(dx, 0, (size_t)loss->columns * (bf16 ? 2 : 4));
        return;
    }
    float max;
    double sum = softmax_sum(x, loss->vocab, &max, bf16);
    loss->nll[r] = (float)(log(sum) - ((double)float_at(bf16, x, target) - max));
    if (dx)
        gradient_row(dx, x, loss->vocab, loss->columns, target, max, sum, loss->scale, bf16);
}

static void loss_rows(const void *args, int64_t from, int64_t to) {
    const struct loss *loss = args;
    for (int64_t r = from; r < to; r++) {
        if (loss->bf16)
            loss_row(loss, r, true);
        else
            loss_row(loss, r, false);
    }
}

static struct loss loss_of(const struct call *call) {
    const struct tensor *logits = &call->in[0];
    return (struct loss){
        .bf16 = logits->dtype == DTYPE_BF16,
        .vocab = call->attribute[0].i,
        .columns = logits->dim[1],
        .logits = rows_of(logits),
        .target = call->in[1].data,
        .nll = call->out[0].data,
    };
}

static void loss_run(const struct call *call, const struct loss *loss) {
    int64_t rows = call->in[0].dim[0];
    run_split(call, rows, rows * loss->columns, loss_rows, loss);
}

void ISA(cpu_cross_entropy)(const struct call *call) {
    struct loss loss = loss_of(call);
    loss_run(call, &loss);
}

void ISA(cpu_cross_entropy_grad)(const struct call *call) {
    struct loss loss = loss_of(call);
    loss.scale = *(const double *)call->in[2].data;
    loss.dlogits = rows_of(&call->out[1]);
    loss_run(call, &loss);
}

// ---- the same, split by vocabulary: local column v is column first + v of all, padding from `vocab` on
// Ranks exchange between the passes, so that each pass reads the logits again.

struct split {
    bool bf16;
    int64_t first, own, columns; // the columns from `own` on are padding
    struct rows logits, dlogits;
    const int32_t *target;
    const float *max, *sum; // of all ranks
    float *out, *picked;    // one number per row
    double scale;
    float per_cap; // 1 / the cap of the logits, 0 where there is none
};

static struct split split_of(const struct call *call, int first) {
    const struct tensor *logits = &call->in[0];
    struct split split = {
        .bf16 = logits->dtype == DTYPE_BF16,
        .first = *(const int32_t *)call->in[first].data,
        .columns = logits->dim[1],
        .logits = rows_of(logits),
        .out = call->out[0].data,
    };
    split.own = MAX(0, MIN(split.columns, call->attribute[0].i - split.first));
    return split;
}

static void split_run(const struct call *call, const struct split *split,
                      void (*body)(const void *args, int64_t from, int64_t to)) {
    int64_t rows = call->in[0].dim[0];
    run_split(call, rows, rows * split->columns, body, split);
}

// The column of row r's target, -1 where this rank lacks it.
static int64_t own_target(const struct split *split, int64_t r) {
    int64_t column = split->target[r] - split->first;
    return split->target[r] >= 0 && column >= 0 && column < split->own ? column : -1;
}

VEC_INLINE void max_row(const struct split *split, int64_t r, bool bf16) {
    const void *x = row_at(split->logits, r);
    vec_f32 high[SLOTS];
    for (int k = 0; k < SLOTS; k++)
        high[k] = vec_splat(-INFINITY);
    ROW_SUM(split->own, max_lanes, high, x, bf16);
    split->out[r] = vec_max_lane(vec_max(vec_max(high[0], high[1]), vec_max(high[2], high[3])));
}

static void max_rows(const void *args, int64_t from, int64_t to) {
    const struct split *split = args;
    for (int64_t r = from; r < to; r++) {
        if (split->bf16)
            max_row(split, r, true);
        else
            max_row(split, r, false);
    }
}

void ISA(cpu_logits_max)(const struct call *call) {
    struct split split = split_of(call, 1);
    split_run(call, &split, max_rows);
}

VEC_INLINE void sum_row(const struct split *split, int64_t r, bool bf16) {
    const void *x = row_at(split->logits, r);
    double sum = 0;
    for (int64_t i = 0; i < split->own; i += CHUNK_ELEMENTS) {
        const void *chunk = row_part(x, i, bf16);
        int64_t length = MIN(CHUNK_ELEMENTS, split->own - i);
        vec_f32 part[SLOTS] = {0};
        ROW_SUM(length, exp_lanes, part, chunk, split->max[r], bf16);
        sum += slots_sum(part);
    }
    int64_t target = own_target(split, r);
    split->out[r] = (float)sum;
    split->picked[r] = target < 0 ? 0 : float_at(bf16, x, target);
}

static void sum_rows(const void *args, int64_t from, int64_t to) {
    const struct split *split = args;
    for (int64_t r = from; r < to; r++) {
        if (split->bf16)
            sum_row(split, r, true);
        else
            sum_row(split, r, false);
    }
}

void ISA(cpu_logits_sum)(const struct call *call) {
    struct split split = split_of(call, 2);
    split.target = call->in[1].data;
    split.max = call->in[3].data;
    split.picked = call->out[1].data;
    split_run(call, &split, sum_rows);
}

static void split_gradient_rows(const void *args, int64_t from, int64_t to) {
    const struct split *split = args;
    for (int64_t r = from; r < to; r++) {
        void *dx = row_at(split->dlogits, r);
        const void *x = row_at(split->logits, r);
        const int64_t n = split->target[r] < 0 ? 0 : split->own, target = own_target(split, r);
        if (split->bf16)
            gradient_row(dx, x, n, split->columns, target, split->max[r], split->sum[r], split->scale, true);
        else
            gradient_row(dx, x, n, split->columns, target, split->max[r], split->sum[r], split->scale, false);
    }
}

void ISA(cpu_logits_grad)(const struct call *call) {
    struct split split = split_of(call, 2);
    split.target = call->in[1].data;
    split.max = call->in[3].data;
    split.sum = call->in[4].data;
    split.scale = *(const double *)call->in[5].data;
    split.dlogits = rows_of(&call->out[0]);
    split_run(call, &split, split_gradient_rows);
}

// ---- the same with one exchange, after which no rank reads its logits again for the gradient of the head's input

enum { OWN_MAX, OWN_SUM, OWN_PICKED };

VEC_INLINE void exp_store_lanes(int64_t i, int count, int slot, vec_f32 *sum, void *e, const void *x, float max,
                                float per_cap, bool bf16) {
    const vec_f32 logits = row_load(x, i, count, bf16), value = vec_exp(logits - max), part = logits * per_cap;
    row_store(e, i, count, per_cap > 0 ? value * (1.0f - part * part) : value, bf16);
    sum[slot] += vec_first(value, count);
}

// The maximum ignores NaN; where all other logits are -infinity the sum would, too, so that NaN has to be looked for.
static bool has_nan(const void *x, int64_t n, bool bf16) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(float_at(bf16, x, i)))
            return true;
    return false;
}

VEC_INLINE void exp_row(const struct split *split, int64_t rows, int64_t r, bool bf16) {
    const void *x = row_at(split->logits, r);
    void *e = row_at(split->dlogits, r);
    max_row(split, r, bf16);
    const float max = split->out[OWN_MAX * rows + r];
    const int64_t n = max == -INFINITY ? 0 : split->own, target = own_target(split, r);
    double sum = n < split->own && has_nan(x, split->own, bf16) ? NAN : 0;
    for (int64_t i = 0; i < n; i += CHUNK_ELEMENTS) {
        vec_f32 part[SLOTS] = {0};
        ROW_SUM(MIN(CHUNK_ELEMENTS, n - i), exp_store_lanes, part, row_part(e, i, bf16), row_part(x, i, bf16), max,
                split->per_cap, bf16);
        sum += slots_sum(part);
    }
    memset(row_part(e, n, bf16), 0, (size_t)(split->columns - n) * (bf16 ? 2 : 4));
    split->out[OWN_SUM * rows + r] = (float)sum;
    split->out[OWN_PICKED * rows + r] = target < 0 ? 0 : float_at(bf16, x, target);
}

struct exp_rows {
    struct split split;
    int64_t rows;
};

static void exp_rows(const void *args, int64_t from, int64_t to) {
    const struct exp_rows *e = args;
    for (int64_t r = from; r < to; r++) {
        if (e->split.bf16)
            exp_row(&e->split, e->rows, r, true);
        else
            exp_row(&e->split, e->rows, r, false);
    }
}

void ISA(cpu_logits_exp)(const struct call *call) {
    struct exp_rows e = {split_of(call, 2), call->in[0].dim[0]};
    e.split.target = call->in[1].data;
    e.split.dlogits = rows_of(&call->out[0]);
    e.split.out = call->out[1].data;
    e.split.per_cap = call->attribute[1].f > 0 ? (float)(1 / call->attribute[1].f) : 0;
    run_split(call, e.rows, e.rows * e.split.columns, exp_rows, &e);
}

struct late {
    bool bf16;
    int64_t rows, columns;
    struct rows a, b, dx;
    const float *own, *max, *sum;
    const int32_t *target;
    double scale, cap;
};

VEC_INLINE void late_lanes(int64_t i, int count, void *dx, const void *a, const void *b, float factor, float scale,
                           bool bf16) {
    row_store(dx, i, count, row_load(a, i, count, bf16) * factor - row_load(b, i, count, bf16) * scale, bf16);
}

VEC_INLINE void late_row(const struct late *l, int64_t r, bool bf16) {
    void *dx = row_at(l->dx, r);
    const void *a = row_at(l->a, r), *b = row_at(l->b, r);
    if (l->target[r] < 0) {
        memset(dx, 0, (size_t)l->columns * (bf16 ? 2 : 4));
        return;
    }
    double factor = 0;
    if (l->own[OWN_SUM * l->rows + r] != 0)
        factor = l->scale * exp((double)l->own[OWN_MAX * l->rows + r] - l->max[r]) / l->sum[r];
    const double part = l->cap > 0 ? l->own[OWN_PICKED * l->rows + r] / l->cap : 0;
    ROW_EACH(l->columns, late_lanes, dx, a, b, (float)factor, (float)(l->scale * (1 - part * part)), bf16);
}

static void late_rows(const void *args, int64_t from, int64_t to) {
    const struct late *l = args;
    for (int64_t r = from; r < to; r++) {
        if (l->bf16)
            late_row(l, r, true);
        else
            late_row(l, r, false);
    }
}

void ISA(cpu_logits_dx)(const struct call *call) {
    const struct tensor *dx = &call->out[0];
    struct late l = {.bf16 = dx->dtype == DTYPE_BF16,
                     .rows = dx->dim[0],
                     .columns = dx->dim[1],
                     .a = rows_of(&call->in[0]),
                     .b = rows_of(&call->in[1]),
                     .dx = rows_of(dx),
                     .own = call->in[2].data,
                     .max = call->in[3].data,
                     .sum = call->in[4].data,
                     .target = call->in[5].data,
                     .scale = *(const double *)call->in[6].data,
                     .cap = call->attribute[0].f};
    run_split(call, l.rows, l.rows * l.columns, late_rows, &l);
}
