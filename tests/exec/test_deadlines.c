// A rank that still has work to do does not wait for anybody: messages that it needs only later are not late yet.
#include "launch/ranks.h"
#include "support/models.h"
#include "support/small_model.h"

enum { MICROBATCHES = 8, STEPS = 2 };
static const double PASS = 0.2, DEADLINE = 1, START = 30;

struct pipeline {
    struct config config;
    struct model_config model;
};

static double seconds(void *user, int template, int microbatch) {
    (void)user;
    (void)template;
    return microbatch == NONE ? 0 : PASS;
}

static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    const struct pipeline *p = user;
    struct engine e;
    struct communicator *both = NULL;
    TRY(engine_create(&e, &p->config, &p->model, NULL, TRAIN_AND_EVALUATE, member, error));
    executor_pace(engine_executor(&e, PROGRAM_TRAIN), seconds, NULL);
    trireme_status status = ranks_control(&both, member, 2, error);
    world_deadline(member->world, DEADLINE);
    for (int step = 0; step < STEPS && status == TRIREME_OK; step++)
        status = executor_run(engine_executor(&e, PROGRAM_TRAIN), NULL, error);
    communicator_free(both);
    engine_release(&e);
    return status;
}

// The first gradient comes when both ranks have done all forward passes, after nine passes and one backward.
static void messages_are_late_only_where_a_rank_has_nothing_else_to_do(void **state) {
    (void)state;
    static const char *const SETTINGS[] = {SMALL_GPT2_MODEL,
                                           "training.seq_len=8",
                                           "training.global_batch_size=8",
                                           "training.micro_batch_size=1",
                                           "training.threads=1",
                                           "parallelism.pipeline_parallel_degree=2",
                                           "parallelism.pipeline_parallel_schedule=gpipe"};
    assert_true(MICROBATCHES * PASS > 1.5 * DEADLINE && 2 * PASS < DEADLINE);
    struct pipeline p;
    trireme_error error = {0};
    assert_ok(config_load(&p.config, NULL, SETTINGS, ARRAY_LENGTH(SETTINGS), &error), &error);
    assert_ok(synthetic_model(&p.model, &p.config, &error), &error);
    assert_ok(ranks_run(2, START, run_rank, &p, &error), &error);
    config_release(&p.config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_late_only_where_a_rank_has_nothing_else_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
