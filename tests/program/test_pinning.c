// Threads of kernels keep to cores of their own while a program runs, and only then.
#include "support/small_model.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/test.h"

// As on a machine that may have 2,048 CPUs: its kernel refuses sets without room for all.
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

// Called on the thread that leads the kernels', in place of each template's.
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
    executor_pace(small.engine.train_executor, look, &most);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(executor_run(small.engine.train_executor, NULL, &error), TRIREME_OK);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_keep_to_their_cores_where_there_are_as_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
