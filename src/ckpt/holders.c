#include "ckpt/holders.h"

#include "base/xxh3.h"

// ---- shapes

static struct holder_shape shape_of(const struct holding *h) {
    struct holder_shape shape = {.columns = h->columns, .regions = h->regions, .same = h->same};
    memcpy(shape.region, h->region, (size_t)h->regions * sizeof *h->region);
    return shape;
}

static void shapes_index(struct holders *h) {
    enum { SLOTS_LEAST = 64 };
    VEC_RELEASE(&h->slot);
    const size_t slots = MAX((size_t)SLOTS_LEAST, 4 * h->shape.count);
    VEC_RESERVE(&h->slot, slots);
    memset(h->slot.item, 0, h->slot.capacity * sizeof *h->slot.item);
    for (size_t i = 0; i < h->shape.count; i++) {
        size_t at = xxh3_of(&h->shape.item[i], sizeof h->shape.item[i]) % h->slot.capacity;
        while (h->slot.item[at])
            at = (at + 1) % h->slot.capacity;
        h->slot.item[at] = (uint32_t)i + 1;
    }
}

// The number of a shape, which is added if it is new.
static uint32_t shapes_take(struct holders *h, const struct holder_shape *shape) {
    if (2 * h->shape.count >= h->slot.capacity)
        shapes_index(h);
    size_t at = xxh3_of(shape, sizeof *shape) % h->slot.capacity;
    for (; h->slot.item[at]; at = (at + 1) % h->slot.capacity)
        if (memcmp(&h->shape.item[h->slot.item[at] - 1], shape, sizeof *shape) == 0)
            return h->slot.item[at] - 1;
    VEC_PUSH(&h->shape, *shape);
    h->slot.item[at] = (uint32_t)h->shape.count;
    return (uint32_t)h->shape.count - 1;
}

// ---- lists

struct holder_entry {
    int64_t number;
    struct holder_part part;
};
struct holder_entries {
    VEC(struct holder_entry);
};

// Whether a rank is the one whose part stands for those of all that have the same.
static bool holder_is_first(const struct mesh *mesh, const struct holding *h) {
    return mesh_index(mesh, h->rank, h->same) == 0;
}

static void entries_add(struct holder_entries *entries, struct holders *h, const struct holding *holding) {
    const struct holder_shape shape = shape_of(holding);
    const struct holder_part part = {holding->held, holding->rank, shapes_take(h, &shape)};
    VEC_PUSH(entries, (struct holder_entry){holding->number, part});
}

static int compare_entries(const void *a, const void *b) {
    const struct holder_entry *x = a, *y = b;
    return COMPARE(x->number, y->number) ?: COMPARE(x->part.rank, y->part.rank)
        ?: COMPARE(x->part.held.begin, y->part.held.begin) ?: COMPARE(x->part.shape, y->part.shape);
}

static bool lists_are_alike(const struct holders *h, const struct holder_list *a, const struct holder_list *b) {
    return a->count == b->count && memcmp(a->first, b->first, (h->parameters + 1) * sizeof *a->first) == 0 &&
           (a->count == 0 || memcmp(a->item, b->item, a->count * sizeof *a->item) == 0);
}

static void list_release(struct holder_list *list) {
    VEC_RELEASE(list);
    free(list->first);
}

// Makes the list of a group, unless there is one like it; the entries are gone then.
static void holders_add_group(struct holders *h, int group, struct holder_entries *entries) {
    struct holder_list list = {.first = mem_alloc((h->parameters + 1) * sizeof *list.first)};
    VEC_SORT(entries, compare_entries);
    if (entries->count > 0) {
        list.item = mem_alloc(entries->count * sizeof *list.item);
        list.count = list.capacity = entries->count;
    }
    for (size_t i = 0; i < entries->count; i++) {
        list.item[i] = entries->item[i].part;
        list.first[entries->item[i].number + 1]++;
    }
    for (size_t i = 0; i < h->parameters; i++)
        list.first[i + 1] += list.first[i];
    VEC_RELEASE(entries);
    size_t like = 0;
    while (like < h->list.count && !lists_are_alike(h, &h->list.item[like], &list))
        like++;
    h->list_of[group] = (int)like;
    if (like < h->list.count)
        list_release(&list);
    else
        VEC_PUSH(&h->list, list);
}

static void holders_begin(struct holders *out, const struct mesh *mesh, int groups, size_t parameters) {
    *out = (struct holders){.mesh = *mesh, .groups = groups, .parameters = parameters};
    out->list_of = mem_alloc((size_t)groups * sizeof *out->list_of);
}

void holders_create(struct holders *out, const struct mesh *mesh, int groups, size_t parameters,
                    const struct holding *holding, size_t count) {
    holders_begin(out, mesh, groups, parameters);
    for (int g = 0; g < groups; g++) {
        struct holder_entries entries = {0};
        for (size_t i = 0; i < count; i++)
            if (holding[i].group == g && holder_is_first(mesh, &holding[i]))
                entries_add(&entries, out, &holding[i]);
        holders_add_group(out, g, &entries);
    }
    VEC_RELEASE(&out->slot);
}

void holders_release(struct holders *h) {
    if (!h->lent) {
        for (size_t i = 0; i < h->list.count; i++)
            list_release(&h->list.item[i]);
        VEC_RELEASE(&h->list);
        VEC_RELEASE(&h->shape);
        VEC_RELEASE(&h->slot);
        free(h->list_of);
    }
    *h = (struct holders){0};
}

size_t holders_bytes(const struct holders *h) {
    size_t bytes = h->shape.count * sizeof *h->shape.item + (size_t)h->groups * sizeof *h->list_of;
    for (size_t i = 0; i < h->list.count; i++)
        bytes +=
            h->list.item[i].count * sizeof *h->list.item[i].item + (h->parameters + 1) * sizeof *h->list.item[i].first;
    return bytes;
}

// ---- among ranks

static trireme_status holders_send(const struct holding *own, size_t count, struct communicator *all,
                                   trireme_error *error) {
    const int64_t mine = (int64_t)count;
    TRY(comm_send(all, &mine, sizeof mine, 0, error));
    return mine > 0 ? comm_send(all, own, mine * (int64_t)sizeof *own, 0, error) : TRIREME_OK;
}

static trireme_status holders_receive(struct holders *out, struct holder_entries *entries, int rank,
                                      struct communicator *all, trireme_error *error) {
    int64_t count;
    TRY(comm_receive(all, &count, sizeof count, rank, error));
    struct holding *theirs = mem_alloc((size_t)MAX(count, 1) * sizeof *theirs);
    const trireme_status status =
        count > 0 ? comm_receive(all, theirs, count * (int64_t)sizeof *theirs, rank, error) : TRIREME_OK;
    for (int64_t i = 0; i < count && status == TRIREME_OK; i++)
        entries_add(entries, out, &theirs[i]);
    free(theirs);
    return status;
}

// Rank 0 gets one group's of all ranks, one after another, so that it never has more than a rank's as they are sent.
static trireme_status holders_gather_group(struct holders *out, int group, const struct holdings *own,
                                           struct communicator *all, trireme_error *error) {
    struct holder_entries entries = {0};
    struct {
        VEC(struct holding);
    } mine = {0};
    trireme_status status = TRIREME_OK;
    const bool leads = !all || communicator_index(all) == 0;
    for (size_t i = 0; i < own->count; i++)
        if (own->item[i].group == group && holder_is_first(&out->mesh, &own->item[i]))
            VEC_PUSH(&mine, own->item[i]);
    for (size_t i = 0; i < mine.count && leads; i++)
        entries_add(&entries, out, &mine.item[i]);
    if (!leads)
        status = holders_send(mine.item, mine.count, all, error);
    for (int r = 1; all && leads && r < communicator_size(all) && status == TRIREME_OK; r++)
        status = holders_receive(out, &entries, r, all, error);
    VEC_RELEASE(&mine);
    if (leads)
        holders_add_group(out, group, &entries);
    return status;
}

static void holders_free(void *kept) {
    holders_release(kept);
    free(kept);
}

// Ranks that are threads have it together, as long as their world lives.
static trireme_status holders_lend(struct holders *h, struct communicator *all, struct world *world,
                                   trireme_error *error) {
    struct holders *kept = NULL;
    if (communicator_index(all) == 0) {
        kept = mem_alloc(sizeof *kept);
        *kept = *h;
        *h = (struct holders){0};
        world_keep(world, kept, holders_free);
    }
    TRY(comm_broadcast(all, &kept, sizeof kept, 0, error));
    holders_release(h);
    *h = *kept;
    h->lent = true;
    return TRIREME_OK;
}

// Makes an array of rank 0's count and content.
#define BROADCAST_VEC(v, all, error)                                                                           \
    ({                                                                                                         \
        int64_t vec_count = (int64_t)(v)->count;                                                               \
        trireme_status vec_status = comm_broadcast((all), &vec_count, sizeof vec_count, 0, (error));           \
        if (vec_status == TRIREME_OK && vec_count > 0) {                                                       \
            VEC_RESERVE((v), (size_t)vec_count);                                                               \
            (v)->count = (size_t)vec_count;                                                                    \
            vec_status = comm_broadcast((all), (v)->item, vec_count * (int64_t)sizeof *(v)->item, 0, (error)); \
        }                                                                                                      \
        vec_status;                                                                                            \
    })

// Each process gets its own.
static trireme_status holders_send_all(struct holders *h, struct communicator *all, trireme_error *error) {
    int64_t lists = (int64_t)h->list.count;
    TRY(BROADCAST_VEC(&h->shape, all, error));
    TRY(comm_broadcast(all, h->list_of, h->groups * (int64_t)sizeof *h->list_of, 0, error));
    TRY(comm_broadcast(all, &lists, sizeof lists, 0, error));
    while (h->list.count < (size_t)lists)
        VEC_PUSH(&h->list, (struct holder_list){.first = mem_alloc((h->parameters + 1) * sizeof(size_t))});
    for (int64_t i = 0; i < lists; i++) {
        struct holder_list *list = &h->list.item[i];
        TRY(BROADCAST_VEC(list, all, error));
        TRY(comm_broadcast(all, list->first, (int64_t)((h->parameters + 1) * sizeof *list->first), 0, error));
    }
    return TRIREME_OK;
}

trireme_status holders_gather(struct holders *out, const struct mesh *mesh, const struct holdings *own,
                              struct communicator *all, struct world *world, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    holders_begin(out, mesh, own->groups, own->parameters);
    for (int g = 0; g < own->groups && status == TRIREME_OK; g++)
        status = holders_gather_group(out, g, own, all, error);
    VEC_RELEASE(&out->slot);
    if (status == TRIREME_OK && all)
        status = world_place(world) ? holders_send_all(out, all, error) : holders_lend(out, all, world, error);
    if (status != TRIREME_OK)
        holders_release(out);
    return status;
}

// ---- use

const struct holder_part *holders_of(const struct holders *h, int group, size_t number, size_t *count) {
    const struct holder_list *list = &h->list.item[h->list_of[group]];
    *count = list->first[number + 1] - list->first[number];
    return list->item + list->first[number];
}

int holders_rank(const struct holders *h, const struct holder_part *part, size_t turn) {
    const axis_set same = h->shape.item[part->shape].same;
    return mesh_member(&h->mesh, part->rank, same, (int)(turn % (size_t)mesh_group_size(&h->mesh, same)));
}

struct parameter_runs holders_runs(const struct holders *h, const struct holder_part *part,
                                   const struct parameter_window *window, struct parameter *local) {
    const struct holder_shape *shape = &h->shape.item[part->shape];
    *local = (struct parameter){.dim = {0, shape->columns}, .regions = shape->regions};
    memcpy(local->region, shape->region, sizeof local->region);
    return parameter_runs(local, part->held, window);
}

void *holders_data(const struct holders *h, const struct holder_part *part, const struct holdings *own, int group,
                   size_t number) {
    size_t count;
    const struct holding *mine = holdings_of(own, group, number, &count);
    for (size_t i = 0; i < count; i++) {
        const struct holder_shape shape = shape_of(&mine[i]);
        if (memcmp(&mine[i].held, &part->held, sizeof part->held) == 0 &&
            memcmp(&shape, &h->shape.item[part->shape], sizeof shape) == 0)
            return mine[i].data;
    }
    CHECK(!"a rank has what the mesh says");
    return NULL;
}
