// Exchanges between tensor ranks move ahead of products that they do not need, and stay after those that they do.
#include "compile/passes.h"
#include "support/by_hand.h"
#include "support/streams.h"
#include "support/test.h"

enum { ROWS = 8, COLUMNS = 16 };

struct made {
    struct program program;
    struct operand a, b, c, again; // `again` recomputes `a`
};

static void make(struct made *m) {
    program_init(&m->program, "overlap", 1);
    test_streams(&m->program);
    program_template(&m->program, "backward", PHASE_BACKWARD, 0);
    m->a = add_rows(&m->program, "a", KIND_ACT, SCOPE_LOCAL);
    m->b = add_rows(&m->program, "b", KIND_ACT, SCOPE_LOCAL);
    m->c = add_rows(&m->program, "c", KIND_ACT, SCOPE_LOCAL);
    m->again = add_rows(&m->program, "again", KIND_ACT, SCOPE_LOCAL);
    m->program.buffers.item[m->again.buffer].recomputes = m->a.buffer;
}

static void compute(struct made *m, enum phase phase, struct operand in, struct operand out) {
    program_emit(&m->program, 0, OP_ADD, phase, 0, 2, (struct operand[]){in, in}, 1, &out, NULL);
}

static void exchange(struct made *m, enum op op, struct operand in, struct operand out) {
    int64_t elements = ROWS * COLUMNS;
    program_communicate(&m->program, 0, op, PHASE_BACKWARD, STREAM_TENSOR, AXES(AXIS_TP),
                        operand_shape(in, 1, &elements), operand_shape(out, 1, &elements));
}

// "cxc": compute, exchange, compute.
static void expect(struct made *m, const char *order) {
    pass_overlap(&m->program);
    const struct template *t = &m->program.templates.item[0];
    assert_int_equal(t->instructions.count, strlen(order));
    for (size_t i = 0; i < t->instructions.count; i++)
        assert_int_equal(t->instructions.item[i].stream == STREAM_TENSOR ? 'x' : 'c', order[i]);
    program_release(&m->program);
}

static void sums_go_before_weights(void **unused) {
    (void)unused;
    struct made m;
    make(&m);
    compute(&m, PHASE_BACKWARD, m.a, m.b);
    compute(&m, PHASE_WEIGHT, m.a, m.c);
    exchange(&m, OP_ALL_REDUCE, m.b, m.b);
    expect(&m, "cxc");
    make(&m);
    compute(&m, PHASE_BACKWARD, m.a, m.c); // may be what somebody waits for
    exchange(&m, OP_ALL_REDUCE, m.b, m.b);
    expect(&m, "cx");
}

static void sums_stay_behind_what_they_need(void **unused) {
    (void)unused;
    struct made m;
    make(&m);
    compute(&m, PHASE_WEIGHT, m.a, m.b); // makes what is summed
    exchange(&m, OP_ALL_REDUCE, m.b, m.c);
    expect(&m, "cx");
    make(&m);
    compute(&m, PHASE_WEIGHT, m.b, m.c); // reads what is overwritten
    exchange(&m, OP_ALL_REDUCE, m.a, m.b);
    expect(&m, "cx");
    make(&m);
    compute(&m, PHASE_WEIGHT, m.a, m.b); // writes what is overwritten
    exchange(&m, OP_ALL_REDUCE, m.c, m.b);
    expect(&m, "cx");
}

static void gathers_go_before_what_they_do_not_need(void **unused) {
    (void)unused;
    struct made m;
    make(&m);
    compute(&m, PHASE_BACKWARD, m.b, m.c);
    exchange(&m, OP_ALL_GATHER, m.a, m.again);
    expect(&m, "xc");
    make(&m);
    compute(&m, PHASE_BACKWARD, m.b, m.a); // makes what is gathered
    exchange(&m, OP_ALL_GATHER, m.a, m.again);
    expect(&m, "cx");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_go_before_weights),
        cmocka_unit_test(sums_stay_behind_what_they_need),
        cmocka_unit_test(gathers_go_before_what_they_do_not_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
