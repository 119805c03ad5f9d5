// Saves of whole runs on a disk that is slow, or hangs, and runs that end before there is anything to save.
#include "support/runs.h"

#include "base/text.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SAVED = 2 }; // the step after which the disk is slow

static const char *const OVERRIDES[] = {RUNS_LLAMA,
                                        "training.steps=4",
                                        "training.threads=1",
                                        "validation.freq=0",
                                        "checkpoint.interval=2",
                                        "metrics.enable_tensorboard=false",
                                        "comm.train_timeout_seconds=1",
                                        NULL};

// How long it takes to sync the model's weights of a checkpoint.
static struct {
    int milliseconds;
    atomic_bool now;
} slow;

int fdatasync(int file) {
    char link[64], path[500] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (slow.now && readlink(link, path, sizeof path - 1) > 0 && text_ends(path, "/model.safetensors"))
        nanosleep(&(struct timespec){slow.milliseconds / 1000, slow.milliseconds % 1000 * 1000000L}, NULL);
    return (int)syscall(SYS_fdatasync, file);
}

static void slow_down(void *user, const struct train_step *step) {
    (void)user;
    slow.now |= step->step == SAVED;
}

static trireme_status train_on_slow_disk(const char *folder, int milliseconds, const char *const *more,
                                         trireme_error *error) {
    struct runs_watch watch = {.stepped = slow_down};
    struct train_result result = {0};
    slow.milliseconds = milliseconds;
    const trireme_status status = runs_train(folder, OVERRIDES, more, &watch, &result, error);
    slow.now = false;
    return status;
}

// A sync takes longer than ranks wait for one another. A buffer of one block makes steps wait for it, too.
static void a_slow_disk_ends_no_run(void **state) {
    static const char *const MORE[][3] = {{"parallelism.ranks=1", NULL},
                                          {"parallelism.ranks=2", NULL},
                                          {"parallelism.ranks=2", "checkpoint.async_save=false", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(MORE); i++) {
        trireme_error error = {0};
        runs_prepare(*state);
        assert_ok(train_on_slow_disk(*state, 1600, MORE[i], &error), &error);
        assert_int_equal(folder_count(path_in(*state, "run/checkpoint")), 2);
        assert_int_equal(rename(path_in(*state, "run"), path_in(*state, i == 0 ? "a" : i == 1 ? "b" : "c")), 0);
    }
    assert_same_file(*state, "a/checkpoint/step-4", "b/checkpoint/step-4", "config.json");
}

static void a_disk_that_hangs_ends_the_run(void **state) {
    static const char *const MORE[][3] = {{"parallelism.ranks=1", "checkpoint.timeout_seconds=1", NULL},
                                          {"parallelism.ranks=2", "checkpoint.timeout_seconds=1", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(MORE); i++) {
        trireme_error error = {0};
        runs_prepare(*state);
        const trireme_status status = train_on_slow_disk(*state, 4000, MORE[i], &error);
        assert_refused(status, TRIREME_ERROR_LOST, &error,
                       "step 2 is not saved after 1 seconds (checkpoint.timeout_seconds): ");
        // Of two ranks the one speaks that is first.
        if (i == 0 || !strstr(error.message, "waiting for all ranks to have written"))
            assert_says(error.message, "syncing model.safetensors");
        assert_int_equal(rename(path_in(*state, "run"), path_in(*state, i == 0 ? "a" : "b")), 0);
    }
}

// The program that calls keeps what it has open.
static void a_refused_run_closes_nothing(void **state) {
    static const char *const MORE[] = {"parallelism.ranks=1", NULL};
    struct runs_watch watch = {0};
    struct train_result result = {0};
    trireme_error error = {0};
    runs_prepare(*state);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0);
    path_write(path_in(*state, "run"), "a file");
    assert_int_not_equal(runs_train(*state, OVERRIDES, MORE, &watch, &result, &error), TRIREME_OK);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_slow_disk_ends_no_run),
        IN_FOLDER(a_disk_that_hangs_ends_the_run),
        IN_FOLDER(a_refused_run_closes_nothing),
    };
    return cmocka_run_group_tests_name("run_saving", tests, NULL, NULL);
}
