#include "compile/vocabulary.h"

#include "compile/head_loss.h"

// The chunks and pools of the vocabulary, numbered after the two pools that each chunk of layers has.
enum { CHUNK_EMBED, CHUNK_LOSS, POOL_LOSS_INPUTS, CHUNK_EMBED_WEIGHT };

// Other templates go on with what is exchanged, but only for the same microbatch.
enum { EXCHANGE = STREAM_LINGERS | STREAM_APART };

static int embed_stream(struct program *p) {
    return program_stream(p, "embed", EXCHANGE);
}

static int head_stream(struct program *p) { // what the head takes
    return program_stream(p, "head", EXCHANGE);
}

static int loss_stream(struct program *p) { // what the loss needs, with the arithmetic in between
    return program_stream(p, "loss", EXCHANGE);
}

void vocabulary_streams(struct program *p, struct gradients *gradients) {
    const int embed = embed_stream(p), embed_gradient = program_stream(p, "embed_gradient", EXCHANGE),
              head = head_stream(p), loss = loss_stream(p);
    if (gradients) {
        gradients_stream(gradients, embed, embed_gradient);
        gradients_stream(gradients, head, loss);
    }
}

static int chunk_number(const struct schedule *s, int which) {
    return 2 * s->chunks + which;
}

// The peer (struct instruction) that has the first virtual stage, or the last; 0: this rank has it.
static int root_of(const struct compile_options *o, bool last) {
    const struct schedule *s = o->parallel->schedule;
    return s->place[last ? s->stages * s->chunks - 1 : 0].rank - o->parallel->stage;
}

void vocabulary_pools(struct program *p, const struct schedule *s, int stage, bool forward_only) {
    int *slot = mem_alloc((size_t)p->microbatches * sizeof *slot);
    program_pool(p, chunk_number(s, CHUNK_EMBED), chunk_number(s, CHUNK_EMBED), 1, slot);
    int slots = schedule_slots(s, stage, 0, SLOTS_FOR_LOSS, forward_only, slot);
    program_pool(p, chunk_number(s, CHUNK_LOSS), chunk_number(s, CHUNK_LOSS), slots, slot);
    slots = schedule_slots(s, stage, 0, SLOTS_FOR_LOSS_INPUTS, forward_only, slot);
    program_pool(p, chunk_number(s, POOL_LOSS_INPUTS), chunk_number(s, CHUNK_LOSS), slots, slot);
    if (!forward_only) {
        slots = schedule_slots(s, stage, 0, SLOTS_FOR_EMBED_GRADIENT, false, slot);
        program_pool(p, chunk_number(s, CHUNK_EMBED_WEIGHT), chunk_number(s, CHUNK_EMBED_WEIGHT), slots, slot);
    }
    free(slot);
}

static int vocabulary_add_template(const struct compile_options *o, struct program *p, const char *name,
                                   enum phase phase, int which) {
    return program_template(p, name, phase, chunk_number(o->parallel->schedule, which));
}

void vocabulary_embed(struct vocabulary *v, const struct compile_options *o, struct emitter *e, int inputs) {
    struct program *p = e->program;
    e->template = v->embed = vocabulary_add_template(o, p, "embed", PHASE_FORWARD, CHUNK_EMBED);
    int part = emit_embedding_part(e), root = root_of(o, false);
    const struct buffer b = p->buffers.item[part];
    struct operand sum = operand_none();
    v->embedding = NONE;
    if (root == 0) {
        v->embedding = program_buffer(p, "embedding", b.dtype, KIND_ACT, SCOPE_SLOT, b.ndim, b.dim);
        p->buffers.item[v->embedding].pool = inputs;
        sum = operand_whole(p, v->embedding);
    }
    program_communicate(p, e->template, OP_REDUCE, PHASE_FORWARD, embed_stream(p), AXES(AXIS_PP),
                        operand_whole(p, part), sum)
        ->peer = root;
}

// ---- the loss

// Brings the last stage's normed rows to the ranks of all stages, tensor rank by tensor rank.
static int emit_rows(const struct compile_options *o, struct emitter *e, int hidden) {
    struct program *p = e->program;
    int64_t dim[2] = {emit_row_count(e), o->model->hidden_size};
    int rows = program_buffer(p, "head.rows", o->state->dtype, KIND_ACT, SCOPE_SLOT, 2, dim);
    p->buffers.item[rows].pool = chunk_number(o->parallel->schedule, POOL_LOSS_INPUTS);
    program_split_rows(p, rows, AXES_DATA);
    program_communicate(p, e->template, OP_BROADCAST, PHASE_FORWARD, head_stream(p), AXES(AXIS_PP),
                        hidden == NONE ? operand_none() : operand_whole(p, hidden), operand_whole(p, rows))
        ->peer = root_of(o, true);
    return rows;
}

// For a chunk's rows, what every rank makes by itself, and what results from the exchange.
struct exchanged {
    int set; // of all instructions of the chunk between its logits and the gradients that others read
    enum op row;
    struct operand first, exponentials, own, max, sum;
};

static struct operand chunk_operand(const struct logits_chunk *k, const char *name, enum dtype dtype, int ndim,
                                    const int64_t *dim) {
    return operand_whole(&k->compiled->program, chunk_buffer(k, name, dtype, ndim, dim));
}

static struct instruction *on_loss_stream(struct program *p, struct instruction *instruction) {
    instruction->stream = loss_stream(p);
    return instruction;
}

static struct exchanged emit_exchange(const struct logits_chunk *k, bool train) {
    struct program *p = &k->compiled->program;
    struct operand logits = operand_whole(p, k->logits);
    enum dtype dtype = k->options->state->dtype, sums = dtype_accumulate(dtype);
    axis_set group = mesh_present(&p->mesh, AXES_TENSOR | AXES(AXIS_PP));
    int64_t own_dim[3] = {1, 3, k->rows}, all_dim[3] = {mesh_group_size(&p->mesh, group), 3, k->rows};
    const size_t from = p->templates.item[k->template].instructions.count;
    struct exchanged m = {.set = program_set(p),
                          .row = train ? OP_CROSS_ENTROPY_HEAD : OP_CROSS_ENTROPY,
                          .first = operand_whole(p, k->compiled->model.vocab_first),
                          .exponentials = chunk_operand(k, "logits.exp", dtype, 2, p->buffers.item[k->logits].dim),
                          .own = chunk_operand(k, "logits.own", sums, 3, own_dim),
                          .max = chunk_operand(k, "logits.max", sums, 1, &k->rows),
                          .sum = chunk_operand(k, "logits.sum", sums, 1, &k->rows)};
    struct operand all = chunk_operand(k, "logits.all", sums, 3, all_dim);
    union attribute of_exp[OP_MAX_ATTRIBUTES];
    memcpy(of_exp, k->attribute, sizeof of_exp);
    of_exp[ATTRIBUTE(LOGITS_EXP, cap)].f = train ? k->options->model->logits_cap : 0;
    program_emit(p, k->template, OP_LOGITS_EXP, PHASE_FORWARD, NONE,
                 GIVEN(LOGITS_EXP, [INPUT(LOGITS_EXP, logits)] = logits, [INPUT(LOGITS_EXP, targets)] = k->targets,
                       [INPUT(LOGITS_EXP, first)] = m.first),
                 MADE(LOGITS_EXP, [OUTPUT(LOGITS_EXP, e)] = m.exponentials, [OUTPUT(LOGITS_EXP, own)] = m.own), of_exp);
    int64_t own_count = 3 * k->rows, all_count = own_count * all_dim[0];
    program_communicate(p, k->template, OP_ALL_GATHER, PHASE_FORWARD, loss_stream(p), group,
                        operand_shape(m.own, 1, &own_count), operand_shape(all, 1, &all_count));
    on_loss_stream(p, program_emit(p, k->template, OP_LOGITS_MERGE, PHASE_FORWARD, NONE,
                                   GIVEN(LOGITS_MERGE, [INPUT(LOGITS_MERGE, own)] = all,
                                         [INPUT(LOGITS_MERGE, targets)] = k->targets),
                                   MADE(LOGITS_MERGE, [OUTPUT(LOGITS_MERGE, max)] = m.max,
                                        [OUTPUT(LOGITS_MERGE, sum)] = m.sum, [OUTPUT(LOGITS_MERGE, nll)] = k->nll),
                                   NULL));
    chunk_stand_for(k, k->template, from, m.set, m.row);
    return m;
}

static struct operand weight_of(const struct logits_chunk *k) {
    return k->compiled->program.templates.item[k->template].instructions.item[k->product].in[INPUT(MATMUL, w)];
}

// This rank's term of the gradient of the rows, whose sum the last stage gets.
static void emit_rows_gradient(const struct logits_chunk *k, const struct exchanged *m, struct gradients *gradients) {
    struct program *p = gradients->program;
    const struct buffer rows = p->buffers.item[k->hidden];
    struct operand weight = weight_of(k), times = chunk_operand(k, "logits.times", rows.dtype, 2, rows.dim),
                   picked = chunk_operand(k, "logits.picked", rows.dtype, 2, rows.dim),
                   d = operand_whole(p, gradients_contribute(gradients, k->hidden));
    const size_t from = p->templates.item[k->template].instructions.count;
    program_emit(p, k->template, OP_LOGITS_TIMES, PHASE_BACKWARD, NONE,
                 GIVEN(LOGITS_TIMES, [INPUT(LOGITS_TIMES, e)] = m->exponentials, [INPUT(LOGITS_TIMES, w)] = weight), 1,
                 &times, NULL);
    program_emit(p, k->template, OP_LOGITS_PICK, PHASE_BACKWARD, NONE,
                 GIVEN(LOGITS_PICK, [INPUT(LOGITS_PICK, targets)] = k->targets, [INPUT(LOGITS_PICK, w)] = weight,
                       [INPUT(LOGITS_PICK, first)] = m->first),
                 1, &picked, NULL);
    on_loss_stream(p, program_emit(p, k->template, OP_LOGITS_DX, PHASE_BACKWARD, NONE,
                                   GIVEN(LOGITS_DX, [INPUT(LOGITS_DX, a)] = times, [INPUT(LOGITS_DX, b)] = picked,
                                         [INPUT(LOGITS_DX, own)] = m->own, [INPUT(LOGITS_DX, max)] = m->max,
                                         [INPUT(LOGITS_DX, sum)] = m->sum, [INPUT(LOGITS_DX, targets)] = k->targets,
                                         [INPUT(LOGITS_DX, scale)] = k->scale),
                                   1, &d,
                                   (union attribute[OP_MAX_ATTRIBUTES]){
                                       [ATTRIBUTE(LOGITS_DX, cap)] = {.f = k->options->model->logits_cap}}));
    chunk_stand_for(k, k->template, from, m->set, m->row);
}

// The weights' gradient, once the ranks have exchanged.
static void emit_weight_gradient(const struct logits_chunk *k, const struct exchanged *m, struct gradients *gradients,
                                 int template_number) {
    struct program *p = gradients->program;
    const struct buffer logits = p->buffers.item[k->logits];
    struct operand d = chunk_operand(k, "d.logits", k->options->state->dtype, logits.ndim, logits.dim);
    size_t at = p->templates.item[template_number].instructions.count;
    program_emit(p, template_number, OP_LOGITS_GRAD, PHASE_FORWARD, NONE,
                 GIVEN(LOGITS_GRAD, [INPUT(LOGITS_GRAD, logits)] = operand_whole(p, k->logits),
                       [INPUT(LOGITS_GRAD, targets)] = k->targets, [INPUT(LOGITS_GRAD, first)] = m->first,
                       [INPUT(LOGITS_GRAD, max)] = m->max, [INPUT(LOGITS_GRAD, sum)] = m->sum,
                       [INPUT(LOGITS_GRAD, scale)] = k->scale),
                 1, &d, k->attribute);
    chunk_stand_for(k, template_number, at, m->set, m->row);
    differentiate(gradients, template_number, at, at + 1, template_number);
    differentiate(gradients, k->template, k->product + 1, k->end, template_number); // a cap, if there is one
    // The rows' gradient is made in another way.
    differentiate_parameters(gradients, k->template, k->product, k->product + 1, template_number);
}

void vocabulary_loss(struct vocabulary *v, struct compiled *c, const struct compile_options *o, struct emitter *e,
                     int hidden, int scale, struct gradients *gradients) {
    struct program *p = e->program;
    e->template = v->loss = vocabulary_add_template(o, p, "loss", PHASE_FORWARD, CHUNK_LOSS);
    bool last = root_of(o, true) == 0;
    v->loss_weight = gradients ? vocabulary_add_template(o, p, "loss.weight", PHASE_WEIGHT, CHUNK_LOSS)
                     : last    ? vocabulary_add_template(o, p, "loss.total", PHASE_FORWARD, CHUNK_LOSS)
                               : NONE;
    int64_t count = emit_row_count(e);
    int nll =
        last ? program_buffer(p, "nll", dtype_accumulate(o->state->dtype), KIND_ACT, SCOPE_LOCAL, 1, &count) : NONE;
    size_t from = p->templates.item[v->loss].instructions.count;
    int rows = emit_rows(o, e, hidden);
    if (last)
        emit_total(c, v->loss_weight, nll, scale);
    for (int64_t first = 0; first < count;) {
        struct logits_chunk k = emit_logits_chunk(c, o, e, rows, first, nll, scale);
        struct exchanged m = emit_exchange(&k, gradients != NULL);
        first += k.rows;
        if (!gradients)
            continue;
        gradients_want(gradients, v->loss, first == k.rows ? from : k.product, k.end);
        emit_weight_gradient(&k, &m, gradients, v->loss_weight);
        emit_rows_gradient(&k, &m, gradients);
    }
    if (gradients)
        differentiate(gradients, v->loss, from, from + 1, v->loss);
}

void vocabulary_embed_weight(struct vocabulary *v, const struct compile_options *o, struct gradients *gradients) {
    struct program *p = gradients->program;
    v->embed_weight = vocabulary_add_template(o, p, "embed.weight", PHASE_BACKWARD, CHUNK_EMBED_WEIGHT);
    differentiate(gradients, v->embed, 0, p->templates.item[v->embed].instructions.count, v->embed_weight);
    // What the first stage's backward has made stays in its slot until this template is done with it.
    const struct template *t = &p->templates.item[v->embed_weight];
    for (size_t i = 0; i < t->instructions.count; i++)
        if (t->instructions.item[i].op == OP_BROADCAST) {
            const struct operand *sent = &t->instructions.item[i].in[INPUT(BROADCAST, x)];
            if (sent->buffer == NONE)
                continue;
            struct buffer *b = &p->buffers.item[program_root(p, sent->buffer)];
            b->scope = SCOPE_SLOT;
            b->pool = t->chunk;
        }
}
