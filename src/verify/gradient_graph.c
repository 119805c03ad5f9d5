#include "verify/gradient_graph.h"

static bool graph_recomputes(const struct gradient_graph *g, const struct instruction *instruction) {
    for (int i = 0; i < instruction->outputs; i++)
        if (instruction->out[i].buffer != NONE &&
            g->program->buffers.item[instruction->out[i].buffer].recomputes != NONE)
            return true;
    return false;
}

// ---- nodes

static int first_operand(const struct instruction *instruction) {
    bool has_output = instruction->outputs && instruction->out[0].buffer != NONE;
    return has_output ? instruction->out[0].buffer : instruction->in[0].buffer;
}

// Which pass an instruction belongs to.
static void graph_classify(const struct gradient_graph *g, struct node *node) {
    const struct instruction *i = node->instruction;
    enum op_role role = g->table->op[i->op].role;
    bool forward = role == ROLE_FORWARD || role == ROLE_LOSS;
    node->backward = role == ROLE_BACKWARD || role == ROLE_SUM;
    if (role == ROLE_COMMUNICATION) {
        const struct buffer *b = &g->program->buffers.item[first_operand(i)];
        bool activation = b->kind == KIND_ACT;
        int of = i->outputs ? b->gradient_of : NONE;
        for (int k = 0; k < i->inputs && of == NONE; k++)
            of = i->in[k].buffer == NONE ? NONE : g->program->buffers.item[i->in[k].buffer].gradient_of;
        node->backward = activation && of != NONE;
        forward = activation && of == NONE;
    }
    node->again = forward && graph_recomputes(g, i);
    node->forward = forward && !node->again;
}

// Whether it gathers, from all data-parallel ranks, the rows that each has of a buffer, for the gradients of weights.
// (In the forward pass and where that is repeated, a gather has a gradient of its own.)
static bool gathers_rows(const struct program *p, const struct instruction *i) {
    if (op_traffic[i->op].takes != HOLDING_PART || (i->group & ~AXES_DATA) || i->phase != PHASE_WEIGHT)
        return false;
    const struct buffer *own = &p->buffers.item[i->in[0].buffer], *all = &p->buffers.item[i->out[0].buffer];
    return (own->kind == KIND_ACT || own->kind == KIND_INPUT) && all->kind == KIND_ACT && all->gradient_of == NONE &&
           all->recomputes == NONE && own->ndim == all->ndim &&
           memcmp(own->dim + 1, all->dim + 1, (size_t)(own->ndim - 1) * sizeof own->dim[0]) == 0 &&
           operand_count(&i->in[0]) == buffer_count(own) && operand_count(&i->out[0]) == buffer_count(all);
}

// A sum over the rows of all ranks is the sum over ranks of the sums over each one's rows. Here it therefore stands for
// the sum over this rank's rows; that it is not reduced once more is left to verify_placement.c.
static void use_own_rows(const struct gradient_graph *g, struct instruction *i) {
    for (int k = 0; k < i->inputs; k++) {
        const int buffer = i->in[k].buffer;
        const struct operand all = buffer == NONE ? operand_none() : operand_whole(g->program, buffer);
        if (buffer != NONE && g->tensor[buffer].rows_of != NONE && operand_equal(&i->in[k], &all))
            i->in[k] = operand_whole(g->program, g->tensor[buffer].rows_of);
    }
}

// A copy that has its own operands, in the same block of memory.
static struct instruction *copy_of(const struct instruction *instruction) {
    size_t operands = (size_t)(instruction->inputs + instruction->outputs);
    struct instruction *copy = mem_alloc(sizeof *copy + operands * sizeof *copy->in);
    *copy = *instruction;
    copy->in = (struct operand *)(copy + 1);
    copy->out = copy->in + copy->inputs;
    for (size_t k = 0; k < operands; k++)
        copy->in[k] = *instruction_operand_at(instruction, (int)k);
    return copy;
}

// Whether it makes in last invocations what the node before it makes in all others.
static bool is_twin(const struct gradient_graph *g, const struct instruction *in) {
    const struct instruction *other = g->nodes.count ? g->nodes.item[g->nodes.count - 1].instruction : NULL;
    if (in->when != WHEN_LAST || !other || other->when != WHEN_NOT_LAST || other->op != in->op ||
        other->predicate != in->predicate || other->passes != in->passes ||
        memcmp(other->attribute, in->attribute, sizeof in->attribute) != 0)
        return false;
    for (int k = 0; k < in->inputs + in->outputs; k++)
        if (!operand_equal(instruction_operand_at(in, k), instruction_operand_at(other, k)))
            return false;
    return true;
}

static void graph_collect(struct gradient_graph *g, const struct route *route) {
    const struct program *p = g->program;
    for (size_t i = 0; i < p->buffers.count; i++)
        g->tensor[i].rows_of = NONE;
    for (size_t k = 0; k < route->templates.count; k++) {
        int t = route->templates.item[k];
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            const struct instruction *listed = &p->templates.item[t].instructions.item[i];
            const struct set *set = sets_find(g->sets, listed);
            if (instruction_completes(listed) || (set && !set_begins(set, listed)))
                continue;
            struct instruction *instruction = copy_of(set ? &set->row : listed);
            struct node node = {.instruction = instruction, .template = t, .index = (int)i, .repeats = NONE};
            node.gathers = gathers_rows(p, instruction);
            for (int n = 0; n < instruction->outputs; n++)
                if (instruction->out[n].buffer != NONE)
                    g->tensor[instruction->out[n].buffer].rows_of = NONE; // something else from here on
            if (node.gathers)
                g->tensor[instruction->out[0].buffer].rows_of = instruction->in[0].buffer;
            else
                graph_classify(g, &node);
            if (node.backward)
                use_own_rows(g, instruction);
            if (is_twin(g, instruction)) {
                g->nodes.item[g->nodes.count - 1].paired = true;
                free(instruction);
                continue;
            }
            for (int n = 0; node.forward && n < instruction->inputs; n++) {
                const int buffer = instruction->in[n].buffer = program_original(g->program, instruction->in[n].buffer);
                if (buffer != NONE)
                    g->tensor[buffer].rows_of = NONE; // the forward pass works on all rows itself
            }
            VEC_PUSH(&g->nodes, node);
        }
    }
}

// ---- tensors

bool graph_is_wanted(const struct gradient_graph *g, int buffer) {
    FOR_SELF_AND_PARENTS(g, b, buffer)
        if (g->tensor[b].wanted)
            return true;
    return false;
}

bool graph_is_whole(const struct gradient_graph *g, const struct operand *operand) {
    return operand_count(operand) == buffer_count(&g->program->buffers.item[operand->buffer]);
}

bool graph_depends(const struct gradient_graph *g, int buffer) {
    FOR_SELF_AND_PARENTS(g, b, buffer)
        if (g->tensor[b].depends || g->tensor[b].wanted)
            return true;
    FOR_SLICES(&g->slices, s, buffer)
        if (g->tensor[s].depends || g->tensor[s].wanted)
            return true;
    return false;
}

// Whether the loss depends on it, or on some of it.
static bool is_useful(const struct gradient_graph *g, int buffer) {
    FOR_SELF_AND_PARENTS(g, b, buffer)
        if (g->tensor[b].useful)
            return true;
    FOR_SLICES(&g->slices, s, buffer)
        if (g->tensor[s].useful)
            return true;
    return false;
}

bool graph_is_use(const struct gradient_graph *g, const struct node *node, int input) {
    return g->table->op[node->instruction->op].role != ROLE_LOSS || input == 0;
}

static void count_use(struct gradient_graph *g, int use, int input) {
    const struct instruction *f = g->nodes.item[use].instruction;
    struct tensor_state *t = &g->tensor[f->in[input].buffer];
    t->uses++;
    if (g->table->op[f->op].identity[input] && graph_is_whole(g, &f->in[input]) && f->out[0].buffer != NONE &&
        graph_is_whole(g, &f->out[0]))
        t->identity_use = use;
}

// Marks what depends on parameters, from these on.
static void find_wanted(struct gradient_graph *g) {
    const struct program *p = g->program;
    bool trains = false;
    for (size_t i = 0; i < p->buffers.count; i++) {
        int of = p->buffers.item[i].gradient_of;
        if (of != NONE && p->buffers.item[of].kind == KIND_PARAM)
            trains = g->tensor[of].wanted = true;
    }
    for (size_t i = 0; i < g->nodes.count; i++) {
        const struct instruction *f = g->nodes.item[i].instruction;
        bool wanted = trains && g->nodes.item[i].forward && instruction_arrives(f), depends = wanted;
        for (int k = 0; k < f->inputs; k++) {
            wanted |= g->nodes.item[i].forward && f->in[k].buffer != NONE && graph_is_wanted(g, f->in[k].buffer);
            depends |= f->in[k].buffer != NONE && graph_depends(g, f->in[k].buffer);
        }
        for (int k = 0; k < f->outputs; k++)
            if (f->out[k].buffer != NONE && dtype_is_real(p->buffers.item[f->out[k].buffer].dtype)) {
                FOR_SELF_AND_PARENTS(g, b, f->out[k].buffer)
                    g->tensor[b].wanted |= wanted;
                g->tensor[f->out[k].buffer].depends |= depends;
            }
    }
}

// Marks what the loss depends on, from the end backwards.
static void find_useful(struct gradient_graph *g) {
    for (size_t i = g->nodes.count; i-- > 0;) {
        struct node *f = &g->nodes.item[i];
        if (!f->forward)
            continue;
        f->useful = g->table->op[f->instruction->op].role == ROLE_LOSS || instruction_leaves(f->instruction);
        for (int k = 0; k < f->instruction->outputs && !f->useful; k++)
            f->useful = f->instruction->out[k].buffer != NONE && is_useful(g, f->instruction->out[k].buffer);
        for (int k = 0; f->useful && k < f->instruction->inputs; k++)
            if (f->instruction->in[k].buffer != NONE)
                g->tensor[f->instruction->in[k].buffer].useful = true;
    }
}

static void count_uses(struct gradient_graph *g) {
    for (size_t i = 0; i < g->program->buffers.count; i++)
        g->tensor[i].identity_use = NONE;
    for (size_t i = 0; i < g->nodes.count; i++)
        for (int k = 0; g->nodes.item[i].useful && k < g->nodes.item[i].instruction->inputs; k++) {
            int buffer = g->nodes.item[i].instruction->in[k].buffer;
            if (buffer != NONE && graph_is_use(g, &g->nodes.item[i], k) && graph_is_wanted(g, buffer))
                count_use(g, (int)i, k);
        }
    for (size_t i = 0; i < g->program->buffers.count; i++)
        for (int parent = g->program->buffers.item[i].parent; parent != NONE;
             parent = g->program->buffers.item[parent].parent) {
            g->tensor[i].in_parts |= g->tensor[parent].uses > 0;
            g->tensor[parent].in_parts |= g->tensor[i].uses > 0;
        }
}

bool graph_is_used(const struct gradient_graph *g, int buffer) {
    return g->tensor[buffer].uses > 0 || g->tensor[buffer].in_parts;
}

int graph_passed_to(const struct gradient_graph *g, int buffer) {
    const struct tensor_state *t = &g->tensor[buffer];
    // A parameter's gradient is in a buffer of its own, which the update reads.
    bool passes =
        t->uses == 1 && t->identity_use != NONE && !t->in_parts && g->program->buffers.item[buffer].kind != KIND_PARAM;
    int sum = passes ? g->nodes.item[t->identity_use].instruction->out[0].buffer : NONE;
    return sum == buffer ? NONE : sum; // made in place
}

// Makes the lists of each tensor: what makes it, in which sums it is, and which tensors share its gradient.
static void list_uses(struct gradient_graph *g) {
    for (size_t i = 0; i < g->program->buffers.count; i++)
        g->tensor[i].first_maker = g->tensor[i].first_sum = g->tensor[i].first_passed = NONE;
    for (size_t i = g->nodes.count; i-- > 0;) {
        struct node *node = &g->nodes.item[i];
        const struct instruction *in = node->instruction;
        for (int k = in->outputs; k-- > 0;) {
            if (in->out[k].buffer == NONE)
                continue;
            node->next_maker[k] = g->tensor[in->out[k].buffer].first_maker;
            g->tensor[in->out[k].buffer].first_maker = (int)i * OP_MAX_OUT + k;
        }
        for (int k = in->inputs; k-- > 0;) {
            if (in->in[k].buffer == NONE || !node->useful || !g->table->op[in->op].identity[k])
                continue;
            node->next_sum[k] = g->tensor[in->in[k].buffer].first_sum;
            g->tensor[in->in[k].buffer].first_sum = (int)i * OP_MAX_IN + k;
        }
    }
    for (size_t i = 0; i < g->program->buffers.count; i++) {
        int sum = graph_passed_to(g, (int)i);
        if (sum == NONE)
            continue;
        g->tensor[i].next_passed = g->tensor[sum].first_passed;
        g->tensor[sum].first_passed = (int)i;
    }
}

void gradient_graph_create(struct gradient_graph *g, const struct program *program, const struct op_table *table,
                           const struct sets *sets, const struct route *route) {
    *g = (struct gradient_graph){.program = program, .table = table, .sets = sets};
    g->tensor = mem_alloc(program->buffers.count * sizeof *g->tensor);
    slices_create(&g->slices, program);
    graph_collect(g, route);
    find_wanted(g);
    find_useful(g);
    count_uses(g);
    list_uses(g);
}

void gradient_graph_release(struct gradient_graph *g) {
    for (size_t i = 0; i < g->program->buffers.count; i++)
        written_release(&g->tensor[i].parts);
    for (size_t i = 0; i < g->nodes.count; i++)
        free(g->nodes.item[i].instruction);
    free(g->tensor);
    slices_release(&g->slices);
    VEC_RELEASE(&g->nodes);
}
