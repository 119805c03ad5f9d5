// Communication that is skipped: by all ranks that would wait for one another, or by none of them.
#include "exec/executor.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/streams.h"
#include "support/team.h"
#include "support/test.h"
#include "verify/verify.h"

static trireme_status read_program(struct program *p, const struct op_table *ops, const char *mesh, const char *body,
                                   trireme_error *error) {
    struct text text = {0};
    text_add(&text, "program skipped microbatches 1\nmesh %s\narena state 0 fixed 0 scratch 0+0 step 0\n", mesh);
    text_add(&text, TEST_STREAMS "pool 0 chunk 0 at 0: 0\n%sinvoke 0 microbatch 0 first last\n", body);
    trireme_status status = program_parse(p, ops, text.text, text.length, error);
    text_release(&text);
    return status;
}

static void refuse(const char *mesh, const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    if (read_program(&p, ops, mesh, body, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    assert_program_refused(&p, ops, what, name);
    free(ops);
}

// x are terms of a sum over the ranks. Whether it is made depends on what the ranks agree upon; else y is a.
#define BUFFERS                                            \
    "buffer %0 f32 input step [8] place tp sum \"x\"\n"    \
    "buffer %1 f32 input step [8] \"a\"\n"                 \
    "buffer %2 i32 input step [1] place tp max \"want\"\n" \
    "buffer %3 i32 act local [1] \"agreed\"\n"             \
    "buffer %4 f32 act local [8] \"sum\"\n"                \
    "buffer %5 f32 output step [1,8] \"y\"\n"              \
    "buffer %6 i32 input step [1] place tp 0 \"own\"\n"    \
    "template 0 forward \"t\"\n"
#define AGREE "  %3[1] = all_reduce %2[1] max 1 wire 0 phase forward stream tensor group tp\n"
#define SUM(predicate) "  %4[8] = all_reduce %0[8] max 0 wire 0 phase forward stream tensor group tp if " predicate "\n"
#define RESULT(condition) "  %5[1,8] = add %1[1,8] %4[1,8] phase forward" condition " wait tensor\n"

static void what_ranks_agree_upon(void **unused) {
    (void)unused;
    refuse("tp 2", BUFFERS AGREE SUM("%3") RESULT(""), "reads sum, which is made only if agreed is not 0", "add");
    refuse("tp 2", BUFFERS AGREE SUM("%2") RESULT(" if %2 else a"), "is not the same on all ranks along tp", "want");
    refuse("tp 2", BUFFERS AGREE SUM("%6") RESULT(" if %6 else a"), "is not the same on all ranks along tp", "own");
    // where it is skipped, what is in place is no sum
    refuse("tp 2",
           BUFFERS AGREE "  %4[1,8] = add %0[1,8] %0[1,8] phase forward\n"
                         "  %4[8] = all_reduce %4[8] max 0 wire 0 phase forward stream tensor group tp if %3 wait "
                         "compute\n" RESULT(""),
           "reads sum, which is made only if agreed is not 0", "add");
    // where it is not skipped, y is terms of a sum
    refuse("tp 2", BUFFERS AGREE "  %5[1,8] = gelu_dx %1[1,8] %0[1,8] tanh 0 phase backward if %3 else x wait tensor\n",
           "where it is skipped, y is placed differently along tp", "gelu_dx");
}

// Each stage has a program, and so a predicate, of its own.
#define STAGES                                         \
    "buffer %0 f32 act slot [16] \"x\"\n"              \
    "buffer %1 i32 input microbatch [1] \"skip\"\n"    \
    "buffer %2 i32 input microbatch [1] \"other\"\n"   \
    "buffer %3 f32 input microbatch [4,4] \"given\"\n" \
    "buffer %4 i32 act slot [1] \"found\"\n"           \
    "template 0 forward \"t\"\n"
#define SEND(predicate)                               \
    "  %0[4,4] = gelu %3[4,4] tanh 0 phase forward\n" \
    "  = send %0[16] phase forward stream to_next group pp peer 1 if " predicate " wait compute\n"
#define RECEIVE(predicate) "  %0[16] = receive phase forward stream from_previous group pp peer 1 if " predicate "\n"

static trireme_status verify_stages_of(const char *first, const char *second, trireme_error *error) {
    struct op_table *ops = op_table_create();
    struct program of[2];
    const char *const bodies[2] = {first, second};
    trireme_status status = TRIREME_OK;
    for (int stage = 0; stage < 2; stage++) {
        if (read_program(&of[stage], ops, "pp 2", bodies[stage], error) != TRIREME_OK)
            fail_msg("%s", error->message);
        assert_int_equal(program_plan(&of[stage], ops, NULL, error), TRIREME_OK);
    }
    status = programs_verify((const struct program *const[]){&of[0], &of[1]}, 2, ops, error);
    program_release(&of[0]);
    program_release(&of[1]);
    free(ops);
    return status;
}

static void messages_between_stages(void **unused) {
    (void)unused;
    trireme_error error = {0};
    if (verify_stages_of(STAGES SEND("%1"), STAGES RECEIVE("%1"), &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    assert_words(verify_stages_of(STAGES SEND("%1"), STAGES RECEIVE("%2"), &error), &error,
                 "which another predicate skips", "receive");
    assert_words(
        verify_stages_of(STAGES "  %4[1] = fan_out %1[1] phase forward\n" SEND("%4"), STAGES RECEIVE("%1"), &error),
        &error, "is not exchanged between the stages", "found");
}

// ---- running

static void *memory(int64_t bytes) {
    size_t rounded = round_up((size_t)MAX(bytes, 1), BUFFER_ALIGNMENT);
    return memset(aligned_alloc(BUFFER_ALIGNMENT, rounded), 0, rounded);
}

// Only rank `mate->context` wants the sum; where none does, y is a.
static void run_one(struct teammate *mate) {
    const int wants = *(const int *)mate->context;
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    if (teammate_failed(
            mate, read_program(&p, ops, "tp 2", BUFFERS AGREE SUM("%3 wait tensor") RESULT(" if %3 else a"), &error),
            &error))
        return;
    struct streams *streams = streams_create(&(struct member){mate->world, mate->rank}, 1);
    struct executor *executor = NULL;
    trireme_status status = program_plan(&p, ops, NULL, &error);
    if (status == TRIREME_OK)
        status = program_verify(&p, ops, &error);
    void *state = memory(p.arena[SPACE_DEVICE].state_bytes), *step = memory(p.arena[SPACE_DEVICE].step_bytes);
    if (status == TRIREME_OK)
        status = executor_create(&executor, streams, &p, ops, KERNELS_REFERENCE, state, step, &error);
    if (!teammate_failed(mate, status, &error)) {
        for (int k = 0; k < 8; k++) {
            ((float *)executor_address(executor, 0, 0))[k] = (float)(k + 10 * mate->rank);
            ((float *)executor_address(executor, 1, 0))[k] = (float)(100 * k);
        }
        *(int32_t *)executor_address(executor, 2, 0) = mate->rank == wants;
        *(int32_t *)executor_address(executor, 6, 0) = 0;
        teammate_failed(mate, executor_run(executor, NULL, &error), &error);
        for (int k = 0; k < 8; k++) {
            float got = ((const float *)executor_address(executor, 5, 0))[k];
            float expected = (float)(100 * k) + (wants >= 0 ? (float)(2 * k + 10) : 0);
            if (got != expected)
                teammate_wrong(mate, "y[%d] is %g, expected %g", k, (double)got, (double)expected);
        }
        executor_free(executor);
    }
    streams_free(streams);
    program_release(&p);
    free(ops);
    free(state);
    free(step);
}

static void all_ranks_skip_or_none(void **unused) {
    (void)unused;
    for (int wants = -1; wants < 2; wants++)
        team_run(2, 20, run_one, &wants);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ranks_agree_upon),
        cmocka_unit_test(messages_between_stages),
        cmocka_unit_test(all_ranks_skip_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
