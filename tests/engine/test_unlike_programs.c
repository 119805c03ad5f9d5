// A rank that makes another program than rank 0 makes for it is named before any program runs. Runs under an MPI
// launcher (comm/test_mpi_collectives.py), where each rank is a process (TEAM_PROCESSES); TEAM_ODD is the rank with
// another program, -1: none.
#include "support/runs.h"
#include "support/team.h"

#include "base/base.h"
#include "engine/engine.h"

static int odd;

static trireme_status create(void *user, const struct member *member, trireme_error *error) {
    (void)user;
    const char *settings[] = {RUNS_LLAMA, "parallelism.pipeline_parallel_degree=2",
                              "parallelism.data_parallel_replicate_degree=2", "training.threads=1",
                              member->rank == odd ? "activation_checkpoint.mode=full"
                                                  : "activation_checkpoint.mode=none"};
    struct config config;
    struct model_config model;
    struct engine engine;
    TRY(config_load(&config, NULL, settings, ARRAY_LENGTH(settings), error));
    TRY(model_config_resolve(&model, &config, 50, error));
    trireme_status status = engine_create(&engine, &config, &model, NULL, TRAIN_AND_EVALUATE, member, error);
    if (status == TRIREME_OK)
        engine_release(&engine);
    config_release(&config);
    return status;
}

static void an_odd_program_is_named(void **state) {
    (void)state;
    char words[64];
    trireme_error error = {0};
    trireme_status status = team_ranks_run(team_processes(), 30, create, NULL, &error);
    if (odd < 0) {
        assert_ok(status, &error);
        return;
    }
    snprintf(words, sizeof words, "the ranks disagree: rank %d on ", odd);
    assert_int_equal(status, TRIREME_ERROR_USAGE);
    if (error_is_reported_here(&error)) {
        assert_non_null(strstr(error.message, words));
        assert_non_null(strstr(error.message, "another program of the training step"));
        printf("told\n");
    }
}

int main(void) {
    if (!team_processes())
        return 77;
    odd = getenv("TEAM_ODD") ? atoi(getenv("TEAM_ODD")) : -1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_odd_program_is_named)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
