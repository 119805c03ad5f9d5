#include "kernels/kernels.h"

#include "kernels/cpu/isa.h"
#include "kernels/ref/ref.h"

static void (*const reference[OP_COUNT])(const struct call *call) = {
#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel) [OP_##id] = kernel,
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
    return (struct kernel){.run = reference[op], .prepare = op == OP_NEWTON_SCHULZ ? ref_newton_schulz_prepare : NULL};
}
