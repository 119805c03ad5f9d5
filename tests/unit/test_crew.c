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

static void cores_are_counted_on_machines_of_any_size(void **unused) {
    (void)unused;
    static const size_t SIZES[] = {2, 64, 1024, 1026, 5000, 1 << 16};
    for (size_t i = 0; i < ARRAY_LENGTH(SIZES); i++) {
        machine_cpus = SIZES[i];
        assert_int_equal(usable_cores(), SIZES[i] / 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cores_are_counted_on_machines_of_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
