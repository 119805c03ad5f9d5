#include "engine/whole_tensors.h"

enum { ANY_STAGE = -1 };

void whole_create(struct whole *w, const struct engine *e) {
    *w = (struct whole){.engine = e,
                        .islands = mesh_group_size(&e->parallel->mesh, AXES_ISLAND),
                        .island = mesh_index(&e->parallel->mesh, e->member.rank, AXES_ISLAND)};
    w->stage = mem_alloc(e->table->parameters.count * sizeof *w->stage);
    // A tied embedding is on the last stage too: the first one that has a unit counts.
    for (int s = e->parallel->mesh.degree[AXIS_PP] - 1; s > 0; s--) {
        struct parallel parallel = *e->parallel;
        parallel.stage = s;
        bool *sections = parallel_sections(&parallel, e->table->units.count);
        for (size_t i = 0; i < e->table->parameters.count; i++)
            if (sections[e->table->parameters.item[i].unit])
                w->stage[i] = s;
        free(sections);
    }
    for (size_t i = 0; i < e->table->parameters.count; i++)
        if (e->parallel->split.vocabulary_stages > 1 && e->table->parameters.item[i].is_vocabulary)
            w->stage[i] = ANY_STAGE;
}

void whole_release(struct whole *w) {
    free(w->stage);
    *w = (struct whole){0};
}

enum dtype whole_dtype(const struct whole *w, enum engine_values what) {
    enum dtype dtype = w->engine->stage->state.dtype;
    return what == ENGINE_PARAMETERS ? dtype : what == ENGINE_REMAINDERS ? DTYPE_U16 : dtype_accumulate(dtype);
}

// Along these, ranks of a stage have the same of a unit.
static axis_set tensor_replicas(const struct whole *w, int unit) {
    const struct unit_axes *axes = &w->engine->stage->state.units.axes[unit];
    return AXES_WITHIN & ~AXES_STAGE & ~(axes->split | axes->shards);
}

static bool tensor_is_saved(const struct whole *w, const struct parameter *p) {
    const int stage = w->stage[p->whole];
    return stage == ANY_STAGE || mesh_coordinate(&w->engine->parallel->mesh, w->engine->member.rank, AXIS_PP) == stage;
}

void whole_holdings(const struct whole *w, enum engine_values what, int island, int group, enum whole_use use,
                    struct holding_list *out) {
    const struct engine *e = w->engine;
    const int rank = e->member.rank;
    const axis_set alike = island == EVERY_ISLAND ? AXES_ISLAND : AXES_NONE;
    if (island != EVERY_ISLAND && island != w->island)
        return;
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i];
        const struct engine_part part = engine_part(e, what, i);
        if (part.begin >= part.end || (use == WHOLE_SAVE && !tensor_is_saved(w, p)))
            continue;
        struct holding h = {.group = group,
                            .rank = rank,
                            .number = p->whole,
                            .same = mesh_present(&e->parallel->mesh, tensor_replicas(w, p->unit) | alike),
                            .held = {part.begin, part.end},
                            .columns = p->dim[1],
                            .regions = p->regions,
                            .data = part.data};
        memcpy(h.region, p->region, sizeof p->region);
        VEC_PUSH(out, h);
    }
}
