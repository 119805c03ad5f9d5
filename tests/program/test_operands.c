// The names by which code speaks of operands and attributes are those of the rows, in their order.
#include "program/operands.h"
#include "program/ops.h"
#include "program/structure.h"
#include "support/checkpoint.h"
#include "support/op_table.h"

static void names_are_those_of_the_rows(void **unused) {
    (void)unused;
    int names = 0, rows = 0;
#define INPUT_NAME(op_id, operand, number)                                               \
    assert_string_equal(table->op[OP_##op_id].in[INPUT(op_id, operand)].name, #operand); \
    names++;
#define OUTPUT_NAME(op_id, operand, number)                                                \
    assert_string_equal(table->op[OP_##op_id].out[OUTPUT(op_id, operand)].name, #operand); \
    names++;
#define ATTRIBUTE_NAME(op_id, attribute_name, number)                                                             \
    assert_string_equal(table->op[OP_##op_id].attribute[ATTRIBUTE(op_id, attribute_name)].name, #attribute_name); \
    names++;
#define INPUT_COUNT(op_id, number) assert_int_equal(table->op[OP_##op_id].inputs, INPUTS(op_id)), rows++;
#define OUTPUT_COUNT(op_id, number) assert_int_equal(table->op[OP_##op_id].outputs, OUTPUTS(op_id));
#define ATTRIBUTE_COUNT(op_id, number) assert_int_equal(table->op[OP_##op_id].attributes, ATTRIBUTES(op_id));
#include "program/operand_names.def"
    assert_int_equal(rows, OP_COUNT);
    int expected = 0;
    for (int op = 0; op < OP_COUNT; op++)
        expected += table->op[op].inputs + table->op[op].outputs + table->op[op].attributes;
    assert_int_equal(names, expected);
}

static void meanings_are_found_by_name(void **unused) {
    (void)unused;
    const struct op_info *adamw = &table->op[OP_ADAMW], *clip = &table->op[OP_CLIP], *add = &table->op[OP_ADD];
    assert_int_equal(adamw->input_of[MEANING_PARAMETER], INPUT(ADAMW, p));
    assert_int_equal(adamw->gradient, INPUT(ADAMW, g));
    assert_int_equal(adamw->input_of[MEANING_UPDATES], INPUT(ADAMW, t));
    assert_int_equal(clip->output_of[MEANING_FINITE], OUTPUT(CLIP, finite));
    assert_int_equal(clip->input_of[MEANING_FINITE], -1);
    assert_int_equal(add->input_of[MEANING_TARGETS], -1);
    assert_int_equal(add->gradient, -1);
}

// Each operand goes where its name says, in whatever order they are written; one that is forgotten is refused, while
// one that is absent is not.
static void operands_are_given_by_name(void **unused) {
    (void)unused;
    struct program p;
    const int64_t dim[2] = {4, 4};
    program_init(&p, "named", 1);
    int template = program_template(&p, "all", PHASE_FORWARD, 0);
    struct operand of[3];
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"x", "w", "y"};
        of[i] = operand_whole(
            &p, program_buffer(&p, names[i], DTYPE_F32, i < 2 ? KIND_INPUT : KIND_OUTPUT, SCOPE_STEP, 2, dim));
    }
    const struct instruction *in =
        program_emit(&p, template, OP_MATMUL, PHASE_FORWARD, NONE,
                     GIVEN(MATMUL, [INPUT(MATMUL, r)] = operand_none(), [INPUT(MATMUL, w)] = of[1],
                           [INPUT(MATMUL, b)] = operand_none(), [INPUT(MATMUL, x)] = of[0]),
                     MADE(MATMUL, [OUTPUT(MATMUL, y)] = of[2]), NULL);
    assert_int_equal(in->inputs, 4);
    assert_int_equal(in->outputs, 1);
    assert_int_equal(in->in[0].buffer, of[0].buffer);
    assert_int_equal(in->in[1].buffer, of[1].buffer);
    assert_int_equal(in->in[3].buffer, NONE);
    program_invoke(&p, template, 0, true, true);
    trireme_error error = {0};
    assert_ok(program_check(&p, table, &error), &error);
    program_emit(&p, template, OP_MATMUL, PHASE_FORWARD, NONE,
                 GIVEN(MATMUL, [INPUT(MATMUL, x)] = of[0], [INPUT(MATMUL, b)] = operand_none(),
                       [INPUT(MATMUL, r)] = operand_none()),
                 MADE(MATMUL, [OUTPUT(MATMUL, y)] = of[2]), NULL);
    assert_refused(program_check(&p, table, &error), TRIREME_ERROR_PROGRAM, &error, "operand w");
    program_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_rows),
        cmocka_unit_test(meanings_are_found_by_name),
        cmocka_unit_test(operands_are_given_by_name),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
