// What holds for every reference kernel: it writes its outputs and nothing else, takes any stride, may write over the
// inputs that ops.def names, adds when told to, and differs between dtypes only by rounding. What each one computes is
// tested by test_ref_ops.c and tests/grad.
#include "support/op_table.h"
#include "support/ops.h"

#include "support/test.h"

static void every_op_has_a_case(void **state) {
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const enum op_role role = table->op[op].role;
        bool found = role == ROLE_COMMUNICATION || role == ROLE_TRANSFER; // which have no kernel
        found |= role == ROLE_ENCODE || role == ROLE_DECODE;              // test_ref_values.c: codes are no numbers
        found |= op == OP_COMPRESS || op == OP_WEIGH_CODES;               // test_codecs.c
        for (size_t i = 0; i < op_case_count; i++)
            found |= op_case_op(table, &op_cases[i]) == (enum op)op && (op_cases[i].uses & OPS_COMPARE);
        if (!found)
            fail_msg("%s has no case to compare in tests/support/ops_cases.c", table->op[op].name);
    }
    for (size_t i = 0; i < op_case_count; i++)
        if (op_case_op(table, &op_cases[i]) == OP_COUNT)
            fail_msg("'%s' names no op", op_cases[i].spec);
}

static void layouts_do_not_change_results(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
    for (size_t i = 0; i < op_case_count; i++) {
        enum op op = op_case_op(table, &op_cases[i]);
        struct kernel reference = kernel_find(op, DTYPE_F32, KERNELS_REFERENCE);
        for (unsigned k = 0; k < 8 && (op_cases[i].uses & OPS_COMPARE); k++) {
            unsigned optional = op_optional(&table->op[op]), absent = 0;
            do {
                struct op_options options = {
                    .model = dtypes[k % 3], .threads = 1 + (int)(k & 1), .seed = 5, .absent = absent};
                options.accumulate = k & 1;
                options.strided = k & 2;
                options.inplace = k & 4;
                trireme_error error;
                if (op_compare(table, op_cases[i].spec, &options, &reference, true, &error) != TRIREME_OK)
                    fail_msg("%s", error.message);
                absent = (absent - optional) & optional;
            } while (absent);
        }
    }
}

static void dtypes_differ_by_rounding(void **state) {
    (void)state;
    for (size_t i = 0; i < op_case_count; i++)
        for (int k = 0; k < 2 && (op_cases[i].uses & OPS_COMPARE); k++) {
            trireme_error error;
            if (op_compare_dtypes(table, op_cases[i].spec, k ? DTYPE_BF16 : DTYPE_F32, &error) != TRIREME_OK)
                fail_msg("%s", error.message);
        }
}

// An accumulating run gives what was there plus what a plain run gives.
static void accumulation_adds(void **state) {
    (void)state;
    int accumulating = 0;
    for (size_t c = 0; c < op_case_count; c++) {
        if (!(op_cases[c].uses & OPS_COMPARE))
            continue;
        struct op_options options = {.model = DTYPE_F64, .threads = 1, .seed = 5};
        struct op_instance plain, added;
        trireme_error error;
        assert_int_equal(op_instance_create(&plain, table, op_cases[c].spec, &options, &error), TRIREME_OK);
        options.accumulate = true;
        assert_int_equal(op_instance_create(&added, table, op_cases[c].spec, &options, &error), TRIREME_OK);
        struct kernel reference = kernel_find(plain.info->op, DTYPE_F64, KERNELS_REFERENCE);
        struct {
            double *value;
            size_t count;
        } start[OP_MAX_OUT] = {0};
        for (int o = 0; o < plain.info->outputs; o++)
            if (added.call.out[o].dtype == DTYPE_F64 && added.call.out[o].data) {
                start[o].count = 1;
                for (int d = 0; d < added.call.out[o].ndim; d++)
                    start[o].count *= (size_t)added.call.out[o].dim[d];
                start[o].value = mem_alloc(start[o].count * sizeof(double));
                memcpy(start[o].value, added.call.out[o].data, start[o].count * sizeof(double));
            }
        assert_int_equal(op_instance_run(&plain, &reference, &error), TRIREME_OK);
        assert_int_equal(op_instance_run(&added, &reference, &error), TRIREME_OK);
        for (int o = 0; o < plain.info->outputs; o++) {
            bool adds = plain.info->out[o].adds;
            accumulating += adds;
            for (size_t i = 0; i < start[o].count; i++) {
                double expected = ((double *)plain.call.out[o].data)[i] + (adds ? start[o].value[i] : 0);
                double got = ((double *)added.call.out[o].data)[i];
                if (!(got == expected || (got - expected < 1e-12 && expected - got < 1e-12)))
                    fail_msg("%s: %s[%zu] is %.17g, should be %.17g", op_cases[c].spec, plain.info->out[o].name, i, got,
                             expected);
            }
            free(start[o].value);
        }
        op_instance_release(&plain);
        op_instance_release(&added);
    }
    assert_true(accumulating >= 20);
}

// The same bits with any compiler, on any machine: a hash of the outputs of one op of each kind, in f32, bf16 and f64.
static void bits_are_pinned(void **state) {
    (void)state;
    static const char *const specs[] = {
        "matmul m=33 k=65 n=17",
        "layernorm m=3 C=771 eps=1e-5",
        "rmsnorm_bwd m=3 C=771 eps=1e-6",
        "attention b=2 T=33 h=2 g=2 D=16 scale=0.25 window=7",
        "attention_bwd b=2 T=33 h=2 g=2 D=16 scale=0.25 window=7",
        "gelu_dx m=19 f=128 tanh=0",
        "gelu_dx m=19 f=128 tanh=1",
        "swiglu_dx m=19 c=256 f=128",
        "cross_entropy_grad m=30 V=256 vocab=256",
        "adamw n=1003 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1",
        "newton_schulz S=2 R=9 C=7 iterations=5 scale=0.4",
    };
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t s = 0; s < ARRAY_LENGTH(specs); s++)
        for (enum dtype model = DTYPE_F32; model <= DTYPE_F64; model++) {
            struct op_options options = {.model = model, .threads = 1, .seed = 5};
            struct op_instance instance;
            trireme_error error;
            assert_int_equal(op_instance_create(&instance, table, specs[s], &options, &error), TRIREME_OK);
            const struct kernel reference = kernel_find(instance.info->op, model, KERNELS_REFERENCE);
            assert_int_equal(op_instance_run(&instance, &reference, &error), TRIREME_OK);
            for (int o = 0; o < instance.info->outputs; o++)
                for (size_t i = 0; instance.out[o].base && i < instance.out[o].bytes; i++)
                    hash = (hash ^ instance.out[o].base[i]) * 0x100000001b3;
            op_instance_release(&instance);
        }
    if (hash != 0x54ee55257102410c)
        fail_msg("the hash is %#llx", (unsigned long long)hash);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_case),       cmocka_unit_test(layouts_do_not_change_results),
        cmocka_unit_test(dtypes_differ_by_rounding), cmocka_unit_test(accumulation_adds),
        cmocka_unit_test(bits_are_pinned),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
