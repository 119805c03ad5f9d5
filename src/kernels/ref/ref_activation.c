// GELU (Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415, section 2), SwiGLU and GEGLU (Shazeer, "GLU
// Variants Improve Transformer", arXiv 2002.05202, equation 5), softmax, and soft caps (Gemma Team, "Gemma 2", arXiv
// 2408.00118, section 2).
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588, sqrt_half = 0.70710678118654752440;

// The value and the derivative at x.
static double gelu(double x, bool tanh_form, double *derivative) {
    if (tanh_form) {
        double t = math_tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));
        double inner = sqrt_2_over_pi * (1 + 3 * 0.044715 * x * x);
        *derivative = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
        return 0.5 * x * (1 + t);
    }
    double phi = 0.5 * (1 + math_erf(x * sqrt_half));
    double density = 0.5 * sqrt_2_over_pi * math_exp(-0.5 * x * x);
    *derivative = phi + x * density;
    return x * phi;
}

void ref_gelu(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++) {
            double derivative;
            tensor_set(y, at2(y, m, i), gelu(tensor_get(x, at2(x, m, i)), call->attribute[0].i, &derivative));
        }
}

void ref_gelu_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1], *dx = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++) {
            double derivative;
            gelu(tensor_get(x, at2(x, m, i)), call->attribute[0].i, &derivative);
            tensor_set(dx, at2(dx, m, i), tensor_get(dy, at2(dy, m, i)) * derivative);
        }
}

static double sigmoid(double x) {
    return 1 / (1 + math_exp(-x));
}

// log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|))
void ref_log_sigmoid(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++) {
            const double value = tensor_get(x, at2(x, m, i));
            tensor_set(y, at2(y, m, i), (fmin(value, 0) - math_log(1 + math_exp(-fabs(value)))) / call->attribute[0].f);
        }
}

void ref_log_sigmoid_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1], *dx = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++)
            tensor_set(dx, at2(dx, m, i),
                       tensor_get(dy, at2(dy, m, i)) * sigmoid(-tensor_get(x, at2(x, m, i))) / call->attribute[0].f);
}

// x = [gate | up]: y = gate sigmoid(gate) up
void ref_swiglu(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    int64_t f = y->dim[1];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < f; i++) {
            double gate = tensor_get(x, at2(x, m, i)), up = tensor_get(x, at2(x, m, f + i));
            tensor_set(y, at2(y, m, i), gate * sigmoid(gate) * up);
        }
}

void ref_swiglu_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1], *dx = &call->out[0];
    int64_t f = dy->dim[1];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < f; i++) {
            double gate = tensor_get(x, at2(x, m, i)), up = tensor_get(x, at2(x, m, f + i));
            double d = tensor_get(dy, at2(dy, m, i)), s = sigmoid(gate);
            tensor_set(dx, at2(dx, m, i), d * up * (s + gate * s * (1 - s)));
            tensor_set(dx, at2(dx, m, f + i), d * gate * s);
        }
}

// x = [gate | up]: y = gelu(gate) up
void ref_geglu(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    int64_t f = y->dim[1];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < f; i++) {
            double derivative, gate = tensor_get(x, at2(x, m, i)), up = tensor_get(x, at2(x, m, f + i));
            tensor_set(y, at2(y, m, i), gelu(gate, call->attribute[0].i, &derivative) * up);
        }
}

void ref_geglu_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1], *dx = &call->out[0];
    int64_t f = dy->dim[1];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < f; i++) {
            double derivative, gate = tensor_get(x, at2(x, m, i)), up = tensor_get(x, at2(x, m, f + i));
            double d = tensor_get(dy, at2(dy, m, i)), value = gelu(gate, call->attribute[0].i, &derivative);
            tensor_set(dx, at2(dx, m, i), d * up * derivative);
            tensor_set(dx, at2(dx, m, f + i), d * value);
        }
}

void ref_scale(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++)
            tensor_set(y, at2(y, m, i), call->attribute[0].f * tensor_get(x, at2(x, m, i)));
}

void ref_softcap(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    const double cap = call->attribute[0].f;
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++)
            tensor_set(y, at2(y, m, i), cap * math_tanh(tensor_get(x, at2(x, m, i)) / cap));
}

// dx = dy (1 - (y / cap)^2)
void ref_softcap_dx(const struct call *call) {
    const struct tensor *y = &call->in[0], *dy = &call->in[1], *dx = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t i = 0; i < y->dim[1]; i++) {
            const double share = tensor_get(y, at2(y, m, i)) / call->attribute[0].f;
            tensor_set(dx, at2(dx, m, i), tensor_get(dy, at2(dy, m, i)) * (1 - share * share));
        }
}

// y = exp(x - lse) with lse = log(sum(exp(x))), row by row.
void ref_softmax(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0], *lse = &call->out[1];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        double largest = -INFINITY, total = 0;
        for (int64_t c = 0; c < x->dim[1]; c++)
            largest = fmax(largest, tensor_get(x, at2(x, m, c)));
        for (int64_t c = 0; c < x->dim[1]; c++)
            total += math_exp(tensor_get(x, at2(x, m, c)) - largest);
        const double sum = largest + math_log(total);
        for (int64_t c = 0; c < x->dim[1]; c++)
            tensor_set(y, at2(y, m, c), math_exp(tensor_get(x, at2(x, m, c)) - sum));
        tensor_set(lse, at1(lse, m), sum);
    }
}

// dx = y (dy - sum(y dy) + dlse)
void ref_softmax_dx(const struct call *call) {
    const struct tensor *y = &call->in[0], *dy = &call->in[1], *dlse = &call->in[2], *dx = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++) {
        double mean = 0;
        for (int64_t c = 0; c < y->dim[1]; c++)
            mean += tensor_get(y, at2(y, m, c)) * tensor_get(dy, at2(dy, m, c));
        const double same = (tensor_present(dlse) ? tensor_get(dlse, at1(dlse, m)) : 0) - mean;
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(dx, at2(dx, m, c), tensor_get(y, at2(y, m, c)) * (tensor_get(dy, at2(dy, m, c)) + same));
    }
}
