// Proves what follows the backward pass: the norm counts every gradient once; every parameter is updated once, from its
// own complete gradient and states, by the factor of that norm; and buffers that others know by name hold what they are
// declared to. The loss is for verify_loss.c.
#include "verify/verify_update.h"

struct site update_site(const struct update_check *c, const struct found *f) {
    return program_site(c->program, c->table, f->template, f->index,
                        c->program->schedule.item[f->invocation].microbatch);
}

const char *update_name(const struct update_check *c, int buffer) {
    return buffer == NONE ? "nothing" : program_buffer_name(c->program, buffer);
}

int update_operand(const struct op_operand *row, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(row[i].name, name) == 0)
            return i;
    return NONE;
}

int update_input(const struct update_check *c, const struct instruction *instruction, const char *name) {
    const struct op_info *info = &c->table->op[instruction->op];
    int i = update_operand(info->in, info->inputs, name);
    return i == NONE ? NONE : instruction->in[i].buffer;
}

int update_output(const struct update_check *c, const struct instruction *instruction, const char *name) {
    const struct op_info *info = &c->table->op[instruction->op];
    int i = update_operand(info->out, info->outputs, name);
    return i == NONE ? NONE : instruction->out[i].buffer;
}

// Whether it belongs to what surrounds the passes: it counts updates, or its op's role is none of forward, backward and
// communication.
static bool is_of_interest(const struct update_check *c, const struct instruction *instruction) {
    enum op_role role = c->table->op[instruction->op].role;
    return instruction->op == OP_INCREMENT ||
           (role != ROLE_FORWARD && role != ROLE_BACKWARD && role != ROLE_COMMUNICATION);
}

static void add_maker(struct update_check *c, const struct instruction *instruction) {
    for (int o = 0; o < instruction->outputs; o++) {
        int buffer = instruction->out[o].buffer;
        if (buffer != NONE && !c->maker[buffer].instruction)
            c->maker[buffer] = (struct maker){instruction, o};
    }
}

static void update_collect(struct update_check *c) {
    const struct program *p = c->program;
    c->last_gradient = NONE;
    c->maker = mem_alloc(p->buffers.count * sizeof *c->maker);
    for (size_t k = 0; k < p->schedule.count; k++) {
        int t = p->schedule.item[k].template;
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            const struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            struct found found = {instruction, t, (int)i, (int)k};
            if (is_of_interest(c, instruction))
                VEC_PUSH(&c->role[c->table->op[instruction->op].role], found);
            if (p->schedule.item[k].microbatch == 0 && update_input(c, instruction, "targets") != NONE &&
                (update_output(c, instruction, "nll") != NONE || instruction->op == OP_LOGITS_MERGE))
                VEC_PUSH(&c->targets, found);
            c->gradients += p->schedule.item[k].microbatch == 0 && c->table->op[instruction->op].role == ROLE_LOSS;
            if (p->schedule.item[k].microbatch == 0)
                add_maker(c, instruction);
            for (int o = 0; o < instruction->outputs && p->schedule.item[k].microbatch != NONE; o++)
                if (instruction->out[o].buffer != NONE && p->buffers.item[instruction->out[o].buffer].kind == KIND_GRAD)
                    c->last_gradient = (int)k;
        }
    }
}

// ---- what others know

static void find_declared_inputs(struct update_check *c) {
    for (size_t i = 0; i < c->program->buffers.count; i++)
        if (c->program->buffers.item[i].kind == KIND_INPUT && *c->program->buffers.item[i].as)
            VEC_PUSH(&c->declared, (int)i);
}

static bool declared_input(const struct update_check *c, const char *as) {
    for (size_t i = 0; i < c->declared.count; i++)
        if (strcmp(c->program->buffers.item[c->declared.item[i]].as, as) == 0)
            return true;
    return false;
}

// A declared buffer means something outside the program: to the host, to the next step, to a run that is resumed. An
// instruction that touches it must take it as that operand, or continue from it in place. All states of the optimizer
// must be declared.
static trireme_status update_check_declared(const struct update_check *c, const struct instruction *instruction,
                                            const char *site) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct op_info *info = &c->table->op[instruction->op];
    for (int k = 0; k < info->inputs + info->outputs; k++) {
        bool out = k >= info->inputs;
        const struct operand *operand = instruction_operand_at(instruction, k);
        if (operand->buffer == NONE)
            continue;
        const struct buffer *b = &p->buffers.item[program_root(p, operand->buffer)];
        const char *name = op_operand_at(info, k)->name;
        int from = out ? info->inplace[k - info->inputs] : NONE;
        bool continues = from != NONE && operand_equal(operand, &instruction->in[from]);
        // Communication in place, and the loss of a stage that makes none.
        continues |= info->role == ROLE_COMMUNICATION && info->inputs && info->outputs &&
                     operand_equal(&instruction->in[0], &instruction->out[0]);
        continues |= info->role == ROLE_ZERO && strcmp(b->as, "loss") == 0;
        if ((*b->as || b->kind == KIND_OPTIM) && !continues && strcmp(b->as, name) != 0)
            REFUSE("%s: takes %s as its %s, which is declared %s", site, update_name(c, operand->buffer), name,
                   *b->as ? b->as : "nothing");
        if (b->kind == KIND_INPUT && !*b->as && declared_input(c, name))
            REFUSE("%s: takes %s as its %s, which another input is declared", site, update_name(c, operand->buffer),
                   name);
    }
    return TRIREME_OK;
}

static trireme_status check_all_declared(const struct update_check *c) {
    const struct program *p = c->program;
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            TRY(update_check_declared(c, &p->templates.item[t].instructions.item[i],
                                      program_site(p, c->table, (int)t, (int)i, NONE).text));
    return TRIREME_OK;
}

// ---- the update

// Whether flat buffer `gradient` is, slice by slice, the gradient of flat buffer `parameter`.
static bool is_gradient_of(const struct update_check *c, int gradient, int parameter) {
    const struct program *p = c->program;
    if (p->buffers.item[gradient].gradient_of == parameter)
        return true;
    int slices = 0, matched = 0;
    FOR_SLICES(&c->slices, s, parameter)
        slices++;
    FOR_SLICES(&c->slices, s, gradient) {
        int of = p->buffers.item[s].gradient_of;
        if (of == NONE || p->buffers.item[of].parent != parameter ||
            p->buffers.item[of].parent_offset != p->buffers.item[s].parent_offset)
            return false;
        matched++;
    }
    return slices > 0 && slices == matched;
}

// Whether the operand is a whole root buffer, or the rank's own part of one.
static bool update_is_unit(const struct program *p, const struct operand *o) {
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
        if (in->op == OP_SEND && p->buffers.item[in->in[0].buffer].gradient_of == NONE)
            return true;
    return false;
}

// A tied embedding is on both ends of a pipeline; the rank that embeds counts it.
static bool counted_elsewhere(const struct program *p, int gradient) {
    return p->mesh.degree[AXIS_PP] > 1 && p->buffers.item[gradient].placement[AXIS_PP] == PLACE_REPLICATE &&
           !has_op(p, OP_EMBED_DW);
}

// Lists the scalars that the norm is made of: `sum`, or those that norm_sum adds up to it. Returns how many they are,
// -1 where they do not add up to it.
static int norm_parts(const struct update_check *c, int sum, int part[OP_MAX_IN]) {
    part[0] = sum;
    if (c->role[ROLE_NORM_SUM].count == 0)
        return 1;
    const struct instruction *add = c->role[ROLE_NORM_SUM].item[0].instruction;
    int parts = 0;
    for (int i = 0; i < add->inputs; i++)
        if (add->in[i].buffer != NONE) {
            for (int k = 0; k < parts; k++)
                if (part[k] == add->in[i].buffer)
                    return -1;
            part[parts++] = add->in[i].buffer;
        }
    return c->role[ROLE_NORM_SUM].count == 1 && add->out[0].buffer == sum ? parts : -1;
}

static trireme_status check_square(struct update_check *c, const struct found *f, const struct found *clip,
                                   const int *part, int parts, int *uses, bool *counted) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct operand *g = &f->instruction->in[0];
    const struct site name = update_site(c, f);
    const char *site = name.text;
    int which = 0;
    while (which < parts && part[which] != f->instruction->out[0].buffer)
        which++;
    if (p->buffers.item[g->buffer].kind != KIND_GRAD || p->buffers.item[g->buffer].scope != SCOPE_STATE ||
        !update_is_unit(p, g))
        REFUSE("%s: %s is not a whole buffer of gradients", site, update_name(c, g->buffer));
    if (counted[g->buffer])
        REFUSE("%s: the norm counts %s twice", site, update_name(c, g->buffer));
    if (which == parts || f->instruction->accumulate != (uses[which]++ == 0 ? ACCUMULATE_NO : ACCUMULATE_YES))
        REFUSE("%s: does not add to %s, of which the norm is made", site, update_name(c, part[0]));
    if (f->invocation <= c->last_gradient)
        REFUSE("%s: counts %s before the last microbatch is in", site, update_name(c, g->buffer));
    const struct found *reader = c->role[ROLE_NORM_SUM].count ? &c->role[ROLE_NORM_SUM].item[0] : clip;
    if (f->invocation > reader->invocation || (f->invocation == reader->invocation && f->index > reader->index))
        REFUSE("%s: counts %s after the norm is made", site, update_name(c, g->buffer));
    counted[g->buffer] = true;
    return TRIREME_OK;
}

static trireme_status check_norm(struct update_check *c, const struct found *clip) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    int part[OP_MAX_IN], uses[OP_MAX_IN] = {0}, parts = norm_parts(c, update_input(c, clip->instruction, "sum"), part);
    if (parts < 0)
        REFUSE("%s: %s is not the sum of squares", update_site(c, clip).text,
               update_name(c, update_input(c, clip->instruction, "sum")));
    bool *counted = mem_alloc(p->buffers.count * sizeof *counted);
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < c->role[ROLE_NORM].count && status == TRIREME_OK; i++)
        status = check_square(c, &c->role[ROLE_NORM].item[i], clip, part, parts, uses, counted);
    for (int i = 0; i < parts && status == TRIREME_OK; i++)
        if (uses[i] == 0)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "no squares are summed in %s", update_name(c, part[i]));
    for (size_t i = 0; i < p->buffers.count && status == TRIREME_OK; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->kind == KIND_GRAD && b->parent == NONE && b->scope == SCOPE_STATE &&
            counted[i] == counted_elsewhere(p, (int)i))
            status = error_set(
                error, TRIREME_ERROR_PROGRAM,
                counted[i] ? "the norm counts %s, which the first stage counts" : "the norm leaves out %s", b->name);
    }
    free(counted);
    return status;
}

// [buffers], which the caller frees. Where the rank keeps part of a unit: the whole gradient that a buffer is reduced
// from, or the whole parameters that it is gathered to, NONE where there are several; else the buffer itself.
static int *find_wholes(const struct program *p, enum op op) {
    int *found = mem_alloc(p->buffers.count * sizeof *found);
    for (size_t i = 0; i < p->buffers.count; i++)
        found[i] = (int)i;
    FOR_INSTRUCTIONS(in, p) {
        if (in->op != op)
            continue;
        int part = op == OP_ALL_GATHER ? in->in[0].buffer : in->out[0].buffer;
        int whole = op == OP_ALL_GATHER ? in->out[0].buffer : in->in[0].buffer;
        if (whole == part)
            continue;
        if (p->buffers.item[whole].recomputes != NONE)
            whole = p->buffers.item[whole].recomputes;
        found[part] = found[part] == part || found[part] == whole ? whole : NONE;
    }
    return found;
}

static bool update_is_written(const struct op_info *info, int input) {
    for (int o = 0; o < info->outputs; o++)
        if (info->inplace[o] == input)
            return true;
    return false;
}

// What an update reads: a parameter that no other updates, its gradient, its own states, and the step's scalars.
static trireme_status check_update(struct update_check *c, const struct found *update, const struct found *clip,
                                   bool *updated) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *u = update->instruction;
    const struct op_info *info = &c->table->op[u->op];
    struct site name = update_site(c, update);
    const char *site = name.text;
    int parameter = u->in[0].buffer, gradient = u->in[2].buffer, root = program_root(p, parameter);
    int from = c->reduced_from[gradient], to = c->gathered_to[parameter];
    bool both = u->in[2].along == AXES_NONE || (u->in[0].along == u->in[2].along && u->in[0].step == u->in[2].step);
    if (p->buffers.item[parameter].kind != KIND_PARAM || p->buffers.item[gradient].kind != KIND_GRAD ||
        !update_is_unit(p, &u->in[0]) || !update_is_unit(p, &u->in[2]) || !both || from == NONE || to == NONE ||
        !is_gradient_of(c, from, to))
        REFUSE("%s: %s is not the gradient of %s", site, update_name(c, gradient), update_name(c, parameter));
    if (update->invocation <= c->last_gradient)
        REFUSE("%s: updates %s before the last microbatch is in", site, update_name(c, parameter));
    if (update_input(c, u, "factor") != update_output(c, clip->instruction, "factor"))
        REFUSE("%s: its clipping factor is %s, expected %s", site, update_name(c, update_input(c, u, "factor")),
               update_name(c, update_output(c, clip->instruction, "factor")));
    if (u->predicate != update_output(c, clip->instruction, "finite"))
        REFUSE("%s: is not skipped when the norm is not finite", site);
    int lr = update_input(c, u, "lr");
    if (p->buffers.item[lr].kind != KIND_INPUT)
        REFUSE("%s: its learning rate is %s, which is not an input", site, update_name(c, lr));
    for (int o = 0; o < info->outputs; o++)
        if (!operand_equal(&u->out[o], &u->in[info->inplace[o]]))
            REFUSE("%s: reads %s and writes %s, expected the same", site,
                   update_name(c, u->in[info->inplace[o]].buffer), update_name(c, u->out[o].buffer));
    for (int i = 0; i < info->inputs; i++) {
        int buffer = u->in[i].buffer;
        const char *operand = info->in[i].name;
        if (i == 0 || i == 2 || buffer == NONE || strcmp(operand, "lr") == 0 || strcmp(operand, "factor") == 0)
            continue;
        int of = p->buffers.item[program_root(p, buffer)].belongs_to;
        if (p->buffers.item[buffer].kind != KIND_OPTIM || (of != root && (of != NONE || update_is_written(info, i))))
            REFUSE("%s: its %s is %s, which is not a state of %s", site, operand, update_name(c, buffer),
                   update_name(c, parameter));
        updated[program_root(p, buffer)] = true;
    }
    if (updated[root])
        REFUSE("%s: %s belongs to another update", site, update_name(c, parameter));
    updated[root] = true;
    return TRIREME_OK;
}

// The count of updates that some optimizers read goes up once, before them, and only when they run.
static trireme_status check_increment(struct update_check *c, const struct found *clip, bool *updated) {
    trireme_error *error = c->error;
    int increments = 0;
    for (size_t i = 0; i < c->role[ROLE_FORWARD].count; i++) {
        const struct found *f = &c->role[ROLE_FORWARD].item[i];
        if (f->instruction->op != OP_INCREMENT)
            continue;
        increments++;
        int counted = f->instruction->in[0].buffer;
        if (f->instruction->predicate != update_output(c, clip->instruction, "finite") ||
            f->instruction->out[0].buffer != counted || c->program->buffers.item[counted].kind != KIND_OPTIM)
            REFUSE("%s: does not count the updates that are done", update_site(c, f).text);
        updated[program_root(c->program, counted)] = true;
        for (size_t u = 0; u < c->role[ROLE_UPDATE].count; u++) {
            const struct found *update = &c->role[ROLE_UPDATE].item[u];
            int t = update_input(c, update->instruction, "t");
            if (t != NONE && (t != f->instruction->out[0].buffer || f->invocation > update->invocation ||
                              (f->invocation == update->invocation && f->index > update->index)))
                REFUSE("%s: reads %s as the count of updates, expected %s after it was raised",
                       update_site(c, update).text, update_name(c, t), update_name(c, f->instruction->out[0].buffer));
        }
    }
    if (increments != 1)
        REFUSE("the count of updates is raised %d times in a step, expected once", increments);
    return TRIREME_OK;
}

static trireme_status check_updates(struct update_check *c) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    if (c->last_gradient == NONE && c->role[ROLE_UPDATE].count == 0)
        return TRIREME_OK;
    if (c->role[ROLE_CLIP].count != 1)
        REFUSE("the norm of the gradients is made %zu times in a step, expected once", c->role[ROLE_CLIP].count);
    const struct found *clip = &c->role[ROLE_CLIP].item[0];
    // A stage of a pipeline that has no loss adds zero to it.
    const struct instruction *maker = c->role[ROLE_TOTAL].count ? c->role[ROLE_TOTAL].item[0].instruction : NULL;
    int loss = update_input(c, clip->instruction, "loss");
    bool zero = !maker && strcmp(p->buffers.item[loss].as, "loss") == 0 && sends_forward(p);
    if (maker ? loss != update_output(c, maker, "loss") : !zero)
        REFUSE("%s: %s is not the loss of the step", update_site(c, clip).text,
               update_name(c, update_input(c, clip->instruction, "loss")));
    TRY(check_norm(c, clip));
    slices_create(&c->slices, p);
    c->reduced_from = find_wholes(p, OP_REDUCE_SCATTER);
    c->gathered_to = find_wholes(p, OP_ALL_GATHER);
    bool *updated = mem_alloc(p->buffers.count * sizeof *updated);
    trireme_status status = check_increment(c, clip, updated);
    for (size_t i = 0; i < c->role[ROLE_UPDATE].count && status == TRIREME_OK; i++)
        status = check_update(c, &c->role[ROLE_UPDATE].item[i], clip, updated);
    for (size_t i = 0; i < p->buffers.count && status == TRIREME_OK; i++) {
        int of = p->buffers.item[i].gradient_of;
        bool kept = of != NONE && p->buffers.item[of].scope == SCOPE_STATE;
        if (kept && p->buffers.item[of].kind == KIND_PARAM && !updated[program_root(p, of)])
            status = error_set(error, TRIREME_ERROR_PROGRAM, "parameter %s is never updated", p->buffers.item[of].name);
        else if (p->buffers.item[i].kind == KIND_OPTIM && !updated[program_root(p, (int)i)])
            status = error_set(error, TRIREME_ERROR_PROGRAM, "no update uses %s", p->buffers.item[i].name);
    }
    free(updated);
    return status;
}

trireme_status verify_update(const struct program *program, const struct op_table *table, trireme_error *error) {
    struct update_check c = {.program = program, .table = table, .error = error};
    update_collect(&c);
    mentions_create(&c.mentions, program);
    find_declared_inputs(&c);
    trireme_status status = verify_loss(&c);
    if (status == TRIREME_OK)
        status = check_all_declared(&c);
    if (status == TRIREME_OK)
        status = check_updates(&c);
    for (size_t i = 0; i < ARRAY_LENGTH(c.role); i++)
        VEC_RELEASE(&c.role[i]);
    VEC_RELEASE(&c.targets);
    VEC_RELEASE(&c.declared);
    slices_release(&c.slices);
    mentions_release(&c.mentions);
    free(c.maker);
    free(c.reduced_from);
    free(c.gathered_to);
    return status;
}
