// base/parallel_for.h: work that fails, and the processors that a process may use, on machines with more of them than a
// set of the usual size has room for.
#include "support/sanitized.h"
#include "support/test.h"

#include "base/base.h"
#include "base/ordered_work.h"
#include "base/parallel_for.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// Answers like a kernel with so many CPUs; this process may use every second one.
static size_t machine_cpus;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    (void)pid;
    if (8 * bytes < machine_cpus) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(bytes, set);
    for (size_t cpu = 0; cpu < machine_cpus; cpu += 2)
        CPU_SET_S(cpu, bytes, set);
    return 0;
}

static size_t kept_bytes;
static cpu_set_t kept[8];

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set) {
    (void)pid;
    kept_bytes = bytes;
    memcpy(kept, set, MIN(bytes, sizeof kept));
    return 0;
}

static int compare_numbers(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void processors_are_found_on_machines_of_any_size(void **unused) {
    (void)unused;
    static const size_t SIZES[] = {2, 64, 1024, 1026, 5000, 1 << 16};
    for (size_t i = 0; i < ARRAY_LENGTH(SIZES); i++) {
        machine_cpus = SIZES[i];
        int count, *processor = processors_list(&count);
        assert_int_equal(count, SIZES[i] / 2);
        assert_in_range(usable_cores(), 1, count);
        qsort(processor, (size_t)count, sizeof *processor, compare_numbers); // this machine may know of cores
        for (int c = 0; c < count; c++)
            assert_int_equal(processor[c], 2 * c);
        free(processor);
    }
}

enum { PIECES = 100 };

struct pieces {
    int fails[2]; // the first of them takes longer
    atomic_int times[PIECES];
};

static trireme_status piece(void *argument, int i, trireme_error *error) {
    struct pieces *p = argument;
    p->times[i]++;
    if (i == p->fails[0])
        usleep(20000);
    if (i == p->fails[0] || i == p->fails[1])
        FAIL(TRIREME_ERROR_USAGE, "piece %d", i);
    return TRIREME_OK;
}

static void the_first_failure_is_returned(void **unused) {
    (void)unused;
    static const int FAILS[][2] = {{PIECES, PIECES}, {0, PIECES}, {PIECES - 1, PIECES}, {0, 1}, {40, 41}};
    for (int threads = 1; threads <= 4; threads++)
        for (size_t k = 0; k < ARRAY_LENGTH(FAILS); k++) {
            struct pieces p = {.fails = {FAILS[k][0], FAILS[k][1]}};
            trireme_error error = {0};
            const bool fails = p.fails[0] < PIECES;
            char message[32] = "";
            if (fails)
                snprintf(message, sizeof message, "piece %d", p.fails[0]);
            assert_int_equal(parallel_try(threads, PIECES, piece, &p, &error),
                             fails ? TRIREME_ERROR_USAGE : TRIREME_OK);
            assert_string_equal(error.message, message);
            for (int i = 0; i < PIECES; i++)
                assert_true(p.times[i] == 1 || (i > p.fails[0] && !p.times[i]));
            if (fails && threads == 1 && p.fails[0] + 1 < PIECES)
                assert_int_equal(p.times[p.fails[0] + 1], 0);
            assert_int_equal(parallel_try(threads, PIECES, piece, &p, NULL), fails ? TRIREME_ERROR_USAGE : TRIREME_OK);
        }
    assert_int_equal(parallel_try(2, 0, piece, NULL, NULL), TRIREME_OK);
}

static void count_one(void *argument, int i) {
    atomic_int *times = argument;
    times[i]++;
}

// More threads than there is room for.
static void many_threads_do_each_piece_once(void **unused) {
    (void)unused;
    enum { MANY = 300 };
    atomic_int times[MANY] = {0};
    parallel_for(MANY, MANY, count_one, times);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(times[i], 1);
}

static int own_core(int processor) {
    return processor;
}

static int pairs_core(int processor) {
    return processor / 2 * 2;
}

static int halves_core(int processor) {
    return processor % 4;
}

// The first four processors are two cores, the others have one each.
static int unlike_core(int processor) {
    return processor < 4 ? pairs_core(processor) : processor;
}

static void one_of_each_core_comes_first(void **unused) {
    (void)unused;
    static const struct {
        int (*of)(int processor);
        int count, cores, before[8], after[8];
    } CASES[] = {
        {own_core, 0, 0, {0}, {0}},
        {own_core, 3, 3, {1, 5, 6}, {1, 5, 6}},
        {pairs_core, 6, 3, {0, 1, 2, 3, 4, 5}, {0, 2, 4, 1, 3, 5}},
        {pairs_core, 5, 3, {1, 2, 3, 4, 5}, {1, 2, 4, 3, 5}},
        {halves_core, 8, 4, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}},
        {halves_core, 4, 3, {1, 4, 5, 6}, {1, 4, 6, 5}},
        {unlike_core, 7, 5, {0, 1, 2, 3, 4, 5, 6}, {0, 2, 4, 5, 6, 1, 3}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        int processor[8];
        memcpy(processor, CASES[i].before, sizeof processor);
        assert_int_equal(cores_first(processor, CASES[i].count, CASES[i].of), CASES[i].cores);
        assert_memory_equal(processor, CASES[i].after, (size_t)CASES[i].count * sizeof *processor);
    }
}

static void a_core_is_its_lowest_processor(void **unused) {
    (void)unused;
    assert_int_equal(core_of(0), 0);
    assert_int_equal(core_of(1 << 20), 1 << 20); // of which nothing is known
    for (int i = 0; i < 64; i++)
        assert_int_equal(core_of(core_of(i)), core_of(i));
}

static void threads_are_kept_to_cores_of_any_number(void **unused) {
    (void)unused;
    static const int CORES[] = {3, 1500, 8191};
    processors_keep_to(CORES, ARRAY_LENGTH(CORES));
    assert_int_equal(CPU_COUNT_S(kept_bytes, kept), ARRAY_LENGTH(CORES));
    for (size_t i = 0; i < ARRAY_LENGTH(CORES); i++)
        assert_true(CPU_ISSET_S((size_t)CORES[i], kept_bytes, kept));
}

static void *do_nothing(void *argument) {
    return argument;
}

static void threads_say_why_they_do_not_start(void **unused) {
    (void)unused;
    pthread_t thread;
    trireme_error error;
    int status, argument;
    void *returned = NULL;
    assert_int_equal(thread_start(&thread, do_nothing, &argument, "a thread", &error), TRIREME_OK);
    pthread_join(thread, &returned);
    assert_ptr_equal(returned, &argument);
    if (SANITIZED)
        return; // sanitizers need address space
    pid_t child = fork();
    if (child == 0) {
        pthread_attr_t stack;
        pthread_attr_init(&stack);
        pthread_attr_setstacksize(&stack, (size_t)1 << 30);
        pthread_setattr_default_np(&stack);
        setrlimit(RLIMIT_AS, &(struct rlimit){1 << 29, 1 << 29});
        _exit(thread_start(&thread, do_nothing, NULL, "a thread", &error) == TRIREME_ERROR_IO &&
                      strstr(error.message, "cannot start a thread: there is no memory for its stack (ulimit -v")
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *fail_quietly(void *unused) {
    assert_string_equal("a thread's", "failure");
    return unused;
}

// What ends a test in a thread is printed (support/thread_end.c).
static void a_thread_that_fails_is_heard_of(void **unused) {
    (void)unused;
    int ends[2], status;
    char said[512] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        dup2(ends[1], STDERR_FILENO);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        _exit(pthread_create(&thread, NULL, fail_quietly, NULL) || pthread_join(thread, NULL));
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(status != 0 && read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    if (!strstr(said, "\"a thread's\" != \"failure\"") || !strstr(said, "test_parallel_for.c:"))
        fail_msg("it said only: %s", said);
}

enum { ORDERED_SLOTS = 5 };

struct ordered {
    int number[ORDERED_SLOTS], square[ORDERED_SLOTS];
    int ended, fails_at;
    atomic_int worked;
};

static void square_slot(void *user, int thread, int slot) {
    struct ordered *o = user;
    assert_true(thread >= 0 && thread < 3);
    for (int i = 0; i < o->number[slot] % 7 * 100; i++)
        sched_yield();
    o->square[slot] = o->number[slot] * o->number[slot];
    o->worked++;
}

static trireme_status end_slot(void *user, int slot, trireme_error *error) {
    struct ordered *o = user;
    assert_int_equal(o->number[slot], o->ended);
    assert_int_equal(o->square[slot], o->ended * o->ended);
    if (o->ended++ == o->fails_at)
        FAIL(TRIREME_ERROR_USAGE, "slot of %d", o->number[slot]);
    return TRIREME_OK;
}

static void slots_end_in_the_order_in_which_they_were_filled(void **unused) {
    (void)unused;
    enum { COUNT = 200 };
    for (int threads = 0; threads < 4; threads++)
        for (int fails_at = -1; fails_at < COUNT; fails_at += 67) {
            struct ordered o = {.fails_at = fails_at};
            trireme_error error;
            trireme_status status = TRIREME_OK;
            struct ordered_work *w = ordered_work_create(&(struct ordered_work_options){
                .threads = threads, .slots = ORDERED_SLOTS, .work = square_slot, .end = end_slot, .user = &o});
            for (int i = 0, slot; i < COUNT && status == TRIREME_OK; i++) {
                status = ordered_work_next(w, &slot, &error);
                if (status == TRIREME_OK) {
                    o.number[slot] = i;
                    ordered_work_start(w);
                }
            }
            if (status == TRIREME_OK)
                status = ordered_work_finish(w, &error);
            ordered_work_free(w);
            assert_int_equal(status, fails_at < 0 ? TRIREME_OK : TRIREME_ERROR_USAGE);
            assert_int_equal(o.ended, fails_at < 0 ? COUNT : fails_at + 1);
            assert_true(o.worked >= o.ended && o.worked <= o.ended + ORDERED_SLOTS);
        }
    ordered_work_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_failure_is_returned),
                                       cmocka_unit_test(threads_say_why_they_do_not_start),
                                       cmocka_unit_test(a_thread_that_fails_is_heard_of),
                                       cmocka_unit_test(many_threads_do_each_piece_once),
                                       cmocka_unit_test(processors_are_found_on_machines_of_any_size),
                                       cmocka_unit_test(one_of_each_core_comes_first),
                                       cmocka_unit_test(a_core_is_its_lowest_processor),
                                       cmocka_unit_test(threads_are_kept_to_cores_of_any_number),
                                       cmocka_unit_test(slots_end_in_the_order_in_which_they_were_filled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
