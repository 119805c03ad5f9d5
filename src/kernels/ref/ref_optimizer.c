// AdamW (Loshchilov, Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101, algorithm 2), Lion (Chen et
// al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, program 1) and SGD with momentum, AdamW and
// SGD in PyTorch's forms. Gradients are multiplied by the clipping factor first; elements before `decayed` decay. A
// parameter in bf16 with a remainder is the exact f32 master weight (bf16.h). Outputs may overwrite their inputs.
#include "base/math.h"
#include "kernels/ref/master.h"
#include "kernels/ref/ref.h"

#include <math.h>

void ref_adamw(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *g = &call->in[2], *m = &call->in[3];
    const struct tensor *v = &call->in[4], *p1 = &call->out[0], *rem1 = &call->out[1], *m1 = &call->out[2];
    const struct tensor *v1 = &call->out[3];
    double lr = tensor_scalar(&call->in[5]), factor = tensor_scalar(&call->in[6]), t = tensor_scalar(&call->in[7]);
    double decayed = tensor_scalar(&call->in[8]);
    double beta1 = call->attribute[0].f, beta2 = call->attribute[1].f, eps = call->attribute[2].f;
    double weight_decay = call->attribute[3].f;
    double correction1 = 1 - math_pow(beta1, t), correction2 = 1 - math_pow(beta2, t);
    for (int64_t i = 0; i < p->dim[0]; i++) {
        double gradient = tensor_get(g, at1(g, i)) * factor;
        double x = parameter_get(p, rem, i);
        double mean = beta1 * tensor_get(m, at1(m, i)) + (1 - beta1) * gradient;
        double square = beta2 * tensor_get(v, at1(v, i)) + (1 - beta2) * gradient * gradient;
        if (i < decayed)
            x -= lr * weight_decay * x;
        x -= lr * (mean / correction1) / (sqrt(square) / sqrt(correction2) + eps);
        parameter_set(p1, rem1, i, x);
        tensor_set(m1, at1(m1, i), mean);
        tensor_set(v1, at1(v1, i), square);
    }
}

void ref_lion(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *g = &call->in[2], *m = &call->in[3];
    const struct tensor *p1 = &call->out[0], *rem1 = &call->out[1], *m1 = &call->out[2];
    double lr = tensor_scalar(&call->in[4]), factor = tensor_scalar(&call->in[5]),
           decayed = tensor_scalar(&call->in[6]);
    double beta1 = call->attribute[0].f, beta2 = call->attribute[1].f, weight_decay = call->attribute[2].f;
    for (int64_t i = 0; i < p->dim[0]; i++) {
        double gradient = tensor_get(g, at1(g, i)) * factor, momentum = tensor_get(m, at1(m, i));
        double x = parameter_get(p, rem, i);
        double direction = beta1 * momentum + (1 - beta1) * gradient;
        double update = (direction > 0) - (direction < 0);
        if (i < decayed)
            update += weight_decay * x;
        parameter_set(p1, rem1, i, x - lr * update);
        tensor_set(m1, at1(m1, i), beta2 * momentum + (1 - beta2) * gradient);
    }
}

void ref_sgd(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *g = &call->in[2], *m = &call->in[3];
    const struct tensor *p1 = &call->out[0], *rem1 = &call->out[1], *m1 = &call->out[2];
    double lr = tensor_scalar(&call->in[4]), factor = tensor_scalar(&call->in[5]),
           decayed = tensor_scalar(&call->in[6]);
    double momentum = call->attribute[0].f, weight_decay = call->attribute[1].f;
    for (int64_t i = 0; i < p->dim[0]; i++) {
        double x = parameter_get(p, rem, i);
        double gradient = tensor_get(g, at1(g, i)) * factor;
        if (i < decayed)
            gradient += weight_decay * x;
        double velocity = momentum * tensor_get(m, at1(m, i)) + gradient;
        parameter_set(p1, rem1, i, x - lr * velocity);
        tensor_set(m1, at1(m1, i), velocity);
    }
}

// Chezhegov et al. 2024, "Local Methods with Adaptivity via Scaling", arXiv 2406.00846, with weight decay as AdamW's.
void ref_scaled(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *g = &call->in[2], *squares = &call->in[3];
    const struct tensor *divisor = &call->in[4], *squares1 = &call->out[2];
    const double lr = tensor_scalar(&call->in[5]), factor = tensor_scalar(&call->in[6]),
                 decayed = tensor_scalar(&call->in[7]);
    const double eps = call->attribute[0].f, weight_decay = call->attribute[1].f;
    for (int64_t i = 0; i < p->dim[0]; i++) {
        const double gradient = tensor_get(g, at1(g, i)) * factor, x = parameter_get(p, rem, i);
        const double decay = i < decayed ? lr * weight_decay * x : 0;
        parameter_set(&call->out[0], &call->out[1], i,
                      x - decay - lr * gradient / fmax(tensor_get(divisor, at1(divisor, i)), eps));
        tensor_set(squares1, at1(squares1, i), tensor_get(squares, at1(squares, i)) + gradient * gradient);
    }
}

// What the islands do in turn when they meet. A weight of zero makes zero of whatever the island has.
void ref_take(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *anchor = &call->in[2], *before = &call->in[3],
                        *taken = &call->out[0];
    for (int64_t i = 0; i < p->dim[0]; i++) {
        const double x = parameter_get(p, rem, i),
                     known = tensor_present(before) ? tensor_get(before, at1(before, i)) : 0;
        tensor_set(taken, at1(taken, i), tensor_present(anchor) ? tensor_get(anchor, at1(anchor, i)) - known - x : x);
    }
}

void ref_weigh(const struct call *call) {
    const struct tensor *taken = &call->in[0], *term = &call->out[0], *total = &call->out[1];
    const double weight = tensor_scalar(&call->in[1]);
    for (int64_t i = 0; i < taken->dim[0]; i++)
        tensor_set(term, at1(term, i), weight == 0 ? 0 : weight * tensor_get(taken, at1(taken, i)));
    if (tensor_present(total))
        tensor_set(total, 0, weight);
}

// DiLoCo's (Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models", algorithm 1):
// SGD on the mean of how far the islands have come, with Nesterov's momentum. CO2's (Sun et al. 2024, "CO2: Efficient
// Distributed Training with Full Communication-Computation Overlap") divides the mean and clips the momentum. NoLoCo's
// (Kolehmainen et al. 2025, "NoLoCo: No-all-reduce Low Communication Training Method for Large Models") pulls anchors,
// which are the islands' own, to one another.
void ref_outer_sgd(const struct call *call) {
    const struct tensor *anchor = &call->in[0], *value = &call->in[1], *velocity = &call->in[3], *excess = &call->in[4];
    const struct tensor *other = &call->in[5], *moved = &call->out[2];
    const double total = tensor_scalar(&call->in[2]), lr = call->attribute[0].f, momentum = call->attribute[1].f;
    const bool nesterov = call->attribute[2].i;
    const double clip = call->attribute[3].f > 0 ? call->attribute[3].f : INFINITY;
    const double divisor = total * (tensor_present(excess) ? 1 + tensor_scalar(excess) : 1),
                 pull = call->attribute[4].f * total / 2;
    double squares = 0;
    for (int64_t i = 0; i < anchor->dim[0]; i++) {
        const double x = tensor_get(anchor, at1(anchor, i)),
                     was = tensor_present(velocity) ? tensor_get(velocity, at1(velocity, i)) : 0,
                     pulled = tensor_present(other) ? pull * (x - tensor_get(other, at1(other, i))) : 0,
                     mean = total == 0 ? 0 : (tensor_get(value, at1(value, i)) + pulled) / divisor,
                     sum = momentum * was + mean,
                     is = sum > clip    ? clip
                          : sum < -clip ? -clip
                                        : sum;
        const double step = total == 0 ? 0 : lr * (nesterov ? mean + momentum * is : is);
        tensor_set(&call->out[0], at1(&call->out[0], i), x - step);
        if (tensor_present(&call->out[1]))
            tensor_set(&call->out[1], at1(&call->out[1], i), total == 0 ? was : is);
        squares += step * step;
    }
    if (tensor_present(moved))
        tensor_put(moved, 0, squares, call->accumulate);
}

// The ratio of CO2's staleness gap, less 1: of the last two distances that anchors have moved, from their squares.
void ref_staleness(const struct call *call) {
    const double last = tensor_scalar(&call->in[5]);
    double moved = 0;
    for (int k = 0; k < 5; k++)
        moved += tensor_present(&call->in[k]) ? tensor_scalar(&call->in[k]) : 0;
    tensor_set(&call->out[0], 0, moved > last && last > 0 ? math_pow(moved / last, call->attribute[0].f / 2) - 1 : 0);
    tensor_set(&call->out[1], 0, moved);
}

void ref_settle(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *value = &call->in[2], *taken = &call->in[4];
    const double total = tensor_scalar(&call->in[3]);
    for (int64_t i = 0; i < p->dim[0]; i++) {
        const double x = parameter_get(p, rem, i), mean = tensor_get(value, at1(value, i)) / total;
        const double learnt = tensor_present(taken) ? x - tensor_get(taken, at1(taken, i)) : 0;
        parameter_set(&call->out[0], &call->out[1], i, total == 0 ? x : mean + learnt);
    }
}

void ref_keep(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *kept = &call->out[0];
    for (int64_t i = 0; i < p->dim[0]; i++)
        tensor_set(kept, at1(kept, i), parameter_get(p, rem, i));
}

void ref_restore(const struct call *call) {
    const struct tensor *kept = &call->in[2];
    for (int64_t i = 0; i < kept->dim[0]; i++)
        parameter_set(&call->out[0], &call->out[1], i, tensor_get(kept, at1(kept, i)));
}

void ref_adopt(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *anchor = &call->in[2], *taken = &call->in[3];
    const double mix = call->attribute[0].f;
    for (int64_t i = 0; i < p->dim[0]; i++) {
        const double x = parameter_get(p, rem, i), known = tensor_present(taken) ? tensor_get(taken, at1(taken, i)) : 0,
                     y = tensor_get(anchor, at1(anchor, i)) - known;
        parameter_set(&call->out[0], &call->out[1], i, mix == 0 ? y : mix * x + (1 - mix) * y);
    }
}

void ref_weigh_squares(const struct call *call) {
    const struct tensor *squares = &call->in[0], *t = &call->in[2], *since = &call->in[3];
    const struct tensor *value = &call->out[0], *total = &call->out[1], *squares1 = &call->out[2];
    const double weight = tensor_scalar(&call->in[1]), done = tensor_present(t) ? tensor_scalar(t) : 0,
                 before = tensor_present(since) ? tensor_scalar(since) : 0;
    for (int64_t i = 0; i < squares->dim[0]; i++) {
        tensor_set(value, at1(value, i), weight == 0 ? 0 : weight * tensor_get(squares, at1(squares, i)));
        tensor_set(squares1, at1(squares1, i), 0);
    }
    if (tensor_present(total))
        tensor_set(total, 0, weight * (done - before));
}

// With Adam's rule: a mean of all squares, of which those of the last round weigh 1 - beta2, without its bias.
void ref_rescale(const struct call *call) {
    const struct tensor *divisor = &call->in[0], *squares = &call->in[1], *divisor1 = &call->out[0];
    const double total = tensor_scalar(&call->in[2]), beta = call->attribute[0].f,
                 power = math_pow(beta, tensor_scalar(&call->in[3]) + 1), before = (beta - power) / (1 - power);
    for (int64_t i = 0; i < divisor->dim[0]; i++) {
        const double d = tensor_get(divisor, at1(divisor, i)), square = tensor_get(squares, at1(squares, i)) / total;
        tensor_set(divisor1, at1(divisor1, i), total == 0 ? d : sqrt(before * (d * d) + (1 - before) * square));
    }
}
