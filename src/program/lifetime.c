#include "program/lifetime.h"

// The instruction of the template at which compute has waited for the i-th, which runs on another stream.
static int awaited(const struct template *t, int i) {
    int stream = t->instructions.item[i].stream, behind = 0; // instructions of the stream from the i-th on
    if (stream == STREAM_COMPUTE)
        return i;
    for (int k = i; k < (int)t->instructions.count; k++) {
        const struct instruction *in = &t->instructions.item[k];
        if (in->stream == STREAM_COMPUTE && in->wait[stream] && in->wait[stream] - 1 < behind)
            return k;
        behind += in->stream == stream;
    }
    return (int)t->instructions.count - 1;
}

// `by` is the template's chunk, NONE where it is not invoked for one microbatch.
static void touch(const struct program *program, struct lifetimes *l, int buffer, int by, int time, int until) {
    if (buffer == NONE)
        return;
    int root = program_root(program, buffer);
    const struct buffer *b = &program->buffers.item[root];
    if (b->scope != SCOPE_SLOT && b->scope != SCOPE_LOCAL)
        return;
    if (b->scope == SCOPE_SLOT && b->pool != by) {
        time = 0;
        until = l->length - 1;
    }
    if (l->allocation[root] == NONE) {
        l->allocation[root] = (int)l->allocations.count;
        VEC_PUSH(&l->allocations,
                 (struct allocation){b->scope, b->pool, by, align_up(buffer_bytes(b)), time, time, -1});
    }
    struct allocation *a = &l->allocations.item[l->allocation[root]];
    a->first = MIN(a->first, time);
    a->last = MAX(a->last, until);
    a->chunk = a->chunk == by ? by : NONE;
}

static void touch_all(const struct program *program, struct lifetimes *l, const struct instruction *instruction, int by,
                      int time, int until) {
    for (int i = 0; i < instruction->inputs; i++)
        touch(program, l, instruction->in[i].buffer, by, time, until);
    for (int i = 0; i < instruction->outputs; i++)
        touch(program, l, instruction->out[i].buffer, by, time, until);
    touch(program, l, instruction->workspace, by, time, until);
    touch(program, l, instruction->predicate, by, time, until);
}

static bool covers_root(const struct program *program, const struct operand *operand) {
    return program->buffers.item[operand->buffer].parent == NONE &&
           operand_count(operand) == buffer_count(&program->buffers.item[operand->buffer]);
}

// Lets output take the memory of the input that dies here, where ops.def says that it may.
static void share_inplace(const struct program *program, struct lifetimes *l, const struct op_info *info,
                          const struct instruction *instruction, int time) {
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
        b->bytes = 0; // its buffers moved to the other
        for (size_t k = 0; k < program->buffers.count; k++)
            if (l->allocation[k] == born)
                l->allocation[k] = dying;
    }
}

void lifetimes_create(struct lifetimes *l, const struct program *program, const struct op_table *table) {
    *l = (struct lifetimes){0};
    l->start = mem_alloc(program->templates.count * sizeof(int));
    l->allocation = mem_alloc(program->buffers.count * sizeof(int));
    for (size_t i = 0; i < program->templates.count; i++)
        l->start[i] = -1;
    for (size_t i = 0; i < program->buffers.count; i++)
        l->allocation[i] = NONE;
    VEC(int) order = {0};
    bool *one = mem_alloc(program->templates.count * sizeof *one); // is invoked for one microbatch
    for (size_t i = 0; i < program->schedule.count; i++) {
        int t = program->schedule.item[i].template;
        one[t] = program->schedule.item[i].microbatch != NONE;
        if (l->start[t] >= 0)
            continue;
        l->start[t] = l->length;
        l->length += (int)program->templates.item[t].instructions.count;
        VEC_PUSH(&order, t);
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < order.count; k++) {
            const struct template *t = &program->templates.item[order.item[k]];
            int by = one[order.item[k]] ? t->chunk : NONE;
            for (size_t i = 0; i < t->instructions.count; i++) {
                const struct instruction *instruction = &t->instructions.item[i];
                int time = l->start[order.item[k]] + (int)i;
                if (pass == 0 && instruction_lingers(instruction))
                    touch_all(program, l, instruction, by, 0, l->length - 1);
                else if (pass == 0)
                    touch_all(program, l, instruction, by, time, l->start[order.item[k]] + awaited(t, (int)i));
                else
                    share_inplace(program, l, &table->op[instruction->op], instruction, time);
            }
        }
    VEC_RELEASE(&order);
    free(one);
}

void lifetimes_release(struct lifetimes *l) {
    free(l->start);
    free(l->allocation);
    VEC_RELEASE(&l->allocations);
}
