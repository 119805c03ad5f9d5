// From an instruction to a call: its operands as a kernel sees them.
#ifndef KERNELS_CALL_H
#define KERNELS_CALL_H

#include "kernels/kernels.h"

// The dtype by which the instruction's kernel is chosen: that of its P operands, else of its A operands, else f32.
enum dtype instruction_dtype(const struct program *program, const struct op_table *table,
                             const struct instruction *instruction);
// Fills in shapes, strides and dtypes of operands, attributes and threads; no data, no workspace. Operands that are
// present get a non-NULL `data` that must not be followed.
void call_describe(struct call *call, const struct program *program, const struct instruction *instruction,
                   int threads);

#endif
