// Kernel threads keep to cores of their own while a program runs, and only then.
#include "support/models.h"
#include "support/small_model.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/ranks.h"
#include "support/test.h"

// Acts like a machine that may have 2,048 CPUs: its kernel refuses sets without room for all of them.
__attribute__((visibility("default"))) int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    if (8 * bytes < 2048) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(bytes, set);
    return syscall(SYS_sched_getaffinity, pid, bytes, set) < 0 ? -1 : 0;
}

static int cores_now(void) {
    cpu_set_t set[8];
    assert_int_equal(sched_getaffinity(0, sizeof set, set), 0);
    return CPU_COUNT_S(sizeof set, set);
}

// A kernel that is called on the thread that leads the kernel threads, in place of each template's.
static double look(void *user, int template, int microbatch) {
    (void)template, (void)microbatch;
    int *most = user;
    *most = MAX(*most, cores_now());
    return 1e-6;
}

static int cores_in_run(const char *threads, const char *pins) {
    struct small_model small;
    small_model_create(&small,
                       (const char *const[]){"training.seq_len=8", "training.global_batch_size=2", SMALL_GPT2_MODEL,
                                             threads, pins, NULL},
                       true);
    int most = 0, before = cores_now();
    trireme_error error = {0};
    executor_pace(engine_executor(&small.engine, PROGRAM_TRAIN), look, &most);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(executor_run(engine_executor(&small.engine, PROGRAM_TRAIN), NULL, &error), TRIREME_OK);
        assert_int_equal(cores_now(), before);
    }
    small_model_release(&small);
    return most;
}

static void threads_keep_to_their_cores_where_there_are_as_many(void **state) {
    (void)state;
    int cores = cores_now();
    assert_int_equal(cores_in_run("training.threads=0", "training.pin_threads=true"), 1);
    assert_int_equal(cores_in_run("training.threads=0", "training.pin_threads=false"), cores);
    char more[32];
    snprintf(more, sizeof more, "training.threads=%d", cores + 1);
    assert_int_equal(cores_in_run(more, "training.pin_threads=true"), cores);
}

struct ranks {
    struct config config;
    struct model_config model;
    int processor[CPU_SETSIZE]; // that each rank's thread ran on alone
};

static double look_where(void *user, int template, int microbatch) {
    (void)template, (void)microbatch;
    if (cores_now() == 1)
        *(int *)user = sched_getcpu();
    return 1e-6;
}

static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    struct ranks *r = user;
    struct engine e;
    TRY(engine_create(&e, &r->config, &r->model, NULL, TRAIN_AND_EVALUATE, member, error));
    executor_pace(engine_executor(&e, PROGRAM_TRAIN), look_where, &r->processor[member->rank]);
    trireme_status status = executor_run(engine_executor(&e, PROGRAM_TRAIN), NULL, error);
    engine_release(&e);
    return status;
}

static void ranks_have_cores_of_their_own(void **state) {
    (void)state;
    const int ranks = MIN(cores_now(), CPU_SETSIZE);
    char batch[48], degree[64];
    snprintf(batch, sizeof batch, "training.global_batch_size=%d", ranks);
    snprintf(degree, sizeof degree, "parallelism.data_parallel_replicate_degree=%d", ranks);
    const char *const SETTINGS[] = {
        SMALL_GPT2_MODEL, "training.seq_len=8", "training.micro_batch_size=1", "training.threads=1", batch, degree};
    struct ranks r;
    trireme_error error = {0};
    assert_ok(config_load(&r.config, NULL, SETTINGS, ARRAY_LENGTH(SETTINGS), &error), &error);
    assert_ok(synthetic_model(&r.model, &r.config, &error), &error);
    memset(r.processor, -1, sizeof r.processor);
    assert_ok(ranks_run(ranks, 60, run_rank, &r, &error), &error);
    for (int i = 0; i < ranks; i++) {
        assert_true(r.processor[i] >= 0);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(r.processor[i], r.processor[k]);
    }
    config_release(&r.config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_keep_to_their_cores_where_there_are_as_many),
        cmocka_unit_test(ranks_have_cores_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
