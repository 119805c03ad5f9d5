// Proves of the parts of an outer step that each parameter is taken, weighed and set once, as itself: its values lie in
// the entries that belong to it, element for element. That the weighed values and the weights are summed over the
// islands, once and over no other ranks, is proved by what ranks hold (verify_placement.c): only `weigh` makes terms of
// a sum of what is an island's own, and nothing but a reduction along that axis takes them.
#include "verify/verify_update.h"

struct average_check {
    const struct update_check *c;
    int *uses; // [buffers]: how many of these instructions read or write the root as their own
};

// The operand must be a state of the parameters, at the same place as they are.
static trireme_status check_belongs(struct average_check *a, const struct found *f, const struct operand *state,
                                    const char *name, const struct operand *parameter) {
    const struct update_check *c = a->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    if (state->buffer == NONE)
        return TRIREME_OK;
    const int root = program_root(p, state->buffer);
    if (p->buffers.item[root].kind != KIND_OPTIM ||
        p->buffers.item[root].belongs_to != program_root(p, parameter->buffer) ||
        !update_same_place(p, state, parameter))
        REFUSE("%s: its %s is %s, which is not a state of %s there", update_site(c, f).text, name,
               update_name(c, state->buffer), update_name(c, parameter->buffer));
    a->uses[root]++;
    return TRIREME_OK;
}

static trireme_status check_take(struct average_check *a, const struct found *f) {
    const struct instruction *i = f->instruction;
    const struct operand *parameter = &i->in[INPUT(TAKE, p)];
    a->uses[program_root(a->c->program, parameter->buffer)]++;
    TRY(check_belongs(a, f, &i->in[INPUT(TAKE, rem)], "rem", parameter));
    TRY(check_belongs(a, f, &i->out[OUTPUT(TAKE, value)], "value", parameter));
    return check_belongs(a, f, &i->out[OUTPUT(TAKE, taken)], "taken", parameter);
}

static trireme_status check_weigh(struct average_check *a, const struct found *f) {
    const struct update_check *c = a->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *i = f->instruction;
    const struct operand *value = &i->in[INPUT(WEIGH, value)], *weight = &i->in[INPUT(WEIGH, weight)];
    const struct operand whole = operand_whole(p, value->buffer);
    const int total = i->out[OUTPUT(WEIGH, total)].buffer;
    if (!operand_equal(value, &whole) || !operand_equal(value, &i->out[OUTPUT(WEIGH, value1)]))
        REFUSE("%s: does not weigh all of %s in its place", update_site(c, f).text, update_name(c, value->buffer));
    if (p->buffers.item[weight->buffer].kind != KIND_INPUT)
        REFUSE("%s: its weight is %s, which is not an input", update_site(c, f).text, update_name(c, weight->buffer));
    a->uses[program_root(p, value->buffer)]++;
    if (total != NONE)
        a->uses[program_root(p, total)]++;
    return TRIREME_OK;
}

static trireme_status check_settle(struct average_check *a, const struct found *f, int *total) {
    const struct update_check *c = a->c;
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const struct instruction *i = f->instruction;
    const struct operand *parameter = &i->in[INPUT(SETTLE, p)];
    const int of = i->in[INPUT(SETTLE, total)].buffer;
    if (!operand_equal(parameter, &i->out[OUTPUT(SETTLE, p1)]) ||
        !operand_equal(&i->in[INPUT(SETTLE, rem)], &i->out[OUTPUT(SETTLE, rem1)]))
        REFUSE("%s: reads %s and sets something else", update_site(c, f).text, update_name(c, parameter->buffer));
    if (p->buffers.item[of].kind != KIND_OPTIM || (*total != NONE && *total != of))
        REFUSE("%s: its total is %s, which is not that of all weights", update_site(c, f).text, update_name(c, of));
    *total = of;
    a->uses[program_root(p, parameter->buffer)]++;
    a->uses[of] = 1;
    TRY(check_belongs(a, f, &i->in[INPUT(SETTLE, rem)], "rem", parameter));
    TRY(check_belongs(a, f, &i->in[INPUT(SETTLE, value)], "value", parameter));
    return check_belongs(a, f, &i->in[INPUT(SETTLE, taken)], "taken", parameter);
}

// Each state that the program has is used once, and so are the parameters if any are.
static trireme_status check_once(const struct average_check *a, bool parameters) {
    const struct program *p = a->c->program;
    trireme_error *error = a->c->error;
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        const bool counts = b->scope == SCOPE_STATE && b->parent == NONE &&
                            (b->kind == KIND_OPTIM || (b->kind == KIND_PARAM && parameters));
        if (counts && a->uses[i] != 1)
            REFUSE("%s is part of the outer step %d times, expected once", b->name, a->uses[i]);
    }
    return TRIREME_OK;
}

static trireme_status check_all_parts(struct average_check *a) {
    const struct update_check *c = a->c;
    int total = NONE;
    for (size_t k = 0; k < c->role[ROLE_TAKE].count; k++)
        TRY(check_take(a, &c->role[ROLE_TAKE].item[k]));
    for (size_t k = 0; k < c->role[ROLE_WEIGH].count; k++)
        TRY(check_weigh(a, &c->role[ROLE_WEIGH].item[k]));
    for (size_t k = 0; k < c->role[ROLE_SETTLE].count; k++)
        TRY(check_settle(a, &c->role[ROLE_SETTLE].item[k], &total));
    return check_once(a, c->role[ROLE_TAKE].count + c->role[ROLE_SETTLE].count > 0);
}

trireme_status verify_average(const struct update_check *c) {
    if (c->role[ROLE_TAKE].count + c->role[ROLE_WEIGH].count + c->role[ROLE_SETTLE].count == 0)
        return TRIREME_OK;
    struct average_check a = {.c = c, .uses = mem_alloc(c->program->buffers.count * sizeof *a.uses)};
    trireme_status status = check_all_parts(&a);
    free(a.uses);
    return status;
}
