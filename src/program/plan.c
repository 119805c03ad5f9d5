// The memory plan: offline placement of buffers with known lifetimes (dynamic storage allocation). Greedy, in several
// orders, each buffer at the lowest offset where nothing that lives at the same time stands; the tightest result is
// kept.
#include "program/lifetime.h"
#include "program/verify.h"

struct placing {
    struct allocation *item;
    const int *order;
    size_t count;
};

// Places allocations in the given order; returns the bytes that they span. `placed` has room for their numbers: those
// that have an offset, by offset.
static int64_t place(struct placing p, int *placed) {
    int64_t top = 0;
    for (size_t i = 0; i < p.count; i++) {
        struct allocation *a = &p.item[p.order[i]];
        int64_t at = 0;
        for (size_t k = 0; k < i; k++) {
            const struct allocation *b = &p.item[placed[k]];
            if (a->first > b->last || b->first > a->last)
                continue;
            if (at + a->bytes <= b->offset)
                break;
            at = MAX(at, b->offset + b->bytes);
        }
        a->offset = at;
        top = MAX(top, at + a->bytes);
        size_t low = 0, high = i;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (p.item[placed[middle]].offset <= at)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(&placed[low + 1], &placed[low], (i - low) * sizeof *placed);
        placed[low] = p.order[i];
    }
    return top;
}

typedef int (*comparison)(const struct allocation *a, const struct allocation *b);

static int by_bytes(const struct allocation *a, const struct allocation *b) {
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->last - a->first < b->last - b->first) - (a->last - a->first > b->last - b->first);
}

static int by_lifetime(const struct allocation *a, const struct allocation *b) {
    int x = a->last - a->first, y = b->last - b->first;
    return x != y ? (x > y ? -1 : 1) : by_bytes(a, b);
}

static int by_area(const struct allocation *a, const struct allocation *b) {
    double x = (double)a->bytes * (a->last - a->first + 1), y = (double)b->bytes * (b->last - b->first + 1);
    return x != y ? (x > y ? -1 : 1) : by_bytes(a, b);
}

static int by_birth(const struct allocation *a, const struct allocation *b) {
    return a->first != b->first ? (a->first > b->first) - (a->first < b->first) : by_bytes(a, b);
}

struct sort_context {
    const struct allocation *item;
    comparison compare;
};

static int compare_indices(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b, order = c->compare(&c->item[i], &c->item[k]);
    return order ? order : (i > k) - (i < k);
}

// Places the allocations of one region: those of `scope`, or of both scopes when they share.
static int64_t place_region(struct lifetimes *l, enum buffer_scope scope, bool both) {
    static const comparison ORDERS[] = {by_bytes, by_area, by_lifetime, by_birth};
    size_t total = l->allocations.count, count = 0;
    int *order = mem_alloc(total * sizeof *order);
    int64_t *best_offset = mem_alloc(total * sizeof *best_offset), best = INT64_MAX;
    int *placed = mem_alloc(total * sizeof *placed);
    for (size_t i = 0; i < total; i++)
        if (l->allocations.item[i].bytes > 0 && (both || l->allocations.item[i].scope == scope))
            order[count++] = (int)i;
    for (size_t o = 0; o < ARRAY_LENGTH(ORDERS); o++) {
        struct sort_context context = {l->allocations.item, ORDERS[o]};
        qsort_r(order, count, sizeof *order, compare_indices, &context);
        int64_t top = place((struct placing){l->allocations.item, order, count}, placed);
        if (top >= best)
            continue;
        best = top;
        for (size_t i = 0; i < count; i++)
            best_offset[order[i]] = l->allocations.item[order[i]].offset;
    }
    for (size_t i = 0; i < count; i++)
        l->allocations.item[order[i]].offset = best_offset[order[i]];
    free(order);
    free(best_offset);
    free(placed);
    return count ? best : 0;
}

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
    bool shared = program->slots == 1;
    program->state_bytes = state;
    program->fixed_bytes = fixed;
    program->scratch_base = fixed;
    program->scratch_bytes = place_region(&l, SCOPE_LOCAL, shared);
    program->slot_base = shared ? program->scratch_base : program->scratch_base + program->scratch_bytes;
    program->slot_bytes = shared ? program->scratch_bytes : place_region(&l, SCOPE_SLOT, false);
    program->step_bytes = program->slot_base + program->slot_bytes * program->slots;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        if (b->parent == NONE && (b->scope == SCOPE_SLOT || b->scope == SCOPE_LOCAL))
            b->offset = l.allocation[i] == NONE ? 0 : l.allocations.item[l.allocation[i]].offset;
    }
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        if (b->parent != NONE)
            b->offset = program->buffers.item[program_root(program, (int)i)].offset +
                        program_root_offset(program, (int)i) * dtype_size(b->dtype);
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

// Bytes of allocations of `scope` that live at each time, [length].
static int64_t *live_bytes(const struct lifetimes *l, enum buffer_scope scope) {
    int64_t *live = mem_alloc(((size_t)l->length + 1) * sizeof *live);
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (a->scope != scope)
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
    int64_t *local = live_bytes(&l, SCOPE_LOCAL), *slot = live_bytes(&l, SCOPE_SLOT);
    int64_t *held =
        mem_alloc((size_t)program->slots * sizeof *held); // by slots whose microbatch waits for its next template
    int64_t held_total = 0;
    int peak_time = 0;
    for (size_t k = 0; k < program->schedule.count; k++) {
        struct invocation v = program->schedule.item[k];
        int start = l.start[v.template], count = (int)program->templates.item[v.template].instructions.count;
        held_total -= held[v.slot];
        for (int i = 0; i < count; i++) {
            int64_t live = program->fixed_bytes + local[start + i] + slot[start + i] + held_total;
            if (profile->moments.count == 0 || live > profile->moments.item[profile->peak].live) {
                profile->peak = profile->moments.count;
                peak_time = start + i;
            }
            VEC_PUSH(&profile->moments, (struct memory_moment){(int)k, i, live});
        }
        int end = start + count;
        held[v.slot] = end < l.length && count ? MIN(slot[end], slot[end - 1]) : 0;
        held_total += held[v.slot];
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
    free(local);
    free(slot);
    free(held);
    lifetimes_release(&l);
}

void memory_profile_release(struct memory_profile *profile) {
    VEC_RELEASE(&profile->moments);
    VEC_RELEASE(&profile->at_peak);
}
