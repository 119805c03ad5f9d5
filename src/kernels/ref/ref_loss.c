// Cross entropy, and the scalars that lead from the targets to the factor of the gradients.
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

#include <math.h>

// log of the sum of exp over the first `vocab` logits of row m; padding columns come after them.
static double row_lse(const struct tensor *logits, int64_t m, int64_t vocab) {
    double largest = -INFINITY, total = 0;
    for (int64_t v = 0; v < vocab; v++) {
        double s = tensor_get(logits, at2(logits, m, v));
        largest = s > largest ? s : largest;
    }
    for (int64_t v = 0; v < vocab; v++)
        total += math_exp(tensor_get(logits, at2(logits, m, v)) - largest);
    return largest + math_log(total);
}

// A negative target is masked: no loss.
void ref_cross_entropy(const struct call *call) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1], *nll = &call->out[0];
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        int32_t target = tensor_int(targets, at1(targets, m));
        double loss = 0;
        if (target >= 0)
            loss = row_lse(logits, m, call->attribute[0].i) - tensor_get(logits, at2(logits, m, target));
        tensor_set(nll, at1(nll, m), loss);
    }
}

// (softmax(logits) - onehot(target)) scale of one logit, where row m has a target.
static double logit_gradient(const struct call *call, int64_t m, int64_t v, double lse) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1];
    const int32_t target = tensor_int(targets, at1(targets, m));
    if (target < 0 || v >= call->attribute[0].i)
        return 0;
    return (math_exp(tensor_get(logits, at2(logits, m, v)) - lse) - (v == target)) * tensor_scalar(&call->in[2]);
}

// dlogits may overwrite the logits.
void ref_cross_entropy_grad(const struct call *call) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1];
    const struct tensor *nll = &call->out[0], *dlogits = &call->out[1];
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        int32_t target = tensor_int(targets, at1(targets, m));
        double lse = 0, loss = 0;
        if (target >= 0) {
            lse = row_lse(logits, m, call->attribute[0].i);
            loss = lse - tensor_get(logits, at2(logits, m, target));
        }
        tensor_set(nll, at1(nll, m), loss);
        for (int64_t v = 0; v < logits->dim[1]; v++)
            tensor_set(dlogits, at2(dlogits, m, v), logit_gradient(call, m, v, lse));
    }
}

// The slope of cap tanh(x / cap) where that is y; no cap: 0.
static double cap_slope(double y, double cap) {
    return cap > 0 ? 1 - y / cap * (y / cap) : 1;
}

// The same, and its product with the weights.
void ref_cross_entropy_head(const struct call *call) {
    const struct tensor *logits = &call->in[0], *w = &call->in[3], *dx = &call->out[1];
    struct call grad = {.op = OP_CROSS_ENTROPY_GRAD, .inputs = 3, .outputs = 2};
    for (int64_t m = 0; m < dx->dim[0]; m++) {
        const double lse = row_lse(logits, m, call->attribute[0].i);
        for (int64_t c = 0; c < dx->dim[1]; c++) {
            double sum = 0;
            for (int64_t v = 0; v < w->dim[0]; v++)
                sum += logit_gradient(call, m, v, lse) *
                       cap_slope(tensor_get(logits, at2(logits, m, v)), call->attribute[1].f) *
                       tensor_get(w, at2(w, v, c));
            tensor_set(dx, at2(dx, m, c), sum);
        }
    }
    memcpy(grad.in, call->in, 3 * sizeof grad.in[0]);
    memcpy(grad.attribute, call->attribute, sizeof grad.attribute);
    grad.out[0] = call->out[0];
    grad.out[1] = call->out[2];
    ref_cross_entropy_grad(&grad);
}

// ---- the same, split by vocabulary: local column v is column first + v of all, padding from `vocab` on

static int64_t own_columns(const struct call *call, const struct tensor *first) {
    int64_t left = call->attribute[0].i - tensor_int(first, 0), columns = call->in[0].dim[1];
    return left < 0 ? 0 : left < columns ? left : columns;
}

void ref_logits_max(const struct call *call) {
    const struct tensor *logits = &call->in[0], *max = &call->out[0];
    int64_t columns = own_columns(call, &call->in[1]);
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        double largest = -INFINITY;
        for (int64_t v = 0; v < columns; v++) {
            double s = tensor_get(logits, at2(logits, m, v));
            largest = s > largest ? s : largest;
        }
        tensor_set(max, at1(max, m), largest);
    }
}

void ref_logits_sum(const struct call *call) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1], *first = &call->in[2], *max = &call->in[3];
    const struct tensor *sum = &call->out[0], *picked = &call->out[1];
    int64_t columns = own_columns(call, first);
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        double largest = tensor_get(max, at1(max, m)), total = 0;
        for (int64_t v = 0; v < columns; v++)
            total += math_exp(tensor_get(logits, at2(logits, m, v)) - largest);
        int64_t target = (int64_t)tensor_int(targets, at1(targets, m)) - tensor_int(first, 0);
        tensor_set(sum, at1(sum, m), total);
        tensor_set(picked, at1(picked, m),
                   target >= 0 && target < columns ? tensor_get(logits, at2(logits, m, target)) : 0);
    }
}

void ref_logits_nll(const struct call *call) {
    const struct tensor *targets = &call->in[0], *max = &call->in[1], *sum = &call->in[2], *picked = &call->in[3];
    const struct tensor *nll = &call->out[0];
    for (int64_t m = 0; m < nll->dim[0]; m++) {
        double lse = tensor_get(max, at1(max, m)) + math_log(tensor_get(sum, at1(sum, m)));
        tensor_set(nll, at1(nll, m),
                   tensor_int(targets, at1(targets, m)) >= 0 ? lse - tensor_get(picked, at1(picked, m)) : 0);
    }
}

void ref_logits_grad(const struct call *call) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1], *first = &call->in[2], *max = &call->in[3];
    const struct tensor *sum = &call->in[4], *dlogits = &call->out[0];
    double scale = tensor_scalar(&call->in[5]);
    int64_t columns = own_columns(call, first);
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        int64_t target = tensor_int(targets, at1(targets, m)), own = target - tensor_int(first, 0);
        double largest = tensor_get(max, at1(max, m)), total = tensor_get(sum, at1(sum, m));
        for (int64_t v = 0; v < logits->dim[1]; v++) {
            double g = 0;
            if (target >= 0 && v < columns)
                g = (math_exp(tensor_get(logits, at2(logits, m, v)) - largest) / total - (v == own)) * scale;
            tensor_set(dlogits, at2(dlogits, m, v), g);
        }
    }
}

// ---- the same with one exchange

enum { OWN_MAX, OWN_SUM, OWN_PICKED };

static double own_of(const struct tensor *own, int64_t rank, int what, int64_t m) {
    return tensor_get(own, at3(own, rank, what, m));
}

// e = exp(logits - max) with the row's own maximum, 0 for padding and where all is -infinity; times the slope of a cap,
// which the sum lacks.
void ref_logits_exp(const struct call *call) {
    const struct tensor *logits = &call->in[0], *targets = &call->in[1], *first = &call->in[2];
    const struct tensor *e = &call->out[0], *own = &call->out[1];
    int64_t columns = own_columns(call, first);
    for (int64_t m = 0; m < logits->dim[0]; m++) {
        int64_t target = (int64_t)tensor_int(targets, at1(targets, m)) - tensor_int(first, 0);
        double largest = -INFINITY, sum = 0;
        for (int64_t v = 0; v < columns; v++) {
            double s = tensor_get(logits, at2(logits, m, v));
            largest = s <= largest || largest != largest ? largest : s; // a NaN stays
        }
        for (int64_t v = 0; v < logits->dim[1]; v++) {
            bool counts = v < columns && largest != -INFINITY;
            const double s = tensor_get(logits, at2(logits, m, v)), value = counts ? math_exp(s - largest) : 0;
            tensor_set(e, at2(e, m, v), counts ? value * cap_slope(s, call->attribute[1].f) : 0);
            sum += value;
        }
        tensor_set(own, at3(own, 0, OWN_MAX, m), largest);
        tensor_set(own, at3(own, 0, OWN_SUM, m), sum);
        tensor_set(own, at3(own, 0, OWN_PICKED, m),
                   target >= 0 && target < columns ? tensor_get(logits, at2(logits, m, target)) : 0);
    }
}

void ref_logits_merge(const struct call *call) {
    const struct tensor *own = &call->in[0], *targets = &call->in[1];
    const struct tensor *max = &call->out[0], *sum = &call->out[1], *nll = &call->out[2];
    for (int64_t m = 0; m < max->dim[0]; m++) {
        double largest = -INFINITY, total = 0, picked = 0;
        for (int64_t r = 0; r < own->dim[0]; r++)
            largest = fmax(largest, own_of(own, r, OWN_MAX, m));
        for (int64_t r = 0; r < own->dim[0]; r++) {
            if (own_of(own, r, OWN_SUM, m) != 0) // a rank's maximum may be that of nothing
                total += own_of(own, r, OWN_SUM, m) * math_exp(own_of(own, r, OWN_MAX, m) - largest);
            picked += own_of(own, r, OWN_PICKED, m);
        }
        tensor_set(max, at1(max, m), largest);
        tensor_set(sum, at1(sum, m), total);
        if (tensor_present(nll))
            tensor_set(nll, at1(nll, m),
                       tensor_int(targets, at1(targets, m)) >= 0 ? largest + math_log(total) - picked : 0);
    }
}

// dx = scale (a exp(own max - max) / sum - b), b times the slope of a cap
void ref_logits_dx(const struct call *call) {
    const struct tensor *a = &call->in[0], *b = &call->in[1], *own = &call->in[2], *max = &call->in[3];
    const struct tensor *sum = &call->in[4], *targets = &call->in[5], *dx = &call->out[0];
    double scale = tensor_scalar(&call->in[6]);
    for (int64_t m = 0; m < dx->dim[0]; m++) {
        bool counts = tensor_int(targets, at1(targets, m)) >= 0;
        double factor =
            own_of(own, 0, OWN_SUM, m) == 0
                ? 0
                : math_exp(own_of(own, 0, OWN_MAX, m) - tensor_get(max, at1(max, m))) / tensor_get(sum, at1(sum, m));
        const double slope = cap_slope(own_of(own, 0, OWN_PICKED, m), call->attribute[0].f);
        for (int64_t c = 0; c < dx->dim[1]; c++) {
            double value = tensor_get(a, at2(a, m, c)) * factor - tensor_get(b, at2(b, m, c)) * slope;
            tensor_set(dx, at2(dx, m, c), counts ? scale * value : 0);
        }
    }
}

// ---- scalars

void ref_targets_count(const struct call *call) {
    const struct tensor *targets = &call->in[0];
    int64_t count = 0;
    for (int64_t m = 0; m < targets->dim[0]; m++)
        for (int64_t t = 0; t < targets->dim[1]; t++)
            count += tensor_int(targets, at2(targets, m, t)) >= 0;
    tensor_set(&call->out[0], 0, count);
}

// 0 where there is no target at all.
void ref_reciprocal(const struct call *call) {
    double count = tensor_scalar(&call->in[0]);
    tensor_set(&call->out[0], 0, count > 0 ? call->attribute[0].f / count : 0);
}

void ref_loss_sum(const struct call *call) {
    const struct tensor *nll = &call->in[0];
    double sum = 0;
    for (int64_t m = 0; m < nll->dim[0]; m++)
        sum += tensor_get(nll, at1(nll, m));
    tensor_put(&call->out[0], 0, tensor_scalar(&call->in[1]) * sum, call->accumulate);
}

void ref_square_sum(const struct call *call) {
    const struct tensor *g = &call->in[0];
    double sum = 0;
    for (int64_t i = 0; i < g->dim[0]; i++)
        sum += tensor_get(g, at1(g, i)) * tensor_get(g, at1(g, i));
    tensor_put(&call->out[0], 0, sum, call->accumulate);
}

void ref_norm_sum(const struct call *call) {
    double sum = 0;
    for (int i = 0; i < call->inputs; i++)
        sum += call->in[i].data ? tensor_scalar(&call->in[i]) : 0;
    tensor_set(&call->out[0], 0, sum);
}

// factor = min(1, max_norm / (norm + 1e-6)), 1 where there is no maximum; finite: the step may be taken
void ref_clip(const struct call *call) {
    double sum = tensor_scalar(&call->in[0]), loss = tensor_scalar(&call->in[1]), max_norm = call->attribute[0].f;
    double norm = sqrt(sum), ratio = max_norm / (norm + 1e-6);
    tensor_set(&call->out[0], 0, norm);
    tensor_set(&call->out[1], 0, max_norm > 0 && ratio < 1 ? ratio : 1);
    tensor_set(&call->out[2], 0, isfinite(sum) && isfinite(loss));
}

void ref_increment(const struct call *call) {
    tensor_set(&call->out[0], 0, tensor_scalar(&call->in[0]) + 1);
}
