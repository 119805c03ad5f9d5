// Matrix products that are too large for the reference kernels: the summed dimension in several blocks, the packed
// operand in several passes. Against plain sums in f64, on every instruction set.
#include "kernels/cpu/isa.h"
#include "support/ops_internal.h"

#include <math.h>

#include "base/bf16.h"
#include "support/test.h"

static double get(const struct tensor *t, int64_t i, int64_t j) {
    int64_t at = i * t->stride[0] + j * t->stride[1];
    return t->dtype == DTYPE_BF16 ? bf16_to_float(((uint16_t *)t->data)[at]) : ((float *)t->data)[at];
}

// Element (i, j) of the product by its definition, with bias and residual where a call has them, and the sum of the
// magnitudes of its terms.
static double plain(const struct call *call, int64_t i, int64_t j, double *magnitude) {
    const struct tensor *a = &call->in[0], *b = &call->in[1];
    int64_t terms = call->op == OP_MATMUL_DW ? a->dim[0] : a->dim[1];
    double sum = 0;
    *magnitude = 0;
    for (int64_t k = 0; k < terms; k++) {
        double term = call->op == OP_MATMUL      ? get(a, i, k) * get(b, j, k)
                      : call->op == OP_MATMUL_DX ? get(a, i, k) * get(b, k, j)
                                                 : get(b, k, i) * get(a, k, j);
        sum += term;
        *magnitude += fabs(term);
    }
    for (int k = 2; k < call->inputs; k++)
        if (call->in[k].data)
            sum += call->in[k].ndim == 1 ? get(&call->in[k], j, 0) : get(&call->in[k], i, j);
    return sum;
}

// Gradients of the bias, and bias and residual unless `all`, are for the small cases.
static void check(const struct op_table *table, const char *spec, enum dtype model, enum isa isa, bool accumulate,
                  bool all) {
    struct op_options options = {.model = model, .seed = 1, .threads = 1, .accumulate = accumulate};
    options.absent = all ? 0x20000 : 0x2000c;
    struct op_instance instance = {0}, before = {0};
    trireme_error error = {0};
    if (op_instance_create(&instance, table, spec, &options, &error) != TRIREME_OK ||
        (accumulate && op_instance_create(&before, table, spec, &options, &error) != TRIREME_OK) ||
        op_instance_run(&instance, &cpu_kernel_table_for(model, isa)[instance.info->op], &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    const struct tensor *out = &instance.call.out[0];
    accumulate = accumulate && instance.info->out[0].adds;
    const int64_t step = out->dim[0] * out->dim[1] > 1000000 ? 197 : 7;
    for (int64_t i = 0; i < out->dim[0]; i++)
        for (int64_t j = i % step; j < out->dim[1]; j += step) {
            double magnitude, y = plain(&instance.call, i, j, &magnitude), x = get(out, i, j);
            y += accumulate ? get(&before.call.out[0], i, j) : 0;
            double accepted = 1e-6 * magnitude + (out->dtype == DTYPE_BF16 ? 0x1p-8 * fabs(y) : 1e-6);
            if (!(fabs(x - y) <= accepted))
                fail_msg("%s (%s, %s): [%lld, %lld] is %.9g, should be %.9g", spec, dtype_name(model), isa_name(isa),
                         (long long)i, (long long)j, x, y);
        }
    op_instance_release(&instance);
    op_instance_release(&before);
}

static void large_products_are_right(void **state) {
    (void)state;
    static const char *const specs[] = {
        "matmul m=2 k=9001 n=50",      "matmul m=16 k=1001 n=70",    "matmul m=17 k=9001 n=50",
        "matmul m=11 k=9001 n=50",     "matmul m=1 k=9001 n=50",     "matmul m=3 k=1100 n=2400",
        "matmul m=300 k=33 n=40",      "matmul m=500 k=2100 n=20",   "matmul_dx m=11 n=9001 k=50",
        "matmul_dx m=3 n=1100 k=2400", "matmul_dw m=9001 n=11 k=50", "matmul_dw m=1100 n=3 k=2400",
    };
    struct op_table *table = op_table_create();
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < ARRAY_LENGTH(specs) && isa_usable(isa); i++)
            for (int k = 0; k < 2; k++)
                check(table, specs[i], k ? DTYPE_BF16 : DTYPE_F32, isa, isa % 2, false);
    free(table);
}

// Outputs that may be written past the caches: of whole lines and of others, with one block of the summed dimension and
// (for matrix units alone, since it takes long) with two.
static void large_outputs_are_right(void **state) {
    (void)state;
    static const char *const specs[] = {"matmul m=1025 k=3 n=2080", "matmul m=2049 k=70 n=1032",
                                        "matmul_dx m=1040 n=5 k=2049", "matmul m=1025 k=6200 n=2080"};
    struct op_table *table = op_table_create();
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < ARRAY_LENGTH(specs) && isa_usable(isa); i++)
            if (isa == ISA_AMX || i + 1 < ARRAY_LENGTH(specs))
                check(table, specs[i], DTYPE_BF16, isa, false, true);
    free(table);
}

static void run(const struct kernel *kernel, struct call *call) {
    trireme_error error;
    assert_int_equal(kernel->prepare(call, &call->prepared, &call->workspace_bytes, &error), TRIREME_OK);
    call->workspace = aligned_alloc(64, (size_t)(call->workspace_bytes + 63) / 64 * 64);
    kernel->run(call);
    free(call->workspace);
}

static struct tensor matrix(enum dtype dtype, void *data, int64_t rows, int64_t columns, int64_t row) {
    return (struct tensor){.data = data, .dtype = dtype, .ndim = 2, .dim = {rows, columns}, .stride = {row, 1}};
}

// Values of an operand, in the model's type.
static void *values(int64_t count, enum dtype dtype, int64_t factor) {
    void *p = aligned_alloc(64, (size_t)(count * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)(i * factor % 10007) / 10007 - 0.5f;
        if (dtype == DTYPE_BF16)
            ((uint16_t *)p)[i] = bf16_from_float(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

// The first rows and columns of a product by themselves have the bits of all of it, so that a shard has those of the
// whole.
static void same_bits(enum op op, enum dtype model, enum isa isa, int64_t rows, int64_t columns, int64_t terms) {
    const int64_t few_rows = rows - 26, few_columns = columns - 31;
    const struct kernel *kernel = &cpu_kernel_table_for(model, isa)[op];
    const bool gradient = op == OP_MATMUL_DW;
    const enum dtype out = gradient ? DTYPE_F32 : model;
    void *a = values(rows * terms, model, 7919), *b = values(columns * terms, model, 7907);
    void *bias = values(columns, model, 31), *residual = values(rows * columns, model, 97);
    void *y[2] = {values(rows * columns, out, 89), values(rows * columns, out, 89)};
    for (int part = 0; part < 2; part++) {
        const int64_t m = part ? few_rows : rows, n = part ? few_columns : columns;
        struct call call = {.op = op, .inputs = gradient ? 2 : 4, .outputs = gradient ? 2 : 1, .threads = 1};
        call.accumulate = gradient;
        call.in[0] = gradient ? matrix(model, b, terms, n, columns) : matrix(model, a, m, terms, terms);
        call.in[1] = gradient ? matrix(model, a, terms, m, rows) : matrix(model, b, n, terms, terms);
        call.in[2] = (struct tensor){.data = bias, .dtype = model, .ndim = 1, .dim = {n}, .stride = {1}};
        call.in[3] = matrix(model, residual, m, n, columns);
        call.out[0] = matrix(out, y[part], m, n, columns);
        run(kernel, &call);
    }
    for (int64_t i = 0; i < few_rows; i++) {
        const int64_t at = i * columns * dtype_size(out);
        assert_memory_equal((char *)y[0] + at, (char *)y[1] + at, (size_t)(few_columns * dtype_size(out)));
    }
    free(a), free(b), free(bias), free(residual), free(y[0]), free(y[1]);
}

static void a_sum_does_not_depend_on_where_it_lies(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (int k = 0; k < 2 && isa_usable(isa); k++) {
            same_bits(OP_MATMUL_DW, k ? DTYPE_BF16 : DTYPE_F32, isa, 70, 70, 70);
            same_bits(OP_MATMUL, k ? DTYPE_BF16 : DTYPE_F32, isa, 1056, 2048, 33); // written past the caches
            if (isa == ISA_AMX && k)
                same_bits(OP_MATMUL, DTYPE_BF16, isa, 1056, 2048, 6200); // in two blocks
        }
}

// Not once more in each pass over the columns: here two, since the narrow way packs 512 columns of so many terms at a
// time, where rows are too many for threads to share out the columns.
static void bias_gradients_are_added_once(void **state) {
    (void)state;
    enum { TOKENS = 1024, OUT = 1025, IN = 530 };
    float *dy = values(TOKENS * OUT, DTYPE_F32, 0), *x = values(TOKENS * IN, DTYPE_F32, 0), db[OUT];
    float *dw = values(OUT * IN, DTYPE_F32, 0);
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
        const struct kernel *kernel = &cpu_kernel_table_for(DTYPE_F32, isa)[OP_MATMUL_DW];
        struct call call = {.op = OP_MATMUL_DW, .inputs = 2, .outputs = 2, .threads = 1, .accumulate = true};
        call.way = WAY_NARROW;
        call.in[0] = matrix(DTYPE_F32, x, TOKENS, IN, IN);
        call.in[1] = matrix(DTYPE_F32, dy, TOKENS, OUT, OUT);
        call.out[0] = matrix(DTYPE_F32, dw, OUT, IN, IN);
        call.out[1] = (struct tensor){.data = db, .dtype = DTYPE_F32, .ndim = 1, .dim = {OUT}, .stride = {1}};
        assert_true(kernel->ways(&call) >> WAY_NARROW & 1);
        for (int i = 0; i < OUT; i++)
            db[i] = 3;
        run(kernel, &call);
        for (int i = 0; i < OUT; i++)
            if (db[i] != 3 - 0.5f * TOKENS)
                fail_msg("%s: [%d] is %.9g", isa_name(isa), i, db[i]);
    }
    free(dy), free(x), free(dw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_products_are_right),
        cmocka_unit_test(large_outputs_are_right),
        cmocka_unit_test(a_sum_does_not_depend_on_where_it_lies),
        cmocka_unit_test(bias_gradients_are_added_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
