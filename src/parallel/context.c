// Ring attention (Liu et al., "Ring Attention with Blockwise Transformers", arXiv 2310.01889). Each rank keeps its
// queries. Keys and values go round the ring of ranks that share a sequence: while queries see those at hand, these are
// already on their way to the next rank, and those of the rank before on theirs to this one. What has been seen is
// merged part after part, in f32. In backward keys and values go round once more; the gradients of each part follow it
// one step behind, and each rank adds what its queries contribute, so that the last one sends them home.
//
// All ranks run the same instructions: which keys a query sees follows from the layout (program/places.h) and from
// documents, and kernels skip the rest. Where a window is so short that parts far away see nothing of each other, the
// ring ends before it has gone all the way round.
#include "parallel/context.h"

#include "parallel/rewrite.h"
#include "program/places.h"

struct context {
    struct rewrite rewrite;
    struct program *program;
    axis_set group;
    const struct instruction *row; // that is replaced
    struct places places;
    int64_t sequences, heads, kv_heads, width;
    const char *name; // of what its buffers are called after
    int set;
};

static int keys_channel(struct program *p) {
    return program_channel(p, "keys_to_next", "keys_from_previous", 0);
}

static int gradients_channel(struct program *p) {
    return program_channel(p, "d_keys_to_next", "d_keys_from_previous", 0);
}

// The ring; AXES_NONE: there is none.
static axis_set ring_of(const struct parallel *parallel) {
    return parallel->context == CONFIG_CONTEXT_PARALLEL_GATHER ? AXES_NONE : parallel_parts(parallel);
}

void context_streams(struct program *p, const struct parallel *parallel) {
    if (!ring_of(parallel))
        return;
    keys_channel(p);
    gradients_channel(p);
}

// ---- buffers

static int context_buffer(const struct context *c, const char *what, int step, enum dtype dtype, int ndim,
                          const int64_t *dim) {
    char *name = step == NONE ? mem_printf("%s.%s", c->name, what) : mem_printf("%s.%s%d", c->name, what, step);
    const int buffer = program_buffer(c->program, name, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
    free(name);
    return buffer;
}

static enum dtype context_dtype(const struct context *c) {
    return c->program->buffers.item[c->row->in[0].buffer].dtype;
}

// A number for each query and head.
static struct operand numbers(const struct context *c, const char *what, int step) {
    return operand_whole(c->program, context_buffer(c, what, step, dtype_accumulate(context_dtype(c)), 3,
                                                    (int64_t[]){c->sequences, c->heads, c->places.rows}));
}

// A sum for each element of the queries.
static struct operand query_sums(const struct context *c, const char *what, int step) {
    return operand_whole(c->program, context_buffer(c, what, step, dtype_accumulate(context_dtype(c)), 4,
                                                    (int64_t[]){c->sequences, c->places.rows, c->heads, c->width}));
}

// Something of keys and of values, in one buffer, which travels as a whole.
struct keys {
    int buffer;
    struct operand k, v;
};

static struct keys new_keys(const struct context *c, const char *what, int step, enum dtype dtype) {
    const int64_t dim[] = {c->sequences, c->places.rows, c->kv_heads, c->width},
                  count = dim[0] * dim[1] * dim[2] * dim[3];
    struct keys keys = {.buffer = context_buffer(c, what, step, dtype, 2, (int64_t[]){2, count})};
    keys.k = keys.v = (struct operand){.buffer = keys.buffer, .ndim = 1, .dim = {count}, .stride = {1}};
    keys.v.offset = count;
    keys.k = operand_shape(keys.k, 4, dim);
    keys.v = operand_shape(keys.v, 4, dim);
    return keys;
}

// ---- instructions

static struct instruction *context_take(struct context *c) {
    struct template *t = &c->program->templates.item[c->rewrite.template];
    struct instruction *last = &t->instructions.item[t->instructions.count - 1];
    last->layer = c->row->layer;
    last->set = c->set;
    last->stands_for = c->row->op;
    rewrite_take_last(&c->rewrite);
    return &c->rewrite.out.item[c->rewrite.out.count - 1];
}

static void context_emit(struct context *c, enum op op, int inputs, const struct operand *in, int outputs,
                         const struct operand *out, const union attribute *attribute) {
    program_emit(c->program, c->rewrite.template, op, c->row->phase, c->row->layer, inputs, in, outputs, out,
                 attribute);
    context_take(c);
}

// Sends a buffer to the rank `distance` further on, and receives one from as far back.
static void context_swap(struct context *c, int channel, int out, int in, int distance) {
    struct program *p = c->program;
    program_communicate(p, c->rewrite.template, OP_SEND, c->row->phase, channel, c->group, operand_whole(p, out),
                        operand_none());
    context_take(c)->peer = distance;
    program_communicate(p, c->rewrite.template, OP_RECEIVE, c->row->phase, channel + 1, c->group, operand_none(),
                        operand_whole(p, in));
    context_take(c)->peer = -distance;
}

// Lets the last instruction wait until all but the latest `lag` sends on the channel are done, so that no more memory
// than theirs is taken by what has been sent.
static void context_await(struct context *c, int channel, int lag) {
    c->rewrite.out.item[c->rewrite.out.count - 1].wait[channel] = wait_for_all_but(lag);
}

// The attributes of the row, for keys of the rank `keys` before this one.
static void block_attributes(const struct context *c, int keys, union attribute out[OP_MAX_ATTRIBUTES]) {
    memcpy(out, c->row->attribute, OP_MAX_ATTRIBUTES * sizeof *out);
    out[ATTRIBUTE(ATTENTION_BLOCK, queries)].i = 0;
    out[ATTRIBUTE(ATTENTION_BLOCK, keys)].i = keys;
}

_Static_assert((int)ATTRIBUTE(ATTENTION_PARTS, parts) == (int)ATTRIBUTE(ATTENTION_BLOCK, parts) &&
                   (int)ATTRIBUTE(ATTENTION_PARTS_BWD, parts) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, parts) &&
                   (int)ATTRIBUTE(ATTENTION_BLOCK, keys) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, keys),
               "in the same order");

// The rank's own keys and values, to be sent.
static struct keys pack_keys(struct context *c) {
    const struct keys own = new_keys(c, "keys", 0, context_dtype(c));
    context_emit(c, OP_ATTENTION_PACK,
                 GIVEN(ATTENTION_PACK, [INPUT(ATTENTION_PACK, k)] = c->row->in[INPUT(ATTENTION_PARTS, k)],
                       [INPUT(ATTENTION_PACK, v)] = c->row->in[INPUT(ATTENTION_PARTS, v)]),
                 MADE(ATTENTION_PACK, [OUTPUT(ATTENTION_PACK, own_k)] = own.k, [OUTPUT(ATTENTION_PACK, own_v)] = own.v),
                 NULL);
    return own;
}

// Begins a step of `steps` further ones: sends the keys and values at hand on, if the ring goes on, and returns those
// that come. The rank's own are packed first.
static struct keys pass_keys(struct context *c, struct keys *at_hand, int step, int steps) {
    if (step == steps)
        return *at_hand;
    if (step == 0)
        *at_hand = pack_keys(c);
    const struct keys next = new_keys(c, "keys", step + 1, context_dtype(c));
    context_swap(c, keys_channel(c->program), at_hand->buffer, next.buffer, 1);
    return next;
}

static void ring_forward(struct context *c) {
    const struct operand *in = c->row->in, *out = c->row->out;
    struct operand seen = operand_none(), lse = operand_none(); // so far
    const int steps = (int)places_reach(&c->places, c->row->attribute[ATTRIBUTE(ATTENTION_PARTS, window)].i);
    struct keys at_hand = {.k = in[INPUT(ATTENTION_PARTS, k)], .v = in[INPUT(ATTENTION_PARTS, v)]};
    for (int step = 0; step <= steps; step++) {
        const struct operand made = query_sums(c, "seen", step), made_lse = numbers(c, "seen_lse", step);
        const struct keys next = pass_keys(c, &at_hand, step, steps);
        union attribute attribute[OP_MAX_ATTRIBUTES];
        block_attributes(c, step, attribute);
        context_emit(
            c, OP_ATTENTION_BLOCK,
            GIVEN(ATTENTION_BLOCK, [INPUT(ATTENTION_BLOCK, q)] = in[INPUT(ATTENTION_PARTS, q)],
                  [INPUT(ATTENTION_BLOCK, k)] = at_hand.k, [INPUT(ATTENTION_BLOCK, v)] = at_hand.v,
                  [INPUT(ATTENTION_BLOCK, starts)] = in[INPUT(ATTENTION_PARTS, starts)],
                  [INPUT(ATTENTION_BLOCK, first)] = in[INPUT(ATTENTION_PARTS, first)],
                  [INPUT(ATTENTION_BLOCK, sinks)] = step == 0 ? in[INPUT(ATTENTION_PARTS, sinks)] : operand_none(),
                  [INPUT(ATTENTION_BLOCK, before)] = seen, [INPUT(ATTENTION_BLOCK, before_lse)] = lse),
            MADE(ATTENTION_BLOCK, [OUTPUT(ATTENTION_BLOCK, seen)] = made,
                 [OUTPUT(ATTENTION_BLOCK, seen_lse)] = made_lse),
            attribute);
        if (steps > 0)
            context_await(c, keys_channel(c->program), step < steps);
        seen = made;
        lse = made_lse;
        at_hand = next;
    }
    context_emit(c, OP_ATTENTION_END,
                 GIVEN(ATTENTION_END, [INPUT(ATTENTION_END, seen)] = seen, [INPUT(ATTENTION_END, seen_lse)] = lse,
                       [INPUT(ATTENTION_END, sinks)] = in[INPUT(ATTENTION_PARTS, sinks)]),
                 MADE(ATTENTION_END, [OUTPUT(ATTENTION_END, o)] = out[OUTPUT(ATTENTION_PARTS, o)],
                      [OUTPUT(ATTENTION_END, lse)] = out[OUTPUT(ATTENTION_PARTS, lse)],
                      [OUTPUT(ATTENTION_END, sunk)] = out[OUTPUT(ATTENTION_PARTS, sunk)]),
                 NULL);
}

// The sums of gradients of the keys at hand: those that the ranks before have made, and what this one adds.
static struct keys add_gradients(struct context *c, const struct keys *before, const struct keys *own, int step) {
    const struct keys sum = new_keys(c, "key_sums", step, dtype_accumulate(context_dtype(c)));
    context_emit(c, OP_ATTENTION_ADD,
                 GIVEN(ATTENTION_ADD, [INPUT(ATTENTION_ADD, before)] = before->k,
                       [INPUT(ATTENTION_ADD, before_v)] = before->v, [INPUT(ATTENTION_ADD, other)] = own->k,
                       [INPUT(ATTENTION_ADD, other_v)] = own->v, [INPUT(ATTENTION_ADD, first)] = operand_none()),
                 MADE(ATTENTION_ADD, [OUTPUT(ATTENTION_ADD, sum)] = sum.k, [OUTPUT(ATTENTION_ADD, sum_v)] = sum.v),
                 NULL);
    return sum;
}

static void ring_backward(struct context *c) {
    const struct operand *in = c->row->in, *out = c->row->out;
    const enum dtype sums = dtype_accumulate(context_dtype(c));
    const struct operand delta = numbers(c, "delta", NONE);
    const int steps = (int)places_reach(&c->places, c->row->attribute[ATTRIBUTE(ATTENTION_PARTS_BWD, window)].i);
    const struct operand made[] = {in[INPUT(ATTENTION_PARTS_BWD, o)], in[INPUT(ATTENTION_PARTS_BWD, do)]};
    context_emit(c, OP_ATTENTION_DELTA, 2, made, 1, &delta, NULL);
    struct keys at_hand = {.k = in[INPUT(ATTENTION_PARTS_BWD, k)], .v = in[INPUT(ATTENTION_PARTS_BWD, v)]}, sum;
    struct operand dq = operand_none(); // so far
    for (int step = 0; step <= steps; step++) {
        const struct keys own = new_keys(c, "key_gradients", step, sums);
        const struct operand made_dq = query_sums(c, "dq", step);
        const struct keys next = pass_keys(c, &at_hand, step, steps);
        union attribute attribute[OP_MAX_ATTRIBUTES];
        block_attributes(c, step, attribute);
        context_emit(c, OP_ATTENTION_BLOCK_BWD,
                     GIVEN(ATTENTION_BLOCK_BWD, [INPUT(ATTENTION_BLOCK_BWD, q)] = in[INPUT(ATTENTION_PARTS_BWD, q)],
                           [INPUT(ATTENTION_BLOCK_BWD, k)] = at_hand.k, [INPUT(ATTENTION_BLOCK_BWD, v)] = at_hand.v,
                           [INPUT(ATTENTION_BLOCK_BWD, starts)] = in[INPUT(ATTENTION_PARTS_BWD, starts)],
                           [INPUT(ATTENTION_BLOCK_BWD, first)] = in[INPUT(ATTENTION_PARTS_BWD, first)],
                           [INPUT(ATTENTION_BLOCK_BWD, lse)] = in[INPUT(ATTENTION_PARTS_BWD, lse)],
                           [INPUT(ATTENTION_BLOCK_BWD, delta)] = delta,
                           [INPUT(ATTENTION_BLOCK_BWD, do)] = in[INPUT(ATTENTION_PARTS_BWD, do)],
                           [INPUT(ATTENTION_BLOCK_BWD, before)] = dq),
                     MADE(ATTENTION_BLOCK_BWD, [OUTPUT(ATTENTION_BLOCK_BWD, sum_dq)] = made_dq,
                          [OUTPUT(ATTENTION_BLOCK_BWD, sum_dk)] = own.k, [OUTPUT(ATTENTION_BLOCK_BWD, sum_dv)] = own.v),
                     attribute);
        if (steps > 0) {
            context_await(c, keys_channel(c->program), step < steps);
            context_await(c, gradients_channel(c->program), 1);
        }
        sum = step == 0 ? own : add_gradients(c, &sum, &own, step);
        dq = made_dq;
        if (steps > 0) { // the last ones home
            const struct keys arriving = new_keys(c, "arriving", step, sums);
            context_swap(c, gradients_channel(c->program), sum.buffer, arriving.buffer, step < steps ? 1 : -steps);
            sum = arriving;
        }
        at_hand = next;
    }
    context_emit(c, OP_ATTENTION_BWD_END,
                 GIVEN(ATTENTION_BWD_END, [INPUT(ATTENTION_BWD_END, sum_dq)] = dq,
                       [INPUT(ATTENTION_BWD_END, sum_dk)] = sum.k, [INPUT(ATTENTION_BWD_END, sum_dv)] = sum.v),
                 MADE(ATTENTION_BWD_END, [OUTPUT(ATTENTION_BWD_END, dq)] = out[OUTPUT(ATTENTION_PARTS_BWD, dq)],
                      [OUTPUT(ATTENTION_BWD_END, dk)] = out[OUTPUT(ATTENTION_PARTS_BWD, dk)],
                      [OUTPUT(ATTENTION_BWD_END, dv)] = out[OUTPUT(ATTENTION_PARTS_BWD, dv)]),
                 NULL);
    if (steps > 0)
        context_await(c, gradients_channel(c->program), 0);
}

// ---- templates

static void replace_row(struct context *c, const struct instruction *row) {
    struct program *p = c->program;
    const struct operand *q = &row->in[INPUT(ATTENTION_PARTS, q)], *k = &row->in[INPUT(ATTENTION_PARTS, k)];
    const bool forward = row->op == OP_ATTENTION_PARTS;
    const int of =
        forward ? row->out[OUTPUT(ATTENTION_PARTS, o)].buffer : row->in[INPUT(ATTENTION_PARTS_BWD, do)].buffer;
    char *name = mem_strdup(p->buffers.item[of].name);
    c->row = row;
    c->name = name;
    c->set = program_set(p);
    c->places = (struct places){row->attribute[ATTRIBUTE(ATTENTION_PARTS, layout)].i,
                                row->attribute[ATTRIBUTE(ATTENTION_PARTS, parts)].i, q->dim[1]};
    c->sequences = q->dim[0];
    c->heads = q->dim[2];
    c->kv_heads = k->dim[2];
    c->width = q->dim[3];
    if (forward)
        ring_forward(c);
    else
        ring_backward(c);
    free(name);
}

void context_rewrite(struct program *p, const struct parallel *parallel) {
    const axis_set group = ring_of(parallel);
    if (!group)
        return;
    for (size_t t = 0; t < p->templates.count; t++) {
        struct context c = {.program = p, .group = group};
        rewrite_begin(&c.rewrite, p, (int)t);
        VEC(struct instruction) old = {0};
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            VEC_PUSH(&old, p->templates.item[t].instructions.item[i]);
        for (size_t i = 0; i < old.count; i++)
            if (old.item[i].op == OP_ATTENTION_PARTS || old.item[i].op == OP_ATTENTION_PARTS_BWD)
                replace_row(&c, &old.item[i]);
            else
                VEC_PUSH(&c.rewrite.out, old.item[i]);
        VEC_RELEASE(&old);
        rewrite_finish(&c.rewrite);
    }
}
