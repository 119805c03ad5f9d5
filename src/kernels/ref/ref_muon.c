// Muon: momentum whose singular values are all brought near 1 (Jordan et al., "Muon: An optimizer for hidden layers in
// neural networks", 2024; update scaled and weights decayed as in Liu et al., "Muon is Scalable for LLM Training",
// arXiv 2502.16982, section 2.2). The polynomial maps singular values from (0, 1] to about [0.7, 1.2] in five
// iterations.
#include "kernels/ref/master.h"
#include "kernels/ref/ref.h"

#include <math.h>

static const double COEFFICIENT_1 = 3.4445, COEFFICIENT_3 = -4.7750, COEFFICIENT_5 = 2.0315, LEAST_NORM = 1e-7;

// Nesterov's momentum: the direction that it will have moved by the next step. m1 may be m.
void ref_muon_momentum(const struct call *call) {
    const struct tensor *g = &call->in[0], *m = &call->in[1], *u = &call->out[0], *m1 = &call->out[1];
    const double factor = tensor_scalar(&call->in[2]), momentum = call->attribute[0].f;
    for (int64_t i = 0; i < g->dim[0]; i++) {
        const double gradient = tensor_get(g, at1(g, i)) * factor,
                     velocity = momentum * tensor_get(m, at1(m, i)) + gradient;
        tensor_set(u, at1(u, i), gradient + momentum * velocity);
        tensor_set(m1, at1(m1, i), velocity);
    }
}

// A matrix that lies in blocks of columns, transposed if it has more rows than columns.
struct column_blocks {
    const struct tensor *t;
    int64_t rows, columns; // after that
    bool transposed;
};

static struct column_blocks column_blocks_of(const struct tensor *t) {
    const int64_t rows = t->dim[1], columns = t->dim[0] * t->dim[2];
    return (struct column_blocks){t, MIN(rows, columns), MAX(rows, columns), rows > columns};
}

static int64_t block_at(const struct column_blocks *b, int64_t row, int64_t column) {
    const int64_t i = b->transposed ? column : row, j = b->transposed ? row : column, width = b->t->dim[2];
    return at3(b->t, j / width, i, j % width);
}

static double strided_dot(const double *a, int64_t a_step, const double *b, int64_t b_step, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i * a_step] * b[i * b_step];
    return sum;
}

// y = a x + (b A + c A A) x with A = x x'. x and y: [r, k]; both products are [r, r].
static void ref_schulz_iterate(const double *x, double *y, double *product, double *polynomial, int64_t r, int64_t k) {
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            product[i * r + j] = strided_dot(x + i * k, 1, x + j * k, 1, k);
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            polynomial[i * r + j] =
                COEFFICIENT_3 * product[i * r + j] + COEFFICIENT_5 * strided_dot(product + i * r, 1, product + j, r, r);
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < k; j++)
            y[i * k + j] = COEFFICIENT_1 * x[i * k + j] + strided_dot(polynomial + i * r, 1, x + j, k, r);
}

trireme_status ref_newton_schulz_prepare(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                         trireme_error *error) {
    (void)error;
    const struct column_blocks u = column_blocks_of(&call->in[0]);
    *prepared = NULL;
    *workspace_bytes = 2 * (u.rows * u.columns + u.rows * u.rows) * (int64_t)sizeof(double);
    return TRIREME_OK;
}

// o may be u.
void ref_newton_schulz(const struct call *call) {
    const struct column_blocks u = column_blocks_of(&call->in[0]), o = column_blocks_of(&call->out[0]);
    const int64_t r = u.rows, k = u.columns;
    double *x = call->workspace, *y = x + r * k, *product = y + r * k, *polynomial = product + r * r;
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < k; j++)
            x[i * k + j] = tensor_get(u.t, block_at(&u, i, j));
    const double norm = sqrt(strided_dot(x, 1, x, 1, r * k)) + LEAST_NORM;
    for (int64_t i = 0; i < r * k; i++)
        x[i] /= norm;
    for (int64_t i = 0; i < call->attribute[0].i; i++) {
        ref_schulz_iterate(x, y, product, polynomial, r, k);
        double *last = x;
        x = y;
        y = last;
    }
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < k; j++)
            tensor_set(o.t, block_at(&o, i, j), call->attribute[1].f * x[i * k + j]);
}

void ref_muon(const struct call *call) {
    const struct tensor *p = &call->in[0], *rem = &call->in[1], *o = &call->in[2];
    const double lr = tensor_scalar(&call->in[3]), decayed = tensor_scalar(&call->in[4]),
                 weight_decay = call->attribute[0].f;
    for (int64_t i = 0; i < p->dim[0]; i++) {
        double x = parameter_get(p, rem, i);
        if (i < decayed)
            x -= lr * weight_decay * x;
        parameter_set(&call->out[0], &call->out[1], i, x - lr * tensor_get(o, at1(o, i)));
    }
}
