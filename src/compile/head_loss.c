#include "compile/head_loss.h"

#include <math.h>

static struct operand loss_whole(const struct compiled *c, int buffer) {
    return operand_whole(&c->program, buffer);
}

int64_t logits_chunk_rows(int64_t rows, int64_t hidden_size, int64_t vocab_size, int64_t columns, enum dtype dtype,
                          bool pipeline) {
    enum { CHUNK_BYTES = 128 << 20, LEAST = 48 << 20, STREAMS = 8, CHUNKS_MOST = 1000, BLOCK = 64 };
    const double share = (double)columns / (double)vocab_size, size = (double)dtype_size(dtype),
                 streams = STREAMS * (double)rows * (double)hidden_size * size,
                 most = pipeline ? MIN(MAX(streams, share * LEAST), CHUNK_BYTES) : CHUNK_BYTES,
                 chunks = ceil((double)rows * (double)columns * size / floor(most));
    return MIN(rows, round_up(divide_up(rows, (int64_t)MIN(chunks, CHUNKS_MOST)), BLOCK));
}

static int64_t chunk_rows(const struct compile_options *o, int64_t rows) {
    if (o->config->training.logits_rows > 0)
        return MIN(rows, o->config->training.logits_rows);
    return logits_chunk_rows(rows, o->model->hidden_size, o->model->vocab_size, o->parallel->split.vocab_size,
                             o->state->dtype, o->parallel->schedule);
}

static struct operand loss_rows_of(int buffer, int64_t first, int64_t rows) {
    if (buffer == NONE)
        return operand_none();
    return (struct operand){.buffer = buffer, .offset = first, .ndim = 1, .dim = {rows}, .stride = {1}};
}

// Ops of the loss that have the attribute have it in one place.
enum { VOCAB = ATTRIBUTE(CROSS_ENTROPY, vocab) };
_Static_assert((int)VOCAB == (int)ATTRIBUTE(CROSS_ENTROPY_GRAD, vocab) &&
                   (int)VOCAB == (int)ATTRIBUTE(LOGITS_MAX, vocab) && (int)VOCAB == (int)ATTRIBUTE(LOGITS_SUM, vocab) &&
                   (int)VOCAB == (int)ATTRIBUTE(LOGITS_GRAD, vocab) && (int)VOCAB == (int)ATTRIBUTE(LOGITS_EXP, vocab),
               "as in struct logits_chunk");

struct logits_chunk emit_logits_chunk(struct compiled *c, const struct compile_options *o, struct emitter *e,
                                      int hidden, int64_t first, int nll, int scale) {
    int64_t all = emit_row_count(e), width = o->model->hidden_size, rows = MIN(chunk_rows(o, all), all - first);
    char name[2][40];
    snprintf(name[0], sizeof name[0], "norm.rows%lld", (long long)first);
    snprintf(name[1], sizeof name[1], "logits.rows%lld", (long long)first);
    struct logits_chunk k = {.compiled = c,
                             .options = o,
                             .template = e->template,
                             .first = first,
                             .rows = rows,
                             .product = e->program->templates.item[e->template].instructions.count,
                             .targets = loss_rows_of(c->targets, first, rows),
                             .nll = loss_rows_of(nll, first, rows),
                             .scale = loss_whole(c, scale),
                             .attribute = {[VOCAB] = {.i = o->model->vocab_size}}};
    k.hidden = program_slice(e->program, hidden, name[0], first * width, 2, (int64_t[]){rows, width});
    k.logits = emit_head(e, k.hidden, name[1]);
    k.end = e->program->templates.item[e->template].instructions.count;
    return k;
}

int chunk_buffer(const struct logits_chunk *k, const char *name, enum dtype dtype, int ndim, const int64_t *dim) {
    char *full = mem_printf("%s.rows%lld", name, (long long)k->first);
    int buffer = program_buffer(&k->compiled->program, full, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
    free(full);
    return buffer;
}

static void loss_emit(const struct logits_chunk *k, enum op op, int inputs, const struct operand *in, int outputs,
                      const struct operand *out) {
    program_emit(&k->compiled->program, k->template, op, PHASE_FORWARD, NONE, inputs, in, outputs, out, k->attribute);
}

static struct operand loss_gradient(const struct logits_chunk *k) {
    const int64_t *dim = k->compiled->program.buffers.item[k->logits].dim;
    return loss_whole(k->compiled, chunk_buffer(k, "d.logits", k->options->state->dtype, 2, dim));
}

static void emit_whole(const struct logits_chunk *k, bool train) {
    struct operand logits = loss_whole(k->compiled, k->logits);
    if (train)
        loss_emit(k, OP_CROSS_ENTROPY_GRAD,
                  GIVEN(CROSS_ENTROPY_GRAD, [INPUT(CROSS_ENTROPY_GRAD, logits)] = logits,
                        [INPUT(CROSS_ENTROPY_GRAD, targets)] = k->targets,
                        [INPUT(CROSS_ENTROPY_GRAD, scale)] = k->scale),
                  MADE(CROSS_ENTROPY_GRAD, [OUTPUT(CROSS_ENTROPY_GRAD, nll)] = k->nll,
                       [OUTPUT(CROSS_ENTROPY_GRAD, dlogits)] = loss_gradient(k)));
    else
        loss_emit(
            k, OP_CROSS_ENTROPY,
            GIVEN(CROSS_ENTROPY, [INPUT(CROSS_ENTROPY, logits)] = logits, [INPUT(CROSS_ENTROPY, targets)] = k->targets),
            1, &k->nll);
}

void chunk_stand_for(const struct logits_chunk *k, int template, size_t from, int set, enum op row) {
    struct template *t = &k->compiled->program.templates.item[template];
    for (size_t i = from; i < t->instructions.count; i++) {
        t->instructions.item[i].set = set;
        t->instructions.item[i].stands_for = row;
    }
}

static void loss_all_reduce(const struct logits_chunk *k, int buffer, bool maximum) {
    struct operand operand = loss_whole(k->compiled, buffer);
    program_communicate(&k->compiled->program, k->template, OP_ALL_REDUCE, PHASE_FORWARD,
                        tensor_stream(&k->compiled->program), AXES_TENSOR, operand, operand)
        ->attribute[ATTRIBUTE(ALL_REDUCE, max)]
        .i = maximum;
}

// The vocabulary is split: ranks exchange each row's maximum and sums, never logits (Shoeybi et al. 2019, section 3).
static void emit_split(const struct logits_chunk *k, bool train) {
    enum dtype sum_dtype = dtype_accumulate(k->options->state->dtype);
    int64_t rows = k->rows, both = 2 * rows;
    int max = chunk_buffer(k, "logits.max", sum_dtype, 1, &rows),
        sums = chunk_buffer(k, "logits.sums", sum_dtype, 1, &both);
    struct operand logits = loss_whole(k->compiled, k->logits),
                   first = loss_whole(k->compiled, k->compiled->model.vocab_first), m = loss_whole(k->compiled, max);
    const size_t from = k->compiled->program.templates.item[k->template].instructions.count;
    struct operand sum = {.buffer = sums, .ndim = 1, .dim = {rows}, .stride = {1}}, picked = sum;
    picked.offset = rows;
    loss_emit(k, OP_LOGITS_MAX,
              GIVEN(LOGITS_MAX, [INPUT(LOGITS_MAX, logits)] = logits, [INPUT(LOGITS_MAX, first)] = first), 1, &m);
    loss_all_reduce(k, max, true);
    loss_emit(k, OP_LOGITS_SUM,
              GIVEN(LOGITS_SUM, [INPUT(LOGITS_SUM, logits)] = logits, [INPUT(LOGITS_SUM, targets)] = k->targets,
                    [INPUT(LOGITS_SUM, first)] = first, [INPUT(LOGITS_SUM, max)] = m),
              MADE(LOGITS_SUM, [OUTPUT(LOGITS_SUM, sum)] = sum, [OUTPUT(LOGITS_SUM, picked)] = picked));
    loss_all_reduce(k, sums, false);
    loss_emit(k, OP_LOGITS_NLL,
              GIVEN(LOGITS_NLL, [INPUT(LOGITS_NLL, targets)] = k->targets, [INPUT(LOGITS_NLL, max)] = m,
                    [INPUT(LOGITS_NLL, sum)] = sum, [INPUT(LOGITS_NLL, picked)] = picked),
              1, &k->nll);
    if (train) {
        struct operand d = loss_gradient(k);
        loss_emit(k, OP_LOGITS_GRAD,
                  GIVEN(LOGITS_GRAD, [INPUT(LOGITS_GRAD, logits)] = logits, [INPUT(LOGITS_GRAD, targets)] = k->targets,
                        [INPUT(LOGITS_GRAD, first)] = first, [INPUT(LOGITS_GRAD, max)] = m,
                        [INPUT(LOGITS_GRAD, sum)] = sum, [INPUT(LOGITS_GRAD, scale)] = k->scale),
                  1, &d);
    }
    chunk_stand_for(k, k->template, from, program_set(&k->compiled->program),
                    train ? OP_CROSS_ENTROPY_GRAD : OP_CROSS_ENTROPY);
}

void emit_total(struct compiled *c, int template, int nll, int scale) {
    struct operand total = loss_whole(c, c->loss);
    program_emit(
        &c->program, template, OP_LOSS_SUM, PHASE_FORWARD, NONE,
        GIVEN(LOSS_SUM, [INPUT(LOSS_SUM, nll)] = loss_whole(c, nll), [INPUT(LOSS_SUM, scale)] = loss_whole(c, scale)),
        1, &total, NULL)
        ->accumulate = ACCUMULATE_AFTER_FIRST;
}

void emit_loss(struct compiled *c, const struct compile_options *o, struct emitter *e, int hidden, int scale,
               struct gradients *gradients) {
    struct program *p = &c->program;
    int64_t rows = emit_row_count(e);
    int nll = program_buffer(p, "nll", dtype_accumulate(o->state->dtype), KIND_ACT, SCOPE_LOCAL, 1, &rows);
    for (int64_t first = 0; first < rows;) {
        struct logits_chunk k = emit_logits_chunk(c, o, e, hidden, first, nll, scale);
        if (o->parallel->split.ranks > 1)
            emit_split(&k, gradients != NULL);
        else
            emit_whole(&k, gradients != NULL);
        size_t to = p->templates.item[e->template].instructions.count;
        if (gradients) {
            gradients_want(gradients, e->template, k.product, to);
            differentiate(gradients, e->template, k.product, to, e->template);
        }
        first += k.rows;
    }
    emit_total(c, e->template, nll, scale);
}
