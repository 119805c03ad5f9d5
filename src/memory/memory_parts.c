// Slots of one size give each microbatch, at all times, as much memory as it ever needs. Where that is a waste, each
// allocation gets an address for each microbatch; those that keep their distances in all microbatches form one part of
// their pool.
#include "memory/join.h"
#include "memory/place.h"

// Times the most bytes that live at one time: what is aimed at, and what is good enough where that is hard to find.
static const double TIGHT = 1.002, FAIR = 1.0198;
// The most ranges that are placed one by one, times the microbatches that are held at a time: the more of these, the
// more ranges a new one has to be compared with.
enum { COMPARED = 1 << 19 };

// Leaves what lingers in slots of one size, one after another, and adds to slot_bytes[pool]. Returns the bytes of all.
static int64_t place_lingering(const struct program *p, struct lifetimes *l, int64_t *slot_bytes) {
    int64_t all = 0;
    for (size_t i = 0; i < l->allocations.count; i++) {
        struct allocation *a = &l->allocations.item[i];
        if (a->scope != SCOPE_SLOT || !a->lingers || a->once)
            continue;
        a->offset = slot_bytes[a->pool];
        slot_bytes[a->pool] += a->bytes;
        all += a->bytes * p->pools.item[a->pool].slots;
    }
    return all;
}

struct pool_part {
    int pool;          // that it is part of
    const int64_t *at; // [microbatches]: where its first allocation lies
    int64_t lowest;    // where its lowest allocation lies, from there
};
typedef VEC(struct pool_part) part_list;

static bool moves_along(const int64_t *a, const int64_t *b, int microbatches) {
    for (int m = 1; m < microbatches; m++)
        if (a[m] - b[m] != a[0] - b[0])
            return false;
    return true;
}

// The part that an allocation at these offsets belongs to, which is added where there is none.
static int find_part(part_list *parts, int pool, const int64_t *at, int microbatches) {
    size_t i = 0;
    while (i < parts->count && (parts->item[i].pool != pool || !moves_along(at, parts->item[i].at, microbatches)))
        i++;
    if (i == parts->count)
        VEC_PUSH(parts, (struct pool_part){pool, at, 0});
    parts->item[i].lowest = MIN(parts->item[i].lowest, at[0] - parts->item[i].at[0]);
    return (int)i;
}

static void add_pool(struct program *p, const struct pool_part *part) {
    int slots = 0, *slot = mem_alloc((size_t)p->microbatches * sizeof *slot), number = (int)p->pools.count;
    int64_t *base = mem_alloc((size_t)p->microbatches * sizeof *base);
    for (int m = 0; m < p->microbatches; m++) {
        int64_t at = p->arena[SPACE_DEVICE].scratch_base + part->at[m] + part->lowest;
        while (slot[m] < slots && base[slot[m]] != at)
            slot[m]++;
        base[slot[m]] = at;
        slots = MAX(slots, slot[m] + 1);
    }
    program_pool(p, number, p->pools.item[part->pool].chunk, slots, slot);
    p->pools.item[number].part_of = part->pool;
    memcpy(p->pools.item[number].base[SPACE_DEVICE], base, (size_t)slots * sizeof *base);
    free(slot);
    free(base);
}

// [allocations][microbatches]: the offset of each allocation for each microbatch, any one if the microbatch does not
// use it; -1: it is not placed here. Also sets the offsets of LOCAL allocations.
static int64_t *parts_tabulate(const struct program *p, struct lifetimes *l, const struct joined *joined) {
    size_t n = (size_t)p->microbatches, blocks = joined->blocks.allocations.count;
    int64_t *of_block = mem_alloc(blocks * n * sizeof *of_block),
            *at = mem_alloc(l->allocations.count * n * sizeof *at);
    for (size_t i = 0; i < blocks * n; i++)
        of_block[i] = -1;
    for (size_t i = 0; i < joined->ranges.items.count; i++) {
        const struct live_range *r = &joined->ranges.items.item[i];
        of_block[(size_t)r->allocation * n + (size_t)(r->microbatch == NONE ? 0 : r->microbatch)] = r->offset;
    }
    for (size_t i = 0; i < l->allocations.count * n; i++)
        at[i] = -1;
    for (size_t i = 0; i < l->allocations.count; i++) {
        if (joined->block[i] == NONE)
            continue;
        struct allocation *a = &l->allocations.item[i];
        const int64_t *of = of_block + (size_t)joined->block[i] * n;
        size_t used = 0;
        while (used + 1 < n && of[used] < 0)
            used++;
        if (a->scope == SCOPE_LOCAL)
            a->offset = of[used] + joined->inside[i];
        for (size_t m = 0; m < n && a->scope != SCOPE_LOCAL; m++)
            at[i * n + m] = of[of[m] < 0 ? used : m] + joined->inside[i];
    }
    free(of_block);
    return at;
}

static void make_parts(struct program *p, struct lifetimes *l, const struct joined *joined) {
    part_list all = {0};
    size_t whole = p->pools.count, n = (size_t)p->microbatches;
    int64_t *at = parts_tabulate(p, l, joined);
    int *part = mem_alloc(l->allocations.count * sizeof *part);
    for (size_t i = 0; i < l->allocations.count; i++) {
        part[i] = NONE;
        if (at[i * n] >= 0)
            part[i] = find_part(&all, l->allocations.item[i].pool, at + i * n, p->microbatches);
    }
    for (size_t i = 0; i < all.count; i++)
        add_pool(p, &all.item[i]);
    for (size_t i = 0; i < l->allocations.count; i++)
        if (part[i] != NONE) {
            const struct pool_part *of = &all.item[part[i]];
            l->allocations.item[i].offset = at[i * n] - of->at[0] - of->lowest;
            l->allocations.item[i].pool = (int)whole + part[i];
        }
    VEC_RELEASE(&all);
    free(part);
    free(at);
}

static size_t count_slots(const struct program *p) {
    size_t slots = 0;
    for (size_t i = 0; i < p->pools.count; i++)
        slots += p->pools.item[i].chunk == (int)i ? (size_t)p->pools.item[i].slots : 0;
    return MAX(slots, 1);
}

bool plan_parts(struct program *p, const struct op_table *table, struct room *room, bool always) {
    struct lifetimes l;
    struct live_ranges ranges;
    lifetimes_create(&l, p, table, SPACE_DEVICE, true);
    live_ranges_create(&ranges, &l, p);
    int64_t *slot_bytes = mem_alloc(p->pools.count * sizeof *slot_bytes);
    int64_t least = most_live_bytes(p, &l, &ranges),
            rest = p->arena[SPACE_DEVICE].fixed_bytes + place_lingering(p, &l, slot_bytes);
    struct joined joined;
    joined_create(&joined, &l, p, &ranges, (size_t)COMPARED / count_slots(p));
    int64_t enough = (int64_t)(TIGHT * (double)least) - rest, fair = (int64_t)(FAIR * (double)least) - rest;
    room->bytes -= rest;
    int64_t region = place_step(&joined.ranges, &joined.blocks, enough, fair, room, p->microbatches);
    bool better = always || rest + region < p->arena[SPACE_DEVICE].step_bytes;
    if (better) {
        plan_arena(p, SPACE_DEVICE, region, slot_bytes);
        make_parts(p, &l, &joined);
        set_offsets(p, &l);
    }
    free(slot_bytes);
    joined_release(&joined);
    live_ranges_release(&ranges);
    lifetimes_release(&l);
    return better;
}
