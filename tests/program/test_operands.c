// The names by which code speaks of operands and attributes are those of the rows, in their order.
#include "program/operands.h"
#include "program/ops.h"
#include "support/op_table.h"
#include "support/test.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_rows),
        cmocka_unit_test(meanings_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
