#include "memory/join.h"

#include "memory/place.h"

struct member {
    int pool, from, to; // templates
    int first, last, allocation;
};
typedef VEC(struct member) members;

static int template_at(const struct lifetimes *l, size_t templates, int time) {
    int at = NONE;
    for (size_t t = 0; t < templates; t++)
        if (l->start[t] >= 0 && l->start[t] <= time && (at == NONE || l->start[t] > l->start[at]))
            at = (int)t;
    return at;
}

static bool join_are_alike(const struct member *a, const struct member *b) {
    return a->pool == b->pool && a->from == b->from && a->to == b->to;
}

static int join_compare(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    const int order[] = {x->pool - y->pool, x->from - y->from,   x->to - y->to,
                         x->last - y->last, y->first - x->first, x->allocation - y->allocation};
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++)
        if (order[i])
            return order[i];
    return 0;
}

// Allocations that may be joined: those alike side by side, in the order in which they die.
static members find_members(const struct lifetimes *l, const struct program *program) {
    members all = {0};
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (a->bytes == 0 || a->scope != SCOPE_SLOT || a->lingers || a->once)
            continue;
        VEC_PUSH(&all, (struct member){.pool = a->pool,
                                       .from = template_at(l, program->templates.count, a->first),
                                       .to = template_at(l, program->templates.count, a->last),
                                       .first = a->first,
                                       .last = a->last,
                                       .allocation = (int)i});
    }
    VEC_SORT(&all, join_compare);
    return all;
}

static int join_add_block(struct joined *j, const struct lifetimes *l, int allocation) {
    VEC_PUSH(&j->blocks.allocations, l->allocations.item[allocation]);
    return (int)j->blocks.allocations.count - 1;
}

static void add_joined(struct joined *j, struct lifetimes *l, const struct member *member, size_t count) {
    int block = join_add_block(j, l, member[0].allocation), *which = mem_alloc(count * sizeof *which);
    for (size_t i = 0; i < count; i++) {
        which[i] = member[i].allocation;
        j->block[which[i]] = block;
    }
    j->blocks.allocations.item[block].bytes = place_some(l, which, count);
    for (size_t i = 0; i < count; i++)
        j->inside[which[i]] = l->allocations.item[which[i]].offset;
    free(which);
}

// Joins allocations that are alike: into one block, or if they cross templates into `blocks` blocks of about as many
// bytes.
static void join_alike(struct joined *j, struct lifetimes *l, const struct member *member, size_t count,
                       size_t blocks) {
    int64_t all = 0, so_far = 0;
    for (size_t i = 0; i < count; i++)
        all += l->allocations.item[member[i].allocation].bytes;
    blocks = member[0].from == member[0].to ? 1 : MIN(MAX(blocks, 1), count);
    size_t begin = 0, made = 0;
    for (size_t i = 0; i < count; i++) {
        so_far += l->allocations.item[member[i].allocation].bytes;
        bool full = (double)so_far * (double)blocks >= (double)all * (double)(made + 1);
        if (i + 1 < count && !full)
            continue;
        add_joined(j, l, member + begin, i + 1 - begin);
        begin = i + 1;
        made++;
    }
}

static void join(struct joined *j, struct lifetimes *l, const struct program *program, size_t most) {
    members all = find_members(l, program);
    size_t kinds = 0, crossing = 0, room = most / (size_t)program->microbatches;
    for (size_t i = 0; i < all.count; i++)
        if (i == 0 || !join_are_alike(&all.item[i], &all.item[i - 1])) {
            kinds++;
            crossing += all.item[i].from != all.item[i].to;
        }
    size_t blocks = crossing && room > kinds ? 1 + (room - kinds) / crossing : 1;
    for (size_t i = 0, n; i < all.count; i += n) {
        for (n = 1; i + n < all.count && join_are_alike(&all.item[i], &all.item[i + n]);)
            n++;
        join_alike(j, l, &all.item[i], n, blocks);
    }
    VEC_RELEASE(&all);
}

// The ranges of a block's allocations for one microbatch become one range.
static void join_ranges(struct joined *j, const struct program *program, const struct live_ranges *ranges) {
    size_t columns = (size_t)program->microbatches + 1, cells = j->blocks.allocations.count * columns;
    int *at = mem_alloc(cells * sizeof *at);
    for (size_t i = 0; i < cells; i++)
        at[i] = NONE;
    for (size_t i = 0; i < ranges->items.count; i++) {
        struct live_range r = ranges->items.item[i];
        r.allocation = j->block[r.allocation];
        if (r.allocation == NONE)
            continue;
        size_t column = r.microbatch == NONE ? columns - 1 : (size_t)r.microbatch;
        int *cell = &at[(size_t)r.allocation * columns + column];
        if (*cell == NONE) {
            *cell = (int)j->ranges.items.count;
            VEC_PUSH(&j->ranges.items, r);
            continue;
        }
        struct live_range *whole = &j->ranges.items.item[*cell];
        whole->first = MIN(whole->first, r.first);
        whole->last = MAX(whole->last, r.last);
        whole->from = MIN(whole->from, r.from);
        whole->to = MAX(whole->to, r.to);
    }
    free(at);
}

void joined_create(struct joined *j, struct lifetimes *l, const struct program *program,
                   const struct live_ranges *ranges, size_t most) {
    *j = (struct joined){.block = mem_alloc(l->allocations.count * sizeof(int)),
                         .inside = mem_alloc(l->allocations.count * sizeof(int64_t))};
    for (size_t i = 0; i < l->allocations.count; i++)
        j->block[i] = NONE;
    if (ranges->items.count > most)
        join(j, l, program, most);
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        bool placed = a->bytes > 0 && (a->scope == SCOPE_LOCAL || !a->lingers || a->once);
        if (placed && j->block[i] == NONE)
            j->block[i] = join_add_block(j, l, (int)i);
    }
    join_ranges(j, program, ranges);
}

void joined_release(struct joined *j) {
    VEC_RELEASE(&j->blocks.allocations);
    live_ranges_release(&j->ranges);
    free(j->block);
    free(j->inside);
}
