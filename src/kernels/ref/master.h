// The values that optimizers update: of a parameter in bf16 with a remainder the exact f32 master weight (bf16.h), else
// the parameter itself.
#ifndef KERNELS_REF_MASTER_H
#define KERNELS_REF_MASTER_H

#include "kernels/ref/tensor.h"

static inline double parameter_get(const struct tensor *p, const struct tensor *rem, int64_t i) {
    if (!tensor_present(rem))
        return tensor_get(p, at1(p, i));
    return master_join(((const uint16_t *)p->data)[at1(p, i)], ((const uint16_t *)rem->data)[at1(rem, i)]);
}

static inline void parameter_set(const struct tensor *p, const struct tensor *rem, int64_t i, double x) {
    if (!tensor_present(rem))
        tensor_set(p, at1(p, i), x);
    else
        master_split((float)x, (uint16_t *)p->data + at1(p, i), (uint16_t *)rem->data + at1(rem, i));
}

#endif
