// Proves that the backward pass is the transpose of the forward pass, by the adjoint column of ops.def.
//
// A *use* is an input of a forward instruction that needs a gradient. Every use of every tensor must be answered by
// exactly one backward instruction, which must read what the adjoint says: the same forward operands (or their
// recomputed values) and the complete gradients of the forward outputs. Contributions to one gradient add up; none
// overwrites another. Communication of activations is part of it: what one pass sends the other receives. That of
// parameters and of their gradients is verify_placement.c's.
#include "program/routes.h"
#include "program/verify.h"

struct node {
    struct instruction *instruction; // a copy; that of a forward node reads original values, not recomputed ones
    int template, index;
    bool forward;  // makes a value of the forward pass (not once more)
    bool again;    // makes one once more
    bool backward; // contributes to gradients
    bool useful;   // the loss depends on it
    bool answered[OP_MAX_IN];
};

struct contribution {
    struct footprint where;
    int by; // node
};

struct tensor_state {
    bool wanted; // a parameter with a gradient, or depends on one
    bool useful; // the loss depends on it
    int uses, contributions;
    int identity_use; // the last use by plain addition, NONE when there is none
    VEC(struct contribution) parts;
    int first_slice, next_slice; // of this tensor; of the one that this is a slice of
};

struct gradient_check {
    const struct program *program;
    const struct op_table *table;
    VEC(struct node) nodes;
    struct tensor_state *tensor;
    trireme_error *error;
};

static struct site site_of(const struct gradient_check *c, const struct node *i) {
    return verify_site(c->program, c->table, i->template, i->index, NONE);
}

static const char *name_of(const struct gradient_check *c, int buffer) {
    return verify_buffer_name(c->program, buffer);
}

static int original(const struct gradient_check *c, int buffer) {
    while (buffer != NONE && c->program->buffers.item[buffer].recomputes != NONE)
        buffer = c->program->buffers.item[buffer].recomputes;
    return buffer;
}

static bool same_value(const struct gradient_check *c, const struct operand *a, const struct operand *b) {
    struct operand x = *a, y = *b;
    x.buffer = original(c, x.buffer);
    y.buffer = original(c, y.buffer);
    return operand_equal(&x, &y);
}

static bool same_view(const struct operand *a, const struct operand *b) {
    struct operand x = *a;
    x.buffer = b->buffer;
    return operand_equal(&x, b);
}

// ---- collecting the instructions of one microbatch

static bool is_recomputation(const struct gradient_check *c, const struct instruction *instruction) {
    for (int i = 0; i < instruction->outputs; i++)
        if (instruction->out[i].buffer != NONE &&
            c->program->buffers.item[instruction->out[i].buffer].recomputes != NONE)
            return true;
    return false;
}

// The gradient of a part of a tensor is that part of the tensor's gradient, and so it is with what is computed again:
// who reads the whole finds each part in its place.
static trireme_status check_parts(const struct program *p, trireme_error *error) {
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        bool again = b->recomputes != NONE;
        int of = again ? b->recomputes : b->gradient_of;
        if (of == NONE)
            continue;
        const struct buffer *tensor = &p->buffers.item[of];
        const char *what = again ? "recomputes" : "is the gradient of";
        if (b->ndim != tensor->ndim || memcmp(b->dim, tensor->dim, (size_t)b->ndim * sizeof b->dim[0]) != 0)
            REFUSE("%s %s %s, which has another shape", b->name, what, tensor->name);
        if (tensor->parent == NONE)
            continue;
        const struct buffer *root = &p->buffers.item[program_root(p, (int)i)];
        int whole = again ? root->recomputes : root->gradient_of;
        bool parameter = tensor->kind == KIND_PARAM && !again; // their gradients are declared part by part
        if (b->parent == NONE || program_root_offset(p, (int)i) != program_root_offset(p, of) ||
            (!parameter && whole != program_root(p, of)))
            REFUSE("%s %s %s, but is not the same part of what does so for %s", b->name, what, tensor->name,
                   p->buffers.item[program_root(p, of)].name);
    }
    return TRIREME_OK;
}

static int first_operand(const struct instruction *instruction) {
    bool has_output = instruction->outputs && instruction->out[0].buffer != NONE;
    return has_output ? instruction->out[0].buffer : instruction->in[0].buffer;
}

// Which pass an instruction belongs to.
static void classify(const struct gradient_check *c, struct node *node) {
    const struct instruction *i = node->instruction;
    enum op_role role = c->table->op[i->op].role;
    bool forward = role == ROLE_FORWARD || role == ROLE_LOSS;
    node->backward = role == ROLE_BACKWARD || role == ROLE_HEAD;
    if (role == ROLE_COMMUNICATION) {
        const struct buffer *b = &c->program->buffers.item[first_operand(i)];
        bool activation = b->kind == KIND_ACT;
        int of = i->outputs ? b->gradient_of : NONE;
        for (int k = 0; k < i->inputs && of == NONE; k++)
            of = i->in[k].buffer == NONE ? NONE : c->program->buffers.item[i->in[k].buffer].gradient_of;
        node->backward = activation && of != NONE;
        forward = activation && of == NONE;
    }
    node->again = forward && is_recomputation(c, i);
    node->forward = forward && !node->again;
}

static void collect(struct gradient_check *c, const struct route *route) {
    const struct program *p = c->program;
    for (size_t k = 0; k < route->templates.count; k++) {
        int t = route->templates.item[k];
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = mem_alloc(sizeof *instruction);
            *instruction = p->templates.item[t].instructions.item[i];
            struct node node = {.instruction = instruction, .template = t, .index = (int)i};
            classify(c, &node);
            for (int n = 0; node.forward && n < instruction->inputs; n++)
                instruction->in[n].buffer = original(c, instruction->in[n].buffer);
            VEC_PUSH(&c->nodes, node);
        }
    }
}

// A buffer and everything that it is a slice of.
#define FOR_SELF_AND_PARENTS(c, b, buffer) for (int b = (buffer); b != NONE; b = (c)->program->buffers.item[b].parent)

#define FOR_SLICES(c, s, buffer) for (int s = (c)->tensor[buffer].first_slice; s != NONE; s = (c)->tensor[s].next_slice)

static bool tensor_flag(const struct gradient_check *c, int buffer, bool useful) {
    FOR_SELF_AND_PARENTS(c, b, buffer)
    if (useful ? c->tensor[b].useful : c->tensor[b].wanted)
        return true;
    return false;
}

static void count_use(struct gradient_check *c, int use, int input) {
    const struct instruction *f = c->nodes.item[use].instruction;
    struct tensor_state *t = &c->tensor[f->in[input].buffer];
    t->uses++;
    if (c->table->op[f->op].identity[input])
        t->identity_use = use;
}

static void find_uses(struct gradient_check *c) {
    const struct program *p = c->program;
    bool trains = false;
    for (size_t i = 0; i < p->buffers.count; i++)
        c->tensor[i].identity_use = c->tensor[i].first_slice = c->tensor[i].next_slice = NONE;
    for (size_t i = p->buffers.count; i-- > 0;) {
        int of = p->buffers.item[i].gradient_of, parent = p->buffers.item[i].parent;
        if (parent != NONE) {
            c->tensor[i].next_slice = c->tensor[parent].first_slice;
            c->tensor[parent].first_slice = (int)i;
        }
        if (of != NONE && p->buffers.item[of].kind == KIND_PARAM)
            trains = c->tensor[of].wanted = true;
    }
    for (size_t i = 0; i < c->nodes.count; i++) {
        const struct instruction *f = c->nodes.item[i].instruction;
        bool wanted = trains && c->nodes.item[i].forward && instruction_arrives(f);
        for (int k = 0; c->nodes.item[i].forward && k < f->inputs; k++)
            wanted |= f->in[k].buffer != NONE && tensor_flag(c, f->in[k].buffer, false);
        for (int k = 0; wanted && k < f->outputs; k++)
            if (f->out[k].buffer != NONE)
                c->tensor[f->out[k].buffer].wanted = true;
    }
    // From the losses backwards.
    for (size_t i = c->nodes.count; i-- > 0;) {
        struct node *f = &c->nodes.item[i];
        if (!f->forward)
            continue;
        f->useful = c->table->op[f->instruction->op].role == ROLE_LOSS || instruction_leaves(f->instruction);
        for (int k = 0; k < f->instruction->outputs && !f->useful; k++)
            if (f->instruction->out[k].buffer != NONE) {
                int out = f->instruction->out[k].buffer;
                f->useful = tensor_flag(c, out, true);
                FOR_SLICES(c, s, out)
                f->useful |= c->tensor[s].useful;
            }
        for (int k = 0; f->useful && k < f->instruction->inputs; k++)
            if (f->instruction->in[k].buffer != NONE)
                c->tensor[f->instruction->in[k].buffer].useful = true;
    }
    for (size_t i = 0; i < c->nodes.count; i++)
        for (int k = 0; c->nodes.item[i].useful && k < c->nodes.item[i].instruction->inputs; k++) {
            int buffer = c->nodes.item[i].instruction->in[k].buffer;
            if (buffer != NONE && tensor_flag(c, buffer, false))
                count_use(c, (int)i, k);
        }
}

// Where there is a backward pass, a name stands for one value: what an instruction has read, none after it changes, or
// backward would see another value than forward used. Nowhere is a sum read before all its terms are in.
static trireme_status check_values(struct gradient_check *c) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    struct written *reads = mem_alloc(p->buffers.count * sizeof *reads);
    const char *changed = NULL;
    size_t i = 0;
    for (; i < c->nodes.count; i++) {
        const struct instruction *instruction =
            &p->templates.item[c->nodes.item[i].template].instructions.item[c->nodes.item[i].index];
        bool fixed =
            c->nodes.item[i].useful || instruction->accumulate != ACCUMULATE_NO || is_recomputation(c, instruction);
        fixed &= c->nodes.item[i].forward || c->nodes.item[i].again;
        struct footprint where;
        for (int k = 0; fixed && k < instruction->outputs; k++) {
            int buffer = instruction->out[k].buffer;
            if (buffer != NONE && footprint_of(p, &instruction->out[k], &where) &&
                written_unread(&reads[program_root(p, buffer)], &where))
                changed = name_of(c, buffer);
        }
        if (changed)
            break;
        for (int k = 0; k < instruction->inputs; k++)
            if (instruction->in[k].buffer != NONE && footprint_of(p, &instruction->in[k], &where))
                written_add(&reads[program_root(p, instruction->in[k].buffer)], where);
    }
    for (size_t b = 0; b < p->buffers.count; b++)
        VEC_RELEASE(&reads[b].parts);
    free(reads);
    if (changed)
        REFUSE("%s: changes %s, which has been read before", site_of(c, &c->nodes.item[i]).text, changed);
    return TRIREME_OK;
}

// ---- gradients

// The sum that is a tensor's one use, whose gradient is the tensor's, too; NONE where there is no other such tensor.
static int passed_to(const struct gradient_check *c, int buffer) {
    const struct tensor_state *t = &c->tensor[buffer];
    int sum =
        t->uses == 1 && t->identity_use != NONE ? c->nodes.item[t->identity_use].instruction->out[0].buffer : NONE;
    return sum == buffer ? NONE : sum; // made in place
}

static bool complete(const struct gradient_check *c, int buffer, int *missing) {
    int sum = passed_to(c, buffer);
    if (sum != NONE && c->tensor[buffer].contributions == 0)
        return complete(c, sum, missing);
    FOR_SELF_AND_PARENTS(c, b, buffer)
    if (c->tensor[b].contributions < c->tensor[b].uses) {
        *missing = b;
        return false;
    }
    FOR_SLICES(c, s, buffer)
    if (c->tensor[s].contributions < c->tensor[s].uses) {
        *missing = s;
        return false;
    }
    return true;
}

// Whether `gradient` holds the gradient of `of`: by declaration, or because all of it comes unchanged from one sum.
static bool holds_gradient(const struct gradient_check *c, int gradient, int of) {
    if (c->program->buffers.item[gradient].gradient_of == of)
        return true;
    int sum = passed_to(c, of);
    return sum != NONE && holds_gradient(c, gradient, sum);
}

static trireme_status answer(struct gradient_check *c, int by, int use, int input, const struct operand *out,
                             bool sum) {
    trireme_error *error = c->error;
    struct node *f = &c->nodes.item[use];
    int of = f->instruction->in[input].buffer;
    if (f->answered[input])
        REFUSE("%s: contributes to the gradient of %s twice for %s", site_of(c, &c->nodes.item[by]).text,
               name_of(c, of), site_of(c, f).text);
    f->answered[input] = true;
    struct tensor_state *t = &c->tensor[of];
    t->contributions++;
    if (!out)
        return TRIREME_OK;
    struct footprint where;
    footprint_of(c->program, out, &where);
    bool overlaps = false;
    for (size_t i = 0; i < t->parts.count; i++)
        overlaps |= footprint_overlap(&t->parts.item[i].where, &where);
    bool parameter = c->program->buffers.item[of].kind == KIND_PARAM;
    enum accumulate accumulate = c->nodes.item[by].instruction->accumulate;
    bool starts = accumulate == ACCUMULATE_NO || accumulate == ACCUMULATE_AFTER_FIRST;
    if (overlaps && starts && !sum)
        REFUSE("%s: overwrites earlier contributions to the gradient of %s", site_of(c, &c->nodes.item[by]).text,
               name_of(c, of));
    enum buffer_scope scope = out ? c->program->buffers.item[out->buffer].scope : SCOPE_LOCAL;
    bool kept = scope == SCOPE_STATE || scope == SCOPE_STEP;
    if (parameter && kept && !overlaps && accumulate == ACCUMULATE_NO && c->program->microbatches > 1)
        REFUSE("%s: overwrites the gradient of %s in every microbatch", site_of(c, &c->nodes.item[by]).text,
               name_of(c, of));
    VEC_PUSH(&t->parts, (struct contribution){where, by});
    return TRIREME_OK;
}

// A gradient that is added in: of the tensor itself, or one that passes to it unchanged through a sum.
static trireme_status check_pass(struct gradient_check *c, int by, const struct operand *in, int of, bool *own) {
    trireme_error *error = c->error;
    *own = c->program->buffers.item[in->buffer].gradient_of == of;
    if (*own)
        return TRIREME_OK;
    for (size_t u = 0; u < c->nodes.count; u++) {
        const struct node *sum = &c->nodes.item[u];
        if (!sum->useful)
            continue;
        for (int k = 0; k < sum->instruction->inputs; k++) {
            if (!c->table->op[sum->instruction->op].identity[k] || sum->instruction->in[k].buffer != of ||
                sum->answered[k] || !holds_gradient(c, in->buffer, sum->instruction->out[0].buffer))
                continue;
            int missing;
            if (!complete(c, sum->instruction->out[0].buffer, &missing))
                REFUSE("%s: adds %s, which still lacks contributions of %s", site_of(c, &c->nodes.item[by]).text,
                       name_of(c, in->buffer), name_of(c, missing));
            return answer(c, by, (int)u, k, NULL, false);
        }
    }
    REFUSE("%s: adds %s to the gradient of %s, to which it does not pass", site_of(c, &c->nodes.item[by]).text,
           name_of(c, in->buffer), name_of(c, of));
}

static bool same_attributes(const struct gradient_check *c, const struct instruction *f, const struct instruction *b) {
    const struct op_info *forward = &c->table->op[f->op], *backward = &c->table->op[b->op];
    for (int i = 0; i < backward->attributes; i++)
        for (int k = 0; k < forward->attributes; k++)
            if (strcmp(backward->attribute[i].name, forward->attribute[k].name) == 0 &&
                b->attribute[i].i != f->attribute[k].i)
                return false;
    return true;
}

// Whether backward instruction `b` can answer forward instruction `f`; else *why names the operand that does not fit.
static bool matches(struct gradient_check *c, const struct instruction *b, const struct instruction *f,
                    const char **why) {
    const struct op_info *info = &c->table->op[b->op];
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
            if (of->buffer != in->buffer)
                return false;
        } else if (r.gradient ? !same_view(in, of) || !holds_gradient(c, in->buffer, of->buffer)
                              : !same_value(c, in, of)) {
            return false;
        }
    }
    for (int i = 0; i < info->outputs; i++) {
        const struct operand *of = &f->in[info->contributes[i].index], *out = &b->out[i];
        *why = info->out[i].name;
        if (out->buffer != NONE && (of->buffer == NONE || !same_view(out, of) ||
                                    c->program->buffers.item[out->buffer].gradient_of != of->buffer))
            return false;
    }
    *why = "attributes";
    return same_attributes(c, f, b);
}

// The forward nodes that a backward instruction might answer: those that made the tensor whose gradient it reads.
static int find_forward(struct gradient_check *c, const struct instruction *b, const char **why) {
    const struct op_info *info = &c->table->op[b->op];
    int found = NONE;
    *why = "operands";
    bool reads = false; // some gradient of this rank's
    for (int i = 0; i < info->inputs; i++)
        reads |= b->in[i].buffer != NONE;
    for (size_t u = 0; u < c->nodes.count && !reads; u++)
        if (c->nodes.item[u].useful && c->nodes.item[u].instruction->op == info->forward &&
            matches(c, b, c->nodes.item[u].instruction, why))
            return (int)u;
    for (int i = 0; i < info->inputs && found == NONE; i++) {
        if (!info->reads[i].gradient || info->reads[i].pass || b->in[i].buffer == NONE)
            continue;
        int candidate = c->program->buffers.item[b->in[i].buffer].gradient_of;
        // A gradient may stand for that of any tensor it passes to: look at all makers then.
        for (size_t u = 0; u < c->nodes.count; u++) {
            const struct node *f = &c->nodes.item[u];
            if (!f->useful || f->instruction->op != info->forward)
                continue;
            bool direct = candidate != NONE && f->instruction->out[info->reads[i].index].buffer == candidate;
            if ((direct || c->tensor[f->instruction->out[info->reads[i].index].buffer].identity_use != NONE) &&
                matches(c, b, f->instruction, why)) {
                bool free_use = true;
                for (int k = 0; k < info->outputs; k++)
                    free_use &= b->out[k].buffer == NONE || !f->answered[info->contributes[k].index];
                if (free_use)
                    return (int)u;
                found = (int)u;
            }
        }
    }
    return found;
}

static trireme_status check_backward(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *b = c->nodes.item[by].instruction;
    const struct op_info *info = &c->table->op[b->op];
    const char *why;
    int use = find_forward(c, b, &why);
    if (use == NONE)
        REFUSE("%s: is the backward of no %s of this program: see %s", site_of(c, &c->nodes.item[by]).text,
               c->table->op[info->forward].name, why);
    const struct instruction *f = c->nodes.item[use].instruction;
    bool sum[OP_MAX_IN] = {false};
    for (int i = 0; i < info->inputs; i++) {
        if (!info->reads[i].gradient || b->in[i].buffer == NONE)
            continue;
        int missing,
            of = info->reads[i].output ? f->out[info->reads[i].index].buffer : f->in[info->reads[i].index].buffer;
        if (info->reads[i].pass) {
            TRY(check_pass(c, by, &b->in[i], of, &sum[info->reads[i].index]));
        } else if (!complete(c, of, &missing)) {
            REFUSE("%s: reads %s, the gradient of %s, before all contributions are in (%d of %d)",
                   site_of(c, &c->nodes.item[by]).text, name_of(c, b->in[i].buffer), name_of(c, missing),
                   c->tensor[missing].contributions, c->tensor[missing].uses);
        }
    }
    bool contributes = false;
    for (int i = 0; i < info->outputs; i++)
        if (b->out[i].buffer != NONE) {
            TRY(answer(c, by, use, info->contributes[i].index, &b->out[i], sum[info->contributes[i].index]));
            contributes = true;
        }
    if (contributes || !instruction_arrives(f))
        return TRIREME_OK;
    struct node *received = &c->nodes.item[use];
    if (received->answered[0])
        REFUSE("%s: sends the gradient of %s twice", site_of(c, &c->nodes.item[by]).text, name_of(c, f->out[0].buffer));
    received->answered[0] = true;
    return TRIREME_OK;
}

// The gradient of what the head's product is made of, where it is not made of that of the logits.
static trireme_status check_head(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *dx = c->nodes.item[by].instruction;
    struct head head;
    const char *why = verify_head_gradient(c->program, dx, &head);
    if (why)
        REFUSE("%s: %s", site_of(c, &c->nodes.item[by]).text, why);
    for (size_t u = 0; u < c->nodes.count; u++) {
        const struct instruction *f = c->nodes.item[u].instruction;
        if (!c->nodes.item[u].useful || f->op != OP_MATMUL || f->out[0].buffer != head.product->out[0].buffer)
            continue;
        if (!same_view(&dx->out[0], &f->in[0]) ||
            c->program->buffers.item[dx->out[0].buffer].gradient_of != f->in[0].buffer)
            REFUSE("%s: %s is not the gradient of %s", site_of(c, &c->nodes.item[by]).text,
                   name_of(c, dx->out[0].buffer), name_of(c, f->in[0].buffer));
        return answer(c, by, (int)u, 0, &dx->out[0], false);
    }
    REFUSE("%s: is the gradient of no product that the loss depends on", site_of(c, &c->nodes.item[by]).text);
}

// A recomputed value must be made as the first time.
static trireme_status check_recomputation(struct gradient_check *c, int by) {
    trireme_error *error = c->error;
    const struct instruction *again = c->nodes.item[by].instruction;
    for (size_t u = 0; u < c->nodes.count; u++) {
        const struct node *f = &c->nodes.item[u];
        if (!f->forward || f->instruction->op != again->op)
            continue;
        bool same = memcmp(f->instruction->attribute, again->attribute, sizeof again->attribute) == 0 &&
                    f->instruction->accumulate == again->accumulate && f->instruction->group == again->group &&
                    f->instruction->peer == again->peer;
        for (int i = 0; i < again->inputs && same; i++)
            same = same_value(c, &again->in[i], &f->instruction->in[i]);
        for (int i = 0; i < again->outputs && same; i++)
            same = same_value(c, &again->out[i], &f->instruction->out[i]) &&
                   (again->out[i].buffer == NONE || again->out[i].buffer != f->instruction->out[i].buffer);
        if (same)
            return TRIREME_OK;
    }
    REFUSE("%s: does not recompute %s as the forward pass computed it", site_of(c, &c->nodes.item[by]).text,
           name_of(c, original(c, again->out[0].buffer)));
}

static trireme_status check_all(struct gradient_check *c) {
    trireme_error *error = c->error;
    for (size_t i = 0; i < c->nodes.count; i++) {
        const struct node *node = &c->nodes.item[i];
        const struct op_info *info = &c->table->op[node->instruction->op];
        if (node->again)
            TRY(check_recomputation(c, (int)i));
        else if (info->role == ROLE_HEAD)
            TRY(check_head(c, (int)i));
        else if (node->backward)
            TRY(check_backward(c, (int)i));
        else if (info->role == ROLE_LOSS) {
            const struct operand *d = &node->instruction->out[info->outputs - 1];
            const struct operand *logits = &node->instruction->in[0];
            if (c->program->buffers.item[d->buffer].gradient_of != logits->buffer || !same_view(d, logits))
                REFUSE("%s: %s is not the gradient of %s, row by row", site_of(c, node).text, name_of(c, d->buffer),
                       name_of(c, logits->buffer));
            TRY(answer(c, (int)i, (int)i, 0, d, false));
        }
    }
    for (size_t i = 0; i < c->nodes.count; i++) {
        const struct node *f = &c->nodes.item[i];
        if (f->useful && instruction_arrives(f->instruction) && !f->answered[0] &&
            tensor_flag(c, f->instruction->out[0].buffer, false))
            REFUSE("the gradient of %s is never sent to where %s has it from",
                   name_of(c, f->instruction->out[0].buffer), site_of(c, f).text);
        for (int k = 0; f->useful && k < f->instruction->inputs; k++)
            if (f->instruction->in[k].buffer != NONE && !f->answered[k] &&
                tensor_flag(c, f->instruction->in[k].buffer, false) &&
                passed_to(c, f->instruction->in[k].buffer) == NONE)
                REFUSE("the gradient of %s for %s is never computed", name_of(c, f->instruction->in[k].buffer),
                       site_of(c, f).text);
    }
    return TRIREME_OK;
}

static trireme_status check_route(const struct program *program, const struct op_table *table,
                                  const struct route *route, trireme_error *error) {
    struct gradient_check c = {.program = program, .table = table, .error = error};
    size_t n = program->buffers.count;
    c.tensor = mem_alloc(n * sizeof *c.tensor);
    collect(&c, route);
    find_uses(&c);
    trireme_status status = check_values(&c);
    if (status == TRIREME_OK)
        status = check_all(&c);
    for (size_t i = 0; i < n; i++)
        VEC_RELEASE(&c.tensor[i].parts);
    for (size_t i = 0; i < c.nodes.count; i++)
        free(c.nodes.item[i].instruction);
    free(c.tensor);
    VEC_RELEASE(&c.nodes);
    return status;
}

trireme_status verify_gradients(const struct program *program, const struct op_table *table, trireme_error *error) {
    struct routes routes;
    trireme_status status = routes_create(&routes, program, error);
    if (status == TRIREME_OK)
        status = check_parts(program, error);
    for (size_t i = 0; i < routes.count && status == TRIREME_OK; i++)
        status = check_route(program, table, &routes.item[i], error);
    routes_release(&routes);
    return status;
}
