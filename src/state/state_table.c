#include "state/state_table.h"

#include "program/structure.h"

static const enum buffer_kind KIND_OF[STATE_ROLES] = {
    [STATE_PARAMETERS] = KIND_PARAM, [STATE_FROZEN] = KIND_PARAM,    [STATE_CONSTANT] = KIND_PARAM,
    [STATE_GRADIENTS] = KIND_GRAD,   [STATE_OPTIMIZER] = KIND_OPTIM, [STATE_SHARED] = KIND_OPTIM,
    [STATE_CACHE] = KIND_CACHE};

int64_t state_entry_bytes(const struct state_entry *entry) {
    int64_t bytes = dtype_size(entry->dtype);
    for (int i = 0; i < entry->ndim; i++)
        if (__builtin_mul_overflow(bytes, entry->dim[i], &bytes) || bytes > STATE_TOO_LARGE)
            return STATE_TOO_LARGE;
    return bytes;
}

int state_add(struct state_table *table, const struct state_entry *entry) {
    CHECK(entry->ndim >= 1 && entry->ndim <= OP_MAX_DIMS && entry->space < SPACE_COUNT);
    struct state_entry added = *entry;
    int64_t *bytes = &table->bytes[entry->space];
    added.name = mem_strdup(entry->name);
    added.offset = *bytes;
    *bytes = MIN(STATE_TOO_LARGE, *bytes + align_up(state_entry_bytes(entry)));
    VEC_PUSH(&table->entries, added);
    return (int)table->entries.count - 1;
}

int state_add_over(struct state_table *table, const struct state_entry *entry, int other) {
    const struct state_entry *of = &table->entries.item[other];
    CHECK(entry->space == of->space && state_entry_bytes(entry) == state_entry_bytes(of));
    struct state_entry added = *entry;
    added.name = mem_strdup(entry->name);
    added.offset = of->offset;
    VEC_PUSH(&table->entries, added);
    return (int)table->entries.count - 1;
}

int state_find(const struct state_table *table, const char *name) {
    for (size_t i = 0; i < table->entries.count; i++)
        if (strcmp(table->entries.item[i].name, name) == 0)
            return (int)i;
    return NONE;
}

void state_table_release(struct state_table *table) {
    for (size_t i = 0; i < table->entries.count; i++)
        free((char *)table->entries.item[i].name);
    VEC_RELEASE(&table->entries);
    *table = (struct state_table){0};
}

int state_buffer(const struct state_table *table, struct program *program, int entry, int belongs_to) {
    const struct state_entry *e = &table->entries.item[entry];
    int number = program_buffer(program, e->name, e->dtype, KIND_OF[e->role], SCOPE_STATE, e->ndim, e->dim);
    struct buffer *b = &program->buffers.item[number];
    memcpy(b->placement, e->placement, sizeof b->placement);
    b->own = e->own;
    b->space = e->space;
    b->offset = e->offset;
    program_declare(program, number, e->as ? e->as : "", belongs_to);
    return number;
}

static bool is_entry(const struct state_entry *e, const struct buffer *b) {
    return b->kind == KIND_OF[e->role] && b->dtype == e->dtype && b->space == e->space && b->offset == e->offset &&
           b->own == e->own && b->ndim == e->ndim && memcmp(b->dim, e->dim, (size_t)e->ndim * sizeof *e->dim) == 0 &&
           memcmp(b->placement, e->placement, sizeof e->placement) == 0 && strcmp(b->as, e->as ? e->as : "") == 0;
}

trireme_status state_check(const struct state_table *table, const struct program *program, trireme_error *error) {
    const size_t count = table->entries.count;
    size_t next = 0; // programs declare entries mostly in their order
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        if (b->scope != SCOPE_STATE || b->parent != NONE)
            continue;
        size_t tried = 0;
        while (tried < count && strcmp(table->entries.item[(next + tried) % count].name, b->name) != 0)
            tried++;
        if (tried == count)
            REFUSE("%s keeps %s, which the state does not have", program->name, b->name);
        const size_t entry = (next + tried) % count;
        if (!is_entry(&table->entries.item[entry], b))
            REFUSE("%s: %s is not as it stands in the state", program->name, b->name);
        next = entry + 1;
    }
    return TRIREME_OK;
}
