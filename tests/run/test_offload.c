// Optimizer states in a file: training gives the bits that it gives with all states in memory, on every kind of mesh,
// in less memory; and what is refused or fails.
#include "measure/synthetic.h"
#include "sim/simulate.h"
#include "support/checkpoint.h"
#include "support/small_model.h"
#include "support/team.h"
#include "support/test.h"

#include <signal.h>
#include <sys/resource.h>

enum { STEPS = 3, RANKS = 4, OVERRIDES = 32 };

// What each rank has after some steps: losses, and all values that checkpoints have.
struct kept {
    VEC(char) bytes[RANKS];
    int64_t device, file; // bytes of rank 0's arenas
};

struct offload_job {
    struct config config;
    struct model_config model;
    struct kept *kept;
};

static void keep(struct kept *kept, int rank, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        VEC_PUSH(&kept->bytes[rank], ((const char *)data)[i]);
}

static trireme_status train_steps(void *user, const struct member *member, trireme_error *error) {
    struct offload_job *job = user;
    struct engine e;
    const int rank = member ? member->rank : 0;
    TRY(engine_create(&e, &job->config, &job->model, NULL, TRAIN_AND_EVALUATE, member, error));
    engine_initialise(&e, 3, NULL);
    trireme_status status = TRIREME_OK;
    for (int s = 0; s < STEPS && status == TRIREME_OK; s++) {
        struct engine_result result;
        synthetic_fill(&e, engine_find(&e, PROGRAM_TRAIN), (uint64_t)s);
        status = engine_step(&e, 1e-2, NULL, &result, error);
        keep(job->kept, rank, &result.loss, sizeof result.loss);
    }
    for (int what = 0; what < ENGINE_VALUES && status == TRIREME_OK; what++)
        for (size_t i = 0; i < e.local.parameters.count && what != ENGINE_GRADIENTS; i++) {
            const struct engine_part part = engine_part(&e, (enum engine_values)what, i);
            if (part.begin < part.end)
                keep(job->kept, rank, part.data, (size_t)((part.end - part.begin) * dtype_size(part.dtype)));
        }
    if (rank == 0) {
        job->kept->device = (int64_t)engine_bytes(&e);
        job->kept->file = stage_state_bytes(e.stage, SPACE_FILE);
    }
    engine_release(&e);
    return status;
}

static trireme_status train(struct kept *kept, int ranks, const char *const *overrides, bool offload,
                            trireme_error *error) {
    const char *all[OVERRIDES];
    size_t count = 0;
    for (; overrides[count]; count++)
        all[count] = overrides[count];
    if (offload)
        all[count++] = "optimizer.offload=file";
    *kept = (struct kept){0};
    struct offload_job job = {.kept = kept};
    assert_ok(config_load(&job.config, NULL, all, count, error), error);
    assert_ok(model_config_resolve(&job.model, &job.config, job.config.model.vocab_size, error), error);
    trireme_status status =
        ranks > 1 ? team_ranks_run(ranks, 60, train_steps, &job, error) : train_steps(&job, NULL, error);
    config_release(&job.config);
    return status;
}

static void kept_release(struct kept *kept) {
    for (int r = 0; r < RANKS; r++)
        VEC_RELEASE(&kept->bytes[r]);
}

static void same_bits(int ranks, const char *const *overrides) {
    struct kept in_memory, in_file;
    trireme_error error = {0};
    assert_ok(train(&in_memory, ranks, overrides, false, &error), &error);
    assert_ok(train(&in_file, ranks, overrides, true, &error), &error);
    assert_int_equal(in_memory.file, 0);
    assert_true(in_file.file > 0);
    for (int r = 0; r < ranks; r++) {
        assert_true(in_file.bytes[r].count > 1000);
        assert_int_equal(in_file.bytes[r].count, in_memory.bytes[r].count);
        assert_memory_equal(in_file.bytes[r].item, in_memory.bytes[r].item, in_file.bytes[r].count);
    }
    kept_release(&in_memory);
    kept_release(&in_file);
}

static void one_rank(void **unused) {
    (void)unused;
    same_bits(1, (const char *const[]){SMALL_LLAMA, NULL});
    same_bits(1, (const char *const[]){SMALL_GPT2, "optimizer.name=lion", NULL});
    same_bits(1, (const char *const[]){SMALL_BATCH, SMALL_LLAMA_MODEL, "training.dtype=f32", NULL});
    same_bits(1, (const char *const[]){SMALL_BATCH, SMALL_GPT2_MODEL, "training.dtype=bf16", NULL});
}

static void ranks_that_share_states(void **unused) {
    (void)unused;
    same_bits(4, (const char *const[]){SMALL_BATCH, SMALL_EXACT, SMALL_LLAMA_MODEL,
                                       "parallelism.data_parallel_shard_degree=2",
                                       "parallelism.tensor_parallel_degree=2", "parallelism.zero_stage=1", NULL});
    same_bits(2, (const char *const[]){SMALL_LLAMA, "parallelism.data_parallel_shard_degree=2",
                                       "parallelism.zero_stage=2", NULL});
    same_bits(2, (const char *const[]){SMALL_LLAMA, "parallelism.data_parallel_shard_degree=2",
                                       "parallelism.zero_stage=3", NULL});
    same_bits(2, (const char *const[]){SMALL_LLAMA, "parallelism.pipeline_parallel_degree=2", NULL});
    same_bits(4, (const char *const[]){SMALL_LLAMA, "parallelism.data_parallel_replicate_degree=2",
                                       "parallelism.context_parallel_degree=2", NULL});
}

// A model whose states outweigh its activations.
#define DEEP                                                                                               \
    SMALL_BATCH, SMALL_EXACT, "model.family=llama", "model.hidden_size=64", "model.num_attention_heads=4", \
        "model.intermediate_size=128", "model.vocab_size=64", "model.num_hidden_layers=16"

static void less_memory(void **unused) {
    (void)unused;
    struct kept in_memory, in_file;
    trireme_error error = {0};
    const char *const overrides[] = {DEEP, NULL};
    assert_ok(train(&in_memory, 1, overrides, false, &error), &error);
    assert_ok(train(&in_file, 1, overrides, true, &error), &error);
    // Most of the states are gone from memory; those of a few units are in it at a time.
    assert_true(in_memory.device - in_file.device > in_file.file / 2);
    kept_release(&in_memory);
    kept_release(&in_file);
}

static void no_room_for_the_file(void **unused) {
    (void)unused;
    struct kept kept;
    trireme_error error = {0};
    const char *const missing[] = {SMALL_LLAMA, "optimizer.offload_directory=/nowhere/at/all", NULL};
    assert_int_equal(train(&kept, 1, missing, true, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all takes no file for"));
    kept_release(&kept);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {1024, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const char *const plain[] = {SMALL_LLAMA, NULL};
    const trireme_status status = train(&kept, 1, plain, true, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "has no room for"));
    kept_release(&kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(ranks_that_share_states),
        cmocka_unit_test(less_memory),
        cmocka_unit_test(no_room_for_the_file),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
