// The key-value cache of generation (attention over it is in attention.c).
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

static void cache_copy_rows(const struct tensor *from, const struct tensor *to, int64_t first) {
    for (int64_t m = 0; m < from->dim[0]; m++)
        for (int64_t g = 0; g < from->dim[1]; g++)
            for (int64_t d = 0; d < from->dim[2]; d++)
                tensor_set(to, at3(to, first + m, g, d), tensor_get(from, at3(from, m, g, d)));
}

// The cache with rows k and v from position at[0] on; usually the caches going in and out are the same memory.
void ref_cache_append(const struct call *call) {
    int64_t at = tensor_int(&call->in[2], 0);
    for (int i = 0; i < 2; i++) {
        if (call->in[3 + i].data != call->out[i].data)
            cache_copy_rows(&call->in[3 + i], &call->out[i], 0);
        cache_copy_rows(&call->in[i], &call->out[i], at);
    }
}
