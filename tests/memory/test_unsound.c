// Programs made by hand whose tables are well formed, but whose memory would be overrun, left unwritten or mixed up,
// and compiled ones with one field changed: each is refused.
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/mutant.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/verify.h"

static struct operand add(struct program *p, const char *name, enum dtype dtype, enum buffer_kind kind, int ndim,
                          const int64_t *dim) {
    return operand_whole(p, program_buffer(p, name, dtype, kind, SCOPE_STEP, ndim, dim));
}
#define ADD(name, dtype, kind, ...) \
    add(&p, name, dtype, kind, (int)ARRAY_LENGTH(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

// A program of one template, invoked once.
static int begin(struct program *p, int microbatches) {
    program_init(p, "unsound", microbatches);
    test_streams(p);
    return program_template(p, "main", PHASE_FORWARD, 0);
}

static struct instruction *emit(struct program *p, enum op op, int inputs, const struct operand *in, int outputs,
                                const struct operand *out) {
    union attribute none[OP_MAX_ATTRIBUTES] = {{0}};
    return program_emit(p, 0, op, PHASE_FORWARD, NONE, inputs, in, outputs, out, none);
}

static void refuse(struct program *p, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    if (p->schedule.count == 0)
        program_invoke(p, 0, 0, true, true);
    assert_program_refused(p, ops, what, name);
    free(ops);
}

static void outputs_that_may_be_skipped(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    int mask = ADD("mask", DTYPE_I32, KIND_INPUT, 1).buffer;
    emit(&p, OP_GELU, 1, &a, 1, &y)->predicate = mask;
    refuse(&p, "may be skipped, but", "y");
    begin(&p, 1); // in the memory of its input, it would be another sum
    a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    mask = ADD("mask", DTYPE_I32, KIND_INPUT, 1).buffer;
    emit(&p, OP_ADD, 2, (struct operand[]){a, a}, 1, &y)->predicate = mask;
    refuse(&p, "may be skipped, but y would then hold nothing", "add");
    int t = begin(&p, 1);
    p.mesh.degree[AXIS_PP] = 2;
    struct operand x = add_rows(&p, "x", KIND_INPUT, SCOPE_STEP);
    mask = ADD("mask", DTYPE_I32, KIND_INPUT, 1).buffer;
    p.buffers.item[mask].placement[AXIS_PP] = PLACE_OWN;
    struct instruction *send =
        program_communicate(&p, t, OP_SEND, PHASE_FORWARD, STREAM_MESSAGES, AXES(AXIS_PP), x, operand_none());
    send->peer = 1;
    send->predicate = mask;
    refuse(&p, "is not the same on all ranks along pp", "send");
}

// An f64 would be read as an i32; nothing says what a buffer that nobody wrote holds.
static void what_a_predicate_is(void **unused) {
    (void)unused;
    for (int written = 0; written < 2; written++) {
        struct program p;
        begin(&p, 1);
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
        int mask = written ? ADD("mask", DTYPE_F64, KIND_INPUT, 1).buffer : ADD("mask", DTYPE_I32, KIND_ACT, 1).buffer;
        emit(&p, OP_GELU, 1, &a, 1, &y);
        emit(&p, OP_ADD, 2, (struct operand[]){y, a}, 1, &y)->predicate = mask;
        refuse(&p, written ? "its predicate mask is not one i32" : "reads mask before it is written", "add");
    }
}

// Shares memory shifted by one row, not element for element.
static void in_place_but_shifted(void **unused) {
    (void)unused;
    struct program p;
    trireme_error error = {0};
    struct op_table *ops = op_table_create();
    begin(&p, 1);
    const int64_t dim[] = {16, 16};
    struct operand a = ADD("a", DTYPE_F32, KIND_INPUT, 16, 16), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    struct operand h = operand_whole(&p, program_buffer(&p, "h", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 2, dim));
    struct operand g = operand_whole(&p, program_buffer(&p, "g", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 2, dim));
    emit(&p, OP_GELU, 1, &a, 1, &h);
    struct operand in[] = {h, a};
    in[0].dim[0] = in[1].dim[0] = g.dim[0] = 8;
    g.offset = 16;
    emit(&p, OP_ADD, 2, in, 1, &g);
    emit(&p, OP_GELU, 1, &g, 1, &y);
    program_invoke(&p, 0, 0, true, true);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    if (program_verify(&p, ops, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    p.buffers.item[g.buffer].offset = p.buffers.item[h.buffer].offset;
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, "which it uses too"));
    program_release(&p);
    free(ops);
}

// Moves a LOCAL buffer to where another one is, once the program is planned.
static void refuse_over(struct program *p, const char *buffer, const char *other, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    program_invoke(p, 0, 0, true, true);
    assert_int_equal(program_plan(p, ops, NULL, &error), TRIREME_OK);
    assert_int_equal(program_verify(p, ops, &error), TRIREME_OK);
    p->buffers.item[program_find(p, buffer)].offset = p->buffers.item[program_find(p, other)].offset;
    assert_words(program_verify(p, ops, &error), &error, what, name);
    program_release(p);
    free(ops);
}

static void memory_that_is_in_use(void **unused) {
    (void)unused;
    struct program p; // of an input
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    struct operand h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL), g = add_rows(&p, "g", KIND_ACT, SCOPE_LOCAL);
    emit(&p, OP_GELU, 1, &a, 1, &h);
    emit(&p, OP_GELU, 1, &h, 1, &g);
    emit(&p, OP_GELU, 1, &g, 1, &y);
    refuse_over(&p, "g", "h", "writes g into memory of h, which it uses too", "gelu");

    begin(&p, 1); // of another output
    const int64_t rows[] = {8}, columns[] = {16};
    a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL);
    struct operand in[] = {a, add(&p, "w", DTYPE_F32, KIND_INPUT, 1, columns), operand_none()}, out[] = {h, h, h};
    for (int k = 1; k < 3; k++)
        out[k] =
            operand_whole(&p, program_buffer(&p, k == 1 ? "mean" : "rstd", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 1, rows));
    y = ADD("y", DTYPE_F64, KIND_OUTPUT, 1);
    emit(&p, OP_LAYERNORM, 3, in, 3, out);
    emit(&p, OP_SQUARE_SUM, 1, &out[2], 1, &y);
    refuse_over(&p, "rstd", "h", "writes rstd into memory of h, which it uses too", "layernorm");

    begin(&p, 1); // of what is read later
    a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL), g = add_rows(&p, "g", KIND_ACT, SCOPE_LOCAL);
    int work = add_rows(&p, "work", KIND_WORK, SCOPE_LOCAL).buffer;
    emit(&p, OP_GELU, 1, &a, 1, &h);
    emit(&p, OP_GELU, 1, &a, 1, &g)->workspace = work;
    emit(&p, OP_ADD, 2, (struct operand[]){h, g}, 1, &y);
    refuse_over(&p, "work", "h", "reads h, whose memory work has taken", "add");
}

static void workspaces(void **unused) {
    (void)unused;
    for (int fault = 0; fault < 3; fault++) { // a slice of another; a slot without a microbatch; an activation
        struct program p;
        begin(&p, 2);
        program_pool(&p, 0, 0, 2, (int[]){1, 0});
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
        struct operand h = add_rows(&p, "h", KIND_WORK, SCOPE_STEP);
        int work = fault == 0   ? program_slice(&p, h.buffer, "w", 0, 1, (int64_t[]){64})
                   : fault == 1 ? program_buffer(&p, "w", DTYPE_F32, KIND_WORK, SCOPE_SLOT, 1, (int64_t[]){64})
                                : add_rows(&p, "w", KIND_ACT, SCOPE_LOCAL).buffer;
        emit(&p, OP_GELU, 1, &a, 1, &y)->workspace = work;
        program_invoke(&p, 0, NONE, true, true);
        refuse(&p, "its workspace w is not a workspace", "gelu");
    }
    struct program p; // what it holds is nobody's
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    struct operand w = add_rows(&p, "w", KIND_WORK, SCOPE_LOCAL);
    emit(&p, OP_GELU, 1, &a, 1, &w);
    emit(&p, OP_GELU, 1, &w, 1, &y);
    refuse(&p, "operand y is a workspace, w", "gelu");
    begin(&p, 1); // of two streams at a time
    a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), w = add_rows(&p, "w", KIND_WORK, SCOPE_LOCAL);
    for (int stream = STREAM_COMPUTE; stream <= STREAM_TENSOR; stream++) {
        y = add_rows(&p, stream ? "y" : "x", KIND_OUTPUT, SCOPE_STEP);
        struct instruction *i = emit(&p, OP_GELU, 1, &a, 1, &y);
        i->workspace = w.buffer;
        i->stream = stream;
    }
    refuse(&p, "works in w while another stream may still use it", "main[1] gelu");
}

// Nobody writes the rest: between the parts of a buffer of gradients there may be such, elsewhere not.
static void read_before_written(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    const int64_t count[] = {128};
    struct operand g = operand_whole(&p, program_buffer(&p, "g", DTYPE_F32, KIND_GRAD, SCOPE_STATE, 1, count));
    struct operand y = ADD("y", DTYPE_F64, KIND_OUTPUT, 1);
    emit(&p, OP_SQUARE_SUM, 1, &g, 1, &y);
    refuse(&p, "reads g before it is written", "square_sum");

    begin(&p, 1);
    struct operand h = operand_whole(&p, program_buffer(&p, "h", DTYPE_F32, KIND_ACT, SCOPE_STATE, 1, count));
    struct operand half = operand_whole(&p, program_slice(&p, h.buffer, "half", 0, 1, (int64_t[]){64}));
    y = ADD("y", DTYPE_F64, KIND_OUTPUT, 1);
    emit(&p, OP_ZERO, 0, NULL, 1, &half);
    emit(&p, OP_SQUARE_SUM, 1, &h, 1, &y);
    refuse(&p, "reads h before it is written", "square_sum");
}

// Of an activation that there is once, what the latest microbatch has made is left.
static void activations_of_another_microbatch(void **unused) {
    (void)unused;
    for (enum buffer_scope scope = SCOPE_STATE; scope <= SCOPE_STEP; scope++) {
        struct program p;
        begin(&p, 2);
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_MICROBATCH), h = add_rows(&p, "h", KIND_ACT, scope);
        struct operand g = add_rows(&p, "g", KIND_ACT, SCOPE_LOCAL);
        emit(&p, OP_GELU, 1, &a, 1, &h);
        emit(&p, OP_GELU, 1, &h, 1, &g);
        int second = program_template(&p, "second", PHASE_FORWARD, 0);
        program_emit(&p, second, OP_GELU, PHASE_FORWARD, NONE, 1, &h, 1, &g, (union attribute[OP_MAX_ATTRIBUTES]){{0}});
        for (int k = 0; k < 4; k++)
            program_invoke(&p, k < 2 ? 0 : second, k % 2, k % 2 == 0, k % 2 == 1);
        refuse(&p, "reads h before it is written", "second[0] gelu (microbatch 0)");
    }
}

static void where_scratch_lies(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    for (int below = 0; below < 2; below++) {
        struct program p;
        trireme_error error = {0};
        begin(&p, 1);
        struct operand h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL);
        emit(&p, OP_ZERO, 0, NULL, 1, (struct operand[]){operand_shape(h, 1, (int64_t[]){8 * 16})});
        program_invoke(&p, 0, 0, true, true);
        assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
        assert_int_equal(program_verify(&p, ops, &error), TRIREME_OK);
        p.arena[SPACE_DEVICE].step_bytes += BUFFER_ALIGNMENT;
        p.arena[SPACE_DEVICE].scratch_base += below ? -4096 : 1;
        assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
        assert_non_null(strstr(error.message, "scratch lies at byte"));
        program_release(&p);
    }
    free(ops);
}

static void before_the_arena(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    begin(&p, 1);
    struct operand y = ADD("y", DTYPE_F32, KIND_OUTPUT, 16);
    emit(&p, OP_ZERO, 0, NULL, 1, &y);
    program_invoke(&p, 0, 0, true, true);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_OK);
    p.buffers.item[y.buffer].offset -= 64;
    assert_words(program_verify(&p, ops, &error), &error, "has no aligned offset", "y");
    program_release(&p);
    free(ops);
}

static void slices_of_another_kind(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), half = ADD("y", DTYPE_F32, KIND_ACT, 16, 16);
    int out = program_slice(&p, half.buffer, "out", 128, 2, (int64_t[]){8, 16}); // nobody writes it
    p.buffers.item[out].kind = KIND_OUTPUT;
    half.dim[0] = 8;
    emit(&p, OP_GELU, 1, &a, 1, &half);
    refuse(&p, "is a slice of y, but of another kind", "out");
}

static void columns_apart(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = ADD("a", DTYPE_F32, KIND_INPUT, 16, 64), w = ADD("w", DTYPE_F32, KIND_INPUT, 16, 32);
    struct operand y = ADD("y", DTYPE_F32, KIND_OUTPUT, 16, 16);
    a.dim[1] = 32;
    a.stride[1] = 2;
    emit(&p, OP_MATMUL, 4, (struct operand[]){a, w, operand_none(), operand_none()}, 1, &y);
    refuse(&p, "are not contiguous", "a");
}

// Rank 1's half is never written.
static void parts_of_other_ranks(void **unused) {
    (void)unused;
    struct program p;
    int t = begin(&p, 1);
    p.mesh.degree[AXIS_FSDP] = 2;
    struct operand terms = ADD("terms", DTYPE_F32, KIND_ACT, 64), half = terms;
    struct operand own = ADD("own", DTYPE_F64, KIND_ACT, 1), all = ADD("all", DTYPE_F64, KIND_OUTPUT, 1);
    half.dim[0] = 32;
    emit(&p, OP_ZERO, 0, NULL, 1, &half);
    struct operand part = operand_part(&p, terms, AXES(AXIS_FSDP));
    emit(&p, OP_SQUARE_SUM, 1, &part, 1, &own);
    program_communicate(&p, t, OP_ALL_REDUCE, PHASE_FORWARD, STREAM_COMPUTE, AXES(AXIS_FSDP), own, all);
    refuse(&p, "before it is written", "terms");
}

// Rules that no letter of an op's row expresses.
static void extents(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = ADD("a", DTYPE_F32, KIND_INPUT, 16, 16), y = ADD("y", DTYPE_F32, KIND_OUTPUT, 16, 512);
    emit(&p, OP_SWIGLU, 1, &a, 1, &y);
    refuse(&p, "c=2*f does not hold", "swiglu");

    begin(&p, 1);
    struct operand q = ADD("q", DTYPE_F32, KIND_INPUT, 1, 4, 3, 2), k = ADD("k", DTYPE_F32, KIND_INPUT, 1, 4, 5, 2);
    struct operand starts = ADD("starts", DTYPE_I32, KIND_INPUT, 1, 4);
    struct operand out[] = {ADD("o", DTYPE_F32, KIND_OUTPUT, 1, 4, 3, 2), ADD("lse", DTYPE_F32, KIND_OUTPUT, 1, 3, 4),
                            operand_none()};
    emit(&p, OP_ATTENTION, 6, (struct operand[]){q, k, k, starts, operand_none(), operand_none()}, 3, out);
    refuse(&p, "g|h does not hold", "attention");

    begin(&p, 1);
    struct operand kept = ADD("kept", DTYPE_F32, KIND_INPUT, 2, 1, 8),
                   targets = ADD("targets", DTYPE_I32, KIND_INPUT, 8);
    struct operand merged[] = {ADD("max", DTYPE_F32, KIND_OUTPUT, 8), ADD("sum", DTYPE_F32, KIND_OUTPUT, 8),
                               operand_none()};
    emit(&p, OP_LOGITS_MERGE, 2, (struct operand[]){kept, targets}, 3, merged);
    refuse(&p, "U=3 does not hold", "logits_merge");
}

static void elements_beyond_the_last(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    y.offset = 1;
    emit(&p, OP_GELU, 1, &a, 1, &y);
    refuse(&p, "reaches element 128 of y, which has 128", "gelu");
    begin(&p, 2); // of all microbatches there is one instance
    struct operand h = ADD("h", DTYPE_F32, KIND_ACT, 128);
    h.dim[0] = 256;
    emit(&p, OP_ZERO, 0, NULL, 1, &h);
    program_invoke(&p, 0, NONE, true, true);
    refuse(&p, "reaches element 255 of h, which has 128", "zero");
}

// Elements before the first; rows on top of one another; no rows; rows beyond any address.
static void operands_that_are_malformed(void **unused) {
    (void)unused;
    for (int fault = 0; fault < 4; fault++) {
        struct program p;
        begin(&p, 1);
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL),
                       y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
        emit(&p, OP_GELU, 1, &a, 1, &y);
        a.dim[0] = y.dim[0] = h.dim[0] = fault == 2 ? 0 : 8;
        h.offset = fault == 0 ? -16 : 0;
        h.stride[0] = fault == 1 ? 0 : fault == 3 ? INT64_MAX / 2 : 16;
        emit(&p, OP_GELU, 1, &a, 1, &h);
        struct operand z = add_rows(&p, "z", KIND_ACT, SCOPE_LOCAL);
        z.dim[0] = h.dim[0];
        emit(&p, OP_GELU, 1, &h, 1, &z);
        refuse(&p, fault == 2 ? "operand x (a) is malformed" : "operand y (h) is malformed", "gelu");
    }
}

static void numbers_that_no_model_has(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = ADD("a", DTYPE_I32, KIND_INPUT, 8, 16), y = ADD("y", DTYPE_I32, KIND_OUTPUT, 8, 16);
    emit(&p, OP_GELU, 1, &a, 1, &y);
    refuse(&p, "operand x (a) is i32, which no model computes in", "gelu");
}

static void slots_without_a_microbatch(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 2);
    program_pool(&p, 0, 0, 2, (int[]){1, 0});
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), h = add_rows(&p, "h", KIND_ACT, SCOPE_SLOT);
    emit(&p, OP_GELU, 1, &a, 1, &h);
    program_invoke(&p, 0, NONE, true, true);
    refuse(&p, "operand y (h) belongs to one microbatch, the template to all", "gelu");
}

static void arithmetic_where_messages_are(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    emit(&p, OP_GELU, 1, &a, 1, &y)->stream = STREAM_MESSAGES + 1;
    refuse(&p, "is on a stream that is not for it", "gelu");
}

// Parameters and inputs hold what was there before, except where an optimizer or the host writes them.
static void who_writes_what(void **unused) {
    (void)unused;
    struct program p;
    for (int input = 0; input < 2; input++) {
        begin(&p, 1);
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP);
        struct operand y = add_rows(&p, "y", input ? KIND_INPUT : KIND_PARAM, input ? SCOPE_STEP : SCOPE_STATE);
        emit(&p, OP_GELU, 1, &a, 1, &y);
        refuse(&p, input ? "writes y, which only the host may" : "writes y, which only an optimizer may", "gelu");
    }
    for (int own = 0; own < 2; own++) { // other parameters, gathered from all ranks
        int t = begin(&p, 1);
        const int64_t count[] = {128};
        p.mesh.degree[AXIS_FSDP] = 2;
        int other = program_buffer(&p, "other", DTYPE_F32, KIND_PARAM, SCOPE_STATE, 1, own ? count : (int64_t[]){64});
        int whole = program_buffer(&p, "whole", DTYPE_F32, KIND_PARAM, SCOPE_STATE, 1, count);
        struct operand part = operand_whole(&p, other);
        if (own)
            part = operand_part(&p, part, AXES(AXIS_FSDP));
        else
            p.buffers.item[other].placement[AXIS_FSDP] = PLACE_SHARD(0);
        program_communicate(&p, t, OP_ALL_GATHER, PHASE_FORWARD, STREAM_COMPUTE, AXES(AXIS_FSDP), part,
                            operand_whole(&p, whole));
        refuse(&p, "writes whole, which only an optimizer may", "all_gather");
    }
}

static void elements_that_nobody_writes(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = ADD("y", DTYPE_F32, KIND_OUTPUT, 16, 16);
    y.dim[0] = 8;
    emit(&p, OP_GELU, 1, &a, 1, &y);
    refuse(&p, "is never written", "output y");
}

// What the host or the next step reads has memory of its own until then.
static void what_others_look_at(void **unused) {
    (void)unused;
    static const struct {
        enum buffer_kind kind;
        enum buffer_scope scope;
    } CASES[] = {{KIND_INPUT, SCOPE_LOCAL}, {KIND_INPUT, SCOPE_SLOT}, {KIND_OUTPUT, SCOPE_LOCAL},
                 {KIND_OUTPUT, SCOPE_SLOT}, {KIND_OPTIM, SCOPE_STEP}, {KIND_OPTIM, SCOPE_LOCAL},
                 {KIND_CACHE, SCOPE_STEP},  {KIND_CACHE, SCOPE_SLOT}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct program p;
        begin(&p, 1);
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
        emit(&p, OP_GELU, 1, &a, 1, &y);
        add_rows(&p, "other", CASES[i].kind, CASES[i].scope);
        refuse(&p, "is not kept as long as it is needed", "other");
    }
}

// Kernels that overwrite their outputs never add to them, whatever they are told.
static void sums_that_are_none(void **unused) {
    (void)unused;
    struct program p;
    begin(&p, 1);
    struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
    emit(&p, OP_GELU, 1, &a, 1, &y);
    emit(&p, OP_GELU, 1, &a, 1, &y)->accumulate = ACCUMULATE_YES;
    refuse(&p, "is to accumulate", "gelu");

    int t = begin(&p, 1);
    p.mesh.degree[AXIS_FSDP] = 2;
    struct operand part = ADD("part", DTYPE_F32, KIND_INPUT, 64), all = ADD("all", DTYPE_F32, KIND_OUTPUT, 128);
    emit(&p, OP_ZERO, 0, NULL, 1, &all);
    program_communicate(&p, t, OP_ALL_GATHER, PHASE_FORWARD, STREAM_COMPUTE, AXES(AXIS_FSDP), part, all)->accumulate =
        ACCUMULATE_YES;
    refuse(&p, "is to accumulate", "all_gather");
}

static void set_all(struct program *p, enum op op, int64_t value) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            if (p->templates.item[t].instructions.item[i].op == op)
                p->templates.item[t].instructions.item[i].attribute[0].i = value;
}

// Forward and backward alike, so that one is the other's transpose.
static void attributes(void **unused) {
    (void)unused;
    static const enum op ROWS[][3] = {{OP_ROPE, OP_ROPE_DX, OP_ROPE_DX},
                                      {OP_QKNORM, OP_QKNORM_DX, OP_QKNORM_DW},
                                      {OP_CROSS_ENTROPY, OP_CROSS_ENTROPY_GRAD, OP_CROSS_ENTROPY_GRAD}};
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_LLAMA, NULL}, false);
    for (size_t r = 0; r < ARRAY_LENGTH(ROWS); r++) {
        struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
        trireme_error error = {0};
        for (int i = 0; i < 3; i++)
            set_all(&p, ROWS[r][i], 1000);
        assert_int_equal(program_verify(&p, small.engine.ops, &error), TRIREME_ERROR_PROGRAM);
        if (!strstr(error.message, "does not hold for its extents and attributes"))
            fail_msg("%s", error.message);
        mutant_release(&p);
    }
    small_model_release(&small);
}

// Asserts that the compiled program with a fault is refused in a message that contains both.
#define FAULT(fault, what, name)                                           \
    do {                                                                   \
        struct program p = mutant_copy(program);                           \
        trireme_error error = {0};                                         \
        fault;                                                             \
        assert_words(program_verify(&p, ops, &error), &error, what, name); \
        mutant_release(&p);                                                \
    } while (0)
#define BUFFER(name) p.buffers.item[program_find(&p, name)]
#define AT(op, buffer) mutant_at(mutant_find(&p, op, buffer))

static void fields_that_do_not_fit(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    FAULT(BUFFER("layers.1.attention_norm.rstd").dtype = DTYPE_F32, "is f32, expected f64",
          "layers.1.attention_norm.rstd");
    FAULT(BUFFER("layers.1.attention.out.bias").name = BUFFER("layers.0.attention.out.bias").name,
          "two buffers are named", "layers.0.attention.out.bias");
    FAULT(BUFFER("layers.1.residual").offset += 8, "has no aligned offset", "layers.1.residual");
    FAULT(BUFFER("grad.layers.0.attention_norm.weight").gradient_of = (int)p.buffers.count,
          "refers to a buffer that does not exist", "grad.layers.0.attention_norm.weight");
    FAULT(BUFFER("layers.1.residual").pool = (int)p.pools.count, "is of pool 1, which does not exist",
          "layers.1.residual");
    FAULT(AT(OP_MATMUL_DX, "d.layers.1.mlp.up")->in[0] = operand_none(), "operand dy is missing", "matmul_dx");
    FAULT(AT(OP_MATMUL, "layers.0.attention.residual")->in[3].dim[0] = 1, "the extents of r do not agree", "matmul");
    FAULT(p.schedule.item[1].microbatch = p.microbatches, "names a template or microbatch that does not exist",
          "invocation 1");
    FAULT(p.schedule.item[1].template = NONE, "names a template or microbatch that does not exist", "invocation 1");
    FAULT(p.schedule.item[1].template = 1 << 28, "names a template or microbatch that does not exist", "invocation 1");
    FAULT(p.schedule.item[1].microbatch = INT_MIN, "names a template or microbatch that does not exist",
          "invocation 1");
    FAULT(p.pools.item[0].slot[1] = NONE, "microbatch 1 has slot -1 of pool 0", "which has 1");
    FAULT(BUFFER("layers.1.attention.out.bias").scope = SCOPE_STEP, "does not fit in it", "layers.1.parameters");
    FAULT(BUFFER("layers.1.attention.out.bias").own = AXES(AXIS_FSDP), "is not a unit of parameters",
          "layers.1.attention.out.bias");
    FAULT(BUFFER("tokens").placement[AXIS_PP] = PLACE_OWN - 1, "over a dim that it does not have", "tokens");
    FAULT(BUFFER("tokens").placement[AXIS_DP] = PLACE_SHARD(1), "over a dim that it does not have", "tokens");
    FAULT(BUFFER("tokens").placement[AXIS_DP] = PLACE_OWN, "each rank's own along dp", "tokens");
    FAULT(AT(OP_GELU, "layers.1.mlp.up")->wait[STREAM_COMPUTE] = WAIT_SLOT, "waits for a slot, but receives nothing",
          "gelu");
    FAULT(AT(OP_GELU, "layers.1.mlp.up")->stream = NONE, "no such stream", "gelu");
    small_model_release(&small);
}

// A number of a buffer is looked up wherever it stands, so that none may lie outside the table.
static void numbers_of_buffers(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    const int beyond[] = {NONE - 1, (int)program->buffers.count, 1 << 28};
    for (size_t k = 0; k < ARRAY_LENGTH(beyond); k++) {
        FAULT(BUFFER("layers.1.residual").belongs_to = beyond[k], "refers to a buffer that does not exist",
              "layers.1.residual");
        FAULT(BUFFER("layers.1.residual").recomputes = beyond[k], "refers to a buffer that does not exist",
              "layers.1.residual");
        FAULT(BUFFER("layers.1.residual").parent = beyond[k], "a buffer that is not listed before it",
              "layers.1.residual");
        FAULT(AT(OP_GELU, "layers.1.mlp.up")->in[0].buffer = beyond[k], "operand x is missing", "gelu");
        FAULT(AT(OP_GELU, "layers.1.mlp.up")->workspace = beyond[k], "is a buffer that does not exist", "gelu");
        FAULT(AT(OP_GELU, "layers.1.mlp.up")->predicate = beyond[k], "is a buffer that does not exist", "gelu");
    }
    FAULT(BUFFER("layers.1.residual").parent = program_find(&p, "layers.1.residual"),
          "a buffer that is not listed before it", "layers.1.residual");
    FAULT(BUFFER("layers.1.m").pool = NONE, "is of pool -1, which does not exist", "layers.1.m");
    small_model_release(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_that_may_be_skipped),
        cmocka_unit_test(what_a_predicate_is),
        cmocka_unit_test(in_place_but_shifted),
        cmocka_unit_test(memory_that_is_in_use),
        cmocka_unit_test(workspaces),
        cmocka_unit_test(read_before_written),
        cmocka_unit_test(activations_of_another_microbatch),
        cmocka_unit_test(where_scratch_lies),
        cmocka_unit_test(before_the_arena),
        cmocka_unit_test(slices_of_another_kind),
        cmocka_unit_test(columns_apart),
        cmocka_unit_test(parts_of_other_ranks),
        cmocka_unit_test(extents),
        cmocka_unit_test(elements_beyond_the_last),
        cmocka_unit_test(operands_that_are_malformed),
        cmocka_unit_test(numbers_that_no_model_has),
        cmocka_unit_test(slots_without_a_microbatch),
        cmocka_unit_test(arithmetic_where_messages_are),
        cmocka_unit_test(who_writes_what),
        cmocka_unit_test(elements_that_nobody_writes),
        cmocka_unit_test(what_others_look_at),
        cmocka_unit_test(sums_that_are_none),
        cmocka_unit_test(attributes),
        cmocka_unit_test(fields_that_do_not_fit),
        cmocka_unit_test(numbers_of_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
