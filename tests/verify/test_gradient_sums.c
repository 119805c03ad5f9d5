// Gradients whose terms are added by instructions of their own: what the verifier refuses. Each program differs in one
// thing from one that it accepts.
#include "support/graph.h"

#include "support/by_hand.h"
#include "support/test.h"

enum { C = 6 };

static struct operand linear(struct graph *g, struct operand x, int64_t columns) {
    struct operand w = graph_parameter(g, 2, (int64_t[]){columns, x.dim[1]});
    return graph_op(g, OP_MATMUL, 4, (struct operand[]){x, w, operand_none(), operand_none()}, x.dim[0], columns, NULL);
}

static struct operand gelu(struct graph *g, struct operand x) {
    return graph_op(g, OP_GELU, 1, &x, x.dim[0], x.dim[1], NULL);
}

static struct operand add(struct graph *g, struct operand a, struct operand b) {
    return graph_op(g, OP_ADD, 2, (struct operand[]){a, b}, a.dim[0], a.dim[1], NULL);
}

static void finish(struct graph *g, struct operand y) {
    trireme_error error = {0};
    graph_loss(g, linear(g, y, GRAPH_CLASSES));
    if (graph_differentiate(g, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
}

// x goes into two activations and into a sum: one of the first makes a term, which a sum adds to what is there, and
// another sum adds the gradient that passes.
static void make(struct graph *g) {
    graph_create(g, 1);
    struct operand x = linear(g, graph_input(g, GRAPH_ROWS, 3), C), a = gelu(g, x), b = gelu(g, x);
    finish(g, add(g, add(g, a, b), x));
    assert_int_equal(graph_count(g, OP_GRADIENT_SUM), 2);
}

// The number of an instruction of the backward pass: the `which`-th of its op.
static size_t find(const struct graph *g, enum op op, int which) {
    const struct template *t = &g->program.templates.item[g->backward];
    for (size_t i = 0; i < t->instructions.count; i++)
        if (t->instructions.item[i].op == op && which-- == 0)
            return i;
    fail_msg("no such instruction");
    return 0;
}

static struct instruction *at(const struct graph *g, enum op op, int which) {
    return &g->program.templates.item[g->backward].instructions.item[find(g, op, which)];
}

static const char *name_of(const struct graph *g, int buffer) {
    return g->program.buffers.item[buffer].name;
}

static bool is_term(const struct graph *g, int buffer) {
    return strstr(name_of(g, buffer), ".term") != NULL;
}

// The sum that adds the term, or the one that adds what passes.
static struct instruction *sum_of(const struct graph *g, bool term) {
    struct instruction *first = at(g, OP_GRADIENT_SUM, 0);
    return is_term(g, first->in[0].buffer) == term ? first : at(g, OP_GRADIENT_SUM, 1);
}

static void put(struct graph *g, size_t to, struct instruction instruction) {
    struct template *t = &g->program.templates.item[g->backward];
    VEC_PUSH(&t->instructions, instruction);
    for (size_t i = t->instructions.count - 1; i > to; i--)
        t->instructions.item[i] = t->instructions.item[i - 1];
    t->instructions.item[to] = instruction;
}

static void take_out(struct graph *g, const struct instruction *instruction) {
    struct template *t = &g->program.templates.item[g->backward];
    for (size_t i = (size_t)(instruction - t->instructions.item); i + 1 < t->instructions.count; i++)
        t->instructions.item[i] = t->instructions.item[i + 1];
    t->instructions.count--;
}

static void refuse(struct graph *g, const char *what, const char *name) {
    trireme_error error = {0};
    char *buffer = mem_strdup(name);
    assert_words(graph_compile(g, &error), &error, what, buffer);
    free(buffer);
    graph_release(g);
}

static void sums_are_accepted(void **unused) {
    (void)unused;
    struct graph g;
    trireme_error error = {0};
    make(&g);
    if (graph_compile(&g, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    check_round_trip(&g.program, g.table);
    graph_release(&g);
}

static void terms_are_added_once(void **unused) {
    (void)unused;
    struct graph g;
    make(&g);
    struct instruction *sum = sum_of(&g, true);
    put(&g, (size_t)(sum - g.program.templates.item[g.backward].instructions.item), *sum);
    refuse(&g, "a second time", ".term");
    make(&g);
    take_out(&g, sum_of(&g, true));
    refuse(&g, "second gradient of", ".term");
}

static void what_passes_is_added_once(void **unused) {
    (void)unused;
    struct graph g;
    make(&g);
    struct instruction *sum = sum_of(&g, false);
    put(&g, (size_t)(sum - g.program.templates.item[g.backward].instructions.item), *sum);
    refuse(&g, "but no sum connects the two", "gradient_sum");
    make(&g);
    take_out(&g, sum_of(&g, false));
    refuse(&g, "before all contributions are in (2 of 3)", "d.");
    make(&g); // the term in its place
    sum_of(&g, false)->in[0] = sum_of(&g, true)->in[0];
    refuse(&g, "a second time", ".term");
}

static void a_sum_overwrites_nothing(void **unused) {
    (void)unused;
    struct graph g;
    make(&g);
    sum_of(&g, true)->in[1] = operand_none();
    refuse(&g, "overwrites", "d.");
}

static void a_term_belongs_to_its_elements(void **unused) {
    (void)unused;
    struct graph g;
    graph_create(&g, 1);
    struct operand x = linear(&g, graph_input(&g, GRAPH_ROWS, 3), C);
    struct operand a = gelu(&g, graph_columns(x, 0, 3)), b = gelu(&g, x);
    finish(&g, add(&g, a, graph_columns(b, 0, 3)));
    struct instruction *sum = sum_of(&g, true); // the whole one was made first, where b is used
    if (sum->out[0].dim[1] == C)
        fail_msg("the term is of all columns");
    sum->in[1].offset++;
    sum->out[0].offset++;
    refuse(&g, "to other elements of", ".term");
}

static void zeros_come_first(void **unused) {
    (void)unused;
    struct graph g;
    graph_create(&g, 1);
    struct operand x = linear(&g, graph_input(&g, GRAPH_ROWS, 3), C);
    finish(&g, linear(&g, graph_columns(x, 0, 3), C)); // d.x: three columns, and zeros
    struct instruction zero = *at(&g, OP_ZERO_COLUMNS, 0), dx = *at(&g, OP_MATMUL_DX, 1);
    program_give_operands(&g.program, &zero, 0, NULL, 1, zero.out);
    zero.out[0] = dx.out[0];
    put(&g, find(&g, OP_ZERO_COLUMNS, 0), zero);
    refuse(&g, "overwrites", "d.");
}

// An output that has uses needs its gradient, though the operand may be absent.
static void gradients_that_may_be_absent(void **unused) {
    (void)unused;
    struct graph g;
    graph_create(&g, 1);
    struct operand x = linear(&g, graph_input(&g, GRAPH_ROWS, 3), C), y = graph_tensor(&g, 2, x.dim),
                   lse = graph_tensor(&g, 1, x.dim);
    graph_emit(&g, OP_SOFTMAX, 1, &x, 2, (struct operand[]){y, lse}, NULL);
    finish(&g, add(&g, y, linear(&g, operand_shape(lse, 2, (int64_t[]){GRAPH_ROWS, 1}), C)));
    at(&g, OP_SOFTMAX_DX, 0)->in[2] = operand_none();
    refuse(&g, "mismatch: dlse", "softmax_dx");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_accepted),
        cmocka_unit_test(terms_are_added_once),
        cmocka_unit_test(what_passes_is_added_once),
        cmocka_unit_test(a_sum_overwrites_nothing),
        cmocka_unit_test(a_term_belongs_to_its_elements),
        cmocka_unit_test(zeros_come_first),
        cmocka_unit_test(gradients_that_may_be_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
