#include "optim/optimizer.h"

int reduce_stream(struct program *program) {
    return program_stream(program, "reduce", STREAM_BULK);
}

// Declares one more state per unit, of the shape of what is updated: the operand `operand` of its update.
static void declare_state(struct program *program, const struct model_state *model, const struct parameter_table *table,
                          const struct state_layout *layout, enum dtype dtype, const char *operand, int **unit) {
    bool remainder = dtype == DTYPE_U16;
    struct state_buffers what = {
        dtype, KIND_OPTIM, SCOPE_STATE, layout->shards != AXES_NONE, remainder ? "remainder" : operand, NULL};
    model_state_declare_like(model, program, table, layout, &what, unit, NULL);
    for (int u = 0; u < model->units; u++)
        program_declare(program, (*unit)[u], operand, model->unit[u]);
}

static void declare_gradients(struct optimizer_state *state, struct program *program, const struct model_state *model,
                              const struct parameter_table *table, const struct state_layout *layout, enum dtype sum) {
    struct state_buffers keep = {sum, KIND_GRAD, SCOPE_STATE, false, "gradients", "grad"};
    if (state->zero_stage < 2) {
        model_state_declare_like(model, program, table, layout, &keep, &state->gradient, &state->gradient_slice);
        state->whole_gradient = mem_alloc((size_t)model->units * sizeof(int));
        memcpy(state->whole_gradient, state->gradient, (size_t)model->units * sizeof(int));
        return;
    }
    struct state_buffers part = {sum, KIND_GRAD, SCOPE_STATE, true, "gradients", NULL};
    struct state_buffers whole = {sum, KIND_GRAD, SCOPE_LOCAL, false, "gradients.whole", "grad"};
    model_state_declare_like(model, program, table, layout, &part, &state->gradient, NULL);
    model_state_declare_like(model, program, table, layout, &whole, &state->whole_gradient, &state->gradient_slice);
    for (int u = 0; u < model->units && state->zero_stage == 3; u++)
        program->buffers.item[state->gradient[u]].gradient_of = model->unit[u];
}

void optimizer_state_declare(struct optimizer_state *state, const struct model_state *model, struct program *program,
                             const struct parameter_table *table, const struct state_layout *layout, int zero_stage,
                             const struct optimizer_config *config, enum dtype dtype) {
    enum dtype sum = dtype_accumulate(dtype);
    *state = (struct optimizer_state){.zero_stage = zero_stage, .shards = layout->shards};
    declare_gradients(state, program, model, table, layout, sum);
    if (dtype == DTYPE_BF16)
        declare_state(program, model, table, layout, DTYPE_U16, "rem", &state->remainder);
    declare_state(program, model, table, layout, sum, "m", &state->m);
    if (config->name == OPTIMIZER_ADAMW)
        declare_state(program, model, table, layout, sum, "v", &state->v);
    state->decayed = mem_alloc((size_t)model->units * sizeof(int));
    for (int u = 0; u < model->units; u++) {
        char *name = mem_printf("%s.decayed", table->units.item[u]);
        state->decayed[u] = program_buffer(program, name, DTYPE_F64, KIND_OPTIM, SCOPE_STATE, 1, (int64_t[]){1});
        program_declare(program, state->decayed[u], "decayed", model->unit[u]);
        free(name);
    }
    state->t = program_buffer(program, "optimizer.t", DTYPE_F64, KIND_OPTIM, SCOPE_STATE, 1, (int64_t[]){1});
    program_declare(program, state->t, "t", NONE);
}

void optimizer_state_release(struct optimizer_state *state) {
    free(state->remainder);
    free(state->gradient);
    free(state->whole_gradient);
    free(state->gradient_slice);
    free(state->m);
    free(state->v);
    free(state->decayed);
    *state = (struct optimizer_state){0};
}

// The part of a unit's parameters that this rank updates; reduced() below gives the same part of its gradient.
static struct operand optimizer_updated(const struct program *program, const struct optimizer_state *state,
                                        const struct model_state *model, int unit) {
    struct operand whole = operand_whole(program, model->unit[unit]);
    bool part = state->zero_stage == 1 || state->zero_stage == 2;
    return part ? operand_part(program, whole, state->shards) : whole;
}

static struct operand optimizer_reduced(const struct program *program, const struct optimizer_state *state, int unit) {
    struct operand whole = operand_whole(program, state->gradient[unit]);
    return state->zero_stage == 1 ? operand_part(program, whole, state->shards) : whole;
}

// The update of one unit, under the predicate that norm and loss are finite.
static void optimizer_emit_update(const struct optimizer_state *state, const struct model_state *model,
                                  struct program *program, int template, const struct optimizer_config *config, int lr,
                                  const struct optimizer_outputs *outputs, int unit) {
#define WHOLE(buffer) operand_whole(program, buffer)
    struct operand p = optimizer_updated(program, state, model, unit);
    struct operand rem = state->remainder ? WHOLE(state->remainder[unit]) : operand_none();
    struct operand g = optimizer_reduced(program, state, unit), m = WHOLE(state->m[unit]),
                   decayed = WHOLE(state->decayed[unit]);
    struct operand rate = WHOLE(lr), factor = WHOLE(outputs->factor);
    struct instruction *update = NULL;
    switch (config->name) {
    case OPTIMIZER_ADAMW: {
        struct operand v = WHOLE(state->v[unit]);
        update = program_emit(
            program, template, OP_ADAMW, PHASE_OPTIMIZER, NONE, 9,
            (struct operand[]){p, rem, g, m, v, rate, factor, WHOLE(state->t), decayed}, 4,
            (struct operand[]){p, rem, m, v},
            (union attribute[OP_MAX_ATTRIBUTES]){
                {.f = config->beta1}, {.f = config->beta2}, {.f = config->eps}, {.f = config->weight_decay}});
        break;
    }
    case OPTIMIZER_LION:
        update = program_emit(program, template, OP_LION, PHASE_OPTIMIZER, NONE, 7,
                              (struct operand[]){p, rem, g, m, rate, factor, decayed}, 3, (struct operand[]){p, rem, m},
                              (union attribute[OP_MAX_ATTRIBUTES]){
                                  {.f = config->beta1}, {.f = config->beta2}, {.f = config->weight_decay}});
        break;
    case OPTIMIZER_SGD:
        update =
            program_emit(program, template, OP_SGD, PHASE_OPTIMIZER, NONE, 7,
                         (struct operand[]){p, rem, g, m, rate, factor, decayed}, 3, (struct operand[]){p, rem, m},
                         (union attribute[OP_MAX_ATTRIBUTES]){{.f = config->momentum}, {.f = config->weight_decay}});
        break;
    }
    update->predicate = outputs->finite;
#undef WHOLE
}

// The class of a unit: all its parameters have the same.
static enum parameter_class class_of(const struct parameter_table *table, int unit) {
    return table->parameters.item[table->first[unit]].split;
}

// The class with which a class's squares are summed: all sums go over the stages, so a spread vocabulary needs no sum
// of its own.
static enum parameter_class counted_as(enum parameter_class class) {
    return class == CLASS_VOCABULARY ? CLASS_SPLIT : class;
}

// The sum of the squares of all gradients, over all ranks. Each class of units is spread over different axes.
static struct operand emit_square_sum(const struct optimizer_state *state, const struct model_state *model,
                                      const struct parameter_table *table, struct program *program, int template,
                                      int counted_elsewhere) {
    static const axis_set SPREAD[CLASS_COUNT] = {[CLASS_SPLIT] = AXES_TENSOR, [CLASS_KV] = AXES(AXIS_TP)};
    struct operand part[NORM_SUM_PARTS];
    int parts = 0;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct operand sum = operand_none();
        for (int u = 0; u < model->units; u++) {
            if ((int)counted_as(class_of(table, u)) != class || u == counted_elsewhere)
                continue;
            bool first = sum.buffer == NONE;
            if (first) {
                char name[40];
                snprintf(name, sizeof name, "grad_square_sum.%d", class);
                sum = operand_whole(program,
                                    program_buffer(program, name, DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, (int64_t[]){1}));
            }
            struct operand gradient = optimizer_reduced(program, state, u);
            struct instruction *square =
                program_emit(program, template, OP_SQUARE_SUM, PHASE_OPTIMIZER, NONE, 1, &gradient, 1, &sum, NULL);
            square->accumulate = first ? ACCUMULATE_NO : ACCUMULATE_YES;
        }
        if (sum.buffer == NONE)
            continue;
        axis_set group = mesh_present(&program->mesh, SPREAD[class] | state->shards | AXES(AXIS_PP));
        if (group)
            program_communicate(program, template, OP_ALL_REDUCE, PHASE_OPTIMIZER, reduce_stream(program), group, sum,
                                sum);
        CHECK(parts < NORM_SUM_PARTS);
        part[parts++] = sum;
    }
    if (parts == 1)
        return part[0];
    struct operand total = operand_whole(
        program, program_buffer(program, "grad_square_sum", DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, (int64_t[]){1}));
    for (int i = parts; i < NORM_SUM_PARTS; i++)
        part[i] = operand_none();
    program_emit(program, template, OP_NORM_SUM, PHASE_OPTIMIZER, NONE, NORM_SUM_PARTS, part, 1, &total, NULL);
    return total;
}

void optimizer_emit(const struct optimizer_state *state, const struct model_state *model,
                    const struct parameter_table *table, struct program *program, int template,
                    const struct optimizer_config *config, int lr, int loss, int counted_elsewhere,
                    struct optimizer_outputs *outputs) {
    int64_t one = 1;
    outputs->norm = program_buffer(program, "grad_norm", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->factor = program_buffer(program, "clip_factor", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->finite = program_buffer(program, "finite", DTYPE_I32, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    program_declare(program, outputs->norm, "norm", NONE);
    program_declare(program, outputs->factor, "factor", NONE);
    program_declare(program, outputs->finite, "finite", NONE);
    struct operand total = emit_square_sum(state, model, table, program, template, counted_elsewhere);
    struct operand t = operand_whole(program, state->t);
    program_emit(program, template, OP_CLIP, PHASE_OPTIMIZER, NONE, 2,
                 (struct operand[]){total, operand_whole(program, loss)}, 3,
                 (struct operand[]){operand_whole(program, outputs->norm), operand_whole(program, outputs->factor),
                                    operand_whole(program, outputs->finite)},
                 (union attribute[OP_MAX_ATTRIBUTES]){{.f = config->max_norm}});
    program_emit(program, template, OP_INCREMENT, PHASE_OPTIMIZER, NONE, 1, &t, 1, &t, NULL)->predicate =
        outputs->finite;
    for (int u = 0; u < model->units; u++)
        optimizer_emit_update(state, model, program, template, config, lr, outputs, u);
}
