#include "kernels/kernels.h"

#include "kernels/cpu/isa.h"
#include "kernels/ref/ref.h"

static const struct kernel reference[OP_COUNT] = {
#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel) [OP_##id] = {.run = kernel},
#define PREPARED(id, name, signature, adjoint, attributes, flops, inplace, kernel, prepare_) \
    [OP_##id] = {.run = kernel, .prepare = prepare_},
#include "program/ops.def"
#undef OP
};

struct kernel kernel_find(enum op op, enum dtype model, enum kernel_set set) {
    CHECK(op >= 0 && op < OP_COUNT);
    if (set == KERNELS_FAST) {
        const struct kernel *fast = cpu_kernel_table(model);
        if (fast && fast[op].run)
            return fast[op];
    }
    return reference[op];
}
