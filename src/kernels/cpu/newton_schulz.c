// The iteration that brings the singular values of a matrix near 1 (kernels/ref/ref_muon.c says whose it is), as three
// matrix products each time. In f32, also where parameters are bf16: errors grow by the polynomial's slope, some 500
// over five iterations.
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"

#define COEFFICIENT_1 3.4445f
#define COEFFICIENT_3 (-4.7750f)
#define COEFFICIENT_5 2.0315f
#define LEAST_NORM 1e-7

enum { TILE = 16 }; // columns that are transposed at a time: a cache line

// The work of a run: x and its successor, [r, k] with r <= k; x x' and the polynomial of it, [r, r]; for each row of x
// the sum of its squares; and what the products need. These lie one after the other in workspace.
struct schulz {
    int64_t r, k;
    bool transposed;
    float *x, *y, *product, *polynomial;
    double *squares;
    void *products;
    int64_t bytes; // of all of them
    const struct tensor *u, *o;
    float factor;
};

static void *schulz_piece(struct schulz *s, const struct call *call, int64_t bytes) {
    void *piece = call->workspace ? (char *)call->workspace + s->bytes : NULL;
    s->bytes += (int64_t)round_up((size_t)bytes, 64);
    return piece;
}

// c[m, n] = a b, with a [m, k] by rows.
static struct gemm schulz_product(const struct schulz *s, const struct call *call, int64_t m, int64_t n, int64_t k,
                                  const float *a, struct matrix b, float *c) {
    return (struct gemm){.m = m,
                         .n = n,
                         .k = k,
                         .a = {a, k, 1},
                         .b = b,
                         .c = c,
                         .c_row = n,
                         .threads = call->threads,
                         .way = WAY_RULE,
                         .workspace = s->products};
}

static struct gemm schulz_gram(const struct schulz *s, const struct call *call) {
    return schulz_product(s, call, s->r, s->r, s->k, s->x, (struct matrix){s->x, 1, s->k}, s->product);
}

static struct gemm schulz_square(const struct schulz *s, const struct call *call) {
    return schulz_product(s, call, s->r, s->r, s->r, s->product, (struct matrix){s->product, s->r, 1}, s->polynomial);
}

static struct gemm schulz_successor(const struct schulz *s, const struct call *call) {
    struct gemm g = schulz_product(s, call, s->r, s->k, s->r, s->polynomial, (struct matrix){s->x, s->k, 1}, s->y);
    g.accumulate = true;
    return g;
}

static struct schulz schulz_of(const struct call *call) {
    const struct tensor *u = &call->in[0];
    const int64_t rows = u->dim[1], columns = u->dim[0] * u->dim[2];
    struct schulz s = {.r = MIN(rows, columns), .k = MAX(rows, columns), .transposed = rows > columns, .u = u};
    s.o = &call->out[0];
    s.x = schulz_piece(&s, call, s.r * s.k * (int64_t)sizeof(float));
    s.y = schulz_piece(&s, call, s.r * s.k * (int64_t)sizeof(float));
    s.product = schulz_piece(&s, call, s.r * s.r * (int64_t)sizeof(float));
    s.polynomial = schulz_piece(&s, call, s.r * s.r * (int64_t)sizeof(float));
    s.squares = schulz_piece(&s, call, s.r * (int64_t)sizeof(double));
    const struct gemm a = schulz_gram(&s, call), b = schulz_square(&s, call), c = schulz_successor(&s, call);
    s.products =
        schulz_piece(&s, call, MAX(MAX(ISA(gemm_workspace)(&a), ISA(gemm_workspace)(&b)), ISA(gemm_workspace)(&c)));
    return s;
}

trireme_status ISA(cpu_newton_schulz_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                              trireme_error *error) {
    (void)error;
    *prepared = NULL;
    *workspace_bytes = schulz_of(call).bytes;
    return TRIREME_OK;
}

// ---- between tensors, which lie in blocks of columns, and x

static float *schulz_at(const struct tensor *t, int64_t row, int64_t column) {
    return (float *)t->data + column / t->dim[2] * t->stride[0] + row * t->stride[1] + column % t->dim[2];
}

// Rows [from, to) of x, which are rows of u.
static void schulz_take_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    const int64_t width = s->u->dim[2];
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < s->k; j += width)
            memcpy(s->x + i * s->k + j, schulz_at(s->u, i, j), (size_t)width * sizeof(float));
}

// The same, where they are columns of u; counted in tiles.
static void schulz_take_columns(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t first = from * TILE; first < MIN(to * TILE, s->r); first += TILE)
        for (int64_t i = 0; i < s->k; i++)
            for (int64_t j = first; j < MIN(first + TILE, s->r); j++)
                s->x[j * s->k + i] = *schulz_at(s->u, i, j);
}

VEC_INLINE void schulz_scale_lanes(int64_t i, int count, float *y, const float *x, float factor) {
    row_store(y, i, count, row_load(x, i, count, false) * factor, false);
}

static void schulz_give_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    const int64_t width = s->o->dim[2];
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < s->k; j += width) {
            float *o = schulz_at(s->o, i, j);
            ROW_EACH(width, schulz_scale_lanes, o, s->x + i * s->k + j, s->factor);
        }
}

static void schulz_give_columns(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t first = from * TILE; first < MIN(to * TILE, s->r); first += TILE)
        for (int64_t i = 0; i < s->k; i++)
            for (int64_t j = first; j < MIN(first + TILE, s->r); j++)
                *schulz_at(s->o, i, j) = s->x[j * s->k + i] * s->factor;
}

// ---- the iteration

static void schulz_square_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t i = from; i < to; i++) {
        double sum = 0;
        for (int64_t j = 0; j < s->k; j++)
            sum += (double)s->x[i * s->k + j] * s->x[i * s->k + j];
        s->squares[i] = sum;
    }
}

static void schulz_scale_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t i = from; i < to; i++)
        ROW_EACH(s->k, schulz_scale_lanes, s->x + i * s->k, s->x + i * s->k, s->factor);
}

// The successor begins with a x, to which its product is added.
static void schulz_begin_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t i = from; i < to; i++)
        ROW_EACH(s->k, schulz_scale_lanes, s->y + i * s->k, s->x + i * s->k, COEFFICIENT_1);
}

VEC_INLINE void polynomial_lanes(int64_t i, int count, float *polynomial, const float *product) {
    row_store(polynomial, i, count,
              row_load(product, i, count, false) * COEFFICIENT_3 +
                  row_load(polynomial, i, count, false) * COEFFICIENT_5,
              false);
}

static void polynomial_rows(const void *args, int64_t from, int64_t to) {
    const struct schulz *s = args;
    for (int64_t i = from; i < to; i++)
        ROW_EACH(s->r, polynomial_lanes, s->polynomial + i * s->r, s->product + i * s->r);
}

static void schulz_normalise(struct schulz *s, const struct call *call) {
    double sum = 0;
    run_split(call, s->r, s->r * s->k, schulz_square_rows, s);
    for (int64_t i = 0; i < s->r; i++)
        sum += s->squares[i];
    s->factor = (float)(1 / (sqrt(sum) + LEAST_NORM));
    run_split(call, s->r, s->r * s->k, schulz_scale_rows, s);
}

static void schulz_iterate(struct schulz *s, const struct call *call) {
    struct gemm g = schulz_gram(s, call);
    ISA(gemm_run)(&g);
    g = schulz_square(s, call);
    ISA(gemm_run)(&g);
    run_split(call, s->r, s->r * s->r, polynomial_rows, s);
    run_split(call, s->r, s->r * s->k, schulz_begin_rows, s);
    g = schulz_successor(s, call);
    ISA(gemm_run)(&g);
    float *last = s->x;
    s->x = s->y;
    s->y = last;
}

// o may be u.
void ISA(cpu_newton_schulz)(const struct call *call) {
    struct schulz s = schulz_of(call);
    const int64_t pieces = s.transposed ? divide_up(s.r, TILE) : s.r;
    run_split(call, pieces, s.r * s.k, s.transposed ? schulz_take_columns : schulz_take_rows, &s);
    schulz_normalise(&s, call);
    for (int64_t i = 0; i < call->attribute[0].i; i++)
        schulz_iterate(&s, call);
    s.factor = (float)call->attribute[1].f;
    run_split(call, pieces, s.r * s.k, s.transposed ? schulz_give_columns : schulz_give_rows, &s);
}
