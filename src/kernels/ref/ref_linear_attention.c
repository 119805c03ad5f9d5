// Gated linear attention (Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv
// 2312.06635, section 4), token after token, with document boundaries. A head's state S is [K, V]:
//
//   S_t = diag(exp(decay_t)) S_{t-1} + k_t v_t',  zero before the first token of a document;  o_t = scale S_t' q_t
//
// Backward walks from the last token to the first with R_t, the gradient of S_t:
//
//   R_t = diag(exp(decay_{t+1})) R_{t+1} + scale q_t do_t';  dk_t = R_t v_t;  dv_t = R_t' k_t;  dq_t = scale S_t do_t
//
// The sums b_t = decay_1 + ... + decay_t of a document enter o only as exp(b_i) with q_i and as exp(-b_j) with k_j. So
// the gradient of b_t is q_t dq_t - k_t dk_t, and that of decay_t is the sum of these from t to the document's end.
//
// Several ranks may have neighbouring parts of a sequence (Sun et al., "LASP-2", arXiv 2502.07563). A part from a state
// of zero makes M, and what is left of row i of a state before it is kept_i, the product of its decays, or zero where a
// document begins in it. So the state goes on as kept S + M; and the gradient R of the state behind a part as kept R +
// D, D being what the part's own outputs make of the gradient. The sum of the gradients of b_t behind a part is, row by
// row, that of S R: all of them scale the same rows of the state between the two.
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

// The rows of one head of one batch row that are one part of a sequence.
struct head {
    const struct tensor *decay, *starts; // starts NULL: one document
    int64_t b, h, row, length;           // row: the part's first, in operands
    int64_t place;                       // of that row in the sequence
    int64_t keys, values;                // K and V
    double scale;
    double *state, *after, *sum, *of_q; // [K, V], [K, V], [K], [length, K]
};

// The one head of all rows, of operands q and v.
static struct head head_of(const struct call *call, const struct tensor *q, const struct tensor *v,
                           const struct tensor *decay, const struct tensor *starts, int64_t b, int64_t h) {
    struct head s = {.decay = decay,
                     .starts = starts,
                     .b = b,
                     .h = h,
                     .length = q->dim[1],
                     .keys = q->dim[3],
                     .values = v->dim[3],
                     .state = call->workspace};
    s.after = s.state + s.keys * s.values;
    s.sum = s.after + s.keys * s.values;
    s.of_q = s.sum + s.keys;
    return s;
}

// Element i of token t of an operand.
static double head_get(const struct head *s, const struct tensor *x, int64_t t, int64_t i) {
    return tensor_get(x, at4(x, s->b, s->row + t, s->h, i));
}

static void head_set(const struct head *s, const struct tensor *x, int64_t t, int64_t i, double value) {
    tensor_set(x, at4(x, s->b, s->row + t, s->h, i), value);
}

static bool begins_document(const struct head *s, int64_t t) {
    const int64_t place = s->place + t;
    return place == 0 || (s->starts && tensor_int(s->starts, at2(s->starts, s->b, s->row + t)) == place);
}

// What is left of row i of the state when token t comes.
static double kept_at(const struct head *s, int64_t t, int64_t i) {
    return begins_document(s, t) ? 0 : math_exp(head_get(s, s->decay, t, i));
}

// What is not kept is gone, whatever it was.
static double kept_of(double kept, double value) {
    return kept == 0 ? 0 : kept * value;
}

// Multiplies the rows of the state by what token t keeps of them.
static void state_keep(const struct head *s, int64_t t) {
    for (int64_t i = 0; i < s->keys; i++) {
        const double kept = kept_at(s, t, i);
        for (int64_t j = 0; j < s->values; j++)
            s->state[i * s->values + j] = kept_of(kept, s->state[i * s->values + j]);
    }
}

// Adds factor x y' of token t.
static void state_add(const struct head *s, int64_t t, const struct tensor *x, const struct tensor *y, double factor) {
    for (int64_t i = 0; i < s->keys; i++) {
        const double into = factor * head_get(s, x, t, i);
        for (int64_t j = 0; j < s->values; j++)
            s->state[i * s->values + j] += into * head_get(s, y, t, j);
    }
}

// Row i of the state times elements of a token.
static double state_row(const struct head *s, int64_t i, const struct tensor *y, int64_t t) {
    double sum = 0;
    for (int64_t j = 0; j < s->values; j++)
        sum += s->state[i * s->values + j] * head_get(s, y, t, j);
    return sum;
}

static double state_column(const struct head *s, int64_t j, const struct tensor *x, int64_t t) {
    double sum = 0;
    for (int64_t i = 0; i < s->keys; i++)
        sum += s->state[i * s->values + j] * head_get(s, x, t, i);
    return sum;
}

static void state_clear(const struct head *s) {
    for (int64_t k = 0; k < s->keys * s->values; k++)
        s->state[k] = 0;
}

// Element (i, j) of a state of this head that an operand has from row `row` on.
static int64_t state_at(const struct head *s, const struct tensor *x, int64_t row, int64_t i, int64_t j) {
    return at4(x, s->b, s->h, row + i, j);
}

static void state_load(const struct head *s, const struct tensor *x, int64_t row) {
    for (int64_t k = 0; k < s->keys * s->values; k++)
        s->state[k] = tensor_get(x, state_at(s, x, row, k / s->values, k % s->values));
}

static void state_store(const struct head *s, const struct tensor *x, int64_t row) {
    for (int64_t k = 0; k < s->keys * s->values; k++)
        tensor_set(x, state_at(s, x, row, k / s->values, k % s->values), s->state[k]);
}

// The state, and of backward its gradient behind a part, a row, and q dq of all tokens.
trireme_status ref_linear_attention_prepare(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                            trireme_error *error) {
    (void)error;
    const struct tensor *q = &call->in[0], *v = &call->in[INPUT(LINEAR_ATTENTION, v)];
    *prepared = NULL;
    const int64_t rows = q->dim[q->ndim - 3], keys = q->dim[q->ndim - 1], values = v->dim[v->ndim - 1];
    *workspace_bytes = keys * (2 * values + rows + 1) * (int64_t)sizeof(double);
    return TRIREME_OK;
}

trireme_status ref_linear_state_prepare(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                        trireme_error *error) {
    (void)error;
    *prepared = NULL;
    *workspace_bytes = call->out[0].dim[2] * call->out[0].dim[3] * (int64_t)sizeof(double);
    return TRIREME_OK;
}

_Static_assert(INPUT(LINEAR_ATTENTION, starts) == INPUT(LINEAR_PARTS, starts) &&
                   INPUT(LINEAR_ATTENTION, starts) == INPUT(LINEAR_BLOCK, starts) &&
                   INPUT(LINEAR_ATTENTION, starts) == INPUT(LINEAR_BLOCK_BWD, starts) &&
                   INPUT(LINEAR_PARTS_BWD, before) == INPUT(LINEAR_BLOCK_BWD, before) &&
                   INPUT(LINEAR_PARTS_BWD, do) == INPUT(LINEAR_BLOCK_BWD, do) &&
                   INPUT(LINEAR_PARTS_BWD, before) == INPUT(LINEAR_BLOCK, before),
               "in the same places");

// The head of rows that have queries, keys and values.
static struct head mixed_head(const struct call *call, int64_t b, int64_t h) {
    const struct tensor *in = call->in;
    struct head s = head_of(call, &in[0], &in[2], &in[3], &in[INPUT(LINEAR_ATTENTION, starts)], b, h);
    s.scale = call->attribute[0].f;
    return s;
}

// Part `part` of `parts` of all rows.
static void take_part(struct head *s, int64_t part, int64_t parts, int64_t rows) {
    s->length = rows / parts;
    s->row = s->place = part * s->length;
}

// ---- forward

// From the state at hand to that behind the part.
static void forward_part(const struct head *s, const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *o = &call->out[0];
    for (int64_t t = 0; t < s->length; t++) {
        state_keep(s, t);
        state_add(s, t, k, v, 1);
        for (int64_t j = 0; j < s->values; j++)
            head_set(s, o, t, j, s->scale * state_column(s, j, q, t));
    }
}

void ref_linear_attention(const struct call *call) {
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            const struct head s = mixed_head(call, b, h);
            state_clear(&s);
            forward_part(&s, call);
        }
}

void ref_linear_parts(const struct call *call) {
    const int64_t parts = call->attribute[ATTRIBUTE(LINEAR_PARTS, parts)].i;
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            struct head s = mixed_head(call, b, h);
            state_clear(&s);
            for (int64_t part = 0; part < parts; part++) {
                take_part(&s, part, parts, call->in[0].dim[1]);
                state_store(&s, &call->out[OUTPUT(LINEAR_PARTS, before)], part * s.keys);
                forward_part(&s, call);
            }
        }
}

void ref_linear_block(const struct call *call) {
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            struct head s = mixed_head(call, b, h);
            s.place = tensor_int(&call->in[INPUT(LINEAR_BLOCK, first)], 0);
            state_load(&s, &call->in[INPUT(LINEAR_BLOCK, before)], 0);
            forward_part(&s, call);
        }
}

// ---- generation

// A sequence alone as one of several.
static struct tensor as_one_of_several(const struct tensor *x) {
    struct tensor several = {.data = x->data, .dtype = x->dtype, .ndim = x->ndim + 1, .dim = {1}};
    memcpy(several.dim + 1, x->dim, (size_t)x->ndim * sizeof *x->dim);
    memcpy(several.stride + 1, x->stride, (size_t)x->ndim * sizeof *x->stride);
    return several;
}

void ref_linear_cached(const struct call *call) {
    struct call several = *call;
    for (int i = 0; i < 4; i++)
        several.in[i] = as_one_of_several(&call->in[i]);
    several.out[0] = as_one_of_several(&call->out[0]);
    const struct tensor state = as_one_of_several(&call->in[INPUT(LINEAR_CACHED, state)]),
                        state1 = as_one_of_several(&call->out[OUTPUT(LINEAR_CACHED, state1)]);
    for (int64_t h = 0; h < call->in[0].dim[1]; h++) {
        struct head s = mixed_head(&several, 0, h);
        const int64_t rows = s.length;
        s.starts = NULL;
        s.place = tensor_int(&call->in[INPUT(LINEAR_CACHED, at)], 0);
        s.length = tensor_int(&call->in[INPUT(LINEAR_CACHED, given)], 0);
        state_load(&s, &state, 0);
        forward_part(&s, &several);
        state_store(&s, &state1, 0);
        for (int64_t t = s.length; t < rows; t++)
            for (int64_t j = 0; j < s.values; j++)
                head_set(&s, &several.out[0], t, j, 0);
    }
}

// ---- what parts make alone

// The last column: what is left of each row of a state before the part.
static void keeps_store(const struct head *s, const struct tensor *own) {
    for (int64_t i = 0; i < s->keys; i++) {
        double kept = 1;
        for (int64_t t = 0; t < s->length; t++)
            kept *= kept_at(s, t, i);
        tensor_set(own, at4(own, s->b, s->h, i, s->values), kept);
    }
}

void ref_linear_state(const struct call *call) {
    const struct tensor *k = &call->in[INPUT(LINEAR_STATE, k)], *v = &call->in[INPUT(LINEAR_STATE, v)];
    for (int64_t b = 0; b < k->dim[0]; b++)
        for (int64_t h = 0; h < k->dim[2]; h++) {
            struct head s = head_of(call, k, v, &call->in[INPUT(LINEAR_STATE, decay)],
                                    &call->in[INPUT(LINEAR_STATE, starts)], b, h);
            s.place = tensor_int(&call->in[INPUT(LINEAR_STATE, first)], 0);
            state_clear(&s);
            for (int64_t t = 0; t < s.length; t++) {
                state_keep(&s, t);
                state_add(&s, t, k, v, 1);
            }
            state_store(&s, &call->out[0], 0);
            keeps_store(&s, &call->out[0]);
        }
}

void ref_linear_state_bwd(const struct call *call) {
    const struct tensor *q = &call->in[INPUT(LINEAR_STATE_BWD, q)], *d_o = &call->in[INPUT(LINEAR_STATE_BWD, do)];
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t h = 0; h < q->dim[2]; h++) {
            struct head s = head_of(call, q, d_o, &call->in[INPUT(LINEAR_STATE_BWD, decay)],
                                    &call->in[INPUT(LINEAR_STATE_BWD, starts)], b, h);
            s.place = tensor_int(&call->in[INPUT(LINEAR_STATE_BWD, first)], 0);
            state_clear(&s);
            for (int64_t t = s.length - 1; t >= 0; t--) {
                state_add(&s, t, q, d_o, call->attribute[ATTRIBUTE(LINEAR_STATE_BWD, scale)].f);
                state_keep(&s, t);
            }
            state_store(&s, &call->out[0], 0);
            keeps_store(&s, &call->out[0]);
        }
}

// One element after another, part after part, from the farthest on.
void ref_linear_join(const struct call *call) {
    const struct tensor *all = &call->in[INPUT(LINEAR_JOIN, all)], *before = &call->out[0];
    const bool later = call->attribute[ATTRIBUTE(LINEAR_JOIN, later)].i;
    const int64_t parts = call->attribute[ATTRIBUTE(LINEAR_JOIN, parts)].i, sequences = before->dim[0],
                  values = before->dim[3],
                  own =
                      tensor_int(&call->in[INPUT(LINEAR_JOIN, first)], 0) / call->in[INPUT(LINEAR_JOIN, starts)].dim[1],
                  begin = later ? parts - 1 : 0;
    for (int64_t b = 0; b < sequences; b++)
        for (int64_t h = 0; h < before->dim[1]; h++)
            for (int64_t i = 0; i < before->dim[2]; i++)
                for (int64_t j = 0; j < values; j++) {
                    double state = 0;
                    for (int64_t part = begin; part != own; part += later ? -1 : 1)
                        state = kept_of(tensor_get(all, at4(all, part * sequences + b, h, i, values)), state) +
                                tensor_get(all, at4(all, part * sequences + b, h, i, j));
                    tensor_set(before, at4(before, b, h, i, j), state);
                }
}

// ---- backward

// dq, and the state behind the part.
static void backward_queries(const struct head *s, const struct call *call, const struct tensor *d_o) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *dq = &call->out[0];
    for (int64_t t = 0; t < s->length; t++) {
        state_keep(s, t);
        state_add(s, t, k, v, 1);
        for (int64_t i = 0; i < s->keys; i++) {
            const double d = s->scale * state_row(s, i, d_o, t);
            s->of_q[t * s->keys + i] = head_get(s, q, t, i) * d;
            head_set(s, dq, t, i, d);
        }
    }
}

// dk, dv and the decays' gradients; from the gradient of the state behind the part to that of the state before it.
static void backward_keys(const struct head *s, const struct call *call, const struct tensor *d_o) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    const struct tensor *dk = &call->out[1], *dv = &call->out[2], *ddecay = &call->out[3];
    for (int64_t t = s->length - 1; t >= 0; t--) {
        state_add(s, t, q, d_o, s->scale);
        for (int64_t j = 0; j < s->values; j++)
            head_set(s, dv, t, j, state_column(s, j, k, t));
        const bool begins = begins_document(s, t);
        for (int64_t i = 0; i < s->keys; i++) {
            const double d = state_row(s, i, v, t);
            head_set(s, dk, t, i, d);
            s->sum[i] += s->of_q[t * s->keys + i] - head_get(s, k, t, i) * d;
            head_set(s, ddecay, t, i, begins ? 0 : s->sum[i]);
            s->sum[i] = begins ? 0 : s->sum[i];
        }
        state_keep(s, t);
    }
}

// Backward of a part from the state before it in `before` and the gradient `after` of the state behind it, both from
// their rows on. NULL: of zero.
static void backward_part(const struct head *s, const struct call *call, const struct tensor *d_o,
                          const struct tensor *before, int64_t before_row, const struct tensor *after) {
    state_clear(s);
    if (before)
        state_load(s, before, before_row);
    backward_queries(s, call, d_o);
    for (int64_t i = 0; i < s->keys; i++) {
        s->sum[i] = 0;
        for (int64_t j = 0; after && j < s->values; j++)
            s->sum[i] += s->state[i * s->values + j] * tensor_get(after, state_at(s, after, 0, i, j));
    }
    state_clear(s);
    if (after)
        state_load(s, after, 0);
    backward_keys(s, call, d_o);
}

void ref_linear_attention_bwd(const struct call *call) {
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            const struct head s = mixed_head(call, b, h);
            backward_part(&s, call, &call->in[INPUT(LINEAR_ATTENTION_BWD, do)], NULL, 0, NULL);
        }
}

void ref_linear_block_bwd(const struct call *call) {
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            struct head s = mixed_head(call, b, h);
            s.place = tensor_int(&call->in[INPUT(LINEAR_BLOCK_BWD, first)], 0);
            backward_part(&s, call, &call->in[INPUT(LINEAR_BLOCK_BWD, do)], &call->in[INPUT(LINEAR_BLOCK_BWD, before)],
                          0, &call->in[INPUT(LINEAR_BLOCK_BWD, after)]);
        }
}

// The last part first: what it leaves is the gradient of the state behind the part before it.
void ref_linear_parts_bwd(const struct call *call) {
    const int64_t parts = call->attribute[ATTRIBUTE(LINEAR_PARTS_BWD, parts)].i;
    const struct tensor *d_o = &call->in[INPUT(LINEAR_PARTS_BWD, do)],
                        *before = &call->in[INPUT(LINEAR_PARTS_BWD, before)];
    for (int64_t b = 0; b < call->in[0].dim[0]; b++)
        for (int64_t h = 0; h < call->in[0].dim[2]; h++) {
            struct head s = mixed_head(call, b, h);
            const struct tensor after = {.data = s.after,
                                         .dtype = DTYPE_F64,
                                         .ndim = 4,
                                         .dim = {1, 1, s.keys, s.values},
                                         .stride = {0, 0, s.values, 1}};
            memset(s.after, 0, (size_t)(s.keys * s.values) * sizeof *s.after);
            for (int64_t part = parts; part-- > 0;) {
                take_part(&s, part, parts, call->in[0].dim[1]);
                backward_part(&s, call, d_o, before, part * s.keys, &after);
                memcpy(s.after, s.state, (size_t)(s.keys * s.values) * sizeof *s.after);
            }
        }
}
