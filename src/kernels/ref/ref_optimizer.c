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

// What the islands do in turn when they meet. A weight of zero makes zero of whatever the island has.
void ref_take(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *value = &call->out[0], *taken = &call->out[1];
    for (int64_t i = 0; i < p->dim[0]; i++) {
        const double x = parameter_get(p, rem, i);
        tensor_set(value, at1(value, i), x);
        if (tensor_present(taken))
            tensor_set(taken, at1(taken, i), x);
    }
}

void ref_weigh(const struct call *call) {
    const struct tensor *value = &call->in[0], *term = &call->out[0], *total = &call->out[1];
    const double weight = tensor_scalar(&call->in[1]);
    for (int64_t i = 0; i < value->dim[0]; i++)
        tensor_set(term, at1(term, i), weight == 0 ? 0 : weight * tensor_get(value, at1(value, i)));
    if (tensor_present(total))
        tensor_set(total, 0, weight);
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
