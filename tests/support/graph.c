#include "support/graph.h"

#include "base/rng.h"
#include "compile/passes.h"
#include "exec/exec.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/test.h"
#include "verify/verify.h"

#include <math.h>

static const int64_t ONE = 1;

static int graph_scalar(struct graph *g, const char *name, enum dtype dtype, enum buffer_kind kind) {
    int buffer = program_buffer(&g->program, name, dtype, kind, SCOPE_STEP, 1, &ONE);
    if (kind != KIND_ACT)
        program_declare(&g->program, buffer, name, NONE);
    return buffer;
}

static struct operand graph_whole(const struct graph *g, int buffer) {
    return operand_whole(&g->program, buffer);
}

void graph_create(struct graph *g, int microbatches) {
    *g = (struct graph){.table = op_table_create(), .dtype = DTYPE_F64};
    struct program *p = &g->program;
    program_init(p, "train", microbatches);
    const int64_t rows = GRAPH_ROWS;
    g->targets = program_buffer(p, "targets", DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 1, &rows);
    program_declare(p, g->targets, "targets", NONE);
    const int count = graph_scalar(g, "count", DTYPE_F64, KIND_OUTPUT);
    g->loss = graph_scalar(g, "loss", DTYPE_F64, KIND_OUTPUT);
    g->scale = graph_scalar(g, "scale", DTYPE_F64, KIND_ACT);
    const int input = program_template(p, "input", PHASE_INPUT, 0);
    struct operand targets = operand_microbatches(p, g->targets), n = graph_whole(g, count),
                   scale = graph_whole(g, g->scale);
    program_emit(p, input, OP_TARGETS_COUNT, PHASE_INPUT, NONE, 1, &targets, 1, &n, NULL);
    program_term(p, g->scale, 1);
    program_emit(p, input, OP_RECIPROCAL, PHASE_INPUT, NONE, 1, &n, 1, &scale,
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(RECIPROCAL, weight)] = {.f = 1}});
    program_invoke(p, input, NONE, false, false);
    g->forward = program_template(p, "forward", PHASE_FORWARD, 0);
    gradients_init(&g->gradients, p, g->table);
}

void graph_release(struct graph *g) {
    program_release(&g->program);
    free(g->table);
    VEC_RELEASE(&g->parameters);
    VEC_RELEASE(&g->parameter_gradients);
}

static int graph_buffer(struct graph *g, const char *kind, enum buffer_kind of, enum buffer_scope scope, int ndim,
                        const int64_t *dim) {
    char *name = mem_printf("%s%d", kind, g->named++);
    const enum dtype dtype = of == KIND_GRAD || of == KIND_OPTIM ? dtype_accumulate(g->dtype) : g->dtype;
    int buffer = program_buffer(&g->program, name, dtype, of, scope, ndim, dim);
    free(name);
    return buffer;
}

struct operand graph_parameter(struct graph *g, int ndim, const int64_t *dim) {
    int w = graph_buffer(g, "w", KIND_PARAM, SCOPE_STATE, ndim, dim),
        d = graph_buffer(g, "grad.w", KIND_GRAD, SCOPE_STATE, ndim, dim);
    VEC_PUSH(&g->parameters, w);
    VEC_PUSH(&g->parameter_gradients, d);
    gradients_add_parameter(&g->gradients, w, d);
    return graph_whole(g, w);
}

struct operand graph_input(struct graph *g, int64_t rows, int64_t columns) {
    return graph_whole(g, graph_buffer(g, "x", KIND_INPUT, SCOPE_MICROBATCH, 2, (int64_t[]){rows, columns}));
}

struct operand graph_indices(struct graph *g) {
    const int64_t rows = GRAPH_ROWS;
    char *name = mem_printf("i%d", g->named++);
    int buffer = program_buffer(&g->program, name, DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 1, &rows);
    free(name);
    return graph_whole(g, buffer);
}

struct operand graph_tensor(struct graph *g, int ndim, const int64_t *dim) {
    return graph_whole(g, graph_buffer(g, "y", KIND_ACT, SCOPE_LOCAL, ndim, dim));
}

void graph_emit(struct graph *g, enum op op, int inputs, const struct operand *in, int outputs,
                const struct operand *out, const union attribute *attribute) {
    program_emit(&g->program, g->forward, op, PHASE_FORWARD, NONE, inputs, in, outputs, out, attribute);
}

struct operand graph_op(struct graph *g, enum op op, int inputs, const struct operand *in, int64_t rows,
                        int64_t columns, const union attribute *attribute) {
    struct operand y = graph_tensor(g, 2, (int64_t[]){rows, columns});
    graph_emit(g, op, inputs, in, 1, &y, attribute);
    return y;
}

struct operand graph_columns(struct operand matrix, int64_t first, int64_t columns) {
    matrix.offset += first;
    matrix.dim[1] = columns;
    return matrix;
}

void graph_loss(struct graph *g, struct operand logits) {
    const int64_t rows = GRAPH_ROWS;
    struct operand nll = graph_tensor(g, 1, &rows), d = graph_tensor(g, 2, (int64_t[]){GRAPH_ROWS, GRAPH_CLASSES}),
                   scale = graph_whole(g, g->scale), loss = graph_whole(g, g->loss);
    graph_emit(g, OP_CROSS_ENTROPY_GRAD, 3, (struct operand[]){logits, graph_whole(g, g->targets), scale}, 2,
               (struct operand[]){nll, d}, (union attribute[OP_MAX_ATTRIBUTES]){{.i = GRAPH_CLASSES}});
    program_emit(&g->program, g->forward, OP_LOSS_SUM, PHASE_FORWARD, NONE, 2, (struct operand[]){nll, scale}, 1, &loss,
                 NULL)
        ->accumulate = g->losses++ ? ACCUMULATE_YES : ACCUMULATE_AFTER_FIRST;
}

trireme_status graph_differentiate(struct graph *g, trireme_error *error) {
    struct program *p = &g->program;
    const size_t count = p->templates.item[g->forward].instructions.count;
    gradients_want(&g->gradients, g->forward, 0, count);
    g->backward = program_template(p, "backward", PHASE_BACKWARD, 0);
    differentiate(&g->gradients, g->forward, 0, count, g->backward);
    trireme_status status = gradients_finish(&g->gradients, error);
    for (int m = 0; m < p->microbatches; m++) {
        program_invoke(p, g->forward, m, m == 0, m == p->microbatches - 1);
        program_invoke(p, g->backward, m, m == 0, m == p->microbatches - 1);
    }
    return status;
}

static void graph_emit_update(struct graph *g) {
    struct program *p = &g->program;
    const int update = program_template(p, "optimizer", PHASE_OPTIMIZER, 0);
    struct operand sum = graph_whole(g, graph_scalar(g, "square_sum", DTYPE_F64, KIND_ACT)),
                   norm = graph_whole(g, graph_scalar(g, "norm", DTYPE_F64, KIND_OUTPUT)),
                   factor = graph_whole(g, graph_scalar(g, "factor", DTYPE_F64, KIND_OUTPUT)),
                   finite = graph_whole(g, graph_scalar(g, "finite", DTYPE_I32, KIND_OUTPUT)),
                   lr = graph_whole(g, graph_scalar(g, "lr", DTYPE_F64, KIND_INPUT)), loss = graph_whole(g, g->loss);
#define FLAT(buffer) operand_shape(graph_whole(g, buffer), 1, &n)
    for (size_t i = 0; i < g->parameters.count; i++) {
        const int64_t n = buffer_count(&p->buffers.item[g->parameters.item[i]]);
        struct operand d = FLAT(g->parameter_gradients.item[i]);
        program_emit(p, update, OP_SQUARE_SUM, PHASE_OPTIMIZER, NONE, 1, &d, 1, &sum, NULL)->accumulate =
            i ? ACCUMULATE_YES : ACCUMULATE_NO;
    }
    program_emit(p, update, OP_CLIP, PHASE_OPTIMIZER, NONE, 2, (struct operand[]){sum, loss}, 3,
                 (struct operand[]){norm, factor, finite}, (union attribute[OP_MAX_ATTRIBUTES]){{.f = 0}});
    struct operand t = graph_whole(g, program_buffer(p, "t", DTYPE_F64, KIND_OPTIM, SCOPE_STATE, 1, &ONE));
    program_declare(p, t.buffer, "t", NONE);
    program_emit(p, update, OP_INCREMENT, PHASE_OPTIMIZER, NONE, 1, &t, 1, &t, NULL)->predicate = finite.buffer;
    for (size_t i = 0; i < g->parameters.count; i++) {
        const int w = g->parameters.item[i];
        const int64_t n = buffer_count(&p->buffers.item[w]);
        const int m = graph_buffer(g, "m", KIND_OPTIM, SCOPE_STATE, 1, &n),
                  decayed = graph_buffer(g, "decayed", KIND_OPTIM, SCOPE_STATE, 1, &ONE);
        program_declare(p, m, "m", w);
        program_declare(p, decayed, "decayed", w);
        program_emit(p, update, OP_SGD, PHASE_OPTIMIZER, NONE, 7,
                     (struct operand[]){FLAT(w), operand_none(), FLAT(g->parameter_gradients.item[i]), FLAT(m), lr,
                                        factor, graph_whole(g, decayed)},
                     3, (struct operand[]){FLAT(w), operand_none(), FLAT(m)}, NULL)
            ->predicate = finite.buffer;
    }
#undef FLAT
    program_invoke(p, update, NONE, false, false);
}

trireme_status graph_plan(struct graph *g, trireme_error *error) {
    graph_emit_update(g);
    pass_scopes(&g->program);
    place_state(&g->program);
    return program_plan(&g->program, g->table, NULL, error);
}

trireme_status graph_compile(struct graph *g, trireme_error *error) {
    TRY(graph_plan(g, error));
    return program_verify(&g->program, g->table, error);
}

// ---- finite differences

struct graph_run {
    struct graph *graph;
    struct streams *streams;
    struct executor *executor;
    char *state, *step;
};

static double *graph_data(const struct graph_run *r, int buffer, int microbatch) {
    return executor_address(r->executor, buffer, microbatch);
}

static void graph_open(struct graph_run *r, struct graph *g, uint64_t seed) {
    const struct program *p = &g->program;
    trireme_error error = {0};
    *r = (struct graph_run){.graph = g};
    r->state = mem_aligned(BUFFER_ALIGNMENT, (size_t)p->arena[SPACE_DEVICE].state_bytes);
    r->step = mem_aligned(BUFFER_ALIGNMENT, (size_t)p->arena[SPACE_DEVICE].step_bytes);
    memset(r->state, 0, (size_t)p->arena[SPACE_DEVICE].state_bytes);
    memset(r->step, 0xff,
           (size_t)p->arena[SPACE_DEVICE].step_bytes); // not a number, wherever something is read that nobody wrote
    r->streams = streams_create(NULL, 1);
    if (executor_create(&r->executor, r->streams, p, g->table, KERNELS_REFERENCE, r->state, r->step, &error) !=
        TRIREME_OK)
        fail_msg("%s", error.message);
    *graph_data(r, program_find(p, "lr"), NONE) = 0;
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        const bool input = b->kind == KIND_INPUT && b->scope == SCOPE_MICROBATCH;
        for (int m = 0; m < (input ? p->microbatches : 1) && (input || b->kind == KIND_PARAM); m++) {
            void *at = executor_address(r->executor, (int)i, input ? m : NONE);
            for (int64_t k = 0; k < buffer_count(b); k++) {
                double x = rng_uniform(seed, rng_stream(b->name), (uint64_t)(m * buffer_count(b) + k));
                if ((int)i == g->targets)
                    ((int32_t *)at)[k] = (int32_t)floor(x * (GRAPH_CLASSES + 1)) - 1;
                else if (b->dtype == DTYPE_I32)
                    ((int32_t *)at)[k] = (int32_t)floor(x * (double)(k + 1));
                else
                    ((double *)at)[k] = 2 * x - 1;
            }
        }
    }
    for (int m = 0; m < p->microbatches; m++)
        ((int32_t *)executor_address(r->executor, g->targets, m))[0] = m; // not all of them masked
}

static double graph_step(const struct graph_run *r) {
    trireme_error error = {0};
    if (executor_run(r->executor, NULL, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return *graph_data(r, r->graph->loss, NONE);
}

static void graph_close(struct graph_run *r) {
    executor_free(r->executor);
    streams_free(r->streams);
    free(r->state);
    free(r->step);
}

static double graph_loss_along(const struct graph_run *r, double *x, const double *from, const double *direction,
                               int64_t n, double step) {
    for (int64_t k = 0; k < n; k++)
        x[k] = from[k] + step * direction[k];
    return graph_step(r);
}

static void graph_print(const struct graph *g) {
    struct text text = {0};
    program_print(&g->program, g->table, &text);
    fputs(text.text, stderr);
    text_release(&text);
}

static void graph_check_parameter(const struct graph_run *r, size_t number, uint64_t seed) {
    const struct graph *g = r->graph;
    const int w = g->parameters.item[number];
    const int64_t n = buffer_count(&g->program.buffers.item[w]);
    const size_t bytes = (size_t)n * sizeof(double);
    double *x = graph_data(r, w, NONE), *from = mem_alloc(bytes), *direction = mem_alloc(bytes);
    const double *gradient = graph_data(r, g->parameter_gradients.item[number], NONE);
    double got = 0, size = 0, h = 2e-4;
    memcpy(from, x, bytes);
    graph_step(r);
    for (int64_t k = 0; k < n; k++) {
        direction[k] = 2 * rng_uniform(seed, rng_stream("direction"), (uint64_t)k) - 1;
        got += gradient[k] * direction[k];
        size += fabs(gradient[k]);
    }
    const double expected =
        (8 * (graph_loss_along(r, x, from, direction, n, h) - graph_loss_along(r, x, from, direction, n, -h)) -
         (graph_loss_along(r, x, from, direction, n, 2 * h) - graph_loss_along(r, x, from, direction, n, -2 * h))) /
        (12 * h);
    memcpy(x, from, bytes);
    if (!(fabs(got - expected) <= 1e-7 * fmax(size, 1e-2))) {
        graph_print(g);
        fail_msg("%s: the gradient along a direction is %.12g, finite differences give %.12g",
                 g->program.buffers.item[w].name, got, expected);
    }
    free(from);
    free(direction);
}

void graph_check_gradients(struct graph *g, uint64_t seed) {
    struct graph_run run;
    graph_open(&run, g, seed);
    for (size_t i = 0; i < g->parameters.count; i++)
        graph_check_parameter(&run, i, seed);
    graph_close(&run);
}

int graph_count(const struct graph *g, enum op op) {
    int count = 0;
    const struct template *t = &g->program.templates.item[g->backward];
    for (size_t i = 0; i < t->instructions.count; i++)
        count += t->instructions.item[i].op == op;
    return count;
}
