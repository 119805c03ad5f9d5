// The backward pass: for each forward instruction, from last to first, emits the rows of ops.def whose adjoint names
// its op and whose result somebody wants.
//
// A tensor's gradient is a sum with a term for each of its uses. Rows that can add (`+` in ops.def) add to what is
// there; a row that takes a gradient to be added (`+i0'`) gets one. Terms that cannot be added so wait: the gradient of
// a sum that the tensor enters, which is the tensor's own if there are no other terms, and what a row has made that
// cannot add. They are added by instructions of their own when the gradient is to be complete. Only then is it read.
#include "compile/differentiate.h"
#include "program/structure.h"

void gradients_init(struct gradients *g, struct program *program, const struct op_table *table) {
    *g = (struct gradients){.program = program, .table = table};
    for (int s = 0; s < STREAMS_MAX; s++)
        g->stream[s] = s;
}

void gradients_stream(struct gradients *g, int from, int to) {
    g->stream[from] = to;
}

static struct buffer *buffer_at(const struct gradients *g, int buffer) {
    return &g->program->buffers.item[buffer];
}

static const char *gradients_name(const struct gradients *g, int buffer) {
    return buffer_at(g, buffer)->name;
}

trireme_status gradients_finish(struct gradients *g, trireme_error *error) {
    trireme_status status = g->status;
    if (status != TRIREME_OK)
        *error = g->error;
    else if (g->terms.count)
        status = error_set(error, TRIREME_ERROR_PROGRAM, "nothing that makes %s takes its gradient",
                           gradients_name(g, g->terms.item[0].to.buffer));
    for (size_t i = 0; i < g->contributed.count; i++)
        written_release(&g->contributed.item[i]);
    VEC_RELEASE(&g->of);
    VEC_RELEASE(&g->wanted);
    VEC_RELEASE(&g->contributed);
    VEC_RELEASE(&g->terms);
    return status;
}

// Emitting adds buffers to the program; the arrays of struct gradients follow.
static void gradients_grow(struct gradients *g) {
    while (g->of.count < g->program->buffers.count) {
        VEC_PUSH(&g->of, NONE);
        VEC_PUSH(&g->wanted, false);
        VEC_PUSH(&g->contributed, (struct written){0});
    }
}

// ---- what wants a gradient

void gradients_add_parameter(struct gradients *g, int parameter, int gradient) {
    gradients_grow(g);
    g->of.item[parameter] = gradient;
    g->wanted.item[parameter] = true;
    buffer_at(g, gradient)->gradient_of = parameter;
}

static bool is_wanted(struct gradients *g, int buffer) {
    gradients_grow(g);
    for (; buffer != NONE; buffer = buffer_at(g, buffer)->parent)
        if (g->wanted.item[buffer])
            return true;
    return false;
}

void gradients_want(struct gradients *g, int from, size_t first, size_t last) {
    gradients_grow(g);
    for (size_t i = first; i < last; i++) {
        const struct instruction *f = &g->program->templates.item[from].instructions.item[i];
        bool wanted = instruction_arrives(f); // from a stage that has parameters of its own
        for (int k = 0; k < f->inputs; k++)
            wanted |= f->in[k].buffer != NONE && is_wanted(g, f->in[k].buffer);
        for (int k = 0; k < f->outputs; k++)
            if (wanted && f->out[k].buffer != NONE && dtype_is_real(buffer_at(g, f->out[k].buffer)->dtype))
                for (int b = f->out[k].buffer; b != NONE; b = buffer_at(g, b)->parent)
                    g->wanted.item[b] = true;
    }
}

// ---- buffers of gradients

// The buffer that holds the gradient of `buffer`, made on first use; that of a slice is the same slice of its parent's.
static int gradient_buffer(struct gradients *g, int buffer) {
    gradients_grow(g);
    if (g->of.item[buffer] != NONE)
        return g->of.item[buffer];
    int parent = buffer_at(g, buffer)->parent;
    int parent_gradient = parent == NONE ? NONE : gradient_buffer(g, parent);
    const struct buffer b = *buffer_at(g, buffer);
    char *name = mem_printf("d.%s", b.name);
    int gradient = parent == NONE ? program_buffer(g->program, name, b.dtype, KIND_ACT, SCOPE_LOCAL, b.ndim, b.dim)
                                  : program_slice(g->program, parent_gradient, name, b.parent_offset, b.ndim, b.dim);
    if (b.extent != NONE)
        program_bound(g->program, gradient, b.extent, b.expect);
    free(name);
    gradients_grow(g);
    buffer_at(g, gradient)->gradient_of = buffer;
    g->of.item[buffer] = gradient;
    return gradient;
}

static struct operand gradient_operand(struct gradients *g, const struct operand *of) {
    struct operand operand = *of;
    operand.buffer = gradient_buffer(g, of->buffer);
    return operand;
}

// Whether a parameter's gradient adds up over microbatches.
static bool is_kept(const struct gradients *g, const struct operand *gradient) {
    return buffer_at(g, gradient->buffer)->kind == KIND_GRAD && buffer_at(g, gradient->buffer)->scope != SCOPE_LOCAL;
}

static bool is_parameter(const struct gradients *g, const struct operand *operand) {
    return buffer_at(g, operand->buffer)->kind == KIND_PARAM;
}

// ---- what has been contributed

// Parameters are known one by one, also where their gradients lie in one buffer.
static struct written *contributed_to(struct gradients *g, int gradient) {
    gradients_grow(g);
    const bool parameter = buffer_at(g, gradient)->kind == KIND_GRAD;
    return &g->contributed.item[parameter ? gradient : program_root(g->program, gradient)];
}

static trireme_status find_footprint(struct gradients *g, const struct operand *operand, struct footprint *out) {
    trireme_error *error = &g->error;
    if (!footprint_of_all_ranks(g->program, operand, out))
        FAIL(TRIREME_ERROR_PROGRAM,
             "%s cannot be differentiated: it is used through a view that is neither contiguous nor a band of columns",
             gradients_name(g, operand->buffer));
    return TRIREME_OK;
}

static void note_contribution(struct gradients *g, const struct operand *gradient) {
    struct footprint where;
    if (footprint_of_all_ranks(g->program, gradient, &where))
        written_add(contributed_to(g, gradient->buffer), where);
}

int gradients_contribute(struct gradients *g, int buffer) {
    struct operand whole = operand_whole(g->program, gradient_buffer(g, buffer));
    note_contribution(g, &whole);
    return whole.buffer;
}

// True also where it cannot be told.
static bool operands_overlap(const struct gradients *g, const struct operand *a, const struct operand *b) {
    struct footprint of_a, of_b;
    return program_root(g->program, a->buffer) == program_root(g->program, b->buffer) &&
           (!footprint_of_all_ranks(g->program, a, &of_a) || !footprint_of_all_ranks(g->program, b, &of_b) ||
            footprint_overlap(&of_a, &of_b));
}

// The first term from number `from` on that waits for some of `of`.
static int find_term(const struct gradients *g, const struct operand *of, int from) {
    for (int i = from; i < (int)g->terms.count; i++)
        if (operands_overlap(g, &g->terms.item[i].to, of))
            return i;
    return NONE;
}

static struct gradient_term take_term(struct gradients *g, int number) {
    struct gradient_term term = g->terms.item[number];
    for (size_t i = (size_t)number; i + 1 < g->terms.count; i++)
        g->terms.item[i] = g->terms.item[i + 1];
    g->terms.count--;
    return term;
}

// Whether some of the gradient of `of` has been made.
static bool has_gradient(struct gradients *g, const struct operand *of) {
    if (of->buffer == NONE)
        return false;
    if (find_term(g, of, 0) != NONE)
        return true;
    gradients_grow(g);
    bool known = false;
    for (int b = of->buffer; b != NONE; b = buffer_at(g, b)->parent)
        known |= g->of.item[b] != NONE;
    if (!known)
        return false;
    struct operand gradient = gradient_operand(g, of);
    struct footprint where;
    return !footprint_of_all_ranks(g->program, &gradient, &where) ||
           written_unread(contributed_to(g, gradient.buffer), &where);
}

// ---- sums

// Where instructions go, and the layer that they belong to.
struct place {
    int template, layer;
};

static void gradient_emit_zero(struct gradients *g, struct place at, enum op op, struct operand y) {
    program_emit(g->program, at.template, op, PHASE_BACKWARD, at.layer, 0, NULL, 1, &y, NULL);
}

// Columns [begin, end) of the rows of `where` become zero.
static void zero_band(struct gradients *g, struct place at, int root, const struct footprint *where, int64_t begin,
                      int64_t end) {
    struct operand y = {.buffer = root,
                        .offset = where->first_row * where->stride + begin,
                        .ndim = 2,
                        .dim = {where->last_row - where->first_row, end - begin},
                        .stride = {where->stride, 1}};
    gradient_emit_zero(g, at, OP_ZERO_COLUMNS, y);
}

static void zero_range(struct gradients *g, struct place at, int root, int64_t begin, int64_t end) {
    struct operand y = {.buffer = root, .offset = begin, .ndim = 1, .dim = {end - begin}, .stride = {1}};
    gradient_emit_zero(g, at, OP_ZERO, y);
}

// A range that is whole rows of the bands, as one of them; the rest stays as it is.
static struct footprint as_band(const struct footprint *range, const struct written *w) {
    if (range->stride || !w->bands.count)
        return *range;
    const int64_t stride = w->bands.item[0].where.stride;
    if (range->begin % stride || range->end % stride)
        return *range;
    return (struct footprint){stride, range->begin / stride, range->end / stride, 0, stride};
}

static bool zero_missing_columns(struct gradients *g, struct place at, int root, const struct written *w,
                                 const struct footprint *where) {
    for (int64_t column = where->begin; column < where->end;) {
        int64_t next = where->end, after = column;
        for (size_t i = 0; i < w->bands.count; i++) {
            const struct footprint *band = &w->bands.item[i].where;
            if (!footprint_overlap(band, where))
                continue;
            if (band->stride != where->stride || band->first_row > where->first_row || band->last_row < where->last_row)
                return false;
            if (band->begin <= column)
                after = MAX(after, band->end);
            else
                next = MIN(next, band->begin);
        }
        if (after == column)
            zero_band(g, at, root, where, column, next);
        column = after == column ? next : after;
    }
    return true;
}

static void zero_missing_ranges(struct gradients *g, struct place at, int root, const struct written *w,
                                const struct footprint *where) {
    int64_t from = where->begin;
    for (size_t i = 0; i < w->ranges.count && from < where->end; i++) {
        const struct written_range *range = &w->ranges.item[i];
        if (range->end <= from)
            continue;
        if (range->begin > from)
            zero_range(g, at, root, from, MIN(range->begin, where->end));
        from = range->end;
    }
    if (from < where->end)
        zero_range(g, at, root, from, where->end);
}

// Makes zero what nothing has contributed to of the gradient of `of`.
static trireme_status fill_gradient(struct gradients *g, struct place at, const struct operand *of) {
    trireme_error *error = &g->error;
    const struct operand gradient = gradient_operand(g, of);
    const int root = program_root(g->program, gradient.buffer);
    struct footprint where;
    TRY(find_footprint(g, &gradient, &where));
    struct written *w = contributed_to(g, root), seen = {0};
    if (written_covers(w, &where))
        return TRIREME_OK;
    for (size_t i = 0; i < w->ranges.count; i++)
        VEC_PUSH(&seen.ranges, w->ranges.item[i]);
    for (size_t i = 0; i < w->bands.count; i++)
        VEC_PUSH(&seen.bands, w->bands.item[i]);
    const struct footprint band = as_band(&where, &seen);
    bool bands = false, ranges = false, told = !is_kept(g, &gradient);
    for (size_t i = 0; i < seen.bands.count; i++)
        bands |= footprint_overlap(&seen.bands.item[i].where, &band);
    for (size_t i = 0; i < seen.ranges.count; i++)
        ranges |=
            footprint_overlap(&(struct footprint){0, 0, 1, seen.ranges.item[i].begin, seen.ranges.item[i].end}, &band);
    told &= !(bands && ranges) && !(ranges && where.stride);
    if (told && (bands || where.stride))
        told = zero_missing_columns(g, at, root, &seen, &band);
    else if (told)
        zero_missing_ranges(g, at, root, &seen, &where);
    written_release(&seen);
    if (!told)
        FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: it is used through views that overlap in part",
             gradients_name(g, of->buffer));
    note_contribution(g, &gradient);
    return TRIREME_OK;
}

// Says whether the gradient of `of` has contributions in all of its elements; if only some have any, the others become
// zero.
static trireme_status join_gradient(struct gradients *g, struct place at, const struct operand *of, bool *covered) {
    const struct operand gradient = gradient_operand(g, of);
    struct footprint where;
    TRY(find_footprint(g, &gradient, &where));
    *covered = written_covers(contributed_to(g, gradient.buffer), &where);
    if (*covered || !written_unread(contributed_to(g, gradient.buffer), &where))
        return TRIREME_OK;
    *covered = true;
    return fill_gradient(g, at, of);
}

// Emits a sum of matrices, the first `inputs` of `operand`, into the last.
static trireme_status gradient_emit_sum(struct gradients *g, struct place at, enum op op, int inputs,
                                        const struct operand *operand, enum accumulate accumulate) {
    trireme_error *error = &g->error;
    struct operand matrix[3];
    const struct operand *y = &operand[inputs];
    bool fits = false;
    for (int rows = y->ndim - 1; rows >= 0 && !fits; rows--) {
        fits = true;
        for (int k = 0; k <= inputs; k++)
            if (operand[k].buffer == NONE)
                matrix[k] = operand[k];
            else
                fits &= operand_matrix(&operand[k], rows, &matrix[k]);
    }
    if (!fits)
        FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: a view of it is no matrix",
             gradients_name(g, buffer_at(g, y->buffer)->gradient_of));
    const enum phase phase = op == OP_GRADIENT_SUM_DW ? PHASE_WEIGHT : PHASE_BACKWARD;
    program_emit(g->program, at.template, op, phase, at.layer, inputs, matrix, 1, &matrix[inputs], NULL)->accumulate =
        accumulate;
    note_contribution(g, y);
    return TRIREME_OK;
}

// Adds a term to the gradient that it belongs to: together with another one where that is still empty.
static trireme_status gradient_add_term(struct gradients *g, struct place at, int number) {
    trireme_error *error = &g->error;
    const struct gradient_term term = take_term(g, number);
    bool covered;
    TRY(join_gradient(g, at, &term.to, &covered));
    const struct operand y = gradient_operand(g, &term.to);
    const bool parameter = is_parameter(g, &term.to);
    const enum dtype from = buffer_at(g, term.from.buffer)->dtype, to = buffer_at(g, y.buffer)->dtype;
    if ((parameter ? dtype_accumulate(from) : from) != to)
        FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: a term of its gradient is %s, the gradient %s",
             gradients_name(g, term.to.buffer), dtype_name(from), dtype_name(to));
    if (parameter)
        return gradient_emit_sum(
            g, at, OP_GRADIENT_SUM_DW, INPUTS(GRADIENT_SUM_DW),
            (struct operand[]){[INPUT(GRADIENT_SUM_DW, dy)] = term.from, [INPUTS(GRADIENT_SUM_DW)] = y},
            covered          ? ACCUMULATE_YES
            : is_kept(g, &y) ? ACCUMULATE_AFTER_FIRST
                             : ACCUMULATE_NO);
    struct operand other = covered ? y : operand_none();
    for (int i = 0; i < (int)g->terms.count && other.buffer == NONE; i++)
        if (operand_equal(&g->terms.item[i].to, &term.to))
            other = take_term(g, i).from;
    return gradient_emit_sum(g, at, OP_GRADIENT_SUM, INPUTS(GRADIENT_SUM),
                             (struct operand[]){[INPUT(GRADIENT_SUM, a)] = term.from,
                                                [INPUT(GRADIENT_SUM, b)] = other,
                                                [INPUTS(GRADIENT_SUM)] = y},
                             ACCUMULATE_NO);
}

static trireme_status add_to_parameter(struct gradients *g, struct place at, struct gradient_term term) {
    VEC_PUSH(&g->terms, term);
    return is_parameter(g, &term.to) ? gradient_add_term(g, at, (int)g->terms.count - 1) : TRIREME_OK;
}

static bool operand_is_whole(const struct gradients *g, const struct operand *operand) {
    return operand_count(operand) == buffer_count(buffer_at(g, operand->buffer));
}

// Whether the term, which is all that there is of the gradient of a tensor made in one piece, may be that gradient.
static bool may_share(struct gradients *g, const struct operand *of, const struct gradient_term *term) {
    gradients_grow(g);
    return term->passes && term->to.buffer == of->buffer && g->of.item[of->buffer] == NONE &&
           buffer_at(g, of->buffer)->parent == NONE && operand_is_whole(g, of) && operand_is_whole(g, &term->to) &&
           operand_is_whole(g, &term->from);
}

// The gradient of a forward output, which gets all terms that still wait, and zeros where there are none.
static trireme_status complete_gradient(struct gradients *g, struct place at, const struct operand *of,
                                        struct operand *gradient) {
    int term = find_term(g, of, 0);
    if (term != NONE && find_term(g, of, term + 1) == NONE && may_share(g, of, &g->terms.item[term]))
        g->of.item[of->buffer] = take_term(g, term).from.buffer;
    while ((term = find_term(g, of, 0)) != NONE)
        TRY(gradient_add_term(g, at, term));
    TRY(fill_gradient(g, at, of));
    *gradient = gradient_operand(g, of);
    return TRIREME_OK;
}

// ---- rows

static struct operand reference_of(const struct instruction *f, struct op_reference r) {
    return r.output ? f->out[r.index] : f->in[r.index];
}

// The input of a backward row that takes a gradient to be added to that of input `index` of the forward op; NONE.
static int find_pass(const struct op_info *backward, int index) {
    for (int i = 0; i < backward->inputs; i++)
        if (backward->reads[i].pass && backward->reads[i].index == index)
            return i;
    return NONE;
}

// The outputs of a backward instruction while it is put together.
struct outputs {
    struct operand of[OP_MAX_OUT], to[OP_MAX_OUT]; // forward inputs, where there is something to make; their gradients
    bool apart[OP_MAX_OUT];                        // it cannot be written or added where it belongs
    enum accumulate need[OP_MAX_OUT];              // of those that can be added to
    enum accumulate accumulate;                    // of the instruction
    int count, parameters;
};

static struct operand wanted_output(struct gradients *g, const struct op_info *backward, const struct instruction *f,
                                    int output, bool parameters_alone) {
    const struct operand *of = &f->in[backward->contributes[output].index];
    bool wanted = of->buffer != NONE && is_wanted(g, of->buffer) && !(parameters_alone && !is_parameter(g, of));
    return wanted ? *of : operand_none();
}

// Whether an output before this one makes the same elements.
static bool is_contested(struct gradients *g, const struct outputs *o, int output) {
    for (int k = 0; k < output; k++)
        if (o->of[k].buffer != NONE && !o->apart[k] && operands_overlap(g, &o->to[k], &o->to[output]))
            return true;
    return false;
}

// What an output of a backward row is made as: the row's A is what the tensor's dtype accumulates in.
static enum dtype made_as(const struct gradients *g, const struct op_operand *row, const struct operand *of) {
    const enum dtype dtype = buffer_at(g, of->buffer)->dtype;
    return row->dtype == 'A' ? dtype_accumulate(dtype) : dtype;
}

static bool operand_same_view(struct operand a, const struct operand *b) {
    a.buffer = b->buffer;
    return operand_equal(&a, b);
}

// A gradient that passes through a sum to all of `of`, for a row to add; operand_none: there is none.
static struct operand take_passing(struct gradients *g, const struct operand *of) {
    for (int i = 0; i < (int)g->terms.count; i++) {
        const struct gradient_term *t = &g->terms.item[i];
        if (!t->passes || t->to.buffer != of->buffer || !operand_equal(&t->to, of))
            continue;
        struct operand in = *of;
        in.buffer = t->from.buffer;
        if (!operand_same_view(t->from, of) && !(operand_is_whole(g, &t->from) && operand_is_whole(g, of)))
            continue;
        take_term(g, i);
        return in;
    }
    return operand_none();
}

// Decides where output `i` of the backward row goes, and which gradient the row adds to it.
static trireme_status direct_output(struct gradients *g, struct place at, const struct op_info *backward,
                                    struct outputs *o, int i, struct operand in[OP_MAX_IN]) {
    const struct operand *of = &o->of[i];
    const int pass = find_pass(backward, backward->contributes[i].index);
    const bool contested = is_contested(g, o, i), kept = is_kept(g, &o->to[i]),
               fits = made_as(g, &backward->out[i], of) == buffer_at(g, o->to[i].buffer)->dtype;
    bool covered = false;
    o->apart[i] = contested || !fits;
    if (o->apart[i])
        return TRIREME_OK;
    TRY(join_gradient(g, at, of, &covered));
    if (backward->out[i].adds) {
        o->need[i] = covered ? ACCUMULATE_YES : kept ? ACCUMULATE_AFTER_FIRST : ACCUMULATE_NO;
    } else if (pass != NONE && !kept) {
        in[pass] = covered ? o->to[i] : take_passing(g, of);
    } else {
        o->apart[i] = covered || kept;
    }
    return TRIREME_OK;
}

static trireme_status direct_outputs(struct gradients *g, struct place at, const struct op_info *backward,
                                     const struct instruction *f, bool parameters_alone, struct outputs *o,
                                     struct operand in[OP_MAX_IN]) {
    int adding = NONE;
    bool agree = true;
    *o = (struct outputs){.accumulate = ACCUMULATE_NO};
    for (int i = 0; i < backward->outputs; i++) {
        o->of[i] = wanted_output(g, backward, f, i, parameters_alone);
        if (o->of[i].buffer == NONE && !backward->out[i].optional && !parameters_alone)
            o->of[i] =
                f->in[backward->contributes[i].index]; // made, but not read: of keys, where queries alone are trained
        if (o->of[i].buffer == NONE)
            continue;
        o->count++;
        o->parameters += is_parameter(g, &o->of[i]);
        o->to[i] = gradient_operand(g, &o->of[i]);
        TRY(direct_output(g, at, backward, o, i, in));
        if (!backward->out[i].adds)
            continue;
        agree &= adding == NONE || o->need[i] == o->need[adding];
        adding = i;
    }
    // All outputs that can be added to are added to, or none is. What is apart is not.
    for (int i = 0; i < backward->outputs; i++)
        agree &= o->of[i].buffer == NONE || !backward->out[i].adds || !o->apart[i];
    if (adding != NONE && agree)
        o->accumulate = o->need[adding];
    for (int i = 0; i < backward->outputs && !agree; i++)
        o->apart[i] |= o->of[i].buffer != NONE && backward->out[i].adds && o->need[i] != ACCUMULATE_NO;
    return TRIREME_OK;
}

// A buffer for a term, in the shape of the view that it is a term of.
static struct operand term_buffer(struct gradients *g, const struct op_operand *row, const struct operand *of) {
    char *name = mem_printf("d.%s.term%d", gradients_name(g, of->buffer), g->named++);
    int term = program_buffer(g->program, name, made_as(g, row, of), KIND_ACT, SCOPE_LOCAL, of->ndim, of->dim);
    free(name);
    buffer_at(g, term)->gradient_of = of->buffer;
    const struct buffer *b = buffer_at(g, of->buffer);
    if (b->extent != NONE)
        program_bound(g->program, term, b->extent, b->expect);
    return operand_whole(g->program, term);
}

// Attributes that both have carry over, by name.
static void copy_attributes(const struct op_info *forward, const struct instruction *f, const struct op_info *backward,
                            union attribute attribute[OP_MAX_ATTRIBUTES]) {
    for (int i = 0; i < backward->attributes; i++) {
        int k = op_attribute_find(forward, backward->attribute[i].name);
        if (k >= 0)
            attribute[i] = f->attribute[k];
    }
}

// The inputs of a backward instruction, but for gradients that it is to add.
static trireme_status backward_read_inputs(struct gradients *g, struct place at, const struct op_info *backward,
                                           const struct instruction *f, struct operand in[OP_MAX_IN]) {
    for (int i = 0; i < backward->inputs; i++) {
        const struct op_reference r = backward->reads[i];
        const struct operand of = reference_of(f, r);
        in[i] = r.gradient ? operand_none() : of;
        if (!r.gradient || r.pass || of.buffer == NONE)
            continue;
        if (has_gradient(g, &of) || !backward->in[i].optional)
            TRY(complete_gradient(g, at, &of, &in[i]));
    }
    return TRIREME_OK;
}

static trireme_status emit_backward(struct gradients *g, struct place at, const struct op_info *backward,
                                    const struct instruction *f, bool parameters_alone) {
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
    struct outputs o;
    union attribute attribute[OP_MAX_ATTRIBUTES] = {0};
    TRY(backward_read_inputs(g, at, backward, f, in));
    TRY(direct_outputs(g, at, backward, f, parameters_alone, &o, in));
    for (int i = 0; i < backward->outputs; i++) {
        const bool made = o.of[i].buffer != NONE;
        out[i] = !made ? operand_none() : o.apart[i] ? term_buffer(g, &backward->out[i], &o.of[i]) : o.to[i];
        if (made && !o.apart[i])
            note_contribution(g, &out[i]);
    }
    copy_attributes(&g->table->op[f->op], f, backward, attribute);
    const bool weight = o.count && o.count == o.parameters;
    struct instruction *b = program_emit(g->program, at.template, backward->op, weight ? PHASE_WEIGHT : PHASE_BACKWARD,
                                         at.layer, backward->inputs, in, backward->outputs, out, attribute);
    b->accumulate = o.accumulate;
    b->group = f->group;
    b->peer = f->peer; // what came from there goes back there
    if (backward->role == ROLE_COMMUNICATION)
        b->stream = g->stream[f->stream];
    for (int i = 0; i < backward->outputs; i++)
        if (o.of[i].buffer != NONE && o.apart[i])
            TRY(add_to_parameter(g, at, (struct gradient_term){out[i], o.of[i], false}));
    return TRIREME_OK;
}

// ---- instructions

// Whether the backward row answers the instruction: it reads a gradient that there is, or needs none, and makes one
// that is wanted, or sends it to another rank.
static bool is_answer(struct gradients *g, const struct op_info *backward, const struct instruction *f,
                      bool parameters_alone) {
    if (!backward->transposes || backward->forward != f->op || backward->fused)
        return false;
    bool reads = instruction_leaves(f), makes = backward->outputs == 0 || instruction_arrives(f);
    for (int i = 0; i < backward->inputs && !reads; i++) {
        const struct operand of = reference_of(f, backward->reads[i]);
        reads = backward->reads[i].gradient && !backward->reads[i].pass && has_gradient(g, &of);
    }
    for (int i = 0; i < backward->outputs && !makes; i++)
        makes = wanted_output(g, backward, f, i, parameters_alone).buffer != NONE;
    return reads && makes;
}

// Whether a row, or a sum, reads the gradient of that output of the op; whether one makes that of the input.
static bool takes_gradient(const struct gradients *g, const struct op_info *forward, int output) {
    bool takes = false;
    for (int i = 0; i < forward->inputs && output == 0; i++)
        takes |= forward->identity[i];
    for (int op = 0; op < OP_COUNT; op++)
        for (int i = 0; i < g->table->op[op].inputs && g->table->op[op].transposes; i++) {
            const struct op_reference r = g->table->op[op].reads[i];
            takes |= g->table->op[op].forward == forward->op && r.output && r.gradient && r.index == output;
        }
    return takes;
}

static bool makes_gradient(const struct gradients *g, const struct op_info *forward, int input) {
    bool makes = forward->identity[input];
    for (int op = 0; op < OP_COUNT; op++)
        for (int i = 0; i < g->table->op[op].outputs && g->table->op[op].transposes; i++)
            makes |= g->table->op[op].forward == forward->op && g->table->op[op].contributes[i].index == input;
    return makes;
}

// Refuses an instruction through which gradients would be lost.
static trireme_status check_differentiable(struct gradients *g, int from, size_t index, bool parameters_alone) {
    trireme_error *error = &g->error;
    const struct instruction *f = &g->program->templates.item[from].instructions.item[index];
    const struct op_info *forward = &g->table->op[f->op];
    const struct site site = program_site(g->program, g->table, from, (int)index, NONE);
    const bool passes = forward->role == ROLE_FORWARD || forward->role == ROLE_COMMUNICATION;
    bool any = instruction_leaves(f);
    for (int o = 0; o < f->outputs; o++) {
        if (!has_gradient(g, &f->out[o]) || forward->role == ROLE_ZERO) // zeros depend on nothing
            continue;
        any = true;
        if (!passes || !takes_gradient(g, forward, o))
            FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: no op takes the gradient of %s", site.text,
                 gradients_name(g, f->out[o].buffer));
    }
    for (int i = 0; i < f->inputs && passes && any && !parameters_alone; i++) {
        const int buffer = f->in[i].buffer;
        if (buffer == NONE || !is_wanted(g, buffer))
            continue;
        if (!makes_gradient(g, forward, i))
            FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: no op makes the gradient of %s", site.text,
                 gradients_name(g, buffer));
        for (int o = 0; o < f->outputs; o++)
            if (f->out[o].buffer != NONE &&
                program_root(g->program, f->out[o].buffer) == program_root(g->program, buffer))
                FAIL(TRIREME_ERROR_PROGRAM, "%s cannot be differentiated: it changes %s in place", site.text,
                     gradients_name(g, buffer));
    }
    return TRIREME_OK;
}

// The gradient of a sum is also that of the inputs that enter it by plain addition.
static trireme_status gradient_pass_on(struct gradients *g, struct place at, const struct instruction *f,
                                       bool parameters_alone) {
    const struct op_info *forward = &g->table->op[f->op];
    for (int k = 0; k < f->inputs; k++) {
        if (!forward->identity[k] || f->in[k].buffer == NONE || !is_wanted(g, f->in[k].buffer) ||
            (parameters_alone && !is_parameter(g, &f->in[k])) || !has_gradient(g, &f->out[0]))
            continue;
        struct gradient_term term = {.to = f->in[k], .passes = true};
        TRY(complete_gradient(g, at, &f->out[0], &term.from));
        TRY(add_to_parameter(g, at, term));
    }
    return TRIREME_OK;
}

// The op itself wrote the gradient of its first input, as its last output. If the tensor has a gradient already, that
// is a term of it.
static void begin_at_loss(struct gradients *g, const struct instruction *f) {
    const struct operand *gradient = &f->out[f->outputs - 1];
    gradients_grow(g);
    buffer_at(g, gradient->buffer)->gradient_of = f->in[0].buffer;
    if (has_gradient(g, &f->in[0])) {
        VEC_PUSH(&g->terms, (struct gradient_term){*gradient, f->in[0], false});
        return;
    }
    g->of.item[f->in[0].buffer] = gradient->buffer;
    note_contribution(g, gradient);
}

static trireme_status differentiate_range(struct gradients *g, int from, size_t first, size_t last, int into,
                                          bool parameters_alone) {
    // What the loss makes is there before the backward pass begins, whatever else the logits go into.
    for (size_t i = last; i-- > first;) {
        const struct instruction *f = &g->program->templates.item[from].instructions.item[i];
        if (g->table->op[f->op].role == ROLE_LOSS)
            begin_at_loss(g, f);
    }
    for (size_t i = last; i-- > first;) {
        const struct instruction f = g->program->templates.item[from].instructions.item[i];
        if (g->table->op[f.op].role == ROLE_LOSS)
            continue;
        const struct place at = {into, f.layer};
        TRY(check_differentiable(g, from, i, parameters_alone));
        TRY(gradient_pass_on(g, at, &f, parameters_alone));
        for (int op = 0; op < OP_COUNT; op++)
            if (is_answer(g, &g->table->op[op], &f, parameters_alone))
                TRY(emit_backward(g, at, &g->table->op[op], &f, parameters_alone));
    }
    return TRIREME_OK;
}

void differentiate(struct gradients *g, int from, size_t first, size_t last, int into) {
    if (g->status == TRIREME_OK)
        g->status = differentiate_range(g, from, first, last, into, false);
}

void differentiate_parameters(struct gradients *g, int from, size_t first, size_t last, int into) {
    if (g->status == TRIREME_OK)
        g->status = differentiate_range(g, from, first, last, into, true);
}

void gradients_complete(struct gradients *g, int buffer, int into) {
    const struct operand whole = operand_whole(g->program, buffer);
    struct operand gradient;
    if (g->status == TRIREME_OK && has_gradient(g, &whole))
        g->status = complete_gradient(g, (struct place){into, NONE}, &whole, &gradient);
}
