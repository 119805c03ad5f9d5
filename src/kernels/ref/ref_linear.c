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

// Tests with sanitizers would take half of their time to check what a product does within its own tiles.
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

// c += a b for tiles, in their first columns alone; `depth` is a multiple of 4, `columns` of VECTOR. Each element is
// summed in the order of l.
UNSANITIZED static void multiply_tiles(int64_t rows, int64_t depth, int64_t columns, const double *restrict a,
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

// The first rows of a tensor, from row `from` on.
static struct tensor linear_rows(const struct tensor *t, int64_t from, int64_t rows) {
    struct tensor part = *t;
    part.data = (char *)t->data + from * t->stride[0] * dtype_size(t->dtype);
    part.dim[0] = rows;
    return part;
}

// The matrix, or vector, of group g.
static struct tensor linear_group(const struct tensor *t, int64_t g) {
    struct tensor part = {.dtype = t->dtype, .ndim = t->ndim - 1};
    if (tensor_present(t))
        part.data = (char *)t->data + g * t->stride[0] * dtype_size(t->dtype);
    for (int i = 0; i < part.ndim; i++) {
        part.dim[i] = t->dim[i + 1];
        part.stride[i] = t->stride[i + 1];
    }
    return part;
}

// Calls for the rows of each group in each block, of `rows` in all, whatever the counts are.
static void each_group(const struct call *call, const struct tensor *counts, int64_t rows,
                       void (*visit)(const struct call *, int64_t group, int64_t from, int64_t rows)) {
    int64_t at = 0;
    for (int64_t b = 0; b < counts->dim[0]; b++)
        for (int64_t g = 0; g < counts->dim[1]; g++) {
            const int64_t some = MIN(MAX(tensor_int(counts, at2(counts, b, g)), 0), rows - at);
            if (some)
                visit(call, g, at, some);
            at += some;
        }
}

static void linear_forward(const struct call *call, int64_t group, int64_t from, int64_t rows) {
    const struct tensor x = linear_rows(&call->in[0], from, rows), w = linear_group(&call->in[2], group),
                        bias = linear_group(&call->in[3], group), y = linear_rows(&call->out[0], from, rows);
    product(rows, y.dim[1], x.dim[1], matrix_of(&x), matrix_transposed(&w), &y, &bias, NULL, false);
}

void ref_matmul_grouped(const struct call *call) {
    each_group(call, &call->in[1], call->out[0].dim[0], linear_forward);
}

static void linear_backward(const struct call *call, int64_t group, int64_t from, int64_t rows) {
    const struct tensor dy = linear_rows(&call->in[0], from, rows), w = linear_group(&call->in[2], group),
                        dx = linear_rows(&call->out[0], from, rows);
    product(rows, dx.dim[1], dy.dim[1], matrix_of(&dy), matrix_of(&w), &dx, NULL, NULL, call->accumulate);
}

void ref_matmul_grouped_dx(const struct call *call) {
    each_group(call, &call->in[1], call->out[0].dim[0], linear_backward);
}

static void linear_weights(const struct call *call, int64_t group, int64_t from, int64_t rows) {
    const struct call one = {
        .in = {linear_rows(&call->in[0], from, rows), linear_rows(&call->in[1], from, rows)},
        .out = {linear_group(&call->out[0], group), linear_group(&call->out[1], group)},
        .accumulate = call->accumulate || rows, // none: sets to zero
    };
    ref_matmul_dw(&one);
}

void ref_matmul_grouped_dw(const struct call *call) {
    for (int64_t g = 0; g < call->out[0].dim[0] && !call->accumulate; g++)
        linear_weights(call, g, 0, 0);
    each_group(call, &call->in[2], call->in[0].dim[0], linear_weights);
}

void ref_count_sum(const struct call *call) {
    const struct tensor *counts = &call->in[0], *sums = &call->out[0];
    for (int64_t a = 0; a < counts->dim[0]; a++)
        for (int64_t r = 0; r < counts->dim[1]; r++)
            for (int64_t c = 0; c < counts->dim[3]; c++) {
                double sum = 0; // of integers: exact
                for (int64_t p = 0; p < counts->dim[2]; p++)
                    sum += tensor_int(counts, at4(counts, a, r, p, c));
                tensor_set(sums, at3(sums, a, r, c), MIN(sum, (double)INT32_MAX));
            }
}

void ref_add_bias(const struct call *call) {
    const struct tensor *a = &call->in[0], *b = &call->in[1], *bias = &call->in[2], *y = &call->out[0];
    for (int64_t m = 0; m < y->dim[0]; m++)
        for (int64_t c = 0; c < y->dim[1]; c++)
            tensor_set(y, at2(y, m, c),
                       tensor_get(a, at2(a, m, c)) + (tensor_present(b) ? tensor_get(b, at2(b, m, c)) : 0) +
                           tensor_get(bias, at1(bias, c)));
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
