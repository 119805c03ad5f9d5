// Proves what follows the backward pass. Each gradient is counted once, in the norm of one clip. Each parameter is
// updated once, element for element from its own complete gradient, by the factor of the clip that counts it, and only
// where that is finite; its states are its own. An update may be the last of several instructions: derivations make of
// the gradient what it reads, and collectives gather that in between. Any number of clips, of classes of gradients in a
// norm, and of kinds of updates may stand side by side.
#include "program/slices.h"
#include "verify/verify_update.h"

// A scalar that a norm is made of, to which instructions add squares.
struct square_sum {
    int scalar, clip; // buffer, number among the clips
    int uses;
    const struct found *reader; // the norm_sum, or the clip, that reads it
};

// What makes an update: the update itself, then derivations, in the order in which they are found.
struct steps {
    VEC(const struct found *);
};

struct writers {
    VEC(const struct instruction *);
};

struct optimizer_check {
    struct update_check *c;
    VEC(struct square_sum) sums;
    int *counted;                    // [buffers]: 1 + the number of the clip whose norm counts the gradient; 0: none
    struct written *updated;         // [buffers]: of roots, what updates have written of parameters and states
    bool *used;                      // [buffers]: states that an update uses
    int *through;                    // [buffers]: of states, the root by which updates reach it, itself or a copy; NONE
    int *unit;                       // [derivations]: the parameters that it is for; NONE: for none
    int *reduced_from, *gathered_to; // find_wholes
    struct writers *writers;         // [buffers]: of roots, what writes to them; in the order of the program
    struct steps *derivations;       // [buffers]: of roots, the derivations that make parts of them
    struct slices slices;
};

static const struct found *found_at(const struct optimizer_check *o, enum op_role role, size_t k) {
    return &o->c->role[role].item[k];
}

static bool runs_before(const struct found *a, const struct found *b) {
    return a->invocation < b->invocation || (a->invocation == b->invocation && a->index < b->index);
}

// ---- norms

// Whether the operand is a whole root buffer, or the rank's own part of one.
static bool optimizer_is_unit(const struct program *p, const struct operand *o) {
    const struct buffer *b = &p->buffers.item[o->buffer];
    int64_t ranks = mesh_group_size(&p->mesh, o->along);
    return b->parent == NONE && o->ndim == 1 && o->offset == 0 && o->dim[0] * ranks == buffer_count(b) &&
           (o->along == AXES_NONE || o->step == o->dim[0]);
}

static bool has_op(const struct program *p, enum op op) {
    FOR_INSTRUCTIONS(in, p)
        if (in->op == op)
            return true;
    return false;
}

// Whether the forward pass goes on on another stage.
static bool sends_forward(const struct program *p) {
    FOR_INSTRUCTIONS(in, p)
        if (in->op == OP_SEND && p->buffers.item[in->in[INPUT(SEND, x)].buffer].gradient_of == NONE)
            return true;
    return false;
}

// A tied embedding is on both ends of a pipeline; the rank that embeds counts it.
static bool counted_elsewhere(const struct program *p, int gradient) {
    return p->mesh.degree[AXIS_PP] > 1 && p->buffers.item[gradient].placement[AXIS_PP] == PLACE_REPLICATE &&
           !has_op(p, OP_EMBED_DW);
}

// The norm_sum that makes a scalar, of which there may be only one; NULL: none.
static trireme_status find_norm_sum(const struct optimizer_check *o, int scalar, const struct found **found) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    *found = NULL;
    for (size_t k = 0; k < c->role[ROLE_NORM_SUM].count; k++) {
        const struct found *f = found_at(o, ROLE_NORM_SUM, k);
        if (f->instruction->out[OUTPUT(NORM_SUM, sum)].buffer != scalar)
            continue;
        if (*found)
            REFUSE("%s: makes %s a second time", update_site(c, f).text, update_name(c, scalar));
        *found = f;
    }
    return TRIREME_OK;
}

// Lists the scalars that the norm of a clip is made of: its input, or what norm_sums add up to that, in any number of
// steps.
static trireme_status list_sums(struct optimizer_check *o, int clip, bool *joined) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    VEC(struct square_sum) todo = {0};
    trireme_status status = TRIREME_OK;
    const struct found *reader = found_at(o, ROLE_CLIP, (size_t)clip);
    VEC_PUSH(&todo, (struct square_sum){update_input(c, reader->instruction, MEANING_SUM), clip, 0, reader});
    for (size_t k = 0; k < todo.count && status == TRIREME_OK; k++) {
        const struct square_sum sum = todo.item[k];
        const struct found *join;
        status = find_norm_sum(o, sum.scalar, &join);
        for (size_t n = 0; n < o->sums.count && status == TRIREME_OK; n++)
            if (o->sums.item[n].scalar == sum.scalar)
                status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: takes %s, which is in a norm already",
                                   update_site(c, sum.reader).text, update_name(c, sum.scalar));
        if (status != TRIREME_OK)
            break;
        if (!join) {
            VEC_PUSH(&o->sums, sum);
            continue;
        }
        bool *once = &joined[join - c->role[ROLE_NORM_SUM].item];
        if (*once)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: is in a norm twice", update_site(c, join).text);
        *once = true;
        for (int i = 0; i < join->instruction->inputs; i++)
            if (join->instruction->in[i].buffer != NONE)
                VEC_PUSH(&todo, (struct square_sum){join->instruction->in[i].buffer, clip, 0, join});
    }
    VEC_RELEASE(&todo);
    return status;
}

static trireme_status check_square(struct optimizer_check *o, const struct found *f) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct operand *g = &f->instruction->in[INPUT(SQUARE_SUM, g)];
    const struct site name = update_site(c, f);
    const char *site = name.text;
    struct square_sum *sum = NULL;
    for (size_t k = 0; k < o->sums.count; k++)
        if (o->sums.item[k].scalar == f->instruction->out[OUTPUT(SQUARE_SUM, sum)].buffer)
            sum = &o->sums.item[k];
    if (p->buffers.item[g->buffer].kind != KIND_GRAD || p->buffers.item[g->buffer].scope != SCOPE_STATE ||
        !optimizer_is_unit(p, g))
        REFUSE("%s: %s is not a whole buffer of gradients", site, update_name(c, g->buffer));
    if (o->counted[g->buffer])
        REFUSE("%s: the norm counts %s twice", site, update_name(c, g->buffer));
    if (!sum || f->instruction->accumulate != (sum->uses++ == 0 ? ACCUMULATE_NO : ACCUMULATE_YES))
        REFUSE("%s: does not add to a sum of which a norm is made", site);
    if (f->invocation <= c->last_gradient)
        REFUSE("%s: counts %s before the last microbatch is in", site, update_name(c, g->buffer));
    if (!runs_before(f, sum->reader))
        REFUSE("%s: counts %s after the norm is made", site, update_name(c, g->buffer));
    o->counted[g->buffer] = 1 + sum->clip;
    return TRIREME_OK;
}

// Whether a sum is zero on this rank, and is summed over ranks that may have squares.
static bool sum_is_zero(const struct optimizer_check *o, int scalar) {
    const struct writers *writers = &o->writers[program_root(o->c->program, scalar)];
    bool zeroed = false, reduced = false;
    for (size_t n = 0; n < writers->count; n++) {
        const enum op_role role = o->c->table->op[writers->item[n]->op].role;
        if (role != ROLE_ZERO && role != ROLE_COMMUNICATION)
            return false;
        zeroed |= role == ROLE_ZERO;
        reduced |= role == ROLE_COMMUNICATION;
    }
    return zeroed && reduced;
}

static trireme_status check_all_norms(struct optimizer_check *o, bool *joined) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    for (size_t k = 0; k < c->role[ROLE_CLIP].count; k++)
        TRY(list_sums(o, (int)k, joined));
    for (size_t k = 0; k < c->role[ROLE_NORM_SUM].count; k++)
        if (!joined[k])
            REFUSE("%s: adds to no norm", update_site(c, found_at(o, ROLE_NORM_SUM, k)).text);
    for (size_t k = 0; k < c->role[ROLE_NORM].count; k++)
        TRY(check_square(o, found_at(o, ROLE_NORM, k)));
    for (size_t k = 0; k < o->sums.count; k++)
        if (o->sums.item[k].uses == 0 && !sum_is_zero(o, o->sums.item[k].scalar))
            REFUSE("no squares are summed in %s", update_name(c, o->sums.item[k].scalar));
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        const bool counted = o->counted[i] > 0;
        if (b->kind == KIND_GRAD && b->parent == NONE && b->scope == SCOPE_STATE &&
            counted == counted_elsewhere(p, (int)i))
            REFUSE(counted ? "the norm counts %s, which the first stage counts" : "the norm leaves out %s", b->name);
    }
    return TRIREME_OK;
}

static trireme_status check_norms(struct optimizer_check *o) {
    bool *joined = mem_alloc(o->c->role[ROLE_NORM_SUM].count * sizeof *joined);
    trireme_status status = check_all_norms(o, joined);
    free(joined);
    return status;
}

// ---- what an update is made of

// [buffers], which the caller frees. Where the rank keeps part of a unit: the whole gradient that a buffer is reduced
// from, or the whole parameters that it is gathered to, NONE where there are several; else the buffer itself.
static int *find_wholes(const struct program *p, enum op op) {
    int *found = mem_alloc(p->buffers.count * sizeof *found);
    for (size_t i = 0; i < p->buffers.count; i++)
        found[i] = (int)i;
    FOR_INSTRUCTIONS(in, p) {
        if (in->op != op)
            continue;
        const int taken = in->in[0].buffer, given = in->out[0].buffer;
        int part = op == OP_ALL_GATHER ? taken : given, whole = op == OP_ALL_GATHER ? given : taken;
        if (whole == part)
            continue;
        if (p->buffers.item[whole].recomputes != NONE)
            whole = p->buffers.item[whole].recomputes;
        found[part] = found[part] == part || found[part] == whole ? whole : NONE;
    }
    return found;
}

static void find_writers(struct optimizer_check *o) {
    const struct program *p = o->c->program;
    FOR_INSTRUCTIONS(i, p)
        for (int k = 0; k < i->outputs; k++) {
            struct writers *w = i->out[k].buffer == NONE ? NULL : &o->writers[program_root(p, i->out[k].buffer)];
            if (w && (w->count == 0 || w->item[w->count - 1] != i))
                VEC_PUSH(w, i);
        }
    for (size_t k = 0; k < o->c->role[ROLE_DERIVE].count; k++) {
        const struct found *f = found_at(o, ROLE_DERIVE, k);
        VEC_PUSH(&o->derivations[program_root(p, f->instruction->out[0].buffer)], f);
    }
}

// Whether flat buffer `gradient` is, slice by slice, the gradient of flat buffer `parameter`.
static bool is_gradient_of(const struct optimizer_check *o, int gradient, int parameter) {
    const struct program *p = o->c->program;
    if (p->buffers.item[gradient].gradient_of == parameter)
        return true;
    int slices = 0, matched = 0;
    FOR_SLICES(&o->slices, s, parameter)
        slices++;
    FOR_SLICES(&o->slices, s, gradient) {
        int of = p->buffers.item[s].gradient_of;
        if (of == NONE || p->buffers.item[of].parent != parameter ||
            p->buffers.item[of].parent_offset != p->buffers.item[s].parent_offset)
            return false;
        matched++;
    }
    return slices > 0 && slices == matched;
}

static bool is_contiguous(const struct operand *a) {
    const struct operand block = operand_shape(*a, a->ndim, a->dim);
    return operand_equal(a, &block);
}

bool update_same_place(const struct program *p, const struct operand *a, const struct operand *b) {
    const int x = program_root(p, a->buffer), y = program_root(p, b->buffer);
    const int64_t from = program_root_offset(p, a->buffer) + a->offset,
                  to = program_root_offset(p, b->buffer) + b->offset, count = operand_count(a);
    const bool same_shape = a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0 &&
                            memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof a->stride[0]) == 0;
    if (operand_count(b) != count || (!same_shape && !(is_contiguous(a) && is_contiguous(b))))
        return false;
    if (buffer_count(&p->buffers.item[x]) == buffer_count(&p->buffers.item[y]))
        return from == to && a->along == b->along && a->step == b->step;
    const struct operand *part = a->along ? a : b;
    const int own = a->along ? y : x;
    return part->along && (a->along == AXES_NONE || b->along == AXES_NONE) && from == 0 && to == 0 &&
           part->step == count && buffer_count(&p->buffers.item[own]) == count;
}

// What is followed back from an update to a gradient. Element e of the operand's root is for element `shift` + e of
// what the rank updates; where ranks have gathered the root along some axes, that holds for their own parts of it.
struct followed {
    const struct operand *operand;
    const struct found *reader; // the step that the operand, or what is gathered of it, is for
    enum op made_by;            // OP_COUNT: it is the gradient itself
    int64_t shift;
    axis_set gathered;
};
struct trail {
    VEC(struct followed);
};

// Whether a collective gathers the ranks' own parts in their order, so that elements keep their places.
static bool gathers_parts(const struct program *p, const struct instruction *i) {
    if (i->op != OP_ALL_GATHER)
        return false;
    const struct operand *part = &i->in[INPUT(ALL_GATHER, x)], *all = &i->out[OUTPUT(ALL_GATHER, y)];
    const struct operand whole = operand_whole(p, all->buffer);
    if (operand_count(all) != operand_count(&whole) || p->buffers.item[all->buffer].parent != NONE ||
        operand_count(part) * mesh_group_size(&p->mesh, i->group) != operand_count(all))
        return false;
    const struct operand own = operand_part(p, whole, i->group);
    return update_same_place(p, part, &own);
}

static bool overlap_in_one_buffer(const struct program *p, const struct operand *a, const struct operand *b) {
    struct footprint x, y;
    return program_root(p, a->buffer) == program_root(p, b->buffer) &&
           (!footprint_of_all_ranks(p, a, &x) || !footprint_of_all_ranks(p, b, &y) || footprint_overlap(&x, &y));
}

static bool is_step(const struct steps *steps, const struct found *f) {
    for (size_t k = 0; k < steps->count; k++)
        if (steps->item[k] == f)
            return true;
    return false;
}

// Adds to the trail what is not on it yet.
static trireme_status trail_add(const struct optimizer_check *o, struct trail *trail, const struct followed *next) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    for (size_t k = 0; k < trail->count; k++) {
        const struct followed *known = &trail->item[k];
        if (known->operand != next->operand)
            continue;
        if (known->shift != next->shift || known->gathered != next->gathered || known->made_by != next->made_by)
            REFUSE("%s: %s is for elements in other places too", update_site(c, next->reader).text,
                   update_name(c, next->operand->buffer));
        return TRIREME_OK;
    }
    VEC_PUSH(trail, *next);
    return TRIREME_OK;
}

// Goes from what a derivation makes to what it makes that of, element for element: in the same place; in another one;
// or from what is no longer gathered to the rank's own part of what is.
static bool derivation_moves(const struct program *p, const struct operand *made, const struct operand *from,
                             struct followed *at) {
    const int x = program_root(p, made->buffer), y = program_root(p, from->buffer);
    const int64_t count = operand_count(from);
    if (update_same_place(p, made, from) &&
        (!at->gathered || buffer_count(&p->buffers.item[x]) == buffer_count(&p->buffers.item[y])))
        return true;
    if (at->gathered || made->along || operand_count(made) != count || !is_contiguous(made) || !is_contiguous(from))
        return false;
    at->shift += program_root_offset(p, made->buffer) + made->offset;
    if (!from->along)
        at->shift -= program_root_offset(p, from->buffer) + from->offset;
    else if (y != from->buffer || from->offset != 0 || from->step != count ||
             count * mesh_group_size(&p->mesh, from->along) != buffer_count(&p->buffers.item[y]))
        return false;
    at->gathered = from->along;
    return true;
}

// Adds to the trail what derivations make the operand from, and them to the steps.
static trireme_status follow_derivations(const struct optimizer_check *o, const struct followed at, struct trail *trail,
                                         struct steps *steps, bool *made) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct steps *derivations = &o->derivations[program_root(c->program, at.operand->buffer)];
    for (size_t k = 0; k < derivations->count; k++) {
        const struct found *f = derivations->item[k];
        const struct op_info *info = &c->table->op[f->instruction->op];
        const struct operand *from = &f->instruction->in[info->gradient];
        if (!overlap_in_one_buffer(c->program, &f->instruction->out[0], at.operand))
            continue;
        struct followed next = at;
        if (!derivation_moves(c->program, &f->instruction->out[0], from, &next))
            REFUSE("%s: makes %s of elements in other places", update_site(c, f).text,
                   update_name(c, f->instruction->out[0].buffer));
        if (!info->same && info->op != at.made_by)
            REFUSE("%s: %s is what %s makes, expected %s", update_site(c, at.reader).text,
                   update_name(c, at.operand->buffer), info->name,
                   at.made_by == OP_COUNT ? "a gradient" : c->table->op[at.made_by].name);
        *made = true;
        if (!is_step(steps, f))
            VEC_PUSH(steps, f);
        next.operand = from;
        next.reader = f;
        next.made_by = info->same ? at.made_by : info->derived_by;
        TRY(trail_add(o, trail, &next));
    }
    return TRIREME_OK;
}

// Goes from what is gathered to what it is gathered from: the ranks' own parts of what they update, or parts of it
// that other axes have cut further.
static bool gathering_moves(const struct program *p, const struct instruction *i, struct followed *at) {
    if (i->op != OP_ALL_GATHER)
        return false;
    const struct operand *part = &i->in[INPUT(ALL_GATHER, x)], *all = &i->out[OUTPUT(ALL_GATHER, y)];
    if (program_root(p, part->buffer) == program_root(p, all->buffer))
        return false;
    at->operand = part;
    if (!at->gathered)
        return gathers_parts(p, i);
    const struct operand whole = operand_whole(p, all->buffer);
    if (at->gathered != mesh_present(&p->mesh, i->group) || p->buffers.item[all->buffer].parent != NONE ||
        part->along || all->along || operand_count(all) != operand_count(&whole) || !is_contiguous(part) ||
        operand_count(part) * mesh_group_size(&p->mesh, i->group) != operand_count(all))
        return false;
    at->shift -= program_root_offset(p, part->buffer) + part->offset;
    at->gathered = AXES_NONE;
    return true;
}

// Whether an instruction makes zeros where flat buffer `parameters` has no tensor.
static bool fills_gap(const struct optimizer_check *o, const struct instruction *i, const struct followed *at,
                      int parameters) {
    const struct program *p = o->c->program;
    const struct operand *zeros = &i->out[0];
    if (o->c->table->op[i->op].role != ROLE_ZERO || at->gathered || zeros->along || !is_contiguous(zeros) ||
        parameters == NONE)
        return false;
    const int64_t begin = program_root_offset(p, zeros->buffer) + zeros->offset + at->shift,
                  end = begin + operand_count(zeros);
    bool flat = false;
    FOR_SLICES(&o->slices, s, parameters) {
        const struct buffer *b = &p->buffers.item[s];
        flat = true;
        if (begin < b->parent_offset + buffer_count(b) && b->parent_offset < end)
            return false;
    }
    return flat;
}

// Adds to the trail what the operand is made from: by derivations, or gathered. Nothing else may write it, but between
// the tensors of flat buffer `parameters`.
static trireme_status follow(const struct optimizer_check *o, const struct followed at, int parameters,
                             struct trail *trail, struct steps *steps) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    bool made = false, other = false;
    const struct writers *writers = &o->writers[program_root(p, at.operand->buffer)];
    TRY(follow_derivations(o, at, trail, steps, &made));
    for (size_t n = 0; n < writers->count; n++) {
        const struct instruction *i = writers->item[n];
        for (int k = 0; k < i->outputs; k++) {
            struct followed next = at;
            if (i->out[k].buffer == NONE || !overlap_in_one_buffer(p, &i->out[k], at.operand) ||
                (k == 0 && c->table->op[i->op].role == ROLE_DERIVE) || fills_gap(o, i, &at, parameters))
                continue;
            other |= made || !gathering_moves(p, i, &next);
            if (other)
                continue;
            made = true;
            TRY(trail_add(o, trail, &next));
        }
    }
    if (!made || other)
        REFUSE("%s: %s is not a gradient, nor derived from one alone", update_site(c, at.reader).text,
               update_name(c, at.operand->buffer));
    return TRIREME_OK;
}

// Notes the gradient that the trail has come to, and the clip whose factor is applied to it.
static trireme_status note_gradient(const struct optimizer_check *o, const struct found *update,
                                    const struct followed *at, int *gradient, int *clip) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const int root = program_root(c->program, at->operand->buffer);
    const int factor = update_input(c, at->reader->instruction, MEANING_FACTOR);
    if (at->made_by != OP_COUNT)
        REFUSE("%s: %s is a gradient, expected what %s makes", update_site(c, at->reader).text,
               update_name(c, at->operand->buffer), c->table->op[at->made_by].name);
    if (at->shift != 0 || at->gathered)
        REFUSE("%s: %s is not the gradient of %s, but of other elements", update_site(c, at->reader).text,
               update_name(c, at->operand->buffer),
               update_name(c, update_input(c, update->instruction, MEANING_PARAMETER)));
    if (*gradient != NONE && *gradient != root)
        REFUSE("%s: is made of %s and of %s", update_site(c, update).text, update_name(c, *gradient),
               update_name(c, root));
    if (at->reader->invocation <= c->last_gradient)
        REFUSE("%s: updates %s before the last microbatch is in", update_site(c, at->reader).text,
               update_name(c, update_input(c, update->instruction, MEANING_PARAMETER)));
    int which = NONE;
    for (size_t n = 0; n < c->role[ROLE_CLIP].count; n++)
        if (update_output(c, found_at(o, ROLE_CLIP, n)->instruction, MEANING_FACTOR) == factor)
            which = (int)n;
    if (factor == NONE || which == NONE || (*clip != NONE && *clip != which) ||
        (o->counted[root] && o->counted[root] != 1 + which))
        REFUSE("%s: its clipping factor is %s, which is not that of the norm that counts %s",
               update_site(c, at->reader).text, update_name(c, factor), update_name(c, root));
    *gradient = root;
    *clip = which;
    return TRIREME_OK;
}

// Lists the steps of an update, and finds the gradient that it begins with and the clip whose factor is applied to
// that.
static trireme_status find_steps(const struct optimizer_check *o, const struct found *update, struct trail *trail,
                                 struct steps *steps, int *gradient, int *clip) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct op_info *info = &c->table->op[update->instruction->op];
    const int parameter = update_input(c, update->instruction, MEANING_PARAMETER);
    const int parameters = o->gathered_to[program_root(c->program, parameter)];
    *gradient = *clip = NONE;
    const struct operand *taken = &update->instruction->in[info->gradient];
    struct followed first = {.operand = taken, .reader = update, .made_by = info->derived_by};
    if (!derivation_moves(c->program, instruction_input(c->table, update->instruction, MEANING_PARAMETER), taken,
                          &first))
        REFUSE("%s: %s is not the gradient of %s", update_site(c, update).text, update_name(c, taken->buffer),
               update_name(c, parameter));
    VEC_PUSH(steps, update);
    VEC_PUSH(trail, first);
    for (size_t k = 0; k < trail->count; k++) {
        const struct followed at = trail->item[k];
        if (c->program->buffers.item[at.operand->buffer].kind == KIND_GRAD)
            TRY(note_gradient(o, update, &at, gradient, clip));
        else
            TRY(follow(o, at, parameters, trail, steps));
    }
    for (size_t k = 0; k < steps->count; k++) {
        const struct found *f = steps->item[k];
        const struct operand *from = &f->instruction->in[c->table->op[f->instruction->op].gradient];
        if (c->program->buffers.item[from->buffer].kind != KIND_GRAD &&
            update_input(c, f->instruction, MEANING_FACTOR) != NONE)
            REFUSE("%s: clips what has been clipped", update_site(c, f).text);
    }
    return TRIREME_OK;
}

// ---- updates

static bool optimizer_is_written(const struct op_info *info, int input) {
    for (int o = 0; o < info->outputs; o++)
        if (info->inplace[o] == input)
            return true;
    return false;
}

// What a step reads besides parameter and gradient: the states of these parameters, and the step's scalars.
static trireme_status check_states(struct optimizer_check *o, const struct found *step, int parameter) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *u = step->instruction;
    const struct op_info *info = &c->table->op[u->op];
    for (int i = 0; i < info->inputs; i++) {
        const int buffer = u->in[i].buffer;
        if (i == info->gradient || i == info->input_of[MEANING_PARAMETER] || i == info->input_of[MEANING_RATE] ||
            i == info->input_of[MEANING_FACTOR] || buffer == NONE)
            continue;
        const int root = program_root(p, buffer), of = p->buffers.item[root].belongs_to;
        if (p->buffers.item[buffer].kind != KIND_OPTIM ||
            (of != program_root(p, parameter) && (of != NONE || optimizer_is_written(info, i))))
            REFUSE("%s: its %s is %s, which is not a state of %s", update_site(c, step).text, info->in[i].name,
                   update_name(c, buffer), update_name(c, parameter));
        // Of several copies that are updated, one would overwrite what the other has kept.
        int *through = &o->through[program_root(p, program_original(p, root))];
        if (*through != NONE && *through != root)
            REFUSE("%s: its %s is %s, but another update has it in %s", update_site(c, step).text, info->in[i].name,
                   update_name(c, buffer), update_name(c, *through));
        *through = root;
        o->used[root] = o->used[program_root(p, program_original(p, root))] = true;
    }
    const int rate = update_input(c, u, MEANING_RATE);
    if (rate != NONE && p->buffers.item[rate].kind != KIND_INPUT)
        REFUSE("%s: its learning rate is %s, which is not an input", update_site(c, step).text, update_name(c, rate));
    return TRIREME_OK;
}

static bool is_kept(const struct program *p, int buffer) {
    return buffer != NONE && (p->buffers.item[buffer].kind == KIND_PARAM || p->buffers.item[buffer].kind == KIND_OPTIM);
}

// What a step keeps is written in place, once in a step of the program, and only if the norm is finite.
static trireme_status check_kept(struct optimizer_check *o, const struct found *step, int finite) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *u = step->instruction;
    const struct op_info *info = &c->table->op[u->op];
    bool keeps = false;
    for (int k = 0; k < info->outputs; k++) {
        const int i = info->inplace[k], buffer = u->out[k].buffer, from = i < 0 ? NONE : u->in[i].buffer;
        if (!is_kept(p, buffer) && !is_kept(p, from))
            continue;
        if (i < 0 || !operand_equal(&u->out[k], &u->in[i]))
            REFUSE("%s: reads %s and writes %s, expected the same", update_site(c, step).text, update_name(c, from),
                   update_name(c, buffer));
        struct footprint where;
        struct written *written = &o->updated[program_root(p, buffer)];
        keeps = true;
        if (!footprint_of_all_ranks(p, &u->out[k], &where) || written_unread(written, &where))
            REFUSE("%s: %s belongs to another update", update_site(c, step).text, update_name(c, buffer));
        written_add(written, where);
    }
    if (u->predicate != finite && (keeps || u->predicate != NONE))
        REFUSE("%s: is not skipped when the norm is not finite", update_site(c, step).text);
    return TRIREME_OK;
}

static trireme_status check_steps(struct optimizer_check *o, const struct found *update, const struct steps *steps,
                                  int gradient, int clip) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *u = update->instruction;
    const struct operand *parameter = instruction_input(c->table, u, MEANING_PARAMETER),
                         *from = &u->in[c->table->op[u->op].gradient];
    const int root = program_root(p, parameter->buffer), reduced = o->reduced_from[gradient],
              gathered = o->gathered_to[root];
    if (p->buffers.item[root].kind != KIND_PARAM || reduced == NONE || gathered == NONE ||
        !is_gradient_of(o, reduced, gathered))
        REFUSE("%s: %s is not the gradient of %s", update_site(c, update).text, update_name(c, from->buffer),
               update_name(c, parameter->buffer));
    const int finite = update_output(c, found_at(o, ROLE_CLIP, (size_t)clip)->instruction, MEANING_FINITE);
    for (size_t k = 0; k < steps->count; k++) {
        const struct found *step = steps->item[k];
        TRY(check_states(o, step, parameter->buffer));
        int *unit = step == update ? NULL : &o->unit[step - c->role[ROLE_DERIVE].item];
        if (unit && *unit != NONE && *unit != root)
            REFUSE("%s: derives from the gradient of %s for the update of %s", update_site(c, step).text,
                   update_name(c, *unit), update_name(c, root));
        if (!unit || *unit == NONE)
            TRY(check_kept(o, step, finite));
        if (unit)
            *unit = root;
    }
    return TRIREME_OK;
}

static trireme_status check_update(struct optimizer_check *o, const struct found *update) {
    struct steps steps = {0};
    struct trail trail = {0};
    int gradient, clip;
    trireme_status status = find_steps(o, update, &trail, &steps, &gradient, &clip);
    if (status == TRIREME_OK)
        status = check_steps(o, update, &steps, gradient, clip);
    VEC_RELEASE(&steps);
    VEC_RELEASE(&trail);
    return status;
}

// ---- counts of updates

// A count of updates goes up once, only when they are done, and before they read it.
static trireme_status check_increment(struct optimizer_check *o, const struct found *f) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const int counted = f->instruction->in[INPUT(INCREMENT, t)].buffer;
    bool done = false;
    for (size_t k = 0; k < c->role[ROLE_CLIP].count; k++)
        done |= f->instruction->predicate == update_output(c, found_at(o, ROLE_CLIP, k)->instruction, MEANING_FINITE);
    if (!done || f->instruction->out[OUTPUT(INCREMENT, t1)].buffer != counted ||
        c->program->buffers.item[counted].kind != KIND_OPTIM)
        REFUSE("%s: does not count the updates that are done", update_site(c, f).text);
    for (const struct found *other = c->role[ROLE_FORWARD].item; other < f; other++)
        if (other->instruction->op == OP_INCREMENT && other->instruction->in[INPUT(INCREMENT, t)].buffer == counted)
            REFUSE("%s: raises the count of updates %s a second time", update_site(c, f).text, update_name(c, counted));
    o->used[program_root(c->program, counted)] = true;
    return TRIREME_OK;
}

static trireme_status check_count_of(const struct optimizer_check *o, const struct found *update) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const int t = update_input(c, update->instruction, MEANING_UPDATES);
    if (t == NONE)
        return TRIREME_OK;
    for (size_t k = 0; k < c->role[ROLE_FORWARD].count; k++) {
        const struct found *f = found_at(o, ROLE_FORWARD, k);
        if (f->instruction->op == OP_INCREMENT && f->instruction->out[OUTPUT(INCREMENT, t1)].buffer == t &&
            f->instruction->predicate == update->instruction->predicate && runs_before(f, update))
            return TRIREME_OK;
    }
    REFUSE("%s: reads %s as the count of updates, which is not raised before and with it", update_site(c, update).text,
           update_name(c, t));
}

static trireme_status check_counts(struct optimizer_check *o) {
    const struct update_check *c = o->c;
    for (size_t k = 0; k < c->role[ROLE_FORWARD].count; k++)
        if (found_at(o, ROLE_FORWARD, k)->instruction->op == OP_INCREMENT)
            TRY(check_increment(o, found_at(o, ROLE_FORWARD, k)));
    for (size_t k = 0; k < c->role[ROLE_UPDATE].count; k++)
        TRY(check_count_of(o, found_at(o, ROLE_UPDATE, k)));
    return TRIREME_OK;
}

// ---- all of it

// Clips look at the loss of the step. A stage of a pipeline that has no loss adds zero to it.
static trireme_status check_clips(const struct update_check *c) {
    trireme_error *error = c->error;
    if (c->role[ROLE_CLIP].count == 0)
        REFUSE("the norm of the gradients is made 0 times in a step, expected once");
    const struct instruction *maker = c->role[ROLE_TOTAL].count ? c->role[ROLE_TOTAL].item[0].instruction : NULL;
    for (size_t k = 0; k < c->role[ROLE_CLIP].count; k++) {
        const struct found *clip = &c->role[ROLE_CLIP].item[k];
        const int loss = update_input(c, clip->instruction, MEANING_LOSS);
        const bool zero = !maker && strcmp(c->program->buffers.item[loss].as, "loss") == 0 && sends_forward(c->program);
        if (maker ? loss != update_output(c, maker, MEANING_LOSS) : !zero)
            REFUSE("%s: %s is not the loss of the step", update_site(c, clip).text, update_name(c, loss));
    }
    return TRIREME_OK;
}

// Every element of a parameter that has a gradient is updated, and every state is used.
static trireme_status check_all_updated(const struct optimizer_check *o) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    for (size_t k = 0; k < c->role[ROLE_DERIVE].count; k++)
        if (o->unit[k] == NONE)
            REFUSE("%s: no update uses what it makes", update_site(c, found_at(o, ROLE_DERIVE, k)).text);
    for (size_t i = 0; i < p->buffers.count; i++) {
        const int of = p->buffers.item[i].gradient_of;
        if (p->buffers.item[i].kind == KIND_OPTIM && !o->used[program_root(p, (int)i)])
            REFUSE("no update uses %s", p->buffers.item[i].name);
        if (of == NONE || p->buffers.item[of].scope != SCOPE_STATE || p->buffers.item[of].kind != KIND_PARAM)
            continue;
        const struct operand whole = operand_whole(p, of);
        struct footprint where;
        footprint_of(p, &whole, &where);
        if (!written_covers(&o->updated[program_root(p, of)], &where))
            REFUSE("parameter %s is never updated", p->buffers.item[of].name);
    }
    return TRIREME_OK;
}

static trireme_status check_all_updates(struct optimizer_check *o) {
    const struct update_check *c = o->c;
    TRY(check_clips(c));
    TRY(check_norms(o));
    for (size_t k = 0; k < c->role[ROLE_UPDATE].count; k++)
        TRY(check_update(o, found_at(o, ROLE_UPDATE, k)));
    TRY(check_counts(o));
    return check_all_updated(o);
}

trireme_status verify_optimizer(struct update_check *c) {
    const struct program *p = c->program;
    if (c->last_gradient == NONE && c->role[ROLE_UPDATE].count == 0)
        return TRIREME_OK;
    struct optimizer_check o = {.c = c,
                                .counted = mem_alloc(p->buffers.count * sizeof *o.counted),
                                .updated = mem_alloc(p->buffers.count * sizeof *o.updated),
                                .used = mem_alloc(p->buffers.count * sizeof *o.used),
                                .through = mem_alloc(p->buffers.count * sizeof *o.through),
                                .unit = mem_alloc(c->role[ROLE_DERIVE].count * sizeof *o.unit),
                                .writers = mem_alloc(p->buffers.count * sizeof *o.writers),
                                .derivations = mem_alloc(p->buffers.count * sizeof *o.derivations),
                                .reduced_from = find_wholes(p, OP_REDUCE_SCATTER),
                                .gathered_to = find_wholes(p, OP_ALL_GATHER)};
    for (size_t k = 0; k < c->role[ROLE_DERIVE].count; k++)
        o.unit[k] = NONE;
    for (size_t i = 0; i < p->buffers.count; i++)
        o.through[i] = NONE;
    slices_create(&o.slices, p);
    find_writers(&o);
    trireme_status status = check_all_updates(&o);
    for (size_t i = 0; i < p->buffers.count; i++) {
        written_release(&o.updated[i]);
        VEC_RELEASE(&o.writers[i]);
        VEC_RELEASE(&o.derivations[i]);
    }
    free(o.writers);
    free(o.derivations);
    slices_release(&o.slices);
    VEC_RELEASE(&o.sums);
    free(o.counted);
    free(o.updated);
    free(o.used);
    free(o.through);
    free(o.unit);
    free(o.reduced_from);
    free(o.gathered_to);
    return status;
}
