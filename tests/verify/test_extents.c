// Rows as many as a number says at run time: experts on several ranks, each with as many rows as were sent to it,
// against one rank that has all experts, and their gradients against finite differences; faults that are refused; the
// text form; kernels on fewer rows than they were prepared for.
#include "base/rng.h"
#include "compile/differentiate.h"
#include "compile/passes.h"
#include "exec/exec.h"
#include "memory/memory_plan.h"
#include "parallel/recompute.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/team.h"
#include "support/test.h"
#include "verify/proofs.h"
#include "verify/verify.h"

#include <math.h>

enum { GROUPS = 2, COUNT_MOST = 3, IN = 3, OUT = 5, RANKS_MOST = 6 };

// ---- experts

// Rows of `width` values, sorted by expert, go to the ranks that have these experts, through them, and back; each has a
// loss. Ranks that differ along fsdp have other experts, those along dp the same.
struct experts {
    struct op_table *ops;
    struct program p;
    int ranks, replicas, groups; // with experts of their own; with the same ones; experts of a rank
    int forward, backward, layer;
    int counts, x, w, bias, dw, dbias, targets, scale, loss; // buffers
    int received, rows, made, back;
};

static struct operand experts_whole(const struct experts *e, int buffer) {
    return operand_whole(&e->p, buffer);
}

static struct operand experts_shape(const struct experts *e, int buffer, int64_t a, int64_t r, int64_t p, int64_t c) {
    return operand_shape(experts_whole(e, buffer), 4, (int64_t[]){a, r, p, c});
}

static int experts_buffer(struct experts *e, const char *name, enum dtype dtype, enum buffer_kind kind,
                          enum buffer_scope scope, int ndim, const int64_t *dim, int split) {
    const int buffer = program_buffer(&e->p, name, dtype, kind, scope, ndim, dim);
    const axis_set along = AXES(AXIS_FSDP) | (kind == KIND_INPUT ? AXES(AXIS_DP) : AXES_NONE);
    if (split != NONE)
        program_split(&e->p, buffer, split, along);
    return buffer;
}

static void experts_emit(struct experts *e, enum op op, int inputs, const struct operand *in, int outputs,
                         const struct operand *out, const union attribute *attribute) {
    struct instruction *i =
        program_emit(&e->p, e->forward, op, PHASE_FORWARD, e->layer, inputs, in, outputs, out, attribute);
    if (op_traffic[op].call != CALL_NONE) {
        i->group = AXES(AXIS_FSDP);
        i->stream = program_find_stream(&e->p, "experts");
    }
}

// What a rank sums up of its numbers: of a view [a,r,P,c].
static int experts_sum(struct experts *e, const char *name, struct operand counts, const int64_t dim[3]) {
    const int sum = experts_buffer(e, name, DTYPE_I32, KIND_ACT, SCOPE_LOCAL, 3, dim, NONE);
    struct operand out = experts_whole(e, sum);
    experts_emit(e, OP_COUNT_SUM, 1, &counts, 1, &out, NULL);
    return sum;
}

static int experts_rows(struct experts *e, const char *name, int64_t rows, int64_t columns, int extent) {
    const int buffer = experts_buffer(e, name, DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 2, (int64_t[]){rows, columns}, NONE);
    program_bound(&e->p, buffer, extent, rows / 2);
    return buffer;
}

static int experts_input(struct experts *e, const char *name, enum dtype dtype, int64_t rows, int64_t columns,
                         int extent) {
    const int buffer =
        experts_buffer(e, name, dtype, KIND_INPUT, SCOPE_MICROBATCH, columns ? 2 : 1, (int64_t[]){rows, columns}, 0);
    program_bound(&e->p, buffer, extent, rows / 2);
    return buffer;
}

static int experts_parameter(struct experts *e, const char *name, int ndim, const int64_t *dim, int *gradient) {
    const int buffer = experts_buffer(e, name, DTYPE_F64, KIND_PARAM, SCOPE_STATE, ndim, dim, 0);
    char text[24];
    snprintf(text, sizeof text, "grad.%s", name);
    *gradient = experts_buffer(e, text, DTYPE_F64, KIND_GRAD, SCOPE_STATE, ndim, dim, 0);
    return buffer;
}

// Numbers of rows for each rank of the group, and in all.
struct numbers {
    int of_ranks, all;
};

static struct numbers experts_numbers(struct experts *e, const char *of_ranks, const char *all, int counts) {
    const int64_t n = e->ranks, g = e->groups;
    const int each = experts_sum(e, of_ranks, experts_shape(e, counts, n, 1, g, 1), (int64_t[]){n, 1, 1});
    return (struct numbers){each, experts_sum(e, all, experts_shape(e, each, 1, 1, n, 1), (int64_t[]){1, 1, 1})};
}

static struct operand of_ranks(const struct experts *e, struct numbers numbers) {
    return operand_shape(experts_whole(e, numbers.of_ranks), 1, (int64_t[]){e->ranks});
}

static void experts_send(struct experts *e, int from, struct numbers sends, struct numbers receives, int to) {
    struct operand in[] = {experts_whole(e, from), of_ranks(e, sends), of_ranks(e, receives)},
                   out = experts_whole(e, to);
    experts_emit(e, OP_ALL_TO_ALL_V, 3, in, 1, &out, NULL);
}

static void experts_multiply(struct experts *e, int rows, int counts, int made) {
    struct operand in[] = {experts_whole(e, rows),
                           operand_shape(experts_whole(e, counts), 2, (int64_t[]){e->ranks, e->groups}),
                           experts_whole(e, e->w), experts_whole(e, e->bias)},
                   y = experts_whole(e, made);
    experts_emit(e, OP_MATMUL_GROUPED, 4, in, 1, &y, NULL);
}

static void experts_emit_loss(struct experts *e, int logits, int64_t rows, int extent) {
    e->targets = experts_input(e, "targets", DTYPE_I32, rows, 0, extent);
    const int d = experts_rows(e, "d", rows, OUT, extent);
    const int nll = experts_buffer(e, "nll", DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, &rows, NONE);
    program_bound(&e->p, nll, extent, rows / 2);
    struct operand of[] = {experts_whole(e, nll), experts_whole(e, d)}, total = experts_whole(e, e->loss),
                   from[] = {experts_whole(e, logits), experts_whole(e, e->targets), experts_whole(e, e->scale)};
    experts_emit(e, OP_CROSS_ENTROPY_GRAD, 3, from, 2, of, (union attribute[OP_MAX_ATTRIBUTES]){{.i = OUT}});
    experts_emit(e, OP_LOSS_SUM, 2, (struct operand[]){of[0], from[2]}, 1, &total, NULL);
    TEMPLATE_INSTRUCTIONS(&e->p, e->forward).item[TEMPLATE_INSTRUCTIONS(&e->p, e->forward).count - 1].accumulate =
        ACCUMULATE_AFTER_FIRST;
}

// `groups`: experts of a rank. With one rank nothing is exchanged.
static void experts_create(struct experts *e, int ranks, int replicas, int groups, int microbatches) {
    *e = (struct experts){.ops = op_table_create(), .ranks = ranks, .replicas = replicas, .groups = groups};
    const int64_t n = ranks, g = groups, most = n * g * COUNT_MOST, one = 1;
    program_init(&e->p, "experts", microbatches);
    e->p.mesh.degree[AXIS_FSDP] = ranks;
    e->p.mesh.degree[AXIS_DP] = replicas;
    program_stream(&e->p, "experts", 0);
    e->scale = program_buffer(&e->p, "scale", DTYPE_F64, KIND_PARAM, SCOPE_STATE, 1, &one);
    e->loss = program_buffer(&e->p, "loss", DTYPE_F64, KIND_OUTPUT, SCOPE_STEP, 1, &one);
    for (int a = 0; a < AXIS_COUNT; a++)
        e->p.buffers.item[e->loss].placement[a] = e->p.mesh.degree[a] > 1 ? PLACE_SUM : PLACE_REPLICATE;
    e->counts = experts_buffer(e, "counts", DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 3, (int64_t[]){n, 1, g}, 1);
    e->w = experts_parameter(e, "w", 3, (int64_t[]){g, OUT, IN}, &e->dw);
    e->bias = experts_parameter(e, "bias", 2, (int64_t[]){g, OUT}, &e->dbias);
    e->forward = program_template(&e->p, "forward", PHASE_FORWARD, 0);
    const struct numbers sent = experts_numbers(e, "sends", "sent", e->counts);
    struct numbers arrived = sent;
    e->received = e->counts;
    e->x = experts_input(e, "x", DTYPE_F64, most, IN, sent.all);
    e->rows = e->x;
    if (ranks > 1) {
        e->received = experts_buffer(e, "received", DTYPE_I32, KIND_ACT, SCOPE_LOCAL, 3, (int64_t[]){n, 1, g}, NONE);
        struct operand counts = experts_whole(e, e->counts), received = experts_whole(e, e->received);
        experts_emit(e, OP_ALL_TO_ALL, 1, &counts, 1, &received, NULL);
        arrived = experts_numbers(e, "receives", "arrived", e->received);
        e->rows = experts_rows(e, "rows", most, IN, arrived.all);
        experts_send(e, e->x, sent, arrived, e->rows);
    }
    e->made = experts_rows(e, "made", most, OUT, arrived.all);
    e->back = experts_rows(e, "gelu", most, OUT, arrived.all);
    experts_multiply(e, e->rows, e->received, e->made);
    struct operand made = experts_whole(e, e->made), gelu = experts_whole(e, e->back);
    experts_emit(e, OP_GELU, 1, &made, 1, &gelu, NULL);
    if (ranks > 1) {
        const int from = e->back;
        e->back = experts_rows(e, "back", most, OUT, sent.all);
        experts_send(e, from, arrived, sent, e->back);
    }
    e->layer = NONE;
    experts_emit_loss(e, e->back, most, sent.all);
}

static void experts_release(struct experts *e) {
    program_release(&e->p);
    free(e->ops);
}

static trireme_status experts_differentiate(struct experts *e, trireme_error *error) {
    struct gradients g;
    const size_t count = e->p.templates.item[e->forward].instructions.count;
    gradients_init(&g, &e->p, e->ops);
    gradients_add_parameter(&g, e->w, e->dw);
    gradients_add_parameter(&g, e->bias, e->dbias);
    gradients_want(&g, e->forward, 0, count);
    e->backward = program_template(&e->p, "backward", PHASE_BACKWARD, 0);
    differentiate(&g, e->forward, 0, count, e->backward);
    for (int m = 0; m < e->p.microbatches; m++) {
        program_invoke(&e->p, e->forward, m, m == 0, m == e->p.microbatches - 1);
        program_invoke(&e->p, e->backward, m, m == 0, m == e->p.microbatches - 1);
    }
    return gradients_finish(&g, error);
}

static trireme_status experts_plan(struct experts *e, trireme_error *error) {
    pass_scopes(&e->p);
    pass_waits(&e->p);
    place_state(&e->p);
    return program_plan(&e->p, e->ops, NULL, error);
}

// Proves what is proved of gradients alone: nothing updates the experts.
static trireme_status experts_verify(const struct experts *e, trireme_error *error) {
    TRY(program_check(&e->p, e->ops, error));
    TRY(verify_memory(&e->p, e->ops, error));
    TRY(verify_extents(&e->p, e->ops, error));
    if (mesh_ranks(&e->p.mesh) > 1)
        TRY(verify_placement(&e->p, e->ops, &(struct sets){0}, error));
    return verify_gradients(&e->p, e->ops, &(struct sets){0}, error);
}

static void experts_compile(struct experts *e, bool recompute) {
    trireme_error error = {0};
    trireme_status status = experts_differentiate(e, &error);
    if (recompute)
        recompute_rewrite(&e->p, e->ops, e->forward, e->backward,
                          &(struct recompute_layers){.rest = CONFIG_RECOMPUTE_FULL, .at_once = true});
    for (size_t i = 0; i < TEMPLATE_INSTRUCTIONS(&e->p, e->backward).count; i++) { // ranks have been told the numbers
        const enum op op = TEMPLATE_INSTRUCTIONS(&e->p, e->backward).item[i].op;
        assert_true(op != OP_COUNT_SUM && op != OP_ALL_TO_ALL);
    }
    if (status != TRIREME_OK || experts_plan(e, &error) != TRIREME_OK || experts_verify(e, &error) != TRIREME_OK) {
        struct text text = {0};
        program_print(&e->p, e->ops, &text);
        fputs(text.text, stderr);
        fail_msg("%s", error.message);
    }
}

// ---- running them

// How many rows a source sends to an expert.
enum load { LOAD_RANDOM, LOAD_ONE, LOAD_NONE, LOADS }; // all go to the first expert; every other source has none

static int32_t rows_for(enum load load, int source, int microbatch, int expert) {
    const double u = rng_uniform(7, rng_stream("counts"), (uint64_t)((source * 8 + microbatch) * 64 + expert));
    if (load == LOAD_ONE)
        return expert == 0 ? COUNT_MOST * GROUPS : 0; // together they fill the rank
    return load == LOAD_NONE && source % 2 == 0 ? 0 : (int32_t)(u * (COUNT_MOST + 1));
}

static double value_of(const char *what, int source, int64_t k) {
    return 2 * rng_uniform(3, rng_stream(what), (uint64_t)(source * 4096 + k)) - 1;
}

struct experts_run {
    struct experts *e;
    enum kernel_set set;
    enum load load;
    int sources, source; // how many ranks have rows; with one rank: the one whose rows these are
    double step;         // along the direction in which parameters are moved
    double loss[RANKS_MOST], slope[RANKS_MOST];
    double *dw[RANKS_MOST]; // gradients of w and bias
};

static int64_t experts_size(const struct experts *e) {
    return (int64_t)e->groups * OUT * (IN + 1);
}

// Parameters of the rank's experts: w, then bias. Number k of expert x is the same wherever the expert is.
static double parameter_at(const struct experts *e, const char *what, int expert_rank, int64_t k) {
    const int64_t weights = (int64_t)e->groups * OUT * IN, each = k < weights ? OUT * IN : OUT;
    const int64_t at = k < weights ? k : k - weights, expert = expert_rank * e->groups + at / each;
    return value_of(what, 50 + (k < weights ? 0 : 1), expert * each + at % each);
}

static void fill_experts(const struct experts_run *r, const struct executor *x, int rank) {
    const struct experts *e = r->e;
    const int expert_rank = rank % e->ranks, source = e->ranks == 1 ? r->source : rank;
    double *w = executor_address(x, e->w, NONE), *bias = executor_address(x, e->bias, NONE);
    const int64_t weights = (int64_t)e->groups * OUT * IN;
    *(double *)executor_address(x, e->scale, NONE) = 0.125;
    for (int64_t k = 0; k < experts_size(e); k++)
        *(k < weights ? &w[k] : &bias[k - weights]) =
            parameter_at(e, "value", expert_rank, k) + r->step * parameter_at(e, "direction", expert_rank, k);
    for (int m = 0; m < e->p.microbatches; m++) {
        int32_t *counts = executor_address(x, e->counts, m), *targets = executor_address(x, e->targets, m);
        double *rows = executor_address(x, e->x, m);
        const int experts = e->ranks * e->groups;
        for (int k = 0; k < experts; k++)
            counts[k] = rows_for(r->load, source, m, k);
        for (int64_t k = 0; k < (int64_t)experts * COUNT_MOST; k++)
            targets[k] = (int32_t)(2.5 * (1 + value_of("target", source, m * 512 + k)));
        for (int64_t k = 0; k < (int64_t)experts * COUNT_MOST * IN; k++)
            rows[k] = value_of("x", source, m * 512 + k);
    }
}

static void experts_step(struct teammate *mate) {
    struct experts_run *r = mate->context;
    const struct experts *e = r->e;
    trireme_error error = {0};
    struct executor *x;
    void *state = mem_aligned(BUFFER_ALIGNMENT, (size_t)e->p.arena[SPACE_DEVICE].state_bytes),
         *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)e->p.arena[SPACE_DEVICE].step_bytes);
    memset(state, 0, (size_t)e->p.arena[SPACE_DEVICE].state_bytes);
    memset(step, 0xff,
           (size_t)e->p.arena[SPACE_DEVICE].step_bytes); // not a number, where something is read that nobody wrote
    struct streams *streams = streams_create(&(struct member){mate->world, mate->rank}, 1);
    if (!teammate_failed(mate, executor_create(&x, streams, &e->p, e->ops, r->set, state, step, &error), &error)) {
        fill_experts(r, x, mate->rank);
        if (!teammate_failed(mate, executor_run(x, NULL, &error), &error)) {
            const double *dw = executor_address(x, e->dw, NONE), *dbias = executor_address(x, e->dbias, NONE);
            const int64_t weights = (int64_t)e->groups * OUT * IN;
            r->loss[mate->rank] = *(double *)executor_address(x, e->loss, NONE);
            r->slope[mate->rank] = 0;
            for (int64_t k = 0; k < experts_size(e); k++) {
                r->dw[mate->rank][k] = k < weights ? dw[k] : dbias[k - weights];
                r->slope[mate->rank] += r->dw[mate->rank][k] * parameter_at(e, "direction", mate->rank % e->ranks, k);
            }
        }
        executor_free(x);
    }
    streams_free(streams);
    free(state);
    free(step);
}

static double sum_of(const double value[RANKS_MOST], int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += value[i];
    return sum;
}

// The loss of all ranks with parameters moved by `step`.
static double experts_loss(struct experts_run *r, double step) {
    r->step = step;
    team_run(r->e->ranks * r->e->replicas, 60, experts_step, r);
    return sum_of(r->loss, r->e->ranks * r->e->replicas);
}

static void run_open(struct experts_run *r, struct experts *e, enum load load) {
    *r = (struct experts_run){.e = e, .load = load, .set = KERNELS_REFERENCE};
    for (int i = 0; i < RANKS_MOST; i++)
        r->dw[i] = mem_alloc((size_t)experts_size(e) * sizeof(double));
}

static void run_close(struct experts_run *r) {
    for (int i = 0; i < RANKS_MOST; i++)
        free(r->dw[i]);
}

// Loss and gradients are those of one rank that has all experts, for the rows of each source in turn.
static void compare_with_one(struct experts_run *many) {
    struct experts one;
    struct experts_run r;
    const struct experts *e = many->e;
    const int sources = e->ranks * e->replicas;
    double loss = 0;
    experts_create(&one, 1, 1, e->ranks * e->groups, e->p.microbatches);
    experts_compile(&one, false);
    run_open(&r, &one, many->load);
    double *dw = mem_alloc((size_t)experts_size(&one) * sizeof *dw);
    for (r.source = 0; r.source < sources; r.source++) {
        loss += experts_loss(&r, 0);
        for (int64_t k = 0; k < experts_size(&one); k++)
            dw[k] += r.dw[0][k];
    }
    assert_true(fabs(loss - experts_loss(many, 0)) <= 1e-12 * (1 + fabs(loss)));
    const int64_t weights = (int64_t)e->groups * OUT * IN;
    for (int expert_rank = 0; expert_rank < e->ranks; expert_rank++)
        for (int64_t k = 0; k < experts_size(e); k++) {
            const int64_t at = k < weights ? expert_rank * weights + k
                                           : e->ranks * weights + expert_rank * e->groups * OUT + k - weights;
            double sum = 0; // over replicas
            for (int i = 0; i < e->replicas; i++)
                sum += many->dw[i * e->ranks + expert_rank][k];
            if (!(fabs(sum - dw[at]) <= 1e-12))
                fail_msg("rank %d, gradient %lld: %.15g, one rank has %.15g", expert_rank, (long long)k, sum, dw[at]);
        }
    free(dw);
    run_close(&r);
    experts_release(&one);
}

static void check_slope(struct experts_run *r) {
    const double h = 2e-4;
    experts_loss(r, 0);
    const double slope = sum_of(r->slope, r->e->ranks * r->e->replicas);
    const double expected =
        (8 * (experts_loss(r, h) - experts_loss(r, -h)) - (experts_loss(r, 2 * h) - experts_loss(r, -2 * h))) /
        (12 * h);
    if (!(fabs(slope - expected) <= 1e-8))
        fail_msg("the gradient along a direction is %.12g, finite differences give %.12g", slope, expected);
}

static void experts_of_ranks(void **unused) {
    (void)unused;
    static const struct {
        int ranks, replicas, microbatches;
        bool recompute;
    } CASES[] = {{2, 1, 1, false}, {3, 1, 2, false}, {2, 2, 1, false}, {3, 1, 2, true}, {1, 1, 2, true}};
    for (size_t k = 0; k < ARRAY_LENGTH(CASES); k++) {
        struct experts e;
        experts_create(&e, CASES[k].ranks, CASES[k].replicas, GROUPS, CASES[k].microbatches);
        experts_compile(&e, CASES[k].recompute);
        for (int load = 0; load < LOADS; load++) {
            struct experts_run r;
            run_open(&r, &e, (enum load)load);
            if (CASES[k].ranks > 1)
                compare_with_one(&r);
            check_slope(&r);
            run_close(&r);
        }
        experts_release(&e);
    }
}

// ---- faults

// One rank: rows as many as two numbers add up to.
#define FEW                                                      \
    "buffer %0 i32 input step [2] \"counts\"\n"                  \
    "buffer %1 i32 act step [1,1,1] \"n\"\n"                     \
    "buffer %2 f32 input step [8,4] extent %1 expect 5 \"x\"\n"  \
    "buffer %3 f32 act step [8,4] extent %1 expect 5 \"y\"\n"    \
    "buffer %4 f32 output step [8,4] extent %1 expect 5 \"z\"\n" \
    "buffer %5 i32 input step [1] \"m\"\n"                       \
    "buffer %6 f32 input step [8,4] extent %5 \"other\"\n"       \
    "buffer %7 f32 input step [8,4] \"all\"\n"                   \
    "buffer %8 f32 input step [2,4,4] \"w\"\n"                   \
    "buffer %9 f32 act step [8,4] \"more\"\n"
#define FEW_MADE                                          \
    "template 0 forward \"t\"\n"                          \
    "  %1[1,1,1] = count_sum %0[1,1,2,1] phase forward\n" \
    "  %3[8,4] = gelu %2[8,4] tanh 0 phase forward\n"
static const char FEW_ROWS[] = FEW FEW_MADE "  %4[8,4] = add %3[8,4] %2[8,4] phase forward\n";

static void extents_refused(const char *mesh, const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = program_by_hand(ops, mesh, body);
    assert_program_refused(&p, ops, what, name);
    free(ops);
}

static void rows_that_do_not_exist(void **unused) {
    (void)unused;
    static const struct {
        const char *body, *what, *name;
    } CASES[] = {
        {FEW FEW_MADE "  %4[8,4] = add %3[8,4] %6[8,4] phase forward\n", "another operand as many as n", "other"},
        {FEW FEW_MADE "  %9[8,4] = add %3[8,4] %2[8,4] phase forward\n", "has all of its m", "more"},
        {FEW FEW_MADE "  %4[8,4] = add %3[8,4] %7[8,4] phase forward\n", "has all of its m", "all"},
        {FEW FEW_MADE "  %4[4,4] = add %3[4,4] %2[4,4] phase forward\n", "is some of", "y"},
        {FEW FEW_MADE "  %4[8,4] = add %3[8,4] %2[8,4](4,1)+4 phase forward\n", "reaches element", "x"},
        {FEW "buffer %10 f32 act step [8,8] \"square\"\n" FEW_MADE
             "  %10[8,8] = matmul %7[8,4] %3[8,4] - - phase forward\n",
         "has all of its n", "square"},
        // Products of rows that are not those that were counted, or not counted at all.
        {FEW FEW_MADE "  %4[8,4] = matmul_grouped %3[8,4] %5[1,1] %8[1,4,4] - phase forward\n", "do not add up to n",
         "m"},
        {FEW FEW_MADE "  %4[8,4] = matmul_grouped %3[8,4] %0[1,1] %8[1,4,4] - phase forward\n", "do not add up to n",
         "counts"},
        {FEW FEW_MADE "  %9[8,4] = matmul_grouped %7[8,4] %0[1,2] %8[2,4,4] - phase forward\n", "has no extent",
         "counts"},
        // The number is not there yet, or has changed.
        {FEW "template 0 forward \"t\"\n  %3[8,4] = gelu %2[8,4] tanh 0 phase forward\n"
             "  %1[1,1,1] = count_sum %0[1,1,2,1] phase forward\n",
         "before it is written", "n"},
        {FEW FEW_MADE "  %1[1,1,1] = count_sum %0[1,1,2,1] phase forward\n"
                      "  %4[8,4] = add %3[8,4] %3[8,4] phase forward\n",
         "has changed since", "y"},
        // What cannot be said of a buffer.
        {"buffer %0 i32 input step [2] \"counts\"\nbuffer %1 f32 input step [8,4] extent %0 \"x\"\n"
         "template 0 forward \"t\"\n",
         "is not one i32", "counts"},
        {"buffer %0 i32 input step [1] \"n\"\nbuffer %1 i32 input step [1] extent %0 \"m\"\n"
         "buffer %2 f32 input step [8,4] extent %1 \"x\"\ntemplate 0 forward \"t\"\n",
         "is not one i32", "m"},
        {"buffer %0 i32 input step [1] \"n\"\nbuffer %1 f32 input step [8,4] extent %0 \"x\"\n"
         "buffer %2 f32 input step [4,4] of %1+0 \"slice\"\ntemplate 0 forward \"t\"\n",
         "is a slice of x", "slice"},
        {"buffer %0 i32 input step [1] \"n\"\nbuffer %1 f32 param state [8,4] extent %0 \"w\"\n"
         "template 0 forward \"t\"\n",
         "kept between steps", "w"},
        {"buffer %0 f32 input step [8,4] extent %7 \"x\"\ntemplate 0 forward \"t\"\n", "does not exist", "x"},
        // Dims that must be whole.
        {"buffer %0 i32 input step [1] \"n\"\nbuffer %1 f32 input step [8,3,4] extent %0 \"own\"\n"
         "buffer %2 i32 input step [4] \"targets\"\nbuffer %3 f32 act step [4] \"max\"\n"
         "buffer %4 f32 act step [4] \"sum\"\ntemplate 0 forward \"t\"\n"
         "  %3[4] %4[4] - = logits_merge %1[8,3,4] %2[4] phase forward\n",
         "needs all rows", "own"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++)
        extents_refused("", CASES[i].body, CASES[i].what, CASES[i].name);
}

static void rows_of_other_ranks(void **unused) {
    (void)unused;
    static const char MESH[] = "mesh fsdp 2\n";
    // Each rank has as many rows as its own number says, but rows that are said to be the same on all.
    extents_refused(MESH,
                    "buffer %0 i32 input step [1] place fsdp 0 \"n\"\nbuffer %1 f32 input step [8,4] extent %0 \"x\"\n"
                    "buffer %2 f32 act step [8,4] extent %0 \"y\"\ntemplate 0 forward \"t\"\n"
                    "  %2[8,4] = gelu %1[8,4] tanh 0 phase forward\n",
                    "not rows of their own", "n");
    extents_refused(MESH,
                    "buffer %0 i32 input step [1] place fsdp sum \"n\"\n"
                    "buffer %1 f32 input step [8,4] extent %0 place fsdp 0 \"x\"\n"
                    "buffer %2 f32 act step [8,4] extent %0 \"y\"\ntemplate 0 forward \"t\"\n"
                    "  %2[8,4] = gelu %1[8,4] tanh 0 phase forward\n",
                    "a partial sum along fsdp", "n");
    // Experts that differ from rank to rank, of rows that do not.
    extents_refused(MESH,
                    "buffer %0 i32 input step [2] \"counts\"\nbuffer %1 i32 act step [1,1,1] \"n\"\n"
                    "buffer %2 f32 input step [8,4] extent %1 \"x\"\n"
                    "buffer %3 f32 input step [2,4,4] place fsdp 0 \"w\"\n"
                    "buffer %4 f32 act step [8,4] extent %1 \"y\"\ntemplate 0 forward \"t\"\n"
                    "  %1[1,1,1] = count_sum %0[1,1,2,1] phase forward\n"
                    "  %4[8,4] = matmul_grouped %2[8,4] %0[1,2] %3[2,4,4] - phase forward\n",
                    "but not the rows of m that belong to it", "fsdp");
}

// A gradient of experts that differ from rank to rank, as it is declared, or of the same ones: then it is a partial
// sum.
static void gradients_of_experts(void **unused) {
    (void)unused;
    for (int own = 0; own < 2; own++) {
        struct op_table *ops = op_table_create();
        char *body = mem_printf("buffer %%0 i32 input step [1,1,2] place fsdp 1 \"counts\"\n"
                                "buffer %%1 i32 act step [1,1,1] \"n\"\n"
                                "buffer %%2 f32 input step [8,4] extent %%1 place fsdp 0 \"x\"\n"
                                "buffer %%3 f32 input step [8,4] extent %%1 place fsdp 0 \"dy\"\n"
                                "buffer %%4 f32 output step [2,4,4]%s \"dw\"\n"
                                "template 0 backward \"t\"\n"
                                "  %%1[1,1,1] = count_sum %%0[1,1,2,1] phase forward\n"
                                "  %%4[2,4,4] - = matmul_grouped_dw %%2[8,4] %%3[8,4] %%0[1,2] phase weight\n",
                                own ? " place fsdp 0" : "");
        struct program p = program_by_hand(ops, "mesh fsdp 2\n", body);
        trireme_error error = {0};
        const trireme_status status = verify_placement(&p, ops, &(struct sets){0}, &error);
        if (own)
            assert_ok(status, &error);
        else
            assert_words(status, &error, "a reduction is missing", "dw");
        program_release(&p);
        free(body);
        free(ops);
    }
}

static void experts_refused(void (*spoil)(struct experts *), const char *what, const char *name) {
    struct experts e;
    trireme_error error = {0};
    experts_create(&e, 2, 1, GROUPS, 1);
    assert_ok(experts_differentiate(&e, &error), &error);
    spoil(&e);
    trireme_status status = experts_plan(&e, &error);
    assert_words(status == TRIREME_OK ? experts_verify(&e, &error) : status, &error, what, name);
    experts_release(&e);
}

static struct instruction *experts_find(struct experts *e, enum op op, int which) {
    for (size_t t = 0; t < e->p.templates.count; t++)
        for (size_t i = 0; i < TEMPLATE_INSTRUCTIONS(&e->p, t).count; i++)
            if (TEMPLATE_INSTRUCTIONS(&e->p, t).item[i].op == op && which-- == 0)
                return &TEMPLATE_INSTRUCTIONS(&e->p, t).item[i];
    fail_msg("no such instruction");
    return NULL;
}

// Numbers that the host gives: nobody has exchanged them.
static void counts_are_constant(struct experts *e) {
    const int64_t n = e->ranks;
    const int given = experts_buffer(e, "given", DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 1, &n, NONE);
    experts_find(e, OP_ALL_TO_ALL_V, 0)->in[INPUT(ALL_TO_ALL_V, receives)] = experts_whole(e, given);
}

// The ranks' own numbers in place of those of the others.
static void counts_are_own(struct experts *e) {
    experts_find(e, OP_MATMUL_GROUPED, 0)->in[INPUT(MATMUL_GROUPED, counts)].buffer = e->counts;
}

static void exchange_is_skipped(struct experts *e) {
    struct instruction *sum = experts_find(e, OP_COUNT_SUM, 2);
    assert_int_equal(sum->in[0].buffer, e->received);
    sum->in[0].buffer = e->counts;
}

// As many rows as another exchange has brought.
static void extent_of_another(struct experts *e) {
    const int64_t dim[] = {e->ranks, 1, e->groups};
    const int counts = experts_buffer(e, "others", DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 3, dim, 1),
              received = experts_buffer(e, "others_received", DTYPE_I32, KIND_ACT, SCOPE_LOCAL, 3, dim, NONE);
    const int extent = e->p.buffers.item[e->rows].extent;
    struct operand in = experts_whole(e, counts), out = experts_whole(e, received);
    const size_t before = TEMPLATE_INSTRUCTIONS(&e->p, e->forward).count;
    experts_emit(e, OP_ALL_TO_ALL, 1, &in, 1, &out, NULL);
    const struct numbers other = experts_numbers(e, "others_receives", "others_arrived", received);
    struct instruction *item = TEMPLATE_INSTRUCTIONS(&e->p, e->forward).item, moved[3];
    memcpy(moved, item + before, sizeof moved); // to the front
    memmove(item + 3, item, before * sizeof *item);
    memcpy(item, moved, sizeof moved);
    for (size_t i = 0; i < e->p.buffers.count; i++)
        if (e->p.buffers.item[i].extent == extent)
            e->p.buffers.item[i].extent = other.all;
}

static void gradient_has_all_rows(struct experts *e) {
    e->p.buffers.item[program_find(&e->p, "d.made")].extent = NONE;
}

static void copy_has_all_rows(struct experts *e) {
    program_again(&e->p, e->made, NONE);
    e->p.buffers.item[e->p.buffers.count - 1].extent = NONE;
}

static void rows_are_not_sent(struct experts *e) {
    e->p.buffers.item[e->x].placement[AXIS_FSDP] = PLACE_REPLICATE;
}

static void faults_of_experts(void **unused) {
    (void)unused;
    experts_refused(counts_are_constant, "do not add up to arrived", "given");
    experts_refused(counts_are_own, "do not add up to arrived", "counts");
    experts_refused(exchange_is_skipped, "do not add up to arrived", "received");
    experts_refused(extent_of_another, "do not add up to others_arrived", "receives");
    experts_refused(gradient_has_all_rows, "has all of its m", "d.made");
    experts_refused(copy_has_all_rows, "which has another extent", "made.again");
    experts_refused(rows_are_not_sent, "is not split along fsdp as its exchange says", "x");
}

// Whoever works on rows waits for their number, which another stream makes.
static void numbers_are_waited_for(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p = program_by_hand(ops, "stream other\n",
                                       FEW "template 0 forward \"t\"\n"
                                           "  %1[1,1,1] = count_sum %0[1,1,2,1] phase forward stream other\n"
                                           "  %4[8,4] = gelu %2[8,4] tanh 0 phase forward\n");
    trireme_error error = {0};
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    assert_words(program_verify(&p, ops, &error), &error, "while another stream may still write it", "n");
    pass_waits(&p);
    assert_ok(program_verify(&p, ops, &error), &error);
    program_release(&p);
    free(ops);
}

// ---- text and times

static void extents_in_text(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p = program_by_hand(ops, "", FEW_ROWS);
    trireme_error error = {0};
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    assert_ok(program_verify(&p, ops, &error), &error);
    check_round_trip(&p, ops);
    struct text printed = {0};
    program_print(&p, ops, &printed);
    assert_non_null(strstr(printed.text, " extent %1 expect 5 \"x\"\n"));
    text_release(&printed);
    const uint64_t hash = program_hash(&p);
    struct buffer *x = &p.buffers.item[2];
    assert_int_equal(x->extent, 1);
    assert_int_equal(x->expect, 5);
    x->expect = 6;
    assert_int_not_equal(program_hash(&p), hash);
    x->expect = 5;
    x->extent = 5;
    assert_int_not_equal(program_hash(&p), hash);
    program_release(&p);
    static const char *const BAD[] = {"extent 1", "extent %1 expect 9", "extent %1 expect -1", "extent %1 expect"};
    for (size_t i = 0; i < ARRAY_LENGTH(BAD); i++) {
        char *text = mem_printf("program t microbatches 1\nbuffer %%0 f32 input step [8,4] %s \"x\"\n", BAD[i]);
        assert_int_equal(program_parse(&p, ops, text, strlen(text), &error), TRIREME_ERROR_CORRUPT);
        free(text);
    }
    free(ops);
}

static void rows_that_are_expected(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p =
        program_by_hand(ops, "", FEW FEW_MADE "  %4[8,4] = matmul_grouped %3[8,4] %0[1,2] %8[2,4,4] - phase forward\n");
    const struct instruction *product = &TEMPLATE_INSTRUCTIONS(&p, 0).item[2];
    const struct invocation v = {.microbatch = NONE};
    assert_true(instruction_flops(&p, ops, product) == 2.0 * 5 * 4 * 4);
    // Rows that are read and made, numbers of rows, matrices.
    assert_true(instruction_bytes(&p, ops, product, &v) == 4.0 * (2 * 5 * 4 + 2 + 2 * 4 * 4));
    assert_int_equal(ops->op[OP_MATMUL_GROUPED_DW].family, FAMILY_MATMUL);
    for (int b = 2; b <= 4; b++)
        p.buffers.item[b].expect = 0;
    assert_true(instruction_flops(&p, ops, product) == 0);
    program_release(&p);
    free(ops);
}

// ---- kernels

enum { ROWS = 300, WIDTH = 64, WIDER = 96 };

// Ops on `rows` rows; with an extent, on as many as it says.
static struct program kernels_program(int64_t rows, bool bounded) {
    struct program p;
    const int64_t one = 1;
    program_init(&p, "kernels", 1);
    const int n = program_buffer(&p, "n", DTYPE_I32, KIND_INPUT, SCOPE_STEP, 1, &one);
    const int t = program_template(&p, "t", PHASE_FORWARD, 0);
    int made = 0;
    struct operand value[16];
    static const struct {
        const char *name;
        enum buffer_kind kind;
        int64_t rows, columns; // rows 0: as many as there are
    } VALUES[] = {
        {"x", KIND_INPUT, 0, WIDTH},       {"w", KIND_INPUT, WIDER, WIDTH},   {"bias", KIND_INPUT, WIDER, 0},
        {"scale", KIND_INPUT, WIDTH, 0},   {"y", KIND_OUTPUT, 0, WIDER},      {"g", KIND_OUTPUT, 0, WIDER},
        {"dx", KIND_OUTPUT, 0, WIDTH},     {"dw", KIND_OUTPUT, WIDER, WIDTH}, {"db", KIND_OUTPUT, WIDER, 0},
        {"norm", KIND_OUTPUT, 0, WIDTH},   {"rstd", KIND_OUTPUT, 0, 0},       {"dnorm", KIND_OUTPUT, 0, WIDTH},
        {"dscale", KIND_OUTPUT, WIDTH, 0}, {"sum", KIND_OUTPUT, 0, WIDTH}};
    for (size_t i = 0; i < ARRAY_LENGTH(VALUES); i++) {
        const int64_t dim[] = {VALUES[i].rows ? VALUES[i].rows : rows, VALUES[i].columns};
        const int b =
            program_buffer(&p, VALUES[i].name, DTYPE_F32, VALUES[i].kind, SCOPE_STEP, VALUES[i].columns ? 2 : 1, dim);
        if (bounded && !VALUES[i].rows)
            program_bound(&p, b, n, rows);
        value[made++] = operand_whole(&p, b);
    }
    const struct operand none = operand_none(), *x = &value[0], *w = &value[1], *bias = &value[2], *scale = &value[3],
                         *y = &value[4], *g = &value[5], *dx = &value[6], *dw = &value[7], *db = &value[8],
                         *norm = &value[9], *rstd = &value[10], *dnorm = &value[11], *dscale = &value[12],
                         *sum = &value[13];
    const union attribute eps[OP_MAX_ATTRIBUTES] = {{.f = 1e-5}};
    program_emit(&p, t, OP_MATMUL, PHASE_FORWARD, NONE, 4, (struct operand[]){*x, *w, *bias, none}, 1, y, NULL);
    program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, y, 1, g, NULL);
    program_emit(&p, t, OP_MATMUL_DX, PHASE_FORWARD, NONE, 2, (struct operand[]){*g, *w}, 1, dx, NULL);
    program_emit(&p, t, OP_MATMUL_DW, PHASE_FORWARD, NONE, 2, (struct operand[]){*x, *g}, 2,
                 (struct operand[]){*dw, *db}, NULL);
    program_emit(&p, t, OP_RMSNORM, PHASE_FORWARD, NONE, 2, (struct operand[]){*x, *scale}, 2,
                 (struct operand[]){*norm, *rstd}, eps);
    program_emit(&p, t, OP_RMSNORM_BWD, PHASE_FORWARD, NONE, 5, (struct operand[]){*x, *scale, *rstd, *dx, none}, 2,
                 (struct operand[]){*dnorm, *dscale}, NULL);
    program_emit(&p, t, OP_ADD, PHASE_FORWARD, NONE, 2, (struct operand[]){*norm, *dx}, 1, sum, NULL);
    program_invoke(&p, t, 0, true, true);
    return p;
}

// Outputs, one after another, with room for ROWS rows each; what nobody writes is 0xff.
static float *kernels_run(const struct op_table *ops, int64_t rows, bool bounded, int32_t n) {
    struct program p = kernels_program(rows, bounded);
    trireme_error error = {0};
    struct executor *e;
    assert_ok(pass_workspaces(&p, ops, KERNELS_FAST, 2, &error), &error);
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    void *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)p.arena[SPACE_DEVICE].step_bytes);
    memset(step, 0xff, (size_t)p.arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(NULL, 2);
    assert_ok(executor_create(&e, streams, &p, ops, KERNELS_FAST, NULL, step, &error), &error);
    *(int32_t *)executor_address(e, program_find(&p, "n"), NONE) = n;
    for (size_t i = 0; i < p.buffers.count; i++)
        for (int64_t k = 0; p.buffers.item[i].kind == KIND_INPUT && i > 0 && k < buffer_count(&p.buffers.item[i]); k++)
            ((float *)executor_address(e, (int)i, NONE))[k] =
                (float)(2 * rng_uniform(5, rng_stream(p.buffers.item[i].name), (uint64_t)k) - 1);
    assert_ok(executor_run(e, NULL, &error), &error);
    enum { EACH = ROWS * WIDER };
    float *out = mem_alloc(16 * EACH * sizeof *out), *at = out;
    memset(out, 0xff, 16 * EACH * sizeof *out);
    for (size_t i = 0; i < p.buffers.count; i++)
        if (p.buffers.item[i].kind == KIND_OUTPUT) {
            memcpy(at, executor_address(e, (int)i, NONE), (size_t)buffer_bytes(&p.buffers.item[i]));
            at += EACH;
        }
    executor_free(e);
    streams_free(streams);
    free(step);
    program_release(&p);
    return out;
}

// The same bits as where there are only so many rows, and nothing behind them.
static void kernels_on_fewer_rows(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    static const int32_t NUMBERS[] = {1, 2, 7, 16, 17, 31, 64, 130, 211, 299, 300};
    for (size_t i = 0; i < ARRAY_LENGTH(NUMBERS); i++) {
        float *some = kernels_run(ops, ROWS, true, NUMBERS[i]), *all = kernels_run(ops, NUMBERS[i], false, 0);
        if (memcmp(some, all, 16 * ROWS * WIDER * sizeof *some) != 0)
            fail_msg("with %d of %d rows the results differ from those of as many rows", NUMBERS[i], ROWS);
        free(some);
        free(all);
    }
    // Without rows, sums over them are zero.
    float *none = kernels_run(ops, ROWS, true, 0);
    const float nothing = none[0]; // y
    assert_true(nothing != nothing);
    for (int64_t k = 0; k < WIDER * WIDTH; k++)
        assert_true(none[3 * ROWS * WIDER + k] == 0); // dw
    free(none);
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_ranks),      cmocka_unit_test(rows_that_do_not_exist),
        cmocka_unit_test(rows_of_other_ranks),   cmocka_unit_test(faults_of_experts),
        cmocka_unit_test(gradients_of_experts),  cmocka_unit_test(numbers_are_waited_for),
        cmocka_unit_test(extents_in_text),       cmocka_unit_test(rows_that_are_expected),
        cmocka_unit_test(kernels_on_fewer_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
