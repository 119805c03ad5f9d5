// Linear attention over the parts of sequences that ranks have (Sun et al., "LASP-2: Rethinking Sequence Parallelism
// for Linear Attention and Its Hybrid", arXiv 2502.07563). What the tokens before a part are to it, is a state of one
// size, whatever their number. Each rank makes the state that its part alone leads to, and how much is left by then of
// the state before it; one gather brings each rank those of all others, and it puts together the ones before it, the
// first rank's first. Then its part follows from that state. In backward the gradients of states go the other way: each
// rank makes that which its own outputs alone give the state before its part, and puts those of the ranks after it
// together. Forward keeps the state before the part for backward, which so gathers once, too.
#include "parallel/linear_context.h"

#include "model/emit.h"
#include "parallel/rewrite.h"

struct linear_context {
    struct rewrite rewrite;
    struct program *program;
    axis_set group;
    const struct instruction *row; // that is replaced
    struct operand state;          // its `before`
    const char *name;              // of what its buffers are called after
    int set;
};

_Static_assert(INPUT(LINEAR_PARTS, first) == INPUT(LINEAR_PARTS_BWD, first) &&
                   (int)ATTRIBUTE(LINEAR_PARTS, scale) == (int)ATTRIBUTE(LINEAR_BLOCK, scale) &&
                   (int)ATTRIBUTE(LINEAR_PARTS, scale) == (int)ATTRIBUTE(LINEAR_PARTS_BWD, scale) &&
                   (int)ATTRIBUTE(LINEAR_PARTS, scale) == (int)ATTRIBUTE(LINEAR_BLOCK_BWD, scale) &&
                   (int)ATTRIBUTE(LINEAR_PARTS, scale) == (int)ATTRIBUTE(LINEAR_STATE_BWD, scale) &&
                   (int)ATTRIBUTE(LINEAR_PARTS, parts) == (int)ATTRIBUTE(LINEAR_PARTS_BWD, parts),
               "in the same places");

// ---- instructions

static void linear_emit(struct linear_context *c, enum op op, int inputs, const struct operand *in, int outputs,
                        const struct operand *out, const union attribute *attribute) {
    program_emit(c->program, c->rewrite.template, op, c->row->phase, c->row->layer, inputs, in, outputs, out,
                 attribute);
    rewrite_take_for(&c->rewrite, c->row, c->set);
}

static struct operand linear_buffer(const struct linear_context *c, const char *what, int64_t sequences,
                                    int64_t columns) {
    struct program *p = c->program;
    char *name = mem_printf("%s.%s", c->name, what);
    const int64_t dim[] = {sequences, c->state.dim[1], c->state.dim[2], columns};
    const int buffer = program_buffer(p, name, p->buffers.item[c->state.buffer].dtype, KIND_ACT, SCOPE_LOCAL, 4, dim);
    free(name);
    return operand_whole(p, buffer);
}

// Gathers what all parts make alone and puts those before the rank's own together, or those after it.
static void join_states(struct linear_context *c, struct operand own, bool later, struct operand joined) {
    const struct operand *in = c->row->in;
    const int64_t parts = c->row->attribute[ATTRIBUTE(LINEAR_PARTS, parts)].i;
    const struct operand all = linear_buffer(c, "all", parts * own.dim[0], own.dim[3]);
    program_communicate(c->program, c->rewrite.template, OP_ALL_GATHER, c->row->phase, tensor_stream(c->program),
                        c->group, own, all);
    rewrite_take_for(&c->rewrite, c->row, c->set);
    linear_emit(c, OP_LINEAR_JOIN,
                GIVEN(LINEAR_JOIN, [INPUT(LINEAR_JOIN, all)] = all,
                      [INPUT(LINEAR_JOIN, starts)] = in[INPUT(LINEAR_PARTS, starts)],
                      [INPUT(LINEAR_JOIN, first)] = in[INPUT(LINEAR_PARTS, first)]),
                1, &joined,
                (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(LINEAR_JOIN, parts)] = {.i = parts},
                                                     [ATTRIBUTE(LINEAR_JOIN, later)] = {.i = later}});
}

static void linear_forward(struct linear_context *c) {
    const struct operand *in = c->row->in;
    const struct operand own = linear_buffer(c, "own", c->state.dim[0], c->state.dim[3] + 1);
    linear_emit(c, OP_LINEAR_STATE,
                GIVEN(LINEAR_STATE, [INPUT(LINEAR_STATE, k)] = in[INPUT(LINEAR_PARTS, k)],
                      [INPUT(LINEAR_STATE, v)] = in[INPUT(LINEAR_PARTS, v)],
                      [INPUT(LINEAR_STATE, decay)] = in[INPUT(LINEAR_PARTS, decay)],
                      [INPUT(LINEAR_STATE, starts)] = in[INPUT(LINEAR_PARTS, starts)],
                      [INPUT(LINEAR_STATE, first)] = in[INPUT(LINEAR_PARTS, first)]),
                1, &own, NULL);
    join_states(c, own, false, c->state);
    linear_emit(c, OP_LINEAR_BLOCK,
                GIVEN(LINEAR_BLOCK, [INPUT(LINEAR_BLOCK, q)] = in[INPUT(LINEAR_PARTS, q)],
                      [INPUT(LINEAR_BLOCK, k)] = in[INPUT(LINEAR_PARTS, k)],
                      [INPUT(LINEAR_BLOCK, v)] = in[INPUT(LINEAR_PARTS, v)],
                      [INPUT(LINEAR_BLOCK, decay)] = in[INPUT(LINEAR_PARTS, decay)],
                      [INPUT(LINEAR_BLOCK, starts)] = in[INPUT(LINEAR_PARTS, starts)],
                      [INPUT(LINEAR_BLOCK, first)] = in[INPUT(LINEAR_PARTS, first)],
                      [INPUT(LINEAR_BLOCK, before)] = c->state),
                1, &c->row->out[OUTPUT(LINEAR_PARTS, o)], c->row->attribute);
}

static void linear_backward(struct linear_context *c) {
    const struct operand *in = c->row->in, *out = c->row->out;
    const struct operand own = linear_buffer(c, "own", c->state.dim[0], c->state.dim[3] + 1),
                         after = linear_buffer(c, "after", c->state.dim[0], c->state.dim[3]);
    linear_emit(c, OP_LINEAR_STATE_BWD,
                GIVEN(LINEAR_STATE_BWD, [INPUT(LINEAR_STATE_BWD, q)] = in[INPUT(LINEAR_PARTS_BWD, q)],
                      [INPUT(LINEAR_STATE_BWD, do)] = in[INPUT(LINEAR_PARTS_BWD, do)],
                      [INPUT(LINEAR_STATE_BWD, decay)] = in[INPUT(LINEAR_PARTS_BWD, decay)],
                      [INPUT(LINEAR_STATE_BWD, starts)] = in[INPUT(LINEAR_PARTS_BWD, starts)],
                      [INPUT(LINEAR_STATE_BWD, first)] = in[INPUT(LINEAR_PARTS_BWD, first)]),
                1, &own, c->row->attribute);
    join_states(c, own, true, after);
    linear_emit(c, OP_LINEAR_BLOCK_BWD,
                GIVEN(LINEAR_BLOCK_BWD, [INPUT(LINEAR_BLOCK_BWD, q)] = in[INPUT(LINEAR_PARTS_BWD, q)],
                      [INPUT(LINEAR_BLOCK_BWD, k)] = in[INPUT(LINEAR_PARTS_BWD, k)],
                      [INPUT(LINEAR_BLOCK_BWD, v)] = in[INPUT(LINEAR_PARTS_BWD, v)],
                      [INPUT(LINEAR_BLOCK_BWD, decay)] = in[INPUT(LINEAR_PARTS_BWD, decay)],
                      [INPUT(LINEAR_BLOCK_BWD, starts)] = in[INPUT(LINEAR_PARTS_BWD, starts)],
                      [INPUT(LINEAR_BLOCK_BWD, first)] = in[INPUT(LINEAR_PARTS_BWD, first)],
                      [INPUT(LINEAR_BLOCK_BWD, before)] = c->state,
                      [INPUT(LINEAR_BLOCK_BWD, do)] = in[INPUT(LINEAR_PARTS_BWD, do)],
                      [INPUT(LINEAR_BLOCK_BWD, after)] = after),
                MADE(LINEAR_BLOCK_BWD, [OUTPUT(LINEAR_BLOCK_BWD, dq)] = out[OUTPUT(LINEAR_PARTS_BWD, dq)],
                     [OUTPUT(LINEAR_BLOCK_BWD, dk)] = out[OUTPUT(LINEAR_PARTS_BWD, dk)],
                     [OUTPUT(LINEAR_BLOCK_BWD, dv)] = out[OUTPUT(LINEAR_PARTS_BWD, dv)],
                     [OUTPUT(LINEAR_BLOCK_BWD, ddecay)] = out[OUTPUT(LINEAR_PARTS_BWD, ddecay)]),
                c->row->attribute);
}

// ---- templates

static void linear_replace(void *user, const struct instruction *row) {
    struct linear_context *c = user;
    const bool forward = row->op == OP_LINEAR_PARTS;
    const int of = forward ? row->out[OUTPUT(LINEAR_PARTS, o)].buffer : row->in[INPUT(LINEAR_PARTS_BWD, do)].buffer;
    char *name = mem_strdup(c->program->buffers.item[of].name);
    c->row = row;
    c->name = name;
    c->set = program_set(c->program);
    c->state = forward ? row->out[OUTPUT(LINEAR_PARTS, before)] : row->in[INPUT(LINEAR_PARTS_BWD, before)];
    if (forward)
        linear_forward(c);
    else
        linear_backward(c);
    free(name);
}

void linear_context_rewrite(struct program *p, const struct parallel *parallel) {
    const axis_set group = parallel_parts(parallel);
    struct linear_context c = {.program = p, .group = group};
    if (group)
        rewrite_rows(&c.rewrite, p, OP_LINEAR_PARTS, OP_LINEAR_PARTS_BWD, linear_replace, &c);
}
