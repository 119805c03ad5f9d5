// Scaled dot-product attention (Vaswani et al., "Attention Is All You Need", arXiv 1706.03762, equation 1), causal,
// with grouped key-value heads (Ainslie et al., "GQA", arXiv 2305.13245, section 2.2), a sliding window, document
// boundaries and sinks (gpt-oss; Xiao et al., arXiv 2309.17453, are where the name is from); and rotary positions (Su
// et al., "RoFormer", arXiv 2104.09864, equation 34) in the order of elements that Hugging Face's Llama uses: element i
// is rotated with element i + D/2.
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

#include <float.h>
#include <math.h>

enum { TILE = 256 }; // head elements summed at a time; scores are computed again for each further tile

// Where batch row b's head h of position t starts.
static int64_t head_at(const struct tensor *x, int64_t b, int64_t t, int64_t h) {
    return at4(x, b, t, h, 0);
}

// The position of query 0 (attention and its backward).
static int64_t first_position(const struct call *call) {
    return call->in[4].data ? tensor_int(&call->in[4], 0) : 0;
}

// The first key that query t of batch row b attends to; the last is that of its own position.
static int64_t first_key(const struct call *call, int64_t b, int64_t t) {
    int64_t window = call->attribute[1].i, start = tensor_int(&call->in[3], at2(&call->in[3], b, t));
    return window > 0 ? MAX(start, first_position(call) + t - window + 1) : start;
}

// Where rows of consecutive positions lie: `width` elements from `at` on, rows `step` elements apart.
struct rows {
    const struct tensor *tensor;
    int64_t at, step;
};

// A scaled score, which a cap keeps within (-cap, cap): cap tanh(s / cap). No cap: 0.
static double capped(double s, double cap) {
    return cap > 0 ? cap * math_tanh(s / cap) : s;
}

// The score of head h beside those of keys; none: -infinity.
static double sink_of(const struct tensor *sinks, int64_t h) {
    return tensor_present(sinks) ? tensor_get(sinks, at1(sinks, h)) : -INFINITY;
}

// Writes sum over keys j of p[j] v[j], p = softmax(capped(scale q k[j])), to o and returns the log of the sum of
// exp(capped(scale q k[j])); both sums begin with `sink`, a score of value zero. One pass: whenever a larger score
// appears, what has been summed so far is scaled down (Milakov, Gimelshein, "Online normalizer calculation for
// softmax", arXiv 1805.02867, algorithm 3).
static double attention_attend(const struct tensor *q, int64_t q_at, struct rows k, struct rows v, int64_t keys,
                               double scale, double cap, double sink, int64_t width, const struct tensor *o,
                               int64_t o_at) {
    double largest, total;
    int64_t d0 = 0;
    do {
        double sum[TILE] = {0};
        int64_t n = MIN(TILE, width - d0);
        largest = fmax(sink, -DBL_MAX); // finite: a score of -infinity is no part of the sum, also where it comes first
        total = math_exp(sink - largest);
        for (int64_t j = 0; j < keys; j++) {
            double s = capped(scale * tensor_dot(q, q_at, k.tensor, k.at + j * k.step, width), cap);
            if (s > largest) {
                double shrink = math_exp(largest - s);
                total *= shrink;
                for (int64_t d = 0; d < n; d++)
                    sum[d] *= shrink;
                largest = s;
            }
            double p = math_exp(s - largest);
            total += p;
            for (int64_t d = 0; d < n; d++)
                sum[d] += p * tensor_get(v.tensor, v.at + j * v.step + d0 + d);
        }
        for (int64_t d = 0; d < n; d++)
            tensor_set(o, o_at + d0 + d, sum[d] / total);
        d0 += TILE;
    } while (d0 < width);
    return largest + math_log(total);
}

// Query t of batch row b attends to the keys from first_key to its own position.
void ref_attention(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    const struct tensor *o = &call->out[0], *lse = &call->out[1];
    int64_t group = q->dim[2] / k->dim[2];
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t t = 0; t < q->dim[1]; t++)
            for (int64_t h = 0; h < q->dim[2]; h++) {
                int64_t first = first_key(call, b, t), count = first_position(call) + t - first + 1;
                struct rows keys = {k, head_at(k, b, first, h / group), k->stride[1]};
                struct rows values = {v, head_at(v, b, first, h / group), v->stride[1]};
                const double sink = sink_of(&call->in[5], h);
                double l = attention_attend(q, head_at(q, b, t, h), keys, values, count, call->attribute[0].f,
                                            call->attribute[2].f, sink, q->dim[3], o, head_at(o, b, t, h));
                tensor_set(lse, at3(lse, b, h, t), l);
                if (tensor_present(&call->out[2]))
                    tensor_set(&call->out[2], at3(&call->out[2], b, h, t), math_exp(sink - l));
            }
}

// Over a key-value cache, for generation: row m of q is at position at[0] + m and attends to the cache up to it.
void ref_attention_cached(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *o = &call->out[0];
    int64_t group = q->dim[1] / k->dim[1], window = call->attribute[1].i;
    for (int64_t m = 0; m < q->dim[0]; m++)
        for (int64_t h = 0; h < q->dim[1]; h++) {
            int64_t last = tensor_int(&call->in[3], 0) + m, first = window > 0 ? MAX(0, last - window + 1) : 0;
            struct rows keys = {k, at3(k, first, h / group, 0), k->stride[0]};
            struct rows values = {v, at3(v, first, h / group, 0), v->stride[0]};
            attention_attend(q, at3(q, m, h, 0), keys, values, last - first + 1, call->attribute[0].f,
                             call->attribute[2].f, sink_of(&call->in[4], h), q->dim[2], o, at3(o, m, h, 0));
        }
}

// ---- backward

// One query (b, t, h) and one key (b, j, h / group): its probability, and the gradient of its scaled score,
// p (do v - do o), times scale, and times 1 - (s / cap)^2 where the score s is capped.
static void attention_pair(const struct call *call, int64_t b, int64_t t, int64_t h, int64_t j, double *p, double *ds) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    const struct tensor *o = &call->in[5], *lse = &call->in[6], *dout = &call->in[7];
    int64_t g = h / (q->dim[2] / k->dim[2]), width = q->dim[3];
    double scale = call->attribute[0].f, cap = call->attribute[2].f;
    double s = capped(scale * tensor_dot(q, head_at(q, b, t, h), k, head_at(k, b, j, g), width), cap);
    *p = math_exp(s - tensor_get(lse, at3(lse, b, h, t)));
    int64_t do_at = head_at(dout, b, t, h), o_at = head_at(o, b, t, h), v_at = head_at(v, b, j, g);
    double sum = 0;
    for (int64_t d = 0; d < width; d++)
        sum += tensor_get(dout, do_at + d) * (tensor_get(v, v_at + d) - tensor_get(o, o_at + d));
    *ds = *p * sum * scale * (cap > 0 ? 1 - s / cap * (s / cap) : 1);
}

static void attention_dq(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *dq = &call->out[0];
    int64_t group = q->dim[2] / k->dim[2], width = q->dim[3], first = first_position(call);
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t t = 0; t < q->dim[1]; t++)
            for (int64_t h = 0; h < q->dim[2]; h++)
                for (int64_t d0 = 0; d0 < width; d0 += TILE) {
                    double sum[TILE] = {0};
                    int64_t n = MIN(TILE, width - d0);
                    for (int64_t j = first_key(call, b, t); j <= first + t; j++) {
                        double p, ds;
                        attention_pair(call, b, t, h, j, &p, &ds);
                        for (int64_t d = 0; d < n; d++)
                            sum[d] += ds * tensor_get(k, head_at(k, b, j, h / group) + d0 + d);
                    }
                    for (int64_t d = 0; d < n; d++)
                        tensor_set(dq, head_at(dq, b, t, h) + d0 + d, sum[d]);
                }
}

// Each key sums over the heads of its group and, for each, over the queries that attend to it.
static void attention_dk_dv(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *dout = &call->in[7];
    const struct tensor *dk = &call->out[1], *dv = &call->out[2];
    int64_t group = q->dim[2] / k->dim[2], width = q->dim[3], first = first_position(call);
    for (int64_t b = 0; b < k->dim[0]; b++)
        for (int64_t j = 0; j < k->dim[1]; j++)
            for (int64_t g = 0; g < k->dim[2]; g++)
                for (int64_t d0 = 0; d0 < width; d0 += TILE) {
                    double sum_k[TILE] = {0}, sum_v[TILE] = {0};
                    int64_t n = MIN(TILE, width - d0);
                    for (int64_t h = g * group; h < (g + 1) * group; h++)
                        for (int64_t t = MAX(j - first, 0); t < q->dim[1]; t++) {
                            if (first_key(call, b, t) > j)
                                continue;
                            double p, ds;
                            attention_pair(call, b, t, h, j, &p, &ds);
                            for (int64_t d = 0; d < n; d++) {
                                sum_k[d] += ds * tensor_get(q, head_at(q, b, t, h) + d0 + d);
                                sum_v[d] += p * tensor_get(dout, head_at(dout, b, t, h) + d0 + d);
                            }
                        }
                    for (int64_t d = 0; d < n; d++) {
                        tensor_set(dk, head_at(dk, b, j, g) + d0 + d, sum_k[d]);
                        tensor_set(dv, head_at(dv, b, j, g) + d0 + d, sum_v[d]);
                    }
                }
}

void ref_attention_bwd(const struct call *call) {
    attention_dq(call);
    attention_dk_dv(call);
}

// A sink's value is zero, so that the gradient of its score is that of a key whose `do v` is: -p sum(do o).
void ref_attention_sinks_dw(const struct call *call) {
    const struct tensor *o = &call->in[0], *sunk = &call->in[1], *dout = &call->in[2], *ds = &call->out[0];
    for (int64_t h = 0; h < o->dim[2]; h++) {
        double sum = 0;
        for (int64_t b = 0; b < o->dim[0]; b++)
            for (int64_t t = 0; t < o->dim[1]; t++)
                sum -= tensor_get(sunk, at3(sunk, b, h, t)) *
                       tensor_dot(o, head_at(o, b, t, h), dout, head_at(dout, b, t, h), o->dim[3]);
        tensor_put(ds, at1(ds, h), sum, call->accumulate);
    }
}

// ---- rotary positions

// Rotates the leading heads of each row by the angles of its position, backwards if `sign` is -1, and copies the rest.
// table[position] = [cos of D/2 angles | sin of them]. Heads wider than D keep the rest of their elements. Output and
// input may be the same memory.
static void attention_rotate(const struct call *call, double sign) {
    const struct tensor *x = &call->in[0], *pos = &call->in[1], *table = &call->in[2], *y = &call->out[0];
    int64_t heads = call->attribute[0].i, half = table->dim[1] / 2, width = call->attribute[1].i ?: 2 * half;
    for (int64_t m = 0; m < x->dim[0]; m++) {
        int64_t angles = at1(table, tensor_int(pos, at1(pos, m)));
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t i = 2 * half; i < width; i++)
                tensor_set(y, at2(y, m, h * width + i), tensor_get(x, at2(x, m, h * width + i)));
            for (int64_t i = 0; i < half; i++) {
                double cosine = tensor_get(table, angles + i), sine = sign * tensor_get(table, angles + half + i);
                double a = tensor_get(x, at2(x, m, h * width + i)), b = tensor_get(x, at2(x, m, h * width + half + i));
                tensor_set(y, at2(y, m, h * width + i), a * cosine - b * sine);
                tensor_set(y, at2(y, m, h * width + half + i), b * cosine + a * sine);
            }
        }
        for (int64_t i = heads * width; i < x->dim[1]; i++)
            tensor_set(y, at2(y, m, i), tensor_get(x, at2(x, m, i)));
    }
}

void ref_rope(const struct call *call) {
    attention_rotate(call, 1);
}

void ref_rope_dx(const struct call *call) {
    attention_rotate(call, -1);
}
