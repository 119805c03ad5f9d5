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
// Gives operands whose buffers have extents fewer rows: `of` of every `rows` that they have, but at least one each.
void call_shorten(struct call *call, const struct program *program, const struct instruction *instruction, int64_t of,
                  int64_t rows);
// Whether some operand has an extent.
bool instruction_is_bounded(const struct program *program, const struct instruction *instruction);
// kernel->prepare, which may be NULL, of an instruction's call, with a workspace that also serves when there are fewer
// rows: kernels may then work in another way. Where extents lie between those that are asked about, it may still be too
// small; then run_counted of exec/ takes the reference kernel.
trireme_status instruction_prepare(const struct kernel *kernel, const struct call *call, const struct program *program,
                                   const struct instruction *instruction, void **prepared, int64_t *workspace_bytes,
                                   trireme_error *error);

#endif
