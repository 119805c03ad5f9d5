#include "compile/vocabulary.h"

// The chunks and pools of the vocabulary, behind those of twice the chunks.
enum { CHUNK_EMBED, CHUNK_LOSS, POOL_LOSS_INPUTS, CHUNK_EMBED_WEIGHT };

static int chunk_number(const struct schedule *s, int which) {
    return 2 * s->chunks + which;
}

// From this rank to the one of the first, or the last, virtual stage.
static int root_of(const struct compile_options *o, bool last) {
    const struct schedule *s = o->parallel.schedule;
    return s->place[last ? s->stages * s->chunks - 1 : 0].rank - o->parallel.stage;
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

static int template(const struct compile_options *o, struct program *p, const char *name, enum phase phase, int which) {
    return program_template(p, name, phase, chunk_number(o->parallel.schedule, which));
}

void vocabulary_embed(struct vocabulary *v, const struct compile_options *o, struct emitter *e, int inputs) {
    struct program *p = e->program;
    e->template = v->embed = template(o, p, "embed", PHASE_FORWARD, CHUNK_EMBED);
    int part = emit_embedding_part(e), root = root_of(o, false);
    const struct buffer b = p->buffers.item[part];
    struct operand sum = operand_none();
    v->embedding = NONE;
    if (root == 0) {
        v->embedding = program_buffer(p, "embedding", b.dtype, KIND_ACT, SCOPE_SLOT, b.ndim, b.dim);
        p->buffers.item[v->embedding].pool = inputs;
        sum = operand_whole(p, v->embedding);
    }
    program_communicate(p, e->template, OP_REDUCE, PHASE_FORWARD, STREAM_EMBED, AXES(AXIS_PP), operand_whole(p, part),
                        sum)
        ->peer = root;
}

// ---- the loss

static int buffer(struct program *p, const char *name, enum dtype dtype, int ndim, const int64_t *dim) {
    return program_buffer(p, name, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
}

// The rows of the last stage, on all ranks: of each, as its tensor ranks have them.
static int emit_rows(struct vocabulary *v, const struct compile_options *o, struct emitter *e, int hidden) {
    struct program *p = e->program;
    int rows = buffer(p, "head.rows", o->dtype, 2, (int64_t[]){e->sequences * e->seq_len, o->model->hidden_size});
    struct buffer *b = &p->buffers.item[rows];
    b->scope = SCOPE_SLOT;
    b->pool = chunk_number(o->parallel.schedule, POOL_LOSS_INPUTS);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh_present(&p->mesh, AXES(a) & AXES_DATA))
            b->placement[a] = PLACE_SHARD(0);
    v->from = p->templates.item[e->template].instructions.count;
    program_communicate(p, e->template, OP_BROADCAST, PHASE_FORWARD, STREAM_HEAD, AXES(AXIS_PP),
                        hidden == NONE ? operand_none() : operand_whole(p, hidden), operand_whole(p, rows))
        ->peer = root_of(o, true);
    return rows;
}

struct meeting {
    struct operand targets, first, exponentials, own, max, sum, scale;
    struct operand weight;
};

static struct instruction *on_loss_stream(struct instruction *instruction) {
    instruction->stream = STREAM_LOSS;
    return instruction;
}

// What every rank makes by itself, and the exchange of it.
static struct meeting emit_meeting(struct compiled *c, const struct compile_options *o, struct emitter *e, int logits,
                                   int nll) {
    struct program *p = e->program;
    const struct buffer b = p->buffers.item[logits];
    enum dtype sums = dtype_accumulate(o->dtype);
    axis_set group = mesh_present(&p->mesh, AXES_TENSOR | AXES(AXIS_PP));
    int64_t rows = b.dim[0], own_dim[3] = {1, 3, rows}, all_dim[3] = {mesh_group_size(&p->mesh, group), 3, rows};
    int e_buffer = buffer(p, "logits.exp", o->dtype, 2, b.dim);
    int own = buffer(p, "logits.own", sums, 3, own_dim), all = buffer(p, "logits.all", sums, 3, all_dim);
    struct meeting m = {.targets = operand_whole(p, c->targets),
                        .first = operand_whole(p, c->model.vocab_first),
                        .exponentials = operand_whole(p, e_buffer),
                        .own = operand_whole(p, own),
                        .max = operand_whole(p, buffer(p, "logits.max", sums, 1, &rows)),
                        .sum = operand_whole(p, buffer(p, "logits.sum", sums, 1, &rows))};
    program_emit(p, e->template, OP_LOGITS_EXP, PHASE_FORWARD, NONE, 3,
                 (struct operand[]){operand_whole(p, logits), m.targets, m.first}, 2,
                 (struct operand[]){m.exponentials, m.own},
                 (union attribute[OP_MAX_ATTRIBUTES]){{.i = o->model->vocab_size}});
    int64_t own_count = 3 * rows, all_count = own_count * all_dim[0];
    program_communicate(p, e->template, OP_ALL_GATHER, PHASE_FORWARD, STREAM_LOSS, group,
                        operand_shape(m.own, 1, &own_count), operand_shape(operand_whole(p, all), 1, &all_count));
    struct operand out[3] = {m.max, m.sum, nll == NONE ? operand_none() : operand_whole(p, nll)};
    on_loss_stream(program_emit(p, e->template, OP_LOGITS_MERGE, PHASE_FORWARD, NONE, 2,
                                (struct operand[]){operand_whole(p, all), m.targets}, 3, out, NULL));
    return m;
}

// The gradient of the rows, which every rank has its part of, for the last stage.
static void emit_rows_gradient(struct vocabulary *v, const struct compile_options *o, struct emitter *e, int rows,
                               const struct meeting *m, struct gradients *gradients) {
    struct program *p = e->program;
    const struct buffer b = p->buffers.item[rows];
    struct operand a = operand_whole(p, buffer(p, "logits.times", o->dtype, 2, b.dim));
    struct operand picked = operand_whole(p, buffer(p, "logits.picked", o->dtype, 2, b.dim));
    struct operand d = operand_whole(p, gradients_contribute(gradients, rows));
    program_emit(p, v->loss, OP_LOGITS_TIMES, PHASE_BACKWARD, NONE, 2, (struct operand[]){m->exponentials, m->weight},
                 1, &a, NULL);
    program_emit(p, v->loss, OP_LOGITS_PICK, PHASE_BACKWARD, NONE, 3,
                 (struct operand[]){m->targets, m->weight, m->first}, 1, &picked, NULL);
    on_loss_stream(program_emit(p, v->loss, OP_LOGITS_DX, PHASE_BACKWARD, NONE, 7,
                                (struct operand[]){a, picked, m->own, m->max, m->sum, m->targets, m->scale}, 1, &d,
                                NULL));
    differentiate(gradients, v->loss, v->from, v->from + 1, v->loss);
}

static void emit_total(struct compiled *c, struct emitter *e, int template_number, int nll, int scale) {
    struct operand total = operand_whole(e->program, c->loss);
    program_emit(e->program, template_number, OP_LOSS_SUM, PHASE_FORWARD, NONE, 2,
                 (struct operand[]){operand_whole(e->program, nll), operand_whole(e->program, scale)}, 1, &total, NULL)
        ->accumulate = ACCUMULATE_AFTER_FIRST;
}

void vocabulary_loss(struct vocabulary *v, struct compiled *c, const struct compile_options *o, struct emitter *e,
                     int hidden, int scale, struct gradients *gradients) {
    struct program *p = e->program;
    e->template = v->loss = template(o, p, "loss", PHASE_FORWARD, CHUNK_LOSS);
    int64_t count = e->sequences * e->seq_len;
    bool last = root_of(o, true) == 0;
    int nll = last ? buffer(p, "nll", dtype_accumulate(o->dtype), 1, &count) : NONE;
    int rows = emit_rows(v, o, e, hidden), logits = emit_head(e, rows, "logits");
    struct meeting m = emit_meeting(c, o, e, logits, nll);
    const struct instruction *product = &p->templates.item[v->loss].instructions.item[v->from + 1];
    m.weight = product->in[1];
    m.scale = operand_whole(p, scale);
    if (!gradients) {
        if (last)
            emit_total(c, e, v->loss, nll, scale);
        return;
    }
    gradients_want(gradients, v->loss, v->from, v->from + 2);
    v->loss_weight = template(o, p, "loss.weight", PHASE_WEIGHT, CHUNK_LOSS);
    if (last)
        emit_total(c, e, v->loss_weight, nll, scale);
    const struct buffer b = p->buffers.item[logits];
    struct operand d = operand_whole(p, buffer(p, "d.logits", o->dtype, b.ndim, b.dim));
    size_t at = p->templates.item[v->loss_weight].instructions.count;
    program_emit(p, v->loss_weight, OP_LOGITS_GRAD, PHASE_FORWARD, NONE, 6,
                 (struct operand[]){operand_whole(p, logits), m.targets, m.first, m.max, m.sum, m.scale}, 1, &d,
                 (union attribute[OP_MAX_ATTRIBUTES]){{.i = o->model->vocab_size}});
    differentiate(gradients, v->loss_weight, at, at + 1, v->loss_weight);
    // The weights' gradient alone: that of the rows is made otherwise.
    gradients->wanted.item[rows] = false;
    differentiate(gradients, v->loss, v->from + 1, v->from + 2, v->loss_weight);
    gradients->wanted.item[rows] = true;
    emit_rows_gradient(v, o, e, rows, &m, gradients);
}

void vocabulary_embed_weight(struct vocabulary *v, const struct compile_options *o, struct gradients *gradients) {
    struct program *p = gradients->program;
    v->embed_weight = template(o, p, "embed.weight", PHASE_BACKWARD, CHUNK_EMBED_WEIGHT);
    differentiate(gradients, v->embed, 0, p->templates.item[v->embed].instructions.count, v->embed_weight);
    // What the first stage's backward has made stays until this is done with it.
    const struct template *t = &p->templates.item[v->embed_weight];
    for (size_t i = 0; i < t->instructions.count; i++)
        if (t->instructions.item[i].op == OP_BROADCAST && t->instructions.item[i].in[0].buffer != NONE) {
            struct buffer *b = &p->buffers.item[program_root(p, t->instructions.item[i].in[0].buffer)];
            b->scope = SCOPE_SLOT;
            b->pool = t->chunk;
        }
}
