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

// How long it takes to make and to sync the file of the model's weights of a checkpoint.
static struct {
    int making, milliseconds;
    atomic_bool now;
    int64_t since, last; // the steps after which the disk is slow, and that was done last
} slow;

static void sleep_for(int milliseconds) {
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

static void sleep_over(int file, int milliseconds) {
    char link[64], path[500] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (slow.now && readlink(link, path, sizeof path - 1) > 0 && text_ends(path, "/model.safetensors"))
        sleep_for(milliseconds);
}

int fdatasync(int file) {
    sleep_over(file, slow.milliseconds);
    return (int)syscall(SYS_fdatasync, file);
}

int fallocate(int file, int mode, off_t begin, off_t bytes) {
    sleep_over(file, slow.making);
    return (int)syscall(SYS_fallocate, file, mode, begin, bytes);
}

static void slow_down(void *user, const struct train_step *step) {
    (void)user;
    slow.now |= step->step == slow.since;
    slow.last = step->step;
}

static trireme_status train_on_slow_disk(const char *folder, int milliseconds, const char *const *more,
                                         trireme_error *error) {
    struct runs_watch watch = {.stepped = slow_down};
    struct train_result result = {0};
    slow.milliseconds = milliseconds;
    slow.since = SAVED;
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

// No later save is due that would wait for the one that hangs.
static void take_time(void *user, int rank, int64_t step) {
    (void)user, (void)rank, (void)step;
    if (slow.now)
        sleep_for(20);
}

static void a_disk_that_hangs_is_found_between_saves(void **state) {
    enum { INTERVAL = 150 };
    static const char *const MORE[] = {"parallelism.ranks=2", "checkpoint.timeout_seconds=1", "checkpoint.interval=150",
                                       "training.steps=1000", NULL};
    struct runs_watch watch = {.stepped = slow_down, .rank_step = take_time};
    struct train_result result = {0};
    trireme_error error = {0};
    runs_prepare(*state);
    slow.milliseconds = 4000;
    slow.since = INTERVAL;
    const trireme_status status = runs_train(*state, OVERRIDES, MORE, &watch, &result, &error);
    slow.now = false;
    assert_refused(status, TRIREME_ERROR_LOST, &error,
                   "step 150 is not saved after 1 seconds (checkpoint.timeout_seconds): ");
    assert_in_range(slow.last, INTERVAL + 1, 2 * INTERVAL - 1);
}

// Nothing is taken out of a buffer that is too small for all, for which an update waits.
static void a_disk_that_hangs_while_values_are_copied(void **state) {
    static const char *const MORE[] = {"model.hidden_size=256", "parallelism.ranks=1", "checkpoint.buffer_mib=1",
                                       "checkpoint.timeout_seconds=1", NULL};
    trireme_error error = {0};
    runs_prepare(*state);
    slow.making = 4000;
    const trireme_status status = train_on_slow_disk(*state, 0, MORE, &error);
    slow.making = 0;
    assert_refused(status, TRIREME_ERROR_LOST, &error,
                   "step 2 is not saved after 1 seconds (checkpoint.timeout_seconds): making files");
    assert_int_equal(slow.last, 2);
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
        IN_FOLDER(a_disk_that_hangs_is_found_between_saves),
        IN_FOLDER(a_disk_that_hangs_while_values_are_copied),
        IN_FOLDER(a_refused_run_closes_nothing),
    };
    return cmocka_run_group_tests_name("run_saving", tests, NULL, NULL);
}
