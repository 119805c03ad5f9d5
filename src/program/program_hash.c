// What identifies a program: all that its tables say, except for addresses and for the workspaces that kernels ask
// for, which may depend on the processor.
#include "base/hash.h"
#include "program/program.h"

static uint64_t hash_number(uint64_t hash, int64_t number) {
    const uint64_t bits = (uint64_t)number;
    return hash_add(hash_add(hash, (uint32_t)bits), (uint32_t)(bits >> 32));
}

static uint64_t hash_name(uint64_t hash, const char *name) {
    for (; *name; name++)
        hash = hash_add(hash, (unsigned char)*name);
    return hash_number(hash, 0);
}

static uint64_t hash_numbers(uint64_t hash, int count, const int64_t *number) {
    hash = hash_number(hash, count);
    for (int i = 0; i < count; i++)
        hash = hash_number(hash, number[i]);
    return hash;
}

// The scope of activations follows from where they are placed.
static uint64_t hash_buffer(uint64_t hash, const struct buffer *b) {
    const bool placed = b->scope == SCOPE_SLOT || b->scope == SCOPE_LOCAL;
    const int64_t fields[] = {b->dtype,      b->kind,          placed ? SCOPE_LOCAL : b->scope,
                              b->parent,     b->parent_offset, b->gradient_of,
                              b->recomputes, b->belongs_to,    b->own,
                              b->extent,     b->expect,        b->space};
    hash = hash_name(hash_name(hash, b->name), b->as);
    hash = hash_numbers(hash_numbers(hash, ARRAY_LENGTH(fields), fields), b->ndim, b->dim);
    for (int a = 0; a < AXIS_COUNT; a++)
        hash = hash_number(hash, b->placement[a]);
    return hash;
}

static uint64_t hash_operand(uint64_t hash, const struct operand *o) {
    if (o->buffer == NONE)
        return hash_number(hash, NONE);
    hash = hash_number(hash_number(hash, o->buffer), o->offset);
    hash = hash_numbers(hash_numbers(hash, o->ndim, o->dim), o->ndim, o->stride);
    return hash_number(hash_number(hash, o->along), o->step);
}

static uint64_t hash_instruction(uint64_t hash, const struct program *p, const struct instruction *i) {
    const int64_t fields[] = {i->op,      i->phase, i->layer, i->stream, i->accumulate, i->inputs,
                              i->outputs, i->when,  i->group, i->peer,   i->open,       i->predicate};
    hash = hash_numbers(hash, ARRAY_LENGTH(fields), fields);
    for (int k = 0; k < i->inputs + i->outputs; k++)
        hash = hash_operand(hash, instruction_operand_at(i, k));
    for (int k = 0; k < OP_MAX_ATTRIBUTES; k++)
        hash = hash_number(hash, i->attribute[k].i);
    for (size_t s = 0; s < p->streams.count; s++)
        hash = hash_number(hash, i->wait[s]);
    return hash;
}

uint64_t program_hash(const struct program *p) {
    uint64_t hash = hash_number(hash_name(HASH_NOTHING, p->name), p->microbatches);
    for (int a = 0; a < AXIS_COUNT; a++)
        hash = hash_number(hash, p->mesh.degree[a]);
    for (size_t s = 0; s < p->streams.count; s++)
        hash = hash_number(hash_name(hash, p->streams.item[s].name), p->streams.item[s].properties);
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].kind != KIND_WORK)
            hash = hash_buffer(hash, &p->buffers.item[i]);
    for (size_t t = 0; t < p->templates.count; t++) {
        const struct template *template = &p->templates.item[t];
        hash = hash_number(hash_name(hash, template->name), template->phase);
        hash = hash_number(hash_number(hash, template->chunk), (int64_t) template->instructions.count);
        for (size_t i = 0; i < template->instructions.count; i++)
            hash = hash_instruction(hash, p, &template->instructions.item[i]);
    }
    for (size_t k = 0; k < p->schedule.count; k++) {
        const struct invocation *v = &p->schedule.item[k];
        hash = hash_number(hash_number(hash, v->template), v->microbatch);
        hash = hash_number(hash_number(hash, v->first), v->last);
    }
    return hash;
}
