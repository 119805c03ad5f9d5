// Table lookups, matrix products and addition.
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

// A matrix inside a tensor: element (i, j) lies at i * row + j * column.
struct matrix {
    const struct tensor *tensor;
    int64_t row, column;
};

static struct matrix matrix_of(const struct tensor *t) {
    return (struct matrix){t, t->stride[0], t->stride[1]};
}

static struct matrix matrix_transposed(const struct tensor *t) {
    return (struct matrix){t, t->stride[1], t->stride[0]};
}

enum { TILE_I = 64, TILE_J = 64, TILE_L = 32, VECTOR = 8 };

// Reads the tile of `rows` x `columns` elements that starts at (i, j). The rest of `tile` keeps what it holds.
static void load_tile(const struct matrix *m, int64_t i, int64_t j, int64_t rows, int64_t columns, int64_t width,
                      double *tile) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            tile[r * width + c] = tensor_get(m->tensor, (i + r) * m->row + (j + c) * m->column);
}

// c += a b for tiles, in their first columns alone; `depth` is a multiple of 4, `columns` of VECTOR. Each element is
// summed in the order of l.
static void multiply_tiles(int64_t rows, int64_t depth, int64_t columns, const double *restrict a,
                           const double *restrict b, double *restrict c) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < depth; l += 4) {
            const double *x = a + i * TILE_L + l;
            const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
            for (int64_t j0 = 0; j0 < columns; j0 += VECTOR) {
                const double *y = b + l * TILE_J + j0;
                double *sums = c + i * TILE_J + j0;
                for (int j = 0; j < VECTOR; j++) {
                    double sum = sums[j];
                    sum += x0 * y[j];
                    sum += x1 * y[TILE_J + j];
                    sum += x2 * y[2 * TILE_J + j];
                    sum += x3 * y[3 * TILE_J + j];
                    sums[j] = sum;
                }
            }
        }
}

// out[i, j] (+)= sum over l of a[i, l] b[l, j], in the order of l, + bias[j] + plus[i, j] (either may be absent).
// In doubles this equals what three plain loops give: tiles are only padded with zeros, to whole steps of 4.
static void product(int64_t ni, int64_t nj, int64_t nl, struct matrix a, struct matrix b, const struct tensor *out,
                    const struct tensor *bias, const struct tensor *plus, bool accumulate) {
    double a_tile[TILE_I * TILE_L], b_tile[TILE_L * TILE_J] = {0}, c_tile[TILE_I * TILE_J];
    for (int64_t i0 = 0; i0 < ni; i0 += TILE_I)
        for (int64_t j0 = 0; j0 < nj; j0 += TILE_J) {
            int64_t rows = MIN(TILE_I, ni - i0), columns = MIN(TILE_J, nj - j0);
            memset(c_tile, 0, sizeof c_tile);
            for (int64_t l0 = 0; l0 < nl; l0 += TILE_L) {
                int64_t depth = MIN(TILE_L, nl - l0);
                if (depth < TILE_L) {
                    memset(a_tile, 0, sizeof a_tile);
                    memset(b_tile, 0, sizeof b_tile);
                }
                load_tile(&a, i0, l0, rows, depth, TILE_L, a_tile);
                load_tile(&b, l0, j0, depth, columns, TILE_J, b_tile);
                multiply_tiles(rows, round_up(depth, 4), round_up(columns, VECTOR), a_tile, b_tile, c_tile);
            }
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    double y = c_tile[i * TILE_J + j];
                    if (bias && tensor_present(bias))
                        y += tensor_get(bias, at1(bias, j0 + j));
                    if (plus && tensor_present(plus))
                        y += tensor_get(plus, at2(plus, i0 + i, j0 + j));
                    tensor_put(out, at2(out, i0 + i, j0 + j), y, accumulate);
                }
        }
}

// The row of w that id number m picks, -1 where another rank has it: this rank's rows begin at `first`.
static int64_t linear_picked_row(const struct tensor *ids, const struct tensor *first, int64_t rows, int64_t m) {
    int64_t row = (int64_t)tensor_int(ids, at1(ids, m)) - (first->data ? tensor_int(first, 0) : 0);
    return row >= 0 && row < rows ? row : -1;
}

void ref_embed(const struct call *call) {
    const struct tensor *ids = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++) {
        int64_t row = linear_picked_row(ids, &call->in[2], w->dim[0], m);
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_put(y, at2(y, m, c), row < 0 ? 0 : tensor_get(w, at2(w, row, c)), call->accumulate);
    }
}

void ref_embed_dw(const struct call *call) {
    const struct tensor *ids = &call->in[0], *dy = &call->in[1], *dw = &call->out[0];
    if (!call->accumulate)
        for (int64_t v = 0; v < dw->dim[0]; v++)
            for (int64_t c = 0; c < dw->dim[1]; c++)
                tensor_set(dw, at2(dw, v, c), 0);
    for (int64_t m = 0; m < dy->dim[0]; m++) {
        int64_t row = linear_picked_row(ids, &call->in[2], dw->dim[0], m);
        for (int64_t c = 0; row >= 0 && c < dy->dim[1]; c++)
            tensor_put(dw, at2(dw, row, c), tensor_get(dy, at2(dy, m, c)), true);
    }
}

// y = x; y may be x.
void ref_fan_out(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    if (x->data != y->data)
        memcpy(y->data, x->data, (size_t)(y->dim[0] * dtype_size(y->dtype)));
}

void ref_zero(const struct call *call) {
    const struct tensor *y = &call->out[0];
    memset(y->data, 0, (size_t)(y->dim[0] * dtype_size(y->dtype)));
}

void ref_zero_columns(const struct call *call) {
    const struct tensor *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c), 0);
}

void ref_keep_columns(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    int64_t end = tensor_int(&call->in[1], 0);
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c), c < end ? tensor_get(x, at2(x, m, c)) : 0);
}

// y[m, n] = sum over k of x[m, k] w[n, k], + b[n] + r[m, n]
void ref_matmul(const struct call *call) {
    const struct tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    product(y->dim[0], y->dim[1], x->dim[1], matrix_of(x), matrix_transposed(w), y, &call->in[2], &call->in[3], false);
}

// dx[m, k] = sum over n of dy[m, n] w[n, k]
void ref_matmul_dx(const struct call *call) {
    const struct tensor *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    product(dx->dim[0], dx->dim[1], dy->dim[1], matrix_of(dy), matrix_of(w), dx, NULL, NULL, call->accumulate);
}

// dw[n, k] = sum over m of dy[m, n] x[m, k]; db[n] = sum over m of dy[m, n]
void ref_matmul_dw(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1], *dw = &call->out[0], *db = &call->out[1];
    product(dw->dim[0], dw->dim[1], x->dim[0], matrix_transposed(dy), matrix_of(x), dw, NULL, NULL, call->accumulate);
    if (!tensor_present(db))
        return;
    for (int64_t n = 0; n < dy->dim[1]; n++) {
        double sum = 0;
        for (int64_t m = 0; m < dy->dim[0]; m++)
            sum += tensor_get(dy, at2(dy, m, n));
        tensor_put(db, at1(db, n), sum, call->accumulate);
    }
}

void ref_add_bias(const struct call *call) {
    const struct tensor *a = &call->in[0], *b = &call->in[1], *bias = &call->in[2], *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c),
                       tensor_get(a, at2(a, m, c)) + tensor_get(b, at2(b, m, c)) + tensor_get(bias, at1(bias, c)));
}

void ref_add_bias_dw(const struct call *call) {
    const struct tensor *dy = &call->in[0], *dbias = &call->out[0];
    for (int64_t c = 0; c < dy->dim[1]; c++) {
        double sum = 0;
        for (int64_t m = 0; m < dy->dim[0]; m++)
            sum += tensor_get(dy, at2(dy, m, c));
        tensor_put(dbias, at1(dbias, c), sum, call->accumulate);
    }
}

void ref_copy(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++)
            for (int64_t k = 0; k < x->dim[2]; k++)
                tensor_put(y, at3(y, i, j, k), tensor_get(x, at3(x, i, j, k)), call->accumulate);
}

void ref_add(const struct call *call) {
    const struct tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c), tensor_get(a, at2(a, m, c)) + tensor_get(b, at2(b, m, c)));
}

// y = a + b, or a; y may be b.
void ref_gradient_sum(const struct call *call) {
    const struct tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c),
                       tensor_get(a, at2(a, m, c)) + (tensor_present(b) ? tensor_get(b, at2(b, m, c)) : 0));
}

void ref_gradient_sum_dw(const struct call *call) {
    const struct tensor *dy = &call->in[0], *dw = &call->out[0];
    for (int64_t m = 0; m < dw->dim[0]; m++)
        for (int64_t c = 0; c < dw->dim[1]; c++)
            tensor_put(dw, at2(dw, m, c), tensor_get(dy, at2(dy, m, c)), call->accumulate);
}
