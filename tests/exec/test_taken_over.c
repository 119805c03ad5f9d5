// Collectives of tensor ranks that the compute thread runs in place of their own stream's thread, and the order that
// both threads then keep.
#include "exec/executor.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/streams.h"
#include "support/team.h"
#include "support/test.h"

enum { MOST = 8, ELEMENTS = 8 * 16 };

// A rank's program of instructions, a letter and a buffer each. Compute: g is short, m takes long, w waits for the
// tensor stream, v for all but its last, u for another stream. Collectives of the tensor stream: x waits for what
// compute has done, y for all but its last, z for nothing. Of another stream: s.
struct made {
    const char *letters;
    struct program program;
    struct op_table *ops;
    struct operand rows[MOST];
    void *state, *step;
    struct streams *streams;
    struct executor *executor;
};

static void emit(struct made *m, char letter, struct operand rows) {
    struct program *p = &m->program;
    const struct operand in[] = {rows, m->rows[0], operand_none(), operand_none()};
    struct instruction *i;
    if (strchr("xyzs", letter)) {
        i = program_communicate(p, 0, OP_ALL_REDUCE, PHASE_FORWARD, letter == 's' ? STREAM_GATHER : STREAM_TENSOR,
                                AXES(AXIS_TP), rows, rows);
        i->wait[STREAM_COMPUTE] = letter == 'y' ? 2 : letter != 'z';
    } else if (letter == 'm') {
        struct operand out =
            operand_whole(p, program_buffer(p, "product", DTYPE_F32, KIND_ACT, SCOPE_STEP, 2, (const int64_t[]){8, 8}));
        program_emit(p, 0, OP_MATMUL, PHASE_FORWARD, NONE, 4, in, 1, &out, NULL);
    } else {
        union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
        i = program_emit(p, 0, OP_GELU, PHASE_FORWARD, NONE, 1, &rows, 1, &rows, tanh);
        i->wait[STREAM_TENSOR] = letter == 'v' ? 2 : letter == 'w';
        i->wait[STREAM_GATHER] = letter == 'u';
    }
}

static void *memory(int64_t bytes) {
    size_t rounded = round_up((size_t)MAX(bytes, 1), BUFFER_ALIGNMENT);
    return memset(aligned_alloc(BUFFER_ALIGNMENT, rounded), 0, rounded);
}

static bool make(struct made *m, const char *letters, struct teammate *mate) {
    trireme_error error = {0};
    *m = (struct made){.letters = letters, .ops = op_table_create()};
    program_init(&m->program, "taken over", 1);
    test_streams(&m->program);
    m->program.mesh.degree[AXIS_TP] = mate->ranks;
    program_template(&m->program, "forward", PHASE_FORWARD, 0);
    CHECK(strlen(letters) <= MOST);
    for (size_t i = 0; i < strlen(letters); i++) {
        m->rows[i] = add_rows(&m->program, (char[]){(char)('a' + i), 0}, KIND_ACT, SCOPE_STEP);
        emit(m, letters[i], m->rows[i]);
    }
    program_invoke(&m->program, 0, 0, true, true);
    if (teammate_failed(mate, program_plan(&m->program, m->ops, NULL, &error), &error))
        return false;
    m->state = memory(m->program.arena[SPACE_DEVICE].state_bytes);
    m->step = memory(m->program.arena[SPACE_DEVICE].step_bytes);
    m->streams = streams_create(&(struct member){mate->world, mate->rank}, 1);
    trireme_status status =
        executor_create(&m->executor, m->streams, &m->program, m->ops, KERNELS_REFERENCE, m->state, m->step, &error);
    return !teammate_failed(mate, status, &error);
}

static void release(struct made *m) {
    executor_free(m->executor);
    streams_free(m->streams);
    program_release(&m->program);
    free(m->ops);
    free(m->state);
    free(m->step);
}

static void compare_orders(struct teammate *mate) {
    // All instructions, and those of them that the compute thread runs, in order.
    static const char *const CASE[][2] = {
        {"gxw", "gxw"},     // right before what waits for it,
        {"gxgw", "ggxw"},   // not earlier,
        {"gxgxw", "ggxxw"}, // and in the order of the stream
        {"gxgv", "ggv"},    // which does not wait for this one,
        {"gxgxv", "ggxv"},  // but for the one before
        {"gxg", "gg"},      // nobody waits
        {"gxmw", "gmw"},    // it may be done while compute does what takes long,
        {"sgxugw", "gugw"}, // or waits for others
        {"gyw", "gw"},      // it does not wait for all that compute did before,
        {"gzw", "gw"},      // or for none of it
        {"gsu", "gu"},      // of ranks that may be far
    };
    for (size_t k = 0; k < ARRAY_LENGTH(CASE); k++) {
        struct made m;
        char got[MOST + 1] = "";
        if (make(&m, CASE[k][0], mate)) {
            const struct resolved_template *t = &m.executor->templates[0];
            for (size_t i = 0; i < t->of[STREAM_COMPUTE].count; i++)
                got[i] = m.letters[t->of[STREAM_COMPUTE].item[i]];
            if (strcmp(got, CASE[k][1]) != 0)
                teammate_wrong(mate, "of %s compute's thread runs %s, not %s", m.letters, got, CASE[k][1]);
        }
        release(&m);
    }
}

static void what_only_compute_would_wait_for_is_run_by_its_thread(void **unused) {
    (void)unused;
    team_run(1, 60, compare_orders, NULL);
}

// Rank 1 is late with its first instruction.
static double seconds(void *user, int template, int microbatch) {
    (void)template, (void)microbatch;
    return *(const int *)user ? 0.3 : 0;
}

// The rows of instruction i are i + 1 on rank 0, and 100 times that on rank 1.
static void run_late(struct teammate *mate) {
    struct made m;
    trireme_error error = {0};
    if (make(&m, mate->context, mate)) {
        for (size_t i = 0; i < strlen(m.letters); i++)
            for (int k = 0; k < ELEMENTS; k++)
                ((float *)executor_address(m.executor, m.rows[i].buffer, 0))[k] =
                    (float)(i + 1) * (mate->rank ? 100 : 1);
        executor_pace(m.executor, seconds, &mate->rank);
        teammate_failed(mate, executor_run(m.executor, NULL, &error), &error);
    }
    for (size_t i = 0; i < strlen(m.letters) && !mate->wrong[0]; i++)
        for (int k = 0; k < ELEMENTS; k++) {
            float got = ((const float *)executor_address(m.executor, m.rows[i].buffer, 0))[k];
            float expected = (float)(i + 1) * (strchr("xz", m.letters[i]) ? 101 : mate->rank ? 100 : 1);
            if (got != expected)
                teammate_wrong(mate, "instruction %zu of %s leaves %g, expected %g", i, m.letters, (double)got,
                               (double)expected);
        }
    release(&m);
}

static void the_order_of_the_stream_is_kept(void **unused) {
    (void)unused;
    team_run(2, 20, run_late, "gxmgxw"); // the first by the stream's thread, the other by compute's
    team_run(2, 20, run_late, "gxzw");   // the first by compute's thread, the other by the stream's
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_only_compute_would_wait_for_is_run_by_its_thread),
        cmocka_unit_test(the_order_of_the_stream_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
