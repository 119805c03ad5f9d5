#include "ckpt/holdings.h"

static int compare_holdings(const void *a, const void *b) {
    const struct holding *x = a, *y = b;
    return COMPARE(x->group, y->group) ?: COMPARE(x->number, y->number) ?: COMPARE(x->rank, y->rank)
        ?: COMPARE(x->held.begin, y->held.begin);
}

static trireme_status holdings_send(const struct holding *own, size_t count, struct communicator *all,
                                    trireme_error *error) {
    const int64_t mine = (int64_t)count;
    TRY(comm_send(all, &mine, sizeof mine, 0, error));
    return mine > 0 ? comm_send(all, own, mine * (int64_t)sizeof *own, 0, error) : TRIREME_OK;
}

// For rank 0: appends what each of the others has sent.
static trireme_status holdings_receive(struct holdings *out, struct communicator *all, trireme_error *error) {
    for (int r = 1; r < communicator_size(all); r++) {
        int64_t count;
        TRY(comm_receive(all, &count, sizeof count, r, error));
        struct holding *theirs = mem_alloc((size_t)MAX(count, 1) * sizeof *theirs);
        const trireme_status status =
            count > 0 ? comm_receive(all, theirs, count * (int64_t)sizeof *theirs, r, error) : TRIREME_OK;
        for (int64_t i = 0; i < count && status == TRIREME_OK; i++)
            VEC_PUSH(out, theirs[i]);
        free(theirs);
        TRY(status);
    }
    return TRIREME_OK;
}

// Sorts the parts, and finds where those of each parameter begin.
static void holdings_index(struct holdings *out) {
    const size_t lists = (size_t)out->groups * out->parameters;
    if (out->count)
        qsort(out->item, out->count, sizeof *out->item, compare_holdings);
    out->first = mem_alloc((lists + 1) * sizeof *out->first);
    for (size_t i = 0; i < out->count; i++)
        out->first[(size_t)out->item[i].group * out->parameters + (size_t)out->item[i].number + 1]++;
    for (size_t i = 0; i < lists; i++)
        out->first[i + 1] += out->first[i];
}

static void holdings_free(void *kept) {
    holdings_release(kept);
    free(kept);
}

// Ranks that are threads have one list together, which lives as long as their world.
static trireme_status holdings_lend(struct holdings *h, struct communicator *all, struct world *world,
                                    trireme_error *error) {
    struct holdings *kept = NULL;
    if (communicator_index(all) == 0) {
        holdings_index(h);
        kept = mem_alloc(sizeof *kept);
        *kept = *h;
        *h = (struct holdings){0};
        world_keep(world, kept, holdings_free);
    }
    TRY(comm_broadcast(all, &kept, sizeof kept, 0, error));
    holdings_release(h);
    *h = *kept;
    h->lent = true;
    return TRIREME_OK;
}

// Each process gets a list of its own, in which it knows where its own parts lie.
static trireme_status holdings_send_all(struct holdings *h, struct communicator *all, trireme_error *error) {
    const int rank = communicator_index(all);
    int64_t count = (int64_t)h->count;
    TRY(comm_broadcast(all, &count, sizeof count, 0, error));
    for (int64_t i = 0; i < count && rank > 0; i++)
        VEC_PUSH(h, (struct holding){0});
    if (count > 0)
        TRY(comm_broadcast(all, h->item, count * (int64_t)sizeof *h->item, 0, error));
    for (int64_t i = 0; i < count; i++)
        if (h->item[i].rank != rank)
            h->item[i].data = NULL;
    holdings_index(h);
    return TRIREME_OK;
}

static trireme_status holdings_gather(struct holdings *out, const struct holding *own, size_t count,
                                      struct communicator *all, struct world *world, trireme_error *error) {
    TRY(communicator_index(all) == 0 ? holdings_receive(out, all, error) : holdings_send(own, count, all, error));
    return world_place(world) ? holdings_send_all(out, all, error) : holdings_lend(out, all, world, error);
}

trireme_status holdings_create(struct holdings *out, int groups, size_t parameters, const struct holding *own,
                               size_t count, struct communicator *all, struct world *world, trireme_error *error) {
    *out = (struct holdings){.groups = groups, .parameters = parameters};
    for (size_t i = 0; i < count && (!all || communicator_index(all) == 0); i++)
        VEC_PUSH(out, own[i]);
    if (!all) {
        holdings_index(out);
        return TRIREME_OK;
    }
    const trireme_status status = holdings_gather(out, own, count, all, world, error);
    if (status != TRIREME_OK)
        holdings_release(out);
    return status;
}

void holdings_release(struct holdings *h) {
    if (!h->lent) {
        VEC_RELEASE(h);
        free(h->first);
    }
    *h = (struct holdings){0};
}

const struct holding *holdings_of(const struct holdings *h, int group, size_t number, size_t *count) {
    const size_t list = (size_t)group * h->parameters + number;
    *count = h->first[list + 1] - h->first[list];
    return h->item + h->first[list];
}

struct parameter_runs holding_runs(const struct holding *h, const struct parameter_window *window,
                                   struct parameter *local) {
    *local = (struct parameter){.dim = {0, h->columns}, .regions = h->regions};
    memcpy(local->region, h->region, sizeof local->region);
    return parameter_runs(local, h->held, window);
}
