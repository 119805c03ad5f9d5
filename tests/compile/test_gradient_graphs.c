// Backward passes of small forward passes whose tensors are used in every way: each is derived, verified, run and
// compared with finite differences.
#include "support/graph.h"

#include "base/rng.h"
#include "support/test.h"
#include "verify/proofs.h"

enum { C = 6, ROWS = GRAPH_ROWS };

static const union attribute EPS[OP_MAX_ATTRIBUTES] = {{.f = 1e-5}}, HEADS[OP_MAX_ATTRIBUTES] = {{.i = 1}},
                             EXACT[OP_MAX_ATTRIBUTES] = {{.i = 0}};

static struct operand weight(struct graph *g, int64_t rows, int64_t columns) {
    return graph_parameter(g, 2, (int64_t[]){rows, columns});
}

static struct operand linear(struct graph *g, struct operand x, int64_t columns) {
    struct operand w = weight(g, columns, x.dim[1]);
    return graph_op(g, OP_MATMUL, 4, (struct operand[]){x, w, operand_none(), operand_none()}, x.dim[0], columns, NULL);
}

static struct operand gelu(struct graph *g, struct operand x) {
    return graph_op(g, OP_GELU, 1, &x, x.dim[0], x.dim[1], EXACT);
}

static struct operand add(struct graph *g, struct operand a, struct operand b) {
    return graph_op(g, OP_ADD, 2, (struct operand[]){a, b}, a.dim[0], a.dim[1], NULL);
}

static struct operand rmsnorm(struct graph *g, struct operand x) {
    struct operand w = graph_parameter(g, 1, &x.dim[1]), y = graph_tensor(g, 2, x.dim), r = graph_tensor(g, 1, x.dim);
    graph_emit(g, OP_RMSNORM, 2, (struct operand[]){x, w}, 2, (struct operand[]){y, r}, EPS);
    return y;
}

// y and, as a matrix of one column, lse.
static struct operand softmax(struct graph *g, struct operand x, struct operand *lse) {
    struct operand y = graph_tensor(g, 2, x.dim), l = graph_tensor(g, 1, x.dim);
    graph_emit(g, OP_SOFTMAX, 1, &x, 2, (struct operand[]){y, l}, NULL);
    *lse = operand_shape(l, 2, (int64_t[]){x.dim[0], 1});
    return y;
}

static struct operand embed(struct graph *g, struct operand table) {
    return graph_op(g, OP_EMBED, 3, (struct operand[]){graph_indices(g), table, operand_none()}, ROWS, table.dim[1],
                    NULL);
}

static struct operand rope(struct graph *g, struct operand x) {
    struct operand at = graph_indices(g), table = graph_input(g, ROWS, x.dim[1]);
    return graph_op(g, OP_ROPE, 3, (struct operand[]){x, at, table}, ROWS, x.dim[1], HEADS);
}

// Of columns of three tensors, which may be one and the same.
static struct operand attention(struct graph *g, const struct operand x[3], const int64_t column[3]) {
    enum { D = 2 };
    struct operand in[6], y = graph_tensor(g, 2, (int64_t[]){ROWS, D}),
                          lse = graph_tensor(g, 3, (int64_t[]){1, 1, ROWS});
    for (int i = 0; i < 3; i++)
        in[i] = (struct operand){.buffer = x[i].buffer,
                                 .offset = column[i],
                                 .ndim = 4,
                                 .dim = {1, ROWS, 1, D},
                                 .stride = {ROWS * C, C, D, 1}};
    in[3] = operand_shape(graph_indices(g), 2, (int64_t[]){1, ROWS});
    in[4] = in[5] = operand_none();
    graph_emit(g, OP_ATTENTION, 6, in, 3,
               (struct operand[]){operand_shape(y, 4, (int64_t[]){1, ROWS, 1, D}), lse, operand_none()},
               (union attribute[OP_MAX_ATTRIBUTES]){{.f = 0.7}});
    return linear(g, y, C);
}

// An activation that depends on parameters.
static struct operand first(struct graph *g) {
    return linear(g, graph_input(g, ROWS, 3), C);
}

static void finish(struct graph *g, struct operand x) {
    trireme_error error = {0};
    graph_loss(g, linear(g, x, GRAPH_CLASSES));
    if (graph_differentiate(g, &error) != TRIREME_OK || graph_compile(g, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    graph_check_gradients(g, 5);
}

static void begin(struct graph *g) {
    graph_create(g, 2);
}

// Asserts how many sums, zeros and copies the backward pass has, and releases.
static void assert_extra(struct graph *g, int sums, int parameter_sums, int zeros) {
    assert_int_equal(graph_count(g, OP_GRADIENT_SUM), sums);
    assert_int_equal(graph_count(g, OP_GRADIENT_SUM_DW), parameter_sums);
    assert_int_equal(graph_count(g, OP_ZERO) + graph_count(g, OP_ZERO_COLUMNS), zeros);
    graph_release(g);
}

// ---- sums

// The residual stream as it is in models: the norm's backward adds.
static void residual_streams_are_folded(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g);
    for (int i = 0; i < 2; i++)
        x = add(&g, x, linear(&g, rmsnorm(&g, x), C));
    finish(&g, rmsnorm(&g, x));
    assert_extra(&g, 0, 0, 0);
}

// Nothing folds: a product adds to what is there, an activation does not.
static void diamonds(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g);
    finish(&g, add(&g, linear(&g, x, C), x));
    assert_extra(&g, 1, 0, 0);
    begin(&g);
    x = first(&g);
    finish(&g, add(&g, gelu(&g, x), x));
    assert_extra(&g, 1, 0, 0);
    begin(&g);
    x = first(&g);
    finish(&g, add(&g, x, x));
    assert_extra(&g, 1, 0, 0);
}

static void two_residual_streams(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g), y = linear(&g, x, C), p, q;
    p = add(&g, x, gelu(&g, rmsnorm(&g, x)));
    q = add(&g, y, gelu(&g, rmsnorm(&g, y)));
    p = add(&g, p, q); // both go on in two streams
    q = add(&g, q, x);
    finish(&g, add(&g, rmsnorm(&g, p), rmsnorm(&g, q)));
    graph_release(&g);
}

static void three_uses(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g), a = gelu(&g, x), b = graph_op(&g, OP_ADD, 2, (struct operand[]){x, a}, ROWS, C, NULL);
    struct operand c = rmsnorm(&g, x);
    finish(&g, add(&g, b, c));
    graph_release(&g);
    // No row of these can add to the others' gradients.
    begin(&g);
    x = first(&g);
    a = gelu(&g, x), b = gelu(&g, x);
    struct operand lse;
    c = softmax(&g, x, &lse);
    finish(&g, add(&g, add(&g, a, b), c));
    assert_extra(&g, 2, 0, 0);
}

static void one_tensor_twice_in_one_op(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g);
    // x x' + x: gradients of both factors, one of which is as a weight's.
    struct operand square =
        graph_op(&g, OP_MATMUL, 4, (struct operand[]){x, x, operand_none(), operand_none()}, ROWS, ROWS, NULL);
    finish(&g, add(&g, linear(&g, square, C), x));
    graph_release(&g);
}

static void parameters_as_summands(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand w = weight(&g, ROWS, C), x = add(&g, first(&g), w);
    finish(&g, add(&g, x, gelu(&g, w)));
    assert_extra(&g, 0, 2, 0);
}

// ---- parts

static void columns_of_a_tensor(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g), a = gelu(&g, graph_columns(x, 0, 3)), b = linear(&g, graph_columns(x, 3, 3), 3);
    finish(&g, add(&g, a, b));
    assert_extra(&g, 0, 0, 0);
    begin(&g); // the first and last columns go nowhere
    x = first(&g);
    a = gelu(&g, graph_columns(x, 1, 2));
    finish(&g, add(&g, a, graph_columns(x, 3, 2)));
    assert_extra(&g, 1, 0, 2);
    begin(&g); // backward meets all of it, then some of it
    x = first(&g);
    a = gelu(&g, graph_columns(x, 2, 3));
    b = linear(&g, x, 3);
    finish(&g, add(&g, a, b));
    assert_extra(&g, 1, 0, 0);
    begin(&g); // and the other way round
    x = first(&g);
    a = linear(&g, x, 3);
    b = gelu(&g, graph_columns(x, 2, 3));
    finish(&g, add(&g, a, b));
    assert_extra(&g, 0, 0, 2);
}

static void rows_of_a_tensor(void **unused) {
    (void)unused;
    for (int used = 1; used <= 2; used++) {
        struct graph g;
        begin(&g);
        struct operand x = first(&g), y = graph_tensor(&g, 2, (int64_t[]){ROWS, C});
        for (int i = 0; i < 2; i++) { // the halves are made and used apart
            int from = program_slice(&g.program, x.buffer, i ? "x.1" : "x.0", i * 2 * C, 2, (int64_t[]){2, C}),
                to = program_slice(&g.program, y.buffer, i ? "y.1" : "y.0", i * 2 * C, 2, (int64_t[]){2, C});
            struct operand in = operand_whole(&g.program, i < used ? from : program_find(&g.program, "x.0")),
                           out = operand_whole(&g.program, to);
            graph_emit(&g, OP_GELU, 1, &in, 1, &out, EXACT);
        }
        finish(&g, y);
        assert_extra(&g, used == 1 ? 1 : 0, 0, used == 1 ? 1 : 0);
    }
}

// The queries are keys and values, too; or each is apart from the others.
static void views_of_attention(void **unused) {
    (void)unused;
    static const int64_t COLUMNS[][3] = {{0, 2, 4}, {1, 1, 1}, {0, 1, 2}, {0, 0, 3}};
    for (size_t i = 0; i < ARRAY_LENGTH(COLUMNS); i++) {
        struct graph g;
        begin(&g);
        struct operand x = first(&g);
        finish(&g, attention(&g, (struct operand[]){x, x, x}, COLUMNS[i]));
        assert_extra(&g, (int[]){0, 2, 1, 1}[i], 0, (int[]){0, 2, 1, 2}[i]);
    }
}

// ---- several outputs

static void outputs_of_which_one_is_used(void **unused) {
    (void)unused;
    struct graph g;
    struct operand lse;
    begin(&g); // both
    struct operand y = softmax(&g, first(&g), &lse);
    finish(&g, add(&g, y, linear(&g, lse, C)));
    assert_extra(&g, 0, 0, 0);
    begin(&g); // the first alone: the other gradient may be absent
    finish(&g, softmax(&g, first(&g), &lse));
    assert_extra(&g, 0, 0, 0);
    begin(&g); // the second alone: the other gradient is made zero
    softmax(&g, first(&g), &lse);
    finish(&g, linear(&g, lse, C));
    assert_extra(&g, 0, 0, 1);
}

// ---- several losses

// Proves what is proved of gradients alone: of the loss as a whole there is one term.
static void finish_losses(struct graph *g) {
    trireme_error error = {0};
    if (graph_differentiate(g, &error) != TRIREME_OK || graph_plan(g, &error) != TRIREME_OK ||
        verify_memory(&g->program, g->table, &error) != TRIREME_OK ||
        verify_gradients(&g->program, g->table, &(struct sets){0}, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    graph_check_gradients(g, 5);
}

static void logits_of_two_losses(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand logits = linear(&g, first(&g), GRAPH_CLASSES);
    graph_loss(&g, logits);
    graph_loss(&g, logits);
    finish_losses(&g);
    assert_extra(&g, 1, 0, 0);
}

static void logits_that_go_on(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand logits = linear(&g, first(&g), GRAPH_CLASSES);
    graph_loss(&g, logits);
    graph_loss(&g, linear(&g, gelu(&g, logits), GRAPH_CLASSES));
    finish_losses(&g);
    assert_extra(&g, 1, 0, 0);
    begin(&g);
    logits = linear(&g, first(&g), GRAPH_CLASSES);
    graph_loss(&g, linear(&g, logits, GRAPH_CLASSES));
    graph_loss(&g, logits);
    finish_losses(&g);
    assert_extra(&g, 0, 0, 0);
}

// ---- what cannot be differentiated

static void refuse(struct graph *g, struct operand x, const char *what) {
    trireme_error error = {0};
    graph_loss(g, linear(g, x, GRAPH_CLASSES));
    assert_int_equal(graph_differentiate(g, &error), TRIREME_ERROR_PROGRAM);
    if (!strstr(error.message, what))
        fail_msg("expected \"%s\", got: %s", what, error.message);
    graph_release(g);
}

static void gradients_that_end_are_refused(void **unused) {
    (void)unused;
    struct graph g;
    begin(&g);
    struct operand x = first(&g), w = graph_parameter(&g, 1, (int64_t[]){C}), y = graph_tensor(&g, 2, x.dim),
                   r = graph_tensor(&g, 1, x.dim);
    graph_emit(&g, OP_RMSNORM, 2, (struct operand[]){x, w}, 2, (struct operand[]){y, r}, EPS);
    refuse(&g, linear(&g, operand_shape(r, 2, (int64_t[]){ROWS, 1}), C), "no op takes the gradient of");
    begin(&g);
    struct operand position = graph_tensor(&g, 2, (int64_t[]){ROWS, C}); // of a table that depends on parameters
    graph_emit(&g, OP_ROPE, 3, (struct operand[]){first(&g), graph_indices(&g), linear(&g, graph_input(&g, 9, 3), C)},
               1, &position, HEADS);
    refuse(&g, position, "no op makes the gradient of");
    begin(&g);
    x = first(&g);
    graph_emit(&g, OP_ADD, 2, (struct operand[]){x, first(&g)}, 1, &x, NULL);
    refuse(&g, x, "in place");
    graph_create(&g, 1); // what is made like a weight's gradient is too wide for an activation's
    g.dtype = DTYPE_BF16;
    x = first(&g);
    x = graph_op(&g, OP_MATMUL, 4, (struct operand[]){x, x, operand_none(), operand_none()}, ROWS, ROWS, NULL);
    refuse(&g, x, "a term of its gradient is f32, the gradient bf16");
}

// ---- random graphs

struct random {
    uint64_t seed, next;
};

static int64_t pick(struct random *r, int64_t count) {
    return (int64_t)(rng_uniform(r->seed, 1, r->next++) * (double)count);
}

enum { TENSORS = 12 };

static struct operand random_view(struct random *r, const struct operand *x, int count) {
    return x[pick(r, count)];
}

// Emits a random op on random tensors [ROWS, C].
static struct operand random_op(struct graph *g, struct random *r, const struct operand *x, int count,
                                const struct operand *shared) {
    struct operand a = random_view(r, x, count), b = random_view(r, x, count), lse;
    const int64_t column = pick(r, C - 2);
    switch (pick(r, 16)) {
    case 13:
        return embed(g, *shared);
    case 14:
        return rope(g, a);
    case 15:
        return attention(g, (struct operand[]){a, b, random_view(r, x, count)},
                         (int64_t[]){pick(r, C - 1), pick(r, C - 1), pick(r, C - 1)});
    case 0:
        return add(g, a, b);
    case 1:
        return gelu(g, a);
    case 2:
        return rmsnorm(g, a);
    case 3: {
        struct operand residual = pick(r, 2) ? b : operand_none();
        return graph_op(g, OP_MATMUL, 4,
                        (struct operand[]){a, *shared, graph_parameter(g, 1, (int64_t[]){C}), residual}, ROWS, C, NULL);
    }
    case 4:
        return softmax(g, a, &lse);
    case 5:
        softmax(g, a, &lse);
        return linear(g, lse, C);
    case 6: {
        struct operand y = softmax(g, a, &lse);
        return add(g, y, linear(g, lse, C));
    }
    case 7:
        return linear(g, graph_columns(a, column, 3), C);
    case 8:
        return linear(g, gelu(g, graph_columns(a, column, 3)), C);
    case 9:
        return linear(g, add(g, graph_columns(a, column, 3), graph_columns(b, pick(r, C - 2), 3)), C);
    case 10:
        return add(g, a, weight(g, ROWS, C));
    case 11: {
        struct operand bias = graph_parameter(g, 1, (int64_t[]){C});
        return graph_op(g, OP_ADD_BIAS, 3, (struct operand[]){a, b, bias}, ROWS, C, NULL);
    }
    default: {
        struct operand y = graph_op(g, OP_SWIGLU, 1, &(struct operand){a.buffer, a.offset, 2, {ROWS, C}, {C, 1}, 0, 0},
                                    ROWS, C / 2, NULL);
        return linear(g, y, C);
    }
    }
}

static void check_random(uint64_t seed) {
    struct random r = {seed, 0};
    struct graph g;
    graph_create(&g, 1 + (int)pick(&r, 2));
    struct operand x[TENSORS] = {first(&g), first(&g)}, shared = weight(&g, C, C);
    int count = 2;
    x[1] = add(&g, x[0], linear(&g, x[1], C));
    while (count < 3 + pick(&r, TENSORS - 2) && count < TENSORS) {
        x[count] = random_op(&g, &r, x, count, &shared);
        count++;
    }
    // What nobody has used goes into the result, too: a parameter without uses would have no gradient.
    struct operand sum =
        graph_op(&g, OP_MATMUL, 4, (struct operand[]){x[0], shared, operand_none(), operand_none()}, ROWS, C, NULL);
    for (int i = 1; i < count; i++)
        sum = add(&g, sum, x[i]);
    trireme_error error = {0};
    graph_loss(&g, linear(&g, rmsnorm(&g, sum), GRAPH_CLASSES));
    if (graph_differentiate(&g, &error) != TRIREME_OK || graph_compile(&g, &error) != TRIREME_OK)
        fail_msg("graph %llu: %s", (unsigned long long)seed, error.message);
    graph_check_gradients(&g, seed);
    graph_release(&g);
}

static void random_graphs(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 500; seed++)
        check_random(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residual_streams_are_folded),
        cmocka_unit_test(diamonds),
        cmocka_unit_test(two_residual_streams),
        cmocka_unit_test(three_uses),
        cmocka_unit_test(one_tensor_twice_in_one_op),
        cmocka_unit_test(parameters_as_summands),
        cmocka_unit_test(columns_of_a_tensor),
        cmocka_unit_test(rows_of_a_tensor),
        cmocka_unit_test(views_of_attention),
        cmocka_unit_test(outputs_of_which_one_is_used),
        cmocka_unit_test(logits_of_two_losses),
        cmocka_unit_test(logits_that_go_on),
        cmocka_unit_test(gradients_that_end_are_refused),
        cmocka_unit_test(random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
