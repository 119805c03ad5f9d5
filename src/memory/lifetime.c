#include "memory/lifetime.h"

#include "memory/lingering.h"

int *lifetime_awaited(const struct template *t) {
    int *awaited = template_waits(t);
    for (size_t i = 0; i < t->instructions.count; i++)
        awaited[i] = awaited[i] == NONE ? (int)t->instructions.count - 1 : awaited[i];
    return awaited;
}

// How an instruction uses what it touches: in which template, by which chunk (NONE where that template is not invoked
// for one microbatch), and from when to when.
struct use {
    int template, by, time, until;
    bool arrives;
};

static bool is_one_slot_part(const struct program *program, const struct buffer *b) {
    const struct pool *pool = &program->pools.item[b->pool];
    return b->scope == SCOPE_SLOT && pool->part_of != NONE && pool->slots == 1;
}

static void lifetime_touch(const struct program *program, struct lifetimes *l, int buffer, struct use use) {
    if (buffer == NONE)
        return;
    int root = program_root(program, buffer);
    const struct buffer *b = &program->buffers.item[root];
    if (b->space != l->space || (b->scope != SCOPE_SLOT && b->scope != SCOPE_LOCAL))
        return;
    int pool = program_whole_pool(program, b->pool);
    if (b->scope == SCOPE_SLOT && pool != use.by) {
        use.time = 0;
        use.until = l->length - 1;
    }
    if (l->allocation[root] == NONE) {
        l->allocation[root] = (int)l->allocations.count;
        VEC_PUSH(&l->allocations, (struct allocation){.scope = b->scope,
                                                      .pool = pool,
                                                      .chunk = use.by,
                                                      .template = use.template,
                                                      .once = is_one_slot_part(program, b),
                                                      .bytes = align_up(buffer_bytes(b)),
                                                      .first = use.time,
                                                      .last = use.time,
                                                      .offset = -1});
    }
    struct allocation *a = &l->allocations.item[l->allocation[root]];
    a->first = MIN(a->first, use.time);
    a->last = MAX(a->last, use.until);
    a->chunk = a->chunk == use.by ? use.by : NONE;
    a->template = a->template == use.template ? use.template : NONE;
    a->arrives |= use.arrives;
}

static bool covers_root(const struct program *program, const struct operand *operand) {
    return program->buffers.item[operand->buffer].parent == NONE &&
           operand_count(operand) == buffer_count(&program->buffers.item[operand->buffer]);
}

// The buffers of each allocation, while allocations take over others.
struct owners {
    int *first; // [allocations]: a buffer
    int *next;  // [buffers]: another of the same allocation; NONE
};

static struct owners find_owners(const struct lifetimes *l, size_t buffers) {
    struct owners o = {mem_alloc(l->allocations.count * sizeof *o.first), mem_alloc(buffers * sizeof *o.next)};
    for (size_t i = 0; i < buffers; i++) {
        o.next[i] = NONE;
        if (l->allocation[i] != NONE)
            o.first[l->allocation[i]] = (int)i; // the only one
    }
    return o;
}

static void move_owners(struct owners *o, struct lifetimes *l, int from, int to) {
    int last = o->first[from];
    for (int k = last; k != NONE; k = o->next[k]) {
        l->allocation[k] = to;
        last = k;
    }
    o->next[last] = o->first[to];
    o->first[to] = o->first[from];
}

// Lets outputs take the memory of inputs that die here, where ops.def says that they may.
static void share_inplace(const struct program *program, struct lifetimes *l, struct owners *owners,
                          const struct op_info *info, const struct instruction *instruction, int time) {
    for (int o = 0; o < info->outputs; o++) {
        int i = info->inplace[o];
        if (i < 0 || instruction->in[i].buffer == NONE || instruction->out[o].buffer == NONE)
            continue;
        int from = instruction->in[i].buffer, to = instruction->out[o].buffer;
        if (!covers_root(program, &instruction->in[i]) || !covers_root(program, &instruction->out[o]))
            continue;
        int dying = l->allocation[from], born = l->allocation[to];
        if (dying == NONE || born == NONE || dying == born)
            continue;
        struct allocation *d = &l->allocations.item[dying], *b = &l->allocations.item[born];
        if (d->last != time || b->first != time || d->bytes != b->bytes || d->scope != b->scope || d->pool != b->pool)
            continue;
        bool read_twice = false; // an op may overwrite the one input it names, not another view of the same memory
        for (int k = 0; k < instruction->inputs; k++)
            read_twice |= k != i && instruction->in[k].buffer != NONE &&
                          l->allocation[program_root(program, instruction->in[k].buffer)] == dying;
        if (read_twice)
            continue;
        d->last = b->last;
        d->chunk = d->chunk == b->chunk ? d->chunk : NONE;
        d->lingers |= b->lingers;
        b->bytes = 0; // its buffers moved to the other
        move_owners(owners, l, born, dying);
    }
}

// LOCAL allocations that only one template touches, for one microbatch at a time, become SLOT ones.
static void make_slots(struct lifetimes *l) {
    for (size_t i = 0; i < l->allocations.count; i++) {
        struct allocation *a = &l->allocations.item[i];
        if (a->template == NONE || a->chunk == NONE)
            continue;
        if (a->scope == SCOPE_LOCAL && !a->lingers) {
            a->scope = SCOPE_SLOT;
            a->pool = a->chunk;
        }
        a->once = a->scope == SCOPE_SLOT && a->lingers && !a->arrives;
    }
}

// Templates in the order in which the schedule first invokes them.
struct order {
    VEC(int) templates;
    bool *one; // [templates]: is invoked for one microbatch
};

static void find_order(struct order *order, struct lifetimes *l, const struct program *program) {
    *order = (struct order){.one = mem_alloc(program->templates.count * sizeof *order->one)};
    l->start = mem_alloc(program->templates.count * sizeof *l->start);
    for (size_t i = 0; i < program->templates.count; i++)
        l->start[i] = -1;
    for (size_t i = 0; i < program->schedule.count; i++) {
        int t = program->schedule.item[i].template;
        order->one[t] = program->schedule.item[i].microbatch != NONE;
        if (l->start[t] >= 0)
            continue;
        l->start[t] = l->length;
        l->length += (int)program->templates.item[t].instructions.count;
        VEC_PUSH(&order->templates, t);
    }
}

static void touch_template(struct lifetimes *l, const struct program *program, int template, bool one) {
    const struct template *t = &program->templates.item[template];
    int *awaited = lifetime_awaited(t);
    for (size_t i = 0; i < t->instructions.count; i++) {
        const struct instruction *instruction = &t->instructions.item[i];
        struct use use = {.template = template,
                          .by = one ? t->chunk : NONE,
                          .time = l->start[template] + (int)i,
                          .until = l->start[template] + awaited[i],
                          .arrives = instruction_arrives(instruction)};
        for (int k = 0; k < instruction_buffers(instruction); k++)
            lifetime_touch(program, l, instruction_buffer_at(program, instruction, k), use);
    }
    free(awaited);
}

static void note_lingering(const struct lifetimes *l, struct allocation *a, bool lingers) {
    a->lingers = lingers;
    a->once &= lingers;
    a->first = lingers ? 0 : a->first;
    a->last = lingers ? l->length - 1 : a->last;
}

void lifetimes_create(struct lifetimes *l, const struct program *program, const struct op_table *table,
                      enum memory_space space, bool all_slots) {
    struct order order;
    *l = (struct lifetimes){.space = space, .allocation = mem_alloc(program->buffers.count * sizeof *l->allocation)};
    for (size_t i = 0; i < program->buffers.count; i++)
        l->allocation[i] = NONE;
    find_order(&order, l, program);
    for (size_t k = 0; k < order.templates.count; k++)
        touch_template(l, program, order.templates.item[k], order.one[order.templates.item[k]]);
    bool *lingers = find_lingering(program, l->allocation, l->allocations.count);
    for (size_t i = 0; i < l->allocations.count; i++)
        note_lingering(l, &l->allocations.item[i], lingers[i]);
    free(lingers);
    if (all_slots)
        make_slots(l);
    struct owners owners = find_owners(l, program->buffers.count);
    for (size_t k = 0; k < order.templates.count; k++) {
        const struct template *t = &program->templates.item[order.templates.item[k]];
        for (int i = 0; i < (int)t->instructions.count; i++)
            share_inplace(program, l, &owners, &table->op[t->instructions.item[i].op], &t->instructions.item[i],
                          l->start[order.templates.item[k]] + i);
    }
    VEC_RELEASE(&order.templates);
    free(order.one);
    free(owners.first);
    free(owners.next);
}

void lifetimes_release(struct lifetimes *l) {
    free(l->start);
    free(l->allocation);
    VEC_RELEASE(&l->allocations);
}
