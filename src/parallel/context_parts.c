#include "parallel/context_parts.h"

int context_channel(struct program *p, enum context_channel channel) {
    return channel == CONTEXT_LOADS         ? program_channel(p, "parts_to_peer", "parts_from_peer", 0)
           : channel == CONTEXT_LOADS_AHEAD ? program_channel(p, "parts_to_ring", "parts_from_ring", 0)
                                            : program_channel(p, "results_to_peer", "results_from_peer", 0);
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

static enum dtype sums_dtype(const struct context *c) {
    return dtype_accumulate(context_dtype(c));
}

struct shape {
    int ndim;
    int64_t dim[OP_MAX_DIMS];
};

static struct shape shape_of_keys(const struct context *c) {
    return (struct shape){4, {c->sequences, c->places.rows, c->kv_heads, c->width}};
}

static struct shape shape_of_queries(const struct context *c) {
    return (struct shape){4, {c->sequences, c->places.rows, c->heads, c->width}};
}

static struct shape shape_of_numbers(const struct context *c) {
    return (struct shape){3, {c->sequences, c->heads, c->places.rows}};
}

static struct shape shape_of_starts(const struct context *c) {
    return (struct shape){2, {c->sequences, c->places.rows}};
}

static int64_t shape_count(struct shape s) {
    int64_t count = 1;
    for (int d = 0; d < s.ndim; d++)
        count *= s.dim[d];
    return count;
}

// What of the buffer, contiguous, lies from *at on, which it moves.
static struct operand piece_of(int buffer, int64_t *at, struct shape shape) {
    const int64_t count = shape_count(shape);
    struct operand piece = {.buffer = buffer, .offset = *at, .ndim = 1, .dim = {count}, .stride = {1}};
    *at += count;
    return operand_shape(piece, shape.ndim, shape.dim);
}

static struct load load_none(void) {
    const struct operand none = operand_none();
    return (struct load){.k = none, .v = none, .q = none, .starts = none, .d_o = none, .lse = none, .delta = none};
}

struct load load_of_keys(const struct context *c, const char *what, int step) {
    const int64_t count = shape_count(shape_of_keys(c));
    struct load load = load_none();
    int64_t at = 0;
    load.buffers = 1;
    load.buffer[0] = context_buffer(c, what, step, context_dtype(c), 2, (int64_t[]){2, count});
    load.k = piece_of(load.buffer[0], &at, shape_of_keys(c));
    load.v = piece_of(load.buffer[0], &at, shape_of_keys(c));
    return load;
}

// Numbers share a buffer with elements where both have one dtype.
struct load load_of_queries(const struct context *c, const char *what, int step) {
    const bool backward = context_is_backward(c), together = sums_dtype(c) == context_dtype(c);
    const int64_t elements = (backward ? 2 : 1) * shape_count(shape_of_queries(c)),
                  numbers = backward ? 2 * shape_count(shape_of_numbers(c)) : 0;
    struct load load = load_none();
    int64_t at = 0;
    int buffer = context_buffer(c, what, step, context_dtype(c), 1, &(int64_t){elements + (together ? numbers : 0)});
    load.buffer[load.buffers++] = buffer;
    load.q = piece_of(buffer, &at, shape_of_queries(c));
    if (backward) {
        load.d_o = piece_of(buffer, &at, shape_of_queries(c));
        if (!together) {
            char *numbers_of = mem_printf("%s_numbers", what);
            buffer = context_buffer(c, numbers_of, step, sums_dtype(c), 1, &numbers);
            free(numbers_of);
            load.buffer[load.buffers++] = buffer;
            at = 0;
        }
        load.lse = piece_of(buffer, &at, shape_of_numbers(c));
        load.delta = piece_of(buffer, &at, shape_of_numbers(c));
    }
    char *starts_of = mem_printf("%s_starts", what);
    const struct shape starts = shape_of_starts(c);
    load.buffer[load.buffers] = context_buffer(c, starts_of, step, DTYPE_I32, starts.ndim, starts.dim);
    free(starts_of);
    load.starts = operand_whole(c->program, load.buffer[load.buffers++]);
    return load;
}

struct sums sums_of_keys(const struct context *c, const char *what, int step) {
    const int64_t count = shape_count(shape_of_keys(c));
    struct sums sums = {.buffer = context_buffer(c, what, step, sums_dtype(c), 2, (int64_t[]){2, count})};
    int64_t at = 0;
    sums.a = piece_of(sums.buffer, &at, shape_of_keys(c));
    sums.b = piece_of(sums.buffer, &at, shape_of_keys(c));
    return sums;
}

struct sums sums_of_queries(const struct context *c, const char *what, int step) {
    const bool backward = context_is_backward(c);
    const struct shape queries = shape_of_queries(c), numbers = shape_of_numbers(c);
    const int64_t count = shape_count(queries) + (backward ? 0 : shape_count(numbers));
    struct sums sums = {.b = operand_none()};
    int64_t at = 0;
    if (backward) {
        sums.buffer = context_buffer(c, what, step, sums_dtype(c), queries.ndim, queries.dim);
        sums.a = operand_whole(c->program, sums.buffer);
        return sums;
    }
    sums.buffer = context_buffer(c, what, step, sums_dtype(c), 1, &count);
    sums.a = piece_of(sums.buffer, &at, queries);
    sums.b = piece_of(sums.buffer, &at, numbers);
    return sums;
}

struct sums sums_at_home(const struct context *c, const char *what, const char *what_lse, int step) {
    const struct shape queries = shape_of_queries(c);
    struct sums sums = {.buffer = context_buffer(c, what, step, sums_dtype(c), queries.ndim, queries.dim)};
    sums.a = operand_whole(c->program, sums.buffer);
    sums.b = what_lse ? context_numbers(c, what_lse, step) : operand_none();
    return sums;
}

struct operand context_numbers(const struct context *c, const char *what, int step) {
    const struct shape numbers = shape_of_numbers(c);
    return operand_whole(c->program, context_buffer(c, what, step, sums_dtype(c), numbers.ndim, numbers.dim));
}

// ---- instructions

bool context_is_backward(const struct context *c) {
    return c->row->op == OP_ATTENTION_PARTS_BWD;
}

static struct instruction *context_take(struct context *c) {
    return rewrite_take_for(&c->rewrite, c->row, c->set);
}

static void context_emit(struct context *c, enum op op, int inputs, const struct operand *in, int outputs,
                         const struct operand *out, const union attribute *attribute) {
    program_emit(c->program, c->rewrite.template, op, c->row->phase, c->row->layer, inputs, in, outputs, out,
                 attribute);
    context_take(c);
}

static void swap_buffers(struct context *c, enum context_channel what, axis_set group, int buffers, const int *out,
                         const int *in, int distance, bool open) {
    struct program *p = c->program;
    const int channel = context_channel(p, what);
    for (int i = 0; i < buffers; i++) {
        program_communicate(p, c->rewrite.template, OP_SEND, c->row->phase, channel, group, operand_whole(p, out[i]),
                            operand_none());
        struct instruction *sends = context_take(c);
        sends->peer = distance;
        sends->open = open;
        program_communicate(p, c->rewrite.template, OP_RECEIVE, c->row->phase, channel + 1, group, operand_none(),
                            operand_whole(p, in[i]));
        struct instruction *receives = context_take(c);
        receives->peer = -distance;
        receives->open = open;
    }
}

void context_swap(struct context *c, enum context_channel channel, axis_set group, int buffers, const int *out,
                  const int *in, int distance) {
    swap_buffers(c, channel, group, buffers, out, in, distance, false);
}

void context_swap_open(struct context *c, enum context_channel channel, int buffers, const int *out, const int *in,
                       int distance) {
    swap_buffers(c, channel, c->group, buffers, out, in, distance, true);
}

void context_await(struct context *c, enum context_channel channel, int lag) {
    c->rewrite.out.item[c->rewrite.out.count - 1].wait[context_channel(c->program, channel)] = wait_for_all_but(lag);
}

_Static_assert((int)INPUT(ATTENTION_PARTS, k) == (int)INPUT(ATTENTION_PARTS_BWD, k) &&
                   (int)INPUT(ATTENTION_PARTS, v) == (int)INPUT(ATTENTION_PARTS_BWD, v) &&
                   (int)INPUT(ATTENTION_PARTS, q) == (int)INPUT(ATTENTION_PARTS_BWD, q) &&
                   (int)INPUT(ATTENTION_PARTS, starts) == (int)INPUT(ATTENTION_PARTS_BWD, starts) &&
                   (int)INPUT(ATTENTION_PARTS, first) == (int)INPUT(ATTENTION_PARTS_BWD, first),
               "in the same order");

struct load context_own_keys(const struct context *c) {
    struct load own = load_none();
    own.k = c->row->in[INPUT(ATTENTION_PARTS, k)];
    own.v = c->row->in[INPUT(ATTENTION_PARTS, v)];
    return own;
}

struct load context_pack_keys(struct context *c) {
    const struct load own = load_of_keys(c, "keys", 0);
    context_emit(c, OP_ATTENTION_PACK,
                 GIVEN(ATTENTION_PACK, [INPUT(ATTENTION_PACK, k)] = c->row->in[INPUT(ATTENTION_PARTS, k)],
                       [INPUT(ATTENTION_PACK, v)] = c->row->in[INPUT(ATTENTION_PARTS, v)]),
                 MADE(ATTENTION_PACK, [OUTPUT(ATTENTION_PACK, own_k)] = own.k, [OUTPUT(ATTENTION_PACK, own_v)] = own.v),
                 NULL);
    return own;
}

static void make_delta(struct context *c, struct operand delta) {
    context_emit(c, OP_ATTENTION_DELTA,
                 GIVEN(ATTENTION_DELTA, [INPUT(ATTENTION_DELTA, o)] = c->row->in[INPUT(ATTENTION_PARTS_BWD, o)],
                       [INPUT(ATTENTION_DELTA, do)] = c->row->in[INPUT(ATTENTION_PARTS_BWD, do)]),
                 MADE(ATTENTION_DELTA, [OUTPUT(ATTENTION_DELTA, delta)] = delta), NULL);
}

// The row's queries, but for their delta.
static struct load row_queries(const struct context *c) {
    struct load own = load_none();
    own.q = c->row->in[INPUT(ATTENTION_PARTS, q)];
    own.starts = c->row->in[INPUT(ATTENTION_PARTS, starts)];
    if (context_is_backward(c)) {
        own.d_o = c->row->in[INPUT(ATTENTION_PARTS_BWD, do)];
        own.lse = c->row->in[INPUT(ATTENTION_PARTS_BWD, lse)];
    }
    return own;
}

struct load context_own_queries(struct context *c) {
    struct load own = row_queries(c);
    if (context_is_backward(c)) {
        own.delta = context_numbers(c, "delta", NONE);
        make_delta(c, own.delta);
    }
    return own;
}

struct load context_pack_queries(struct context *c) {
    const struct load from = row_queries(c), own = load_of_queries(c, "queries", 0);
    context_emit(c, OP_ATTENTION_PACK_QUERIES,
                 GIVEN(ATTENTION_PACK_QUERIES, [INPUT(ATTENTION_PACK_QUERIES, q)] = from.q,
                       [INPUT(ATTENTION_PACK_QUERIES, starts)] = from.starts,
                       [INPUT(ATTENTION_PACK_QUERIES, do)] = from.d_o, [INPUT(ATTENTION_PACK_QUERIES, lse)] = from.lse),
                 MADE(ATTENTION_PACK_QUERIES, [OUTPUT(ATTENTION_PACK_QUERIES, own_q)] = own.q,
                      [OUTPUT(ATTENTION_PACK_QUERIES, own_starts)] = own.starts,
                      [OUTPUT(ATTENTION_PACK_QUERIES, own_do)] = own.d_o,
                      [OUTPUT(ATTENTION_PACK_QUERIES, own_lse)] = own.lse),
                 NULL);
    if (context_is_backward(c))
        make_delta(c, own.delta);
    return own;
}

_Static_assert((int)ATTRIBUTE(ATTENTION_PARTS, parts) == (int)ATTRIBUTE(ATTENTION_BLOCK, parts) &&
                   (int)ATTRIBUTE(ATTENTION_PARTS_BWD, parts) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, parts) &&
                   (int)ATTRIBUTE(ATTENTION_BLOCK, queries) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, queries) &&
                   (int)ATTRIBUTE(ATTENTION_BLOCK, keys) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, keys) &&
                   (int)ATTRIBUTE(ATTENTION_BLOCK, inner) == (int)ATTRIBUTE(ATTENTION_BLOCK_BWD, inner),
               "in the same order");

// The attributes of the row, for queries and keys of ranks so far before this one.
static void block_attributes(const struct context *c, int queries, int keys, union attribute out[OP_MAX_ATTRIBUTES]) {
    memcpy(out, c->row->attribute, OP_MAX_ATTRIBUTES * sizeof *out);
    out[ATTRIBUTE(ATTENTION_BLOCK, queries)].i = queries;
    out[ATTRIBUTE(ATTENTION_BLOCK, keys)].i = keys;
    out[ATTRIBUTE(ATTENTION_BLOCK, inner)].i = c->outer ? c->ring : 0;
}

void context_block(struct context *c, const struct load *queries, int queries_before, const struct load *keys,
                   int keys_before, bool sinks, const struct sums *before, const struct sums *made) {
    const struct operand *in = c->row->in;
    union attribute attribute[OP_MAX_ATTRIBUTES];
    block_attributes(c, queries_before, keys_before, attribute);
    context_emit(
        c, OP_ATTENTION_BLOCK,
        GIVEN(ATTENTION_BLOCK, [INPUT(ATTENTION_BLOCK, q)] = queries->q, [INPUT(ATTENTION_BLOCK, k)] = keys->k,
              [INPUT(ATTENTION_BLOCK, v)] = keys->v, [INPUT(ATTENTION_BLOCK, starts)] = queries->starts,
              [INPUT(ATTENTION_BLOCK, first)] = in[INPUT(ATTENTION_PARTS, first)],
              [INPUT(ATTENTION_BLOCK, sinks)] = sinks ? in[INPUT(ATTENTION_PARTS, sinks)] : operand_none(),
              [INPUT(ATTENTION_BLOCK, before)] = before ? before->a : operand_none(),
              [INPUT(ATTENTION_BLOCK, before_lse)] = before ? before->b : operand_none()),
        MADE(ATTENTION_BLOCK, [OUTPUT(ATTENTION_BLOCK, seen)] = made->a, [OUTPUT(ATTENTION_BLOCK, seen_lse)] = made->b),
        attribute);
}

void context_block_backward(struct context *c, const struct load *queries, int queries_before, const struct load *keys,
                            int keys_before, const struct sums *before, const struct sums *made_queries,
                            const struct sums *made_keys) {
    union attribute attribute[OP_MAX_ATTRIBUTES];
    block_attributes(c, queries_before, keys_before, attribute);
    context_emit(c, OP_ATTENTION_BLOCK_BWD,
                 GIVEN(ATTENTION_BLOCK_BWD, [INPUT(ATTENTION_BLOCK_BWD, q)] = queries->q,
                       [INPUT(ATTENTION_BLOCK_BWD, k)] = keys->k, [INPUT(ATTENTION_BLOCK_BWD, v)] = keys->v,
                       [INPUT(ATTENTION_BLOCK_BWD, starts)] = queries->starts,
                       [INPUT(ATTENTION_BLOCK_BWD, first)] = c->row->in[INPUT(ATTENTION_PARTS_BWD, first)],
                       [INPUT(ATTENTION_BLOCK_BWD, lse)] = queries->lse,
                       [INPUT(ATTENTION_BLOCK_BWD, delta)] = queries->delta,
                       [INPUT(ATTENTION_BLOCK_BWD, do)] = queries->d_o,
                       [INPUT(ATTENTION_BLOCK_BWD, before)] = before ? before->a : operand_none()),
                 MADE(ATTENTION_BLOCK_BWD, [OUTPUT(ATTENTION_BLOCK_BWD, sum_dq)] = made_queries->a,
                      [OUTPUT(ATTENTION_BLOCK_BWD, sum_dk)] = made_keys->a,
                      [OUTPUT(ATTENTION_BLOCK_BWD, sum_dv)] = made_keys->b),
                 attribute);
}

_Static_assert((int)ATTRIBUTE(ATTENTION_MERGE, from) == (int)ATTRIBUTE(ATTENTION_ADD, from) &&
                   (int)ATTRIBUTE(ATTENTION_MERGE, ranks) == (int)ATTRIBUTE(ATTENTION_ADD, ranks),
               "in the same order");

// What attention_merge and attention_add are told of where `other` comes from.
static struct operand say_from(const struct context *c, int from, union attribute attribute[OP_MAX_ATTRIBUTES]) {
    attribute[ATTRIBUTE(ATTENTION_MERGE, from)].i = from;
    attribute[ATTRIBUTE(ATTENTION_MERGE, ranks)].i = from ? c->places.parts : 0;
    return from ? c->row->in[INPUT(ATTENTION_PARTS, first)] : operand_none();
}

void context_merge(struct context *c, const struct sums *before, const struct sums *other, int from,
                   const struct sums *made) {
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{0}};
    const struct operand first = say_from(c, from, attribute);
    context_emit(
        c, OP_ATTENTION_MERGE,
        GIVEN(ATTENTION_MERGE, [INPUT(ATTENTION_MERGE, before)] = before->a,
              [INPUT(ATTENTION_MERGE, before_lse)] = before->b, [INPUT(ATTENTION_MERGE, other)] = other->a,
              [INPUT(ATTENTION_MERGE, other_lse)] = other->b, [INPUT(ATTENTION_MERGE, first)] = first),
        MADE(ATTENTION_MERGE, [OUTPUT(ATTENTION_MERGE, seen)] = made->a, [OUTPUT(ATTENTION_MERGE, seen_lse)] = made->b),
        attribute);
}

void context_add(struct context *c, const struct sums *before, const struct sums *other, int from,
                 const struct sums *made) {
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{0}};
    const struct operand first = say_from(c, from, attribute);
    context_emit(c, OP_ATTENTION_ADD,
                 GIVEN(ATTENTION_ADD, [INPUT(ATTENTION_ADD, before)] = before->a,
                       [INPUT(ATTENTION_ADD, before_v)] = before->b, [INPUT(ATTENTION_ADD, other)] = other->a,
                       [INPUT(ATTENTION_ADD, other_v)] = other->b, [INPUT(ATTENTION_ADD, first)] = first),
                 MADE(ATTENTION_ADD, [OUTPUT(ATTENTION_ADD, sum)] = made->a, [OUTPUT(ATTENTION_ADD, sum_v)] = made->b),
                 attribute);
}

void context_end(struct context *c, const struct sums *seen) {
    const struct operand *in = c->row->in, *out = c->row->out;
    context_emit(c, OP_ATTENTION_END,
                 GIVEN(ATTENTION_END, [INPUT(ATTENTION_END, seen)] = seen->a,
                       [INPUT(ATTENTION_END, seen_lse)] = seen->b,
                       [INPUT(ATTENTION_END, sinks)] = in[INPUT(ATTENTION_PARTS, sinks)]),
                 MADE(ATTENTION_END, [OUTPUT(ATTENTION_END, o)] = out[OUTPUT(ATTENTION_PARTS, o)],
                      [OUTPUT(ATTENTION_END, lse)] = out[OUTPUT(ATTENTION_PARTS, lse)],
                      [OUTPUT(ATTENTION_END, sunk)] = out[OUTPUT(ATTENTION_PARTS, sunk)]),
                 NULL);
}

void context_end_backward(struct context *c, const struct sums *of_queries, const struct sums *of_keys) {
    const struct operand *out = c->row->out;
    context_emit(c, OP_ATTENTION_BWD_END,
                 GIVEN(ATTENTION_BWD_END, [INPUT(ATTENTION_BWD_END, sum_dq)] = of_queries->a,
                       [INPUT(ATTENTION_BWD_END, sum_dk)] = of_keys->a,
                       [INPUT(ATTENTION_BWD_END, sum_dv)] = of_keys->b),
                 MADE(ATTENTION_BWD_END, [OUTPUT(ATTENTION_BWD_END, dq)] = out[OUTPUT(ATTENTION_PARTS_BWD, dq)],
                      [OUTPUT(ATTENTION_BWD_END, dk)] = out[OUTPUT(ATTENTION_PARTS_BWD, dk)],
                      [OUTPUT(ATTENTION_BWD_END, dv)] = out[OUTPUT(ATTENTION_PARTS_BWD, dv)]),
                 NULL);
}
