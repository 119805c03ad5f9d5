#include "engine/compare.h"

#include "launch/ranks.h"

enum { HOST_BYTES = 64 };

static void hash_stage(const struct stage *stage, size_t programs, uint64_t *hash) {
    for (size_t i = 0; i < programs; i++)
        hash[i] = program_hash(&stage->programs.item[i]->program);
}

// What all ranks have made: hashes[ranks][programs] and the hosts they are on; and what rank 0 has made for each stage.
struct derived {
    size_t programs;
    uint64_t *all, *made;
    char (*host)[HOST_BYTES];
};

static trireme_status compare_hashes(const struct derived *d, const struct engine *e, trireme_error *error) {
    for (int r = 0; r < e->stages->ranks; r++)
        for (size_t p = 0; p < d->programs; p++) {
            int stage = mesh_coordinate(&e->parallel->mesh, r, AXIS_PP);
            uint64_t has = d->all[(size_t)r * d->programs + p], meant = d->made[(size_t)stage * d->programs + p];
            if (has == meant)
                continue;
            error_set(error, TRIREME_ERROR_USAGE,
                      "the ranks disagree: rank %d on %s has made another program of the %s (%016llx) than rank 0 has "
                      "for it (%016llx); start the same build of trireme on all",
                      r, d->host[r], program_kinds[e->stages->specs.item[p].kind].title, (unsigned long long)has,
                      (unsigned long long)meant);
            if (e->member.rank > 0)
                error_leave_to_other(error);
            return TRIREME_ERROR_USAGE;
        }
    return TRIREME_OK;
}

static trireme_status exchange_hashes(struct communicator *all, struct derived *d, const struct engine *e,
                                      trireme_error *error) {
    const int64_t bytes = (int64_t)(d->programs * sizeof(uint64_t));
    uint64_t *own = mem_alloc((size_t)bytes);
    char host[HOST_BYTES] = {0};
    snprintf(host, sizeof host, "%s", world_place(e->member.world)->host);
    hash_stage(e->stage, d->programs, own);
    for (int stage = 0; stage < e->stages->count && e->member.rank == 0; stage++)
        hash_stage(&e->stages->stage[stage], d->programs, d->made + (size_t)stage * d->programs);
    trireme_status status = comm_broadcast(all, d->made, e->stages->count * bytes, 0, error);
    if (status == TRIREME_OK)
        status = comm_all_gather_bytes(all, own, d->all, bytes, error);
    if (status == TRIREME_OK)
        status = comm_all_gather_bytes(all, host, d->host, HOST_BYTES, error);
    free(own);
    return status;
}

trireme_status compare_programs(const struct engine *e, trireme_error *error) {
    const size_t ranks = (size_t)e->stages->ranks, programs = e->stages->specs.count;
    struct communicator *all;
    TRY(ranks_control(&all, &e->member, e->stages->ranks, error));
    struct derived d = {.programs = programs,
                        .all = mem_alloc(ranks * programs * sizeof *d.all),
                        .made = mem_alloc((size_t)e->stages->count * programs * sizeof *d.made),
                        .host = mem_alloc(ranks * sizeof *d.host)};
    trireme_status status = exchange_hashes(all, &d, e, error);
    if (status == TRIREME_OK)
        status = compare_hashes(&d, e, error);
    communicator_free(all);
    free(d.all);
    free(d.made);
    free(d.host);
    return status;
}
