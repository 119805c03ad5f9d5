// The programs of an outer step.
#include "compile/outer.h"

#include "compile/compile.h"

bool outer_wanted(const struct config *config) {
    return config->outer.method != CONFIG_OUTER_NONE;
}

// ---- the state

// [units]: NONE for those that are frozen, which are the same on all islands.
static int *outer_add(struct state_table *state, const struct model_units *units, const struct model_entries *model,
                      const char *operand, enum dtype dtype) {
    char suffix[24];
    snprintf(suffix, sizeof suffix, "outer.%s", operand);
    const struct unit_values values = {suffix, dtype, STATE_OPTIMIZER, 1, operand, SPACE_DEVICE};
    int *entry = mem_alloc((size_t)units->units * sizeof *entry);
    for (int u = 0; u < units->units; u++)
        entry[u] =
            parameter_unit_frozen(units->table, u) ? NONE : model_units_add(units, state, u, &values, model->unit[u]);
    return entry;
}

void outer_entries_add(struct outer_entries *entries, struct state_table *state, const struct model_units *units,
                       const struct model_entries *model, enum dtype dtype, bool delayed) {
    const enum dtype sum = dtype_accumulate(dtype);
    entries->value = outer_add(state, units, model, "value", sum);
    entries->taken = delayed ? outer_add(state, units, model, "taken", sum) : NULL;
    entries->total = state_add(state, &(struct state_entry){.name = "outer.total",
                                                            .dtype = DTYPE_F64,
                                                            .role = STATE_OPTIMIZER,
                                                            .ndim = 1,
                                                            .dim = {1},
                                                            .as = "total",
                                                            .owner = NONE});
}

void outer_entries_release(struct outer_entries *entries) {
    free(entries->value);
    free(entries->taken);
    *entries = (struct outer_entries){0};
}

static void place_own(const struct mesh *mesh, int8_t placement[AXIS_COUNT]) {
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh_present(mesh, AXES_ISLAND & AXES(a)) && placement[a] == PLACE_REPLICATE)
            placement[a] = PLACE_OWN;
}

void outer_place_state(struct state_table *state, const struct mesh *mesh) {
    for (size_t i = 0; i < state->entries.count; i++)
        if (state->entries.item[i].role != STATE_CONSTANT && state->entries.item[i].role != STATE_FROZEN)
            place_own(mesh, state->entries.item[i].placement);
}

void outer_place_program(struct program *p, int alike) {
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].scope != SCOPE_STATE && (int)i != alike)
            place_own(&p->mesh, p->buffers.item[i].placement);
}

void keep_outer(struct stage_state *s, const struct config *config, const struct model_config *model,
                const struct program_spec *spec) {
    (void)model, (void)spec;
    if (!s->outer.value)
        outer_entries_add(&s->outer, &s->table, &s->units, &s->model, s->dtype, config->outer.delay_steps > 0);
}

// ---- the programs

struct outer {
    struct compiled compiled;
    const struct stage_state *state;
    int template, total;
    int *parameters; // [units]: buffers of those that are trained; of a program that does not touch parameters,
                     // declared all the same: other entries belong to them
};

static void outer_begin(struct outer *o, const struct compile_options *options, const struct program_spec *spec,
                        const char *name) {
    *o = (struct outer){.state = options->state, .total = NONE};
    compiled_begin(&o->compiled, options, spec);
    struct program *p = &o->compiled.program;
    const int units = o->state->units.units;
    o->parameters = mem_alloc((size_t)units * sizeof *o->parameters);
    for (int u = 0; u < units; u++)
        o->parameters[u] = parameter_unit_frozen(o->state->units.table, u)
                               ? NONE
                               : state_buffer(&o->state->table, p, o->state->model.unit[u], NONE);
    o->template = program_template(p, name, PHASE_OPTIMIZER, 0);
}

static trireme_status outer_finish(struct outer *o, struct compiled *out, const struct compile_options *options,
                                   trireme_error *error) {
    program_invoke(&o->compiled.program, o->template, NONE, false, false);
    free(o->parameters);
    TRY(compiled_finish(&o->compiled, options, error));
    *out = o->compiled;
    return TRIREME_OK;
}

// A unit's buffer of such entries; absent where there are none.
static struct operand outer_operand(struct outer *o, const int *entry, int unit) {
    struct program *p = &o->compiled.program;
    return entry ? operand_whole(p, state_buffer(&o->state->table, p, entry[unit], o->parameters[unit]))
                 : operand_none();
}

static struct operand outer_parameters(struct outer *o, int unit) {
    return model_units_own(&o->state->units, &o->compiled.program, unit, o->parameters[unit]);
}

static struct operand outer_total(struct outer *o) {
    struct program *p = &o->compiled.program;
    if (o->total == NONE)
        o->total = state_buffer(&o->state->table, p, o->state->outer.total, NONE);
    return operand_whole(p, o->total);
}

static void outer_emit(struct outer *o, enum op op, int inputs, const struct operand *in, int outputs,
                       const struct operand *out) {
    program_emit(&o->compiled.program, o->template, op, PHASE_OPTIMIZER, NONE, inputs, in, outputs, out, NULL);
}

trireme_status compile_outer_take(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "take");
    for (int u = 0; u < o.state->units.units; u++) {
        if (o.state->outer.value[u] == NONE)
            continue;
        const struct operand p = outer_parameters(&o, u), rem = outer_operand(&o, o.state->optimizer.remainder, u),
                             value = outer_operand(&o, o.state->outer.value, u),
                             taken = outer_operand(&o, o.state->outer.taken, u);
        outer_emit(&o, OP_TAKE, GIVEN(TAKE, [INPUT(TAKE, p)] = p, [INPUT(TAKE, rem)] = rem),
                   MADE(TAKE, [OUTPUT(TAKE, value)] = value, [OUTPUT(TAKE, taken)] = taken));
    }
    return outer_finish(&o, out, options, error);
}

static void outer_sum(struct outer *o, int stream, struct operand operand) {
    program_communicate(&o->compiled.program, o->template, OP_ALL_REDUCE, PHASE_OPTIMIZER, stream, AXES_ISLAND, operand,
                        operand);
}

trireme_status compile_outer_exchange(struct compiled *out, const struct compile_options *options,
                                      const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "exchange");
    struct program *p = &o.compiled.program;
    const int stream = program_stream(p, "outer", STREAM_BULK);
    const int weight = program_buffer(p, "outer.weight", DTYPE_F64, KIND_INPUT, SCOPE_STEP, 1, (int64_t[]){1});
    program_declare(p, weight, "weight", NONE);
    p->buffers.item[weight].placement[AXIS_ISLAND] = PLACE_SUM; // the total is their sum
    o.compiled.weight = weight;
    for (int u = 0; u < o.state->units.units; u++) {
        if (o.state->outer.value[u] == NONE)
            continue;
        const struct operand value = outer_operand(&o, o.state->outer.value, u),
                             total = o.total == NONE ? outer_total(&o) : operand_none();
        outer_emit(&o, OP_WEIGH,
                   GIVEN(WEIGH, [INPUT(WEIGH, value)] = value, [INPUT(WEIGH, weight)] = operand_whole(p, weight)),
                   MADE(WEIGH, [OUTPUT(WEIGH, value1)] = value, [OUTPUT(WEIGH, total)] = total));
        if (total.buffer != NONE)
            outer_sum(&o, stream, total);
        outer_sum(&o, stream, value);
    }
    return outer_finish(&o, out, options, error);
}

trireme_status compile_outer_settle(struct compiled *out, const struct compile_options *options,
                                    const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "settle");
    for (int u = 0; u < o.state->units.units; u++) {
        if (o.state->outer.value[u] == NONE)
            continue;
        const struct operand p = outer_parameters(&o, u), rem = outer_operand(&o, o.state->optimizer.remainder, u),
                             value = outer_operand(&o, o.state->outer.value, u), total = outer_total(&o),
                             taken = outer_operand(&o, o.state->outer.taken, u);
        outer_emit(&o, OP_SETTLE,
                   GIVEN(SETTLE, [INPUT(SETTLE, p)] = p, [INPUT(SETTLE, rem)] = rem, [INPUT(SETTLE, value)] = value,
                         [INPUT(SETTLE, total)] = total, [INPUT(SETTLE, taken)] = taken),
                   MADE(SETTLE, [OUTPUT(SETTLE, p1)] = p, [OUTPUT(SETTLE, rem1)] = rem));
    }
    return outer_finish(&o, out, options, error);
}
