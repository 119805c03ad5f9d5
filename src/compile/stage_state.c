// What the ranks of one stage keep between steps.
#include "compile/compile.h"

void local_parameters(struct parameter_table *local, const struct parameter_table *whole, const struct config *config,
                      const struct model_config *model, const struct parallel *plan, int rank) {
    struct parallel own = *plan;
    own.stage = mesh_coordinate(&plan->mesh, rank, AXIS_PP);
    int *joined = parallel_joined(&own, whole->units.count);
    int *apart = optimizer_apart(config->optimizer.name, whole);
    parameter_table_split(local, whole, model, &plan->split, mesh_index(&plan->mesh, rank, AXES_TENSOR),
                          parallel_vocabulary_index(plan, rank), joined, plan->unit_layers == 0, apart);
    free(joined);
    free(apart);
}

void keep_nothing(struct stage_state *s, const struct config *config, const struct model_config *model,
                  const struct program_spec *spec) {
    (void)s, (void)config, (void)model, (void)spec;
}

void keep_training(struct stage_state *s, const struct config *config, const struct model_config *model,
                   const struct program_spec *spec) {
    (void)model, (void)spec;
    const enum memory_space space = config->optimizer.offload == CONFIG_OFFLOAD_FILE ? SPACE_FILE : SPACE_DEVICE;
    if (!s->trains)
        optimizer_entries_add(&s->optimizer, &s->table, &s->units, &s->model,
                              optimizer_of_units(config->optimizer.name, &s->units), s->dtype, space);
    s->trains = true;
}

// All programs with a cache have the same.
void keep_caches(struct stage_state *s, const struct config *config, const struct model_config *model,
                 const struct program_spec *spec) {
    (void)config;
    if (spec->context > 0 && !s->caches.of)
        emit_cache_add(&s->caches, &s->table, model, spec->batch.sequences, spec->context, s->dtype);
}

void stage_state_create(struct stage_state *s, const struct config *config, const struct model_config *model,
                        const struct parameter_table *whole, const struct parallel *plan,
                        const struct program_spec *specs, size_t count) {
    const struct state_layout layout = state_layout_of(plan, model);
    int64_t positions = 0, beyond = 0; // a cache has room for rows beyond the text
    *s = (struct stage_state){.dtype = model_dtype(config)};
    for (size_t i = 0; i < count; i++)
        positions = MAX(positions, MAX(specs[i].batch.seq_len, specs[i].context));
    for (size_t i = 0; i < count; i++)
        beyond = MAX(beyond, specs[i].context > 0 ? specs[i].batch.seq_len : 0);
    local_parameters(&s->local, whole, config, model, plan, mesh_member(&plan->mesh, 0, AXES(AXIS_PP), plan->stage));
    model_units_create(&s->units, &s->local, &plan->mesh, &layout);
    model_entries_add(&s->model, &s->table, &s->units, model, s->dtype, positions, positions - beyond,
                      parallel_parts(plan));
    for (size_t i = 0; i < count; i++)
        program_kinds[specs[i].kind].keep(s, config, model, &specs[i]);
    outer_place_state(&s->table, &plan->mesh);
}

void stage_state_release(struct stage_state *s) {
    state_table_release(&s->table);
    model_units_release(&s->units);
    model_entries_release(&s->model);
    optimizer_entries_release(&s->optimizer);
    outer_entries_release(&s->outer);
    parameter_table_release(&s->local);
    emit_cache_release(&s->caches);
    *s = (struct stage_state){0};
}
