// Ops that do for each head, by weights of its own, what another op does for rows.
#ifndef KERNELS_HEADS_H
#define KERNELS_HEADS_H

#include "kernels/kernels.h"

// What of an operand is head h's: of [m, heads, width] its rows, of [heads, n] its numbers.
static inline struct tensor head_tensor(const struct tensor *t, int64_t h) {
    const int head = t->ndim == 3;
    struct tensor own = {.dtype = t->dtype, .ndim = t->ndim - 1};
    for (int d = 0, to = 0; d < t->ndim; d++)
        if (d != head) {
            own.dim[to] = t->dim[d];
            own.stride[to++] = t->stride[d];
        }
    if (t->data)
        own.data = (char *)t->data + h * t->stride[head] * dtype_size(t->dtype);
    return own;
}

// The call for head h of one whose first input is [m, heads, width].
static inline struct call head_call(const struct call *call, int64_t h) {
    struct call own = *call;
    for (int i = 0; i < call->inputs; i++)
        own.in[i] = head_tensor(&call->in[i], h);
    for (int i = 0; i < call->outputs; i++)
        own.out[i] = head_tensor(&call->out[i], h);
    return own;
}

static inline void for_heads(const struct call *call, void (*run)(const struct call *call)) {
    for (int64_t h = 0; h < call->in[0].dim[1]; h++) {
        const struct call own = head_call(call, h);
        run(&own);
    }
}

#endif
