// The backward pass: for each forward instruction, from last to first, emits the rows of ops.def whose adjoint names
// its op and whose result somebody wants. Contributions to one gradient accumulate; a gradient that passes unchanged
// through a sum is handed on, and added by a row that takes it (`+i0'` in ops.def).
#include "compile/differentiate.h"

void gradients_init(struct gradients *g, struct program *program, const struct op_table *table) {
    *g = (struct gradients){.program = program, .table = table};
    for (int s = 0; s < STREAMS_MAX; s++)
        g->stream[s] = s;
}

void gradients_stream(struct gradients *g, int from, int to) {
    g->stream[from] = to;
}

void gradients_release(struct gradients *g) {
    VEC_RELEASE(&g->of);
    VEC_RELEASE(&g->passed);
    VEC_RELEASE(&g->contributed);
    VEC_RELEASE(&g->in_part);
    VEC_RELEASE(&g->wanted);
}

// Emitting adds buffers to the program; the arrays of struct gradients follow.
static void differentiate_grow(struct gradients *g) {
    while (g->of.count < g->program->buffers.count) {
        VEC_PUSH(&g->of, NONE);
        VEC_PUSH(&g->passed, NONE);
        VEC_PUSH(&g->contributed, false);
        VEC_PUSH(&g->in_part, false);
        VEC_PUSH(&g->wanted, false);
    }
}

void gradients_add_parameter(struct gradients *g, int parameter, int gradient) {
    differentiate_grow(g);
    g->of.item[parameter] = gradient;
    g->wanted.item[parameter] = true;
    g->program->buffers.item[gradient].gradient_of = parameter;
}

static bool is_wanted(struct gradients *g, int buffer) {
    differentiate_grow(g);
    for (; buffer != NONE; buffer = g->program->buffers.item[buffer].parent)
        if (g->wanted.item[buffer])
            return true;
    return false;
}

void gradients_want(struct gradients *g, int from, size_t first, size_t last) {
    differentiate_grow(g);
    for (size_t i = first; i < last; i++) {
        const struct instruction *f = &g->program->templates.item[from].instructions.item[i];
        bool wanted = instruction_arrives(f); // from a stage that has parameters of its own
        for (int k = 0; k < f->inputs; k++)
            wanted |= f->in[k].buffer != NONE && is_wanted(g, f->in[k].buffer);
        for (int k = 0; k < f->outputs; k++)
            if (wanted && f->out[k].buffer != NONE)
                g->wanted.item[f->out[k].buffer] = true;
    }
}

// The buffer that holds the gradient of `buffer`, made on first use; that of a slice is the same slice of its parent's.
static int gradient_buffer(struct gradients *g, int buffer) {
    differentiate_grow(g);
    if (g->of.item[buffer] != NONE)
        return g->of.item[buffer];
    int parent = g->program->buffers.item[buffer].parent;
    int parent_gradient = parent == NONE ? NONE : gradient_buffer(g, parent);
    const struct buffer b = g->program->buffers.item[buffer];
    char *name = mem_printf("d.%s", b.name);
    int gradient = parent == NONE ? program_buffer(g->program, name, b.dtype, KIND_ACT, SCOPE_LOCAL, b.ndim, b.dim)
                                  : program_slice(g->program, parent_gradient, name, b.parent_offset, b.ndim, b.dim);
    free(name);
    differentiate_grow(g);
    g->program->buffers.item[gradient].gradient_of = buffer;
    g->of.item[buffer] = gradient;
    return gradient;
}

static void note_contribution(struct gradients *g, int buffer) {
    int parent = g->program->buffers.item[buffer].parent;
    g->contributed.item[buffer] = true;
    if (parent != NONE)
        g->in_part.item[parent] = true;
}

int gradients_contribute(struct gradients *g, int buffer) {
    int gradient = gradient_buffer(g, buffer);
    note_contribution(g, buffer);
    return gradient;
}

static struct operand gradient_operand(struct gradients *g, const struct operand *of) {
    struct operand operand = *of;
    operand.buffer = gradient_buffer(g, of->buffer);
    return operand;
}

// The gradient of a forward output, complete by now. If all of it comes unchanged from one sum, it is the sum's.
static struct operand complete_gradient(struct gradients *g, const struct operand *of) {
    differentiate_grow(g);
    if (g->passed.item[of->buffer] != NONE && !g->contributed.item[of->buffer])
        g->of.item[of->buffer] = g->passed.item[of->buffer];
    return gradient_operand(g, of);
}

static bool has_gradient(struct gradients *g, int buffer) {
    differentiate_grow(g);
    return g->contributed.item[buffer] || g->in_part.item[buffer] || g->passed.item[buffer] != NONE;
}

static bool differentiate_contributes(struct gradients *g, const struct op_info *backward,
                                      const struct instruction *f) {
    if (backward->outputs == 0 || instruction_arrives(f))
        return true; // the backward row sends the gradient to another rank
    for (int i = 0; i < backward->outputs; i++) {
        int buffer = f->in[backward->contributes[i].index].buffer;
        if (buffer != NONE && is_wanted(g, buffer))
            return true;
    }
    return false;
}

static void emit_backward(struct gradients *g, const struct op_info *backward, const struct instruction *f, int into) {
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
    bool weight = false;
    enum accumulate accumulate = ACCUMULATE_NO;
    int folded = NONE; // the buffer whose passed gradient this instruction adds
    for (int i = 0; i < backward->inputs; i++) {
        struct op_reference r = backward->reads[i];
        const struct operand *of = r.output ? &f->out[r.index] : &f->in[r.index];
        in[i] = of->buffer == NONE || !r.gradient ? *of : operand_none();
        if (of->buffer == NONE || !r.gradient)
            continue;
        if (!r.pass) {
            in[i] = complete_gradient(g, of);
        } else if (g->contributed.item[of->buffer]) {
            in[i] = gradient_operand(g, of); // fold into what is there
        } else if (g->passed.item[of->buffer] != NONE) {
            in[i] = *of;
            in[i].buffer = g->passed.item[of->buffer];
            folded = of->buffer;
        }
    }
    for (int i = 0; i < backward->outputs; i++) {
        const struct operand *of = &f->in[backward->contributes[i].index];
        out[i] = operand_none();
        if (of->buffer == NONE || !is_wanted(g, of->buffer))
            continue;
        out[i] = gradient_operand(g, of);
        bool parameter = g->program->buffers.item[of->buffer].kind == KIND_PARAM;
        bool kept = g->program->buffers.item[out[i].buffer].scope != SCOPE_LOCAL; // over microbatches
        bool passes = false;
        for (int k = 0; k < backward->inputs; k++)
            passes |= backward->reads[k].pass && backward->reads[k].index == backward->contributes[i].index;
        // A gradient that passes unchanged can be added only by an op that takes it: write the model so that it can.
        CHECK(g->passed.item[of->buffer] == NONE || folded == of->buffer);
        if (parameter && kept)
            accumulate = g->contributed.item[of->buffer] ? ACCUMULATE_YES : ACCUMULATE_AFTER_FIRST;
        else if (g->contributed.item[of->buffer] && !passes)
            accumulate = ACCUMULATE_YES;
        weight |= parameter;
    }
    for (int i = 0; i < backward->outputs; i++)
        if (out[i].buffer != NONE)
            note_contribution(g, f->in[backward->contributes[i].index].buffer);
    if (folded != NONE)
        g->passed.item[folded] = NONE;
    // Attributes that both have carry over, by name.
    const struct op_info *forward = &g->table->op[f->op];
    union attribute attribute[OP_MAX_ATTRIBUTES] = {0};
    for (int i = 0; i < backward->attributes; i++) {
        int k = op_attribute_find(forward, backward->attribute[i].name);
        if (k >= 0)
            attribute[i] = f->attribute[k];
    }
    struct instruction *b = program_emit(g->program, into, backward->op, weight ? PHASE_WEIGHT : PHASE_BACKWARD,
                                         f->layer, backward->inputs, in, backward->outputs, out, attribute);
    b->accumulate = accumulate;
    b->group = f->group;
    b->peer = f->peer; // what came from there goes back there
    if (backward->role == ROLE_COMMUNICATION)
        b->stream = g->stream[f->stream];
}

void differentiate(struct gradients *g, int from, size_t first, size_t last, int into) {
    for (size_t i = last; i-- > first;) {
        const struct instruction f = g->program->templates.item[from].instructions.item[i];
        const struct op_info *forward = &g->table->op[f.op];
        if (forward->role == ROLE_LOSS) {
            // The op itself wrote the gradient of its input, as its last output.
            int gradient = f.out[f.outputs - 1].buffer;
            differentiate_grow(g);
            g->of.item[f.in[0].buffer] = gradient;
            g->program->buffers.item[gradient].gradient_of = f.in[0].buffer;
            note_contribution(g, f.in[0].buffer);
            continue;
        }
        bool sends = instruction_leaves(&f);
        if (forward->role != ROLE_FORWARD && forward->role != ROLE_COMMUNICATION)
            continue;
        if (!sends && (f.out[0].buffer == NONE || !has_gradient(g, f.out[0].buffer)))
            continue;
        for (int k = 0; k < f.inputs; k++)
            if (forward->identity[k] && f.in[k].buffer != NONE && is_wanted(g, f.in[k].buffer)) {
                CHECK(!has_gradient(g, f.in[k].buffer));
                g->passed.item[f.in[k].buffer] = complete_gradient(g, &f.out[0]).buffer;
            }
        for (int op = 0; op < OP_COUNT; op++) {
            const struct op_info *backward = &g->table->op[op];
            if (backward->transposes && backward->forward == f.op && !backward->fused &&
                differentiate_contributes(g, backward, &f))
                emit_backward(g, backward, &f, into);
        }
    }
}
