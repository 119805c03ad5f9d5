#include "model/state.h"

static int64_t parameter_count(const struct parameter *parameter) {
    return parameter->ndim == 1 ? parameter->dim[0] : parameter->dim[0] * parameter->dim[1];
}

static int64_t padded(int64_t elements) {
    return (elements + PARAMETER_ALIGNMENT - 1) / PARAMETER_ALIGNMENT * PARAMETER_ALIGNMENT;
}

static int64_t unit_count(const struct parameter_table *table, int unit) {
    int64_t count = 0;
    for (size_t i = 0; i < table->parameters.count; i++)
        if (table->parameters.item[i].unit == unit)
            count += padded(parameter_count(&table->parameters.item[i]));
    return count;
}

static void declare_units(struct program *program, const struct parameter_table *table, enum dtype dtype,
                          enum buffer_kind kind, const char *suffix, const char *prefix, int *unit, int *slice) {
    for (int u = 0; u < (int)table->units.count; u++) {
        int64_t count = unit_count(table, u);
        char *name = mem_printf("%s.%s", table->units.item[u], suffix);
        unit[u] = program_buffer(program, name, dtype, kind, SCOPE_STATE, 1, &count);
        free(name);
        int64_t offset = 0;
        for (size_t i = 0; slice && i < table->parameters.count; i++) {
            const struct parameter *p = &table->parameters.item[i];
            if (p->unit != u)
                continue;
            name = *prefix ? mem_printf("%s.%s", prefix, p->name) : mem_strdup(p->name);
            slice[i] = program_slice(program, unit[u], name, offset, p->ndim, p->dim);
            free(name);
            offset += padded(parameter_count(p));
        }
    }
}

void model_state_declare(struct model_state *state, struct program *program, const struct model_config *config,
                         const struct parameter_table *table, enum dtype dtype, int64_t positions) {
    int units = (int)table->units.count, parameters = (int)table->parameters.count;
    *state = (struct model_state){.units = units, .parameters = parameters, .rope = NONE};
    state->unit = mem_alloc((size_t)units * sizeof(int));
    state->decayed = mem_alloc((size_t)units * sizeof(int64_t));
    state->parameter = mem_alloc((size_t)parameters * sizeof(int));
    declare_units(program, table, dtype, KIND_PARAM, "parameters", "", state->unit, state->parameter);
    for (int i = 0; i < parameters; i++)
        if (table->parameters.item[i].decayed)
            state->decayed[table->parameters.item[i].unit] += padded(parameter_count(&table->parameters.item[i]));
    if (config->family == FAMILY_LLAMA)
        state->rope = program_buffer(program, "rope", dtype_accumulate(dtype), KIND_PARAM, SCOPE_STATE, 2,
                                     (int64_t[]){positions, config->head_dim});
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
    free(state->decayed);
    free(state->parameter);
    *state = (struct model_state){0};
}

void model_state_declare_like(const struct model_state *state, struct program *program,
                              const struct parameter_table *table, enum dtype dtype, enum buffer_kind kind,
                              const char *suffix, const char *prefix, int **unit, int **slice) {
    *unit = mem_alloc((size_t)state->units * sizeof(int));
    if (prefix)
        *slice = mem_alloc((size_t)state->parameters * sizeof(int));
    declare_units(program, table, dtype, kind, suffix, prefix, *unit, prefix ? *slice : NULL);
}
