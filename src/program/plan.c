// The memory plan: sizes of the arenas, and an offset for every buffer.
#include "program/place.h"
#include "program/verify.h"

static trireme_status add_bytes(int64_t *total, int64_t bytes, const struct buffer *buffer, trireme_error *error) {
    if (bytes < 0 || __builtin_add_overflow(*total, bytes, total))
        FAIL(TRIREME_ERROR_MEMORY, "buffer %s does not fit any address space", buffer->name);
    return TRIREME_OK;
}

static trireme_status checked_bytes(const struct buffer *b, int64_t *bytes, trireme_error *error) {
    int64_t n = dtype_size(b->dtype);
    for (int i = 0; i < b->ndim; i++)
        if (b->dim[i] < 1 || __builtin_mul_overflow(n, b->dim[i], &n) || n > INT64_MAX / 4)
            FAIL(TRIREME_ERROR_MEMORY, "buffer %s does not fit any address space", b->name);
    *bytes = align_up(n);
    return TRIREME_OK;
}

trireme_status program_plan(struct program *program, const struct op_table *table, trireme_error *error) {
    int64_t state = 0, fixed = 0, all = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        int64_t bytes = 0;
        TRY(checked_bytes(b, &bytes, error));
        if (b->parent != NONE)
            continue;
        TRY(add_bytes(&all, bytes, b, error));
        int64_t *total = b->scope == SCOPE_STATE ? &state : &fixed;
        if (b->scope == SCOPE_MICROBATCH && __builtin_mul_overflow(bytes, (int64_t)program->microbatches, &bytes))
            FAIL(TRIREME_ERROR_MEMORY, "buffer %s does not fit any address space", b->name);
        if (b->scope == SCOPE_STATE || b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH) {
            b->offset = *total;
            TRY(add_bytes(total, bytes, b, error));
        }
    }
    TRY(verify_structure(program, table, error));
    struct lifetimes l;
    lifetimes_create(&l, program, table);
    size_t pools = program->pools.count;
    program->state_bytes = state;
    program->fixed_bytes = fixed;
    program->scratch_base = fixed;
    bool shared = program_shares_region(program);
    for (size_t i = 0; i < pools; i++) {
        struct pool *pool = &program->pools.item[i];
        pool->slot_base = fixed;
        pool->slot_bytes = shared && i == 0        ? place_together(&l)
                           : pool->chunk == (int)i ? place_apart(&l, (int)i, pool->slots)
                                                   : place_pool(&l, (int)i);
    }
    program->scratch_bytes = shared ? program->pools.item[0].slot_bytes : place_scratch(&l);
    program->step_bytes = fixed + program->scratch_bytes;
    for (size_t i = shared; i < pools; i++) {
        program->pools.item[i].slot_base = program->step_bytes;
        program->step_bytes += program->pools.item[i].slot_bytes * program->pools.item[i].slots;
    }
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        if (b->parent != NONE || (b->scope != SCOPE_SLOT && b->scope != SCOPE_LOCAL))
            continue;
        b->offset = 0;
        if (l.allocation[i] != NONE) {
            b->scope = l.allocations.item[l.allocation[i]].scope;
            b->pool = b->scope == SCOPE_SLOT ? l.allocations.item[l.allocation[i]].pool : 0;
            b->offset = l.allocations.item[l.allocation[i]].offset;
        }
    }
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        const struct buffer *root = &program->buffers.item[program_root(program, (int)i)];
        b->scope = root->scope;
        b->pool = root->pool;
        if (b->parent != NONE)
            b->offset = root->offset + program_root_offset(program, (int)i) * dtype_size(b->dtype);
    }
    lifetimes_release(&l);
    return TRIREME_OK;
}

// ---- profile

struct named_size {
    int buffer;
    int64_t bytes;
};

static int compare_sizes(const void *a, const void *b) {
    const struct named_size *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static bool is_of_chunk(const struct allocation *a, int chunk) {
    return a->scope == SCOPE_SLOT && a->pool == chunk;
}

// Bytes of the pools that are not a chunk's own: messages may be under way to any of their slots.
static int64_t inputs_bytes(const struct program *program) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->pools.count; i++)
        if (program->pools.item[i].chunk != (int)i)
            bytes += program->pools.item[i].slot_bytes * program->pools.item[i].slots;
    return bytes;
}

// Bytes that a microbatch holds of its chunk's pool after a template, while others are at work.
static int64_t held_after(const struct program *program, const struct lifetimes *l, int template) {
    const struct template *t = &program->templates.item[template];
    int time = l->start[template] + (int)t->instructions.count;
    bool later = false;
    for (size_t i = 0; i < program->schedule.count && !later; i++) {
        struct invocation v = program->schedule.item[i];
        later = v.microbatch != NONE && program->templates.item[v.template].chunk == t->chunk &&
                l->start[v.template] >= time;
    }
    int64_t bytes = 0;
    for (size_t i = 0; i < l->allocations.count && later; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (is_of_chunk(a, t->chunk) && a->first < time && time <= a->last)
            bytes += a->bytes;
    }
    return bytes;
}

// Bytes of scratch (NONE), or of a chunk's pool, that live at each time, [length].
static int64_t *live_bytes(const struct lifetimes *l, int chunk) {
    int64_t *live = mem_alloc(((size_t)l->length + 1) * sizeof *live);
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (chunk == NONE ? a->scope != SCOPE_LOCAL : !is_of_chunk(a, chunk))
            continue;
        live[a->first] += a->bytes;
        live[a->last + 1] -= a->bytes;
    }
    for (int t = 1; t <= l->length; t++)
        live[t] += live[t - 1];
    return live;
}

void program_memory_profile(const struct program *program, const struct op_table *table,
                            struct memory_profile *profile) {
    *profile = (struct memory_profile){0};
    struct lifetimes l;
    lifetimes_create(&l, program, table);
    size_t chunks = program->pools.count, microbatches = (size_t)program->microbatches;
    int64_t *local = live_bytes(&l, NONE), **slot = mem_alloc(chunks * sizeof *slot);
    for (size_t c = 0; c < chunks; c++)
        slot[c] = live_bytes(&l, (int)c);
    // By each chunk and microbatch that waits for its next template.
    int64_t *held = mem_alloc(chunks * microbatches * sizeof *held), held_total = 0;
    int64_t *after = mem_alloc(program->templates.count * sizeof *after),
            constant = program->fixed_bytes + inputs_bytes(program);
    for (size_t t = 0; t < program->templates.count; t++)
        if (l.start[t] >= 0)
            after[t] = held_after(program, &l, (int)t);
    int peak_time = 0;
    for (size_t k = 0; k < program->schedule.count; k++) {
        struct invocation v = program->schedule.item[k];
        int start = l.start[v.template], count = (int)program->templates.item[v.template].instructions.count;
        int chunk = program->templates.item[v.template].chunk;
        int64_t none = 0,
                *mine = v.microbatch == NONE ? &none : &held[(size_t)chunk * microbatches + (size_t)v.microbatch];
        held_total -= *mine;
        for (int i = 0; i < count; i++) {
            int64_t live = constant + local[start + i] + held_total;
            live += v.microbatch == NONE ? 0 : slot[chunk][start + i];
            if (profile->moments.count == 0 || live > profile->moments.item[profile->peak].live) {
                profile->peak = profile->moments.count;
                peak_time = start + i;
            }
            VEC_PUSH(&profile->moments, (struct memory_moment){(int)k, i, live});
        }
        *mine = v.microbatch == NONE ? 0 : after[v.template];
        held_total += *mine;
    }
    VEC(struct named_size) alive = {0};
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        bool fixed = b->parent == NONE && (b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH);
        int a = l.allocation[i];
        if (fixed)
            VEC_PUSH(&alive, (struct named_size){(int)i, b->scope == SCOPE_STEP
                                                             ? align_up(buffer_bytes(b))
                                                             : align_up(buffer_bytes(b)) * program->microbatches});
        else if (a != NONE && l.allocations.item[a].first <= peak_time && peak_time <= l.allocations.item[a].last)
            VEC_PUSH(&alive, (struct named_size){(int)i, align_up(buffer_bytes(b))});
    }
    if (alive.count)
        qsort(alive.item, alive.count, sizeof *alive.item, compare_sizes);
    for (size_t i = 0; i < alive.count; i++)
        VEC_PUSH(&profile->at_peak, alive.item[i].buffer);
    VEC_RELEASE(&alive);
    for (size_t c = 0; c < chunks; c++)
        free(slot[c]);
    free(slot);
    free(local);
    free(held);
    free(after);
    lifetimes_release(&l);
}

void memory_profile_release(struct memory_profile *profile) {
    VEC_RELEASE(&profile->moments);
    VEC_RELEASE(&profile->at_peak);
}
