// Every fast kernel, of every instruction set that this CPU runs, against its reference.
// `test_kernels_cpu --time [WORD]` instead times the cases whose line contains WORD, on all processors.
#include "kernels/cpu/isa.h"
#include "support/op_table.h"
#include "support/ops.h"
#include "support/sanitized.h"

#include <unistd.h>

#include "support/test.h"

enum { MOST_FAILURES = 20 };

// Ops without operands in the model's dtype are taken from the f32 table whatever the model.
static bool has_model_operand(const struct op_info *info) {
    bool found = false;
    for (int i = 0; i < info->inputs; i++)
        found |= info->in[i].dtype == 'P' || info->in[i].dtype == 'X';
    for (int i = 0; i < info->outputs; i++)
        found |= info->out[i].dtype == 'P' || info->out[i].dtype == 'X';
    return found;
}

// One case under every combination of accumulation, strides and outputs in place, one and two threads among them, and
// every subset of the optional operands. Returns the number of failures, each printed.
static int check_case(const char *spec, const struct op_info *info, enum dtype model, const struct kernel *kernel,
                      double accepted) {
    int failures = 0;
    for (unsigned k = 0; k < 8; k++) {
        if (SANITIZED && (k & 1) != (k >> 1 & 1))
            continue;
        unsigned optional = op_optional(info), absent = 0;
        do {
            struct op_options options = {.model = model, .seed = 5, .absent = absent, .accepted = accepted};
            options.accumulate = k & 1;
            options.strided = k & 2;
            options.inplace = k & 4;
            options.threads = 1 + __builtin_parity(k);
            trireme_error error;
            if (op_compare(table, spec, &options, kernel, false, &error) != TRIREME_OK) {
                print_error("%s\n", error.message);
                failures++;
            }
            absent = (absent - optional) & optional;
        } while (absent);
    }
    return failures;
}

// Matrix units multiply the two bf16 that a probability is the sum of: 15 bits and more (cpu/attention_matrix.h).
static double accepted_of(enum op op, enum dtype model, enum isa isa) {
    const bool parts = op == OP_ATTENTION_BLOCK || op == OP_ATTENTION_BLOCK_BWD;
    return parts && model == DTYPE_BF16 && isa == ISA_AMX ? 0x1p-15 : 0;
}

static void check_instruction_set(enum isa isa, enum dtype model) {
    const struct kernel *kernels = cpu_kernel_table_for(model, isa);
    int failures = 0, checked = 0;
    for (size_t i = 0; i < op_case_count && failures < MOST_FAILURES; i++) {
        enum op op = op_case_op(table, &op_cases[i]);
        assert_int_not_equal(op, OP_COUNT);
        const struct op_info *info = &table->op[op];
        if (!(op_cases[i].uses & OPS_COMPARE) || !kernels[op].run || (model == DTYPE_BF16 && !has_model_operand(info)))
            continue;
        failures += check_case(op_cases[i].spec, info, model, &kernels[op], accepted_of(op, model, isa));
        checked++;
    }
    if (failures)
        fail_msg("%s, %s: %d comparisons failed", isa_name(isa), dtype_name(model), failures);
    assert_true(checked > 0);
}

static void fast_kernels_agree_in_f32(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        if (isa_usable(isa))
            check_instruction_set(isa, DTYPE_F32);
}

static void fast_kernels_agree_in_bf16(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        if (isa_usable(isa))
            check_instruction_set(isa, DTYPE_BF16);
}

// Large ops must not fall back to the reference unnoticed.
static void what_matters_has_a_fast_kernel(void **state) {
    (void)state;
    for (size_t i = 0; i < op_case_count; i++) {
        enum op op = op_case_op(table, &op_cases[i]);
        for (int m = 0; m < 2 && (op_cases[i].uses & OPS_TIME); m++) {
            struct kernel fast = kernel_find(op, m ? DTYPE_BF16 : DTYPE_F32, KERNELS_FAST);
            if (fast.run == kernel_find(op, DTYPE_F32, KERNELS_REFERENCE).run)
                fail_msg("%s has no fast kernel in %s", table->op[op].name, m ? "bf16" : "f32");
        }
    }
}

static void f64_runs_on_the_reference(void **state) {
    (void)state;
    for (int op = 0; op < OP_COUNT; op++)
        assert_ptr_equal(kernel_find((enum op)op, DTYPE_F64, KERNELS_FAST).run,
                         kernel_find((enum op)op, DTYPE_F64, KERNELS_REFERENCE).run);
}

// A limit is the widest set that counts, one that is empty is none.
static void a_limit_of_the_environment_is_kept(void **state) {
    (void)state;
    const char *limit = getenv(ISA_LIMIT);
    char *before = limit ? mem_strdup(limit) : NULL;
    trireme_error error = {0};
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++) {
        setenv(ISA_LIMIT, isa_name(isa), 1);
        assert_int_equal(isa_check_limit(&error), TRIREME_OK);
        if (isa_usable(isa))
            assert_string_equal(isa_name(isa_best()), isa_name(isa));
    }
    unsetenv(ISA_LIMIT);
    const enum isa best = isa_best();
    setenv(ISA_LIMIT, "", 1);
    assert_int_equal(isa_check_limit(&error), TRIREME_OK);
    assert_int_equal(isa_best(), best);
    setenv(ISA_LIMIT, "mmx", 1);
    assert_int_equal(isa_check_limit(&error), TRIREME_ERROR_USAGE);
    if (before)
        setenv(ISA_LIMIT, before, 1);
    else
        unsetenv(ISA_LIMIT);
    free(before);
}

static int time_cases(const char *word) {
    table = op_table_create();
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    printf("%-72s %-5s %10s %10s\n", "case", "dtype", "ms", "GFLOP/s");
    for (size_t i = 0; i < op_case_count; i++)
        for (int m = 0; m < 2; m++) {
            if (!(op_cases[i].uses & OPS_TIME) || !strstr(op_cases[i].spec, word))
                continue;
            struct op_options options = {.model = m ? DTYPE_BF16 : DTYPE_F32, .threads = threads, .seed = 1};
            struct kernel kernel = kernel_find(op_case_op(table, &op_cases[i]), options.model, KERNELS_FAST);
            struct op_timing timing;
            trireme_error error;
            if (op_time(table, op_cases[i].spec, &options, &kernel, &timing, &error) != TRIREME_OK) {
                fprintf(stderr, "%s\n", error.message);
                return 1;
            }
            printf("%-72s %-5s %10.3f %10.1f\n", op_cases[i].spec, dtype_name(options.model), timing.seconds * 1e3,
                   timing.flops / timing.seconds * 1e-9);
        }
    free(table);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--time") == 0)
        return time_cases(argc > 2 ? argv[2] : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_kernels_agree_in_f32),          cmocka_unit_test(fast_kernels_agree_in_bf16),
        cmocka_unit_test(what_matters_has_a_fast_kernel),     cmocka_unit_test(f64_runs_on_the_reference),
        cmocka_unit_test(a_limit_of_the_environment_is_kept),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
