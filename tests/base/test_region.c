// Tests of src/base/region.h: memory for arenas, and how much is available.
#include "base/parallel_for.h"
#include "base/region.h"
#include "base/text.h"

#include "support/checkpoint.h"

static void region_is_zeroed_aligned_and_writable(void **state) {
    (void)state;
    for (int touch = 0; touch < 2; touch++) {
        struct region region = {0};
        size_t resident = memory_resident();
        assert_int_equal(region_create(&region, 5000001, touch, "a test", NULL), TRIREME_OK);
        assert_int_equal(region.bytes, 6 << 20);
        assert_int_equal((uintptr_t)region.base % (2 << 20), 0);
        if (touch)
            assert_true(memory_resident() >= resident + (5 << 20));
        unsigned char *bytes = region.base;
        for (size_t i = 0; i < region.bytes; i += 997)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 1, region.bytes);
        region_release(&region);
        assert_null(region.base);
        region_release(&region);
    }
    struct region empty = {0};
    assert_int_equal(region_create(&empty, 0, false, "nothing", NULL), TRIREME_OK);
    assert_non_null(empty.base);
    region_release(&empty);
}

static void region_too_large_is_refused(void **state) {
    (void)state;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - (1 << 20), (size_t)1 << 50, 2 * memory_available()};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct region region = {0};
        trireme_error error = {0};
        assert_int_equal(region_create(&region, sizes[i], false, "the arena", &error), TRIREME_ERROR_MEMORY);
        assert_null(region.base);
        char *needed = mem_printf("the arena needs %zu bytes", sizes[i]);
        assert_non_null(strstr(error.message, needed));
        free(needed);
    }
}

// Writes `content` to root/name, with the directories it needs.
static void plant(const char *root, const char *name, const char *content) {
    char *path = mem_printf("%s%s", root, name), *directory = mem_strdup(path);
    *strrchr(directory, '/') = '\0';
    assert_int_equal(directory_create(directory, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, content, strlen(content), NULL), TRIREME_OK);
    free(directory);
    free(path);
}

static void available_memory_is_the_least_of_all_limits(void **state) {
    const char *root = *state;
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    plant(root, "/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\nBuffers: 0 kB\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);

    // Version 2: a group without a limit of its own below one that has it.
    assert_int_equal(memory_below(root, MEMORY_WHOLE), 9000 * 1024);
    plant(root, "/proc/self/cgroup", "0::/user/job\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
    plant(root, "/sys/fs/cgroup/user/job/memory.max", "max\n");
    plant(root, "/sys/fs/cgroup/user/job/memory.current", "1000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
    plant(root, "/sys/fs/cgroup/user/memory.max", "5000000\n");
    plant(root, "/sys/fs/cgroup/user/memory.current", "3000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 2000000);
    plant(root, "/sys/fs/cgroup/user/memory.stat", "anon 1\nactive_file 7\ninactive_file 500000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 2500000);
    plant(root, "/sys/fs/cgroup/user/memory.high", "4000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 1500000);
    assert_int_equal(memory_below(root, MEMORY_WHOLE), 4000000);
    plant(root, "/sys/fs/cgroup/memory.max", "100\n");
    plant(root, "/sys/fs/cgroup/memory.current", "100\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 0);
}

static void available_memory_knows_version_1(void **state) {
    const char *root = *state;
    plant(root, "/proc/meminfo", "MemAvailable:    8000 kB\n");
    // In a container the path is that of the host; only the mount itself is there.
    plant(root, "/proc/self/cgroup",
          "12:cpu,cpuacct:/docker/12ab\n4:blkio,memory:/docker/12ab\n1:name=systemd:/\n0::/\n");
    plant(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n");
    plant(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n");
    plant(root, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 1000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 5000000);
    // Another controller, whose name is as long, has another group, of which nothing counts.
    plant(root, "/proc/self/cgroup", "4:memory:/docker/12ab\n5:cpuset:/docker/12ab/small\n0::/\n");
    plant(root, "/sys/fs/cgroup/memory/docker/12ab/small/memory.limit_in_bytes", "3000000\n");
    plant(root, "/sys/fs/cgroup/memory/docker/12ab/small/memory.usage_in_bytes", "2000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 5000000);
    plant(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
}

static void quotas_are_in_whole_cores(void **state) {
    const char *root = *state;
    assert_int_equal(cores_of_quota(root), INT_MAX);
    plant(root, "/proc/self/cgroup", "3:cpu,cpuacct:/docker/12ab\n4:memory:/docker/12ab\n0::/user/job\n");
    plant(root, "/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    assert_int_equal(cores_of_quota(root), INT_MAX);
    plant(root, "/sys/fs/cgroup/user/cpu.max", "650000 100000\n");
    assert_int_equal(cores_of_quota(root), 7);
    plant(root, "/sys/fs/cgroup/user/job/cpu.max", "300000 50000\n");
    assert_int_equal(cores_of_quota(root), 6);
    // Version 1.
    plant(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    plant(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_of_quota(root), 6);
    plant(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(cores_of_quota(root), 2);
    plant(root, "/sys/fs/cgroup/user/cpu.max", "1000 100000\n");
    assert_int_equal(cores_of_quota(root), 1);
    static const char *const NONSENSE[] = {"", "100000 0\n", "-5 -7\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(NONSENSE); i++) {
        plant(root, "/sys/fs/cgroup/user/cpu.max", NONSENSE[i]);
        assert_int_equal(cores_of_quota(root), 2);
    }
}

static void available_memory_survives_nonsense(void **state) {
    const char *root = *state;
    plant(root, "/proc/meminfo", "MemAvailable:");
    plant(root, "/proc/self/cgroup", ":::::\n\n0\n0:\nnothing here\n:memory:\n3:memory,:/x/../..//\n");
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    struct text deep = {0};
    text_add(&deep, "0::");
    for (int i = 0; i < 5000; i++)
        text_add(&deep, "/d");
    plant(root, "/proc/self/cgroup", deep.text);
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    text_release(&deep);
}

static void own_memory_is_plausible(void **state) {
    (void)state;
    assert_true(memory_resident() > 100000);
    assert_true(memory_available() > 1000000);
    assert_true(memory_available() < (size_t)1 << 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_is_zeroed_aligned_and_writable),
        cmocka_unit_test(region_too_large_is_refused),
        IN_FOLDER(available_memory_is_the_least_of_all_limits),
        IN_FOLDER(available_memory_knows_version_1),
        IN_FOLDER(quotas_are_in_whole_cores),
        IN_FOLDER(available_memory_survives_nonsense),
        cmocka_unit_test(own_memory_is_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
