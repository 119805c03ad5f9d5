#include "compile/compile.h"

#include "compile/differentiate.h"
#include "compile/passes.h"
#include "model/emit.h"

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
    model_state_declare(&c->model, &c->program, o->model, o->table, o->dtype, positions);
}

static struct emitter emitter_for(struct compiled *c, const struct compile_options *o, int64_t sequences,
                                  int64_t seq_len) {
    return (struct emitter){.program = &c->program,
                            .config = o->model,
                            .table = o->table,
                            .parameter = c->model.parameter,
                            .rope = c->model.rope,
                            .dtype = o->dtype,
                            .sequences = sequences,
                            .seq_len = seq_len,
                            .tokens = c->tokens,
                            .positions = c->positions,
                            .starts = c->starts};
}

static int emit_body(struct emitter *e) {
    int x = emit_embedding(e);
    for (int layer = 0; layer < e->config->num_hidden_layers; layer++)
        x = emit_layer(e, layer, x);
    return emit_final_norm(e, x);
}

// Inputs of a batch, and the template that counts its targets: the loss is a mean over the global batch.
static int emit_batch(struct compiled *c, const struct compile_options *o) {
    int64_t rows = o->micro_batch_size * o->seq_len;
    c->tokens = token_input(c, "tokens", rows);
    c->targets = token_input(c, "targets", rows);
    c->positions = token_input(c, "positions", rows);
    c->starts = token_input(c, "starts", rows);
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
    program_emit(&c->program, input, OP_RECIPROCAL, PHASE_INPUT, NONE, 1, &count, 1, &reciprocal, NULL);
    program_invoke(&c->program, input, NONE, 0);
    return scale;
}

// Rows of a chunk of the loss: chunks of about the same size, whole blocks of 64 rows.
static int64_t logits_rows(const struct compile_options *o, int64_t rows) {
    if (o->logits_rows > 0)
        return MIN(rows, o->logits_rows);
    int64_t bytes = rows * o->model->padded_vocab_size * dtype_size(o->dtype);
    int64_t chunks = (bytes + LOGITS_CHUNK_BYTES - 1) / LOGITS_CHUNK_BYTES;
    int64_t step = (rows + chunks - 1) / chunks;
    return MIN(rows, (step + 63) / 64 * 64);
}

// The head and the loss in chunks of rows, so that all logits are never held at once. With `gradients`, each chunk's
// backward pass follows its forward pass at once.
static void emit_loss(struct compiled *c, const struct compile_options *o, struct emitter *e, int hidden, int scale,
                      struct gradients *gradients) {
    struct program *p = &c->program;
    int64_t rows = e->sequences * e->seq_len, vocab = o->model->padded_vocab_size, width = o->model->hidden_size;
    int64_t step = logits_rows(o, rows);
    union attribute attribute[OP_MAX_ATTRIBUTES] = {{.i = o->model->vocab_size}};
    int nll = program_buffer(p, "nll", dtype_accumulate(o->dtype), KIND_ACT, SCOPE_LOCAL, 1, &rows);
    for (int64_t first = 0; first < rows; first += step) {
        int64_t n = MIN(step, rows - first);
        char name[3][40];
        snprintf(name[0], sizeof name[0], "norm.rows%lld", (long long)first);
        snprintf(name[1], sizeof name[1], "logits.rows%lld", (long long)first);
        snprintf(name[2], sizeof name[2], "d.logits.rows%lld", (long long)first);
        int x = program_slice(p, hidden, name[0], first * width, 2, (int64_t[]){n, width});
        size_t from = p->templates.item[e->template].instructions.count;
        int logits = emit_head(e, x, name[1]);
        struct operand targets = {.buffer = c->targets, .offset = first, .ndim = 1, .dim = {n}, .stride = {1}};
        struct operand loss = {.buffer = nll, .offset = first, .ndim = 1, .dim = {n}, .stride = {1}};
        if (gradients) {
            int d = program_buffer(p, name[2], o->dtype, KIND_ACT, SCOPE_LOCAL, 2, (int64_t[]){n, vocab});
            program_emit(p, e->template, OP_CROSS_ENTROPY_GRAD, PHASE_FORWARD, NONE, 3,
                         (struct operand[]){whole(c, logits), targets, whole(c, scale)}, 2,
                         (struct operand[]){loss, whole(c, d)}, attribute);
            size_t to = p->templates.item[e->template].instructions.count;
            gradients_want(gradients, e->template, from, to);
            differentiate(gradients, e->template, from, to, e->template);
        } else {
            program_emit(p, e->template, OP_CROSS_ENTROPY, PHASE_FORWARD, NONE, 2,
                         (struct operand[]){whole(c, logits), targets}, 1, &loss, attribute);
        }
    }
    struct operand total = whole(c, c->loss);
    struct instruction *sum = program_emit(p, e->template, OP_LOSS_SUM, PHASE_FORWARD, NONE, 2,
                                           (struct operand[]){whole(c, nll), whole(c, scale)}, 1, &total, NULL);
    sum->accumulate = ACCUMULATE_AFTER_FIRST;
}

static trireme_status finish(struct compiled *c, const struct compile_options *o, trireme_error *error) {
    pass_fuse(&c->program, o->ops);
    pass_scopes(&c->program);
    trireme_status status = pass_workspaces(&c->program, o->ops, o->kernels, o->threads, error);
    if (status == TRIREME_OK)
        status = program_plan(&c->program, o->ops, error);
    if (status == TRIREME_OK)
        status = program_verify(&c->program, o->ops, error);
    if (status != TRIREME_OK)
        compiled_release(c);
    return status;
}

trireme_status compile_train(struct compiled *out, const struct compile_options *o, trireme_error *error) {
    struct compiled c;
    begin(&c, "train", o->microbatches, o, o->seq_len);
    struct program *p = &c.program;
    optimizer_state_declare(&c.optimizer, &c.model, p, o->table, &o->optimizer, o->dtype);
    c.lr = scalar(&c, "lr", DTYPE_F64, KIND_INPUT);
    program_declare(p, c.lr, "lr", NONE);
    int scale = emit_batch(&c, o);

    struct gradients gradients;
    gradients_init(&gradients, p, o->ops);
    for (int i = 0; i < c.model.parameters; i++)
        gradients_add_parameter(&gradients, c.model.parameter[i], c.optimizer.gradient_slice[i]);
    int forward = program_template(p, "forward", PHASE_FORWARD),
        backward = program_template(p, "backward", PHASE_BACKWARD);
    struct emitter e = emitter_for(&c, o, o->micro_batch_size, o->seq_len);
    e.template = forward;
    int hidden = emit_body(&e);
    size_t length = p->templates.item[forward].instructions.count;
    gradients_want(&gradients, forward, 0, length);
    e.template = backward;
    emit_loss(&c, o, &e, hidden, scale, &gradients);
    differentiate(&gradients, forward, 0, length, backward);
    gradients_release(&gradients);
    recompute_rewrite(p, forward, backward, o->recompute);
    for (int m = 0; m < o->microbatches; m++) {
        program_invoke(p, forward, m, 0);
        program_invoke(p, backward, m, 0);
    }

    int update = program_template(p, "optimizer", PHASE_OPTIMIZER);
    optimizer_emit(&c.optimizer, &c.model, p, update, &o->optimizer, c.lr, c.loss, &c.outputs);
    program_invoke(p, update, NONE, 0);
    TRY(finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

trireme_status compile_evaluate(struct compiled *out, const struct compile_options *o, trireme_error *error) {
    struct compiled c;
    begin(&c, "evaluate", o->microbatches, o, o->seq_len);
    int scale = emit_batch(&c, o);
    struct emitter e = emitter_for(&c, o, o->micro_batch_size, o->seq_len);
    e.template = program_template(&c.program, "forward", PHASE_FORWARD);
    int hidden = emit_body(&e);
    emit_loss(&c, o, &e, hidden, scale, NULL);
    for (int m = 0; m < o->microbatches; m++)
        program_invoke(&c.program, e.template, m, 0);
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
    int hidden = emit_body(&e);
    // Only one row's logits are wanted: pick it as an embedding picks a token.
    int picked =
        program_buffer(p, "norm.row", o->dtype, KIND_ACT, SCOPE_LOCAL, 2, (int64_t[]){1, o->model->hidden_size});
    struct operand result = whole(&c, picked);
    program_emit(p, e.template, OP_EMBED, PHASE_FORWARD, NONE, 3,
                 (struct operand[]){whole(&c, c.row), whole(&c, hidden), operand_none()}, 1, &result, NULL);
    c.logits = emit_head(&e, picked, "logits");
    p->buffers.item[c.logits].kind = KIND_OUTPUT;
    p->buffers.item[c.logits].scope = SCOPE_STEP;
    program_invoke(p, e.template, 0, 0);
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
