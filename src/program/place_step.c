// Greedy, as place.c does it, for ranges as many as microbatches times allocations: class after class, the largest or
// those that live longest first, each range at the lowest offset where nothing that is in use at the same time stands.
// Ranges of a class are of one size and come in the order of time, so that only what is in use around that time has to
// be looked at. As long as the result is not tight, the skyline is tried, the largest take turns at several places, and
// the order of classes is varied.
#include "base/rng.h"
#include "program/place.h"
#include "program/spans.h"

static const int64_t WORK = 3000000; // pairs of ranges that may be compared, or 8 moved, while orders are varied
enum {
    HOLES = 50,    // of the whole, that orders may leave
    LARGE = 20,    // of the whole: a large class
    TURNS = 6,     // places at which it takes turns, at most
    FEW = 1 << 20, // bytes
};

// from..to of `order`.
struct range_class {
    int64_t bytes;
    size_t from, to;
    int turns; // 0, or it is placed first: each microbatch's one `distance` further than the one's before, of so many
    int64_t distance;
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
    int64_t work;                    // so far
};

static void forget_before(spans *active, int time) {
    size_t kept = 0;
    for (size_t i = 0; i < active->count; i++)
        if (active->item[i].last >= time)
            active->item[kept++] = active->item[i];
    active->count = kept;
}

// Both by time.
static void merge(spans *placed, const spans *more) {
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
    size_t next = 0, many = 64; // of which most may be over
    int64_t top = 0, turn = 0;
    s->active.count = 0;
    for (size_t i = c->from; i < c->to; i++) {
        struct live_range *r = &s->item[s->order[i]];
        if (s->active.count > many) {
            forget_before(&s->active, r->first);
            many = 2 * s->active.count + 64;
        }
        for (; next < s->placed.count && s->placed.item[next].first <= r->last; next++)
            if (s->placed.item[next].last >= r->first) {
                VEC_PUSH(&more, s->placed.item[next]); // work is counted as if each moved the others by itself
                s->work += (int64_t)(s->active.count + more.count) / 8;
            }
        spans_merge(&s->active, &more);
        s->work += (int64_t)s->active.count;
        turn += i > c->from && s->item[s->order[i - 1]].microbatch != r->microbatch;
        r->offset = c->turns ? turn % c->turns * c->distance : spans_lowest(&s->active, r->first, r->last, c->bytes);
        struct span span = {r->offset, r->offset + c->bytes, r->first, r->last};
        spans_insert(&s->active, span);
        s->work += (int64_t)s->active.count / 8;
        VEC_PUSH(&mine, span);
        top = MAX(top, span.end);
    }
    merge(&s->placed, &mine);
    s->work += (int64_t)s->placed.count;
    VEC_RELEASE(&mine);
    VEC_RELEASE(&more);
    return top;
}

// Returns the bytes that all span, and the class that spans most. Once those are more than `most` they do not matter:
// then some classes have not been placed.
static int64_t place(struct stepping *s, int64_t most, size_t *highest) {
    int64_t top = 0;
    s->placed.count = 0;
    for (size_t i = 0; i < s->classes.count && top <= most; i++) {
        int64_t reached = place_class(s, &s->classes.item[i]);
        if (reached > top)
            *highest = i;
        top = MAX(top, reached);
    }
    return top;
}

// ---- orders

// What comes first, behind what is of no microbatch: the largest; what lives longest; or what crosses invocations, as
// they begin.
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
        return x->from < y->from ? -1 : 1;
    return (p < q) - (p > q);
}

static int compare(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b;
    const struct live_range *x = &c->s->item[i], *y = &c->s->item[k];
    int order = compare_classes(c, x, y);
    if (order)
        return order;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (i > k) - (i < k);
}

static void arrange(struct stepping *s, enum order by) {
    struct sort_context context = {s, by};
    qsort_r(s->order, s->count, sizeof *s->order, compare, &context);
    s->classes.count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct live_range *r = &s->item[s->order[i]];
        if (i == 0 || compare_classes(&context, &s->item[s->order[i - 1]], r))
            VEC_PUSH(&s->classes, (struct range_class){.bytes = s->allocation[r->allocation].bytes, .from = i});
        s->classes.item[s->classes.count - 1].to = i + 1;
    }
}

// Each class looks at all that is placed.
static bool too_many(const struct stepping *s) {
    return (int64_t)(s->classes.count * s->count) > WORK;
}

static void move_up(struct stepping *s, size_t from, size_t to) {
    struct range_class c = s->classes.item[from];
    memmove(&s->classes.item[to + 1], &s->classes.item[to], (from - to) * sizeof c);
    s->classes.item[to] = c;
}

struct best {
    int64_t top;
    int64_t *offset; // by range
    int64_t end;     // bytes at which no better is looked for
};

static void note(struct best *best, const struct stepping *s, int64_t top) {
    if (top >= best->top)
        return;
    best->top = top;
    for (size_t i = 0; i < s->count; i++)
        best->offset[s->order[i]] = s->item[s->order[i]].offset;
}

static struct in_use *in_use_all(const struct stepping *s) {
    struct in_use *all = mem_alloc(s->count * sizeof *all);
    for (size_t i = 0; i < s->count; i++)
        all[i] = (struct in_use){s->item[i].first, s->item[i].last, s->allocation[s->item[i].allocation].bytes, 0};
    return all;
}

// Where classes in order leave holes.
static void try_skyline(const struct stepping *s, struct best *best, int64_t enough) {
    if (best->top <= best->end || best->top - enough < enough / HOLES)
        return;
    struct in_use *all = in_use_all(s);
    int64_t top = place_skyline(all, s->count, best->end);
    if (top < best->top)
        for (size_t i = 0; i < s->count; i++)
            best->offset[i] = all[i].offset;
    best->top = MIN(best->top, top);
    free(all);
}

// A class that is larger than all others and a large part of the whole, of which one range is in use at a time; NONE
// where there is none.
static int find_largest(const struct stepping *s, int64_t whole) {
    int largest = 0;
    if (s->classes.count == 0)
        return NONE;
    for (int i = 1; i < (int)s->classes.count; i++)
        if (s->classes.item[i].bytes > s->classes.item[largest].bytes)
            largest = i;
    const struct range_class *c = &s->classes.item[largest];
    bool alone = c->bytes > whole / LARGE && c->bytes < whole;
    for (int i = 0; i < (int)s->classes.count; i++)
        alone &= i == largest || s->classes.item[i].bytes < c->bytes;
    for (size_t i = c->from + 1; i < c->to; i++)
        alone &= s->item[s->order[i]].first > s->item[s->order[i - 1]].last;
    return alone ? largest : NONE;
}

// Blocks as large as logits that are always at the same place leave a hole: what lives from one of them to the next
// cannot be there. Where they take turns at as many places as microbatches are in flight, what the last one leaves is
// room for the next microbatch. The order is by invocation.
static void take_turns(struct stepping *s, struct best *best, int64_t enough) {
    int largest = find_largest(s, enough);
    if (largest == NONE)
        return;
    move_up(s, (size_t)largest, 0);
    struct range_class *c = s->classes.item;
    size_t highest = 0;
    for (c->turns = 2; c->turns <= TURNS; c->turns++)
        for (int part = 5; part > 2 && best->top > best->end; part -= 2) { // fifths of what there is
            c->distance = (enough - c->bytes) / (c->turns - 1) / 5 * part / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
            note(best, s, place(s, best->top, &highest));
        }
}

// What stands on top is placed earlier, and every other time something else, too, as long as that helps.
static void vary(struct stepping *s, struct best *best) {
    size_t highest = 0, classes = s->classes.count, size = classes * sizeof *s->classes.item;
    struct range_class *kept = mem_alloc(size);
    int64_t least = place(s, INT64_MAX, &highest);
    for (uint64_t round = 0; classes > 1 && best->top > best->end && s->work < WORK; round++) {
        struct rng_block random = rng_philox(0, 1, round);
        size_t other = random.word[1] % classes, now = 0;
        memcpy(kept, s->classes.item, size);
        if (highest)
            move_up(s, highest, random.word[0] % highest);
        if (random.word[2] % 2 && other)
            move_up(s, other, random.word[3] % other);
        int64_t top = place(s, least, &now);
        note(best, s, top);
        if (top <= least) {
            least = top;
            highest = now;
        } else {
            memcpy(s->classes.item, kept, size);
        }
    }
    free(kept);
}

// Where more than `fair` bytes are taken, more than is enough, and more than a few: it aims at so many, then, for half
// as long, at what lies half way.
static void try_repair(const struct stepping *s, struct best *best, int64_t fair, int microbatches) {
    if (best->top <= MAX(fair, best->end) || best->top < FEW)
        return;
    int end = 0;
    struct in_use *all = in_use_all(s);
    for (size_t i = 0; i < s->count; i++)
        end = MAX(end, all[i].last);
    if (place_repair(all, s->count, fair, end / microbatches, 1) ||
        place_repair(all, s->count, fair + (best->top - fair) / 2, end / microbatches, .5)) {
        best->top = 0;
        for (size_t i = 0; i < s->count; i++) {
            best->offset[i] = all[i].offset;
            best->top = MAX(best->top, all[i].offset + all[i].bytes);
        }
    }
    free(all);
}

int64_t place_step(struct live_ranges *ranges, const struct lifetimes *l, int64_t enough, int64_t fair, int64_t room,
                   int microbatches) {
    size_t total = ranges->items.count, highest = 0;
    struct stepping s = {.item = ranges->items.item,
                         .allocation = l->allocations.item,
                         .longest = mem_alloc(l->allocations.count * sizeof(int)),
                         .order = mem_alloc(total * sizeof(int))};
    for (size_t i = 0; i < total; i++) {
        int *longest = &s.longest[s.item[i].allocation];
        *longest = MAX(*longest, s.item[i].last - s.item[i].first);
        s.order[s.count++] = (int)i;
    }
    struct best best = {INT64_MAX, mem_alloc(total * sizeof *best.offset), MAX(enough, room)};
    enum order first = BY_BYTES;
    int64_t least = INT64_MAX;
    for (int by = 0; by < ORDERS && best.top > best.end; by++) {
        arrange(&s, (enum order)by);
        if (by && too_many(&s))
            continue;
        int64_t top = place(&s, INT64_MAX, &highest);
        note(&best, &s, top);
        first = top < least ? (enum order)by : first;
        least = MIN(least, top);
    }
    try_skyline(&s, &best, enough);
    arrange(&s, BY_INVOCATION);
    if (best.top > best.end && !too_many(&s)) {
        take_turns(&s, &best, enough);
        s.work = 0;
        arrange(&s, first);
        vary(&s, &best);
    }
    if (room != ROOM_SOON)
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
