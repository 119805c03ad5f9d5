#include "model/state.h"

static int64_t state_padded(int64_t elements) {
    return round_up(elements, PARAMETER_ALIGNMENT);
}

// ---- units

struct unit_axes unit_axes(const struct state_layout *layout, const struct mesh *mesh, enum parameter_class class) {
    static const struct unit_axes OF[CLASS_COUNT] = {
        [CLASS_SPLIT] = {.split = AXES_TENSOR, .terms = AXES_DATA},
        [CLASS_KV] = {.split = AXES_TP, .terms = AXES_DATA | AXES_KV},
        [CLASS_SHARE] = {.split = AXES_NONE, .terms = AXES_DATA | AXES_TENSOR},
        [CLASS_WHOLE] = {.split = AXES_NONE, .terms = AXES_DATA},
        [CLASS_VOCABULARY] = {.split = AXES_TENSOR | AXES_STAGE, .terms = AXES_DATA},
    };
    const axis_set shards = layout->zero_stage ? mesh_present(mesh, layout->shards[class]) : AXES_NONE;
    return (struct unit_axes){.split = mesh_present(mesh, OF[class].split),
                              .terms = mesh_present(mesh, OF[class].terms),
                              .shards = shards,
                              .zero_stage = shards ? layout->zero_stage : 0};
}

axis_set units_apart(const struct state_layout *layout, const struct mesh *mesh) {
    axis_set apart = AXES_NONE;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        const struct unit_axes axes = unit_axes(layout, mesh, (enum parameter_class) class);
        apart |= axes.split | axes.shards;
    }
    return apart;
}

void model_units_create(struct model_units *units, const struct parameter_table *table, const struct mesh *mesh,
                        const struct state_layout *layout) {
    *units = (struct model_units){.table = table,
                                  .mesh = *mesh,
                                  .layout = *layout,
                                  .uneven = table->frozen || table->unlike,
                                  .units = (int)table->units.count,
                                  .parameters = (int)table->parameters.count};
    units->axes = mem_alloc((size_t)units->units * sizeof *units->axes);
    units->count = mem_alloc((size_t)units->units * sizeof *units->count);
    units->decayed = mem_alloc((size_t)units->units * sizeof *units->decayed);
    units->at = mem_alloc((size_t)units->parameters * sizeof *units->at);
    for (int u = 0; u < units->units; u++) {
        FOR_UNIT(table, i, u) {
            int64_t padded = state_padded(parameter_count(&table->parameters.item[i]));
            units->at[i] = units->count[u];
            units->count[u] += padded;
            units->decayed[u] += table->parameters.item[i].decayed ? padded : 0;
        }
        units->axes[u] = unit_axes(layout, mesh, table->parameters.item[table->first[u]].split);
        if (parameter_unit_frozen(table, u) && units->axes[u].zero_stage < 3) { // there is nothing to shard
            units->axes[u].zero_stage = 0;
            units->axes[u].shards = AXES_NONE;
        }
        units->count[u] = round_up(units->count[u], mesh_group_size(mesh, units->axes[u].shards) * PARAMETER_ALIGNMENT);
    }
}

void model_units_release(struct model_units *units) {
    free(units->axes);
    free(units->count);
    free(units->decayed);
    free(units->at);
    *units = (struct model_units){0};
}

// The axes along which the rank keeps only its own part of such values.
static axis_set unit_parts(const struct model_units *units, int unit, const struct unit_values *values) {
    const struct unit_axes *axes = &units->axes[unit];
    return values->part_from > 0 && axes->zero_stage >= values->part_from ? axes->shards : AXES_NONE;
}

static int64_t unit_held(const struct model_units *units, int unit, const struct unit_values *values) {
    return units->count[unit] / mesh_group_size(&units->mesh, unit_parts(units, unit, values));
}

// Along the axes of tensor ranks a flat unit of a split class has other elements on each rank: a shard, though of no
// dim that could be named. Along the stages each has its own, except for a vocabulary that is spread over them, and an
// embedding that both ends have.
static void place_unit(const struct model_units *units, int unit, const struct unit_values *values,
                       int8_t placement[AXIS_COUNT]) {
    const struct parameter *p = &units->table->parameters.item[units->table->first[unit]];
    const axis_set split = units->axes[unit].split | unit_parts(units, unit, values);
    for (int a = 0; a < AXIS_COUNT; a++)
        placement[a] = split & AXES(a) ? PLACE_SHARD(0) : PLACE_REPLICATE;
    bool both = units->layout.tied_ends && parameter_is_token_embedding(p);
    if (mesh_present(&units->mesh, AXES_STAGE & ~split) && !both)
        placement[AXIS_PP] = PLACE_OWN;
}

static char *values_name(const struct model_units *units, int unit, const struct unit_values *values) {
    return mem_printf("%s.%s", units->table->units.item[unit], values->suffix);
}

int model_units_add(const struct model_units *units, struct state_table *state, int unit,
                    const struct unit_values *values, int owner) {
    char *name = values_name(units, unit, values);
    struct state_entry entry = {.name = name,
                                .dtype = values->dtype,
                                .role = values->role,
                                .space = values->space,
                                .ndim = 1,
                                .dim = {unit_held(units, unit, values)},
                                .as = values->as,
                                .own = values->role == STATE_PARAMETERS ? unit_own(&units->axes[unit]) : AXES_NONE,
                                .owner = owner};
    place_unit(units, unit, values, entry.placement);
    const int over = values->over ? values->over[unit] : NONE;
    const bool lies = over != NONE && state_entry_bytes(&entry) == state_entry_bytes(&state->entries.item[over]);
    int number = lies ? state_add_over(state, &entry, over) : state_add(state, &entry);
    free(name);
    return number;
}

struct operand model_units_own(const struct model_units *units, const struct program *program, int unit, int buffer) {
    return operand_part(program, operand_whole(program, buffer), unit_own(&units->axes[unit]));
}

int model_units_buffer(const struct model_units *units, struct program *program, int unit,
                       const struct unit_values *values, enum buffer_kind kind) {
    int64_t count = unit_held(units, unit, values);
    char *name = values_name(units, unit, values);
    int buffer = program_buffer(program, name, values->dtype, kind, SCOPE_LOCAL, 1, &count);
    free(name);
    place_unit(units, unit, values, program->buffers.item[buffer].placement);
    return buffer;
}

void model_units_slices(const struct model_units *units, struct program *program, int unit, int buffer,
                        const char *prefix, int *slice) {
    FOR_UNIT(units->table, i, unit) {
        const struct parameter *p = &units->table->parameters.item[i];
        char *name = *prefix ? mem_printf("%s.%s", prefix, p->name) : mem_strdup(p->name);
        slice[i] = program_slice(program, buffer, name, units->at[i], p->ndim, p->dim);
        free(name);
        struct buffer *b = &program->buffers.item[slice[i]];
        memcpy(b->placement, program->buffers.item[buffer].placement, sizeof b->placement);
        for (int a = 0; a < AXIS_COUNT; a++)
            if (AXES(a) & units->axes[unit].split)
                b->placement[a] = PLACE_SHARD(p->split_dim);
    }
}

// ---- entries

// Those of the embedding's unit.
static const struct unit_axes *embedding_axes(const struct model_units *units) {
    return &units->axes[units->table->parameters.item[parameter_embedding(units->table)].unit];
}

static int add_constant(struct state_table *state, const char *name, enum dtype dtype, int ndim, const int64_t *dim,
                        const char *as) {
    struct state_entry entry = {
        .name = name, .dtype = dtype, .role = STATE_CONSTANT, .ndim = ndim, .as = as, .owner = NONE};
    memcpy(entry.dim, dim, (size_t)ndim * sizeof *dim);
    return state_add(state, &entry);
}

static int add_i32(struct state_table *state, const char *name, const char *as) {
    return add_constant(state, name, DTYPE_I32, 1, (int64_t[]){1}, as);
}

void model_entries_add(struct model_entries *entries, struct state_table *state, const struct model_units *units,
                       const struct model_config *config, enum dtype dtype, int64_t positions, int64_t length,
                       axis_set parts) {
    static const char *const ROPE_NAMES[ROPES] = {"rope", "rope.local"};
    const struct state_layout *layout = &units->layout;
    const struct unit_values trained = {"parameters", dtype, STATE_PARAMETERS, 3, NULL, SPACE_DEVICE, NULL},
                             frozen = {"parameters", dtype, STATE_FROZEN, 3, NULL, SPACE_DEVICE, NULL};
    *entries = (struct model_entries){
        .length = length, .vocab_first = NONE, .own_first = NONE, .first_position = NONE, .heads_end = NONE};
    entries->unit = mem_alloc((size_t)units->units * sizeof *entries->unit);
    for (int u = 0; u < units->units; u++)
        entries->unit[u] =
            model_units_add(units, state, u, parameter_unit_frozen(units->table, u) ? &frozen : &trained, NONE);
    for (int r = 0; r < ROPES; r++)
        entries->rope[r] = config->rope[r].theta > 0
                               ? add_constant(state, ROPE_NAMES[r], dtype_accumulate(dtype), 2,
                                              (int64_t[]){positions, model_rotary_dim(config)}, NULL)
                               : NONE;
    if (mesh_present(&units->mesh, AXES_TENSOR) || layout->vocabulary) {
        entries->vocab_first = add_i32(state, "vocab.first", "first");
        if (layout->vocabulary)
            state->entries.item[entries->vocab_first].placement[AXIS_PP] = PLACE_OWN;
    }
    if (parts) {
        entries->first_position = add_i32(state, "position.first", "first");
        FOR_AXES(a, parts)
            state->entries.item[entries->first_position].placement[a] = PLACE_SHARD(0);
    }
    if (layout->rows) {
        entries->own_first = add_i32(state, "embed.first", "first");
        for (int a = 0; a < AXIS_COUNT; a++)
            if (AXES(a) & embedding_axes(units)->shards)
                state->entries.item[entries->own_first].placement[a] = PLACE_SHARD(0);
    }
    if (config->num_attention_heads / config->num_key_value_heads % mesh_group_size(&units->mesh, AXES_KV))
        entries->heads_end = add_i32(state, "heads.end", "end");
}

void model_entries_release(struct model_entries *entries) {
    free(entries->unit);
    *entries = (struct model_entries){0};
}

// ---- buffers

static struct operand own_rows(const struct model_state *out, const struct program *program,
                               const struct model_units *units) {
    const struct parameter *p = &units->table->parameters.item[parameter_embedding(units->table)];
    struct operand unit = operand_whole(program, out->unit[p->unit]);
    unit = operand_part(program, unit, unit_own(&units->axes[p->unit]));
    const int64_t dim[] = {p->dim[0] / mesh_group_size(&program->mesh, units->axes[p->unit].shards), p->dim[1]};
    return operand_shape(unit, 2, dim);
}

static int declare_entry(struct program *program, const struct state_table *state, int entry) {
    return entry == NONE ? NONE : state_buffer(state, program, entry, NONE);
}

void model_state_declare(struct model_state *out, struct program *program, const struct state_table *state,
                         const struct model_entries *entries, const struct model_units *units, enum dtype dtype) {
    const struct unit_values whole = {.suffix = "gathered", .dtype = dtype};
    *out = (struct model_state){
        .units = units->units, .parameters = units->parameters, .own_rows = operand_none(), .axes = units->axes};
    out->unit = mem_alloc((size_t)units->units * sizeof(int));
    out->gathered = mem_alloc((size_t)units->units * sizeof(int));
    out->parameter = mem_alloc((size_t)units->parameters * sizeof(int));
    for (int u = 0; u < units->units; u++) {
        out->unit[u] = out->gathered[u] = state_buffer(state, program, entries->unit[u], NONE);
        if (units->axes[u].zero_stage < 3)
            model_units_slices(units, program, u, out->unit[u], "", out->parameter);
    }
    for (int u = 0; u < units->units; u++) {
        if (units->axes[u].zero_stage < 3)
            continue;
        out->gathered[u] = model_units_buffer(units, program, u, &whole, KIND_PARAM);
        model_units_slices(units, program, u, out->gathered[u], "", out->parameter);
    }
    for (int r = 0; r < ROPES; r++)
        out->rope[r] = declare_entry(program, state, entries->rope[r]);
    out->vocab_first = declare_entry(program, state, entries->vocab_first);
    out->own_first = declare_entry(program, state, entries->own_first);
    out->first_position = declare_entry(program, state, entries->first_position);
    out->heads_end = declare_entry(program, state, entries->heads_end);
    if (units->layout.rows) {
        out->own_rows = own_rows(out, program, units);
        out->own_rows_along = embedding_axes(units)->shards;
    }
}

void model_state_release(struct model_state *state) {
    free(state->unit);
    free(state->gathered);
    free(state->parameter);
    *state = (struct model_state){0};
}

void model_fill_rope(const struct model_config *config, int rope, int64_t positions, int64_t length, enum dtype dtype,
                     void *out) {
    int64_t count = positions * model_rotary_dim(config);
    double *table = mem_alloc((size_t)count * sizeof *table);
    rope_table(config, rope, positions, length, table);
    for (int64_t i = 0; i < count; i++)
        if (dtype == DTYPE_F64)
            ((double *)out)[i] = table[i];
        else
            ((float *)out)[i] = (float)table[i];
    free(table);
}
