// A run's directory that several processes want at once.
#include "support/checkpoint.h"

#include "base/clock.h"
#include "run/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 300 };

struct round {
    const char *path;
    pthread_barrier_t start;
    int held, left;
};

// Takes the directory for a run that does not begin.
static void *take(void *user) {
    struct round *round = user;
    for (int i = 0; i < ROUNDS; i++) {
        struct run_directory run;
        trireme_error error;
        pthread_barrier_wait(&round->start);
        if (run_directory_open(&run, round->path, &error) == TRIREME_OK)
            __atomic_add_fetch(&round->held, 1, __ATOMIC_RELAXED);
        run_directory_close(&run);
        pthread_barrier_wait(&round->start);
        if (path_exists(round->path))
            __atomic_add_fetch(&round->left, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void runs_that_do_not_begin_leave_no_directory(void **state) {
    struct round round = {.path = path_in(*state, "runs/one/")};
    pthread_t thread[THREADS];
    pthread_barrier_init(&round.start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take, &round), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&round.start);
    assert_int_equal(round.left, 0);
    assert_true(round.held >= ROUNDS);
    assert_int_equal(folder_count(path_in(*state, "runs")), 0);
}

struct look {
    const char *path;
    bool ends;
};

static void *look(void *user) {
    const struct look *look = user;
    while (!__atomic_load_n(&look->ends, __ATOMIC_RELAXED))
        run_directory_is_busy(look->path);
    return NULL;
}

static void looking_keeps_no_run_from_its_directory(void **state) {
    struct look looks = {.path = path_in(*state, "run")};
    pthread_t thread;
    trireme_error error;
    assert_ok(directory_create(looks.path, &error), &error);
    path_write(path_in(looks.path, "config.yaml"), "");
    path_write(path_in(looks.path, "lock"), "");
    assert_int_equal(pthread_create(&thread, NULL, look, &looks), 0);
    for (int i = 0; i < 100 * ROUNDS; i++) {
        struct run_directory run;
        assert_ok(run_directory_open(&run, looks.path, &error), &error);
        run_directory_close(&run);
    }
    __atomic_store_n(&looks.ends, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

static bool no_directory_is_synced, notes_synced;
static struct stat synced[16];

static bool was_synced(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(synced); i++)
        if (synced[i].st_ino == st.st_ino && synced[i].st_dev == st.st_dev)
            return true;
    return false;
}

// Of those that examine a directory or a file in it, by its descriptor, the call that fails; 0: none.
static int fails_at, examined;

int fstat(int file, struct stat *out) {
    if (fails_at && ++examined == fails_at) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_newfstatat, file, "", out, AT_EMPTY_PATH);
}

int fsync(int file) {
    struct stat st;
    for (size_t i = 0; notes_synced && i < ARRAY_LENGTH(synced); i++)
        if (!synced[i].st_ino) {
            assert_int_equal(fstat(file, &synced[i]), 0);
            break;
        }
    if (!no_directory_is_synced || fstat(file, &st) != 0 || !S_ISDIR(st.st_mode))
        return (int)syscall(SYS_fsync, file);
    errno = EIO;
    return -1;
}

static void a_run_that_failed_as_it_began_may_begin_again(void **state) {
    const char *path = path_in(*state, "run");
    struct run_directory run;
    struct config config;
    trireme_error error;
    assert_ok(config_load(&config, NULL, NULL, 0, &error), &error);
    for (int i = 0; i < 2; i++) {
        assert_ok(run_directory_open(&run, path, &error), &error);
        no_directory_is_synced = i == 0;
        trireme_status status = run_directory_begin(&run, &config, 0, &error);
        no_directory_is_synced = false;
        if (i == 0)
            assert_refused(status, TRIREME_ERROR_IO, &error, "cannot sync");
        else
            assert_ok(status, &error);
        run_directory_close(&run);
    }
    config_release(&config);
}

static void what_keeps_a_directory_from_being_opened_is_said(void **state) {
    const char *path = path_in(*state, "run");
    struct run_directory run;
    struct rlimit limit, none;
    trireme_error error;
    assert_ok(directory_create(path, &error), &error);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    trireme_status status = run_directory_open(&run, path, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_refused(status, TRIREME_ERROR_IO, &error, strerror(EMFILE));
}

// What a process holds goes some time after it was killed.
static void a_lock_whose_holder_ends_soon_is_waited_for(void **state) {
    const char *path = path_in(*state, "run");
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t holder = fork();
    if (holder == 0) {
        struct run_directory run;
        struct config config;
        trireme_error error;
        if (run_directory_open(&run, path, &error) == TRIREME_OK &&
            config_load(&config, NULL, NULL, 0, &error) == TRIREME_OK &&
            run_directory_begin(&run, &config, 0, &error) == TRIREME_OK && write(ready[1], "", 1) == 1)
            usleep(700000);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct run_directory run;
    trireme_error error;
    assert_ok(run_directory_open(&run, path, &error), &error);
    // One that stays is not waited for as long.
    struct run_directory other;
    const int64_t began = clock_now();
    assert_refused(run_directory_open(&other, path, &error), TRIREME_ERROR_BUSY, &error, "in use by another run");
    const double waited = 1e-9 * (double)(clock_now() - began);
    assert_true(waited >= RUN_DIRECTORY_PATIENCE && waited < RUN_DIRECTORY_PATIENCE + 20);
    run_directory_close(&run);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    close(ready[0]);
    close(ready[1]);
}

// A process that is killed while it makes the directory leaves one of another name.
static void what_was_left_of_a_directory_being_made_is_removed(void **state) {
    const char *const left[] = {"run.tmp-1234567", "run.tmp-1234568"}, *const stays[] = {"run.tmp-x",   "run.tmp-",
                                                                                         "run.tmp-12x", "other.tmp-12",
                                                                                         "run.tmp-77",  "run.tmp-78"};
    trireme_error error;
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        assert_ok(directory_create(path_in(*state, left[i]), &error), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(stays); i++)
        assert_ok(directory_create(path_in(*state, stays[i]), &error), &error);
    path_write(path_in(*state, "run.tmp-1234567/lock"), "");
    path_write(path_in(*state, "run.tmp-77/note"), "a user's");
    path_write(path_in(*state, "run.tmp-78/lock"), "");
    const int held = open(path_in(*state, "run.tmp-78/lock"), O_RDWR);
    assert_true(file_lock(held)); // by a process that is making its directory
    struct run_directory run;
    assert_ok(run_directory_open(&run, path_in(*state, "run"), &error), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        assert_false(path_exists(path_in(*state, left[i])));
    for (size_t i = 0; i < ARRAY_LENGTH(stays); i++)
        assert_true(path_exists(path_in(*state, stays[i])));
    run_directory_close(&run);
    close(held);
}

static void directories_above_reach_the_disk(void **state) {
    const char *path = path_in(*state, "runs/of/mine");
    struct run_directory run;
    trireme_error error;
    memset(synced, 0, sizeof synced);
    notes_synced = true;
    assert_ok(run_directory_open(&run, path, &error), &error);
    char *checkpoints = mem_printf("%s/checkpoint", path);
    assert_ok(directory_create(checkpoints, &error), &error);
    notes_synced = false;
    assert_true(was_synced(*state));
    assert_true(was_synced(path_in(*state, "runs")));
    assert_true(was_synced(path_in(*state, "runs/of")));
    assert_true(was_synced(path));
    path_write(path_in(path, "config.yaml"), "");
    run_directory_close(&run);
    free(checkpoints);
}

static void a_disk_that_fails_is_not_called_in_use(void **state) {
    const char *path = path_in(*state, "run");
    struct run_directory run;
    trireme_error error;
    assert_ok(directory_create(path, &error), &error);
    for (fails_at = 1; fails_at <= 2; fails_at++) {
        examined = 0;
        const trireme_status status = run_directory_open(&run, path, &error);
        assert_refused(status, TRIREME_ERROR_IO, &error, strerror(EIO));
    }
    fails_at = 0;
    assert_ok(run_directory_open(&run, path, &error), &error);
    run_directory_close(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(runs_that_do_not_begin_leave_no_directory),
        IN_FOLDER(looking_keeps_no_run_from_its_directory),
        IN_FOLDER(a_run_that_failed_as_it_began_may_begin_again),
        IN_FOLDER(what_keeps_a_directory_from_being_opened_is_said),
        IN_FOLDER(a_lock_whose_holder_ends_soon_is_waited_for),
        IN_FOLDER(what_was_left_of_a_directory_being_made_is_removed),
        IN_FOLDER(directories_above_reach_the_disk),
        IN_FOLDER(a_disk_that_fails_is_not_called_in_use),
    };
    return cmocka_run_group_tests_name("run directory", tests, NULL, NULL);
}
