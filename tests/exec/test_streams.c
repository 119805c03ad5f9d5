// Several streams in one program: what one stream touches, others leave alone until they have waited for it.
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/verify.h"

// compute: a -> b; gather: b -> c; compute: a -> b once more, c -> y, b -> z.
static void build_streams(struct program *p) {
    program_init(p, "streams", 1);
    test_streams(p);
    struct operand a = add_rows(p, "a", KIND_INPUT, SCOPE_STEP);
    struct operand y = add_rows(p, "y", KIND_OUTPUT, SCOPE_STEP);
    struct operand b = add_rows(p, "b", KIND_ACT, SCOPE_STEP);
    struct operand c = add_rows(p, "c", KIND_ACT, SCOPE_STEP);
    struct operand z = add_rows(p, "z", KIND_OUTPUT, SCOPE_STEP);
    union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
    int t = program_template(p, "main", PHASE_FORWARD, 0);
    program_emit(p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &b, tanh);
    struct instruction *copy = program_emit(p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &b, 1, &c, tanh);
    copy->stream = STREAM_GATHER;
    copy->wait[STREAM_COMPUTE] = 1;
    struct instruction *again = program_emit(p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &b, tanh);
    again->wait[STREAM_GATHER] = 1;
    program_emit(p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &c, 1, &y, tanh);
    program_emit(p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &b, 1, &z, tanh);
    program_invoke(p, t, 0, true, true);
}

static void streams(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct program p;
    build_streams(&p);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    if (program_verify(&p, ops, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    check_round_trip(&p, ops);
    program_release(&p);
#define ITEM(i) p.templates.item[0].instructions.item[i]
    build_streams(&p);
    ITEM(1).wait[STREAM_COMPUTE] = 0; // reads b while compute may still write it
    assert_program_refused(&p, ops, "another stream may still write it", " b ");
    build_streams(&p);
    ITEM(2).wait[STREAM_GATHER] = 0; // writes b while copy may still read it
    assert_program_refused(&p, ops, "another stream may still use it", " b ");
    build_streams(&p);
    ITEM(2).wait[STREAM_GATHER] = 0;
    ITEM(2).out[0] = ITEM(4).out[0]; // z, so that only the read of c is too early
    p.templates.item[0].instructions.count = 4;
    assert_program_refused(&p, ops, "another stream may still write it", " c ");
    build_streams(&p);
    ITEM(1).wait[STREAM_COMPUTE] = 2; // for all but the last, which writes b
    assert_program_refused(&p, ops, "another stream may still write it", " b ");
    build_streams(&p);
    ITEM(1).wait[STREAM_COMPUTE] = WAIT_MAX_LAG + 2;
    assert_program_refused(&p, ops, "waits for all but", "gelu");
    build_streams(&p);
    ITEM(1).stream = STREAM_COUNT;
    assert_program_refused(&p, ops, "no such stream", "gelu");
    // Memory of a LOCAL buffer may not go to another while another stream may use it.
    build_streams(&p);
    p.buffers.item[2].scope = p.buffers.item[3].scope = SCOPE_LOCAL;
    ITEM(2).wait[STREAM_GATHER] = 0;
    ITEM(2).in[0] = ITEM(0).in[0];
    assert_program_refused(&p, ops, "another stream may", " b ");
#undef ITEM
    free(ops);
}

// compute: a -> b, b -> y; a -> c, which takes the first half of b's memory; gather: a -> d, which takes the second
// half of it, though b is nobody's any more by then.
static void halves_of_what_was_freed(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    for (int waits = 0; waits < 2; waits++) {
        struct program p;
        trireme_error error = {0};
        program_init(&p, "halves", 1);
        test_streams(&p);
        const int64_t twice[] = {16, 16};
        union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
        struct operand whole =
            operand_whole(&p, program_buffer(&p, "whole", DTYPE_F32, KIND_INPUT, SCOPE_STEP, 2, twice));
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP);
        struct operand b = operand_whole(&p, program_buffer(&p, "b", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 2, twice));
        struct operand c = add_rows(&p, "c", KIND_ACT, SCOPE_LOCAL), d = add_rows(&p, "d", KIND_ACT, SCOPE_LOCAL);
        struct operand y = operand_whole(&p, program_buffer(&p, "y", DTYPE_F32, KIND_OUTPUT, SCOPE_STEP, 2, twice));
        struct operand v = add_rows(&p, "v", KIND_OUTPUT, SCOPE_STEP), w = add_rows(&p, "w", KIND_OUTPUT, SCOPE_STEP);
        int t = program_template(&p, "main", PHASE_FORWARD, 0);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &whole, 1, &b, tanh);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &b, 1, &y, tanh);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &c, tanh);
        struct instruction *beside = program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &d, tanh);
        beside->stream = STREAM_GATHER;
        beside->wait[STREAM_COMPUTE] = waits ? 1 : 0;
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &c, 1, &v, tanh);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &d, 1, &w, tanh)->wait[STREAM_GATHER] = 1;
        program_invoke(&p, t, 0, true, true);
        assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
        const int64_t offset = p.buffers.item[b.buffer].offset;
        p.buffers.item[c.buffer].offset = offset;
        p.buffers.item[d.buffer].offset = offset + 8 * 16 * 4;
        trireme_status status = program_verify(&p, ops, &error);
        assert_int_equal(status, waits ? TRIREME_OK : TRIREME_ERROR_PROGRAM);
        if (!waits)
            assert_non_null(strstr(error.message, "reuses memory of b for d while another stream may use it"));
        program_release(&p);
    }
    free(ops);
}

// compute: a -> b, b -> y; embed: b is summed on another rank, and in its own memory here.
static void sums_in_the_memory_of_terms(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    for (int behind = 0; behind < 2; behind++) {
        struct program p;
        program_init(&p, "terms", 1);
        test_streams(&p);
        p.mesh.degree[AXIS_PP] = 2;
        struct operand a = add_rows(&p, "a", KIND_INPUT, SCOPE_STEP), b = add_rows(&p, "b", KIND_ACT, SCOPE_STEP);
        struct operand y = add_rows(&p, "y", KIND_OUTPUT, SCOPE_STEP);
        union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
        int t = program_template(&p, "main", PHASE_FORWARD, 0);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &b, tanh);
        program_emit(&p, t, OP_GELU, PHASE_FORWARD, NONE, 1, &b, 1, &y, tanh);
        struct instruction *sum =
            program_communicate(&p, t, OP_REDUCE, PHASE_FORWARD, STREAM_EMBED, AXES(AXIS_PP), b, operand_none());
        sum->peer = 1;
        sum->wait[STREAM_COMPUTE] = behind ? 1 : 2; // 2: for what makes b, not for what reads it
        program_invoke(&p, t, 0, true, true);
        // After it there is only another fault: `a` is not a part of a sum.
        assert_program_refused(&p, ops, behind ? "reduced twice" : "sums in b while another stream may still use it",
                               "reduce");
    }
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(halves_of_what_was_freed),
        cmocka_unit_test(sums_in_the_memory_of_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
