// What the harness's files share.
#ifndef SUPPORT_OPS_INTERNAL_H
#define SUPPORT_OPS_INTERNAL_H

#include "support/ops.h"

int64_t tensor_elements(const struct tensor *t);
// Position (as tensor_get takes it) of the element that comes `index`-th in row-major order.
int64_t tensor_position(const struct tensor *t, int64_t index);
// How many elements lie side by side from each index that is a multiple of that number.
int64_t tensor_run(const struct tensor *t);
// Copies element by element, whatever the layouts and dtypes.
void tensor_copy(const struct tensor *from, const struct tensor *to);
// The first element of an output whose bits differ between two instances of one layout; NONE where none does.
int64_t op_instance_differs(const struct op_instance *a, const struct op_instance *b, int output);
struct kernel reference_of(enum op op);
// For the case of a backward op: makes the operands of its forward op, with the outputs computed. Only dtype and seed
// of `options` count; inputs that both ops have are present in both or absent in both.
trireme_status op_instance_forward(struct op_instance *forward, const struct op_table *table, const char *spec,
                                   const struct op_options *options, trireme_error *error);
// Prepares the kernel and makes its workspace, which op_instance_run does by itself.
trireme_status op_instance_prepare(struct op_instance *instance, const struct kernel *kernel, trireme_error *error);

#endif
