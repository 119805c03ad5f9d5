#include "optim/optimizer.h"

#include "optim/unit_sums.h"

// ---- the table

struct optimizer_row {
    enum op op;
    optimizer_emit_unit *begin, *emit;
    bool (*takes)(const struct parameter *parameter);
    enum config_optimizer_name rest;
};

static const struct optimizer_row ROWS[] = {
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) \
    [CONFIG_OPTIMIZER_##symbol] = {op, begin, emit, takes, CONFIG_OPTIMIZER_##rest},
#include "optim/optimizers.def"
#undef OPTIMIZER
};

const struct optimizer_state_info optimizer_states[OPTIMIZER_STATES] = {
#define STATE(symbol, optimizer, operand, saved, role) {CONFIG_OPTIMIZER_##optimizer, operand, saved, role},
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) states
#include "optim/optimizers.def"
#undef OPTIMIZER
#undef STATE
};

bool takes_all(const struct parameter *parameter) {
    (void)parameter;
    return true;
}

int optimizer_of(enum config_optimizer_name name, const struct parameter *parameter) {
    return parameter->frozen ? OPTIMIZER_NONE : (int)(ROWS[name].takes(parameter) ? name : ROWS[name].rest);
}

int *optimizer_apart(enum config_optimizer_name name, const struct parameter_table *whole) {
    if (ROWS[name].rest == name)
        return NULL;
    int *apart = mem_alloc(whole->parameters.count * sizeof *apart);
    for (size_t i = 0; i < whole->parameters.count; i++)
        apart[i] = optimizer_of(name, &whole->parameters.item[i]) == (int)ROWS[name].rest;
    return apart;
}

int *optimizer_of_units(enum config_optimizer_name name, const struct model_units *units) {
    int *of = mem_alloc((size_t)units->units * sizeof *of);
    for (int u = 0; u < units->units; u++) {
        of[u] = optimizer_of(name, &units->table->parameters.item[units->table->first[u]]);
        FOR_UNIT(units->table, i, u)
            CHECK(optimizer_of(name, &units->table->parameters.item[i]) == of[u]);
    }
    return of;
}

// Sets the attribute `name` of a row that has it.
static void set_attribute(const struct op_info *info, const char *name, double value, union attribute *out) {
    int at = op_attribute_find(info, name);
    if (at >= 0)
        out[at].f = value;
}

static void optimizer_attributes(const struct optimizer_update *update, int unit, const struct op_info *info,
                                 union attribute out[OP_MAX_ATTRIBUTES]) {
    memset(out, 0, OP_MAX_ATTRIBUTES * sizeof *out);
    switch ((enum config_optimizer_name)update->state->entries->of[unit]) {
#define KEY(attribute) set_attribute(info, #attribute, update->config->optimizer.attribute, out);
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) \
    case CONFIG_OPTIMIZER_##symbol:                                         \
        attributes break;
#include "optim/optimizers.def"
#undef OPTIMIZER
#undef KEY
    }
}

// ---- the optimizer's part of the state

// Adds a state for each unit whose optimizer has it. Returns NULL where none has.
static int *add_state(struct state_table *state, const struct model_units *units, const struct model_entries *model,
                      const int *of, const struct optimizer_state_info *info, enum dtype sum, enum memory_space space) {
    const struct unit_values values = {info->operand, sum, info->role, 1, info->operand, space, NULL};
    int *entry = NULL;
    for (int u = 0; u < units->units; u++) {
        if (of[u] != (int)info->optimizer)
            continue;
        if (!entry) {
            entry = mem_alloc((size_t)units->units * sizeof *entry);
            for (int other = 0; other < units->units; other++)
                entry[other] = NONE;
        }
        entry[u] = model_units_add(units, state, u, &values, model->unit[u]);
    }
    return entry;
}

// Adds such values for each unit that is trained.
static int *add_to_all(struct state_table *state, const struct model_units *units, const struct model_entries *model,
                       const int *of, const struct unit_values *values) {
    int *entry = mem_alloc((size_t)units->units * sizeof *entry);
    for (int u = 0; u < units->units; u++)
        entry[u] = of[u] == OPTIMIZER_NONE ? NONE : model_units_add(units, state, u, values, model->unit[u]);
    return entry;
}

static int add_f64(struct state_table *state, const char *name, const char *as, int owner) {
    return state_add(state, &(struct state_entry){.name = name,
                                                  .dtype = DTYPE_F64,
                                                  .role = STATE_OPTIMIZER,
                                                  .ndim = 1,
                                                  .dim = {1},
                                                  .as = as,
                                                  .owner = owner});
}

void optimizer_entries_add(struct optimizer_entries *entries, struct state_table *state,
                           const struct model_units *units, const struct model_entries *model, int *of,
                           enum dtype dtype, enum memory_space space) {
    const enum dtype sum = dtype_accumulate(dtype);
    const struct unit_values gradients = {"gradients", sum, STATE_GRADIENTS, 2, NULL, SPACE_DEVICE, NULL},
                             remainders = {"remainder", DTYPE_U16, STATE_OPTIMIZER, 1, "rem", SPACE_DEVICE, NULL};
    *entries = (struct optimizer_entries){.of = of};
    entries->gradient = add_to_all(state, units, model, of, &gradients);
    if (dtype == DTYPE_BF16)
        entries->remainder = add_to_all(state, units, model, of, &remainders);
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        entries->state[k] = add_state(state, units, model, of, &optimizer_states[k], sum, space);
    entries->decayed = mem_alloc((size_t)units->units * sizeof *entries->decayed);
    for (int u = 0; u < units->units; u++) {
        char *name = mem_printf("%s.decayed", units->table->units.item[u]);
        entries->decayed[u] = of[u] == OPTIMIZER_NONE ? NONE : add_f64(state, name, "decayed", model->unit[u]);
        free(name);
    }
    entries->t = add_f64(state, "optimizer.t", "t", NONE);
}

void optimizer_entries_release(struct optimizer_entries *entries) {
    free(entries->of);
    free(entries->remainder);
    free(entries->gradient);
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        free(entries->state[k]);
    free(entries->decayed);
    *entries = (struct optimizer_entries){0};
}

// ---- its buffers in a program

// The buffers of entry[units], NONE where there is no entry.
static int *declare_entries(struct program *program, const struct state_table *state, const struct model_state *model,
                            const int *entry) {
    int *buffer = mem_alloc((size_t)model->units * sizeof *buffer);
    for (int u = 0; u < model->units; u++)
        buffer[u] = entry[u] == NONE ? NONE : state_buffer(state, program, entry[u], model->unit[u]);
    return buffer;
}

// The buffers where updates find states: these, or LOCAL copies.
static int *declare_copies(struct program *program, const int *state, int units) {
    int *here = mem_alloc((size_t)units * sizeof *here);
    for (int u = 0; u < units; u++) {
        here[u] = state[u];
        if (state[u] == NONE || memory_spaces[program->buffers.item[state[u]].space].addressable)
            continue;
        here[u] = program_again(program, state[u], NONE);
        const struct buffer of = program->buffers.item[state[u]];
        program_declare(program, here[u], of.as, of.belongs_to);
    }
    return here;
}

static void declare_gradients(struct optimizer_state *out, struct program *program, const struct state_table *state,
                              const struct model_units *units, const struct model_state *model, enum dtype sum) {
    const struct unit_values whole = {.suffix = "gradients.whole", .dtype = sum};
    const size_t bytes = (size_t)model->units * sizeof(int);
    out->gradient = mem_alloc(bytes);
    out->whole_gradient = mem_alloc(bytes);
    out->gradient_slice = mem_alloc((size_t)model->parameters * sizeof(int));
    for (int i = 0; i < model->parameters; i++)
        out->gradient_slice[i] = NONE;
    for (int u = 0; u < model->units; u++) {
        out->gradient[u] = out->whole_gradient[u] = NONE;
        if (out->entries->gradient[u] == NONE)
            continue;
        out->gradient[u] = out->whole_gradient[u] = state_buffer(state, program, out->entries->gradient[u], NONE);
        if (out->axes[u].zero_stage < 2)
            model_units_slices(units, program, u, out->gradient[u], "grad", out->gradient_slice);
        if (out->axes[u].zero_stage == 3)
            program->buffers.item[out->gradient[u]].gradient_of = model->unit[u];
    }
    for (int u = 0; u < model->units; u++) {
        if (out->axes[u].zero_stage < 2 || out->gradient[u] == NONE)
            continue;
        out->whole_gradient[u] = model_units_buffer(units, program, u, &whole, KIND_GRAD);
        model_units_slices(units, program, u, out->whole_gradient[u], "grad", out->gradient_slice);
    }
}

void optimizer_state_declare(struct optimizer_state *out, struct program *program, const struct state_table *state,
                             const struct optimizer_entries *entries, const struct model_units *units,
                             const struct model_state *model, enum dtype dtype) {
    *out = (struct optimizer_state){.entries = entries, .axes = units->axes};
    declare_gradients(out, program, state, units, model, dtype_accumulate(dtype));
    if (entries->remainder)
        out->remainder = declare_entries(program, state, model, entries->remainder);
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        if (entries->state[k]) {
            out->state[k] = declare_entries(program, state, model, entries->state[k]);
            out->here[k] = declare_copies(program, out->state[k], model->units);
        }
    out->decayed = declare_entries(program, state, model, entries->decayed);
    out->t = state_buffer(state, program, entries->t, NONE);
}

void optimizer_state_release(struct optimizer_state *state) {
    free(state->remainder);
    free(state->gradient);
    free(state->whole_gradient);
    free(state->gradient_slice);
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        free(state->state[k]);
        free(state->here[k]);
    }
    free(state->decayed);
    *state = (struct optimizer_state){0};
}

// ---- updates

int reduce_stream(struct program *program) {
    return program_stream(program, "reduce", STREAM_BULK);
}

int transfer_stream(struct program *program) {
    return program_stream(program, "transfer", 0);
}

// The gradient of what this rank updates of a unit (model_units_own).
struct operand optimizer_reduced(const struct program *program, const struct optimizer_state *state, int unit) {
    struct operand whole = operand_whole(program, state->gradient[unit]);
    const struct unit_axes *axes = &state->axes[unit];
    return axes->zero_stage == 1 ? operand_part(program, whole, axes->shards) : whole;
}

static struct operand operand_of_unit(const struct program *program, const int *buffer, int unit) {
    return buffer && buffer[unit] != NONE ? operand_whole(program, buffer[unit]) : operand_none();
}

struct optimizer_operands optimizer_operands(const struct optimizer_update *u, int unit) {
    const struct optimizer_state *s = u->state;
    struct optimizer_operands o = {.p = model_units_own(u->units, u->program, unit, u->model->unit[unit]),
                                   .rem = operand_of_unit(u->program, s->remainder, unit),
                                   .g = optimizer_reduced(u->program, s, unit),
                                   .o = operand_none(),
                                   .lr = operand_whole(u->program, u->lr),
                                   .factor = operand_whole(u->program, u->outputs.factor),
                                   .t = operand_whole(u->program, s->t),
                                   .decayed = operand_whole(u->program, s->decayed[unit])};
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        o.state[k] = operand_of_unit(u->program, s->here[k], unit);
    return o;
}

// The operand that an optimizer's op calls `name`.
static struct operand operand_named(const struct optimizer_operands *o, int optimizer, const char *name) {
    const struct {
        const char *name;
        const struct operand *operand;
    } common[] = {{"p", &o->p},   {"rem", &o->rem}, {"g", &o->g},           {"o", &o->o},
                  {"lr", &o->lr}, {"t", &o->t},     {"factor", &o->factor}, {"decayed", &o->decayed}};
    for (size_t i = 0; i < ARRAY_LENGTH(common); i++)
        if (strcmp(name, common[i].name) == 0)
            return *common[i].operand;
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        if ((int)optimizer_states[k].optimizer == optimizer && strcmp(name, optimizer_states[k].operand) == 0)
            return o->state[k];
    CHECK(false);
    return operand_none();
}

void optimizer_emit_op(const struct optimizer_update *u, int unit, enum op op,
                       const struct optimizer_operands *operands, int outputs, const struct operand *out) {
    const struct op_info *info = &u->ops->op[op];
    struct operand in[OP_MAX_IN], all[OP_MAX_OUT];
    union attribute attribute[OP_MAX_ATTRIBUTES];
    for (int i = 0; i < info->inputs; i++)
        in[i] = operand_named(operands, u->state->entries->of[unit], info->in[i].name);
    for (int i = 0; i < info->outputs; i++)
        all[i] = i < outputs ? out[i] : in[info->inplace[i]];
    optimizer_attributes(u, unit, info, attribute);
    program_emit(u->program, u->template, op, PHASE_OPTIMIZER, NONE, info->inputs, in, info->outputs, all, attribute)
        ->predicate = u->outputs.finite;
}

void begin_nothing(const struct optimizer_update *u, int unit) {
    (void)u, (void)unit;
}

void update_by_row(const struct optimizer_update *u, int unit) {
    const struct optimizer_operands operands = optimizer_operands(u, unit);
    optimizer_emit_op(u, unit, ROWS[u->state->entries->of[unit]].op, &operands, 0, NULL);
}

// The sum of any number of scalars: further instructions add to what the first has made.
static struct operand emit_norm_sums(struct program *program, int template, int count, const struct operand *part) {
    struct operand total = part[0];
    for (int next = 1; next < count;) {
        struct operand in[INPUTS(NORM_SUM)] = {total};
        for (int i = 1; i < INPUTS(NORM_SUM); i++)
            in[i] = next < count ? part[next++] : operand_none();
        char name[40] = "grad_square_sum";
        if (next < count)
            snprintf(name, sizeof name, "grad_square_sum.to%d", next);
        total =
            operand_whole(program, program_buffer(program, name, DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, (int64_t[]){1}));
        program_emit(program, template, OP_NORM_SUM, PHASE_OPTIMIZER, NONE, INPUTS(NORM_SUM), in, 1, &total, NULL);
    }
    return total;
}

// The sum of the squares of all gradients, over all ranks. A class may be trained on other stages alone: then all
// stages sum each class, zero where they have none.
static struct operand emit_square_sum(const struct optimizer_update *update, int counted_elsewhere) {
    struct program *program = update->program;
    const struct optimizer_state *state = update->state;
    struct unit_sums sums = unit_sums_create(program, update->template, update->units, "grad_square_sum");
    struct operand part[CLASS_COUNT];
    int parts = 0;
    const bool everywhere = update->units->uneven && mesh_present(&program->mesh, AXES_STAGE);
    for (enum parameter_class class = 0; class < CLASS_COUNT; class ++) {
        for (int u = 0; u < update->model->units; u++) {
            if (unit_sums_class(&sums, u) != class || u == counted_elsewhere || state->gradient[u] == NONE)
                continue;
            enum accumulate accumulate;
            struct operand sum = unit_sums_add(&sums, class, &accumulate);
            struct operand gradient = optimizer_reduced(program, state, u);
            program_emit(program, update->template, OP_SQUARE_SUM, PHASE_OPTIMIZER, NONE, 1, &gradient, 1, &sum, NULL)
                ->accumulate = accumulate;
        }
        part[parts] = unit_sums_reduce(&sums, class, everywhere);
        parts += part[parts].buffer != NONE;
    }
    return emit_norm_sums(program, update->template, parts, part);
}

// Brings the states of a unit to where its update finds them, or takes them back.
static void emit_transfers(const struct optimizer_update *u, int unit, bool back) {
    const struct optimizer_state *s = u->state;
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        if (!s->state[k] || s->state[k][unit] == s->here[k][unit])
            continue;
        const struct operand away = operand_whole(u->program, s->state[k][unit]),
                             here = operand_whole(u->program, s->here[k][unit]);
        program_emit(u->program, u->template, OP_TRANSFER, PHASE_OPTIMIZER, NONE, 1, back ? &here : &away, 1,
                     back ? &away : &here, NULL)
            ->stream = transfer_stream(u->program);
    }
}

void optimizer_emit(struct optimizer_update *update, int loss, int counted_elsewhere) {
    struct program *program = update->program;
    struct optimizer_outputs *outputs = &update->outputs;
    int64_t one = 1;
    outputs->norm = program_buffer(program, "grad_norm", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->factor = program_buffer(program, "clip_factor", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->finite = program_buffer(program, "finite", DTYPE_I32, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    program_declare(program, outputs->norm, "norm", NONE);
    program_declare(program, outputs->factor, "factor", NONE);
    program_declare(program, outputs->finite, "finite", NONE);
    const int *of = update->state->entries->of;
    int *unit = mem_alloc((size_t)update->model->units * sizeof *unit), units = 0; // those that are trained
    for (int u = 0; u < update->model->units; u++)
        if (of[u] != OPTIMIZER_NONE)
            unit[units++] = u;
    if (units > 0)
        emit_transfers(update, unit[0], false);
    struct operand total = emit_square_sum(update, counted_elsewhere);
    struct operand t = operand_whole(program, update->state->t);
    program_emit(
        program, update->template, OP_CLIP, PHASE_OPTIMIZER, NONE,
        GIVEN(CLIP, [INPUT(CLIP, sum)] = total, [INPUT(CLIP, loss)] = operand_whole(program, loss)),
        MADE(CLIP, [OUTPUT(CLIP, norm)] = operand_whole(program, outputs->norm),
             [OUTPUT(CLIP, factor)] = operand_whole(program, outputs->factor),
             [OUTPUT(CLIP, finite)] = operand_whole(program, outputs->finite)),
        (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(CLIP, max_norm)] = {.f = update->config->training.max_norm}});
    program_emit(program, update->template, OP_INCREMENT, PHASE_OPTIMIZER, NONE, 1, &t, 1, &t, NULL)->predicate =
        outputs->finite;
    update->direction = mem_alloc((size_t)update->model->units * sizeof *update->direction);
    for (int k = 0; k <= units; k++) { // each begins before the one before it is updated
        if (k < units)
            ROWS[of[unit[k]]].begin(update, unit[k]);
        if (k > 0) {
            ROWS[of[unit[k - 1]]].emit(update, unit[k - 1]);
            emit_transfers(update, unit[k - 1], true);
        }
        if (k + 1 < units)
            emit_transfers(update, unit[k + 1], false); // while one is updated, the next one's states come
    }
    free(update->direction);
    free(unit);
    update->direction = NULL;
}
