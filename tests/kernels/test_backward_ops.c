// Every backward op, in its reference kernel, against finite differences of its forward op: driven by ops.def alone.
#include "support/ops.h"

#include "support/test.h"

static void check_op(const struct op_table *table, enum op op) {
    const struct op_info *info = &table->op[op];
    struct kernel reference = kernel_find(op, DTYPE_F64, KERNELS_REFERENCE);
    int64_t total = 0;
    for (size_t i = 0; i < op_case_count; i++) {
        const struct op_case *c = &op_cases[i];
        if (!(c->uses & OPS_GRADIENT) || op_case_op(table, c) != op)
            continue;
        unsigned optional = op_optional(info), absent = 0;
        do { // every subset of the optional operands
            trireme_error error;
            int64_t checked;
            if (op_gradient(table, c->spec, absent, &reference, &checked, &error) != TRIREME_OK)
                fail_msg("%s", error.message);
            total += checked;
            absent = (absent - optional) & optional;
        } while (absent);
    }
    bool adjoint = info->role == ROLE_BACKWARD || info->role == ROLE_LOSS;
    for (int i = 0; i < info->inputs; i++)
        adjoint |= info->identity[i] && info->role != ROLE_AID;
    if (adjoint && total == 0)
        fail_msg("%s has an adjoint but no case for its gradient in tests/support/ops_cases.c", info->name);
    if (!adjoint && total != 0)
        fail_msg("%s has gradients but no adjoint", info->name);
}

static void every_adjoint_agrees_with_finite_differences(void **state) {
    (void)state;
    struct op_table *table = op_table_create();
    for (int op = 0; op < OP_COUNT; op++)
        if (table->op[op].role != ROLE_COMMUNICATION)
            check_op(table, (enum op)op);
    free(table);
}

// Attention, the norms and the rest are differentiable in every float input: some backward op must contribute each.
static void every_input_of_a_differentiated_op_has_a_gradient(void **state) {
    (void)state;
    struct op_table *table = op_table_create();
    for (int f = 0; f < OP_COUNT; f++) {
        const struct op_info *forward = &table->op[f];
        unsigned contributed = 0;
        for (int b = 0; b < OP_COUNT; b++)
            for (int o = 0; o < table->op[b].outputs; o++)
                if (table->op[b].role == ROLE_BACKWARD && table->op[b].forward == (enum op)f)
                    contributed |= 1u << table->op[b].contributes[o].index;
        for (int i = 0; contributed && i < forward->inputs; i++)
            if (forward->in[i].dtype == 'P' && !(contributed >> i & 1) && !forward->identity[i])
                fail_msg("no op gives the gradient of %s's input %s", forward->name, forward->in[i].name);
    }
    free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_adjoint_agrees_with_finite_differences),
        cmocka_unit_test(every_input_of_a_differentiated_op_has_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
