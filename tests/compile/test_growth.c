// The time to make and prove a program grows in proportion to the program.
#include "compile/stages.h"
#include "measure/synthetic.h"
#include "memory/lifetime.h"
#include "parallel/embedding_rows.h"
#include "support/models.h"
#include "support/sanitized.h"
#include "support/streams.h"
#include "verify/verify.h"

#include <math.h>
#include <time.h>

#define TINY                                                                                                 \
    "model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=8", "model.num_attention_heads=2", \
        "model.vocab_size=64", "training.micro_batch_size=1", "training.threads=1", "training.logits_rows=1"

struct fixture {
    struct config config;
    struct stages stages;
};

static void compile(struct fixture *f, const char *const *settings, size_t count) {
    struct model_config model;
    trireme_error error = {0};
    assert_ok(config_load(&f->config, NULL, settings, count, &error), &error);
    assert_ok(synthetic_model(&model, &f->config, &error), &error);
    assert_ok(stages_create(&f->stages, &f->config, &model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    assert_ok(stages_compile(&f->stages, EVERY_STAGE, &error), &error);
}

static void release(struct fixture *f) {
    stages_release(&f->stages);
    config_release(&f->config);
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The least of several times to make and prove the training programs of all stages.
static double seconds_to_prove(const char *const *keys, size_t count, int pieces) {
    const char *settings[16];
    char rows[48];
    struct fixture f;
    trireme_error error = {0};
    assert_true(count < ARRAY_LENGTH(settings));
    memcpy(settings, keys, count * sizeof *keys);
    snprintf(rows, sizeof rows, "training.seq_len=%d", pieces);
    settings[count] = rows;
    compile(&f, settings, count + 1);
    double least = INFINITY;
    for (int i = 0; i < 3; i++) {
        double begin = cpu_seconds();
        for (int stage = 0; stage < f.stages.count; stage++)
            assert_ok(program_verify(stages_program(&f.stages, stage, PROGRAM_TRAIN), f.stages.options.ops, &error),
                      &error);
        least = MIN(least, cpu_seconds() - begin);
    }
    release(&f);
    return least;
}

// With eight times as many pieces: quadratic growth would take sixty-four times as long.
static void assert_grows_with(const char *const *keys, size_t count, int pieces) {
    double few = seconds_to_prove(keys, count, pieces), many = seconds_to_prove(keys, count, 8 * pieces);
    printf("%d pieces of logits: %.1f ms, %d: %.1f ms\n", pieces, 1e3 * few, 8 * pieces, 1e3 * many);
    assert_true(many < 8 * 4 * few); // whose tables also lie in caches
}

static void pieces_of_logits_are_proved_one_by_one(void **state) {
    (void)state;
    static const char *const TENSOR[] = {TINY, "training.global_batch_size=1", "parallelism.tensor_parallel_degree=2"};
    static const char *const SPREAD[] = {TINY, "training.global_batch_size=2", "parallelism.pipeline_parallel_degree=2",
                                         "parallelism.vocabulary_parallel=true"};
    assert_grows_with(TENSOR, ARRAY_LENGTH(TENSOR), SANITIZED ? 128 : 512);
    assert_grows_with(SPREAD, ARRAY_LENGTH(SPREAD), SANITIZED ? 64 : 128);
}

// Of a stream, all of whose instructions compute waits for at the end.
static double seconds_to_await(int count) {
    struct template t = {0};
    double least = INFINITY;
    for (int i = 0; i < count; i++)
        VEC_PUSH(&t.instructions, (struct instruction){.stream = STREAM_LOSS});
    struct instruction last = {.stream = STREAM_COMPUTE};
    last.wait[STREAM_LOSS] = 1;
    VEC_PUSH(&t.instructions, last);
    for (int i = 0; i < 3; i++) {
        double begin = cpu_seconds();
        int *awaited = lifetime_awaited(&t);
        least = MIN(least, cpu_seconds() - begin);
        assert_true(awaited[0] == count && awaited[count - 1] == count && awaited[count] == count);
        free(awaited);
    }
    VEC_RELEASE(&t.instructions);
    return least;
}

static void a_long_wait_is_found_at_once(void **state) {
    (void)state;
    double few = seconds_to_await(2000), many = seconds_to_await(16000);
    printf("2000 instructions: %.2f ms, 16000: %.2f ms\n", 1e3 * few, 1e3 * many);
    assert_true(many < 8 * 4 * few); // which also have to be fetched from memory
}

// Of one table, behind so many other instructions with buffers of their own.
static double seconds_to_gather_rows(int count) {
    double least = INFINITY;
    for (int i = 0; i < 3; i++) {
        struct program p;
        program_init(&p, "rows", 1);
        p.mesh.degree[AXIS_DP] = 2;
        const int t = program_template(&p, "backward", PHASE_BACKWARD, 0);
        for (int k = 0; k < count; k++) {
            const struct operand zero = operand_whole(
                &p, program_buffer(&p, "zero", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 1, (const int64_t[]){1}));
            program_emit(&p, t, OP_ZERO, PHASE_BACKWARD, NONE, 0, NULL, 1, &zero, NULL);
        }
        const int ids = program_buffer(&p, "ids", DTYPE_I32, KIND_INPUT, SCOPE_STEP, 1, (const int64_t[]){4});
        const int dy = program_buffer(&p, "dy", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 2, (const int64_t[]){4, 8});
        const int dw = program_buffer(&p, "dw", DTYPE_F32, KIND_GRAD, SCOPE_STATE, 2, (const int64_t[]){64, 8});
        const struct operand in[] = {operand_whole(&p, ids), operand_whole(&p, dy), operand_none()},
                             out = operand_whole(&p, dw);
        program_emit(&p, t, OP_EMBED_DW, PHASE_WEIGHT, NONE, 3, in, 1, &out, NULL);
        bool *tables = mem_alloc(p.buffers.count * sizeof *tables);
        tables[dw] = true;
        double begin = cpu_seconds();
        bool *all = rows_gather(&p, &t, 1, AXES(AXIS_DP), tables, true);
        least = MIN(least, cpu_seconds() - begin);
        assert_int_equal(p.templates.item[t].instructions.count, count + 3); // two are gathered
        free(all);
        free(tables);
        program_release(&p);
    }
    return least;
}

static void rows_are_gathered_at_once(void **state) {
    (void)state;
    double few = seconds_to_gather_rows(2000), many = seconds_to_gather_rows(16000);
    printf("behind 2000 instructions: %.2f ms, 16000: %.2f ms\n", 1e3 * few, 1e3 * many);
    assert_true(many < 8 * 4 * few);
}

// Each rank has a table of a row for every pass of the step.
static void waits_are_counted_for_streams_that_there_are(void **state) {
    (void)state;
    static const char *const PLAIN[] = {TINY, "training.global_batch_size=4", "training.seq_len=4",
                                        "parallelism.pipeline_parallel_degree=2"};
    static const char *const SPREAD[] = {TINY, "training.global_batch_size=4", "training.seq_len=4",
                                         "parallelism.pipeline_parallel_degree=2",
                                         "parallelism.vocabulary_parallel=true"};
    for (int spread = 0; spread < 2; spread++) {
        struct fixture f;
        struct slot_waits waits;
        compile(&f, spread ? SPREAD : PLAIN, spread ? ARRAY_LENGTH(SPREAD) : ARRAY_LENGTH(PLAIN));
        const struct program *p = stages_program(&f.stages, 0, PROGRAM_TRAIN);
        slot_waits_create(&waits, p);
        assert_true(waits.columns <= (spread ? 9 : 5));
        assert_int_equal(waits.own != NULL, spread);
        int64_t all = 0;
        for (int s = 0; s < (int)p->streams.count; s++)
            all += slot_waits_before(&waits, p->schedule.count, s);
        assert_true(all == program_length(p));
        slot_waits_release(&waits);
        release(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_logits_are_proved_one_by_one),
        cmocka_unit_test(a_long_wait_is_found_at_once),
        cmocka_unit_test(rows_are_gathered_at_once),
        cmocka_unit_test(waits_are_counted_for_streams_that_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
