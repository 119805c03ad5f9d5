#include "verify/sets.h"

#include "program/footprint.h"

bool set_is_internal(const struct set *set, const struct program *p, size_t member, const struct operand *operand) {
    struct footprint where, made;
    const int root = program_root(p, operand->buffer);
    for (size_t k = 0; k < member; k++) {
        const struct instruction *i = set->members.item[k].instruction;
        for (int o = 0; o < i->outputs; o++)
            if (i->out[o].buffer != NONE && program_root(p, i->out[o].buffer) == root &&
                footprint_of(p, operand, &where) && footprint_of(p, &i->out[o], &made) &&
                footprint_overlap(&where, &made))
                return true;
    }
    return false;
}

static int row_operand(const struct op_operand *row, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(row[i].name, name) == 0)
            return i;
    return NONE;
}

int set_row_input(const struct set *set, const struct op_table *table, const struct instruction *member, int input) {
    const struct op_info *row = &table->op[set->row.op];
    return row_operand(row->in, row->inputs, table->op[member->op].in[input].name);
}

static struct site site_of_member(const struct set *set, const struct program *p, const struct op_table *table,
                                  size_t k) {
    return program_site(p, table, set->members.item[k].template, set->members.item[k].index, NONE);
}

// ---- members

static trireme_status check_member(const struct set *set, const struct program *p, const struct op_table *table,
                                   trireme_error *error) {
    const size_t k = set->members.count - 1;
    const struct instruction *i = set->members.item[k].instruction;
    const enum op_role role = table->op[i->op].role;
    const struct site site = site_of_member(set, p, table, k);
    if (i->stands_for != set->row.op)
        REFUSE("%s: belongs to set %d of %s, but stands for %s", site.text, set->number, table->op[set->row.op].name,
               table->op[i->stands_for].name);
    if (role != ROLE_AID && role != ROLE_LOSS && role != ROLE_FORWARD && role != ROLE_BACKWARD &&
        role != ROLE_COMMUNICATION && role != ROLE_ENCODE && role != ROLE_DECODE)
        REFUSE("%s: cannot be part of a set", site.text);
    const enum op_role made = table->op[set->row.op].role;
    const bool collective = set_communicates(set) && op_traffic[set->row.op].takes <= HOLDING_PART;
    if (made != ROLE_FORWARD && made != ROLE_BACKWARD && made != ROLE_LOSS && !collective)
        REFUSE("%s: no set can stand for %s", site.text, table->op[set->row.op].name);
    if (i->when != WHEN_ALWAYS || i->predicate != NONE || i->accumulate != ACCUMULATE_NO)
        REFUSE("%s: is part of a set, but may be skipped, or adds to what others have made", site.text);
    for (size_t m = 0; m < k && role == ROLE_COMMUNICATION; m++) { // messages may go over parts of one group
        const struct instruction *other = set->members.item[m].instruction;
        if (other->group && other->group != i->group && !(op_is_message(other->op) && op_is_message(i->op)))
            REFUSE("%s: goes over another group than the rest of its set", site.text);
    }
    return TRIREME_OK;
}

static trireme_status list_template(struct sets *sets, const struct program *p, const struct op_table *table, int t,
                                    trireme_error *error) {
    for (size_t n = 0; n < p->templates.item[t].instructions.count; n++) {
        const struct instruction *i = &p->templates.item[t].instructions.item[n];
        if (!i->set && table->op[i->op].role == ROLE_AID)
            REFUSE("%s: means something only in a set that stands for a row",
                   program_site(p, table, t, (int)n, NONE).text);
        if (!i->set)
            continue;
        if (sets->of[i->set] == NONE) {
            sets->of[i->set] = (int)sets->count;
            VEC_PUSH(sets, (struct set){.number = i->set, .row = {.op = i->stands_for}});
        }
        struct set *set = &sets->item[sets->of[i->set]];
        VEC_PUSH(&set->members, (struct set_member){i, t, (int)n});
        TRY(check_member(set, p, table, error));
        set->group |= i->group;
    }
    return TRIREME_OK;
}

// ---- operands

static trireme_status take_attributes(struct set *set, const struct program *p, const struct op_table *table,
                                      trireme_error *error) {
    const struct op_info *row = &table->op[set->row.op];
    bool given[OP_MAX_ATTRIBUTES] = {false};
    for (size_t k = 0; k < set->members.count; k++) {
        const struct instruction *i = set->members.item[k].instruction;
        const struct op_info *info = &table->op[i->op];
        for (int a = 0; a < info->attributes; a++) {
            const int of = op_attribute_find(row, info->attribute[a].name);
            if (of < 0)
                continue;
            if (given[of] && set->row.attribute[of].i != i->attribute[a].i)
                REFUSE("%s: its %s is not that of the rest of its set", site_of_member(set, p, table, k).text,
                       info->attribute[a].name);
            set->row.attribute[of] = i->attribute[a];
            given[of] = true;
        }
    }
    for (int a = 0; a < row->attributes && !set_communicates(set); a++)
        if (!given[a])
            REFUSE("%s: nothing in its set has the attribute %s of %s", site_of_member(set, p, table, 0).text,
                   row->attribute[a].name, row->name);
    return TRIREME_OK;
}

static trireme_status take_inputs(struct set *set, const struct program *p, const struct op_table *table,
                                  trireme_error *error) {
    const struct op_info *row = &table->op[set->row.op];
    const struct operand *first = NULL;
    for (size_t k = 0; k < set->members.count; k++) {
        const struct instruction *i = set->members.item[k].instruction;
        const struct op_info *info = &table->op[i->op];
        for (int n = 0; n < info->inputs; n++) {
            if (i->in[n].buffer == NONE || set_is_internal(set, p, k, &i->in[n]))
                continue;
            const int of = set_row_input(set, table, i, n);
            const bool begins = n == info->input_of[MEANING_FIRST];
            const struct operand *known = begins                                     ? first
                                          : of == NONE || set->in[of].buffer == NONE ? NULL
                                                                                     : &set->in[of];
            const char *name = program_buffer_name(p, i->in[n].buffer);
            if (of == NONE && !begins)
                REFUSE("%s: takes %s as its %s from outside of its set, but %s takes no such thing",
                       site_of_member(set, p, table, k).text, name, info->in[n].name, row->name);
            if (known && !operand_equal(known, &i->in[n]))
                REFUSE("%s: takes %s as its %s, but the rest of its set takes other elements or %s",
                       site_of_member(set, p, table, k).text, name, info->in[n].name,
                       program_buffer_name(p, known->buffer));
            if (begins)
                first = &i->in[n];
            if (of != NONE)
                set->in[of] = i->in[n];
        }
    }
    for (int n = 0; n < row->inputs; n++)
        if (set->in[n].buffer == NONE && !row->in[n].optional)
            REFUSE("%s: nothing in its set takes the %s of %s", site_of_member(set, p, table, 0).text, row->in[n].name,
                   row->name);
    return TRIREME_OK;
}

// Who reads each root buffer.
struct readers {
    int *first; // [buffers]: the first entry of its list, NONE
    VEC(struct reader {
        const struct instruction *instruction;
        const struct operand *operand;
        int next;
    });
};

static void readers_create(struct readers *r, const struct program *p) {
    r->first = mem_alloc(p->buffers.count * sizeof *r->first);
    for (size_t i = 0; i < p->buffers.count; i++)
        r->first[i] = NONE;
    FOR_INSTRUCTIONS(i, p)
        for (int n = 0; n < i->inputs; n++)
            if (i->in[n].buffer != NONE) {
                const int root = program_root(p, i->in[n].buffer);
                VEC_PUSH(r, (struct reader){i, &i->in[n], r->first[root]});
                r->first[root] = (int)r->count - 1;
            }
}

// Whether somebody outside of the set reads what a member makes.
static bool leaves_set(const struct readers *r, const struct program *p, const struct set *set,
                       const struct operand *made) {
    const int root = program_root(p, made->buffer);
    const struct buffer *b = &p->buffers.item[root];
    if (b->kind != KIND_ACT || (b->scope != SCOPE_LOCAL && b->scope != SCOPE_SLOT))
        return true;
    for (int k = r->first[root]; k != NONE; k = r->item[k].next) {
        struct footprint x, y;
        if (r->item[k].instruction->set != set->number &&
            (!footprint_of(p, made, &x) || !footprint_of_all_ranks(p, r->item[k].operand, &y) ||
             footprint_overlap(&x, &y)))
            return true;
    }
    return false;
}

static trireme_status take_outputs(struct set *set, const struct program *p, const struct op_table *table,
                                   const struct readers *readers, trireme_error *error) {
    const struct op_info *row = &table->op[set->row.op];
    for (size_t k = 0; k < set->members.count; k++) {
        const struct instruction *i = set->members.item[k].instruction;
        const struct op_info *info = &table->op[i->op];
        for (int n = 0; n < info->outputs; n++) {
            if (i->out[n].buffer == NONE)
                continue;
            const int of = row_operand(row->out, row->outputs, info->out[n].name);
            const char *name = program_buffer_name(p, i->out[n].buffer);
            if (of == NONE && leaves_set(readers, p, set, &i->out[n]))
                REFUSE("%s: makes %s for others than its set, but %s makes no such thing",
                       site_of_member(set, p, table, k).text, name, row->name);
            // What travels inside has the names that it has in the row.
            if (of == NONE || (set_communicates(set) && !leaves_set(readers, p, set, &i->out[n])))
                continue;
            if (set->out[of].buffer != NONE)
                REFUSE("%s: makes the %s of its set a second time", site_of_member(set, p, table, k).text,
                       row->out[of].name);
            set->out[of] = i->out[n];
        }
    }
    return TRIREME_OK;
}

static trireme_status make_row(struct set *set, const struct program *p, const struct op_table *table,
                               const struct readers *readers, trireme_error *error) {
    const struct op_info *row = &table->op[set->row.op];
    const struct set_member *first = &set->members.item[0];
    for (int n = 0; n < OP_MAX_IN; n++)
        set->in[n] = operand_none();
    for (int n = 0; n < OP_MAX_OUT; n++)
        set->out[n] = operand_none();
    set->row.phase = first->instruction->phase;
    set->row.layer = first->instruction->layer;
    set->row.group = set_communicates(set) ? set->group : AXES_NONE;
    set->row.set = set->number;
    set->row.workspace = set->row.predicate = NONE;
    set->row.inputs = row->inputs;
    set->row.outputs = row->outputs;
    set->row.in = set->in;
    set->row.out = set->out;
    TRY(take_attributes(set, p, table, error));
    TRY(take_inputs(set, p, table, error));
    return take_outputs(set, p, table, readers, error);
}

trireme_status sets_create(struct sets *sets, const struct program *p, const struct op_table *table,
                           trireme_error *error) {
    *sets = (struct sets){0};
    sets->of = mem_alloc((size_t)(p->sets + 1) * sizeof *sets->of);
    for (int n = 0; n <= p->sets; n++)
        sets->of[n] = NONE;
    bool *listed = mem_alloc(p->templates.count * sizeof *listed);
    trireme_status status = TRIREME_OK;
    for (size_t k = 0; k < p->schedule.count && status == TRIREME_OK; k++) {
        const int t = p->schedule.item[k].template;
        if (!listed[t])
            status = list_template(sets, p, table, t, error);
        listed[t] = true;
    }
    free(listed);
    if (status != TRIREME_OK || sets->count == 0)
        return status;
    struct readers readers = {0};
    readers_create(&readers, p);
    for (size_t k = 0; k < sets->count && status == TRIREME_OK; k++)
        status = make_row(&sets->item[k], p, table, &readers, error);
    free(readers.first);
    VEC_RELEASE(&readers);
    return status;
}

void sets_release(struct sets *sets) {
    for (size_t k = 0; k < sets->count; k++)
        VEC_RELEASE(&sets->item[k].members);
    VEC_RELEASE(sets);
    free(sets->of);
}
