// Layer norm (Ba, Kiros, Hinton, "Layer Normalization", arXiv 1607.06450, section 3), RMS norm (Zhang, Sennrich, "Root
// Mean Square Layer Normalization", arXiv 1910.07467, equation 4), and the RMS norm of each query and key head. Their
// backward ops read the statistics that the forward op stored.
#include "base/math.h"
#include "kernels/heads.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

#include <math.h>

// ---- one row of n elements, which starts at x_at, dy_at, dx_at, ...; RMS norm is layer norm with mean 0. What a row
// is scaled by is `w`, to which `plus` is added (Gemma has weights around zero, and adds one).

static double row_mean(const struct tensor *x, int64_t x_at, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += tensor_get(x, x_at + i);
    return sum / n;
}

static double row_rstd(const struct tensor *x, int64_t x_at, int64_t n, double mean, double eps) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double centred = tensor_get(x, x_at + i) - mean;
        sum += centred * centred;
    }
    return 1 / sqrt(sum / n + eps);
}

static void row_normalise(const struct tensor *x, int64_t x_at, int64_t n, double mean, double rstd,
                          const struct tensor *w, double plus, const struct tensor *b, const struct tensor *y,
                          int64_t y_at) {
    for (int64_t i = 0; i < n; i++) {
        double scaled = (tensor_get(x, x_at + i) - mean) * rstd * (tensor_get(w, at1(w, i)) + plus);
        tensor_set(y, y_at + i, b && tensor_present(b) ? scaled + tensor_get(b, at1(b, i)) : scaled);
    }
}

// With h = (x - mean) rstd and d = dy (w + plus): dx = rstd (d - h mean(d h) [- mean(d) where the mean was
// subtracted]).
static void row_dx(const struct tensor *x, int64_t x_at, int64_t n, double mean, double rstd, bool centred,
                   const struct tensor *w, double plus, const struct tensor *dy, int64_t dy_at,
                   const struct tensor *res, int64_t res_at, const struct tensor *dx, int64_t dx_at) {
    double sum_d = 0, sum_dh = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = tensor_get(dy, dy_at + i) * (tensor_get(w, at1(w, i)) + plus);
        sum_d += d;
        sum_dh += d * ((tensor_get(x, x_at + i) - mean) * rstd);
    }
    double mean_d = centred ? sum_d / n : 0, mean_dh = sum_dh / n;
    for (int64_t i = 0; i < n; i++) {
        double d = tensor_get(dy, dy_at + i) * (tensor_get(w, at1(w, i)) + plus);
        double h = (tensor_get(x, x_at + i) - mean) * rstd;
        double g = rstd * (d - mean_d - h * mean_dh);
        tensor_set(dx, dx_at + i, res && tensor_present(res) ? tensor_get(res, res_at + i) + g : g);
    }
}

// ---- whole tensors

// dw[i] = sum over rows of dy (x - mean) rstd; db[i] = sum over rows of dy. `mean` and `db` may be NULL.
static void norm_dw(const struct tensor *x, const struct tensor *mean, const struct tensor *rstd,
                    const struct tensor *dy, const struct tensor *dw, const struct tensor *db, bool accumulate) {
    for (int64_t i = 0; i < dw->dim[0]; i++) {
        double sum_w = 0, sum_b = 0;
        for (int64_t m = 0; m < x->dim[0]; m++) {
            double centre = mean ? tensor_get(mean, at1(mean, m)) : 0;
            double h = (tensor_get(x, at2(x, m, i)) - centre) * tensor_get(rstd, at1(rstd, m));
            sum_w += tensor_get(dy, at2(dy, m, i)) * h;
            sum_b += tensor_get(dy, at2(dy, m, i));
        }
        tensor_put(dw, at1(dw, i), sum_w, accumulate);
        if (db && tensor_present(db))
            tensor_put(db, at1(db, i), sum_b, accumulate);
    }
}

static void norm_dx(const struct tensor *x, const struct tensor *w, double plus, const struct tensor *mean,
                    const struct tensor *rstd, const struct tensor *dy, const struct tensor *res,
                    const struct tensor *dx) {
    for (int64_t m = 0; m < x->dim[0]; m++)
        row_dx(x, at1(x, m), x->dim[1], mean ? tensor_get(mean, at1(mean, m)) : 0, tensor_get(rstd, at1(rstd, m)),
               mean != NULL, w, plus, dy, at1(dy, m), res, at1(res, m), dx, at1(dx, m));
}

void ref_layernorm(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[1], *b = &call->in[2];
    const struct tensor *y = &call->out[0], *mean = &call->out[1], *rstd = &call->out[2];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        double mu = row_mean(x, at1(x, m), x->dim[1]);
        double r = row_rstd(x, at1(x, m), x->dim[1], mu, call->attribute[0].f);
        row_normalise(x, at1(x, m), x->dim[1], mu, r, w, 0, b, y, at1(y, m));
        tensor_set(mean, at1(mean, m), mu);
        tensor_set(rstd, at1(rstd, m), r);
    }
}

void ref_layernorm_dx(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dx(&in[0], &in[1], 0, &in[2], &in[3], &in[4], &in[5], &call->out[0]);
}

void ref_layernorm_dw(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dw(&in[0], &in[1], &in[2], &in[3], &call->out[0], &call->out[1], call->accumulate);
}

// Accumulation concerns the weights alone. They come first: dx may overwrite `res`, but nothing that they read.
void ref_layernorm_bwd(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dw(&in[0], &in[2], &in[3], &in[4], &call->out[1], &call->out[2], call->accumulate);
    norm_dx(&in[0], &in[1], 0, &in[2], &in[3], &in[4], &in[5], &call->out[0]);
}

void ref_layernorm_heads(const struct call *call) {
    for_heads(call, ref_layernorm);
}

void ref_layernorm_heads_dx(const struct call *call) {
    for_heads(call, ref_layernorm_dx);
}

void ref_layernorm_heads_dw(const struct call *call) {
    for_heads(call, ref_layernorm_dw);
}

void ref_rmsnorm(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0], *rstd = &call->out[1];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        double r = row_rstd(x, at1(x, m), x->dim[1], 0, call->attribute[0].f);
        row_normalise(x, at1(x, m), x->dim[1], 0, r, w, call->attribute[1].f, NULL, y, at1(y, m));
        tensor_set(rstd, at1(rstd, m), r);
    }
}

void ref_rmsnorm_dx(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dx(&in[0], &in[1], call->attribute[0].f, NULL, &in[2], &in[3], &in[4], &call->out[0]);
}

void ref_rmsnorm_dw(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dw(&in[0], NULL, &in[1], &in[2], &call->out[0], NULL, call->accumulate);
}

void ref_rmsnorm_bwd(const struct call *call) {
    const struct tensor *in = call->in;
    norm_dw(&in[0], NULL, &in[2], &in[3], &call->out[1], NULL, call->accumulate);
    norm_dx(&in[0], &in[1], call->attribute[0].f, NULL, &in[2], &in[3], &in[4], &call->out[0]);
}

// ---- queries and keys: rows of `heads` query heads, `kv_heads` key heads and `kv_heads` value heads, each D wide

static void copy_values(const struct tensor *x, const struct tensor *y, int64_t m, int64_t from) {
    for (int64_t i = from; i < x->dim[1]; i++)
        tensor_set(y, at2(y, m, i), tensor_get(x, at2(x, m, i)));
}

void ref_qknorm(const struct call *call) {
    const struct tensor *x = &call->in[0], *wq = &call->in[1], *wk = &call->in[2];
    const struct tensor *y = &call->out[0], *rstd = &call->out[1];
    int64_t heads = call->attribute[0].i, normed = heads + call->attribute[1].i, width = wq->dim[0];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        for (int64_t h = 0; h < normed; h++) {
            int64_t x_at = at2(x, m, h * width);
            double r = row_rstd(x, x_at, width, 0, call->attribute[2].f);
            row_normalise(x, x_at, width, 0, r, h < heads ? wq : wk, call->attribute[3].f, NULL, y,
                          at2(y, m, h * width));
            tensor_set(rstd, at2(rstd, m, h), r);
        }
        copy_values(x, y, m, normed * width);
    }
}

void ref_qknorm_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *wq = &call->in[1], *wk = &call->in[2], *rstd = &call->in[3];
    const struct tensor *dy = &call->in[4], *dx = &call->out[0];
    int64_t heads = call->attribute[0].i, normed = heads + call->attribute[1].i, width = wq->dim[0];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        for (int64_t h = 0; h < normed; h++)
            row_dx(x, at2(x, m, h * width), width, 0, tensor_get(rstd, at2(rstd, m, h)), false, h < heads ? wq : wk,
                   call->attribute[2].f, dy, at2(dy, m, h * width), NULL, 0, dx, at2(dx, m, h * width));
        copy_values(dy, dx, m, normed * width);
    }
}

void ref_qknorm_dw(const struct call *call) {
    const struct tensor *x = &call->in[0], *rstd = &call->in[1], *dy = &call->in[2];
    int64_t heads = call->attribute[0].i, normed = heads + call->attribute[1].i;
    for (int k = 0; k < 2; k++) {
        const struct tensor *dw = &call->out[k];
        int64_t width = dw->dim[0];
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int64_t m = 0; m < x->dim[0]; m++)
                for (int64_t h = k ? heads : 0; h < (k ? normed : heads); h++)
                    sum += tensor_get(dy, at2(dy, m, h * width + i)) * tensor_get(x, at2(x, m, h * width + i)) *
                           tensor_get(rstd, at2(rstd, m, h));
            tensor_put(dw, at1(dw, i), sum, call->accumulate);
        }
    }
}

// ---- heads that are gated: with r = 1 / sqrt(mean(x^2) + eps), y = x r w gate sigmoid(gate)

static double swish(double x, double *derivative) {
    const double s = 1 / (1 + math_exp(-x));
    *derivative = s + x * s * (1 - s);
    return x * s;
}

void ref_gated_rmsnorm(const struct call *call) {
    const struct tensor *x = &call->in[0], *gate = &call->in[1], *w = &call->in[2];
    const struct tensor *y = &call->out[0], *rstd = &call->out[1];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t h = 0; h < x->dim[1]; h++) {
            const double r = row_rstd(x, at3(x, m, h, 0), x->dim[2], 0, call->attribute[0].f);
            tensor_set(rstd, at2(rstd, m, h), r);
            for (int64_t i = 0; i < x->dim[2]; i++) {
                double derivative, open = swish(tensor_get(gate, at3(gate, m, h, i)), &derivative);
                tensor_set(y, at3(y, m, h, i), tensor_get(x, at3(x, m, h, i)) * r * tensor_get(w, at1(w, i)) * open);
            }
        }
}

// With d = dy w swish(gate) and n = x r: dx = r (d - n mean(d n)), dgate = dy w n swish'(gate).
void ref_gated_rmsnorm_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *gate = &call->in[1], *w = &call->in[2], *rstd = &call->in[3],
                        *dy = &call->in[4];
    const struct tensor *dx = &call->out[0], *dgate = &call->out[1];
    const int64_t width = x->dim[2];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t h = 0; h < x->dim[1]; h++) {
            const double r = tensor_get(rstd, at2(rstd, m, h));
            double derivative, sum = 0;
            for (int64_t i = 0; i < width; i++)
                sum += tensor_get(dy, at3(dy, m, h, i)) * tensor_get(w, at1(w, i)) *
                       swish(tensor_get(gate, at3(gate, m, h, i)), &derivative) * tensor_get(x, at3(x, m, h, i)) * r;
            for (int64_t i = 0; i < width; i++) {
                const double d = tensor_get(dy, at3(dy, m, h, i)) * tensor_get(w, at1(w, i));
                const double n = tensor_get(x, at3(x, m, h, i)) * r;
                const double open = swish(tensor_get(gate, at3(gate, m, h, i)), &derivative);
                tensor_set(dx, at3(dx, m, h, i), r * (d * open - n * sum / (double)width));
                tensor_set(dgate, at3(dgate, m, h, i), d * n * derivative);
            }
        }
}

void ref_gated_rmsnorm_dw(const struct call *call) {
    const struct tensor *x = &call->in[0], *gate = &call->in[1], *rstd = &call->in[2], *dy = &call->in[3];
    const struct tensor *dw = &call->out[0];
    for (int64_t i = 0; i < x->dim[2]; i++) {
        double derivative, sum = 0;
        for (int64_t m = 0; m < x->dim[0]; m++)
            for (int64_t h = 0; h < x->dim[1]; h++)
                sum += tensor_get(dy, at3(dy, m, h, i)) * swish(tensor_get(gate, at3(gate, m, h, i)), &derivative) *
                       tensor_get(x, at3(x, m, h, i)) * tensor_get(rstd, at2(rstd, m, h));
        tensor_put(dw, at1(dw, i), sum, call->accumulate);
    }
}

// ---- rows that lie in parts on several ranks

void ref_row_squares(const struct call *call) {
    const struct tensor *x = &call->in[0], *s = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        double sum = 0;
        for (int64_t i = 0; i < x->dim[1]; i++)
            sum += tensor_get(x, at2(x, m, i)) * tensor_get(x, at2(x, m, i));
        tensor_set(s, at1(s, m), sum);
    }
}

void ref_row_squares_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *ds = &call->in[1], *dx = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        for (int64_t i = 0; i < x->dim[1]; i++)
            tensor_put(dx, at2(dx, m, i), 2 * tensor_get(ds, at1(ds, m)) * tensor_get(x, at2(x, m, i)),
                       call->accumulate);
}

// 1 / sqrt(s / width + eps) of row m.
static double row_norm_scale(const struct call *call, int64_t m) {
    const struct tensor *s = &call->in[1];
    return 1 / sqrt(tensor_get(s, at1(s, m)) / (double)call->attribute[0].i + call->attribute[1].f);
}

void ref_row_norm(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[2], *y = &call->out[0];
    for (int64_t m = 0; m < x->dim[0]; m++)
        row_normalise(x, at1(x, m), x->dim[1], 0, row_norm_scale(call, m), w, 0, NULL, y, at1(y, m));
}

// With r = 1 / sqrt(s / width + eps): dx = dy w r, ds = -r^3 / (2 width) sum(dy w x), each rank's part of the sum.
void ref_row_norm_dx(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[2], *dy = &call->in[3];
    const struct tensor *dx = &call->out[0], *ds = &call->out[1];
    for (int64_t m = 0; m < x->dim[0]; m++) {
        double r = row_norm_scale(call, m), sum = 0;
        for (int64_t i = 0; i < x->dim[1]; i++) {
            double d = tensor_get(dy, at2(dy, m, i)) * tensor_get(w, at1(w, i));
            sum += d * tensor_get(x, at2(x, m, i));
            tensor_set(dx, at2(dx, m, i), d * r);
        }
        tensor_set(ds, at1(ds, m), -r * r * r * sum / (2 * (double)call->attribute[0].i));
    }
}

void ref_row_norm_dw(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[2], *dw = &call->out[0];
    for (int64_t i = 0; i < x->dim[1]; i++) {
        double sum = 0;
        for (int64_t m = 0; m < x->dim[0]; m++)
            sum += tensor_get(dy, at2(dy, m, i)) * tensor_get(x, at2(x, m, i)) * row_norm_scale(call, m);
        tensor_put(dw, at1(dw, i), sum, call->accumulate);
    }
}
