// From an instruction to a call: what a kernel sees of its operands.
#ifndef KERNELS_CALL_H
#define KERNELS_CALL_H

#include "kernels/kernels.h"

// The dtype that the instruction's kernels are chosen by: of its P operands, else of its A operands, else f32.
enum dtype instruction_dtype(const struct program *program, const struct op_table *table,
                             const struct instruction *instruction);
// Operands' shapes, strides and dtypes, attributes and threads; no data, no workspace. Present operands get a
// non-NULL `data` that must not be followed.
void call_describe(struct call *call, const struct program *program, const struct instruction *instruction,
                   int threads);

#endif
