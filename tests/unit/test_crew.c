// The processors that a process may use, of machines with more of them than a set of the usual size has room for.
#include "support/test.h"

#include "base/base.h"
#include "base/crew.h"

#include <errno.h>
#include <sched.h>

// What a kernel with so many CPUs answers; this process may use every second one.
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

static void cores_are_counted_on_machines_of_any_size(void **unused) {
    (void)unused;
    static const size_t SIZES[] = {2, 64, 1024, 1026, 5000, 1 << 16};
    for (size_t i = 0; i < ARRAY_LENGTH(SIZES); i++) {
        machine_cpus = SIZES[i];
        assert_int_equal(usable_cores(), SIZES[i] / 2);
        int count, *core = cores_list(&count);
        assert_int_equal(count, SIZES[i] / 2);
        for (int c = 0; c < count; c++)
            assert_int_equal(core[c], 2 * c);
        free(core);
    }
}

static void threads_are_kept_to_cores_of_any_number(void **unused) {
    (void)unused;
    static const int CORES[] = {3, 1500, 8191};
    cores_keep_to(CORES, ARRAY_LENGTH(CORES));
    assert_int_equal(CPU_COUNT_S(kept_bytes, kept), ARRAY_LENGTH(CORES));
    for (size_t i = 0; i < ARRAY_LENGTH(CORES); i++)
        assert_true(CPU_ISSET_S((size_t)CORES[i], kept_bytes, kept));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cores_are_counted_on_machines_of_any_size),
                                       cmocka_unit_test(threads_are_kept_to_cores_of_any_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
