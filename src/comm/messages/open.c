// Opening a group: its members compare what they are opening, and agree on a number for the tags of its messages.
#include "base/hash.h"
#include "comm/messages/messages.h"

#include <unistd.h>

enum { SEGMENT_MOST = 1 << 19, SEGMENT_LEAST = 1 << 15, STAGING = 1 << 22 };

static uint64_t hash_members(int size, const int *members) {
    uint64_t hash = HASH_NOTHING;
    for (int i = 0; i < size; i++)
        hash = hash_add(hash, (uint32_t)members[i]);
    return hash;
}

static const struct group_header *theirs_of(const struct process_communicator *c, int member) {
    return (const struct group_header *)(const void *)c->in[member].data;
}

// On the thread, once all members have said what they open. On each rank numbers only grow, so no two communicators of
// the same pair of ranks have the same number.
void open_agreed(struct process_communicator *c) {
    struct process_world *w = c->world;
    const struct group_header *own = c->call->in;
    int number = own->number, rank = w->base.place.rank;
    for (int i = 0; i < c->base.size; i++) {
        if (i == c->base.index)
            continue;
        const struct group_header *theirs = theirs_of(c, i);
        if (theirs->size != own->size || theirs->members != own->members ||
            strncmp(theirs->name, own->name, GROUP_TEXT) != 0) {
            char text[2][GROUP_PRINT_TEXT];
            group_print(own->name, own->size, own->shown, own->member, text[0]);
            group_print(theirs->name, theirs->size, MIN(MAX(theirs->shown, 0), 8), theirs->member, text[1]);
            round_refuse(c, COMM_DIFFERS, c->base.rank[i], "rank %d opens group %s while rank %d opens group %s", rank,
                         text[0], c->base.rank[i], text[1]);
            return;
        }
        number = MAX(number, theirs->number);
    }
    if (number > w->last_number) {
        round_refuse(c, COMM_BROKEN, -1, "this %s has tags for %d groups only", w->wire->name, w->last_number);
        return;
    }
    c->number = number;
    c->sender->number = number;
    c->near_file = c->base.index > 0 ? theirs_of(c, 0)->file : own->file;
    w->numbers = number + 1;
    round_begin(c, NULL);
}

// Fills c->nodes: members by node, where each of several nodes has the same number of members, more than one.
static void find_nodes(struct process_communicator *c) {
    const int *node = c->world->neighbours.node;
    struct group_nodes *g = &c->nodes;
    int size = c->base.size, *first = mem_alloc((size_t)size * sizeof *first); // member of each node
    int *member = mem_alloc((size_t)size * sizeof *member);
    for (int i = 0; i < size; i++) {
        int n = 0;
        while (n < g->count && node[c->base.rank[first[n]]] != node[c->base.rank[i]])
            n++;
        if (n == g->count)
            first[g->count++] = i;
    }
    bool even = g->count > 1 && size % g->count == 0 && size > g->count;
    g->locals = size / g->count;
    for (int n = 0; n < g->count && even; n++) {
        int locals = 0;
        for (int i = 0; i < size && even; i++) {
            if (node[c->base.rank[i]] != node[c->base.rank[first[n]]])
                continue;
            even = locals < g->locals;
            if (i == c->base.index) {
                g->node = n;
                g->local = locals;
            }
            if (even)
                member[n * g->locals + locals++] = i;
        }
    }
    free(first);
    if (even)
        g->member = member;
    else
        free(member);
}

static struct process_communicator *open_create(struct process_world *w, int size, const int *members, const char *name,
                                                int index) {
    struct process_communicator *c = mem_alloc(sizeof *c), *sender = mem_alloc(sizeof *sender);
    size_t n = (size_t)size;
    int *rank = mem_alloc(n * sizeof *rank);
    memcpy(rank, members, n * sizeof *members);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->base = (struct communicator){.world = &w->base, .name = c->name, .size = size, .index = index, .rank = rank};
    c->world = w;
    c->number = NUMBER_OPENING;
    *sender = *c;
    c->sender = sender;
    sender->out = mem_alloc(n * sizeof *sender->out);
    c->in = mem_alloc(n * sizeof *c->in);
    c->out = mem_alloc(n * sizeof *c->out);
    c->contribution = mem_alloc(n * sizeof *c->contribution);
    c->segment = MIN(MAX(STAGING / size / 64 * 64, (int)SEGMENT_LEAST), (int)SEGMENT_MOST);
    find_nodes(c);
    for (int i = 0; i < (c->nodes.member ? STAGINGS : STAGING_ACROSS); i++)
        c->staging[i] = mem_alloc(2 * n * (size_t)c->segment);
    c->chunk = mem_aligned(64, sizeof *c->chunk);
    c->near = (struct near){.base = &c->base,
                            .neighbours = &w->neighbours,
                            .spin = w->spin,
                            .contribution = c->contribution,
                            .received = c->staging[STAGING_RECEIVED],
                            .segment = c->segment,
                            .chunk = c->chunk};
    return c;
}

static void release_rounds(struct process_communicator *c) {
    VEC_RELEASE(&c->pending);
    VEC_RELEASE(&c->way);
    VEC_RELEASE(&c->completed);
    free(c->out);
}

// The list of what process_broken wakes.
static void open_list_near(struct process_communicator *c) {
    struct process_world *w = c->world;
    pthread_mutex_lock(&w->base.lock);
    c->near.next = w->near;
    w->near = &c->near;
    pthread_mutex_unlock(&w->base.lock);
}

static void open_unlist_near(struct process_communicator *c) {
    struct process_world *w = c->world;
    pthread_mutex_lock(&w->base.lock);
    struct near **at = &w->near;
    while (*at && *at != &c->near)
        at = &(*at)->next;
    if (*at)
        *at = c->near.next;
    pthread_mutex_unlock(&w->base.lock);
}

void process_close(struct communicator *base) {
    struct process_communicator *c = (struct process_communicator *)base;
    open_unlist_near(c);
    near_release(&c->near);
    release_rounds(c->sender);
    free(c->sender);
    release_rounds(c);
    for (size_t i = 0; i < ARRAY_LENGTH(c->staging); i++)
        free(c->staging[i]);
    free(c->nodes.member);
    free(c->chunk);
    free(c->contribution);
    free(c->in);
    free((int *)c->base.rank);
    free(c);
}

// Once the members know that they share memory: returns when all have mapped it.
static trireme_status open_near(struct process_communicator *c, trireme_error *error) {
    bool done;
    if (c->base.index > 0)
        TRY(near_join(&c->near, c->near_file, error));
    open_list_near(c);
    return near_call(&c->near, &(struct comm_call){.operation = OPERATION_BARRIER}, &done, error);
}

trireme_status process_open(struct communicator **out, struct world *base, int rank, int size, const int *members,
                            const char *name, trireme_error *error) {
    struct process_world *w = (struct process_world *)base;
    CHECK(rank == w->base.place.rank);
    char reason[COMM_REASON];
    int index = group_index(rank, w->base.place.ranks, size, members, name, reason);
    if (index < 0) {
        world_break(base, COMM_DIFFERS, rank, reason);
        FAIL(TRIREME_ERROR_LOST, "group %s: rank %d cannot open it: %s", name, rank, reason);
    }
    struct process_communicator *c = open_create(w, size, members, name, index);
    // w->numbers is safe to read: only openings change it, and one thread at a time opens.
    struct group_header header = {.members = hash_members(size, members), .size = size, .number = w->numbers};
    int file = near_create(&c->near);
    header.file = file;
    memcpy(header.name, c->name, sizeof header.name);
    header.shown = MIN(size, (int)ARRAY_LENGTH(header.member));
    memcpy(header.member, members, (size_t)header.shown * sizeof *members);
    struct comm_call call = {.operation = OPERATION_OPEN, .count = sizeof header, .in = &header};
    trireme_status status = process_hand_over(c, &call, error);
    if (status == TRIREME_OK && c->near_file >= 0)
        status = open_near(c, error);
    if (file >= 0)
        close(file);
    if (status != TRIREME_OK)
        process_close(&c->base);
    else
        *out = &c->base;
    return status;
}
