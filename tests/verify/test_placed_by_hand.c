// Single instructions between ranks whose operands are placed by hand: what a row of ops.def cannot make of them is
// refused.
#include "support/by_hand.h"
#include "support/test.h"

// A program made by hand, of one instruction between ranks along an axis.
struct row {
    struct program p;
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
    int inputs, outputs;
    enum axis axis;
};

static struct row row_begin(enum axis axis, int ranks) {
    struct row r = {.outputs = 1, .axis = axis};
    program_init(&r.p, "row", 1);
    program_template(&r.p, "main", PHASE_FORWARD, 0);
    r.p.mesh.degree[axis] = ranks;
    return r;
}

static void row_input(struct row *r, int place, enum dtype dtype, int ndim, const int64_t *dim) {
    const char *names[] = {"a", "b", "c", "d"};
    int b = program_buffer(&r->p, names[r->inputs], dtype, KIND_INPUT, SCOPE_STEP, ndim, dim);
    r->p.buffers.item[b].placement[r->axis] = (int8_t)place;
    r->in[r->inputs++] = operand_whole(&r->p, b);
}
#define PLACED(place, dtype, ...) \
    row_input(&r, place, dtype, (int)ARRAY_LENGTH(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static struct instruction *row_emit(struct row *r, enum op op, int ndim, const int64_t *dim) {
    union attribute none[OP_MAX_ATTRIBUTES] = {{0}};
    r->out[0] = operand_whole(&r->p, program_buffer(&r->p, "y", DTYPE_F32, KIND_ACT, SCOPE_STEP, ndim, dim));
    program_invoke(&r->p, 0, 0, true, true);
    return program_emit(&r->p, 0, op, PHASE_FORWARD, NONE, r->inputs, r->in, r->outputs, r->out, none);
}
#define EMIT(op, ...) row_emit(&r, op, (int)ARRAY_LENGTH(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static void row_refuse(struct row *r, const char *what, const char *buffer) {
    struct op_table *ops = op_table_create();
    assert_program_refused(&r->p, ops, what, buffer);
    free(ops);
}

static void rows_of_ops(void **unused) {
    (void)unused;
    struct row r = row_begin(AXIS_TP, 2); // some rows of some columns
    PLACED(PLACE_SHARD(0), DTYPE_F32, 8, 16);
    PLACED(PLACE_SHARD(0), DTYPE_F32, 16, 16);
    r.in[2] = r.in[3] = operand_none();
    r.inputs = 4;
    EMIT(OP_MATMUL, 8, 16);
    row_refuse(&r, "b is split along tp by its n, another operand by its m", "matmul");

    r = row_begin(AXIS_TP, 2); // the norm of some columns
    PLACED(PLACE_SHARD(1), DTYPE_F32, 8, 16);
    PLACED(PLACE_SHARD(0), DTYPE_F32, 16);
    r.out[1] = operand_whole(&r.p, program_buffer(&r.p, "rstd", DTYPE_F32, KIND_ACT, SCOPE_STEP, 1, (int64_t[]){8}));
    r.outputs = 2;
    EMIT(OP_RMSNORM, 8, 16);
    row_refuse(&r, "a is split along tp, but its C must be whole", "rmsnorm");

    r = row_begin(AXIS_TP, 2); // the sum of maxima is no maximum
    PLACED(PLACE_MAX, DTYPE_F32, 8, 16);
    PLACED(PLACE_MAX, DTYPE_F32, 8, 16);
    EMIT(OP_ADD, 8, 16);
    row_refuse(&r, "a is a partial maximum along tp", "add");

    for (int residual = 0; residual < 2; residual++) { // added once by each rank
        r = row_begin(AXIS_TP, 2);
        PLACED(PLACE_SHARD(1), DTYPE_F32, 8, 16);
        PLACED(PLACE_SHARD(1), DTYPE_F32, 16, 16);
        if (residual) {
            r.in[r.inputs++] = operand_none();
            PLACED(PLACE_REPLICATE, DTYPE_F32, 8, 16);
        } else {
            PLACED(PLACE_REPLICATE, DTYPE_F32, 16);
            r.in[r.inputs++] = operand_none();
        }
        EMIT(OP_MATMUL, 8, 16);
        row_refuse(&r, "is added on every rank along tp to what is a partial sum there", residual ? "d" : "c");
    }

    r = row_begin(AXIS_TP, 2); // where this rank's part of the table begins among those of other ranks
    PLACED(PLACE_REPLICATE, DTYPE_I32, 8);
    PLACED(PLACE_SHARD(0), DTYPE_F32, 32, 16);
    PLACED(PLACE_REPLICATE, DTYPE_I32, 1);
    r.p.buffers.item[r.in[2].buffer].placement[AXIS_FSDP] = PLACE_SHARD(0);
    EMIT(OP_EMBED, 8, 16);
    row_refuse(&r, "nothing says where this rank's part begins", "embed");
}

static void collectives(void **unused) {
    (void)unused;
    struct row r = row_begin(AXIS_TP, 4); // with one of three others
    PLACED(PLACE_SUM, DTYPE_F32, 128);
    struct instruction *i = EMIT(OP_ALL_REDUCE, 128);
    i->group = AXES(AXIS_TP);
    i->peer = 1;
    row_refuse(&r, "leaves out ranks along tp", "all_reduce");

    r = row_begin(AXIS_PP, 4); // from one of three other stages
    PLACED(PLACE_SHARD(0), DTYPE_F32, 64);
    i = EMIT(OP_ALL_GATHER, 256);
    i->group = AXES(AXIS_PP);
    i->peer = 1;
    row_refuse(&r, "leaves out ranks along pp", "all_gather");

    r = row_begin(AXIS_TP, 2); // one rank of a layer alone has the sum
    PLACED(PLACE_SUM, DTYPE_F32, 64);
    EMIT(OP_REDUCE, 64)->group = AXES(AXIS_TP);
    row_refuse(&r, "is not between stages", "reduce");

    r = row_begin(AXIS_TP, 3); // one element more than there are
    PLACED(PLACE_SHARD(0), DTYPE_F32, 42);
    EMIT(OP_ALL_GATHER, 127)->group = AXES(AXIS_TP);
    row_refuse(&r, "42 elements of a cannot become 127 of y on 3 ranks", "all_gather");
}

// Ranks have parts of the sequences: what must see all positions of a sequence is refused where it sees a part, also
// where a rank has a part of one sequence alone.
static void positions_of_parts(void **unused) {
    (void)unused;
    static const char BODY[] = "buffer %%0 i32 input microbatch [%d,8] place cp 1 \"starts\"\n"
                               "buffer %%1 f32 param state [20,16] \"table\"\n"
                               "buffer %%2 f32 act local [%d,16] \"rows\"\n"
                               "buffer %%3 f32 act local [%d,16] \"heads\"\n"
                               "buffer %%4 f32 act local [%d,4,8] \"lse\"\n"
                               "template 0 forward \"main\"\n"
                               "  %%2[%d,16] = embed %%0[%d] %%1[20,16] - phase forward\n"
                               "  %%3[%d,8,4,4] %%4[%d,4,8] - = attention %%2[%d,8,4,4] %%2[%d,8,4,4] %%2[%d,8,4,4] "
                               "%%0[%d,8] - - scale 0.5 window 0 phase forward\n";
    struct op_table *ops = op_table_create();
    for (int n = 1; n <= 2; n++) {
        char *body = mem_printf(BODY, n, 8 * n, 8 * n, n, 8 * n, 8 * n, n, n, n, n, n, n);
        struct program p = program_by_hand(ops, "mesh cp 2\n", body);
        assert_program_refused(&p, ops, "rows is split along cp, but its T must be whole", "attention");
        free(body);
    }
    free(ops);
}

// Messages that some ranks do not have are for sets alone, and end within their group.
static void open_messages(void **unused) {
    (void)unused;
    static const char BODY[] = "buffer %%0 f32 input microbatch [8] place cp 0 \"a\"\n"
                               "buffer %%1 f32 act local [8] \"b\"\n"
                               "buffer %%2 f32 act local [8] \"c\"\n"
                               "template 0 forward \"main\"\n"
                               "  = send %%0[8] phase forward stream %s group cp peer %d open\n"
                               "  %%1[8] = receive phase forward stream %s group cp peer %d open\n"
                               "  %%2[1,8] = gelu %%1[1,8] tanh 1 phase forward wait %s\n";
    static const struct {
        int peer;
        const char *says, *of;
    } CASES[] = {{1, "some ranks along cp send nothing", "send"},
                 {4, "is open, but no message to a rank at distance 4 along an axis of 4 ranks", "send"}};
    struct op_table *ops = op_table_create();
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        char *body = mem_printf(BODY, "out", CASES[i].peer, "in", -CASES[i].peer, "in");
        struct program p = program_by_hand(ops, "mesh cp 4\nstream out sends\nstream in receives\n", body);
        assert_program_refused(&p, ops, CASES[i].says, CASES[i].of);
        free(body);
    }
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_ops),
        cmocka_unit_test(positions_of_parts),
        cmocka_unit_test(collectives),
        cmocka_unit_test(open_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
