// Proves that the backward pass is the transpose of the forward pass, by the adjoint column of ops.def.
//
// A *use* is an input of a forward instruction that needs a gradient. Every use of every tensor must be answered by
// exactly one backward instruction, which must read what the adjoint says: the same forward operands (or their
// recomputed values) and the complete gradients of the forward outputs. Contributions to one gradient add up; none
// overwrites another. What cannot be added at once is a *term*: a buffer for one contribution, which a sum then adds to
// the gradient. Communication of activations is part of it: what one pass sends the other receives. That of
// parameters and of their gradients is left to verify_placement.c.
#include "verify/gradient_graph.h"
#include "verify/proofs.h"

// A buffer for one term of a gradient, if `is`: what sums read that make another gradient of the same tensor.
struct term {
    bool is, added;
    int use; // node * OP_MAX_IN + input; NONE: not made yet
};

struct gradient_check {
    const struct program *program;
    const struct op_table *table;
    struct term *term; // [buffers]
    struct gradient_graph graph;
    VEC(int) candidates;                    // nodes
    bool has_adjoint[OP_COUNT][OP_MAX_OUT]; // whether the output's gradient goes on to some input of the op
    trireme_error *error;
};

static struct site site_of(const struct gradient_check *c, int node) {
    const struct node *n = &c->graph.nodes.item[node];
    return program_site(c->program, c->table, n->template, n->index, NONE);
}

static const char *gradients_name_of(const struct gradient_check *c, int buffer) {
    return program_buffer_name(c->program, buffer);
}

static bool same_value(const struct gradient_check *c, const struct operand *a, const struct operand *b) {
    struct operand x = *a, y = *b;
    x.buffer = program_original(c->program, x.buffer);
    y.buffer = program_original(c->program, y.buffer);
    return operand_equal(&x, &y);
}

static bool same_view(const struct operand *a, const struct operand *b) {
    struct operand x = *a;
    x.buffer = b->buffer;
    return operand_equal(&x, b);
}

// The same, or all elements of both, in whatever shape.
static bool same_elements(const struct gradient_check *c, const struct operand *a, const struct operand *b) {
    return same_view(a, b) || (graph_is_whole(&c->graph, a) && graph_is_whole(&c->graph, b));
}

// The terms of gradients; the caller frees them.
static struct term *find_terms(const struct program *p, const struct op_table *table) {
    struct term *term = mem_alloc(p->buffers.count * sizeof *term);
    for (size_t i = 0; i < p->buffers.count; i++)
        term[i].use = NONE;
    FOR_INSTRUCTIONS(sum, p)
        for (int k = 0; table->op[sum->op].role == ROLE_SUM && k < sum->inputs; k++) {
            const int from = sum->in[k].buffer, to = sum->out[0].buffer;
            if (from != NONE && from != to && p->buffers.item[from].kind == KIND_ACT &&
                p->buffers.item[from].parent == NONE && p->buffers.item[from].gradient_of != NONE)
                term[from].is |= p->buffers.item[from].gradient_of == p->buffers.item[to].gradient_of;
        }
    return term;
}

// Only one buffer may hold the gradient of a tensor, else contributions to it could lie where nobody looks for them.
static trireme_status check_one_each(const struct program *p, const struct term *term, trireme_error *error) {
    bool *has = mem_alloc(p->buffers.count * sizeof *has);
    const struct buffer *twice = NULL;
    for (size_t i = 0; i < p->buffers.count; i++) {
        int of = p->buffers.item[i].gradient_of;
        if (of == NONE || term[i].is)
            continue;
        twice = has[of] ? &p->buffers.item[i] : twice;
        has[of] = true;
    }
    free(has);
    if (twice)
        REFUSE("%s is a second gradient of %s", twice->name, p->buffers.item[twice->gradient_of].name);
    return TRIREME_OK;
}

// The gradient of a part of a tensor must be that part of the tensor's gradient, and likewise for what is computed
// again, so that whoever reads the whole finds each part in its place.
static trireme_status check_parts(const struct program *p, const struct term *term, trireme_error *error) {
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        bool again = b->recomputes != NONE;
        int of = again ? b->recomputes : b->gradient_of;
        if (term[i].is && b->extent != p->buffers.item[of].extent)
            REFUSE("%s is a term of the gradient of %s, which has another extent", b->name, p->buffers.item[of].name);
        if (of == NONE || term[i].is) // a term has the shape of the view that it is a term of
            continue;
        const struct buffer *tensor = &p->buffers.item[of];
        const char *what = again ? "recomputes" : "is the gradient of";
        if (b->ndim != tensor->ndim || memcmp(b->dim, tensor->dim, (size_t)b->ndim * sizeof b->dim[0]) != 0)
            REFUSE("%s %s %s, which has another shape", b->name, what, tensor->name);
        if (b->extent != tensor->extent)
            REFUSE("%s %s %s, which has another extent", b->name, what, tensor->name);
        if (tensor->parent == NONE)
            continue;
        const struct buffer *root = &p->buffers.item[program_root(p, (int)i)];
        int whole = again ? root->recomputes : root->gradient_of;
        bool parameter = tensor->kind == KIND_PARAM && !again; // their gradients are declared part by part
        if (b->parent == NONE || program_root_offset(p, (int)i) != program_root_offset(p, of) ||
            (!parameter && whole != program_root(p, of)))
            REFUSE("%s %s %s, but not at the same offset in the buffer that does so for %s", b->name, what,
                   tensor->name, p->buffers.item[program_root(p, of)].name);
    }
    return TRIREME_OK;
}

// ---- gradients

static bool gradients_complete(const struct gradient_check *c, int buffer, int *missing) {
    int sum = graph_passed_to(&c->graph, buffer);
    if (sum != NONE && c->graph.tensor[buffer].contributions == 0)
        return gradients_complete(c, sum, missing);
    FOR_SELF_AND_PARENTS(&c->graph, b, buffer)
        if (c->graph.tensor[b].contributions < c->graph.tensor[b].uses) {
            *missing = b;
            return false;
        }
    FOR_SLICES(&c->graph.slices, s, buffer)
        if (c->graph.tensor[s].contributions < c->graph.tensor[s].uses) {
            *missing = s;
            return false;
        }
    return true;
}

// Whether a sum, to which the tensor is an input, has it as a term where an instruction with that predicate runs.
static bool has_term(const struct gradient_check *c, int use, int input, int predicate) {
    const struct instruction *sum = c->graph.nodes.item[use].instruction;
    return sum->predicate == NONE || sum->predicate == predicate || instruction_otherwise(sum) == input;
}

// Whether `gradient` holds the gradient of `of`, where an instruction with that predicate runs: by declaration, or
// because all of it comes unchanged from one sum.
static bool holds_gradient(const struct gradient_check *c, int gradient, int of, int predicate) {
    int sum = graph_passed_to(&c->graph, of);
    if (sum != NONE && c->graph.tensor[of].contributions == 0) {
        const int use = c->graph.tensor[of].identity_use;
        const struct instruction *f = c->graph.nodes.item[use].instruction;
        bool term = false;
        for (int i = 0; i < f->inputs; i++)
            term |= f->in[i].buffer == of && has_term(c, use, i, predicate);
        return term && holds_gradient(c, gradient, sum, predicate);
    }
    return c->program->buffers.item[gradient].gradient_of == of && !c->term[gradient].is;
}

// Notes that instruction `by` has written to `out` of the gradient of `of`; `sum`: it has added what was there.
static trireme_status note_written(struct gradient_check *c, int by, int of, const struct operand *out, bool sum) {
    trireme_error *error = c->error;
    struct tensor_state *t = &c->graph.tensor[of];
    struct footprint where;
    footprint_of(c->program, out, &where);
    bool overlaps = written_unread(&t->parts, &where);
    enum accumulate accumulate = c->graph.nodes.item[by].instruction->accumulate;
    bool starts = accumulate == ACCUMULATE_NO || accumulate == ACCUMULATE_AFTER_FIRST;
    if (overlaps && starts && !sum)
        REFUSE("%s: overwrites earlier contributions to the gradient of %s", site_of(c, by).text,
               gradients_name_of(c, of));
    written_add(&t->parts, where);
    return TRIREME_OK;
}

// Notes that instruction `by` makes what input `input` of node `use` contributes to a gradient: in `out`, which may be
// a buffer for a term; NULL: as part of what it writes.
static trireme_status gradients_answer(struct gradient_check *c, int by, int use, int input, const struct operand *out,
                                       bool sum) {
    trireme_error *error = c->error;
    struct node *f = &c->graph.nodes.item[use];
    int of = f->instruction->in[input].buffer;
    if (f->answered[input])
        REFUSE("%s: contributes to the gradient of %s twice for %s", site_of(c, by).text, gradients_name_of(c, of),
               site_of(c, use).text);
    f->answered[input] = true;
    if (out && c->term[out->buffer].is) {
        struct term *term = &c->term[out->buffer];
        if (term->use != NONE || c->graph.nodes.item[by].instruction->accumulate != ACCUMULATE_NO)
            REFUSE("%s: %s is for one term of the gradient of %s", site_of(c, by).text,
                   gradients_name_of(c, out->buffer), gradients_name_of(c, of));
        term->use = use * OP_MAX_IN + input;
        return TRIREME_OK;
    }
    c->graph.tensor[of].contributions++;
    return out ? note_written(c, by, of, out, sum) : TRIREME_OK;
}

// Whether `in` holds the gradient of a sum, of which entry `s` of the list of sums (FOR_SUMS) is an unanswered use.
static bool passes_unanswered(const struct gradient_check *c, int by, int s, const struct operand *in) {
    const struct node *sum = &c->graph.nodes.item[s / OP_MAX_IN];
    const struct instruction *adds = c->graph.nodes.item[by].instruction, *f = sum->instruction;
    const int input = s % OP_MAX_IN;
    // What a skipped sum does not have as a term must not be passed through to it.
    const bool passed = f->predicate != NONE && instruction_otherwise(f) != input && adds->passes;
    return !sum->answered[input] && holds_gradient(c, in->buffer, f->out[0].buffer, adds->predicate) &&
           has_term(c, s / OP_MAX_IN, input, adds->predicate) && !passed;
}

// Adds the gradient of that sum, which must be complete.
static trireme_status answer_passed(struct gradient_check *c, int by, int s, const struct operand *in) {
    trireme_error *error = c->error;
    int missing;
    if (!gradients_complete(c, c->graph.nodes.item[s / OP_MAX_IN].instruction->out[0].buffer, &missing))
        REFUSE("%s: adds %s before all contributions to %s are in", site_of(c, by).text,
               gradients_name_of(c, in->buffer), gradients_name_of(c, missing));
    return gradients_answer(c, by, s / OP_MAX_IN, s % OP_MAX_IN, NULL, false);
}

// A gradient that is added in to make `out` must be the tensor's own (*own), or one that passes to it unchanged through
// a sum.
static trireme_status check_pass(struct gradient_check *c, int by, const struct operand *in, const struct operand *out,
                                 int of, bool *own) {
    trireme_error *error = c->error;
    if (!same_view(in, out))
        REFUSE("%s: adds other elements of %s than it makes of %s", site_of(c, by).text,
               gradients_name_of(c, in->buffer), gradients_name_of(c, out->buffer));
    *own =
        holds_gradient(c, in->buffer, of, c->graph.nodes.item[by].instruction->predicate) && in->buffer == out->buffer;
    if (*own)
        return TRIREME_OK;
    FOR_SUMS(&c->graph, s, of) {
        const struct instruction *sum = c->graph.nodes.item[s / OP_MAX_IN].instruction;
        if (passes_unanswered(c, by, s, in) && same_elements(c, in, &sum->in[s % OP_MAX_IN]) &&
            same_elements(c, in, &sum->out[0]))
            return answer_passed(c, by, s, in);
    }
    REFUSE("%s: adds %s to the gradient of %s, but no sum connects the two", site_of(c, by).text,
           gradients_name_of(c, in->buffer), gradients_name_of(c, of));
}

// ---- sums of terms

// Whether `a` and `b` are the matrices that have the elements of `x` and `y`, operands of one shape, in one order.
static bool are_matrices_of(const struct operand *a, const struct operand *b, const struct operand *x,
                            const struct operand *y) {
    struct operand of_x, of_y;
    if (x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof x->dim[0]) != 0)
        return false;
    for (int rows = 0; rows < x->ndim; rows++)
        if (operand_matrix(x, rows, &of_x) && operand_matrix(y, rows, &of_y) && same_view(a, &of_x) &&
            same_view(b, &of_y))
            return true;
    return false;
}

static trireme_status verify_add_term(struct gradient_check *c, int by, const struct operand *in,
                                      const struct operand *out) {
    trireme_error *error = c->error;
    struct term *term = &c->term[in->buffer];
    if (term->use == NONE)
        REFUSE("%s: adds %s before it is made", site_of(c, by).text, gradients_name_of(c, in->buffer));
    if (term->added)
        REFUSE("%s: adds %s a second time", site_of(c, by).text, gradients_name_of(c, in->buffer));
    const struct operand *of = &c->graph.nodes.item[term->use / OP_MAX_IN].instruction->in[term->use % OP_MAX_IN],
                         all = operand_shape(operand_whole(c->program, in->buffer), of->ndim, of->dim);
    if (!are_matrices_of(in, out, &all, of))
        REFUSE("%s: adds %s to other elements of %s than it is a term of", site_of(c, by).text,
               gradients_name_of(c, in->buffer), gradients_name_of(c, out->buffer));
    term->added = true;
    c->graph.tensor[of->buffer].contributions++;
    return TRIREME_OK;
}

// Adds the gradient of a sum that the tensor enters.
static trireme_status verify_add_passed(struct gradient_check *c, int by, const struct operand *in,
                                        const struct operand *out, int of) {
    trireme_error *error = c->error;
    FOR_SUMS(&c->graph, s, of) {
        const struct instruction *sum = c->graph.nodes.item[s / OP_MAX_IN].instruction;
        if (passes_unanswered(c, by, s, in) && are_matrices_of(in, out, &sum->out[0], &sum->in[s % OP_MAX_IN]))
            return answer_passed(c, by, s, in);
    }
    REFUSE("%s: adds %s to the gradient of %s, but no sum connects the two", site_of(c, by).text,
           gradients_name_of(c, in->buffer), gradients_name_of(c, of));
}

static trireme_status check_gradient_sum(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *sum = c->graph.nodes.item[by].instruction;
    const struct operand *out = &sum->out[0];
    const int of = c->program->buffers.item[out->buffer].gradient_of;
    bool own = false;
    if (sum->predicate != NONE)
        REFUSE("%s: may be skipped, though it contributes to gradients", site_of(c, by).text);
    if (of == NONE || c->term[out->buffer].is)
        REFUSE("%s: adds gradients in %s, which is not the gradient of a tensor", site_of(c, by).text,
               gradients_name_of(c, out->buffer));
    for (int k = 0; k < sum->inputs; k++) {
        const struct operand *in = &sum->in[k];
        if (in->buffer == NONE)
            continue;
        if (in->buffer == out->buffer) {
            if (own || !operand_equal(in, out))
                REFUSE("%s: adds %s to itself", site_of(c, by).text, gradients_name_of(c, in->buffer));
            own = true;
        } else if (c->term[in->buffer].is && c->program->buffers.item[in->buffer].gradient_of == of) {
            TRY(verify_add_term(c, by, in, out));
        } else {
            TRY(verify_add_passed(c, by, in, out, of));
        }
    }
    return note_written(c, by, of, out, own);
}

static trireme_status check_terms(const struct gradient_check *c) {
    trireme_error *error = c->error;
    for (size_t i = 0; i < c->program->buffers.count; i++)
        if (c->term[i].use != NONE && !c->term[i].added)
            REFUSE("%s is never added to the gradient of %s", gradients_name_of(c, (int)i),
                   gradients_name_of(c, c->program->buffers.item[i].gradient_of));
    return TRIREME_OK;
}

// ---- backward instructions

static bool same_attributes(const struct gradient_check *c, const struct instruction *f, const struct instruction *b) {
    const struct op_info *forward = &c->table->op[f->op], *backward = &c->table->op[b->op];
    for (int i = 0; i < backward->attributes; i++) {
        int k = op_attribute_find(forward, backward->attribute[i].name);
        if (k >= 0 && b->attribute[i].i != f->attribute[k].i)
            return false;
    }
    return true;
}

// Whether `out` is where the gradient of `of` belongs, or a buffer for a term of it.
static bool belongs_to_gradient(const struct gradient_check *c, const struct operand *out, const struct operand *of) {
    if (of->buffer == NONE || c->program->buffers.item[out->buffer].gradient_of != of->buffer)
        return false;
    if (!c->term[out->buffer].is)
        return same_view(out, of);
    const struct operand all = operand_whole(c->program, out->buffer);
    return graph_is_whole(&c->graph, out) && operand_equal(out, &all) && out->ndim == of->ndim &&
           memcmp(out->dim, of->dim, (size_t)of->ndim * sizeof of->dim[0]) == 0;
}

// Whether backward instruction `b` can answer forward instruction `f`; else *why names the operand that does not fit.
static bool gradients_matches(struct gradient_check *c, const struct instruction *b, const struct instruction *f,
                              const char **why) {
    const struct op_info *info = &c->table->op[b->op];
    *why = "predicate";
    if (b->predicate != f->predicate)
        return false;
    *why = "group";
    if (b->group != f->group || b->peer != f->peer)
        return false;
    for (int i = 0; i < info->inputs; i++) {
        struct op_reference r = info->reads[i];
        const struct operand *of = r.output ? &f->out[r.index] : &f->in[r.index], *in = &b->in[i];
        *why = info->in[i].name;
        if (r.pass)
            continue;
        if (of->buffer == NONE || in->buffer == NONE) {
            // An output without uses has no gradient.
            bool absent = r.gradient && info->in[i].optional && in->buffer == NONE && of->buffer != NONE &&
                          !graph_is_used(&c->graph, of->buffer);
            if (of->buffer != in->buffer && !absent)
                return false;
        } else if (r.gradient ? !same_view(in, of) || !holds_gradient(c, in->buffer, of->buffer, b->predicate)
                              : !same_value(c, in, of)) {
            return false;
        }
    }
    for (int i = 0; i < info->outputs; i++) {
        const struct operand *of = &f->in[info->contributes[i].index], *out = &b->out[i];
        *why = info->out[i].name;
        if (out->buffer != NONE && !belongs_to_gradient(c, out, of))
            return false;
    }
    *why = "attributes";
    return same_attributes(c, f, b);
}

// Forward nodes of `op` whose output of that number is the tensor, or another tensor that shares its gradient.
static void add_candidates(struct gradient_check *c, int tensor, int output, enum op op) {
    FOR_MAKERS(&c->graph, m, tensor) {
        const struct node *f = &c->graph.nodes.item[m / OP_MAX_OUT];
        if (f->useful && f->instruction->op == op && m % OP_MAX_OUT == output)
            VEC_PUSH(&c->candidates, m / OP_MAX_OUT);
    }
    for (int t = c->graph.tensor[tensor].first_passed; t != NONE; t = c->graph.tensor[t].next_passed)
        add_candidates(c, t, output, op);
}

// Lists the candidates for input i of a backward instruction, in the order in which they run.
static void find_candidates(struct gradient_check *c, const struct op_info *info, const struct instruction *b, int i) {
    int tensor = c->program->buffers.item[b->in[i].buffer].gradient_of;
    c->candidates.count = 0;
    if (tensor != NONE)
        add_candidates(c, tensor, info->reads[i].index, info->forward);
    sort_ints(c->candidates.item, c->candidates.count);
}

// Whether no use that the backward instruction answers has been answered before; *all: and it answers all that its op
// could.
static bool answers_free_uses(const struct gradient_check *c, const struct op_info *info, const struct instruction *b,
                              const struct node *f, bool *all) {
    bool free_use = *all = true;
    for (int o = 0; o < info->outputs; o++) {
        const int input = info->contributes[o].index, buffer = f->instruction->in[input].buffer;
        if (b->out[o].buffer != NONE)
            free_use &= !f->answered[input];
        else
            *all &= buffer == NONE || f->answered[input] || !graph_is_wanted(&c->graph, buffer);
    }
    return free_use;
}

// The forward node that a backward instruction answers: one that made the tensor whose gradient it reads.
static int find_forward(struct gradient_check *c, const struct instruction *b, const char **why) {
    const struct op_info *info = &c->table->op[b->op];
    int found = NONE;
    *why = "operands";
    bool reads = false; // whether it has an input on this rank
    for (int i = 0; i < info->inputs; i++)
        reads |= b->in[i].buffer != NONE;
    for (size_t u = 0; u < c->graph.nodes.count && !reads; u++)
        if (c->graph.nodes.item[u].useful && c->graph.nodes.item[u].instruction->op == info->forward &&
            gradients_matches(c, b, c->graph.nodes.item[u].instruction, why))
            return (int)u;
    for (int i = 0; i < info->inputs && found == NONE; i++) {
        if (!info->reads[i].gradient || info->reads[i].pass || b->in[i].buffer == NONE)
            continue;
        find_candidates(c, info, b, i);
        for (size_t k = 0; k < c->candidates.count; k++) {
            const struct node *f = &c->graph.nodes.item[c->candidates.item[k]];
            if (!gradients_matches(c, b, f->instruction, why))
                continue;
            bool all, free_use = answers_free_uses(c, info, b, f, &all);
            if (free_use && all)
                return c->candidates.item[k];
            if (free_use || found == NONE)
                found = c->candidates.item[k];
        }
    }
    return found;
}

// The output of a backward instruction that is the gradient of that input of the forward op.
static const struct operand *made_by(const struct op_info *info, const struct instruction *b, int input) {
    int o = 0;
    while (info->contributes[o].index != input)
        o++;
    return &b->out[o];
}

// The input of a backward row that is the gradient of output 0 (`pass` NONE), or one at hand of input `pass`, which is
// added to what the row makes; NONE where the instruction has none.
static int gradient_read(const struct op_info *info, const struct instruction *b, int pass) {
    for (int i = 0; i < info->inputs; i++) {
        const struct op_reference r = info->reads[i];
        bool meant = pass == NONE ? r.gradient && r.output && !r.pass && r.index == 0 : r.pass && r.index == pass;
        if (meant && b->in[i].buffer != NONE)
            return i;
    }
    return NONE;
}

// The transpose of what is skipped under a predicate is skipped under the same; then what was at hand of a gradient
// stays, and the gradient of what passed through goes back unchanged.
static trireme_status check_skipped_backward(const struct gradient_check *c, int by, const struct instruction *f) {
    trireme_error *error = c->error;
    const struct instruction *b = c->graph.nodes.item[by].instruction;
    const struct op_info *info = &c->table->op[b->op];
    for (int o = 0; o < info->outputs; o++) {
        if (b->predicate == NONE || b->out[o].buffer == NONE)
            continue;
        const int input = info->contributes[o].index, at_hand = gradient_read(info, b, input);
        const bool passed = input == instruction_otherwise(f) && !c->table->op[f->op].identity[input];
        const int through = passed ? gradient_read(info, b, NONE) : at_hand;
        const int otherwise = o == 0 ? instruction_otherwise(b) : NONE;
        // Without `else` a gradient at hand would be lost; what then is made of it is for verify_memory.c.
        if ((passed && (at_hand != NONE || through == NONE || otherwise != through)) ||
            (!passed && otherwise != NONE && otherwise != through))
            REFUSE("%s: where it is skipped, the gradient of %s is not what %s passes back", site_of(c, by).text,
                   gradients_name_of(c, f->in[input].buffer), c->table->op[f->op].name);
    }
    return TRIREME_OK;
}

static trireme_status check_backward(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *b = c->graph.nodes.item[by].instruction;
    const struct op_info *info = &c->table->op[b->op];
    const char *why;
    int use = find_forward(c, b, &why);
    if (use == NONE)
        REFUSE("%s: is not the backward of any %s of this program (mismatch: %s)", site_of(c, by).text,
               c->table->op[info->forward].name, why);
    const struct instruction *f = c->graph.nodes.item[use].instruction;
    TRY(check_skipped_backward(c, by, f));
    bool sum[OP_MAX_IN] = {false};
    for (int i = 0; i < info->inputs; i++) {
        if (!info->reads[i].gradient || b->in[i].buffer == NONE)
            continue;
        int missing,
            of = info->reads[i].output ? f->out[info->reads[i].index].buffer : f->in[info->reads[i].index].buffer;
        if (info->reads[i].pass) {
            TRY(check_pass(c, by, &b->in[i], made_by(info, b, info->reads[i].index), of, &sum[info->reads[i].index]));
        } else if (!gradients_complete(c, of, &missing)) {
            REFUSE("%s: reads %s, the gradient of %s, before all contributions are in (%d of %d)", site_of(c, by).text,
                   gradients_name_of(c, b->in[i].buffer), gradients_name_of(c, missing),
                   c->graph.tensor[missing].contributions, c->graph.tensor[missing].uses);
        }
    }
    bool contributes = false;
    for (int i = 0; i < info->outputs; i++)
        if (b->out[i].buffer != NONE) {
            TRY(gradients_answer(c, by, use, info->contributes[i].index, &b->out[i], sum[info->contributes[i].index]));
            contributes = true;
        }
    if (contributes || !instruction_arrives(f))
        return TRIREME_OK;
    struct node *received = &c->graph.nodes.item[use];
    if (received->answered[0])
        REFUSE("%s: sends the gradient of %s twice", site_of(c, by).text, gradients_name_of(c, f->out[0].buffer));
    received->answered[0] = true;
    return TRIREME_OK;
}

// What logits were before the cap, which is that of the loss; NULL: nothing caps them so.
static const struct operand *before_cap(const struct gradient_check *c, const struct operand *logits, double cap) {
    if (cap == 0)
        return logits;
    FOR_MAKERS(&c->graph, m, logits->buffer) {
        const struct node *node = &c->graph.nodes.item[m / OP_MAX_OUT];
        const struct instruction *f = node->instruction;
        if (node->useful && f->op == OP_SOFTCAP && f->attribute[ATTRIBUTE(SOFTCAP, cap)].f == cap &&
            operand_equal(&f->out[OUTPUT(SOFTCAP, y)], logits))
            return &f->in[INPUT(SOFTCAP, x)];
    }
    return NULL;
}

// The gradient of the head's input, which is made together with the loss: that of the product whose result the logits
// are, perhaps capped.
static trireme_status check_head(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *loss = c->graph.nodes.item[by].instruction;
    const struct operand *dx = &loss->out[OUTPUT(CROSS_ENTROPY_HEAD, dx)],
                         *logits = before_cap(c, &loss->in[INPUT(CROSS_ENTROPY_HEAD, logits)],
                                              loss->attribute[ATTRIBUTE(CROSS_ENTROPY_HEAD, cap)].f);
    if (dx->buffer == NONE)
        return TRIREME_OK;
    if (!logits)
        REFUSE("%s: nothing caps its logits as it says", site_of(c, by).text);
    FOR_MAKERS(&c->graph, m, logits->buffer) {
        const struct node *node = &c->graph.nodes.item[m / OP_MAX_OUT];
        const struct instruction *f = node->instruction;
        if (!node->useful || f->op != OP_MATMUL || !operand_equal(&f->out[OUTPUT(MATMUL, y)], logits) ||
            !operand_equal(&f->in[INPUT(MATMUL, w)], &loss->in[INPUT(CROSS_ENTROPY_HEAD, w)]))
            continue;
        const struct operand *x = &f->in[INPUT(MATMUL, x)];
        if (!same_view(dx, x) || c->program->buffers.item[dx->buffer].gradient_of != x->buffer)
            REFUSE("%s: %s is not the gradient of %s", site_of(c, by).text, gradients_name_of(c, dx->buffer),
                   gradients_name_of(c, x->buffer));
        return gradients_answer(c, by, m / OP_MAX_OUT, INPUT(MATMUL, x), dx, false);
    }
    REFUSE("%s: its logits are not the product of anything and its weights", site_of(c, by).text);
}

static bool repeated_before(const struct gradient_check *c, int by, int buffer, int node) {
    FOR_MAKERS(&c->graph, m, buffer)
        if (m / OP_MAX_OUT < by && c->graph.nodes.item[m / OP_MAX_OUT].repeats == node)
            return true;
    return false;
}

// Whether the original is a sum of several terms, and the copy has fewer or more.
static bool has_other_terms(const struct gradient_check *c, int copy) {
    int terms = 0, repeated = 0;
    bool adds = false;
    FOR_MAKERS(&c->graph, m, program_original(c->program, copy)) {
        terms += c->graph.nodes.item[m / OP_MAX_OUT].forward;
        adds |= c->graph.nodes.item[m / OP_MAX_OUT].instruction->accumulate != ACCUMULATE_NO;
    }
    FOR_MAKERS(&c->graph, m, copy)
        repeated += c->graph.nodes.item[m / OP_MAX_OUT].again;
    return adds && repeated != terms;
}

// A recomputed value must be made as it was the first time.
static trireme_status check_recomputation(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *again = c->graph.nodes.item[by].instruction;
    int made = 0; // an output that there is
    while (again->out[made].buffer == NONE)
        made++;
    const int copy = again->out[made].buffer;
    if (has_other_terms(c, copy))
        REFUSE("%s: %s is not made of the terms of %s", site_of(c, by).text, gradients_name_of(c, copy),
               gradients_name_of(c, program_original(c->program, copy)));
    FOR_MAKERS(&c->graph, m, program_original(c->program, copy)) {
        const struct node *f = &c->graph.nodes.item[m / OP_MAX_OUT];
        if (!f->forward || f->instruction->op != again->op)
            continue;
        bool same = memcmp(f->instruction->attribute, again->attribute, sizeof again->attribute) == 0 &&
                    f->instruction->accumulate == again->accumulate && f->instruction->group == again->group &&
                    f->instruction->predicate == again->predicate && f->instruction->passes == again->passes &&
                    f->instruction->peer == again->peer;
        for (int i = 0; i < again->inputs && same; i++)
            same = same_value(c, &again->in[i], &f->instruction->in[i]);
        for (int i = 0; i < again->outputs && same; i++)
            same = same_value(c, &again->out[i], &f->instruction->out[i]) &&
                   (again->out[i].buffer == NONE || again->out[i].buffer != f->instruction->out[i].buffer);
        if (!same)
            continue;
        if (repeated_before(c, by, copy, m / OP_MAX_OUT))
            REFUSE("%s: recomputes %s a second time", site_of(c, by).text, gradients_name_of(c, copy));
        c->graph.nodes.item[by].repeats = m / OP_MAX_OUT;
        return TRIREME_OK;
    }
    REFUSE("%s: does not recompute %s as the forward pass computed it", site_of(c, by).text,
           gradients_name_of(c, program_original(c->program, again->out[0].buffer)));
}

// Whether something made the tensor as an output whose gradient no op passes on.
static bool ends_gradients(const struct gradient_check *c, int buffer) {
    FOR_SELF_AND_PARENTS(&c->graph, b, buffer)
        FOR_MAKERS(&c->graph, m, b) {
            const struct node *maker = &c->graph.nodes.item[m / OP_MAX_OUT];
            if (maker->forward && !c->has_adjoint[maker->instruction->op][m % OP_MAX_OUT])
                return true;
        }
    return false;
}

// What the forward pass reads, and the loss depends on, has a gradient if it is made of what has one, whatever made it.
static trireme_status check_uses(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct node *node = &c->graph.nodes.item[by];
    const struct instruction *f = node->instruction;
    if (!node->forward || !node->useful || (c->table->op[f->op].role != ROLE_FORWARD && f->op != OP_SEND))
        return TRIREME_OK;
    for (int k = 0; k < f->inputs; k++) {
        const int buffer = f->in[k].buffer;
        if (buffer != NONE && graph_depends(&c->graph, buffer) &&
            (!graph_is_wanted(&c->graph, buffer) || ends_gradients(c, buffer)))
            REFUSE("%s: reads %s, and no gradient goes back to what that is made of", site_of(c, by).text,
                   gradients_name_of(c, buffer));
    }
    return TRIREME_OK;
}

// Instructions of several templates that a microbatch goes through share no buffer that lasts for one of them.
static trireme_status check_locals(struct gradient_check *c) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    int *template = mem_alloc(p->buffers.count * sizeof *template), by = NONE, buffer = NONE;
    for (size_t i = 0; i < p->buffers.count; i++)
        template[i] = NONE;
    for (size_t i = 0; i < c->graph.nodes.count && by == NONE; i++) {
        const struct node *node = &c->graph.nodes.item[i];
        for (int k = 0; k < node->instruction->outputs; k++) {
            int root = node->instruction->out[k].buffer;
            if (root == NONE || p->buffers.item[root = program_root(p, root)].scope != SCOPE_LOCAL)
                continue;
            if (template[root] != NONE && template[root] != node->template)
                by = (int)i, buffer = root;
            template[root] = node->template;
        }
    }
    free(template);
    if (by != NONE)
        REFUSE("%s: makes %s, which another template has made before", site_of(c, by).text,
               gradients_name_of(c, buffer));
    return TRIREME_OK;
}

static void find_adjoints(struct gradient_check *c) {
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &c->table->op[op];
        for (int i = 0; i < info->inputs; i++) {
            c->has_adjoint[op][0] |= info->identity[i];
            if (info->transposes && info->reads[i].gradient && info->reads[i].output)
                c->has_adjoint[info->forward][info->reads[i].index] = true;
        }
    }
}

static trireme_status check_all(struct gradient_check *c) {
    trireme_error *error = c->error;
    TRY(check_locals(c));
    find_adjoints(c);
    for (size_t i = 0; i < c->graph.nodes.count; i++) {
        const struct node *node = &c->graph.nodes.item[i];
        const struct op_info *info = &c->table->op[node->instruction->op];
        bool passes = node->forward || node->again || node->backward, last = node->instruction->when == WHEN_LAST;
        if (passes && node->instruction->when != WHEN_ALWAYS && !node->paired)
            REFUSE("%s: is left out of %s, in which nothing does the same", site_of(c, (int)i).text,
                   last ? "all invocations but the last" : "the last invocation");
        TRY(check_uses(c, (int)i));
        if (node->again)
            TRY(check_recomputation(c, (int)i));
        else if (info->role == ROLE_SUM)
            TRY(check_gradient_sum(c, (int)i));
        else if (node->backward)
            TRY(check_backward(c, (int)i));
        else if (info->role == ROLE_LOSS) {
            const struct operand *d = &node->instruction->out[info->outputs - 1];
            const struct operand *logits = &node->instruction->in[0];
            if (d->buffer == NONE)
                REFUSE("%s: makes no gradient of %s", site_of(c, (int)i).text, gradients_name_of(c, logits->buffer));
            if (!belongs_to_gradient(c, d, logits))
                REFUSE("%s: %s is not the gradient of %s, row by row", site_of(c, (int)i).text,
                       gradients_name_of(c, d->buffer), gradients_name_of(c, logits->buffer));
            TRY(gradients_answer(c, (int)i, (int)i, 0, d, false));
            if (node->instruction->op == OP_CROSS_ENTROPY_HEAD)
                TRY(check_head(c, (int)i));
        }
    }
    for (size_t i = 0; i < c->graph.nodes.count; i++) {
        const struct node *f = &c->graph.nodes.item[i];
        if (f->useful && instruction_arrives(f->instruction) && !f->answered[0] &&
            graph_is_wanted(&c->graph, f->instruction->out[0].buffer))
            REFUSE("the gradient of %s, which %s received, is never sent back",
                   gradients_name_of(c, f->instruction->out[0].buffer), site_of(c, (int)i).text);
        for (int k = 0; f->useful && k < f->instruction->inputs; k++)
            if (f->instruction->in[k].buffer != NONE && !f->answered[k] && graph_is_use(&c->graph, f, k) &&
                graph_is_wanted(&c->graph, f->instruction->in[k].buffer) &&
                graph_passed_to(&c->graph, f->instruction->in[k].buffer) == NONE)
                REFUSE("the gradient of %s for %s is never computed",
                       gradients_name_of(c, f->instruction->in[k].buffer), site_of(c, (int)i).text);
    }
    return check_terms(c);
}

static trireme_status check_route(const struct program *program, const struct op_table *table, const struct sets *sets,
                                  const struct route *route, trireme_error *error) {
    struct gradient_check c = {.program = program, .table = table, .error = error};
    c.term = find_terms(program, table);
    gradient_graph_create(&c.graph, program, table, sets, route);
    trireme_status status = check_all(&c);
    gradient_graph_release(&c.graph);
    free(c.term);
    VEC_RELEASE(&c.candidates);
    return status;
}

trireme_status verify_gradients(const struct program *program, const struct op_table *table, const struct sets *sets,
                                trireme_error *error) {
    struct routes routes;
    trireme_status status = routes_create(&routes, program, error);
    struct term *term = find_terms(program, table);
    if (status == TRIREME_OK)
        status = check_one_each(program, term, error);
    if (status == TRIREME_OK)
        status = check_parts(program, term, error);
    free(term);
    for (size_t i = 0; i < routes.count && status == TRIREME_OK; i++)
        status = check_route(program, table, sets, &routes.item[i], error);
    routes_release(&routes);
    return status;
}
