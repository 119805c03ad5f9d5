// Proves what surrounds the backward pass: the loss is the mean over all targets of the global batch; the norm counts
// every gradient once; every parameter is updated once, from its own complete gradient and states, by the factor of
// that norm; and buffers that others know by name hold what they are declared to.
#include "program/slices.h"
#include "program/verify.h"

struct found {
    const struct instruction *instruction;
    int template, index, invocation;
};

// What makes a buffer; instruction NULL: nothing does.
struct maker {
    const struct instruction *instruction;
    int out; // number of the output
};

struct update_check {
    const struct program *program;
    const struct op_table *table;
    VEC(struct found) role[ROLE_UPDATE + 1]; // instructions of the roles of interest, in the order they run
    VEC(struct found) targets;               // what makes losses of targets, in microbatch 0
    struct maker *maker;                     // of each buffer, what makes it first in microbatch 0
    int last_gradient;                       // last invocation that contributes to a parameter's gradient, or NONE
    VEC(int) declared;                       // inputs that are declared to be some operand
    struct slices slices;
    struct mentions mentions;
    int *reduced_from, *gathered_to; // find_wholes
    trireme_error *error;
};

static struct site site_of(const struct update_check *c, const struct found *f) {
    return verify_site(c->program, c->table, f->template, f->index,
                       c->program->schedule.item[f->invocation].microbatch);
}

static const char *name_of(const struct update_check *c, int buffer) {
    return buffer == NONE ? "nothing" : verify_buffer_name(c->program, buffer);
}

static int find_operand(const struct op_operand *row, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(row[i].name, name) == 0)
            return i;
    return NONE;
}

// The buffer that stands in the input called `name`, NONE when the op has none.
static int input(const struct update_check *c, const struct instruction *instruction, const char *name) {
    const struct op_info *info = &c->table->op[instruction->op];
    int i = find_operand(info->in, info->inputs, name);
    return i == NONE ? NONE : instruction->in[i].buffer;
}

static int output(const struct update_check *c, const struct instruction *instruction, const char *name) {
    const struct op_info *info = &c->table->op[instruction->op];
    int i = find_operand(info->out, info->outputs, name);
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

static void collect(struct update_check *c) {
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
            if (p->schedule.item[k].microbatch == 0 && input(c, instruction, "targets") != NONE &&
                (output(c, instruction, "nll") != NONE || instruction->op == OP_LOGITS_MERGE))
                VEC_PUSH(&c->targets, found);
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
static trireme_status check_declared(const struct update_check *c, const struct instruction *instruction,
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
            REFUSE("%s: takes %s as its %s, which is declared %s", site, name_of(c, operand->buffer), name,
                   *b->as ? b->as : "nothing");
        if (b->kind == KIND_INPUT && !*b->as && declared_input(c, name))
            REFUSE("%s: takes %s as its %s, which another input is declared", site, name_of(c, operand->buffer), name);
    }
    return TRIREME_OK;
}

static trireme_status check_all_declared(const struct update_check *c) {
    const struct program *p = c->program;
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            TRY(check_declared(c, &p->templates.item[t].instructions.item[i],
                               verify_site(p, c->table, (int)t, (int)i, NONE).text));
    return TRIREME_OK;
}

// ---- the loss

// The row of the microbatch, which has `rows` rows, that `operand` begins with: by its place in a buffer that holds
// them all, or by the place of what its rows were made from, row by row. NONE where that cannot be told.
static int64_t first_row(const struct update_check *c, const struct operand *operand, int64_t rows) {
    for (size_t depth = 0; depth < c->program->buffers.count; depth++) {
        int root = program_root(c->program, operand->buffer);
        int64_t width = operand->stride[0];
        if (buffer_count(&c->program->buffers.item[root]) == rows * width)
            return (program_root_offset(c->program, operand->buffer) + operand->offset) / width;
        const struct instruction *maker = c->maker[operand->buffer].instruction;
        if (!maker || operand->offset)
            return NONE;
        const struct op_info *info = &c->table->op[maker->op];
        char letter = info->out[c->maker[operand->buffer].out].dim[0];
        operand = NULL;
        for (int i = 0; i < info->inputs && !operand; i++)
            if (maker->in[i].buffer != NONE && info->in[i].dtype == 'P' && info->in[i].dim[0] == letter)
                operand = &maker->in[i];
        if (!operand)
            return NONE;
    }
    return NONE;
}

static const struct operand *input_operand(const struct update_check *c, const struct instruction *i,
                                           const char *name) {
    const struct op_info *info = &c->table->op[i->op];
    return &i->in[find_operand(info->in, info->inputs, name)];
}

static bool same_input(const struct update_check *c, const struct instruction *a, const struct instruction *b,
                       const char *name) {
    return operand_equal(input_operand(c, a, name), input_operand(c, b, name));
}

// The template's last instruction of the op that has `operand` as its output or input of that name; NULL: none.
static const struct instruction *find_in_template(const struct update_check *c, int template, enum op op, bool output,
                                                  const char *name, const struct operand *operand) {
    const struct instruction *found = NULL;
    const struct op_info *info = &c->table->op[op];
    int at = output ? find_operand(info->out, info->outputs, name) : find_operand(info->in, info->inputs, name);
    FOR_MENTIONS(&c->mentions, m, operand->buffer) {
        const struct instruction *i = m->instruction;
        if (i->op == op && m->template == template && operand_equal(output ? &i->out[at] : &i->in[at], operand))
            found = i;
    }
    return found;
}

// Where logits are split by vocabulary: what makes the loss of some rows, their sums, maxima and gradients belong
// together. (That maxima and sums were exchanged is left to verify_placement.c.)
static bool split_agrees(const struct update_check *c, const struct found *nll, int64_t begin, int64_t rows) {
    struct head head;
    if (nll->instruction->op == OP_LOGITS_MERGE)
        return !verify_head(c->program, &c->mentions, nll->instruction, &head) &&
               first_row(c, &head.exp->in[0], rows) == begin && (head.grad || c->role[ROLE_UPDATE].count == 0);
    const struct instruction *n = nll->instruction;
    const struct operand *summed = input_operand(c, n, "sum"), *largest = input_operand(c, n, "max");
    const struct instruction *sum = find_in_template(c, nll->template, OP_LOGITS_SUM, true, "sum", summed);
    const struct instruction *max = find_in_template(c, nll->template, OP_LOGITS_MAX, true, "max", largest);
    const struct instruction *grad = find_in_template(c, nll->template, OP_LOGITS_GRAD, false, "sum", summed);
    if (!sum || !max || !operand_equal(&sum->out[1], input_operand(c, n, "picked")) || !same_input(c, sum, n, "max") ||
        !same_input(c, sum, n, "targets") || !same_input(c, sum, max, "logits") || !same_input(c, sum, max, "first") ||
        sum->attribute[0].i != max->attribute[0].i || first_row(c, input_operand(c, sum, "logits"), rows) != begin)
        return false;
    if (!grad)
        return c->role[ROLE_UPDATE].count == 0;
    return same_input(c, grad, sum, "targets") && same_input(c, grad, sum, "max") &&
           same_input(c, grad, sum, "first") && same_input(c, grad, sum, "logits") &&
           grad->attribute[0].i == sum->attribute[0].i;
}

// Rows of targets that loss instructions see, and rows of their results, must tile the microbatch. `nll`: NONE where
// this rank only has a part of the vocabulary for the loss of another, and so no results.
static trireme_status check_rows(struct update_check *c, int targets, int nll) {
    trireme_error *error = c->error;
    int64_t rows = buffer_count(&c->program->buffers.item[targets]);
    struct written seen = {0}, made = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < c->targets.count && status == TRIREME_OK; i++) {
        const struct found *f = &c->targets.item[i];
        const struct op_info *info = &c->table->op[f->instruction->op];
        struct footprint in, out;
        const struct operand *t = &f->instruction->in[find_operand(info->in, info->inputs, "targets")];
        const struct operand *n = &f->instruction->out[find_operand(info->out, info->outputs, "nll")];
        int l = find_operand(info->in, info->inputs, "logits");
        footprint_of(c->program, t, &in);
        out = in;
        if (n->buffer != NONE)
            footprint_of(c->program, n, &out);
        if (t->buffer != targets || n->buffer != nll || !footprint_equal(&in, &out))
            status = error_set(error, TRIREME_ERROR_PROGRAM,
                               "%s: its targets are %s and its result is %s, expected the same rows of %s and %s",
                               site_of(c, f).text, name_of(c, t->buffer), name_of(c, n->buffer), name_of(c, targets),
                               name_of(c, nll));
        else if (l == NONE && !split_agrees(c, f, in.begin, rows))
            status = error_set(error, TRIREME_ERROR_PROGRAM,
                               "%s: maximum and sums are not those of the logits of its rows of %s", site_of(c, f).text,
                               name_of(c, targets));
        else if (l != NONE && first_row(c, &f->instruction->in[l], rows) != in.begin)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: its rows of %s are not those of its logits",
                               site_of(c, f).text, name_of(c, targets));
        else if (written_unread(&seen, &in))
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: counts rows of %s a second time", site_of(c, f).text,
                               name_of(c, targets));
        written_add(&seen, in);
        written_add(&made, out);
    }
    struct footprint all = {0, 0, 1, 0, rows};
    if (status == TRIREME_OK && (!written_covers(&seen, &all) || !written_covers(&made, &all)))
        status = error_set(error, TRIREME_ERROR_PROGRAM, "the loss leaves out rows of %s", name_of(c, targets));
    written_release(&seen);
    written_release(&made);
    return status;
}

// Whether the loss is made on another stage, and this one has a part of the vocabulary for it.
static bool is_part_of_loss(const struct update_check *c) {
    FOR_INSTRUCTIONS(in, c->program)
        if (in->op == OP_BROADCAST && in->phase == PHASE_FORWARD && in->in[0].buffer == NONE)
            return true;
    return false;
}

static trireme_status check_loss(struct update_check *c) {
    trireme_error *error = c->error;
    bool part = c->role[ROLE_TOTAL].count == 0;
    for (size_t i = 0; i < c->targets.count; i++)
        part &= output(c, c->targets.item[i].instruction, "nll") == NONE;
    if (part && !is_part_of_loss(c))
        return TRIREME_OK;
    if (c->role[ROLE_COUNT].count != 1 || c->role[ROLE_SCALE].count != 1)
        REFUSE("the targets are counted %zu times and the mean's scale made %zu times, expected once",
               c->role[ROLE_COUNT].count, c->role[ROLE_SCALE].count);
    const struct found *count = &c->role[ROLE_COUNT].item[0], *scale = &c->role[ROLE_SCALE].item[0];
    int targets = input(c, count->instruction, "targets"), denominator = output(c, scale->instruction, "scale");
    const struct operand *counted = &count->instruction->in[0];
    struct operand all = c->program->buffers.item[targets].scope == SCOPE_MICROBATCH
                             ? operand_microbatches(c->program, targets)
                             : operand_whole(c->program, targets);
    if (c->program->schedule.item[count->invocation].microbatch != NONE || !operand_equal(counted, &all))
        REFUSE("%s: the denominator is not the number of targets of the whole batch", site_of(c, count).text);
    if (input(c, scale->instruction, "count") != output(c, count->instruction, "count"))
        REFUSE("%s: the denominator is %s, expected %s", site_of(c, scale).text,
               name_of(c, input(c, scale->instruction, "count")), name_of(c, output(c, count->instruction, "count")));
    for (size_t i = 0; i < c->role[ROLE_LOSS].count + c->role[ROLE_HEAD].count; i++) {
        const struct found *f = i < c->role[ROLE_LOSS].count ? &c->role[ROLE_LOSS].item[i]
                                                             : &c->role[ROLE_HEAD].item[i - c->role[ROLE_LOSS].count];
        if (input(c, f->instruction, "scale") != denominator)
            REFUSE("%s: wrong denominator: scales gradients by %s, expected %s", site_of(c, f).text,
                   name_of(c, input(c, f->instruction, "scale")), name_of(c, denominator));
    }
    if (part)
        return check_rows(c, targets, NONE);
    if ((int)c->role[ROLE_TOTAL].count != c->program->microbatches)
        REFUSE("the loss is summed %zu times, expected once in each of %d microbatches", c->role[ROLE_TOTAL].count,
               c->program->microbatches);
    int nll = input(c, c->role[ROLE_TOTAL].item[0].instruction, "nll");
    for (size_t i = 0; i < c->role[ROLE_TOTAL].count; i++) {
        const struct found *f = &c->role[ROLE_TOTAL].item[i];
        struct operand whole = operand_whole(c->program, nll);
        if (input(c, f->instruction, "scale") != denominator)
            REFUSE("%s: wrong denominator: scales the loss by %s, expected %s", site_of(c, f).text,
                   name_of(c, input(c, f->instruction, "scale")), name_of(c, denominator));
        if (!operand_equal(&f->instruction->in[0], &whole))
            REFUSE("%s: the loss leaves out rows of %s", site_of(c, f).text, name_of(c, nll));
        if (c->program->microbatches > 1 && f->instruction->accumulate != ACCUMULATE_AFTER_FIRST)
            REFUSE("%s: the loss does not add up over microbatches", site_of(c, f).text);
    }
    return check_rows(c, targets, nll);
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
static bool is_unit(const struct program *p, const struct operand *o) {
    const struct buffer *b = &p->buffers.item[o->buffer];
    int64_t ranks = mesh_group_size(&p->mesh, o->along);
    return b->parent == NONE && o->ndim == 1 && o->offset == 0 && o->dim[0] * ranks == buffer_count(b) &&
           (o->along == AXES_NONE || o->step == o->dim[0]);
}

static const struct instruction *find_forward(const struct program *p, enum op op) {
    FOR_INSTRUCTIONS(in, p)
        if (in->op == op && in->phase == PHASE_FORWARD)
            return in;
    return NULL;
}

// A tied embedding is on both ends of a pipeline; the rank that embeds counts it.
static bool counted_elsewhere(const struct program *p, int gradient) {
    return p->mesh.degree[AXIS_PP] > 1 && p->buffers.item[gradient].placement[AXIS_PP] == PLACE_REPLICATE &&
           !find_forward(p, OP_EMBED);
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
    const struct site name = site_of(c, f);
    const char *site = name.text;
    int which = 0;
    while (which < parts && part[which] != f->instruction->out[0].buffer)
        which++;
    if (p->buffers.item[g->buffer].kind != KIND_GRAD || p->buffers.item[g->buffer].scope != SCOPE_STATE ||
        !is_unit(p, g))
        REFUSE("%s: %s is not a whole buffer of gradients", site, name_of(c, g->buffer));
    if (counted[g->buffer])
        REFUSE("%s: the norm counts %s twice", site, name_of(c, g->buffer));
    if (which == parts || f->instruction->accumulate != (uses[which]++ == 0 ? ACCUMULATE_NO : ACCUMULATE_YES))
        REFUSE("%s: does not add to %s, of which the norm is made", site, name_of(c, part[0]));
    if (f->invocation <= c->last_gradient)
        REFUSE("%s: counts %s before the last microbatch is in", site, name_of(c, g->buffer));
    const struct found *reader = c->role[ROLE_NORM_SUM].count ? &c->role[ROLE_NORM_SUM].item[0] : clip;
    if (f->invocation > reader->invocation || (f->invocation == reader->invocation && f->index > reader->index))
        REFUSE("%s: counts %s after the norm is made", site, name_of(c, g->buffer));
    counted[g->buffer] = true;
    return TRIREME_OK;
}

static trireme_status check_norm(struct update_check *c, const struct found *clip) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    int part[OP_MAX_IN], uses[OP_MAX_IN] = {0}, parts = norm_parts(c, input(c, clip->instruction, "sum"), part);
    if (parts < 0)
        REFUSE("%s: %s is not the sum of squares", site_of(c, clip).text,
               name_of(c, input(c, clip->instruction, "sum")));
    bool *counted = mem_alloc(p->buffers.count * sizeof *counted);
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < c->role[ROLE_NORM].count && status == TRIREME_OK; i++)
        status = check_square(c, &c->role[ROLE_NORM].item[i], clip, part, parts, uses, counted);
    for (int i = 0; i < parts && status == TRIREME_OK; i++)
        if (uses[i] == 0)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "no squares are summed in %s", name_of(c, part[i]));
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

static bool is_written(const struct op_info *info, int input) {
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
    struct site name = site_of(c, update);
    const char *site = name.text;
    int parameter = u->in[0].buffer, gradient = u->in[2].buffer, root = program_root(p, parameter);
    int from = c->reduced_from[gradient], to = c->gathered_to[parameter];
    bool both = u->in[2].along == AXES_NONE || (u->in[0].along == u->in[2].along && u->in[0].step == u->in[2].step);
    if (p->buffers.item[parameter].kind != KIND_PARAM || p->buffers.item[gradient].kind != KIND_GRAD ||
        !is_unit(p, &u->in[0]) || !is_unit(p, &u->in[2]) || !both || from == NONE || to == NONE ||
        !is_gradient_of(c, from, to))
        REFUSE("%s: %s is not the gradient of %s", site, name_of(c, gradient), name_of(c, parameter));
    if (update->invocation <= c->last_gradient)
        REFUSE("%s: updates %s before the last microbatch is in", site, name_of(c, parameter));
    if (input(c, u, "factor") != output(c, clip->instruction, "factor"))
        REFUSE("%s: its clipping factor is %s, expected %s", site, name_of(c, input(c, u, "factor")),
               name_of(c, output(c, clip->instruction, "factor")));
    if (u->predicate != output(c, clip->instruction, "finite"))
        REFUSE("%s: is not skipped when the norm is not finite", site);
    int lr = input(c, u, "lr");
    if (p->buffers.item[lr].kind != KIND_INPUT)
        REFUSE("%s: its learning rate is %s, which is not an input", site, name_of(c, lr));
    for (int o = 0; o < info->outputs; o++)
        if (!operand_equal(&u->out[o], &u->in[info->inplace[o]]))
            REFUSE("%s: reads %s and writes %s, expected the same", site, name_of(c, u->in[info->inplace[o]].buffer),
                   name_of(c, u->out[o].buffer));
    for (int i = 0; i < info->inputs; i++) {
        int buffer = u->in[i].buffer;
        const char *operand = info->in[i].name;
        if (i == 0 || i == 2 || buffer == NONE || strcmp(operand, "lr") == 0 || strcmp(operand, "factor") == 0)
            continue;
        int of = p->buffers.item[program_root(p, buffer)].belongs_to;
        if (p->buffers.item[buffer].kind != KIND_OPTIM || (of != root && (of != NONE || is_written(info, i))))
            REFUSE("%s: its %s is %s, which is not a state of %s", site, operand, name_of(c, buffer),
                   name_of(c, parameter));
        updated[program_root(p, buffer)] = true;
    }
    if (updated[root])
        REFUSE("%s: %s belongs to another update", site, name_of(c, parameter));
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
        if (f->instruction->predicate != output(c, clip->instruction, "finite") ||
            f->instruction->out[0].buffer != counted || c->program->buffers.item[counted].kind != KIND_OPTIM)
            REFUSE("%s: does not count the updates that are done", site_of(c, f).text);
        updated[program_root(c->program, counted)] = true;
        for (size_t u = 0; u < c->role[ROLE_UPDATE].count; u++) {
            const struct found *update = &c->role[ROLE_UPDATE].item[u];
            int t = input(c, update->instruction, "t");
            if (t != NONE && (t != f->instruction->out[0].buffer || f->invocation > update->invocation ||
                              (f->invocation == update->invocation && f->index > update->index)))
                REFUSE("%s: reads %s as the count of updates, expected %s after it was raised", site_of(c, update).text,
                       name_of(c, t), name_of(c, f->instruction->out[0].buffer));
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
    int loss = input(c, clip->instruction, "loss");
    bool zero = !maker && strcmp(p->buffers.item[loss].as, "loss") == 0 && find_forward(p, OP_SEND);
    if (maker ? loss != output(c, maker, "loss") : !zero)
        REFUSE("%s: %s is not the loss of the step", site_of(c, clip).text,
               name_of(c, input(c, clip->instruction, "loss")));
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
    collect(&c);
    mentions_create(&c.mentions, program);
    find_declared_inputs(&c);
    trireme_status status = check_loss(&c);
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
