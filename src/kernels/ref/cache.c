// Attention over a key-value cache, for generation: rows of one sequence, the first of which is at position at[0].
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

#include <math.h>

enum { TILE = 256 };

static void copy_rows(const struct tensor *from, const struct tensor *to, int64_t first) {
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
            copy_rows(&call->in[3 + i], &call->out[i], 0);
        copy_rows(&call->in[i], &call->out[i], at);
    }
}

void ref_attention_cached(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *o = &call->out[0];
    double scale = call->attribute[0].f;
    int64_t window = call->attribute[1].i, at = tensor_int(&call->in[3], 0);
    int64_t group = q->dim[1] / k->dim[1], width = q->dim[2];
    for (int64_t m = 0; m < q->dim[0]; m++)
        for (int64_t h = 0; h < q->dim[1]; h++) {
            int64_t g = h / group, q_at = at3(q, m, h, 0), last = at + m;
            int64_t first = window > 0 ? MAX(0, last - window + 1) : 0;
            double largest = -INFINITY, total = 0;
            for (int64_t j = first; j <= last; j++) {
                double s = scale * tensor_dot(q, q_at, k, at3(k, j, g, 0), width);
                largest = s > largest ? s : largest;
            }
            for (int64_t j = first; j <= last; j++)
                total += math_exp(scale * tensor_dot(q, q_at, k, at3(k, j, g, 0), width) - largest);
            for (int64_t d0 = 0; d0 < width; d0 += TILE) {
                double sum[TILE] = {0};
                int64_t n = MIN(TILE, width - d0);
                for (int64_t j = first; j <= last; j++) {
                    double p = math_exp(scale * tensor_dot(q, q_at, k, at3(k, j, g, 0), width) - largest) / total;
                    for (int64_t d = 0; d < n; d++)
                        sum[d] += p * tensor_get(v, at3(v, j, g, 0) + d0 + d);
                }
                for (int64_t d = 0; d < n; d++)
                    tensor_set(o, at3(o, m, h, 0) + d0 + d, sum[d]);
            }
        }
}
