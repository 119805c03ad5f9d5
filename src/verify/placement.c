#include "verify/placement.h"

#include "verify/proofs.h"

#include <ctype.h>

// ---- orders of axes

axis_order order_of(axis_set axes) {
    axis_order order = 0;
    int shift = 0;
    FOR_AXES(a, axes) {
        order |= (axis_order)(a + 1) << shift;
        shift += LEVEL_BITS;
    }
    return order;
}

int order_levels(axis_order order) {
    int levels = 0;
    for (; order; order >>= LEVEL_BITS)
        levels++;
    return levels;
}

axis_order order_within(axis_order outer, axis_set axes) {
    const axis_order inner = order_of(axes);
    return outer << LEVEL_BITS * order_levels(inner) | inner;
}

bool order_ends_with(axis_order order, axis_set axes) {
    const axis_order inner = order_of(axes);
    return !(order & ROWS_SENT) && (order & (((axis_order)1 << LEVEL_BITS * order_levels(inner)) - 1)) == inner;
}

axis_order order_without(axis_order order, axis_set axes) {
    axis_order rest = 0;
    if (order & ROWS_SENT)
        return order;
    for (int k = order_levels(order); k-- > 0;) {
        const axis_order level = order >> LEVEL_BITS * k & ((1 << LEVEL_BITS) - 1);
        if (!(axes & AXES(level - 1)))
            rest = rest << LEVEL_BITS | level;
    }
    return rest;
}

// ---- dims

bool placement_of_rows(const struct placement *p, int root) {
    const enum buffer_kind kind = p->program->buffers.item[root].kind;
    return (kind == KIND_ACT || kind == KIND_INPUT) && !p->updating[root];
}

axis_set placement_family(const struct placement *p, int root, int axis) {
    const axis_set model = AXES_TENSOR | AXES(AXIS_PP);
    if (AXES(axis) & model)
        return model;
    if (!(AXES(axis) & AXES_DATA))
        return AXES(axis);
    return !placement_of_rows(p, root) ? AXES_DATA : AXES(axis) & AXES_PARTS ? AXES_PARTS : AXES_SEQUENCES;
}

static struct held held_of_dim(const struct operand *view, int dim, axis_order joint) {
    if (dim == 0)
        return (struct held){HOLDS_BLOCK, joint, 0, 0};
    return (struct held){HOLDS_BAND, joint, view->stride[dim], view->dim[dim]};
}

struct held placement_declared(const struct placement *p, int buffer, int axis) {
    const struct buffer *b = &p->program->buffers.item[buffer];
    int8_t place = b->placement[axis];
    if (place == PLACE_OWN)
        return (struct held){HOLDS_BLOCK, 0, 0, 0};
    if (place < PLACE_SHARD(0))
        return (struct held){place == PLACE_SUM ? HOLDS_SUM : place == PLACE_MAX ? HOLDS_MAX : HOLDS_SAME, 0, 0, 0};
    axis_set joint = AXES_NONE;
    FOR_AXES(a, placement_family(p, buffer, axis) & p->axes)
        if (b->placement[a] == place)
            joint |= AXES(a);
    struct operand whole = operand_whole(p->program, buffer);
    return held_of_dim(&whole, place - PLACE_SHARD(0), order_of(joint));
}

// The dim of the view that a part is split along; NONE where no dim of the view is. Dims of extent one may lie on
// either side of a boundary: then it is one that may be split. A band of one index shows in no dim: then it is the dim
// that runs over it.
static int split_dim(const struct held *held, const struct operand *view, const char *letters) {
    int hit = NONE, one = NONE, over = NONE;
    if (held->holds == HOLDS_BLOCK) {
        hit = 0;
        for (int i = 1; i < view->ndim; i++)
            if (view->stride[i] > view->stride[hit])
                hit = i;
        return hit;
    }
    int64_t begin = held->stride, end = held->stride * held->extent;
    for (int i = 0; i < view->ndim; i++) {
        int64_t low = view->stride[i], high = low * view->dim[i];
        if (view->dim[i] == 1 && begin <= low && low <= end && islower((unsigned char)letters[i]))
            one = i;
        else if (view->dim[i] > 1 && hit == NONE && low < end && (held->extent > 1 ? high > begin : high >= begin))
            hit = i;
        else if (view->dim[i] > 1 && held->extent == 1 && low == begin)
            over = i;
    }
    if (hit != NONE && (one == NONE || islower((unsigned char)letters[hit])))
        return hit;
    return one != NONE ? one : over;
}

static struct seen seen_as(const struct held *held, const struct operand *view, const char *letters) {
    switch (held->holds) {
    case HOLDS_SAME:
        return (struct seen){SEEN_SAME, NONE, 0};
    case HOLDS_ZERO:
        return (struct seen){SEEN_ZERO, NONE, 0};
    case HOLDS_SUM:
        return (struct seen){SEEN_SUM, NONE, 0};
    case HOLDS_MAX:
        return (struct seen){SEEN_MAX, NONE, 0};
    default:
        return (struct seen){SEEN_SPLIT, held->joint ? split_dim(held, view, letters) : 0, held->joint};
    }
}

static struct held held_as(const struct seen *seen, const struct operand *view) {
    static const enum holds HOLDS[] = {HOLDS_SAME, HOLDS_ZERO, HOLDS_SUM, HOLDS_MAX};
    if (seen->as == SEEN_SPLIT)
        return held_of_dim(view, seen->dim, seen->joint);
    return (struct held){HOLDS[seen->as], 0, 0, 0};
}

// ---- parts

static bool held_equal(const struct held *a, const struct held *b) {
    return a->holds == b->holds && a->joint == b->joint && a->stride == b->stride && a->extent == b->extent;
}

static uint64_t placement_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

// Where a value stands in the hash table, or the free slot where it would.
static size_t held_slot(const struct held_table *t, const struct held *held) {
    uint64_t hash = placement_mix(placement_mix(1, (uint64_t)held->holds), held->joint);
    hash = placement_mix(placement_mix(hash, (uint64_t)held->stride), (uint64_t)held->extent);
    size_t at = hash & (t->slots - 1);
    while (t->number[at] && !held_equal(&t->held.item[t->number[at] - 1], held))
        at = (at + 1) & (t->slots - 1);
    return at;
}

static void held_grow(struct held_table *t) {
    free(t->number);
    t->slots = MAX(t->slots * 2, (size_t)256);
    t->number = mem_alloc(t->slots * sizeof *t->number);
    for (size_t k = 0; k < t->held.count; k++) {
        size_t at = held_slot(t, &t->held.item[k]);
        t->number[at] = (uint32_t)(k + 1);
    }
}

static void part_hold(const struct placement *p, struct part *part, int axis, struct held held) {
    struct held_table *t = p->table;
    size_t at = held_slot(t, &held);
    if (!t->number[at]) {
        VEC_PUSH(&t->held, held);
        t->number[at] = (uint32_t)t->held.count;
        if (2 * t->held.count > t->slots)
            held_grow(t);
        part->along[axis] = (uint32_t)(t->held.count - 1);
        return;
    }
    part->along[axis] = (uint32_t)(t->number[at] - 1);
}

static bool placed_alike(const struct placement *p, const struct part *a, const struct part *b) {
    FOR_AXES(axis, p->axes)
        if (a->along[axis] != b->along[axis])
            return false;
    return true;
}

static uint64_t hash_of(const struct placement *p, int root, const struct part *part) {
    const struct footprint *w = &part->where;
    uint64_t hash = placement_mix(placement_mix(1, (uint64_t)root), part->own);
    hash = placement_mix(placement_mix(hash, (uint64_t)w->stride), (uint64_t)w->first_row);
    hash =
        placement_mix(placement_mix(placement_mix(hash, (uint64_t)w->last_row), (uint64_t)w->begin), (uint64_t)w->end);
    FOR_AXES(a, p->axes)
        hash = placement_mix(hash, part->along[a]);
    return hash;
}

// Adds what is left of a range once another has been taken from it.
static void keep_rest(struct placement *p, int root, const struct part *old, const struct footprint *taken) {
    struct parts *parts = &p->of[root];
    for (int behind = 0; behind <= 1; behind++) {
        struct part rest = *old;
        rest.where.begin = behind ? MAX(old->where.begin, taken->end) : old->where.begin;
        rest.where.end = behind ? old->where.end : MIN(old->where.end, taken->begin);
        if (rest.where.begin >= rest.where.end)
            continue;
        p->hash ^= hash_of(p, root, &rest);
        VEC_PUSH(parts, rest);
    }
}

// Whether it is a flat buffer of tensors, one after another. It has no dim that could be named as split; each tensor's
// own dim is declared.
static bool placement_is_unit(const struct placement *p, int root) {
    return p->first_slice[root] != NONE;
}

// Whether both are neighbouring ranges that ranks hold alike, and so can be one part: logits that are made in thousands
// of pieces would else leave as many parts in what follows from them.
static bool are_one(const struct placement *p, int root, const struct part *a, const struct part *b) {
    return !placement_is_unit(p, root) && a->where.stride == 0 && b->where.stride == 0 && a->own == AXES_NONE &&
           b->own == AXES_NONE && (a->where.end == b->where.begin || b->where.end == a->where.begin) &&
           placed_alike(p, a, b);
}

// Records the part, in place of all that it covers.
static void placement_put(struct placement *p, int root, struct part part) {
    struct parts *parts = &p->of[root];
    const struct footprint where = part.where;
    size_t count = parts->count, kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct part old = parts->item[i];
        bool ranges = old.where.stride == 0 && where.stride == 0 && old.own == AXES_NONE;
        bool gone = footprint_contains(&where, &old.where);
        bool cut = !gone && ranges && footprint_overlap(&where, &old.where);
        bool joined = !gone && are_one(p, root, &old, &part);
        if (gone || cut || joined)
            p->hash ^= hash_of(p, root, &old);
        if (cut)
            keep_rest(p, root, &old, &where); // behind `count`
        if (joined) {
            part.where.begin = MIN(part.where.begin, old.where.begin);
            part.where.end = MAX(part.where.end, old.where.end);
        }
        if (!gone && !cut && !joined)
            parts->item[kept++] = old;
    }
    for (size_t i = count; i < parts->count; i++)
        parts->item[kept++] = parts->item[i];
    parts->count = kept;
    p->hash ^= hash_of(p, root, &part);
    VEC_PUSH(parts, part);
}

static struct part like_slice(const struct placement *p, const struct part *flat, int slice) {
    struct part part = *flat;
    struct operand whole = operand_whole(p->program, slice);
    footprint_of(p->program, &whole, &part.where);
    FOR_AXES(a, p->axes)
        if (p->program->buffers.item[slice].placement[a] >= PLACE_SHARD(0) &&
            part_held(p, flat, a).holds == HOLDS_BLOCK)
            part_hold(p, &part, a, placement_declared(p, slice, a));
    return part;
}

// The same for a range of a flat buffer: the tensors in it are recorded with their own dims.
static void put_flat(struct placement *p, int root, const struct part *flat) {
    placement_put(p, root, *flat);
    if (flat->where.stride != 0 || flat->own != AXES_NONE)
        return;
    for (int s = p->first_slice[root]; s != NONE; s = p->next_slice[s]) {
        struct part part = like_slice(p, flat, s);
        if (footprint_contains(&flat->where, &part.where))
            placement_put(p, root, part);
    }
}

// ---- whole buffers

static struct part part_declared(const struct placement *p, int buffer) {
    struct part part = {0};
    struct operand whole = operand_whole(p->program, buffer);
    footprint_of(p->program, &whole, &part.where);
    FOR_AXES(a, p->axes)
        part_hold(p, &part, a, placement_declared(p, buffer, a));
    return part;
}

// Says of a declared whole that each rank has only its own part along `own`.
static void keep_own(const struct placement *p, struct part *part, axis_set own) {
    part->own = own;
    FOR_AXES(a, own)
        part_hold(p, part, a, (struct held){HOLDS_BLOCK, order_of(own), 0, 0});
}

void placement_write_buffer(struct placement *p, int buffer, const struct seen *seen) {
    struct part part = part_declared(p, buffer);
    struct operand whole = operand_whole(p->program, buffer);
    FOR_AXES(a, seen ? p->axes : AXES_NONE)
        part_hold(p, &part, a, held_as(&seen[a], &whole));
    if (!seen)
        keep_own(p, &part, p->program->buffers.item[buffer].own);
    put_flat(p, program_root(p->program, buffer), &part);
}

struct slice {
    int64_t offset;
    int buffer;
};

static int compare_slices(const void *a, const void *b) {
    int64_t x = ((const struct slice *)a)->offset, y = ((const struct slice *)b)->offset;
    return COMPARE(x, y);
}

// Links the tensors of each flat buffer, in the order in which they lie. Slices that overlap others are no tensors of
// it.
static void find_slices(struct placement *p) {
    const struct program *program = p->program;
    VEC(struct slice) all = {0};
    for (size_t i = 0; i < program->buffers.count; i++) {
        p->first_slice[i] = p->next_slice[i] = NONE;
        const struct buffer *b = &program->buffers.item[i];
        if (b->parent != NONE && program->buffers.item[b->parent].parent == NONE &&
            (b->kind == KIND_PARAM || b->kind == KIND_GRAD))
            VEC_PUSH(&all, (struct slice){b->parent_offset, (int)i});
    }
    VEC_SORT(&all, compare_slices);
    for (size_t i = all.count; i-- > 0;) {
        int slice = all.item[i].buffer, root = program->buffers.item[slice].parent, next = p->first_slice[root];
        const struct buffer *b = &program->buffers.item[slice];
        if (next != NONE && b->parent_offset + buffer_count(b) > program->buffers.item[next].parent_offset)
            continue;
        p->next_slice[slice] = next;
        p->first_slice[root] = slice;
    }
    VEC_RELEASE(&all);
}

static bool stands_before(const struct buffer *b) {
    const bool kept = b->kind == KIND_PARAM || b->kind == KIND_OPTIM;
    return b->parent == NONE && (b->kind == KIND_INPUT || b->kind == KIND_CACHE || (kept && b->scope == SCOPE_STATE));
}

static void find_updating(struct placement *p) {
    const struct program *program = p->program;
    for (size_t t = 0; t < program->templates.count; t++) {
        const struct template *of = &program->templates.item[t];
        for (size_t i = 0; i < of->instructions.count && of->phase == PHASE_OPTIMIZER; i++)
            for (int o = 0; o < of->instructions.item[i].outputs; o++) {
                const int buffer = of->instructions.item[i].out[o].buffer;
                if (buffer != NONE && program->buffers.item[buffer].scope == SCOPE_LOCAL)
                    p->updating[program_root(program, buffer)] = true;
            }
    }
}

void placement_create(struct placement *p, const struct program *program) {
    *p = (struct placement){.program = program, .axes = mesh_present(&program->mesh, AXES_ALL)};
    p->table = mem_alloc(sizeof *p->table);
    held_grow(p->table);
    VEC_PUSH(&p->table->held, (struct held){0});
    held_grow(p->table);
    size_t n = program->buffers.count;
    p->of = mem_alloc(n * sizeof *p->of);
    p->updating = mem_alloc(n * sizeof *p->updating);
    p->first_slice = mem_alloc(n * sizeof *p->first_slice);
    p->next_slice = mem_alloc(n * sizeof *p->next_slice);
    find_slices(p);
    find_updating(p);
    for (size_t i = 0; i < n; i++)
        if (stands_before(&program->buffers.item[i]))
            placement_write_buffer(p, (int)i, NULL);
}

void placement_release(struct placement *p) {
    for (size_t i = 0; i < p->program->buffers.count; i++)
        VEC_RELEASE(&p->of[i]);
    free(p->of);
    free(p->table->number);
    VEC_RELEASE(&p->table->held);
    free(p->table);
    free(p->updating);
    free(p->first_slice);
    free(p->next_slice);
}

void placement_clear(struct placement *p, int root) {
    struct parts *parts = &p->of[root];
    for (size_t i = 0; i < parts->count; i++)
        p->hash ^= hash_of(p, root, &parts->item[i]);
    parts->count = 0;
}

static bool held_is_own(const struct held *held) {
    return held->holds == HOLDS_BLOCK && held->joint == AXES_NONE;
}

bool placement_as_declared(const struct placement *p, int root, int *axis) {
    struct part whole = part_declared(p, root);
    for (size_t i = 0; i < p->of[root].count; i++) {
        const struct part *part = &p->of[root].item[i];
        *axis = AXIS_COUNT;
        if (part->own && part->own == p->program->buffers.item[root].own)
            continue;
        if (part->own)
            return false;
        FOR_AXES(a, p->axes) {
            const struct held now = part_held(p, part, a), declared = part_held(p, &whole, a);
            const bool split = now.holds >= HOLDS_BLOCK, declared_split = declared.holds >= HOLDS_BLOCK;
            *axis = a;
            if (held_is_own(&declared) && now.holds <= HOLDS_ZERO)
                continue; // each has it for its own
            if (split != declared_split || (!split && now.holds != declared.holds) ||
                (split && now.joint != declared.joint))
                return false;
        }
    }
    return true;
}

// ---- operands

static const char *const SEEN_WORDS[] = {"the same on all ranks", "zero", "a partial sum", "a partial maximum",
                                         "split"};

static trireme_status check_own(const struct placement *p, const struct operand *o, trireme_error *error) {
    const struct buffer *b = &p->program->buffers.item[o->buffer];
    if (!o->along)
        return TRIREME_OK;
    const struct operand block = operand_shape(*o, o->ndim, o->dim); // without gaps, from the first dim on
    if (!operand_equal(o, &block) || o->offset != 0 || o->step != operand_count(o) ||
        o->step * mesh_group_size(&p->program->mesh, o->along) != buffer_count(b) || (o->along & ~p->axes))
        REFUSE("the ranks' parts of %s do not make up the whole", b->name);
    return TRIREME_OK;
}

static trireme_status placement_see(const struct placement *p, const struct operand *o, const char *letters,
                                    const struct part *part, int axis, struct seen *seen, trireme_error *error) {
    const char *name = p->program->buffers.item[o->buffer].name, *along = axis_name((enum axis)axis);
    const struct held held = part_held(p, part, axis);
    *seen = seen_as(&held, o, letters);
    if (seen->as == SEEN_SPLIT && seen->dim == NONE)
        REFUSE("%s is split along %s, of which this view shows no dim", name, along);
    if (!(o->along & AXES(axis)) || part->own)
        return TRIREME_OK;
    if (seen->as == SEEN_SPLIT)
        REFUSE("%s is split along %s already", name, along);
    if (seen->as == SEEN_SAME || seen->as == SEEN_ZERO)
        *seen = (struct seen){SEEN_SPLIT, 0, order_of(o->along)};
    return TRIREME_OK;
}

trireme_status placement_read(const struct placement *p, const struct operand *o, const char *letters,
                              struct seen seen[AXIS_COUNT], trireme_error *error) {
    const struct program *program = p->program;
    const struct parts *parts = &p->of[program_root(program, o->buffer)];
    const char *name = program->buffers.item[o->buffer].name;
    struct footprint where;
    char text[AXES_TEXT];
    TRY(check_own(p, o, error));
    footprint_of_all_ranks(p->program, o, &where);
    FOR_AXES(a, p->axes)
        seen[a] = (struct seen){SEEN_ZERO, NONE, 0};
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->item[i];
        if (!footprint_overlap(&part->where, &where))
            continue;
        if (part->own && (part->own != o->along || !footprint_equal(&part->where, &where)))
            REFUSE("of %s each rank has its own part along %s only: an all_gather is missing", name,
                   axes_print(part->own, text));
        FOR_AXES(a, p->axes) {
            struct seen this;
            TRY(placement_see(p, o, letters, part, a, &this, error));
            if (this.as == SEEN_ZERO)
                continue;
            if (seen[a].as == SEEN_ZERO)
                seen[a] = this;
            else if (seen[a].as != this.as)
                REFUSE("part of %s is %s along %s, part is %s", name, SEEN_WORDS[seen[a].as], axis_name((enum axis)a),
                       SEEN_WORDS[this.as]);
            else if (seen[a].dim != this.dim || seen[a].joint != this.joint)
                REFUSE("parts of %s are split in different ways along %s", name, axis_name((enum axis)a));
        }
    }
    return TRIREME_OK;
}

static trireme_status check_own_blocks(const struct placement *p, const struct operand *o, const struct part *part,
                                       trireme_error *error) {
    FOR_AXES(a, o->along)
        if (part_held(p, part, a).holds != HOLDS_BLOCK || part_held(p, part, a).joint != order_of(o->along))
            REFUSE("each rank writes its own part of %s along %s a value that is not split so",
                   p->program->buffers.item[o->buffer].name, axis_name((enum axis)a));
    return TRIREME_OK;
}

trireme_status placement_write(struct placement *p, const struct operand *o, const struct seen seen[AXIS_COUNT],
                               trireme_error *error) {
    struct part part = {.own = o->along};
    TRY(check_own(p, o, error));
    footprint_of_all_ranks(p->program, o, &part.where);
    FOR_AXES(a, p->axes)
        part_hold(p, &part, a, held_as(&seen[a], o));
    TRY(check_own_blocks(p, o, &part, error));
    bool flat = o->ndim == 1 && p->program->buffers.item[o->buffer].parent == NONE;
    if (flat)
        put_flat(p, program_root(p->program, o->buffer), &part);
    else
        placement_put(p, program_root(p->program, o->buffer), part);
    return TRIREME_OK;
}

// All that the parts under `where` have in common, as one part.
static trireme_status placement_merge(const struct placement *p, const struct operand *o, const struct footprint *where,
                                      struct part *out, trireme_error *error) {
    int root = program_root(p->program, o->buffer);
    struct seen seen[AXIS_COUNT];
    TRY(placement_read(p, o, "n", seen, error));
    *out = (struct part){0};
    bool found = false;
    for (size_t i = 0; i < p->of[root].count; i++) {
        const struct part *part = &p->of[root].item[i];
        if (!footprint_overlap(&part->where, where))
            continue;
        FOR_AXES(a, p->axes) {
            const struct held now = part_held(p, out, a), from = part_held(p, part, a);
            if (!found || now.holds == HOLDS_ZERO) {
                out->along[a] = part->along[a];
            } else if (from.holds != HOLDS_ZERO && out->along[a] != part->along[a]) {
                // They are parts of different tensors of a unit: nobody looks at more than their elements.
                if (!placement_is_unit(p, root))
                    REFUSE("parts of %s are split in different ways along %s", p->program->buffers.item[o->buffer].name,
                           axis_name((enum axis)a));
                part_hold(p, out, a, (struct held){HOLDS_BLOCK, from.joint, 0, 0});
            }
        }
        found = true;
    }
    FOR_AXES(a, p->axes) {
        const struct held now = part_held(p, out, a);
        if (!found)
            part_hold(p, out, a, (struct held){HOLDS_ZERO, 0, 0, 0});
        else if (placement_is_unit(p, root) && now.holds == HOLDS_BAND)
            part_hold(p, out, a, (struct held){HOLDS_BLOCK, now.joint, 0, 0});
    }
    return TRIREME_OK;
}

// The axes along which ranks have nothing but zeros. After a sum over other axes they have that sum: the same along
// these axes.
static axis_set nothing_but_zero(const struct placement *p, const struct seen seen[AXIS_COUNT]) {
    axis_set set = AXES_NONE;
    FOR_AXES(a, p->axes)
        if (seen[a].as == SEEN_ZERO)
            set |= AXES(a);
    return set;
}

// Whether blocks of the group would lie within those that the part is split into along another axis.
static bool lies_within(const struct placement *p, int root, const struct part *part, axis_set group, int axis) {
    const struct held h = part_held(p, part, axis);
    return !(group & AXES(axis)) && (p->axes & AXES(axis)) && h.holds == HOLDS_BLOCK && h.joint &&
           !(group & ~placement_family(p, root, axis));
}

// Sets what ranks hold along the group. Blocks along other axes are then split along the group too, or no longer.
static void set_group(const struct placement *p, int root, struct part *part, axis_set group, enum holds to) {
    axis_order joint = order_of(group);
    axis_set split = group;
    FOR_AXES(a, p->axes) {
        struct held h = part_held(p, part, a);
        if (to == HOLDS_BLOCK && lies_within(p, root, part, group, a)) {
            joint = order_within(h.joint, group);
            split |= AXES(a);
        } else if (to != HOLDS_BLOCK && h.holds == HOLDS_BLOCK) {
            h.joint = order_without(h.joint, group);
            part_hold(p, part, a, h);
        }
    }
    FOR_AXES(a, split) {
        struct held h = part_held(p, part, a);
        h.joint = joint;
        part_hold(p, part, a, group & AXES(a) ? (struct held){to, to == HOLDS_BLOCK ? joint : 0, 0, 0} : h);
    }
}

// What the group's ranks split further must be split in one way along all axes, and in an order of axes.
static trireme_status check_nested(const struct placement *p, const struct operand *in, const struct part *part,
                                   axis_set group, enum holds to, trireme_error *error) {
    const int root = program_root(p->program, in->buffer);
    axis_order outer = 0;
    FOR_AXES(a, to == HOLDS_BLOCK ? p->axes : AXES_NONE) {
        if (!lies_within(p, root, part, group, a))
            continue;
        const axis_order joint = part_held(p, part, a).joint;
        if ((outer && outer != joint) || joint & ROWS_SENT ||
            order_levels(joint) + order_levels(order_of(group)) > LEVELS_MAX)
            REFUSE("%s is split along %s already, in blocks that cannot be split among the group's ranks",
                   p->program->buffers.item[in->buffer].name, axis_name((enum axis)a));
        outer = joint;
    }
    return TRIREME_OK;
}

trireme_status placement_copy(struct placement *p, const struct operand *in, const struct operand *out, axis_set group,
                              enum holds to, trireme_error *error) {
    int from = program_root(p->program, in->buffer), root = program_root(p->program, out->buffer);
    struct footprint where;
    struct seen seen[AXIS_COUNT];
    TRY(check_own(p, out, error));
    TRY(placement_read(p, in, "n", seen, error));
    axis_set zero = nothing_but_zero(p, seen) & ~group;
    footprint_of_all_ranks(p->program, in, &where);
    struct part part;
    footprint_of_all_ranks(p->program, out, &part.where);
    bool in_place = from == root && in->along == out->along && footprint_equal(&where, &part.where);
    bool one_by_one = in_place;
    for (size_t i = 0; i < p->of[from].count && one_by_one; i++) {
        const struct part *now = &p->of[from].item[i];
        one_by_one = !footprint_overlap(&now->where, &where) ||
                     (footprint_contains(&where, &now->where) && now->own == out->along);
    }
    if (one_by_one) {
        struct part last;
        int changed = 0;
        for (size_t i = 0; i < p->of[from].count; i++) {
            struct part *now = &p->of[from].item[i];
            if (!footprint_overlap(&now->where, &where))
                continue;
            p->hash ^= hash_of(p, root, now);
            set_group(p, root, now, group, to);
            set_group(p, root, now, zero, HOLDS_SAME);
            p->hash ^= hash_of(p, root, now);
            last = *now;
            changed++;
        }
        if (changed == 1)
            placement_put(p, root, last); // in its own place, as one with its neighbours
        return TRIREME_OK;
    }
    struct footprint there = part.where;
    TRY(placement_merge(p, in, &where, &part, error));
    part.where = there;
    part.own = out->along;
    FOR_AXES(a, in->along)
        if (part_held(p, &part, a).holds == HOLDS_SAME)
            part_hold(p, &part, a, (struct held){HOLDS_BLOCK, order_of(in->along), 0, 0});
    TRY(check_nested(p, in, &part, group, to, error));
    set_group(p, root, &part, group, to);
    set_group(p, root, &part, zero, HOLDS_SAME);
    TRY(check_own_blocks(p, out, &part, error));
    put_flat(p, root, &part);
    return TRIREME_OK;
}
