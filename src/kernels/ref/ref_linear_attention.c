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
#include "base/math.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/tensor.h"

// One head of one batch row.
struct head {
    const struct call *call;
    int64_t b, h, length, keys, values; // keys, values: K and V
    double scale;
    double *state; // [K, V]
};

static struct head head_of(const struct call *call, int64_t b, int64_t h) {
    const struct tensor *q = &call->in[0], *v = &call->in[2];
    return (struct head){.call = call,
                         .b = b,
                         .h = h,
                         .length = q->dim[1],
                         .keys = q->dim[3],
                         .values = v->dim[3],
                         .scale = call->attribute[0].f,
                         .state = call->workspace};
}

// Element i of token t of an operand.
static double head_get(const struct head *s, const struct tensor *x, int64_t t, int64_t i) {
    return tensor_get(x, at4(x, s->b, t, s->h, i));
}

static void head_set(const struct head *s, const struct tensor *x, int64_t t, int64_t i, double value) {
    tensor_set(x, at4(x, s->b, t, s->h, i), value);
}

static bool begins_document(const struct head *s, int64_t t) {
    const struct tensor *starts = &s->call->in[4];
    return t == 0 || tensor_int(starts, at2(starts, s->b, t)) == t;
}

// What is left of row i of the state when token t comes.
static double kept_at(const struct head *s, int64_t t, int64_t i) {
    return begins_document(s, t) ? 0 : math_exp(head_get(s, &s->call->in[3], t, i));
}

// Adds a token: row i of the state becomes kept[i] times it, plus factor x[i] y. `from`: the token that `kept` is of;
// `at`: that of x and y. A state before the first one, whatever it is, is not kept.
static void state_step(const struct head *s, int64_t from, int64_t at, const struct tensor *x, const struct tensor *y,
                       double factor) {
    for (int64_t i = 0; i < s->keys; i++) {
        const double kept = from < s->length ? kept_at(s, from, i) : 0, into = factor * head_get(s, x, at, i);
        double *row = s->state + i * s->values;
        for (int64_t j = 0; j < s->values; j++)
            row[j] = (kept == 0 ? 0 : kept * row[j]) + into * head_get(s, y, at, j);
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

// The state, and of backward q dq of all tokens and a row more.
trireme_status ref_linear_attention_prepare(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                            trireme_error *error) {
    (void)error;
    const struct head s = head_of(call, 0, 0);
    *prepared = NULL;
    *workspace_bytes = (s.keys * s.values + (s.length + 1) * s.keys) * (int64_t)sizeof(double);
    return TRIREME_OK;
}

void ref_linear_attention(const struct call *call) {
    const struct tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *o = &call->out[0];
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t h = 0; h < q->dim[2]; h++) {
            const struct head s = head_of(call, b, h);
            for (int64_t t = 0; t < s.length; t++) {
                state_step(&s, t, t, k, v, 1);
                for (int64_t j = 0; j < s.values; j++)
                    head_set(&s, o, t, j, s.scale * state_column(&s, j, q, t));
            }
        }
}

static void backward_head(const struct head *s) {
    const struct tensor *in = s->call->in, *q = &in[0], *k = &in[1], *v = &in[2], *d_o = &in[5];
    const struct tensor *dq = &s->call->out[0], *dk = &s->call->out[1], *dv = &s->call->out[2],
                        *ddecay = &s->call->out[3];
    double *of_q = s->state + s->keys * s->values, *sum = of_q + s->length * s->keys;
    for (int64_t t = 0; t < s->length; t++) {
        state_step(s, t, t, k, v, 1);
        for (int64_t i = 0; i < s->keys; i++) {
            const double d = s->scale * state_row(s, i, d_o, t);
            of_q[t * s->keys + i] = head_get(s, q, t, i) * d;
            head_set(s, dq, t, i, d);
        }
    }
    for (int64_t t = s->length - 1; t >= 0; t--) {
        state_step(s, t + 1, t, q, d_o, s->scale);
        for (int64_t j = 0; j < s->values; j++)
            head_set(s, dv, t, j, state_column(s, j, k, t));
        const bool ends = t + 1 == s->length || begins_document(s, t + 1);
        for (int64_t i = 0; i < s->keys; i++) {
            const double d = state_row(s, i, v, t);
            head_set(s, dk, t, i, d);
            sum[i] = (ends ? 0 : sum[i]) + of_q[t * s->keys + i] - head_get(s, k, t, i) * d;
            head_set(s, ddecay, t, i, begins_document(s, t) ? 0 : sum[i]);
        }
    }
}

void ref_linear_attention_bwd(const struct call *call) {
    const struct tensor *q = &call->in[0];
    for (int64_t b = 0; b < q->dim[0]; b++)
        for (int64_t h = 0; h < q->dim[2]; h++) {
            const struct head s = head_of(call, b, h);
            backward_head(&s);
        }
}
