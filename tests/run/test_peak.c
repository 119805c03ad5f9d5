// A step that does more than the peak that was timed has it timed again, so that no MFU is above 100%. A run that is
// soon done does not wait as long for the timing as a run of days. Threads without a core of their own add nothing to
// the peak.
#include "kernels/cpu/peak.h"
#include "support/runs.h"

#include "base/json.h"
#include "base/parallel_for.h"
#include "base/region.h"
#include "base/text.h"

#include <dirent.h>
#include <math.h>
#include <time.h>

enum { STEPS = 8 };
static const char *const OVERRIDES[] = {RUNS_LLAMA, "training.steps=8", "training.threads=1", "validation.freq=0",
                                        NULL};

static const double TOO_LOW = 1e6, TRUE = 1e15;
static int timings, low_timings; // how many there were, and how many of the first are too low

double __wrap_peak_flops(enum dtype dtype, int threads, double flops);

double __wrap_peak_flops(enum dtype dtype, int threads, double flops) {
    (void)dtype;
    (void)threads;
    assert_true(flops >= 0); // of the steps to come
    return timings++ < low_timings ? TOO_LOW : TRUE;
}

// The MFU of a run's steps.
static void read_mfu(const char *folder, double mfu[STEPS]) {
    char *text;
    size_t length;
    trireme_error error;
    assert_ok(file_read(path_in(folder, "run/metrics.jsonl"), 100000, &text, &length, &error), &error);
    int step = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object;
        assert_ok(json_parse(line, strlen(line), "metrics.jsonl", &object, &error), &error);
        assert_true(step < STEPS);
        mfu[step++] = json_number_value(json_object_get(object, "mfu"));
        json_decref(object);
    }
    assert_int_equal(step, STEPS);
    free(text);
}

static void check_run(const char *folder, const char *ranks, int low) {
    const char *const extra[] = {ranks, NULL};
    struct runs_watch watch = {0};
    struct train_result result;
    trireme_error error;
    double mfu[STEPS];
    runs_prepare(folder);
    timings = 0;
    low_timings = low;
    assert_ok(runs_train(folder, OVERRIDES, extra, &watch, &result, &error), &error);
    read_mfu(folder, mfu);
    for (int i = 0; i < STEPS; i++)
        assert_true(mfu[i] > 0 && mfu[i] <= 1);
}

static void a_peak_that_was_too_low_is_timed_again(void **state) {
    check_run(*state, "parallelism.ranks=1", 1);
    assert_int_equal(timings, 2);
}

static void a_peak_of_many_ranks_is_too(void **state) {
    check_run(*state, "parallelism.ranks=2", 1);
    assert_int_equal(timings, 2);
}

static void what_is_always_timed_too_low_is_that_of_the_best_step(void **state) {
    check_run(*state, "parallelism.ranks=2", 1000);
    assert_true(timings >= 2);
}

static double seconds_of_timing(double flops) {
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    assert_true(peak_flops_for(DTYPE_F32, 1, flops, isa_best()) > 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

static void what_is_soon_done_is_timed_for_a_moment(void **unused) {
    (void)unused;
    // Where the machine is busy a loop gets through less than it is timed for.
    double most = 0, soon = INFINITY, late = 0;
    for (int tries = 0; tries < 10 && !(soon < most / 2 && late > most / 2); tries++) {
        most = fmax(most, seconds_of_timing(INFINITY));
        soon = fmin(soon, seconds_of_timing(0));
        late = fmax(late, seconds_of_timing(1e16));
    }
    assert_true(soon < most / 2);
    assert_true(late > most / 2);
}

static int threads_of_process(void) {
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        threads += task->d_name[0] != '.';
    closedir(tasks);
    return threads;
}

// OpenMP's threads stay when their work is done.
static void threads_without_a_core_are_not_timed(void **unused) {
    (void)unused;
    int before = threads_of_process(), cores = usable_cores();
    double bandwidth;
    trireme_error error;
    assert_true(peak_flops_for(DTYPE_F32, 4 * cores, 0, isa_best()) > 0);
    assert_ok(memory_bandwidth(4 * cores, &bandwidth, &error), &error);
    assert_in_range(threads_of_process(), 1, before + cores - 1);
}

// Some CPUs multiply pairs of bf16 slower than single f32.
static void pairs_of_bf16_are_multiplied_where_that_is_faster(void **unused) {
    (void)unused;
    if (!isa_usable(ISA_AVX512_BF16) || isa_usable(ISA_AMX) || getenv(ISA_LIMIT))
        skip();
    const double single = peak_flops_for(DTYPE_BF16, 1, 0, ISA_AVX512);
    const double pairs = peak_flops_for(DTYPE_BF16, 1, 0, ISA_AVX512_BF16);
    assert_int_equal(isa_best(), pairs > single ? ISA_AVX512_BF16 : ISA_AVX512);
    assert_int_equal(setenv(ISA_LIMIT, "avx512bf16", 1), 0);
    assert_int_equal(isa_best(), ISA_AVX512_BF16);
    assert_int_equal(setenv(ISA_LIMIT, "amx", 1), 0);
    assert_int_equal(isa_best(), pairs > single ? ISA_AVX512_BF16 : ISA_AVX512);
    assert_int_equal(unsetenv(ISA_LIMIT), 0);
}

// Memory that is only read does not count: the system maps one page for all of it, which lies in a cache.
static void memory_is_timed_that_there_is(void **unused) {
    (void)unused;
    const size_t before = memory_resident(), bytes = MIN((size_t)256 << 20, memory_available() / 8);
    double bandwidth;
    trireme_error error;
    assert_ok(memory_bandwidth(1, &bandwidth, &error), &error);
    assert_true(memory_peak() >= before + bytes / 10 * 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_without_a_core_are_not_timed), // before others have any
        cmocka_unit_test(memory_is_timed_that_there_is),
        cmocka_unit_test(pairs_of_bf16_are_multiplied_where_that_is_faster),
        IN_FOLDER(a_peak_that_was_too_low_is_timed_again),
        IN_FOLDER(a_peak_of_many_ranks_is_too),
        cmocka_unit_test_setup_teardown(what_is_always_timed_too_low_is_that_of_the_best_step, folder_create,
                                        folder_remove),
        cmocka_unit_test(what_is_soon_done_is_timed_for_a_moment),
    };
    return cmocka_run_group_tests_name("peak", tests, NULL, NULL);
}
