// Lists the instructions that surround the passes, for the proofs of the loss (verify_loss.c), of the optimizer
// (verify_optimizer.c) and of outer steps (verify_outer.c), and proves that buffers that others know by name hold
// what they are declared to.
#include "verify/verify_update.h"

struct site update_site(const struct update_check *c, const struct found *f) {
    return program_site(c->program, c->table, f->template, f->index,
                        c->program->schedule.item[f->invocation].microbatch);
}

const char *update_name(const struct update_check *c, int buffer) {
    return buffer == NONE ? "nothing" : program_buffer_name(c->program, buffer);
}

int update_input(const struct update_check *c, const struct instruction *instruction, enum op_meaning meaning) {
    const struct operand *operand = instruction_input(c->table, instruction, meaning);
    return operand ? operand->buffer : NONE;
}

int update_output(const struct update_check *c, const struct instruction *instruction, enum op_meaning meaning) {
    const struct operand *operand = instruction_output(c->table, instruction, meaning);
    return operand ? operand->buffer : NONE;
}

// Whether it belongs to what surrounds the passes: it counts updates, or its op's role is none of forward, backward,
// communication and transfer.
static bool is_of_interest(const struct update_check *c, const struct instruction *instruction) {
    enum op_role role = c->table->op[instruction->op].role;
    return instruction->op == OP_INCREMENT ||
           (role != ROLE_FORWARD && role != ROLE_BACKWARD && role != ROLE_COMMUNICATION && role != ROLE_TRANSFER);
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
            const struct set *set = sets_find(c->sets, instruction);
            for (int o = 0; o < instruction->outputs && p->schedule.item[k].microbatch != NONE; o++)
                if (instruction->out[o].buffer != NONE && p->buffers.item[instruction->out[o].buffer].kind == KIND_GRAD)
                    c->last_gradient = (int)k;
            if (set && !set_begins(set, instruction))
                continue;
            instruction = set ? &set->row : instruction;
            struct found found = {instruction, t, (int)i, (int)k};
            if (is_of_interest(c, instruction))
                VEC_PUSH(&c->role[c->table->op[instruction->op].role], found);
            if (p->schedule.item[k].microbatch == 0 && update_input(c, instruction, MEANING_TARGETS) != NONE &&
                (update_output(c, instruction, MEANING_NLL) != NONE ||
                 (set && update_input(c, instruction, MEANING_LOGITS) != NONE)))
                VEC_PUSH(&c->targets, found);
            if (p->schedule.item[k].microbatch == 0)
                add_maker(c, instruction);
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

// Whether it gathers what ranks were given to what is declared the same.
static bool gathers_declared(const struct update_check *c, const struct instruction *i) {
    const struct buffer *buffers = c->program->buffers.item;
    return i->op == OP_ALL_GATHER && buffers[i->in[0].buffer].kind == KIND_INPUT && *buffers[i->in[0].buffer].as &&
           strcmp(buffers[i->in[0].buffer].as, buffers[i->out[0].buffer].as) == 0;
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
        continues |= info->role == ROLE_TRANSFER; // to what is declared the same
        continues |= gathers_declared(c, instruction);
        continues |= instruction->op == OP_SEND && !(instruction->group & AXES_STAGE); // to what is not declared
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

trireme_status verify_update(const struct program *program, const struct op_table *table, const struct sets *sets,
                             trireme_error *error) {
    struct update_check c = {.program = program, .table = table, .sets = sets, .error = error};
    update_collect(&c);
    find_declared_inputs(&c);
    trireme_status status = verify_loss(&c);
    if (status == TRIREME_OK)
        status = check_all_declared(&c);
    if (status == TRIREME_OK)
        status = verify_optimizer(&c);
    if (status == TRIREME_OK)
        status = verify_outer(&c);
    for (size_t i = 0; i < ARRAY_LENGTH(c.role); i++)
        VEC_RELEASE(&c.role[i]);
    VEC_RELEASE(&c.targets);
    VEC_RELEASE(&c.declared);
    free(c.maker);
    return status;
}
