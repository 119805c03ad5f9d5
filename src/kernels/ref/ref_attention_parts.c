// Attention over the parts of sequences that several ranks have: as a whole, and the pieces that ranks make it of. What
// queries see of one part is attention to those keys alone, and its log-sum-exp; two such results merge into that of
// both sets of keys (Dao et al., "FlashAttention", arXiv 2205.14135, section 3.1). A piece of backward needs the final
// log-sum-exp and delta = sum(do o) alone, so that pieces add up (Liu et al., "Ring Attention", arXiv 2310.01889).
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"
#include "program/places.h"

#include <math.h>

enum { TILE = 256 }; // head elements summed at a time; scores are computed again for each further tile
enum { ALL = -1 };   // in place of a part: rows are those of all parts, one after another

// Which rows are which tokens, and which of these see which.
struct sight {
    struct places places;
    int64_t queries, keys, window; // parts
    const struct tensor *starts;
};

// Of a row as a whole.
static struct sight sight_of_all(const struct call *call) {
    const int64_t parts = call->attribute[ATTRIBUTE(ATTENTION_PARTS, parts)].i;
    return (struct sight){
        .places = {call->attribute[ATTRIBUTE(ATTENTION_PARTS, layout)].i, parts, call->in[0].dim[1] / parts},
        .queries = ALL,
        .keys = ALL,
        .window = call->attribute[ATTRIBUTE(ATTENTION_PARTS, window)].i,
        .starts = &call->in[INPUT(ATTENTION_PARTS, starts)]};
}

// Of a piece: what `first` and attributes say of its queries and keys.
static struct sight sight_of_piece(const struct call *call, int first) {
    const int64_t rows = call->in[0].dim[1];
    struct sight s = {.places = {call->attribute[ATTRIBUTE(ATTENTION_BLOCK, layout)].i,
                                 call->attribute[ATTRIBUTE(ATTENTION_BLOCK, parts)].i, rows},
                      .window = call->attribute[ATTRIBUTE(ATTENTION_BLOCK, window)].i,
                      .starts = &call->in[INPUT(ATTENTION_BLOCK, starts)]};
    const int64_t own = tensor_int(&call->in[first], 0) / rows;
    const int64_t inner = call->attribute[ATTRIBUTE(ATTENTION_BLOCK, inner)].i;
    s.queries = places_before(&s.places, own, call->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i, inner);
    s.keys = places_before(&s.places, own, call->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i, inner);
    return s;
}

static int64_t place_of_row(const struct sight *s, int64_t part, int64_t row) {
    return part == ALL ? place_of(&s->places, row / s->places.rows, row % s->places.rows)
                       : place_of(&s->places, part, row);
}

// Whether query row t of batch row b sees key row j.
static bool sees(const struct sight *s, int64_t b, int64_t t, int64_t j) {
    const int64_t query = place_of_row(s, s->queries, t), key = place_of_row(s, s->keys, j);
    const int64_t start = tensor_int(s->starts, at2(s->starts, b, t));
    return start <= key && key <= query && (s->window == 0 || query - key < s->window);
}

// The scaled score of a query and a key, which a cap keeps within (-cap, cap).
static double score_of(const struct call *call, int64_t b, int64_t t, int64_t h, int64_t j) {
    const struct tensor *q = &call->in[0], *k = &call->in[1];
    const double scale = call->attribute[ATTRIBUTE(ATTENTION_PARTS, scale)].f,
                 cap = call->attribute[ATTRIBUTE(ATTENTION_PARTS, cap)].f;
    const int64_t group = q->dim[2] / k->dim[2];
    const double s = scale * tensor_dot(q, at4(q, b, t, h, 0), k, at4(k, b, j, h / group, 0), q->dim[3]);
    return cap > 0 ? cap * math_tanh(s / cap) : s;
}

// ---- forward

// The log of the sum of exp(score) over a sink and the keys that a query sees; none: -infinity.
static double lse_of(const struct call *call, const struct sight *s, double sink, int64_t b, int64_t t, int64_t h) {
    double largest = sink, total = 0;
    for (int64_t j = 0; j < call->in[1].dim[1]; j++)
        if (sees(s, b, t, j))
            largest = fmax(largest, score_of(call, b, t, h, j));
    if (largest == -INFINITY)
        return -INFINITY;
    total = math_exp(sink - largest);
    for (int64_t j = 0; j < call->in[1].dim[1]; j++)
        if (sees(s, b, t, j))
            total += math_exp(score_of(call, b, t, h, j) - largest);
    return largest + math_log(total);
}

// The share of a part of the softmax in that of two.
static double share_of(double lse, double both) {
    return lse == -INFINITY ? 0 : math_exp(lse - both);
}

static double lse_of_both(double a, double b) {
    const double largest = fmax(a, b);
    return largest == -INFINITY ? -INFINITY : largest + math_log(math_exp(a - largest) + math_exp(b - largest));
}

static double sink_of(const struct tensor *sinks, int64_t h) {
    return tensor_present(sinks) ? tensor_get(sinks, at1(sinks, h)) : -INFINITY;
}

// Writes what a query sees, weighted for a softmax whose log-sum-exp is `lse`, plus `share` of what `before` (NULL:
// nothing) has.
static void attend(const struct call *call, const struct sight *s, double lse, const struct tensor *before,
                   double share, int64_t b, int64_t t, int64_t h) {
    const struct tensor *v = &call->in[2], *o = &call->out[0];
    const int64_t group = call->in[0].dim[2] / v->dim[2];
    for (int64_t d0 = 0; d0 < o->dim[3]; d0 += TILE) {
        double sum[TILE];
        const int64_t n = MIN(TILE, o->dim[3] - d0);
        for (int64_t d = 0; d < n; d++)
            sum[d] = before ? share * tensor_get(before, at4(before, b, t, h, d0 + d)) : 0;
        for (int64_t j = 0; j < v->dim[1]; j++) {
            if (!sees(s, b, t, j))
                continue;
            const double p = math_exp(score_of(call, b, t, h, j) - lse);
            for (int64_t d = 0; d < n; d++)
                sum[d] += p * tensor_get(v, at4(v, b, j, h / group, d0 + d));
        }
        for (int64_t d = 0; d < n; d++)
            tensor_set(o, at4(o, b, t, h, d0 + d), sum[d]);
    }
}

void ref_attention_parts(const struct call *call) {
    const struct sight s = sight_of_all(call);
    const struct tensor *o = &call->out[0], *lse = &call->out[1], *sunk = &call->out[2];
    for (int64_t b = 0; b < o->dim[0]; b++)
        for (int64_t t = 0; t < o->dim[1]; t++)
            for (int64_t h = 0; h < o->dim[2]; h++) {
                const double sink = sink_of(&call->in[INPUT(ATTENTION_PARTS, sinks)], h),
                             l = lse_of(call, &s, sink, b, t, h);
                attend(call, &s, l, NULL, 0, b, t, h);
                tensor_set(lse, at3(lse, b, h, t), l);
                if (tensor_present(sunk))
                    tensor_set(sunk, at3(sunk, b, h, t), math_exp(sink - l));
            }
}

void ref_attention_block(const struct call *call) {
    const struct sight s = sight_of_piece(call, INPUT(ATTENTION_BLOCK, first));
    const struct tensor *before = &call->in[INPUT(ATTENTION_BLOCK, before)],
                        *before_lse = &call->in[INPUT(ATTENTION_BLOCK, before_lse)], *o = &call->out[0],
                        *lse = &call->out[1];
    const bool merges = tensor_present(before);
    for (int64_t b = 0; b < o->dim[0]; b++)
        for (int64_t t = 0; t < o->dim[1]; t++)
            for (int64_t h = 0; h < o->dim[2]; h++) {
                const double sink = sink_of(&call->in[INPUT(ATTENTION_BLOCK, sinks)], h);
                const double was = merges ? tensor_get(before_lse, at3(before_lse, b, h, t)) : -INFINITY;
                const double l = lse_of_both(was, lse_of(call, &s, sink, b, t, h));
                attend(call, &s, l, merges ? before : NULL, share_of(was, l), b, t, h);
                tensor_set(lse, at3(lse, b, h, t), l);
            }
}

// Whether something has come from the rank at the distance `from`: there is one.
static bool has_come(const struct tensor *first, int64_t rows, int64_t from, int64_t ranks) {
    const int64_t sender = (tensor_present(first) ? tensor_int(first, 0) / rows : 0) + from;
    return from == 0 || (sender >= 0 && sender < ranks);
}

void ref_attention_merge(const struct call *call) {
    const struct tensor *a = &call->in[0], *a_lse = &call->in[1], *b = &call->in[2], *b_lse = &call->in[3],
                        *o = &call->out[0], *lse = &call->out[1];
    const bool come = has_come(&call->in[INPUT(ATTENTION_MERGE, first)], o->dim[1],
                               call->attribute[ATTRIBUTE(ATTENTION_MERGE, from)].i,
                               call->attribute[ATTRIBUTE(ATTENTION_MERGE, ranks)].i);
    for (int64_t n = 0; n < o->dim[0]; n++)
        for (int64_t t = 0; t < o->dim[1]; t++)
            for (int64_t h = 0; h < o->dim[2]; h++) {
                const double x = tensor_get(a_lse, at3(a_lse, n, h, t)),
                             y = come ? tensor_get(b_lse, at3(b_lse, n, h, t)) : -INFINITY, l = lse_of_both(x, y);
                for (int64_t d = 0; d < o->dim[3]; d++)
                    tensor_set(o, at4(o, n, t, h, d),
                               share_of(x, l) * tensor_get(a, at4(a, n, t, h, d)) +
                                   (come ? share_of(y, l) * tensor_get(b, at4(b, n, t, h, d)) : 0));
                tensor_set(lse, at3(lse, n, h, t), l);
            }
}

// Into the place and the dtype of the result, element for element.
static void copy_heads(const struct tensor *from, const struct tensor *to) {
    for (int64_t b = 0; b < to->dim[0]; b++)
        for (int64_t t = 0; t < to->dim[1]; t++)
            for (int64_t h = 0; h < to->dim[2]; h++)
                for (int64_t d = 0; d < to->dim[3]; d++)
                    tensor_set(to, at4(to, b, t, h, d), tensor_get(from, at4(from, b, t, h, d)));
}

void ref_attention_end(const struct call *call) {
    const struct tensor *seen_lse = &call->in[1], *lse = &call->out[1], *sunk = &call->out[2];
    copy_heads(&call->in[0], &call->out[0]);
    for (int64_t b = 0; b < lse->dim[0]; b++)
        for (int64_t h = 0; h < lse->dim[1]; h++)
            for (int64_t t = 0; t < lse->dim[2]; t++) {
                const double l = tensor_get(seen_lse, at3(seen_lse, b, h, t));
                tensor_set(lse, at3(lse, b, h, t), l);
                if (tensor_present(sunk))
                    tensor_set(sunk, at3(sunk, b, h, t), math_exp(sink_of(&call->in[2], h) - l));
            }
}

void ref_attention_pack(const struct call *call) {
    copy_heads(&call->in[0], &call->out[0]);
    copy_heads(&call->in[1], &call->out[1]);
}

void ref_attention_pack_queries(const struct call *call) {
    const struct tensor *starts = &call->in[INPUT(ATTENTION_PACK_QUERIES, starts)],
                        *own_starts = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_starts)],
                        *lse = &call->in[INPUT(ATTENTION_PACK_QUERIES, lse)],
                        *own_lse = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_lse)],
                        *own_do = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_do)];
    copy_heads(&call->in[INPUT(ATTENTION_PACK_QUERIES, q)], &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_q)]);
    if (tensor_present(own_do))
        copy_heads(&call->in[INPUT(ATTENTION_PACK_QUERIES, do)], own_do);
    for (int64_t b = 0; b < starts->dim[0]; b++)
        for (int64_t t = 0; t < starts->dim[1]; t++)
            ((int32_t *)own_starts->data)[at2(own_starts, b, t)] = (int32_t)tensor_int(starts, at2(starts, b, t));
    for (int64_t b = 0; tensor_present(own_lse) && b < lse->dim[0]; b++)
        for (int64_t h = 0; h < lse->dim[1]; h++)
            for (int64_t t = 0; t < lse->dim[2]; t++)
                tensor_set(own_lse, at3(own_lse, b, h, t), tensor_get(lse, at3(lse, b, h, t)));
}

// ---- backward

static double delta_of(const struct tensor *o, const struct tensor *d_o, int64_t b, int64_t t, int64_t h) {
    return tensor_dot(o, at4(o, b, t, h, 0), d_o, at4(d_o, b, t, h, 0), o->dim[3]);
}

void ref_attention_delta(const struct call *call) {
    const struct tensor *delta = &call->out[0];
    for (int64_t b = 0; b < delta->dim[0]; b++)
        for (int64_t h = 0; h < delta->dim[1]; h++)
            for (int64_t t = 0; t < delta->dim[2]; t++)
                tensor_set(delta, at3(delta, b, h, t), delta_of(&call->in[0], &call->in[1], b, t, h));
}

// What backward reads of its queries, by query row and head.
struct seen_once {
    const struct tensor *lse, *d_o, *delta; // delta NULL: it follows from o
    const struct tensor *o;
};

// One query and one key that it sees: its probability, and the gradient of the product of the two.
static void pair_of(const struct call *call, const struct seen_once *of, int64_t b, int64_t t, int64_t h, int64_t j,
                    double *p, double *ds) {
    const struct tensor *v = &call->in[2];
    const double scale = call->attribute[ATTRIBUTE(ATTENTION_PARTS, scale)].f,
                 cap = call->attribute[ATTRIBUTE(ATTENTION_PARTS, cap)].f, s = score_of(call, b, t, h, j),
                 delta = of->delta ? tensor_get(of->delta, at3(of->delta, b, h, t)) : delta_of(of->o, of->d_o, b, t, h);
    const int64_t group = call->in[0].dim[2] / v->dim[2];
    *p = math_exp(s - tensor_get(of->lse, at3(of->lse, b, h, t)));
    const double dp = tensor_dot(of->d_o, at4(of->d_o, b, t, h, 0), v, at4(v, b, j, h / group, 0), v->dim[3]);
    *ds = *p * (dp - delta) * scale * (cap > 0 ? 1 - s / cap * (s / cap) : 1);
}

static void backward_queries(const struct call *call, const struct sight *s, const struct seen_once *of) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *dq = &call->out[0];
    const struct tensor *before = of->delta ? &call->in[INPUT(ATTENTION_BLOCK_BWD, before)] : NULL;
    const int64_t group = q->dim[2] / k->dim[2];
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t t = 0; t < q->dim[1]; t++)
            for (int64_t h = 0; h < q->dim[2]; h++)
                for (int64_t d0 = 0; d0 < q->dim[3]; d0 += TILE) {
                    const int64_t n = MIN(TILE, q->dim[3] - d0);
                    double sum[TILE] = {0}, p, ds;
                    for (int64_t d = 0; d < n && before && tensor_present(before); d++)
                        sum[d] = tensor_get(before, at4(before, b, t, h, d0 + d));
                    for (int64_t j = 0; j < k->dim[1]; j++) {
                        if (!sees(s, b, t, j))
                            continue;
                        pair_of(call, of, b, t, h, j, &p, &ds);
                        for (int64_t d = 0; d < n; d++)
                            sum[d] += ds * tensor_get(k, at4(k, b, j, h / group, d0 + d));
                    }
                    for (int64_t d = 0; d < n; d++)
                        tensor_set(dq, at4(dq, b, t, h, d0 + d), sum[d]);
                }
}

// A key of head g sums over the heads of its group and, for each, over the queries that see it.
static void backward_key(const struct call *call, const struct sight *s, const struct seen_once *of, int64_t b,
                         int64_t j, int64_t g) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *dk = &call->out[1], *dv = &call->out[2];
    const int64_t group = q->dim[2] / k->dim[2];
    for (int64_t d0 = 0; d0 < q->dim[3]; d0 += TILE) {
        const int64_t n = MIN(TILE, q->dim[3] - d0);
        double sum_k[TILE] = {0}, sum_v[TILE] = {0}, p, ds;
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            for (int64_t t = 0; t < q->dim[1]; t++) {
                if (!sees(s, b, t, j))
                    continue;
                pair_of(call, of, b, t, h, j, &p, &ds);
                for (int64_t d = 0; d < n; d++) {
                    sum_k[d] += ds * tensor_get(q, at4(q, b, t, h, d0 + d));
                    sum_v[d] += p * tensor_get(of->d_o, at4(of->d_o, b, t, h, d0 + d));
                }
            }
        for (int64_t d = 0; d < n; d++) {
            tensor_set(dk, at4(dk, b, j, g, d0 + d), sum_k[d]);
            tensor_set(dv, at4(dv, b, j, g, d0 + d), sum_v[d]);
        }
    }
}

static void backward(const struct call *call, const struct sight *s, const struct seen_once *of) {
    const struct tensor *k = &call->in[1];
    backward_queries(call, s, of);
    for (int64_t b = 0; b < k->dim[0]; b++)
        for (int64_t j = 0; j < k->dim[1]; j++)
            for (int64_t g = 0; g < k->dim[2]; g++)
                backward_key(call, s, of, b, j, g);
}

void ref_attention_parts_bwd(const struct call *call) {
    const struct sight s = sight_of_all(call);
    const struct seen_once of = {.lse = &call->in[INPUT(ATTENTION_PARTS_BWD, lse)],
                                 .d_o = &call->in[INPUT(ATTENTION_PARTS_BWD, do)],
                                 .o = &call->in[INPUT(ATTENTION_PARTS_BWD, o)]};
    backward(call, &s, &of);
}

void ref_attention_block_bwd(const struct call *call) {
    const struct sight s = sight_of_piece(call, INPUT(ATTENTION_BLOCK_BWD, first));
    const struct seen_once of = {.lse = &call->in[INPUT(ATTENTION_BLOCK_BWD, lse)],
                                 .d_o = &call->in[INPUT(ATTENTION_BLOCK_BWD, do)],
                                 .delta = &call->in[INPUT(ATTENTION_BLOCK_BWD, delta)]};
    backward(call, &s, &of);
}

void ref_attention_add(const struct call *call) {
    for (int i = 0; i < 2; i++) {
        const struct tensor *x = &call->in[INPUT(ATTENTION_ADD, before) + i],
                            *y = &call->in[INPUT(ATTENTION_ADD, other) + i], *sum = &call->out[i];
        const bool come = has_come(&call->in[INPUT(ATTENTION_ADD, first)], call->out[0].dim[1],
                                   call->attribute[ATTRIBUTE(ATTENTION_ADD, from)].i,
                                   call->attribute[ATTRIBUTE(ATTENTION_ADD, ranks)].i);
        for (int64_t b = 0; tensor_present(sum) && b < sum->dim[0]; b++)
            for (int64_t t = 0; t < sum->dim[1]; t++)
                for (int64_t g = 0; g < sum->dim[2]; g++)
                    for (int64_t d = 0; d < sum->dim[3]; d++)
                        tensor_set(sum, at4(sum, b, t, g, d),
                                   tensor_get(x, at4(x, b, t, g, d)) + (come ? tensor_get(y, at4(y, b, t, g, d)) : 0));
    }
}

void ref_attention_bwd_end(const struct call *call) {
    for (int k = 0; k < 3; k++)
        copy_heads(&call->in[k], &call->out[k]);
}
