// Greedy placement, as in place.c, for as many ranges as microbatches times allocations: class after class, the largest
// or those that live longest first, each range at the lowest offset that is free while it is in use. The ranges of a
// class are of one size and come in order of time, so that only what is in use around that time has to be looked at. As
// long as the result is not tight, other orders are tried, then the skyline, then repair.
#include "memory/place.h"
#include "memory/span_list.h"

static const int64_t WORK = 3000000;            // ranges times classes: more are placed in one order alone
static const double AIMS[] = {1, .5, .25, .25}; // of the time that a repair may take, for one after another
enum {
    NEAR = 300,    // of the whole: so near to what failed nothing is aimed at
    HOLES = 50,    // the part of the whole, 1/50, that orders may waste before the skyline is tried
    FEW = 1 << 20, // bytes: fewer are not worth a repair
};

// Entries [from, to) of `order`.
struct range_class {
    int64_t bytes;
    size_t from, to;
};

struct stepping {
    struct live_range *item;
    const struct allocation *allocation;
    int *longest; // of each allocation: instructions that its longest range takes
    int *order;
    size_t count;                    // ranges to be placed
    VEC(struct range_class) classes; // in the order in which they are placed
    spans placed;                    // by time, those of earlier classes
    spans active;                    // by offset, those in use about now
};

static void forget_before(spans *active, int time) {
    size_t kept = 0;
    for (size_t i = 0; i < active->count; i++)
        if (active->item[i].last >= time)
            active->item[kept++] = active->item[i];
    active->count = kept;
}

// Merges lists that are in order of time.
static void step_merge(spans *placed, const spans *more) {
    spans all = {mem_alloc((placed->count + more->count) * sizeof *all.item), 0, placed->count + more->count};
    for (size_t i = 0, k = 0; i < placed->count || k < more->count;)
        if (k == more->count || (i < placed->count && placed->item[i].first <= more->item[k].first))
            all.item[all.count++] = placed->item[i++];
        else
            all.item[all.count++] = more->item[k++];
    VEC_RELEASE(placed);
    *placed = all;
}

static int64_t place_class(struct stepping *s, const struct range_class *c) {
    spans mine = {0}, more = {0};
    size_t next = 0, many = 64; // of so many active ones, most may be over
    int64_t top = 0;
    s->active.count = 0;
    for (size_t i = c->from; i < c->to; i++) {
        struct live_range *r = &s->item[s->order[i]];
        if (s->active.count > many) {
            forget_before(&s->active, r->first);
            many = 2 * s->active.count + 64;
        }
        for (; next < s->placed.count && s->placed.item[next].first <= r->last; next++)
            if (s->placed.item[next].last >= r->first)
                VEC_PUSH(&more, s->placed.item[next]);
        spans_merge(&s->active, &more);
        r->offset = spans_lowest(&s->active, r->first, r->last, c->bytes);
        struct span span = {r->offset, r->offset + c->bytes, r->first, r->last};
        spans_insert(&s->active, span);
        VEC_PUSH(&mine, span);
        top = MAX(top, span.end);
    }
    step_merge(&s->placed, &mine);
    VEC_RELEASE(&mine);
    VEC_RELEASE(&more);
    return top;
}

// Returns the bytes that all span.
static int64_t step_place(struct stepping *s) {
    int64_t top = 0;
    s->placed.count = 0;
    for (size_t i = 0; i < s->classes.count; i++) {
        int64_t reached = place_class(s, &s->classes.item[i]);
        top = MAX(top, reached);
    }
    return top;
}

// ---- orders

// What is placed first, after what belongs to no microbatch: the largest; what lives longest; or what crosses
// invocations, in the order in which it begins.
enum order { BY_BYTES, BY_TIME, BY_INVOCATION, ORDERS };

struct sort_context {
    const struct stepping *s;
    enum order by;
};

static int compare_classes(const struct sort_context *c, const struct live_range *x, const struct live_range *y) {
    int64_t p = c->s->allocation[x->allocation].bytes, q = c->s->allocation[y->allocation].bytes;
    int longer = c->s->longest[x->allocation] - c->s->longest[y->allocation];
    bool crosses = x->from < x->to, too = y->from < y->to;
    if ((x->microbatch == NONE) != (y->microbatch == NONE)) // lives so long that all others would be looked at
        return x->microbatch == NONE ? -1 : 1;
    if (c->by == BY_TIME && longer)
        return longer > 0 ? -1 : 1;
    if (c->by == BY_INVOCATION && crosses != too)
        return crosses ? -1 : 1;
    if (c->by == BY_INVOCATION && crosses && x->from != y->from)
        return COMPARE(x->from, y->from);
    return COMPARE(q, p);
}

static int step_compare(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b;
    const struct live_range *x = &c->s->item[i], *y = &c->s->item[k];
    return compare_classes(c, x, y) ?: COMPARE(x->first, y->first) ?: COMPARE(i, k);
}

static void step_arrange(struct stepping *s, enum order by) {
    struct sort_context context = {s, by};
    qsort_r(s->order, s->count, sizeof *s->order, step_compare, &context);
    s->classes.count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct live_range *r = &s->item[s->order[i]];
        if (i == 0 || compare_classes(&context, &s->item[s->order[i - 1]], r))
            VEC_PUSH(&s->classes, (struct range_class){.bytes = s->allocation[r->allocation].bytes, .from = i});
        s->classes.item[s->classes.count - 1].to = i + 1;
    }
}

// Whether more than one order would take too long: each class looks at all that is placed.
static bool too_many(const struct stepping *s) {
    return (int64_t)(s->classes.count * s->count) > WORK;
}

struct best {
    int64_t top;
    int64_t *offset; // by range
    int64_t end;     // bytes at which nothing better is looked for
};

static void step_note(struct best *best, const struct stepping *s, int64_t top) {
    if (top >= best->top)
        return;
    best->top = top;
    for (size_t i = 0; i < s->count; i++)
        best->offset[s->order[i]] = s->item[s->order[i]].offset;
}

static struct in_use *step_in_use_all(const struct stepping *s) {
    struct in_use *all = mem_alloc(s->count * sizeof *all);
    for (size_t i = 0; i < s->count; i++)
        all[i] = (struct in_use){s->item[i].first, s->item[i].last, s->allocation[s->item[i].allocation].bytes, 0};
    return all;
}

// Tries the skyline where the orders leave holes.
static void try_skyline(const struct stepping *s, struct best *best, int64_t enough) {
    if (best->top <= best->end || best->top - enough < enough / HOLES)
        return;
    struct in_use *all = step_in_use_all(s);
    int64_t top = place_skyline(all, s->count, best->end);
    if (top < best->top)
        for (size_t i = 0; i < s->count; i++)
            best->offset[i] = all[i].offset;
    best->top = MIN(best->top, top);
    free(all);
}

// Whether more than `fair` bytes are taken, more than is enough, and more than a few.
static bool is_worth_repair(const struct best *best, int64_t fair) {
    return best->top > MAX(fair, best->end) && best->top >= FEW;
}

// Aims at `fair` bytes; and if that fails, for less time each, half way between what failed and what is taken so far.
static void try_repair(const struct stepping *s, struct best *best, int64_t fair, int microbatches) {
    int end = 0;
    struct in_use *all = step_in_use_all(s);
    for (size_t i = 0; i < s->count; i++)
        end = MAX(end, all[i].last);
    int64_t aim = fair, failed = fair;
    for (size_t i = 0; i < ARRAY_LENGTH(AIMS) && best->top - failed > (i ? fair / NEAR : 0); i++) {
        if (place_repair(all, s->count, aim, end / microbatches, AIMS[i])) {
            best->top = 0;
            for (size_t k = 0; k < s->count; k++) {
                best->offset[k] = all[k].offset;
                best->top = MAX(best->top, all[k].offset + all[k].bytes);
            }
        } else {
            failed = aim;
        }
        aim = failed + (best->top - failed) / 2;
    }
    free(all);
}

int64_t place_step(struct live_ranges *ranges, const struct lifetimes *l, int64_t enough, int64_t fair,
                   struct room *room, int microbatches) {
    size_t total = ranges->items.count;
    struct stepping s = {.item = ranges->items.item,
                         .allocation = l->allocations.item,
                         .longest = mem_alloc(l->allocations.count * sizeof(int)),
                         .order = mem_alloc(total * sizeof(int))};
    for (size_t i = 0; i < total; i++) {
        int *longest = &s.longest[s.item[i].allocation];
        *longest = MAX(*longest, s.item[i].last - s.item[i].first);
        s.order[s.count++] = (int)i;
    }
    struct best best = {INT64_MAX, mem_alloc(total * sizeof *best.offset), MAX(enough, room->bytes)};
    for (int by = 0; by < ORDERS && best.top > best.end; by++) {
        step_arrange(&s, (enum order)by);
        if (by == 0 || !too_many(&s))
            step_note(&best, &s, step_place(&s));
    }
    try_skyline(&s, &best, enough);
    const bool worth = is_worth_repair(&best, fair);
    room->left |= worth && room->hurried;
    if (worth && !room->hurried)
        try_repair(&s, &best, fair, microbatches);
    for (size_t i = 0; i < s.count; i++)
        s.item[s.order[i]].offset = best.offset[s.order[i]];
    free(best.offset);
    free(s.longest);
    free(s.order);
    VEC_RELEASE(&s.classes);
    VEC_RELEASE(&s.placed);
    VEC_RELEASE(&s.active);
    return best.top;
}
