// What joins the pieces of attention over parts (attention.c and attention_bwd.c compute these): copies, sums and the
// merger of two results. A turn has tokens, with all their heads.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

#include <math.h>

// Where token `row` of all sequences has its head h.
static char *token_head(const struct tensor *x, int64_t row, int64_t h) {
    const int64_t at = row / x->dim[1] * x->stride[0] + row % x->dim[1] * x->stride[1] + h * x->stride[2];
    return (char *)x->data + at * dtype_size(x->dtype);
}

// Of the numbers [batch, heads, tokens], that of token `row` of all sequences.
static float *token_number(const struct tensor *x, int64_t row, int64_t h) {
    return (float *)x->data + (row / x->dim[2] * x->dim[1] + h) * x->dim[2] + row % x->dim[2];
}

static void run_tokens(const struct call *call, const struct tensor *x,
                       void (*body)(const void *args, int64_t from, int64_t to), const void *args) {
    const int64_t tokens = x->dim[0] * x->dim[1];
    run_split(call, tokens, tokens * x->dim[2] * x->dim[3], body, args);
}

struct heads_copy {
    const struct tensor *from, *to;
};

static void copy_tokens(const void *args, int64_t first, int64_t end) {
    const struct tensor *from = ((const struct heads_copy *)args)->from, *to = ((const struct heads_copy *)args)->to;
    for (int64_t row = first; row < end; row++)
        for (int64_t h = 0; h < to->dim[2]; h++)
            if (from->dtype == to->dtype)
                memcpy(token_head(to, row, h), token_head(from, row, h), (size_t)(to->dim[3] * dtype_size(to->dtype)));
            else
                attention_store(token_head(to, row, h), to->dtype, (const float *)token_head(from, row, h), to->dim[3]);
}

// The same elements, or floats in the dtype of the result.
static void copy_heads(const struct call *call, const struct tensor *from, const struct tensor *to) {
    run_tokens(call, to, copy_tokens, &(struct heads_copy){from, to});
}

void ISA(cpu_attention_pack)(const struct call *call) {
    for (int i = 0; i < 2; i++)
        copy_heads(call, &call->in[i], &call->out[i]);
}

// Numbers [batch, heads, tokens] lie as they are counted.
static void copy_numbers(const struct tensor *from, const struct tensor *to) {
    memcpy(to->data, from->data, (size_t)(to->dim[0] * to->dim[1] * to->dim[2]) * sizeof(float));
}

void ISA(cpu_attention_pack_queries)(const struct call *call) {
    const struct tensor *starts = &call->in[INPUT(ATTENTION_PACK_QUERIES, starts)],
                        *own_starts = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_starts)],
                        *own_do = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_do)],
                        *own_lse = &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_lse)];
    copy_heads(call, &call->in[INPUT(ATTENTION_PACK_QUERIES, q)], &call->out[OUTPUT(ATTENTION_PACK_QUERIES, own_q)]);
    if (own_do->data)
        copy_heads(call, &call->in[INPUT(ATTENTION_PACK_QUERIES, do)], own_do);
    if (own_lse->data)
        copy_numbers(&call->in[INPUT(ATTENTION_PACK_QUERIES, lse)], own_lse);
    for (int64_t b = 0; b < starts->dim[0]; b++)
        memcpy((int32_t *)own_starts->data + b * own_starts->stride[0],
               (const int32_t *)starts->data + b * starts->stride[0], (size_t)starts->dim[1] * sizeof(int32_t));
}

void ISA(cpu_attention_bwd_end)(const struct call *call) {
    for (int i = 0; i < 3; i++)
        copy_heads(call, &call->in[i], &call->out[i]);
}

void ISA(cpu_attention_end)(const struct call *call) {
    const struct tensor *lse = &call->out[OUTPUT(ATTENTION_END, lse)], *sunk = &call->out[OUTPUT(ATTENTION_END, sunk)];
    const struct tensor *sinks = &call->in[INPUT(ATTENTION_END, sinks)];
    const float *from = call->in[INPUT(ATTENTION_END, seen_lse)].data;
    copy_heads(call, &call->in[INPUT(ATTENTION_END, seen)], &call->out[OUTPUT(ATTENTION_END, o)]);
    const int64_t numbers = lse->dim[0] * lse->dim[1] * lse->dim[2];
    copy_numbers(&call->in[INPUT(ATTENTION_END, seen_lse)], lse);
    for (int64_t i = 0; i < numbers && sunk->data; i++) {
        const int64_t h = i / lse->dim[2] % lse->dim[1];
        const float sink = sinks->data ? float_at(sinks->dtype == DTYPE_BF16, sinks->data, h) : -INFINITY;
        ((float *)sunk->data)[i] = expf(sink - from[i]);
    }
}

// Whether something has come from the rank at the distance `from`: there is one.
static bool has_come(const struct tensor *first, int64_t rows, int64_t from, int64_t ranks) {
    const int64_t sender = (first->data ? *(const int32_t *)first->data / rows : 0) + from;
    return from == 0 || (sender >= 0 && sender < ranks);
}

// Elements of floats, unless they are there already.
static void keep_heads(const struct call *call, const struct tensor *from, const struct tensor *to) {
    if (from->data != to->data)
        copy_heads(call, from, to);
}

// What merges: outputs and log-sum-exps.
struct merger {
    const struct tensor *a, *a_lse, *b, *b_lse, *o, *lse;
};

static void merge_tokens(const void *args, int64_t first, int64_t end) {
    const struct merger *m = args;
    for (int64_t row = first; row < end; row++)
        for (int64_t h = 0; h < m->o->dim[2]; h++) {
            const float x = *token_number(m->a_lse, row, h), y = *token_number(m->b_lse, row, h), top = fmaxf(x, y);
            const bool none = top == -INFINITY;
            const float of_x = none ? 0 : expf(x - top), of_y = none ? 0 : expf(y - top), sum = of_x + of_y;
            const float *a = (const float *)token_head(m->a, row, h), *b = (const float *)token_head(m->b, row, h);
            float *o = (float *)token_head(m->o, row, h);
            *token_number(m->lse, row, h) = top + logf(sum);
            for (int64_t c = 0; c < m->o->dim[3]; c += LANES) {
                const int count = (int)MIN(LANES, m->o->dim[3] - c);
                row_store(o, c, count,
                          (row_load(a, c, count, false) * of_x + row_load(b, c, count, false) * of_y) /
                              (none ? 1 : sum),
                          false);
            }
        }
}

void ISA(cpu_attention_merge)(const struct call *call) {
    const struct merger m = {.a = &call->in[INPUT(ATTENTION_MERGE, before)],
                             .a_lse = &call->in[INPUT(ATTENTION_MERGE, before_lse)],
                             .b = &call->in[INPUT(ATTENTION_MERGE, other)],
                             .b_lse = &call->in[INPUT(ATTENTION_MERGE, other_lse)],
                             .o = &call->out[OUTPUT(ATTENTION_MERGE, seen)],
                             .lse = &call->out[OUTPUT(ATTENTION_MERGE, seen_lse)]};
    if (has_come(&call->in[INPUT(ATTENTION_MERGE, first)], m.o->dim[1],
                 call->attribute[ATTRIBUTE(ATTENTION_MERGE, from)].i,
                 call->attribute[ATTRIBUTE(ATTENTION_MERGE, ranks)].i)) {
        run_tokens(call, m.o, merge_tokens, &m);
        return;
    }
    keep_heads(call, m.a, m.o);
    if (m.a_lse->data != m.lse->data)
        copy_numbers(m.a_lse, m.lse);
}

void ISA(cpu_attention_delta)(const struct call *call) {
#pragma omp parallel num_threads(call->threads)
    attention_find_deltas(&call->in[0], &call->in[1], call->out[0].data);
}

struct heads_sum {
    const struct tensor *x, *y, *sum;
};

static void add_tokens(const void *args, int64_t first, int64_t end) {
    const struct heads_sum *s = args;
    for (int64_t row = first; row < end; row++)
        for (int64_t h = 0; h < s->sum->dim[2]; h++) {
            const float *x = (const float *)token_head(s->x, row, h), *y = (const float *)token_head(s->y, row, h);
            float *sum = (float *)token_head(s->sum, row, h);
            for (int64_t c = 0; c < s->sum->dim[3]; c += LANES) {
                const int count = (int)MIN(LANES, s->sum->dim[3] - c);
                row_store(sum, c, count, row_load(x, c, count, false) + row_load(y, c, count, false), false);
            }
        }
}

void ISA(cpu_attention_add)(const struct call *call) {
    const bool come =
        has_come(&call->in[INPUT(ATTENTION_ADD, first)], call->out[0].dim[1],
                 call->attribute[ATTRIBUTE(ATTENTION_ADD, from)].i, call->attribute[ATTRIBUTE(ATTENTION_ADD, ranks)].i);
    for (int i = 0; i < 2; i++)
        if (call->out[i].data && !come)
            keep_heads(call, &call->in[INPUT(ATTENTION_ADD, before) + i], &call->out[i]);
        else if (call->out[i].data)
            run_tokens(call, &call->out[i], add_tokens,
                       &(struct heads_sum){&call->in[INPUT(ATTENTION_ADD, before) + i],
                                           &call->in[INPUT(ATTENTION_ADD, other) + i], &call->out[i]});
}
