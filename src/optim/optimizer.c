#include "optim/optimizer.h"

// One more buffer per unit, of its shape: `operand` of its update.
static void declare_state(struct program *program, const struct model_state *model, const struct parameter_table *table,
                          enum dtype dtype, const char *suffix, const char *operand, int **unit) {
    model_state_declare_like(model, program, table, dtype, KIND_OPTIM, suffix, NULL, unit, NULL);
    for (int u = 0; u < model->units; u++)
        program_declare(program, (*unit)[u], operand, model->unit[u]);
}

void optimizer_state_declare(struct optimizer_state *state, const struct model_state *model, struct program *program,
                             const struct parameter_table *table, const struct optimizer_config *config,
                             enum dtype dtype) {
    enum dtype sum = dtype_accumulate(dtype);
    *state = (struct optimizer_state){0};
    model_state_declare_like(model, program, table, sum, KIND_GRAD, "gradients", "grad", &state->gradient,
                             &state->gradient_slice);
    if (dtype == DTYPE_BF16)
        declare_state(program, model, table, DTYPE_U16, "remainder", "rem", &state->remainder);
    declare_state(program, model, table, sum, "m", "m", &state->m);
    if (config->name == OPTIMIZER_ADAMW)
        declare_state(program, model, table, sum, "v", "v", &state->v);
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
    free(state->gradient_slice);
    free(state->m);
    free(state->v);
    free(state->decayed);
    *state = (struct optimizer_state){0};
}

// The update of one unit, under the predicate that norm and loss are finite.
static void emit_update(const struct optimizer_state *state, const struct model_state *model, struct program *program,
                        int template, const struct optimizer_config *config, int lr,
                        const struct optimizer_outputs *outputs, int unit) {
#define WHOLE(buffer) operand_whole(program, buffer)
    struct operand p = WHOLE(model->unit[unit]);
    struct operand rem = state->remainder ? WHOLE(state->remainder[unit]) : operand_none();
    struct operand g = WHOLE(state->gradient[unit]), m = WHOLE(state->m[unit]), decayed = WHOLE(state->decayed[unit]);
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

void optimizer_emit(const struct optimizer_state *state, const struct model_state *model, struct program *program,
                    int template, const struct optimizer_config *config, int lr, int loss,
                    struct optimizer_outputs *outputs) {
    int64_t one = 1;
    int sum = program_buffer(program, "grad_square_sum", DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, &one);
    outputs->norm = program_buffer(program, "grad_norm", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->factor = program_buffer(program, "clip_factor", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    outputs->finite = program_buffer(program, "finite", DTYPE_I32, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    program_declare(program, outputs->norm, "norm", NONE);
    program_declare(program, outputs->factor, "factor", NONE);
    program_declare(program, outputs->finite, "finite", NONE);
    struct operand total = operand_whole(program, sum), t = operand_whole(program, state->t);
    for (int u = 0; u < model->units; u++) {
        struct operand gradient = operand_whole(program, state->gradient[u]);
        struct instruction *square =
            program_emit(program, template, OP_SQUARE_SUM, PHASE_OPTIMIZER, NONE, 1, &gradient, 1, &total, NULL);
        square->accumulate = u == 0 ? ACCUMULATE_NO : ACCUMULATE_YES;
    }
    program_emit(program, template, OP_CLIP, PHASE_OPTIMIZER, NONE, 2,
                 (struct operand[]){total, operand_whole(program, loss)}, 3,
                 (struct operand[]){operand_whole(program, outputs->norm), operand_whole(program, outputs->factor),
                                    operand_whole(program, outputs->finite)},
                 (union attribute[OP_MAX_ATTRIBUTES]){{.f = config->max_norm}});
    program_emit(program, template, OP_INCREMENT, PHASE_OPTIMIZER, NONE, 1, &t, 1, &t, NULL)->predicate =
        outputs->finite;
    for (int u = 0; u < model->units; u++)
        emit_update(state, model, program, template, config, lr, outputs, u);
}
