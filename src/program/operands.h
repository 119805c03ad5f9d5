// Operands and attributes of the ops by their names in ops.def: `in[INPUT(LOGITS_DX, own)]` is input `own` of an
// instruction of that op. A name that the row does not have does not compile. Only kernels, which are each of one row,
// index by number. Code that is about all ops of a role asks for an operand by what it means (op_meaning).
#ifndef PROGRAM_OPERANDS_H
#define PROGRAM_OPERANDS_H

enum {
#define INPUT_NAME(op, name, number) INPUT_##op##_##name = number,
#define OUTPUT_NAME(op, name, number) OUTPUT_##op##_##name = number,
#define ATTRIBUTE_NAME(op, name, number) ATTRIBUTE_##op##_##name = number,
#define INPUT_COUNT(op, number) INPUTS_##op = number,
#define OUTPUT_COUNT(op, number) OUTPUTS_##op = number,
#define ATTRIBUTE_COUNT(op, number) ATTRIBUTES_##op = number,
#include "program/operand_names.def"
#undef INPUT_NAME
#undef OUTPUT_NAME
#undef ATTRIBUTE_NAME
#undef INPUT_COUNT
#undef OUTPUT_COUNT
#undef ATTRIBUTE_COUNT
};

#define INPUT(op, name) INPUT_##op##_##name
#define OUTPUT(op, name) OUTPUT_##op##_##name
#define ATTRIBUTE(op, name) ATTRIBUTE_##op##_##name
// How many of them the row has.
#define INPUTS(op) INPUTS_##op
#define OUTPUTS(op) OUTPUTS_##op
#define ATTRIBUTES(op) ATTRIBUTES_##op
// All inputs, or all outputs, of an instruction that is emitted, each by its name, as the two arguments that say so:
//   program_emit(program, template, OP_ADD, phase, layer, GIVEN(ADD, [INPUT(ADD, a)] = x, [INPUT(ADD, b)] = r), 1, &y,
//   NULL)
// Optional ones that are absent are operand_none() here; one that is forgotten has no dims, which the verifier refuses.
#define GIVEN(op, ...)                               \
    INPUTS(op), (const struct operand[INPUTS(op)]) { \
        __VA_ARGS__                                  \
    }
#define MADE(op, ...)                                  \
    OUTPUTS(op), (const struct operand[OUTPUTS(op)]) { \
        __VA_ARGS__                                    \
    }

#endif
