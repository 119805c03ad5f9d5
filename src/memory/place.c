// Placement by the skyline and, where that is not tight, greedily in several orders: each allocation goes to the lowest
// offset that is free while it lives. Where everything shares one region, and much of that is wasted, it is repaired.
#include "memory/place.h"

#include "memory/segment_tree.h"

enum { CANDIDATES = 12, QUARTERS = 4 }; // sizes of slots to try; a repair's period is a quarter of a microbatch
static const double TIGHT = 1.002;      // times the bound
static const double FAIR = 1.015;       // times the bound: a larger region is worth a repair

struct placing {
    struct allocation *item;
    int *order; // numbers of those to be placed
    size_t count;
    struct taken placed;
    int chunk; // whose pool and whose scratch this is about
};

static int64_t lowest_offset(const struct placing *p, const struct allocation *a) {
    return taken_lowest(&p->placed, a->first, a->last, a->bytes);
}

// Takes the memory at its offset.
static void place_put(struct placing *p, const struct allocation *a) {
    taken_add(&p->placed, a->first, a->last, a->offset, a->bytes);
}

// Begins with nothing placed; what is in `order` may be placed then.
static void place_begin(struct placing *p) {
    int *times = mem_alloc(p->count * sizeof *times);
    for (size_t i = 0; i < p->count; i++)
        times[i] = p->item[p->order[i]].first;
    taken_create(&p->placed, times, p->count);
}

// Places all in the order given; returns the bytes that they span.
static int64_t place(struct placing *p) {
    int64_t top = 0;
    place_begin(p);
    for (size_t i = 0; i < p->count; i++) {
        struct allocation *a = &p->item[p->order[i]];
        a->offset = lowest_offset(p, a);
        top = MAX(top, a->offset + a->bytes);
        place_put(p, a);
    }
    taken_release(&p->placed);
    return top;
}

// ---- orders

typedef int (*comparison)(const struct allocation *a, const struct allocation *b);

static int items_by_bytes(const struct allocation *a, const struct allocation *b) {
    return COMPARE(b->bytes, a->bytes) ?: COMPARE(b->last - b->first, a->last - a->first);
}

static int by_lifetime(const struct allocation *a, const struct allocation *b) {
    return COMPARE(b->last - b->first, a->last - a->first) ?: items_by_bytes(a, b);
}

// Those that live equally long stay in the order in which they come.
static int by_lifetime_alone(const struct allocation *a, const struct allocation *b) {
    return COMPARE(b->last - b->first, a->last - a->first);
}

static int by_area(const struct allocation *a, const struct allocation *b) {
    double x = (double)a->bytes * (a->last - a->first + 1), y = (double)b->bytes * (b->last - b->first + 1);
    return COMPARE(y, x) ?: items_by_bytes(a, b);
}

static int by_birth(const struct allocation *a, const struct allocation *b) {
    return COMPARE(a->first, b->first) ?: items_by_bytes(a, b);
}

struct sort_context {
    const struct allocation *item;
    comparison compare;
};

static int compare_indices(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b;
    return c->compare(&c->item[i], &c->item[k]) ?: COMPARE(i, k);
}

static void place_sort(const struct placing *p, comparison compare) {
    struct sort_context context = {p->item, compare};
    qsort_r(p->order, p->count, sizeof *p->order, compare_indices, &context);
}

// ---- one region

static struct in_use *place_in_use_all(const struct placing *p) {
    struct in_use *all = mem_alloc(p->count * sizeof *all);
    for (size_t i = 0; i < p->count; i++) {
        const struct allocation *a = &p->item[p->order[i]];
        all[i] = (struct in_use){a->first, a->last, a->bytes, 0};
    }
    return all;
}

// The most bytes that live at one time.
static int64_t place_bound(const struct placing *p) {
    struct in_use *all = place_in_use_all(p);
    int64_t most = in_use_most(all, p->count);
    free(all);
    return most;
}

static int64_t place_by_skyline(const struct placing *p, int64_t enough, int64_t *offset) {
    struct in_use *all = place_in_use_all(p);
    int64_t top = place_skyline(all, p->count, enough);
    for (size_t i = 0; i < p->count; i++)
        offset[p->order[i]] = all[i].offset;
    free(all);
    return top;
}

static int64_t place_region(struct placing *p, size_t total) {
    static const comparison ORDERS[] = {items_by_bytes, by_lifetime, by_lifetime_alone, by_area, by_birth};
    if (p->count == 0)
        return 0;
    int64_t enough = (int64_t)(TIGHT * (double)place_bound(p)), *offset = mem_alloc(total * sizeof *offset);
    int64_t best = place_by_skyline(p, enough, offset);
    for (size_t o = 0; o < ARRAY_LENGTH(ORDERS) && best > enough; o++) {
        place_sort(p, ORDERS[o]);
        int64_t top = place(p);
        if (top >= best)
            continue;
        best = top;
        for (size_t i = 0; i < p->count; i++)
            offset[p->order[i]] = p->item[p->order[i]].offset;
    }
    for (size_t i = 0; i < p->count; i++)
        p->item[p->order[i]].offset = offset[p->order[i]];
    free(offset);
    return best;
}

static struct placing placing_create(const struct lifetimes *l, int chunk) {
    size_t total = l->allocations.count;
    return (struct placing){.item = l->allocations.item, .order = mem_alloc(total * sizeof(int)), .chunk = chunk};
}

static void placing_release(struct placing *p) {
    free(p->order);
}

static bool is_of_chunk(const struct allocation *a, int chunk) {
    return a->bytes > 0 && (a->scope == SCOPE_SLOT ? a->pool == chunk : a->chunk == chunk || a->chunk == NONE);
}

// Puts the chunk's allocations into `order`: those of a scope, or any.
static void place_choose(struct placing *p, size_t total, enum buffer_scope scope, bool any) {
    p->count = 0;
    for (size_t i = 0; i < total; i++)
        if (is_of_chunk(&p->item[i], p->chunk) && (any || p->item[i].scope == scope))
            p->order[p->count++] = (int)i;
}

// Repairs a region that takes more than is fair; returns the bytes that it takes then.
static int64_t place_repair_all(const struct placing *p, int64_t bytes, int length) {
    const int64_t fair = (int64_t)(FAIR * (double)place_bound(p));
    struct in_use *all = bytes > fair ? place_in_use_all(p) : NULL;
    if (all && place_repair(all, p->count, fair, MAX(1, length / QUARTERS), 1)) {
        bytes = 0;
        for (size_t i = 0; i < p->count; i++) {
            p->item[p->order[i]].offset = all[i].offset;
            bytes = MAX(bytes, all[i].offset + all[i].bytes);
        }
    }
    free(all);
    return bytes;
}

int64_t place_together(struct lifetimes *l) {
    struct placing p = placing_create(l, 0);
    place_choose(&p, l->allocations.count, SCOPE_LOCAL, true);
    int64_t bytes = place_repair_all(&p, place_region(&p, l->allocations.count), l->length);
    placing_release(&p);
    return bytes;
}

// Places the allocations of a scope; for SLOT, those of the pool.
static int64_t place_scope(struct lifetimes *l, enum buffer_scope scope, int pool) {
    struct placing p = placing_create(l, NONE);
    for (size_t i = 0; i < l->allocations.count; i++)
        if (p.item[i].bytes > 0 && p.item[i].scope == scope && (scope == SCOPE_LOCAL || p.item[i].pool == pool))
            p.order[p.count++] = (int)i;
    int64_t bytes = place_region(&p, l->allocations.count);
    placing_release(&p);
    return bytes;
}

int64_t place_scratch(struct lifetimes *l) {
    return place_scope(l, SCOPE_LOCAL, NONE);
}

int64_t place_pool(struct lifetimes *l, int pool) {
    return place_scope(l, SCOPE_SLOT, pool);
}

int64_t place_some(struct lifetimes *l, const int *which, size_t count) {
    struct placing p = placing_create(l, NONE);
    memcpy(p.order, which, count * sizeof *which);
    p.count = count;
    int64_t bytes = place_region(&p, l->allocations.count);
    placing_release(&p);
    return bytes;
}

// ---- scratch and slots

struct apart {
    struct placing placing;
    struct lifetimes *l;
    int slots;
    int64_t full, least;      // bytes: of a slot with only what crosses templates; the least of all slots and scratch
    int64_t *live;            // bytes of LOCAL allocations in scratch at each time
    int64_t scratch, slot;    // of the best so far
    enum buffer_scope *scope; // by allocation, of the best so far
    int64_t *offset;
};

static void place_add_live(int64_t *live, const struct allocation *a, int64_t bytes) {
    for (int t = a->first; t <= a->last; t++)
        live[t] += bytes;
}

static bool place_presses(const int64_t *live, const struct allocation *a, int64_t target) {
    for (int t = a->first; t <= a->last; t++)
        if (live[t] > target)
            return true;
    return false;
}

// Tries slots of at most `limit` bytes: where scratch is too full, its allocations go to the slot if that has room.
static void place_try_order(struct apart *a, int64_t limit, comparison order) {
    struct placing *p = &a->placing;
    size_t total = a->l->allocations.count;
    memset(a->live, 0, ((size_t)a->l->length + 1) * sizeof *a->live);
    place_choose(p, total, SCOPE_LOCAL, true);
    place_begin(p);
    for (size_t i = 0; i < total; i++)
        if (is_of_chunk(&p->item[i], p->chunk) && p->item[i].scope == SCOPE_SLOT)
            place_put(p, &p->item[i]);
        else if (is_of_chunk(&p->item[i], p->chunk))
            place_add_live(a->live, &p->item[i], p->item[i].bytes);
    place_choose(p, total, SCOPE_LOCAL, false);
    place_sort(p, order);
    int64_t target = MAX(0, a->least - a->slots * limit), slot = a->full;
    size_t moved = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct allocation *item = &p->item[p->order[i]];
        if (item->chunk == NONE || !place_presses(a->live, item, target))
            continue;
        int64_t at = lowest_offset(p, item);
        if (at + item->bytes > limit)
            continue;
        item->offset = at;
        item->scope = SCOPE_SLOT;
        item->pool = p->chunk;
        slot = MAX(slot, at + item->bytes);
        place_add_live(a->live, item, -item->bytes);
        place_put(p, item);
        p->order[moved++] = p->order[i];
    }
    taken_release(&p->placed);
    int *back = mem_alloc((moved + 1) * sizeof *back);
    memcpy(back, p->order, moved * sizeof *back);
    place_choose(p, total, SCOPE_LOCAL, false);
    // Only a smaller total is of use; most often the bound tells beforehand that it would not be smaller.
    int64_t useful = a->scratch + a->slots * (a->slot - slot);
    int64_t scratch = moved ? place_bound(p) : INT64_MAX;
    if (scratch < useful)
        scratch = place_region(p, total);
    if (scratch < useful) {
        a->scratch = scratch;
        a->slot = slot;
        for (size_t i = 0; i < total; i++) {
            a->scope[i] = p->item[i].scope;
            a->offset[i] = p->item[i].offset;
        }
    }
    for (size_t i = 0; i < moved; i++)
        p->item[back[i]].scope = SCOPE_LOCAL;
    free(back);
}

static bool place_tight(const struct apart *a) {
    return a->scratch + a->slots * a->slot <= (int64_t)(TIGHT * (double)a->least);
}

static void try_limit(struct apart *a, int64_t limit) {
    static const comparison ORDERS[] = {items_by_bytes, by_birth, by_area};
    for (size_t o = 0; o < ARRAY_LENGTH(ORDERS) && !place_tight(a); o++)
        place_try_order(a, limit, ORDERS[o]);
}

// The least that slots and scratch can take: the most that lives at one time in scratch and one slot, and the other
// slots in full.
static int64_t least_bytes(const struct lifetimes *l, int chunk, int slots, int64_t full) {
    struct placing all = placing_create(l, chunk);
    place_choose(&all, l->allocations.count, SCOPE_LOCAL, true);
    int64_t least = place_bound(&all) + (slots - 1) * full;
    placing_release(&all);
    return least;
}

static void try_limits(struct apart *a) {
    struct placing *p = &a->placing;
    size_t total = a->l->allocations.count, count = 0;
    int64_t limit[CANDIDATES];
    // Slots in which one of scratch's largest just fits above what is there at the same time.
    place_choose(p, total, SCOPE_LOCAL, false);
    place_sort(p, items_by_bytes);
    for (size_t i = 0; i < p->count && count < CANDIDATES; i++) {
        const struct allocation *item = &p->item[p->order[i]];
        int64_t above = 0;
        for (size_t k = 0; k < total; k++) {
            const struct allocation *b = &p->item[k];
            if (b->scope == SCOPE_SLOT && is_of_chunk(b, p->chunk) && b->first <= item->last && item->first <= b->last)
                above = MAX(above, b->offset + b->bytes);
        }
        bool known = above + item->bytes <= a->full;
        for (size_t k = 0; k < count; k++)
            known |= limit[k] == above + item->bytes;
        if (!known)
            limit[count++] = above + item->bytes;
    }
    try_limit(a, a->full);
    for (size_t i = 0; i < count && !place_tight(a); i++)
        if (a->slots * limit[i] < a->scratch + a->slots * a->slot)
            try_limit(a, limit[i]);
}

int64_t place_apart(struct lifetimes *l, int chunk, int slots) {
    struct apart a = {.placing = placing_create(l, chunk), .l = l, .slots = slots};
    struct placing *p = &a.placing;
    size_t total = l->allocations.count;
    a.live = mem_alloc(((size_t)l->length + 1) * sizeof *a.live);
    a.scope = mem_alloc(total * sizeof *a.scope);
    a.offset = mem_alloc(total * sizeof *a.offset);
    // All that crosses templates lives where they meet. What lives longest goes lowest, so that the room is above it.
    place_choose(p, total, SCOPE_SLOT, false);
    place_sort(p, by_lifetime);
    a.full = place(p);
    if (a.full > (int64_t)(TIGHT * (double)place_bound(p)))
        a.full = place_region(p, total);
    a.least = least_bytes(l, chunk, slots, a.full);
    a.slot = a.full;
    place_choose(p, total, SCOPE_LOCAL, false);
    a.scratch = place_region(p, total);
    for (size_t i = 0; i < total; i++) {
        a.scope[i] = p->item[i].scope;
        a.offset[i] = p->item[i].offset;
    }
    if (!place_tight(&a))
        try_limits(&a);
    for (size_t i = 0; i < total; i++) {
        if (p->item[i].scope == SCOPE_LOCAL && a.scope[i] == SCOPE_SLOT)
            p->item[i].pool = chunk;
        p->item[i].scope = a.scope[i];
        p->item[i].offset = a.offset[i];
    }
    free(a.live);
    free(a.scope);
    free(a.offset);
    placing_release(p);
    return a.slot;
}
