// A run's directory that several processes want at once.
#include "support/checkpoint.h"

#include "run/run_directory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static bool no_directory_is_synced;

int fsync(int file) {
    struct stat st;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(runs_that_do_not_begin_leave_no_directory),
        IN_FOLDER(looking_keeps_no_run_from_its_directory),
        IN_FOLDER(a_run_that_failed_as_it_began_may_begin_again),
        IN_FOLDER(what_keeps_a_directory_from_being_opened_is_said),
    };
    return cmocka_run_group_tests_name("run directory", tests, NULL, NULL);
}
