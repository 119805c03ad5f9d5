// Tests of the harness for ops (support/ops.h): kernels with one planted fault each must be refused, for that reason.
#include "base/bf16.h"
#include "support/op_table.h"
#include "support/ops.h"

#include <math.h>

#include "support/test.h"

static void reference(const struct call *call) {
    kernel_find(call->op, DTYPE_F64, KERNELS_REFERENCE).run(call);
}

static void expect(const char *spec, const struct op_options *options, struct kernel kernel, const char *message) {
    trireme_error error = {0};
    struct op_options o = *options;
    o.threads = 1;
    o.seed = 7;
    trireme_status status = op_compare(table, spec, &o, &kernel, false, &error);
    if (!message && status != TRIREME_OK)
        fail_msg("refused a good kernel: %s", error.message);
    if (message && status == TRIREME_OK)
        fail_msg("accepted a bad kernel: %s", message);
    if (message && !strstr(error.message, message))
        fail_msg("'%s' does not say '%s'", error.message, message);
}

static const struct op_options plain = {.model = DTYPE_F32}, apart = {.model = DTYPE_F32, .strided = true},
                               onto = {.model = DTYPE_F32, .accumulate = true},
                               over = {.model = DTYPE_F32, .inplace = true}, bf16 = {.model = DTYPE_BF16};

static void good_kernels_pass(void **state) {
    (void)state;
    struct kernel kernel = {.run = reference};
    expect("add m=3 c=7", &plain, kernel, NULL);
    expect("add m=3 c=7", &apart, kernel, NULL);
    expect("embed v=5 m=3 C=7", &onto, kernel, NULL);
    expect("add m=3 c=7", &over, kernel, NULL);
    expect("add m=3 c=7", &bf16, kernel, NULL);
}

// ---- values

static void slightly_wrong(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[4] *= 1 + 1e-4f;
}

static void last_unit_wrong(const struct call *call) {
    reference(call);
    uint16_t *y = call->out[0].data;
    for (int i = 0; i < 21; i++)
        y[i] = (uint16_t)(y[i] + 3);
}

static void one_missing(const struct call *call) {
    float *y = call->out[0].data, kept = y[20];
    reference(call);
    y[20] = kept;
}

static void overwrites(const struct call *call) {
    struct call other = *call;
    other.accumulate = false;
    reference(&other);
}

static int runs;

static void random_bits(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[0] += 1e-7f * (float)(++runs % 2);
}

// Right unless the output is the input: the second of a pair reads what the first has overwritten.
static void reads_too_late(const struct call *call) {
    const float *x = call->in[0].data, *table_row = call->in[2].data;
    float *y = call->out[0].data;
    const int32_t *pos = call->in[1].data;
    for (int m = 0; m < 5; m++)
        for (int i = 0; i < 2; i++) {
            float c = table_row[pos[m] * 4 + i], s = table_row[pos[m] * 4 + 2 + i];
            y[4 * m + i] = x[4 * m + i] * c - x[4 * m + 2 + i] * s;
            y[4 * m + 2 + i] = x[4 * m + 2 + i] * c + x[4 * m + i] * s;
        }
}

static void wrong_values_are_refused(void **state) {
    (void)state;
    expect("add m=3 c=7", &plain, (struct kernel){.run = slightly_wrong}, "y[4] is");
    expect("add m=3 c=7", &bf16, (struct kernel){.run = last_unit_wrong}, "y[");
    expect("add m=3 c=7", &plain, (struct kernel){.run = one_missing}, "y[20] is");
    expect("embed v=5 m=3 C=7", &onto, (struct kernel){.run = overwrites}, "y[0] is");
    expect("add m=3 c=7", &plain, (struct kernel){.run = random_bits}, "two runs differ in y[0]");
    expect("rope m=5 S=9 D=4 c=4 heads=1", &plain, (struct kernel){.run = reads_too_late}, NULL);
    expect("rope m=5 S=9 D=4 c=4 heads=1", &over, (struct kernel){.run = reads_too_late}, "y[2] is");
}

// ---- memory

static void writes_behind(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[21] = 0;
}

static void writes_before(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[-1] = 0;
}

static void writes_between_rows(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[7] = 0;
}

static void writes_input(const struct call *call) {
    reference(call);
    ((float *)call->in[1].data)[0] = 0;
}

static void reads_behind(const struct call *call) {
    reference(call);
    ((float *)call->out[0].data)[20] += 1e-30f * ((const float *)call->in[0].data)[21];
}

static trireme_status asks_for_workspace(const struct call *call, void **prepared, int64_t *bytes,
                                         trireme_error *error) {
    (void)call;
    (void)prepared;
    (void)error;
    *bytes = 12;
    return TRIREME_OK;
}

static void overruns_workspace(const struct call *call) {
    reference(call);
    memset(call->workspace, 0, 13);
}

static void fills_workspace(const struct call *call) {
    reference(call);
    memset(call->workspace, 0, (size_t)call->workspace_bytes);
}

static void stray_accesses_are_refused(void **state) {
    (void)state;
    expect("add m=3 c=7", &plain, (struct kernel){.run = writes_behind}, "byte 84 of y's memory");
    expect("add m=3 c=7", &plain, (struct kernel){.run = writes_before}, "byte -4 of y's memory");
    expect("add m=3 c=7", &apart, (struct kernel){.run = writes_between_rows}, "of y's memory");
    expect("add m=3 c=7", &plain, (struct kernel){.run = writes_input}, "byte 0 of b's memory");
    expect("add m=3 c=7", &plain, (struct kernel){.run = reads_behind}, "y[20] is");
    struct kernel kernel = {.run = fills_workspace, .prepare = asks_for_workspace};
    expect("add m=3 c=7", &plain, kernel, NULL);
    kernel.run = overruns_workspace;
    expect("add m=3 c=7", &plain, kernel, "byte 12 of workspace's memory");
}

// ---- gradients

static void expect_gradient(const char *spec, void (*run)(const struct call *call), const char *message) {
    struct kernel kernel = {.run = run};
    trireme_error error = {0};
    int64_t checked;
    trireme_status status = op_gradient(table, spec, 0, &kernel, &checked, &error);
    if (!message) {
        assert_int_equal(status, TRIREME_OK);
        assert_true(checked > 0);
    } else if (status == TRIREME_OK || !strstr(error.message, message)) {
        fail_msg("%s: expected '%s', got '%s'", spec, message, error.message);
    }
}

static void scaled(const struct call *call) {
    reference(call);
    ((double *)call->out[0].data)[1] *= 1 + 1e-6;
}

static void forgets_pass(const struct call *call) {
    struct call other = *call;
    other.in[4].data = NULL;
    reference(&other);
}

static void scaled_logits(const struct call *call) {
    reference(call);
    for (int i = 0; i < 18; i++)
        ((double *)call->out[1].data)[i] *= 1 + 1e-6;
}

static void wrong_gradients_are_refused(void **state) {
    (void)state;
    expect_gradient("swiglu_dx m=1 c=6 f=3", reference, NULL);
    expect_gradient("swiglu_dx m=1 c=6 f=3", scaled, "dx[1] is");
    expect_gradient("matmul_dw m=2 k=2 n=2", scaled, "dw[1] is");
    expect_gradient("rmsnorm_dx m=2 C=3 eps=1e-5", reference, NULL);
    expect_gradient("rmsnorm_dx m=2 C=3 eps=1e-5", forgets_pass, "dx[0] is");
    expect_gradient("cross_entropy_grad m=2 V=9 vocab=7", reference, NULL);
    expect_gradient("cross_entropy_grad m=2 V=9 vocab=7", scaled_logits, "dlogits[");
}

// ---- distances

static void what_is_no_number_is_farthest(void **state) {
    (void)state;
    assert_true(farther(1, 2) == 2 && farther(2, 1) == 2 && farther(1, INFINITY) == INFINITY);
    double worst = 0;
    for (int i = 0; i < 3; i++)
        worst = farther(worst, i == 1 ? NAN : i);
    assert_true(isnan(worst));
}

// ---- cases

static void malformed_cases_are_refused(void **state) {
    (void)state;
    struct kernel kernel = {.run = reference};
    expect("", &plain, kernel, "name of an op");
    expect("ad m=3 c=7", &plain, kernel, "name of an op");
    expect("add m=3", &plain, kernel, "a dim of a has no extent");
    expect("add m=3 c=0", &plain, kernel, "a dim of a has no extent");
    expect("add m=3 c=7 d=1", &plain, kernel, "neither dim nor attribute 'd'");
    expect("add m=3 c", &plain, kernel, "expected NAME=NUMBER");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_kernels_pass),           cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(stray_accesses_are_refused),  cmocka_unit_test(wrong_gradients_are_refused),
        cmocka_unit_test(malformed_cases_are_refused), cmocka_unit_test(what_is_no_number_is_farthest),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
