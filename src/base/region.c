#include "base/region.h"

#include "base/reserve.h"
#include "base/system.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const size_t HUGE_PAGE = (size_t)2 << 20;

// ---- how much there is
// Nothing in this part allocates: the figures are also read while a step runs.

// The names that the two versions of control groups give to the same figures.
struct cgroup_names {
    const char *limit, *soft_limit, *usage, *reclaimable;
};

static const struct cgroup_names cgroup_v1 = {
    .limit = "memory.limit_in_bytes",
    .soft_limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .reclaimable = "total_inactive_file ",
};
static const struct cgroup_names cgroup_v2 = {
    .limit = "memory.max",
    .soft_limit = "memory.high",
    .usage = "memory.current",
    .reclaimable = "inactive_file ",
};

// What one group may have, or has left. File pages that nobody used lately count as free: the system takes them back
// before anything fails.
static uint64_t memory_of_group(const char *root, const char *directory, bool is_v1, const void *user) {
    const enum memory_room *room = user;
    const struct cgroup_names *names = is_v1 ? &cgroup_v1 : &cgroup_v2;
    uint64_t limit = system_number(root, directory, names->limit);
    uint64_t soft_limit = system_number(root, directory, names->soft_limit);
    limit = MIN(limit, soft_limit);
    if (*room == MEMORY_WHOLE)
        return limit;
    uint64_t usage = system_number(root, directory, names->usage);
    if (limit == UINT64_MAX || usage == UINT64_MAX)
        return UINT64_MAX;
    char stat[8192];
    uint64_t reclaimable = 0;
    if (system_read(root, directory, "memory.stat", stat, sizeof stat))
        reclaimable = system_number_after(stat, names->reclaimable, 0);
    usage -= MIN(reclaimable, usage);
    return usage < limit ? limit - usage : 0;
}

size_t memory_below(const char *root, enum memory_room room) {
    char text[16384];
    const char *name = room == MEMORY_WHOLE ? "MemTotal:" : "MemAvailable:";
    uint64_t bytes = cgroup_least(root, "memory", memory_of_group, &room);
    if (system_read(root, "/proc", "meminfo", text, sizeof text)) {
        uint64_t kibibytes = system_number_after(text, name, UINT64_MAX);
        if (kibibytes <= UINT64_MAX / 1024)
            bytes = MIN(bytes, kibibytes * 1024);
    }
    return (size_t)MIN(bytes, (uint64_t)SIZE_MAX);
}

size_t memory_whole(void) {
    return memory_below("", MEMORY_WHOLE);
}

// Of /proc/self/statm, in bytes.
struct own_memory {
    uint64_t mapped, resident, data; // the last includes the stack, which counts for little
};

static bool own_memory(struct own_memory *own) {
    char text[256];
    unsigned long long mapped, resident, data;
    if (!system_read("", "/proc/self", "statm", text, sizeof text) ||
        sscanf(text, "%llu %llu %*u %*u %*u %llu", &mapped, &resident, &data) != 3)
        return false;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *own = (struct own_memory){mapped * page, resident * page, data * page};
    return true;
}

static size_t limit_leaves(int resource, uint64_t taken) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return limit.rlim_cur > taken ? (size_t)(limit.rlim_cur - taken) : 0;
}

size_t memory_mappable(void) {
    struct own_memory own;
    if (!own_memory(&own))
        return SIZE_MAX;
    const size_t mapped = limit_leaves(RLIMIT_AS, own.mapped), data = limit_leaves(RLIMIT_DATA, own.data);
    return MIN(mapped, data);
}

size_t memory_available(void) {
    const size_t mappable = memory_mappable(), left = memory_below("", MEMORY_LEFT);
    return MIN(mappable, left);
}

size_t memory_resident(void) {
    struct own_memory own;
    return own_memory(&own) ? (size_t)own.resident : 0;
}

void memory_give_back(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void memory_share_heap(void) {
#ifdef __GLIBC__
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
#endif
}

// getrusage's ru_maxrss would include what the process had before it called exec: where it was made by posix_spawn or
// vfork, as Python does, that is all that its parent had then.
size_t memory_peak(void) {
    char status[1 << 14];
    return system_read("", "/proc/self", "status", status, sizeof status)
               ? (size_t)system_number_after(status, "VmHWM:", 0) * 1024
               : 0;
}

// ---- taking it

trireme_status region_create(struct region *region, size_t bytes, bool touch, const char *what, trireme_error *error) {
    TRY(reserve_check(error));
    size_t available = memory_available();
    if (bytes > available || bytes > SIZE_MAX - 2 * HUGE_PAGE)
        FAIL(TRIREME_ERROR_MEMORY, "%s needs %zu bytes of memory, %zu are available", what, bytes, available);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), unit = bytes < HUGE_PAGE ? page : HUGE_PAGE;
    size_t rounded = round_up(MAX(bytes, 1), unit);
    // One unit more than needed: what lies before the first boundary and after the end is given back.
    char *start =
        mmap(NULL, rounded + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        FAIL(TRIREME_ERROR_MEMORY, "%s needs %zu bytes of memory, %zu are available: %m", what, bytes, available);
    size_t before = (unit - (uintptr_t)start % unit) % unit;
    if (before)
        munmap(start, before);
    if (before < unit)
        munmap(start + before + rounded, unit - before);
    char *base = start + before;
    madvise(base, rounded, unit == HUGE_PAGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t at = 0; touch && at < rounded; at += page)
        ((volatile char *)base)[at] = 0;
    region->base = base;
    region->bytes = rounded;
    return TRIREME_OK;
}

void region_release(struct region *region) {
    if (region->base)
        munmap(region->base, region->bytes);
    *region = (struct region){0};
}
