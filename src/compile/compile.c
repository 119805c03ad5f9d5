#include "compile/compile.h"

#include "compile/loss.h"
#include "compile/passes.h"

static struct operand whole(const struct compiled *c, int buffer) {
    return operand_whole(&c->program, buffer);
}

static int scalar(struct compiled *c, const char *name, enum dtype dtype, enum buffer_kind kind) {
    return program_buffer(&c->program, name, dtype, kind, SCOPE_STEP, 1, (int64_t[]){1});
}

static int token_input(struct compiled *c, const char *name, int64_t rows) {
    return program_buffer(&c->program, name, DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 1, &rows);
}

static void begin(struct compiled *c, const char *name, int microbatches, const struct compile_options *o,
                  int64_t positions) {
    *c = (struct compiled){.tokens = NONE,
                           .targets = NONE,
                           .positions = NONE,
                           .starts = NONE,
                           .lr = NONE,
                           .count = NONE,
                           .loss = NONE,
                           .at = NONE,
                           .row = NONE,
                           .logits = NONE};
    c->outputs = (struct optimizer_outputs){NONE, NONE, NONE};
    program_init(&c->program, name, microbatches, 1);
    c->program.mesh = o->parallel.mesh;
    c->layout = state_layout_of(&o->parallel, o->model);
    model_state_declare(&c->model, &c->program, o->model, o->table, &c->layout, o->dtype, positions);
}

static struct emitter emitter_for(struct compiled *c, const struct compile_options *o, int64_t sequences,
                                  int64_t seq_len) {
    return (struct emitter){.program = &c->program,
                            .config = o->model,
                            .table = o->table,
                            .split = &o->parallel.split,
                            .parameter = c->model.parameter,
                            .vocab_first = c->model.vocab_first,
                            .heads_end = c->model.heads_end,
                            .rope = c->model.rope,
                            .dtype = o->dtype,
                            .sequences = sequences,
                            .seq_len = seq_len,
                            .tokens = c->tokens,
                            .positions = c->positions,
                            .starts = c->starts};
}

// ---- stages of a pipeline

// The layers that this program has, of one virtual stage.
struct stage {
    int first_layer, end_layer;
    bool first, last; // of all
};

static struct stage stage_of(const struct compile_options *o) {
    const struct parallel *r = &o->parallel;
    if (!r->schedule)
        return (struct stage){0, (int)o->model->num_hidden_layers, true, true};
    int v = r->schedule->virtual_stage[r->stage * r->schedule->chunks];
    return (struct stage){r->first_layer[v], r->first_layer[v + 1], v == 0,
                          v == r->schedule->stages * r->schedule->chunks - 1};
}

static int stream_buffer(const struct emitter *e, const char *name) {
    return program_buffer(e->program, name, e->dtype, KIND_ACT, SCOPE_LOCAL, 2,
                          (int64_t[]){emit_stream_rows(e), e->config->hidden_size});
}

// From the embedding or the stage before to the last layer of this stage, where it goes on to the next; or to the norm
// behind the last layer of all, which is returned.
static int emit_stage(struct emitter *e, struct stage stage) {
    int x;
    if (stage.first) {
        x = emit_embedding(e);
    } else {
        x = stream_buffer(e, "received");
        struct buffer *b = &e->program->buffers.item[x];
        b->placement[AXIS_FSDP] = mesh_present(&e->program->mesh, AXES(AXIS_FSDP)) ? PLACE_SHARD(0) : PLACE_REPLICATE;
        b->placement[AXIS_DP] = mesh_present(&e->program->mesh, AXES(AXIS_DP)) ? PLACE_SHARD(0) : PLACE_REPLICATE;
        for (int a = 0; a < AXIS_COUNT; a++)
            if ((AXES(a) & AXES_TENSOR) && e->split->sequence && e->program->mesh.degree[a] > 1)
                b->placement[a] = PLACE_SHARD(0);
        program_communicate(e->program, e->template, OP_RECEIVE, PHASE_FORWARD, STREAM_NEXT, AXES(AXIS_PP),
                            operand_none(), operand_whole(e->program, x))
            ->peer = -1;
    }
    for (int layer = stage.first_layer; layer < stage.end_layer; layer++)
        x = emit_layer(e, layer, x);
    if (stage.last)
        return emit_final_norm(e, x);
    program_communicate(e->program, e->template, OP_SEND, PHASE_FORWARD, STREAM_NEXT, AXES(AXIS_PP),
                        operand_whole(e->program, x), operand_none())
        ->peer = 1;
    return NONE;
}

static void place_rows(struct compiled *c, int buffer) {
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh_present(&c->program.mesh, AXES(a) & AXES_DATA))
            c->program.buffers.item[buffer].placement[a] = PLACE_SHARD(0);
}

// Sums the loss over all ranks that have part of it.
static void emit_loss_sum(struct compiled *c, int template, enum phase phase) {
    axis_set group = mesh_present(&c->program.mesh, AXES_DATA | AXES(AXIS_PP));
    struct operand loss = whole(c, c->loss);
    if (group)
        program_communicate(&c->program, template, OP_ALL_REDUCE, phase, STREAM_REDUCE, group, loss, loss);
}

// Inputs of a batch, and the template that counts its targets: the loss is a mean over the global batch.
static int emit_batch(struct compiled *c, const struct compile_options *o, struct stage stage) {
    int64_t rows = o->micro_batch_size * o->seq_len;
    c->tokens = token_input(c, "tokens", rows);
    c->targets = token_input(c, "targets", rows);
    c->positions = token_input(c, "positions", rows);
    c->starts = token_input(c, "starts", rows);
    place_rows(c, c->tokens);
    place_rows(c, c->targets);
    place_rows(c, c->positions);
    place_rows(c, c->starts);
    c->count = scalar(c, "targets.count", DTYPE_F64, KIND_OUTPUT);
    c->loss = scalar(c, "loss", DTYPE_F64, KIND_OUTPUT);
    int scale = scalar(c, "loss.scale", DTYPE_F64, KIND_ACT);
    program_declare(&c->program, c->targets, "targets", NONE);
    program_declare(&c->program, c->starts, "starts", NONE);
    program_declare(&c->program, c->count, "count", NONE);
    program_declare(&c->program, c->loss, "loss", NONE);
    int input = program_template(&c->program, "input", PHASE_INPUT);
    struct operand targets = operand_microbatches(&c->program, c->targets), count = whole(c, c->count),
                   reciprocal = whole(c, scale);
    program_emit(&c->program, input, OP_TARGETS_COUNT, PHASE_INPUT, NONE, 1, &targets, 1, &count, NULL);
    if (mesh_present(&c->program.mesh, AXES_DATA))
        program_communicate(&c->program, input, OP_ALL_REDUCE, PHASE_INPUT, STREAM_REDUCE, AXES_DATA, count, count);
    if (!stage.last) { // the loss is made elsewhere
        struct operand loss = whole(c, c->loss);
        program_emit(&c->program, input, OP_ZERO, PHASE_INPUT, NONE, 0, NULL, 1, &loss, NULL);
    }
    program_emit(&c->program, input, OP_RECIPROCAL, PHASE_INPUT, NONE, 1, &count, 1, &reciprocal, NULL);
    program_invoke(&c->program, input, NONE, 0, false, false);
    return scale;
}

static trireme_status finish(struct compiled *c, const struct compile_options *o, trireme_error *error) {
    pass_scopes(&c->program);
    pass_waits(&c->program);
    trireme_status status = pass_workspaces(&c->program, o->ops, o->kernels, o->threads, error);
    if (status == TRIREME_OK)
        status = program_plan(&c->program, o->ops, error);
    if (status == TRIREME_OK)
        status = program_verify(&c->program, o->ops, error);
    if (status != TRIREME_OK)
        compiled_release(c);
    return status;
}

// The unit of a tied embedding that another stage counts and updates too, NONE where it is whole here.
static int tied_unit(const struct compiled *c, const struct compile_options *o) {
    for (size_t i = 0; i < o->table->parameters.count && c->layout.tied_ends; i++)
        if (strcmp(o->table->parameters.item[i].name, "embed.weight") == 0)
            return o->table->parameters.item[i].unit;
    return NONE;
}

static void emit_update(struct compiled *c, const struct compile_options *o, struct stage stage) {
    struct program *p = &c->program;
    int update = program_template(p, "optimizer", PHASE_OPTIMIZER), tied = tied_unit(c, o);
    if (tied != NONE) {
        struct operand gradient = operand_whole(p, c->optimizer.gradient[tied]);
        if (c->optimizer.zero_stage == 1)
            gradient = operand_part(p, gradient, c->optimizer.shards);
        program_communicate(p, update, OP_ALL_REDUCE, PHASE_OPTIMIZER, STREAM_REDUCE, AXES(AXIS_PP), gradient, gradient)
            ->peer = stage.first ? -1 : 1;
    }
    emit_loss_sum(c, update, PHASE_OPTIMIZER);
    optimizer_emit(&c->optimizer, &c->model, o->table, p, update, &o->optimizer, c->lr, c->loss,
                   stage.first ? NONE : tied, &c->outputs);
    program_invoke(p, update, NONE, 0, false, false);
}

// The order of forwards and backwards.
static void schedule_train(struct compiled *c, const struct compile_options *o, int forward, int backward) {
    struct program *p = &c->program;
    const struct schedule *schedule = o->parallel.schedule;
    const int n = o->microbatches;
    if (!schedule) {
        for (int m = 0; m < n; m++) {
            program_invoke(p, forward, m, 0, m == 0, m == n - 1);
            program_invoke(p, backward, m, 0, m == 0, m == n - 1);
        }
        return;
    }
    const struct schedule_rank *rank = &schedule->rank[o->parallel.stage];
    int *slot = mem_alloc(rank->count * sizeof *slot), done[2] = {0};
    schedule_slots(schedule, o->parallel.stage, slot);
    p->slots = schedule_in_flight(schedule, o->parallel.stage, NULL);
    for (size_t i = 0; i < rank->count; i++) {
        struct pass pass = rank->item[i];
        bool is_forward = pass.kind == PASS_FORWARD;
        int *count = &done[is_forward];
        program_invoke(p, is_forward ? forward : backward, pass.microbatch, slot[i], *count == 0, *count == n - 1);
        ++*count;
    }
    free(slot);
}

trireme_status compile_train(struct compiled *out, const struct compile_options *o, trireme_error *error) {
    struct compiled c;
    begin(&c, "train", o->microbatches, o, o->seq_len);
    struct program *p = &c.program;
    struct stage stage = stage_of(o);
    int zero_stage = c.layout.shards ? o->parallel.zero_stage : 0;
    optimizer_state_declare(&c.optimizer, &c.model, p, o->table, &c.layout, zero_stage, &o->optimizer, o->dtype);
    c.lr = scalar(&c, "lr", DTYPE_F64, KIND_INPUT);
    program_declare(p, c.lr, "lr", NONE);
    int scale = emit_batch(&c, o, stage);

    struct gradients gradients;
    gradients_init(&gradients, p, o->ops);
    for (int i = 0; i < c.model.parameters; i++)
        gradients_add_parameter(&gradients, c.model.parameter[i], c.optimizer.gradient_slice[i]);
    int forward = program_template(p, "forward", PHASE_FORWARD),
        backward = program_template(p, "backward", PHASE_BACKWARD);
    struct emitter e = emitter_for(&c, o, o->micro_batch_size, o->seq_len);
    e.template = forward;
    int hidden = emit_stage(&e, stage);
    size_t length = p->templates.item[forward].instructions.count;
    gradients_want(&gradients, forward, 0, length);
    e.template = backward;
    if (stage.last)
        emit_loss(&c, o, &e, hidden, scale, &gradients);
    differentiate(&gradients, forward, 0, length, backward);
    gradients_release(&gradients);
    recompute_rewrite(p, o->ops, forward, backward, o->recompute);
    pass_fuse(p, o->ops);
    data_gather(p, forward, &c.model, &o->parallel, o->ops, false);
    data_gather(p, backward, &c.model, &o->parallel, o->ops, true);
    data_reduce(p, backward, &c.model, &c.optimizer, o->table, &o->parallel);
    schedule_train(&c, o, forward, backward);
    emit_update(&c, o, stage);
    TRY(finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

trireme_status compile_evaluate(struct compiled *out, const struct compile_options *o, trireme_error *error) {
    struct compiled c;
    begin(&c, "evaluate", o->microbatches, o, o->seq_len);
    struct stage stage = stage_of(o);
    int scale = emit_batch(&c, o, stage);
    struct emitter e = emitter_for(&c, o, o->micro_batch_size, o->seq_len);
    e.template = program_template(&c.program, "forward", PHASE_FORWARD);
    int hidden = emit_stage(&e, stage);
    if (stage.last)
        emit_loss(&c, o, &e, hidden, scale, NULL);
    data_gather(&c.program, e.template, &c.model, &o->parallel, o->ops, false);
    for (int m = 0; m < o->microbatches; m++)
        program_invoke(&c.program, e.template, m, 0, m == 0, m == o->microbatches - 1);
    if (mesh_ranks(&c.program.mesh) > 1) {
        int end = program_template(&c.program, "loss", PHASE_FORWARD);
        emit_loss_sum(&c, end, PHASE_FORWARD);
        program_invoke(&c.program, end, NONE, 0, false, false);
    }
    TRY(finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

static void declare_cache(struct compiled *c, const struct compile_options *o, int64_t context) {
    size_t layers = (size_t)o->model->num_hidden_layers;
    int64_t cache[3] = {context, o->model->num_key_value_heads, o->model->head_dim};
    c->keys = mem_alloc(layers * sizeof(int));
    c->values = mem_alloc(layers * sizeof(int));
    for (size_t i = 0; i < layers; i++) {
        char name[2][40];
        snprintf(name[0], sizeof name[0], "layers.%zu.keys", i);
        snprintf(name[1], sizeof name[1], "layers.%zu.values", i);
        c->keys[i] = program_buffer(&c->program, name[0], o->dtype, KIND_CACHE, SCOPE_STATE, 3, cache);
        c->values[i] = program_buffer(&c->program, name[1], o->dtype, KIND_CACHE, SCOPE_STATE, 3, cache);
    }
    c->at = scalar(c, "at", DTYPE_I32, KIND_INPUT);
}

trireme_status compile_generate(struct compiled *out, const struct compile_options *o, int64_t rows, int64_t context,
                                bool cached, trireme_error *error) {
    struct compiled c;
    begin(&c, "generate", 1, o, context);
    struct program *p = &c.program;
    if (cached)
        declare_cache(&c, o, context);
    c.tokens = token_input(&c, "tokens", rows);
    c.positions = token_input(&c, "positions", rows);
    if (!cached)
        c.starts = token_input(&c, "starts", rows);
    c.row = scalar(&c, "row", DTYPE_I32, KIND_INPUT);
    struct emit_cache cache = {c.keys, c.values, c.at};
    struct emitter e = emitter_for(&c, o, 1, rows);
    e.cache = cached ? &cache : NULL;
    e.template = program_template(p, "decode", PHASE_FORWARD);
    int hidden = emit_stage(&e, stage_of(o));
    // Only one row's logits are wanted: pick it as an embedding picks a token.
    int picked =
        program_buffer(p, "norm.row", o->dtype, KIND_ACT, SCOPE_LOCAL, 2, (int64_t[]){1, o->model->hidden_size});
    struct operand result = whole(&c, picked);
    program_emit(p, e.template, OP_EMBED, PHASE_FORWARD, NONE, 3,
                 (struct operand[]){whole(&c, c.row), whole(&c, hidden), operand_none()}, 1, &result, NULL);
    c.logits = emit_head(&e, picked, "logits");
    p->buffers.item[c.logits].kind = KIND_OUTPUT;
    p->buffers.item[c.logits].scope = SCOPE_STEP;
    program_invoke(p, e.template, 0, 0, true, true);
    TRY(finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

void compiled_release(struct compiled *c) {
    program_release(&c->program);
    model_state_release(&c->model);
    optimizer_state_release(&c->optimizer);
    free(c->keys);
    free(c->values);
    *c = (struct compiled){0};
}
