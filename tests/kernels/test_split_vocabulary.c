// Ops on one rank's part of the vocabulary: the ranks' results, put together by hand, are what a single rank with the
// whole vocabulary computes. Reference kernels in f64, and fast ones of every instruction set in f32 and bf16.
#include "base/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/tensor.h"

#include <math.h>

#include "support/test.h"

enum { ROWS = 37 };

struct split {
    enum dtype model;
    const struct kernel *kernels; // NULL: the reference
    const char *name;
    int64_t vocab, columns; // real; of one rank
    int ranks;
    double cap; // of the head's logits; 0: none
};

static const double scale = 0.37;

// ---- tensors and calls

static struct tensor tensor_new(enum dtype dtype, int64_t rows, int64_t columns) {
    struct tensor t = {.dtype = dtype, .ndim = columns ? 2 : 1, .dim = {rows, columns}, .stride = {columns, 1}};
    if (!columns)
        t.stride[0] = 1;
    t.data = mem_alloc((size_t)(rows * MAX(columns, 1) * dtype_size(dtype)));
    return t;
}

static struct tensor scalar_of(void *data, enum dtype dtype) {
    return (struct tensor){.data = data, .dtype = dtype, .ndim = 1, .dim = {1}, .stride = {1}};
}

// The columns of rank r.
static struct tensor columns_of(const struct tensor *whole, const struct split *s, int r) {
    struct tensor t = *whole;
    t.data = (char *)whole->data + r * s->columns * dtype_size(t.dtype);
    t.dim[1] = s->columns;
    return t;
}

// The rows of rank r.
static struct tensor rows_of(const struct tensor *whole, const struct split *s, int r) {
    struct tensor t = *whole;
    t.data = (char *)whole->data + r * s->columns * whole->dim[1] * dtype_size(t.dtype);
    t.dim[0] = s->columns;
    return t;
}

static void run(const struct split *s, enum op op, struct call call) {
    call.op = op;
    call.threads = 2;
    struct kernel kernel = kernel_find(op, DTYPE_F64, KERNELS_REFERENCE);
    if (s->kernels && s->kernels[op].run)
        kernel = s->kernels[op];
    kernel.run(&call);
}

static double random_value(const char *name, int64_t i) {
    return 2 * rng_uniform(7, rng_stream(name), (uint64_t)i) - 1;
}

static void assert_near(const struct split *s, const char *what, int64_t m, int64_t v, double x, double expected,
                        double accepted) {
    if (!(fabs(x - expected) <= accepted))
        fail_msg("%s %s, %d ranks of %lld columns, vocab %lld: %s[%lld, %lld] is %.17g, should be %.17g", s->name,
                 dtype_name(s->model), s->ranks, (long long)s->columns, (long long)s->vocab, what, (long long)m,
                 (long long)v, x, expected);
}

// ---- loss

// Columns that are padding hold NaN. Row 1 has nothing but -infinity on its first rank, row 2 one logit that leaves
// nothing to the others; every fifth row is masked.
static void fill_loss(const struct split *s, const struct tensor *logits, int32_t *targets) {
    for (int64_t m = 0; m < ROWS; m++) {
        for (int64_t v = 0; v < logits->dim[1]; v++) {
            double x = 6 * random_value("logits", m * logits->dim[1] + v);
            if (m == 1 && v < s->columns && s->columns < s->vocab)
                x = -INFINITY;
            if (m == 2 && v == s->vocab - 1)
                x = 30000;
            tensor_set(logits, at2(logits, m, v), v < s->vocab ? x : NAN);
        }
        targets[m] = (int32_t)floor((random_value("targets", m) + 1) / 2 * (double)s->vocab);
        if (m % 5 == 0)
            targets[m] = m % 2 ? -1 : -100;
    }
    targets[1] = (int32_t)s->vocab - 1;
    targets[2] = 0;
}

static struct tensor copy_of(const struct tensor *t) {
    struct tensor copy = tensor_new(t->dtype, t->dim[0], t->dim[1]);
    memcpy(copy.data, t->data, (size_t)(t->dim[0] * t->dim[1] * dtype_size(t->dtype)));
    return copy;
}

static void combine(const struct tensor *part, const struct tensor *all, bool maximum) {
    for (int64_t m = 0; m < ROWS; m++) {
        double x = tensor_get(part, m), y = tensor_get(all, m);
        tensor_set(all, m, maximum ? fmax(x, y) : x + y);
    }
}

// nll of all rows, and the gradient over `logits`.
static void split_loss(const struct split *s, const struct tensor *logits, const struct tensor *targets,
                       const struct tensor *nll) {
    enum dtype sums = dtype_accumulate(s->model);
    struct tensor max = tensor_new(sums, ROWS, 0), sum = tensor_new(sums, ROWS, 0), picked = tensor_new(sums, ROWS, 0);
    struct tensor part = tensor_new(sums, ROWS, 0), part_picked = tensor_new(sums, ROWS, 0);
    const union attribute vocab = {.i = s->vocab};
    for (int64_t m = 0; m < ROWS; m++)
        tensor_set(&max, m, -INFINITY);
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        run(s, OP_LOGITS_MAX,
            (struct call){.inputs = 2,
                          .outputs = 1,
                          .in = {columns_of(logits, s, r), scalar_of(&first, DTYPE_I32)},
                          .out = {part},
                          .attribute = {vocab}});
        if (first >= s->vocab)
            assert_true(tensor_get(&part, 3) == -INFINITY);
        combine(&part, &max, true);
    }
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        run(s, OP_LOGITS_SUM,
            (struct call){.inputs = 4,
                          .outputs = 2,
                          .in = {columns_of(logits, s, r), *targets, scalar_of(&first, DTYPE_I32), max},
                          .out = {part, part_picked},
                          .attribute = {vocab}});
        if (first >= s->vocab)
            assert_true(tensor_get(&part, 3) == 0 && tensor_get(&part_picked, 3) == 0);
        combine(&part, &sum, false);
        combine(&part_picked, &picked, false);
    }
    run(s, OP_LOGITS_NLL, (struct call){.inputs = 4, .outputs = 1, .in = {*targets, max, sum, picked}, .out = {*nll}});
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        double factor = scale;
        struct tensor own = columns_of(logits, s, r);
        run(s, OP_LOGITS_GRAD,
            (struct call){.inputs = 6,
                          .outputs = 1,
                          .in = {own, *targets, scalar_of(&first, DTYPE_I32), max, sum, scalar_of(&factor, DTYPE_F64)},
                          .out = {own},
                          .attribute = {vocab}});
    }
    free(max.data);
    free(sum.data);
    free(picked.data);
    free(part.data);
    free(part_picked.data);
}

static void check_loss(const struct split *s) {
    struct tensor logits = tensor_new(s->model, ROWS, s->ranks * s->columns);
    struct tensor targets = tensor_new(DTYPE_I32, ROWS, 0);
    struct tensor nll = tensor_new(dtype_accumulate(s->model), ROWS, 0), expected = nll;
    expected.data = mem_alloc((size_t)(ROWS * dtype_size(nll.dtype)));
    fill_loss(s, &logits, targets.data);
    struct tensor parts = copy_of(&logits);
    double factor = scale;
    run(s, OP_CROSS_ENTROPY_GRAD,
        (struct call){.inputs = 3,
                      .outputs = 2,
                      .in = {logits, targets, scalar_of(&factor, DTYPE_F64)},
                      .out = {expected, logits},
                      .attribute = {{.i = s->vocab}}});
    split_loss(s, &parts, &targets, &nll);
    const double exact = s->model == DTYPE_F64 ? 1e-12 : 2e-6;
    for (int64_t m = 0; m < ROWS; m++) {
        double y = tensor_get(&expected, m);
        assert_near(s, "nll", m, 0, tensor_get(&nll, m), y, exact * fmax(1, fabs(y)));
        for (int64_t v = 0; v < logits.dim[1]; v++) {
            double d = tensor_get(&logits, at2(&logits, m, v));
            double rounding = s->model == DTYPE_BF16 ? 0x1p-7 * fabs(d) : 0;
            assert_near(s, "dlogits", m, v, tensor_get(&parts, at2(&parts, m, v)), d, exact * scale + rounding);
        }
    }
    free(logits.data);
    free(parts.data);
    free(targets.data);
    free(nll.data);
    free(expected.data);
}

// ---- the head with one meeting

enum { HEAD_WIDTH = 19 };

// Losses and the gradient of the rows: computed on each rank by itself and put together, and as a single rank computes
// them.
static void check_head(const struct split *s) {
    enum dtype sums = dtype_accumulate(s->model);
    struct tensor logits = tensor_new(s->model, ROWS, s->ranks * s->columns), targets = tensor_new(DTYPE_I32, ROWS, 0);
    struct tensor w = tensor_new(s->model, s->ranks * s->columns, HEAD_WIDTH);
    struct tensor nll = tensor_new(sums, ROWS, 0), merged = tensor_new(sums, ROWS, 0);
    struct tensor max = tensor_new(sums, ROWS, 0), sum = tensor_new(sums, ROWS, 0);
    struct tensor dx = tensor_new(s->model, ROWS, HEAD_WIDTH), total = tensor_new(DTYPE_F64, ROWS, HEAD_WIDTH);
    struct tensor a = tensor_new(s->model, ROWS, HEAD_WIDTH), b = tensor_new(s->model, ROWS, HEAD_WIDTH);
    struct tensor all = {.dtype = sums, .ndim = 3, .dim = {s->ranks, 3, ROWS}, .stride = {3 * ROWS, ROWS, 1}};
    all.data = mem_alloc((size_t)(s->ranks * 3 * ROWS * dtype_size(sums)));
    double factor = scale;
    const union attribute vocab = {.i = s->vocab};
    fill_loss(s, &logits, targets.data);
    for (int64_t i = 0; i < ROWS * logits.dim[1] && s->cap > 0; i++)
        tensor_set(&logits, i, s->cap * tanh(tensor_get(&logits, i) / s->cap));
    for (int64_t i = 0; i < w.dim[0] * HEAD_WIDTH; i++)
        tensor_set(&w, i, i / HEAD_WIDTH < s->vocab ? random_value("w", i) : 0);
    struct tensor dlogits = copy_of(&logits);
    run(s, OP_CROSS_ENTROPY_GRAD,
        (struct call){.inputs = 3,
                      .outputs = 2,
                      .in = {logits, targets, scalar_of(&factor, DTYPE_F64)},
                      .out = {nll, dlogits},
                      .attribute = {vocab}});
    struct tensor *parts = mem_alloc((size_t)s->ranks * sizeof *parts);
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        struct tensor own = all;
        own.dim[0] = 1;
        own.data = (char *)all.data + r * 3 * ROWS * dtype_size(sums);
        parts[r] = tensor_new(s->model, ROWS, s->columns);
        run(s, OP_LOGITS_EXP,
            (struct call){.inputs = 3,
                          .outputs = 2,
                          .in = {columns_of(&logits, s, r), targets, scalar_of(&first, DTYPE_I32)},
                          .out = {parts[r], own},
                          .attribute = {vocab, {.f = s->cap}}});
    }
    run(s, OP_LOGITS_MERGE, (struct call){.inputs = 2, .outputs = 3, .in = {all, targets}, .out = {max, sum, merged}});
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        struct tensor own = all, weights = rows_of(&w, s, r);
        own.dim[0] = 1;
        own.data = (char *)all.data + r * 3 * ROWS * dtype_size(sums);
        // Only fast kernels need workspace for products: here the reference multiplies.
        struct call times = {.inputs = 2, .outputs = 1, .in = {parts[r], weights}, .out = {a}, .threads = 1};
        kernel_find(OP_LOGITS_TIMES, DTYPE_F64, KERNELS_REFERENCE).run(&times);
        run(s, OP_LOGITS_PICK,
            (struct call){
                .inputs = 3, .outputs = 1, .in = {targets, weights, scalar_of(&first, DTYPE_I32)}, .out = {b}});
        run(s, OP_LOGITS_DX,
            (struct call){.inputs = 7,
                          .outputs = 1,
                          .in = {a, b, own, max, sum, targets, scalar_of(&factor, DTYPE_F64)},
                          .out = {dx},
                          .attribute = {{.f = s->cap}}});
        for (int64_t i = 0; i < ROWS * HEAD_WIDTH; i++)
            tensor_put(&total, i, tensor_get(&dx, i), r > 0);
        free(parts[r].data);
    }
    const double exact = s->model == DTYPE_F64 ? 1e-12 : 4e-6, rounding = s->model == DTYPE_BF16 ? 0x1p-6 : exact;
    for (int64_t m = 0; m < ROWS; m++) {
        double y = tensor_get(&nll, m);
        assert_near(s, "merged nll", m, 0, tensor_get(&merged, m), y, exact * fmax(1, fabs(y)));
        for (int64_t c = 0; c < HEAD_WIDTH; c++) {
            double expected = 0;
            for (int64_t v = 0; v < s->vocab; v++) {
                const double part = s->cap > 0 ? tensor_get(&logits, at2(&logits, m, v)) / s->cap : 0;
                expected +=
                    tensor_get(&dlogits, at2(&dlogits, m, v)) * (1 - part * part) * tensor_get(&w, at2(&w, v, c));
            }
            assert_near(s, "dx", m, c, tensor_get(&total, at2(&total, m, c)), expected, 4 * rounding * scale);
        }
    }
    struct tensor *const made[] = {&logits, &targets, &w, &nll, &merged, &max,    &sum,
                                   &dx,     &total,   &a, &b,   &all,    &dlogits};
    for (size_t i = 0; i < ARRAY_LENGTH(made); i++)
        free(made[i]->data);
    free(parts);
}

static void check_capped_head(const struct split *s) {
    struct split capped = *s;
    capped.cap = 4;
    check_head(&capped);
}

// ---- embedding

enum { WIDTH = 21 };

static void check_embedding(const struct split *s) {
    struct tensor w = tensor_new(s->model, s->ranks * s->columns, WIDTH), y = tensor_new(s->model, ROWS, WIDTH);
    struct tensor part = tensor_new(s->model, ROWS, WIDTH), sum = tensor_new(DTYPE_F64, ROWS, WIDTH);
    struct tensor ids = tensor_new(DTYPE_I32, ROWS, 0);
    struct tensor dw = tensor_new(dtype_accumulate(s->model), w.dim[0], WIDTH), parts = copy_of(&dw);
    for (int64_t i = 0; i < w.dim[0] * WIDTH; i++)
        tensor_set(&w, i, random_value("w", i));
    for (int64_t m = 0; m < ROWS; m++)
        tensor_set(&ids, m, floor((random_value("ids", m) + 1) / 2 * (double)s->vocab));
    run(s, OP_EMBED, (struct call){.inputs = 2, .outputs = 1, .in = {ids, w}, .out = {y}});
    run(s, OP_EMBED_DW, (struct call){.inputs = 2, .outputs = 1, .in = {ids, y}, .out = {dw}});
    for (int r = 0; r < s->ranks; r++) {
        int32_t first = (int32_t)(r * s->columns);
        struct tensor offset = scalar_of(&first, DTYPE_I32);
        run(s, OP_EMBED,
            (struct call){.inputs = 3, .outputs = 1, .in = {ids, rows_of(&w, s, r), offset}, .out = {part}});
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            tensor_put(&sum, i, tensor_get(&part, i), true);
        run(s, OP_EMBED_DW,
            (struct call){.inputs = 3, .outputs = 1, .in = {ids, y, offset}, .out = {rows_of(&parts, s, r)}});
    }
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        assert_near(s, "embedding", i / WIDTH, i % WIDTH, tensor_get(&sum, i), tensor_get(&y, i), 0);
    for (int64_t i = 0; i < w.dim[0] * WIDTH; i++)
        assert_near(s, "dw", i / WIDTH, i % WIDTH, tensor_get(&parts, i), tensor_get(&dw, i), 0);
    free(w.data);
    free(y.data);
    free(part.data);
    free(sum.data);
    free(ids.data);
    free(dw.data);
    free(parts.data);
}

// ---- all of it

// Vocabularies that divide and others that do not: with 10 words in parts of 2, three of eight ranks have only padding.
static void check_all(void (*check)(const struct split *s), enum dtype model, const struct kernel *kernels,
                      const char *name) {
    static const struct {
        int64_t vocab, columns;
        int ranks;
    } splits[] = {{11, 11, 1}, {50, 25, 2}, {50, 28, 2},     {50, 17, 3},     {61, 16, 4},
                  {10, 2, 8},  {1, 1, 8},   {3001, 1501, 2}, {3001, 1100, 3}, {5000, 631, 8}};
    for (size_t i = 0; i < ARRAY_LENGTH(splits); i++)
        check(&(struct split){model, kernels, name, splits[i].vocab, splits[i].columns, splits[i].ranks, 0});
}

static void check_fast(void (*check)(const struct split *s)) {
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (int m = 0; m < 2 && isa_usable(isa); m++) {
            enum dtype model = m ? DTYPE_BF16 : DTYPE_F32;
            check_all(check, model, cpu_kernel_table_for(model, isa), isa_name(isa));
        }
}

// Wherever it is, and beside whatever: the sum of a rank that has one is none, and so is the loss of that row.
static void check_nan(const struct split *s) {
    enum dtype sums = dtype_accumulate(s->model);
    struct tensor logits = tensor_new(s->model, ROWS, s->columns), e = tensor_new(s->model, ROWS, s->columns);
    struct tensor own = {.dtype = sums, .ndim = 3, .dim = {1, 3, ROWS}, .stride = {3 * ROWS, ROWS, 1}};
    struct tensor targets = tensor_new(DTYPE_I32, ROWS, 0);
    own.data = mem_alloc((size_t)(3 * ROWS * dtype_size(sums)));
    memset(targets.data, 0, ROWS * sizeof(int32_t));
    int32_t first = 0;
    const int64_t n = MIN(s->columns, s->vocab), place[] = {0, n - 1, n / 2};
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t v = 0; v < s->columns; v++) {
            bool none = m == 6 || (m < 6 && v == place[m % 3]);
            double other = m % 2 ? -INFINITY : 1;
            tensor_set(&logits, at2(&logits, m, v), none ? NAN : other);
        }
    run(s, OP_LOGITS_EXP,
        (struct call){.inputs = 3,
                      .outputs = 2,
                      .in = {logits, targets, scalar_of(&first, DTYPE_I32)},
                      .out = {e, own},
                      .attribute = {{.i = s->vocab}}});
    for (int64_t m = 0; m < ROWS; m++)
        assert_true(m <= 6 ? isnan(tensor_get(&own, ROWS + m)) : tensor_get(&own, ROWS + m) == (m % 2 ? 0 : n));
    free(logits.data);
    free(e.data);
    free(own.data);
    free(targets.data);
}

static void what_is_no_number_is_not_lost(void **state) {
    (void)state;
    check_all(check_nan, DTYPE_F64, NULL, "reference");
    check_fast(check_nan);
}

static void a_head_with_one_meeting_is_the_whole_one(void **state) {
    (void)state;
    check_all(check_head, DTYPE_F64, NULL, "reference");
    check_fast(check_head);
    check_all(check_capped_head, DTYPE_F64, NULL, "reference");
    check_fast(check_capped_head);
}

static void a_split_loss_is_the_whole_one_in_f64(void **state) {
    (void)state;
    check_all(check_loss, DTYPE_F64, NULL, "reference");
}

static void a_split_loss_is_the_whole_one_in_fast_kernels(void **state) {
    (void)state;
    check_fast(check_loss);
}

static void a_split_embedding_is_the_whole_one(void **state) {
    (void)state;
    check_all(check_embedding, DTYPE_F64, NULL, "reference");
    check_fast(check_embedding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_loss_is_the_whole_one_in_f64),
        cmocka_unit_test(a_split_loss_is_the_whole_one_in_fast_kernels),
        cmocka_unit_test(a_head_with_one_meeting_is_the_whole_one),
        cmocka_unit_test(what_is_no_number_is_not_lost),
        cmocka_unit_test(a_split_embedding_is_the_whole_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
