// The programs for training, evaluation and generation: what is emitted into which template, and in which order the
// passes run. The passes have files of their own, here and in parallel/; compile_train shows all of them.
#include "compile/compile.h"

#include "base/reserve.h"
#include "compile/head_loss.h"
#include "compile/passes.h"
#include "compile/vocabulary.h"
#include "parallel/context.h"
#include "parallel/linear_context.h"
#include "verify/verify.h"

const struct program_info program_kinds[PROGRAM_KINDS] = {
#define AFTER(symbol) | 1u << PROGRAM_##symbol
#define BESIDE(symbol) | 1u << PROGRAM_##symbol
#define PROGRAM(symbol, name, title, keep, compile, wanted, after, beside) \
    {name, title, keep, compile, wanted, 0 after, 0 beside},
#include "compile/programs.def"
#undef PROGRAM
#undef AFTER
#undef BESIDE
};

bool program_may_follow(enum program_kind before, enum program_kind after) {
    return program_kinds[after].after & 1u << before;
}

bool program_may_run_beside(enum program_kind kind, enum program_kind under_way) {
    return program_kinds[under_way].beside & 1u << kind;
}

bool program_is_beside(enum program_kind kind) {
    return program_kinds[kind].beside;
}

enum kernel_set compile_kernels(const struct config *config) {
    return config->training.kernels == CONFIG_KERNELS_REFERENCE ? KERNELS_REFERENCE : KERNELS_FAST;
}

static struct operand compile_whole(const struct compiled *c, int buffer) {
    return operand_whole(&c->program, buffer);
}

static int compile_scalar(struct compiled *c, const char *name, enum dtype dtype, enum buffer_kind kind) {
    return program_buffer(&c->program, name, dtype, kind, SCOPE_STEP, 1, (int64_t[]){1});
}

// `count` whole numbers of a step.
static int compile_numbers(struct compiled *c, const char *name, int64_t count) {
    return program_buffer(&c->program, name, DTYPE_I32, KIND_INPUT, SCOPE_STEP, 1, &count);
}

// One number for each token of `rows` rows of each sequence.
static int token_input(struct compiled *c, const char *name, int64_t sequences, int64_t rows, axis_set along) {
    const bool parts = mesh_present(&c->program.mesh, along); // two dims, to say which of them is split
    const int64_t flat = sequences * rows, both[2] = {sequences, rows};
    int buffer =
        program_buffer(&c->program, name, DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, parts ? 2 : 1, parts ? both : &flat);
    program_split(&c->program, buffer, 0, AXES_SEQUENCES);
    program_split(&c->program, buffer, 1, along);
    return buffer;
}

// Whether the vocabulary is spread over the stages.
static bool compile_is_spread(const struct compile_options *o) {
    return o->parallel->split.vocabulary_stages > 1;
}

// The sending end of a channel between stages: for activations or their gradients, to the next rank or the previous.
static int message_stream(struct program *p, bool gradients, bool to_previous) {
    static const char *const ENDS[2][2][2] = {
        {{"to_next", "from_previous"}, {"to_previous", "from_next"}},
        {{"gradient_to_next", "gradient_from_previous"}, {"gradient_to_previous", "gradient_from_next"}}};
    const char *const *ends = ENDS[gradients][to_previous];
    return program_channel(p, ends[0], ends[1], STREAM_LINGERS);
}

void compile_streams(struct program *p, const struct compile_options *o) {
    if (o->config->optimizer.offload != CONFIG_OFFLOAD_NONE || o->config->outer.offload != CONFIG_OFFLOAD_NONE)
        transfer_stream(p);
    if (mesh_ranks(&p->mesh) == 1)
        return;
    tensor_stream(p);
    gather_stream(p);
    reduce_stream(p);
    replicas_stream(p);
    context_streams(p, o->parallel);
    if (compile_is_spread(o))
        vocabulary_streams(p, NULL);
    for (int i = 0; i < 4 && o->parallel->schedule; i++)
        message_stream(p, i / 2, i % 2);
}

// On which stream the adjoint of a communication goes: nothing waits for a stream that does both.
static void set_gradient_streams(struct gradients *gradients, struct program *p, const struct compile_options *o) {
    if (mesh_ranks(&p->mesh) == 1)
        return;
    gradients_stream(gradients, STREAM_COMPUTE, tensor_stream(p)); // what moves nothing forward
    if (compile_is_spread(o))
        vocabulary_streams(p, gradients);
    for (int to_previous = 0; to_previous < 2 && o->parallel->schedule; to_previous++)
        for (int end = 0; end < 2; end++)
            gradients_stream(gradients, message_stream(p, false, to_previous) + end,
                             message_stream(p, true, !to_previous) + !end);
}

void compiled_begin(struct compiled *c, const struct compile_options *o, const struct program_spec *spec) {
    *c = (struct compiled){.spec = *spec,
                           .tokens = NONE,
                           .targets = NONE,
                           .positions = NONE,
                           .starts = NONE,
                           .lr = NONE,
                           .weight = NONE,
                           .count = NONE,
                           .loss = NONE,
                           .at = NONE,
                           .given = NONE,
                           .picked = NONE,
                           .logits = NONE};
    c->outputs = (struct optimizer_outputs){NONE, NONE, NONE};
    char *name = mem_printf(spec->part ? "%s.%d" : "%s", program_kinds[spec->kind].name, spec->part);
    program_init(&c->program, name, spec->batch.microbatches);
    free(name);
    c->program.mesh = o->parallel->mesh;
}

static void compile_begin(struct compiled *c, const struct compile_options *o, const struct program_spec *spec) {
    compiled_begin(c, o, spec);
    compile_streams(&c->program, o);
    model_state_declare(&c->model, &c->program, &o->state->table, &o->state->model, &o->state->units, o->state->dtype);
}

static struct emitter emitter_for(struct compiled *c, const struct compile_options *o) {
    return (struct emitter){.program = &c->program,
                            .config = o->model,
                            .table = o->state->units.table,
                            .split = &o->parallel->split,
                            .parameter = c->model.parameter,
                            .vocab_first = c->model.vocab_first,
                            .own_rows = c->model.own_rows,
                            .own_rows_along = c->model.own_rows_along,
                            .own_first = c->model.own_first,
                            .heads_end = c->model.heads_end,
                            .first_position = c->model.first_position,
                            .rope = c->model.rope,
                            .dtype = o->state->dtype,
                            .batch = &c->spec.batch,
                            .seq_rows = parallel_rows(o->parallel, c->spec.batch.seq_len),
                            .places = parallel_places(o->parallel, c->spec.batch.seq_len),
                            .exchange = mesh_present(&o->parallel->mesh, o->parallel->exchange),
                            .gathers_keys = o->parallel->context == CONFIG_CONTEXT_PARALLEL_GATHER,
                            .tokens = c->tokens,
                            .positions = c->positions,
                            .starts = c->starts};
}

// ---- stages of a pipeline

// One virtual stage: the layers of a chunk, and where activations come from and go.
struct stage {
    int number, chunk, first_layer, end_layer;
    bool first, last;   // of all virtual stages
    int previous, next; // the peers (struct instruction) that have the virtual stages before and after; 0: this rank
    int inputs;         // its pool of inputs
};

static int chunks_of(const struct compile_options *o) {
    return parallel_chunks(o->parallel);
}

// What a chunk takes from the one before it, and the gradients that its backward begins with, have pools of their own
// (declare_pools).
static int inputs_pool(const struct compile_options *o, int chunk) {
    return chunks_of(o) + chunk;
}

static int gradients_pool(const struct compile_options *o, const struct program *p, int chunk) {
    return (int)p->pools.count - chunks_of(o) + chunk;
}

static struct stage virtual_stage(const struct compile_options *o, int chunk) {
    const struct parallel *r = o->parallel;
    const struct schedule *s = r->schedule;
    if (!s)
        return (struct stage){.end_layer = (int)o->model->num_hidden_layers, .first = true, .last = true};
    int v = s->virtual_stage[r->stage * s->chunks + chunk], count = s->stages * s->chunks;
    struct stage stage = {
        .number = v, .chunk = chunk, .first_layer = r->first_layer[v], .end_layer = r->first_layer[v + 1]};
    stage.first = v == 0;
    stage.last = v == count - 1;
    stage.previous = stage.first ? 0 : s->place[v - 1].rank - r->stage;
    stage.next = stage.last ? 0 : s->place[v + 1].rank - r->stage;
    stage.inputs = inputs_pool(o, chunk);
    return stage;
}

// Whether each backward of the chunk directly follows its forward.
static bool is_back_at_once(const struct compile_options *o, int chunk) {
    const struct schedule *s = o->parallel->schedule;
    const struct schedule_rank *rank = s ? &s->rank[o->parallel->stage] : NULL;
    for (size_t i = 1; s && i < rank->count; i++) {
        const struct pass *pass = &rank->item[i], *before = pass - 1;
        if (pass->chunk == chunk && (pass->kind == PASS_BACKWARD || pass->kind == PASS_BACKWARD_INPUT) &&
            (before->kind != PASS_FORWARD || before->chunk != chunk || before->microbatch != pass->microbatch))
            return false;
    }
    return true;
}

// How the stage's layers are recomputed.
static struct recompute_layers recompute_of(const struct compile_options *o, const struct stage *stage) {
    const struct parallel *r = o->parallel;
    return (struct recompute_layers){.rest = o->config->activation_checkpoint.mode,
                                     .at_once = is_back_at_once(o, stage->chunk),
                                     .first = stage->first_layer,
                                     .full = r->full_layers ? r->full_layers[stage->number] : 0,
                                     .selective = r->selective_layers ? r->selective_layers[stage->number] : 0};
}

// Whether a virtual stage of this rank begins or ends the model.
static bool has_end(const struct compile_options *o, bool last) {
    bool has = false;
    for (int chunk = 0; chunk < chunks_of(o); chunk++) {
        struct stage stage = virtual_stage(o, chunk);
        has |= last ? stage.last : stage.first;
    }
    return has;
}

// Appends one pool for each chunk.
static void declare_chunk_pools(struct program *p, const struct compile_options *o, enum slots_for what,
                                bool forward_only) {
    int *slot = mem_alloc((size_t)p->microbatches * sizeof *slot), first = (int)p->pools.count;
    for (int chunk = 0; chunk < chunks_of(o); chunk++) {
        int slots = schedule_slots(o->parallel->schedule, o->parallel->stage, chunk, what, forward_only, slot);
        program_pool(p, first + chunk, chunk, slots, slot);
    }
    free(slot);
}

// Pools for the chunks' activations, then for their inputs (inputs_pool), for the vocabulary, and last for the
// gradients that backward passes begin with (gradients_pool), which are held for less time than activations.
static void declare_pools(struct program *p, const struct compile_options *o, bool forward_only) {
    const struct schedule *s = o->parallel->schedule;
    if (!s)
        return;
    program_drop_pools(p, 0);
    declare_chunk_pools(p, o, SLOTS_FOR_ACTIVATIONS, forward_only);
    declare_chunk_pools(p, o, SLOTS_FOR_INPUTS, forward_only);
    if (s->vocabulary)
        vocabulary_pools(p, s, o->parallel->stage, forward_only);
    if (!forward_only)
        declare_chunk_pools(p, o, SLOTS_FOR_GRADIENTS, false);
}

// "forward", and where there are several chunks "forward.1".
static int chunk_template(struct compiled *c, const struct compile_options *o, const char *name, enum phase phase,
                          int chunk) {
    char *full = chunks_of(o) > 1 ? mem_printf("%s.%d", name, chunk) : mem_strdup(name);
    int template = program_template(&c->program, full, phase, chunk);
    free(full);
    return template;
}

// Whether a hop goes to the previous rank of the ring; with two ranks it counts as going to the next one.
static bool is_previous(int hop, int stages) {
    return ((hop - 1) % stages + stages) % stages != 0;
}

// The buffer has the name that it has on the rank it comes from.
static int emit_receive(struct emitter *e, struct stage stage) {
    char *name = mem_printf("layers.%d.residual", stage.first_layer - 1);
    int x = program_buffer(e->program, name, e->dtype, KIND_ACT, SCOPE_SLOT, 2,
                           (int64_t[]){emit_stream_rows(e), e->config->hidden_size});
    free(name);
    e->program->buffers.item[x].pool = stage.inputs;
    program_split_rows(e->program, x, AXES_DATA | (e->split->sequence ? AXES_TENSOR : AXES_NONE));
    int stages = e->program->mesh.degree[AXIS_PP];
    program_communicate(e->program, e->template, OP_RECEIVE, PHASE_FORWARD,
                        message_stream(e->program, false, is_previous(-stage.previous, stages)) + 1, AXES(AXIS_PP),
                        operand_none(), operand_whole(e->program, x))
        ->peer = stage.previous;
    return x;
}

// Emits a virtual stage, from the sum of embeddings or the output of the stage before (`handed`; NONE: the embedding is
// emitted here, or the output received) through its layers. Returns the normed rows at the end of the model, else the
// next virtual stage's input if this rank has that too, else NONE: then it is sent.
static int emit_stage(struct emitter *e, struct stage stage, int handed) {
    int x = handed;
    if (stage.first)
        x = handed != NONE ? emit_positions(e, handed) : emit_embedding(e);
    else if (handed == NONE)
        x = emit_receive(e, stage);
    for (int layer = stage.first_layer; layer < stage.end_layer; layer++)
        x = emit_layer(e, layer, x);
    if (stage.last)
        return emit_final_norm(e, x);
    if (stage.next == 0) {
        e->program->buffers.item[x].scope = SCOPE_SLOT;
        e->program->buffers.item[x].pool = stage.inputs + 1; // of the next chunk
        return x;
    }
    int stages = e->program->mesh.degree[AXIS_PP];
    program_communicate(e->program, e->template, OP_SEND, PHASE_FORWARD,
                        message_stream(e->program, false, is_previous(stage.next, stages)), AXES(AXIS_PP),
                        operand_whole(e->program, x), operand_none())
        ->peer = stage.next;
    return NONE;
}

// Sums the loss over all ranks that have part of it.
static void emit_loss_sum(struct compiled *c, int template, enum phase phase) {
    axis_set group = mesh_present(&c->program.mesh, AXES_DATA | AXES(AXIS_PP));
    struct operand loss = compile_whole(c, c->loss);
    if (group)
        program_communicate(&c->program, template, OP_ALL_REDUCE, phase, reduce_stream(&c->program), group, loss, loss);
}

// Declares the inputs of a batch, and emits the template that counts its targets, since the loss is a mean over the
// global batch. Returns the buffer of the scale of that, 1 / targets.
static int emit_batch(struct compiled *c, const struct compile_options *o) {
    int64_t sequences = c->spec.batch.sequences, rows = parallel_rows(o->parallel, c->spec.batch.seq_len);
    c->tokens = token_input(c, "tokens", sequences, rows, AXES_PARTS);
    c->targets = token_input(c, "targets", sequences, rows, AXES_PARTS);
    c->positions = token_input(c, "positions", sequences, rows, AXES_PARTS);
    // Ranks that exchange tokens for heads attend with all of their part.
    c->starts = token_input(c, "starts", sequences, parallel_places(o->parallel, c->spec.batch.seq_len).rows,
                            parallel_parts(o->parallel));
    c->count = compile_scalar(c, "targets.count", DTYPE_F64, KIND_OUTPUT);
    c->loss = compile_scalar(c, "loss", DTYPE_F64, KIND_OUTPUT);
    int scale = compile_scalar(c, "loss.scale", DTYPE_F64, KIND_ACT);
    program_declare(&c->program, c->targets, "targets", NONE);
    program_declare(&c->program, c->starts, "starts", NONE);
    program_declare(&c->program, c->count, "count", NONE);
    program_declare(&c->program, c->loss, "loss", NONE);
    int input = program_template(&c->program, "input", PHASE_INPUT, 0);
    struct operand targets = operand_microbatches(&c->program, c->targets), count = compile_whole(c, c->count),
                   reciprocal = compile_whole(c, scale);
    program_emit(&c->program, input, OP_TARGETS_COUNT, PHASE_INPUT, NONE, 1, &targets, 1, &count, NULL);
    if (mesh_present(&c->program.mesh, AXES_DATA))
        program_communicate(&c->program, input, OP_ALL_REDUCE, PHASE_INPUT, reduce_stream(&c->program), AXES_DATA,
                            count, count);
    if (!has_end(o, true)) { // the loss is made elsewhere
        struct operand loss = compile_whole(c, c->loss);
        program_emit(&c->program, input, OP_ZERO, PHASE_INPUT, NONE, 0, NULL, 1, &loss, NULL);
    }
    const double weight = 1; // of the only term
    program_term(&c->program, scale, weight);
    program_emit(&c->program, input, OP_RECIPROCAL, PHASE_INPUT, NONE, 1, &count, 1, &reciprocal,
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(RECIPROCAL, weight)] = {.f = weight}});
    program_invoke(&c->program, input, NONE, false, false);
    return scale;
}

trireme_status compiled_finish(struct compiled *c, const struct compile_options *o, trireme_error *error) {
    outer_place_program(&c->program, c->lr);
    pass_scopes(&c->program);
    pass_waits(&c->program);
    trireme_status status = pass_workspaces(&c->program, o->ops, compile_kernels(o->config), o->threads, error);
    if (status == TRIREME_OK)
        status = program_plan(&c->program, o->ops, o->aim, error);
    if (status == TRIREME_OK)
        status = reserve_check(error);
    if (status == TRIREME_OK && !o->unproved)
        status = program_verify(&c->program, o->ops, error);
    if (status != TRIREME_OK)
        compiled_release(c);
    return status;
}

// The unit of the embedding, NONE where this rank has none.
static int embedding_unit(const struct compile_options *o) {
    const struct parameter_table *table = o->state->units.table;
    int embedding = parameter_embedding(table);
    return embedding == NONE ? NONE : table->parameters.item[embedding].unit;
}

static bool is_trained(const struct compile_options *o, int unit) {
    return unit != NONE && o->state->optimizer.of[unit] != OPTIMIZER_NONE;
}

// The unit of a tied embedding that both end stages of the pipeline have and update; else NONE.
static int tied_unit(const struct compile_options *o) {
    return o->state->units.layout.tied_ends && is_trained(o, embedding_unit(o)) ? embedding_unit(o) : NONE;
}

int compile_counted_elsewhere(const struct compile_options *o) {
    return has_end(o, false) ? NONE : tied_unit(o);
}

// The peer (struct instruction) that has the last virtual stage, on the rank with the first (`first`); or vice versa.
static int tied_peer(const struct compile_options *o, bool first) {
    const struct schedule *s = o->parallel->schedule;
    int distance = s->place[s->stages * s->chunks - 1].rank - s->place[0].rank;
    return first ? distance : -distance;
}

static void compile_emit_update(struct compiled *c, const struct compile_options *o) {
    struct program *p = &c->program;
    int update = program_template(p, "optimizer", PHASE_OPTIMIZER, 0), tied = tied_unit(o);
    bool first = has_end(o, false);
    if (tied != NONE) {
        struct operand gradient = optimizer_reduced(p, &c->optimizer, tied);
        program_communicate(p, update, OP_ALL_REDUCE, PHASE_OPTIMIZER, reduce_stream(p), AXES(AXIS_PP), gradient,
                            gradient)
            ->peer = tied_peer(o, first);
    }
    emit_loss_sum(c, update, PHASE_OPTIMIZER);
    struct optimizer_update made = {.program = p,
                                    .template = update,
                                    .ops = o->ops,
                                    .config = o->config,
                                    .state = &c->optimizer,
                                    .model = &c->model,
                                    .units = &o->state->units,
                                    .lr = c->lr};
    optimizer_emit(&made, c->loss, compile_counted_elsewhere(o));
    c->outputs = made.outputs;
    program_invoke(p, update, NONE, false, false);
}

// The templates of one chunk.
struct passes {
    int forward, backward, weight; // backward NONE: there is forward alone; weight NONE: backward is in one part
    int handed; // buffer that this rank has for the forward pass from another of its templates; NONE: none
};

static int vocabulary_template(const struct vocabulary *v, enum pass_kind kind) {
    return kind == PASS_EMBED         ? v->embed
           : kind == PASS_LOSS        ? v->loss
           : kind == PASS_LOSS_WEIGHT ? v->loss_weight
                                      : v->embed_weight;
}

// Invokes templates in the order of the schedule's passes. Where backward is in two parts, PASS_BACKWARD is both.
static void schedule_passes(struct compiled *c, const struct compile_options *o, const struct passes *passes,
                            const struct vocabulary *vocabulary) {
    struct program *p = &c->program;
    const struct schedule *schedule = o->parallel->schedule;
    const int n = p->microbatches;
    if (!schedule) {
        for (int m = 0; m < n; m++) {
            program_invoke(p, passes->forward, m, m == 0, m == n - 1);
            if (passes->backward != NONE)
                program_invoke(p, passes->backward, m, m == 0, m == n - 1);
        }
        return;
    }
    const struct schedule_rank *rank = &schedule->rank[o->parallel->stage];
    int *done = mem_alloc(p->templates.count * sizeof *done);
    for (size_t i = 0; i < rank->count; i++) {
        struct pass pass = rank->item[i];
        const struct passes *of = &passes[pass.chunk];
        int run[2] = {NONE, NONE};
        if (pass.kind >= PASS_EMBED)
            run[0] = vocabulary_template(vocabulary, pass.kind);
        else if (pass.kind == PASS_FORWARD)
            run[0] = of->forward;
        else if (pass.kind != PASS_BACKWARD_WEIGHT)
            run[0] = of->backward;
        if (pass.kind == PASS_BACKWARD || pass.kind == PASS_BACKWARD_WEIGHT)
            run[1] = of->weight;
        for (int k = 0; k < 2; k++)
            if (run[k] != NONE) {
                int count = done[run[k]]++;
                program_invoke(p, run[k], pass.microbatch, count == 0, count == n - 1);
            }
    }
    free(done);
}

// Where one rank has both ends of a model with a tied embedding, or a part of a spread one, two templates add to its
// gradient: it is kept whole throughout the step.
static void keep_tied_gradient(struct compiled *c, const struct compile_options *o) {
    bool both_ends = has_end(o, false) && has_end(o, true) && chunks_of(o) > 1;
    if (!o->model->tie_word_embeddings || !(both_ends || compile_is_spread(o)) || !is_trained(o, embedding_unit(o)))
        return;
    int root = c->optimizer.whole_gradient[embedding_unit(o)];
    for (size_t i = 0; i < c->program.buffers.count; i++) {
        struct buffer *b = &c->program.buffers.item[i];
        if (((int)i == root || b->parent == root) && b->scope == SCOPE_LOCAL)
            b->scope = SCOPE_STEP;
    }
}

// Makes the template `embed` where the vocabulary is spread.
static void emit_embed(struct vocabulary *vocabulary, const struct compile_options *o, struct emitter *e) {
    *vocabulary = (struct vocabulary){NONE, NONE, NONE, NONE, .embedding = NONE};
    if (compile_is_spread(o))
        vocabulary_embed(vocabulary, o, e, inputs_pool(o, o->parallel->schedule->place[0].chunk));
}

// Puts what a template receives into the pool.
static void place_received(struct program *p, int template, int pool) {
    const struct template *t = &p->templates.item[template];
    for (size_t i = 0; i < t->instructions.count; i++)
        if (t->instructions.item[i].op == OP_RECEIVE) {
            struct buffer *b = &p->buffers.item[program_root(p, t->instructions.item[i].out[0].buffer)];
            b->scope = SCOPE_SLOT;
            b->pool = pool;
        }
}

// Emits forward passes from this rank's first virtual stage on, then backward passes from its last.
static void emit_passes(struct compiled *c, const struct compile_options *o, struct emitter *e, int scale,
                        struct gradients *gradients, struct passes *passes, struct vocabulary *vocabulary) {
    struct program *p = &c->program;
    int hidden = NONE, chunks = chunks_of(o);
    bool split = o->parallel->schedule && schedule_splits_backward(o->parallel->schedule);
    emit_embed(vocabulary, o, e);
    if (vocabulary->embed != NONE)
        gradients_want(gradients, vocabulary->embed, 0, p->templates.item[vocabulary->embed].instructions.count);
    for (int chunk = 0; chunk < chunks; chunk++) {
        struct stage stage = virtual_stage(o, chunk);
        e->template = passes[chunk].forward = chunk_template(c, o, "forward", PHASE_FORWARD, chunk);
        passes[chunk].handed = stage.first ? vocabulary->embedding : stage.previous ? NONE : hidden;
        hidden = emit_stage(e, stage, passes[chunk].handed);
        gradients_want(gradients, e->template, 0, p->templates.item[e->template].instructions.count);
    }
    if (compile_is_spread(o))
        vocabulary_loss(vocabulary, c, o, e, has_end(o, true) ? hidden : NONE, scale, gradients);
    for (int chunk = chunks; chunk-- > 0;) {
        struct stage stage = virtual_stage(o, chunk);
        int forward = passes[chunk].forward, backward = chunk_template(c, o, "backward", PHASE_BACKWARD, chunk);
        e->template = passes[chunk].backward = backward;
        if (stage.last && !compile_is_spread(o))
            emit_loss(c, o, e, hidden, scale, gradients);
        differentiate(gradients, forward, 0, p->templates.item[forward].instructions.count, backward);
        if (passes[chunk].handed != NONE)
            gradients_complete(gradients, passes[chunk].handed, backward);
        struct recompute_layers layers = recompute_of(o, &stage);
        recompute_rewrite(p, o->ops, forward, backward, &layers);
        passes[chunk].weight = split ? pass_split(p, backward) : NONE;
        if (o->parallel->schedule)
            place_received(p, backward, gradients_pool(o, p, chunk));
    }
    if (compile_is_spread(o))
        vocabulary_embed_weight(vocabulary, o, gradients);
}

// Gradients of rows that ranks look up in their own parts go to the gradient of the unit. A tied embedding's has a
// contribution already: this rank's part of the head's gradient, once that is reduced.
static void add_own_rows(const struct compiled *c, const struct compile_options *o, struct gradients *gradients) {
    const int rows = c->model.own_rows.buffer;
    if (rows == NONE || !is_trained(o, embedding_unit(o)))
        return;
    for (int u = 0; u < c->model.units; u++)
        if (c->model.unit[u] == rows)
            gradients_add_parameter(gradients, rows, c->optimizer.gradient[u]);
    if (o->model->tie_word_embeddings)
        gradients_contribute(gradients, rows);
}

// Gathers sharded units where the templates read them, and reduces gradients where they are complete.
static void gather_and_reduce(struct compiled *c, const struct compile_options *o, const struct passes *passes,
                              const struct vocabulary *vocabulary) {
    struct program *p = &c->program;
    const int chunks = chunks_of(o);
    const bool pipeline = o->parallel->schedule;
    int *backward = mem_alloc((2 * (size_t)chunks + 2) * sizeof *backward), templates = 0;
    for (int chunk = 0; chunk < chunks && pipeline; chunk++)
        data_gather(p, passes[chunk].forward, &c->model, o->parallel, o->ops);
    if (!pipeline)
        data_gather_both(p, passes->forward, passes->backward, &c->model, o->parallel, o->ops);
    if (compile_is_spread(o)) {
        data_gather(p, vocabulary->embed, &c->model, o->parallel, o->ops);
        data_gather(p, vocabulary->loss, &c->model, o->parallel, o->ops);
        backward[templates++] = vocabulary->loss_weight;
    }
    for (int chunk = chunks; chunk-- > 0;) {
        if (pipeline)
            data_gather(p, passes[chunk].backward, &c->model, o->parallel, o->ops);
        backward[templates++] = passes[chunk].backward;
        if (passes[chunk].weight != NONE)
            backward[templates++] = passes[chunk].weight;
    }
    if (compile_is_spread(o))
        backward[templates++] = vocabulary->embed_weight;
    data_reduce(p, backward, templates, &c->model, &c->optimizer, o->state->units.table, o->parallel, o->ops);
    free(backward);
}

trireme_status compile_train(struct compiled *out, const struct compile_options *o, const struct program_spec *spec,
                             trireme_error *error) {
    struct compiled c;
    compile_begin(&c, o, spec);
    struct program *p = &c.program;
    declare_pools(p, o, false);
    optimizer_state_declare(&c.optimizer, p, &o->state->table, &o->state->optimizer, &o->state->units, &c.model,
                            o->state->dtype);
    keep_tied_gradient(&c, o);
    c.lr = compile_scalar(&c, "lr", DTYPE_F64, KIND_INPUT);
    program_declare(p, c.lr, "lr", NONE);
    int scale = emit_batch(&c, o);

    struct gradients gradients;
    gradients_init(&gradients, p, o->ops);
    set_gradient_streams(&gradients, p, o);
    for (int i = 0; i < c.model.parameters; i++)
        if (c.optimizer.gradient_slice[i] != NONE)
            gradients_add_parameter(&gradients, c.model.parameter[i], c.optimizer.gradient_slice[i]);
    add_own_rows(&c, o, &gradients);
    struct emitter e = emitter_for(&c, o);
    struct passes *passes = mem_alloc((size_t)chunks_of(o) * sizeof *passes);
    struct vocabulary vocabulary;
    emit_passes(&c, o, &e, scale, &gradients, passes, &vocabulary);
    trireme_status status = gradients_finish(&gradients, error);
    if (status != TRIREME_OK) {
        free(passes);
        compiled_release(&c);
        return status;
    }
    context_rewrite(p, o->parallel);
    linear_context_rewrite(p, o->parallel);
    pass_fuse(p, o->ops);
    if (o->parallel->overlap)
        pass_overlap(p);
    if (!o->parallel->split.sequence)
        pass_scatter(p);
    gather_and_reduce(&c, o, passes, &vocabulary);
    schedule_passes(&c, o, passes, &vocabulary);
    data_gather_once(p, &c.model, o->parallel);
    free(passes);
    compile_emit_update(&c, o);
    TRY(compiled_finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

trireme_status compile_evaluate(struct compiled *out, const struct compile_options *o, const struct program_spec *spec,
                                trireme_error *error) {
    struct compiled c;
    compile_begin(&c, o, spec);
    declare_pools(&c.program, o, true);
    int scale = emit_batch(&c, o), chunks = chunks_of(o), hidden = NONE;
    struct emitter e = emitter_for(&c, o);
    struct passes *passes = mem_alloc((size_t)chunks * sizeof *passes);
    struct vocabulary vocabulary;
    emit_embed(&vocabulary, o, &e);
    for (int chunk = 0; chunk < chunks; chunk++) {
        struct stage stage = virtual_stage(o, chunk);
        e.template = chunk_template(&c, o, "forward", PHASE_FORWARD, chunk);
        passes[chunk] = (struct passes){e.template, NONE, NONE, NONE};
        hidden = emit_stage(&e, stage, stage.first ? vocabulary.embedding : stage.previous ? NONE : hidden);
        if (stage.last && !compile_is_spread(o))
            emit_loss(&c, o, &e, hidden, scale, NULL);
        data_gather(&c.program, e.template, &c.model, o->parallel, o->ops);
    }
    if (compile_is_spread(o)) {
        vocabulary_loss(&vocabulary, &c, o, &e, has_end(o, true) ? hidden : NONE, scale, NULL);
        data_gather(&c.program, vocabulary.embed, &c.model, o->parallel, o->ops);
        data_gather(&c.program, vocabulary.loss, &c.model, o->parallel, o->ops);
    }
    context_rewrite(&c.program, o->parallel);
    linear_context_rewrite(&c.program, o->parallel);
    if (!o->parallel->split.sequence)
        pass_scatter(&c.program);
    schedule_passes(&c, o, passes, &vocabulary);
    data_gather_once(&c.program, &c.model, o->parallel);
    free(passes);
    if (mesh_ranks(&c.program.mesh) > 1) {
        int end = program_template(&c.program, "loss", PHASE_FORWARD, 0);
        emit_loss_sum(&c, end, PHASE_FORWARD);
        program_invoke(&c.program, end, NONE, false, false);
    }
    TRY(compiled_finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

trireme_status compile_generate(struct compiled *out, const struct compile_options *o, const struct program_spec *spec,
                                trireme_error *error) {
    struct compiled c;
    const bool cached = spec->context > 0;
    const int64_t sequences = spec->batch.sequences, rows = spec->batch.seq_len;
    compile_begin(&c, o, spec);
    struct program *p = &c.program;
    if (cached) {
        emit_cache_declare(&c.cache, p, &o->state->table, &o->state->caches, o->model);
        c.at = c.cache.at = compile_numbers(&c, "at", sequences);
        if (model_is_recurrent(o->model))
            c.given = c.cache.given = compile_numbers(&c, "given", sequences);
    }
    c.tokens = token_input(&c, "tokens", sequences, rows, AXES_NONE);
    c.positions = token_input(&c, "positions", sequences, rows, AXES_NONE);
    if (!cached)
        c.starts = token_input(&c, "starts", sequences, rows, AXES_NONE);
    c.picked = compile_numbers(&c, "picked", spec->picked);
    struct emitter e = emitter_for(&c, o);
    e.cache = cached ? &c.cache : NULL;
    e.template = program_template(p, "decode", PHASE_FORWARD, 0);
    int hidden = emit_stage(&e, virtual_stage(o, 0), NONE);
    // Only some rows' logits are wanted: pick them as an embedding picks tokens.
    int picked = program_buffer(p, "norm.picked", o->state->dtype, KIND_ACT, SCOPE_LOCAL, 2,
                                (int64_t[]){spec->picked, o->model->hidden_size});
    struct operand result = compile_whole(&c, picked);
    program_emit(p, e.template, OP_EMBED, PHASE_FORWARD, NONE,
                 GIVEN(EMBED, [INPUT(EMBED, ids)] = compile_whole(&c, c.picked),
                       [INPUT(EMBED, w)] = compile_whole(&c, hidden), [INPUT(EMBED, first)] = operand_none()),
                 1, &result, NULL);
    c.logits = emit_head(&e, picked, "logits");
    p->buffers.item[c.logits].kind = KIND_OUTPUT;
    p->buffers.item[c.logits].scope = SCOPE_STEP;
    program_invoke(p, e.template, 0, true, true);
    TRY(compiled_finish(&c, o, error));
    *out = c;
    return TRIREME_OK;
}

void compiled_release(struct compiled *c) {
    program_release(&c->program);
    model_state_release(&c->model);
    optimizer_state_release(&c->optimizer);
    emit_cache_release(&c->cache);
    *c = (struct compiled){0};
}
