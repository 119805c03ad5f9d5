#include "model/state.h"

static int64_t state_padded(int64_t elements) {
    return round_up(elements, PARAMETER_ALIGNMENT);
}

static int64_t unit_count(const struct program *program, const struct parameter_table *table,
                          const struct state_layout *layout, int unit) {
    int64_t count = 0, parts = mesh_group_size(&program->mesh, layout->shards) * PARAMETER_ALIGNMENT;
    FOR_UNIT(table, i, unit)
        count += state_padded(parameter_count(&table->parameters.item[i]));
    return round_up(count, parts);
}

// Along the axes of tensor ranks a flat unit of a split class has other elements on each rank: a shard, though of no
// dim that could be named. Along the stages each has its own, except for a vocabulary that is spread over them, and an
// embedding that both ends have.
static void place_unit(const struct program *program, const struct state_layout *layout, const struct parameter *p,
                       bool part, int8_t placement[AXIS_COUNT]) {
    static const axis_set OVER[CLASS_COUNT] = {
        [CLASS_SPLIT] = AXES_TENSOR, [CLASS_KV] = AXES(AXIS_TP), [CLASS_VOCABULARY] = AXES_TENSOR | AXES(AXIS_PP)};
    axis_set split = OVER[p->split] | (part ? layout->shards : AXES_NONE);
    for (int a = 0; a < AXIS_COUNT; a++)
        placement[a] = mesh_present(&program->mesh, split & AXES(a)) ? PLACE_SHARD(0) : PLACE_REPLICATE;
    bool both = layout->tied_ends && parameter_is_token_embedding(p);
    if (mesh_present(&program->mesh, AXES(AXIS_PP)) && p->split != CLASS_VOCABULARY && !both)
        placement[AXIS_PP] = PLACE_STAGE;
}

static void declare_slices(struct program *program, const struct parameter_table *table, int unit, int buffer,
                           const char *prefix, int *slice) {
    int64_t offset = 0;
    FOR_UNIT(table, i, unit) {
        const struct parameter *p = &table->parameters.item[i];
        char *name = *prefix ? mem_printf("%s.%s", prefix, p->name) : mem_strdup(p->name);
        slice[i] = program_slice(program, buffer, name, offset, p->ndim, p->dim);
        free(name);
        struct buffer *b = &program->buffers.item[slice[i]];
        memcpy(b->placement, program->buffers.item[buffer].placement, sizeof b->placement);
        for (int a = 0; a < AXIS_COUNT; a++)
            if ((AXES(a) & AXES_TENSOR) && b->placement[a] != PLACE_REPLICATE)
                b->placement[a] = PLACE_SHARD(p->split_dim);
        offset += state_padded(parameter_count(p));
    }
}

static void declare_units(const struct model_state *state, struct program *program, const struct parameter_table *table,
                          const struct state_layout *layout, const struct state_buffers *what, int *unit, int *slice) {
    for (int u = 0; u < state->units; u++) {
        int64_t count = state->count[u] / (what->part ? mesh_group_size(&program->mesh, layout->shards) : 1);
        char *name = mem_printf("%s.%s", table->units.item[u], what->suffix);
        unit[u] = program_buffer(program, name, what->dtype, what->kind, what->scope, 1, &count);
        free(name);
        bool kept = what->kind == KIND_PARAM && what->scope == SCOPE_STATE;
        program->buffers.item[unit[u]].own = kept ? layout->own : AXES_NONE;
        place_unit(program, layout, &table->parameters.item[table->first[u]], what->part,
                   program->buffers.item[unit[u]].placement);
        if (slice)
            declare_slices(program, table, u, unit[u], what->prefix, slice);
    }
}

static void declare_own_rows(struct model_state *state, struct program *program, const struct parameter_table *table,
                             const struct state_layout *layout) {
    const struct parameter *p = &table->parameters.item[parameter_embedding(table)];
    struct operand unit = operand_whole(program, state->unit[p->unit]);
    if (!layout->sharded)
        unit = operand_part(program, unit, layout->shards);
    const int64_t dim[] = {p->dim[0] / mesh_group_size(&program->mesh, layout->shards), p->dim[1]};
    state->own_rows = operand_shape(unit, 2, dim);
    state->own_first = program_buffer(program, "embed.first", DTYPE_I32, KIND_PARAM, SCOPE_STATE, 1, (int64_t[]){1});
    program_declare(program, state->own_first, "first", NONE);
    program->buffers.item[state->own_first].placement[AXIS_FSDP] = PLACE_SHARD(0);
}

void model_state_declare(struct model_state *state, struct program *program, const struct model_config *config,
                         const struct parameter_table *table, const struct state_layout *layout, enum dtype dtype,
                         int64_t positions) {
    int units = (int)table->units.count, parameters = (int)table->parameters.count;
    *state = (struct model_state){.units = units,
                                  .parameters = parameters,
                                  .rope = NONE,
                                  .vocab_first = NONE,
                                  .own_rows = operand_none(),
                                  .own_first = NONE,
                                  .heads_end = NONE};
    state->unit = mem_alloc((size_t)units * sizeof(int));
    state->gathered = mem_alloc((size_t)units * sizeof(int));
    state->count = mem_alloc((size_t)units * sizeof(int64_t));
    state->decayed = mem_alloc((size_t)units * sizeof(int64_t));
    state->parameter = mem_alloc((size_t)parameters * sizeof(int));
    for (int u = 0; u < units; u++)
        state->count[u] = unit_count(program, table, layout, u);
    struct state_buffers keep = {dtype, KIND_PARAM, SCOPE_STATE, layout->sharded, "parameters", ""};
    struct state_buffers whole = {dtype, KIND_PARAM, SCOPE_LOCAL, false, "gathered", ""};
    declare_units(state, program, table, layout, &keep, state->unit, layout->sharded ? NULL : state->parameter);
    if (layout->sharded)
        declare_units(state, program, table, layout, &whole, state->gathered, state->parameter);
    else
        memcpy(state->gathered, state->unit, (size_t)units * sizeof(int));
    for (int i = 0; i < parameters; i++)
        if (table->parameters.item[i].decayed)
            state->decayed[table->parameters.item[i].unit] += state_padded(parameter_count(&table->parameters.item[i]));
    if (config->family == FAMILY_LLAMA)
        state->rope = program_buffer(program, "rope", dtype_accumulate(dtype), KIND_PARAM, SCOPE_STATE, 2,
                                     (int64_t[]){positions, config->head_dim});
    if (mesh_present(&program->mesh, AXES_TENSOR) || layout->vocabulary) {
        state->vocab_first =
            program_buffer(program, "vocab.first", DTYPE_I32, KIND_PARAM, SCOPE_STATE, 1, (int64_t[]){1});
        program_declare(program, state->vocab_first, "first", NONE);
        if (layout->vocabulary)
            program->buffers.item[state->vocab_first].placement[AXIS_PP] = PLACE_STAGE;
    }
    if (layout->rows)
        declare_own_rows(state, program, table, layout);
    if (config->num_attention_heads / config->num_key_value_heads % program->mesh.degree[AXIS_KV]) {
        state->heads_end = program_buffer(program, "heads.end", DTYPE_I32, KIND_PARAM, SCOPE_STATE, 1, (int64_t[]){1});
        program_declare(program, state->heads_end, "end", NONE);
    }
}

void model_fill_rope(const struct model_config *config, int64_t positions, enum dtype dtype, void *out) {
    int64_t count = positions * config->head_dim;
    double *table = mem_alloc((size_t)count * sizeof *table);
    rope_table(config, positions, table);
    for (int64_t i = 0; i < count; i++)
        if (dtype == DTYPE_F64)
            ((double *)out)[i] = table[i];
        else
            ((float *)out)[i] = (float)table[i];
    free(table);
}

void model_state_release(struct model_state *state) {
    free(state->unit);
    free(state->gathered);
    free(state->count);
    free(state->decayed);
    free(state->parameter);
    *state = (struct model_state){0};
}

void model_state_declare_like(const struct model_state *state, struct program *program,
                              const struct parameter_table *table, const struct state_layout *layout,
                              const struct state_buffers *what, int **unit, int **slice) {
    *unit = mem_alloc((size_t)state->units * sizeof(int));
    if (what->prefix)
        *slice = mem_alloc((size_t)state->parameters * sizeof(int));
    declare_units(state, program, table, layout, what, *unit, what->prefix ? *slice : NULL);
}
