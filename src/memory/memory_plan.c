// The memory plan: sizes of the arenas, and an offset for every buffer.
#include "memory/memory_plan.h"
#include "base/amount.h"
#include "memory/place.h"
#include "program/structure.h"

static trireme_status plan_add_bytes(int64_t *total, int64_t bytes, const struct buffer *buffer, trireme_error *error) {
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

// ---- slots of one size

void plan_arena(struct program *p, enum memory_space space, int64_t scratch, const int64_t *slot_bytes) {
    struct arena *arena = &p->arena[space];
    arena->scratch_base = arena->fixed_bytes;
    arena->scratch_bytes = scratch;
    arena->step_bytes = arena->fixed_bytes + scratch;
    for (size_t i = 0; i < p->pools.count; i++) {
        bool shared = i == 0 && program_shares_region(p);
        for (int s = 0; s < p->pools.item[i].slots; s++) {
            p->pools.item[i].base[space][s] = shared ? arena->scratch_base : arena->step_bytes;
            arena->step_bytes += shared ? 0 : slot_bytes[i];
        }
    }
}

static void plan_slots(struct program *p, struct lifetimes *l) {
    int64_t *bytes = mem_alloc(p->pools.count * sizeof *bytes);
    bool shared = program_shares_region(p);
    for (size_t i = 0; i < p->pools.count; i++) {
        const struct pool *pool = &p->pools.item[i];
        bytes[i] = shared && i == 0        ? place_together(l)
                   : pool->chunk == (int)i ? place_apart(l, (int)i, pool->slots)
                                           : place_pool(l, (int)i);
    }
    plan_arena(p, l->space, shared ? bytes[0] : place_scratch(l), bytes);
    free(bytes);
}

// ---- all of it

// How much of the most bytes that live at one time slots of one size may take.
static const double WASTE = 1.01;

void set_offsets(struct program *program, const struct lifetimes *l) {
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        if (b->parent != NONE || b->space != l->space || (b->scope != SCOPE_SLOT && b->scope != SCOPE_LOCAL))
            continue;
        b->offset = 0;
        if (l->allocation[i] != NONE) {
            b->scope = l->allocations.item[l->allocation[i]].scope;
            b->pool = b->scope == SCOPE_SLOT ? l->allocations.item[l->allocation[i]].pool : 0;
            b->offset = l->allocations.item[l->allocation[i]].offset;
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
}

static int64_t most_live(const struct program *program, const struct lifetimes *l) {
    struct live_ranges ranges;
    live_ranges_create(&ranges, l, program);
    int64_t most = most_live_bytes(program, l, &ranges);
    live_ranges_release(&ranges);
    return most;
}

// Refuses slots, of at most `held` bytes each, whose bytes together could overflow: later sums are not checked.
static trireme_status check_step(const struct program *program, int64_t fixed, int64_t held, trireme_error *error) {
    int64_t slots = 1, all;
    for (size_t i = 0; i < program->pools.count; i++)
        slots = MAX(slots, program->pools.item[i].slots);
    if (__builtin_mul_overflow(held, slots, &all) || __builtin_add_overflow(all, fixed, &all) || all > INT64_MAX / 4)
        FAIL(TRIREME_ERROR_MEMORY, "activations in %s do not fit any address space", counted(slots, "slot").text);
    return TRIREME_OK;
}

// The arena of the state reaches to the end of its last buffer, whose places were given before (state/).
static trireme_status plan_state(const struct buffer *b, int64_t bytes, int64_t *state, trireme_error *error) {
    if (b->offset < 0)
        FAIL(TRIREME_ERROR_PROGRAM, "buffer %s has no place in the state", b->name);
    int64_t end = b->offset;
    TRY(plan_add_bytes(&end, bytes, b, error));
    *state = MAX(*state, end);
    return TRIREME_OK;
}

// Sizes of the arenas by what has a place of its own, which it gives to STEP and MICROBATCH buffers; held[SPACE_COUNT]:
// the bytes of all others.
static trireme_status plan_fixed(struct program *p, int64_t *held, trireme_error *error) {
    for (int s = 0; s < SPACE_COUNT; s++)
        p->arena[s] = (struct arena){0};
    for (size_t i = 0; i < p->buffers.count; i++) {
        struct buffer *b = &p->buffers.item[i];
        int64_t bytes = 0;
        TRY(checked_bytes(b, &bytes, error));
        if (b->parent != NONE)
            continue;
        if ((unsigned)b->space >= SPACE_COUNT)
            FAIL(TRIREME_ERROR_PROGRAM, "buffer %s lies in a space that does not exist", b->name);
        struct arena *arena = &p->arena[b->space];
        if (b->scope == SCOPE_STATE) {
            TRY(plan_state(b, bytes, &arena->state_bytes, error));
            continue;
        }
        if (b->scope == SCOPE_MICROBATCH && __builtin_mul_overflow(bytes, (int64_t)p->microbatches, &bytes))
            FAIL(TRIREME_ERROR_MEMORY, "buffer %s does not fit any address space", b->name);
        bool alone = b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH;
        if (alone)
            b->offset = arena->fixed_bytes;
        TRY(plan_add_bytes(alone ? &arena->fixed_bytes : &held[b->space], bytes, b, error));
    }
    return TRIREME_OK;
}

static void plan_device(struct program *program, const struct op_table *table, const struct plan_aim *aim,
                        bool had_parts) {
    const struct arena *arena = &program->arena[SPACE_DEVICE];
    struct lifetimes l;
    lifetimes_create(&l, program, table, SPACE_DEVICE, false);
    bool shared = program_shares_region(program);
    int64_t least = shared ? 0 : most_live(program, &l);
    plan_slots(program, &l);
    struct room of_step = {.bytes = (aim ? aim->room : 0) - arena->state_bytes, .hurried = aim && aim->hurried};
    bool wasteful = !shared && (double)arena->step_bytes > MAX(WASTE * (double)least, (double)of_step.bytes);
    if (!(wasteful || had_parts) || !plan_parts(program, table, &of_step, had_parts))
        set_offsets(program, &l);
    program->hurried = of_step.left;
    lifetimes_release(&l);
}

trireme_status program_plan(struct program *program, const struct op_table *table, const struct plan_aim *aim,
                            trireme_error *error) {
    int64_t held[SPACE_COUNT] = {0};
    TRY(plan_fixed(program, held, error));
    TRY(program_check(program, table, error));
    bool had_parts = program->pools.item[program->pools.count - 1].part_of != NONE; // then whole slots may be too few
    program_join_pools(program);
    for (int s = 0; s < SPACE_COUNT; s++)
        TRY(check_step(program, program->arena[s].fixed_bytes, held[s], error));
    plan_device(program, table, aim, had_parts);
    // Elsewhere there is room enough for slots of one size. Parts of pools, which the plan of the device may have
    // added, have none of their buffers.
    for (int s = SPACE_DEVICE + 1; s < SPACE_COUNT; s++) {
        struct lifetimes l;
        lifetimes_create(&l, program, table, (enum memory_space)s, false);
        plan_slots(program, &l);
        set_offsets(program, &l);
        lifetimes_release(&l);
    }
    return TRIREME_OK;
}

bool program_shrink(struct program *program, const struct op_table *table, int64_t room) {
    struct room of_step = {.bytes = room - program->arena[SPACE_DEVICE].state_bytes};
    if (!program->hurried)
        return true;
    if (program->pools.item[program->pools.count - 1].part_of == NONE)
        return false; // scratch went into slots
    program_join_pools(program);
    CHECK(plan_parts(program, table, &of_step, true));
    program->hurried = of_step.left;
    return true;
}
