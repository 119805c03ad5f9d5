// Matrix products and attention give the same bits whatever the number of threads.
#include "kernels/cpu/isa.h"
#include "support/ops_internal.h"

#include "support/test.h"

static bool is_checked(enum op op) {
    return op == OP_MATMUL || op == OP_MATMUL_DX || op == OP_MATMUL_DW || op == OP_ATTENTION ||
           op == OP_ATTENTION_BWD || op == OP_ATTENTION_CACHED;
}

static void assert_same(const struct op_instance *a, const struct op_instance *b, const char *spec, int threads) {
    for (int i = 0; i < a->info->outputs; i++) {
        int64_t e = op_instance_differs(a, b, i);
        if (e != NONE)
            fail_msg("%s: %s[%lld] with %d threads differs from that with one", spec, a->info->out[i].name,
                     (long long)e, threads);
    }
}

static void check_case(const struct op_table *table, const char *spec, enum op op, enum dtype model, enum isa isa) {
    struct kernel kernel = cpu_kernel_table_for(model, isa)[op];
    struct op_instance alone = {0};
    for (int threads = 1; threads <= 7; threads += 2) {
        struct op_options options = {.model = model, .seed = 3, .threads = threads};
        struct op_instance several = {0}, *instance = threads == 1 ? &alone : &several;
        trireme_error error = {0};
        if (op_instance_create(instance, table, spec, &options, &error) != TRIREME_OK ||
            op_instance_run(instance, &kernel, &error) != TRIREME_OK)
            fail_msg("%s", error.message);
        if (threads > 1)
            assert_same(&alone, &several, spec, threads);
        op_instance_release(&several);
    }
    op_instance_release(&alone);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    struct op_table *table = op_table_create();
    int checked = 0;
    for (size_t i = 0; i < op_case_count; i++) {
        enum op op = op_case_op(table, &op_cases[i]);
        if (!is_checked(op) || !(op_cases[i].uses & OPS_COMPARE))
            continue;
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
            for (int m = 0; m < 2 && isa_usable(isa); m++)
                check_case(table, op_cases[i].spec, op, m ? DTYPE_BF16 : DTYPE_F32, isa);
        checked++;
    }
    assert_true(checked > 20);
    free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_threads_gives_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
