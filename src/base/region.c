#include "base/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const size_t HUGE_PAGE = (size_t)2 << 20;

// ---- how much there is
// Nothing below allocates: the figures are also read while a step runs.

// Reads the start of the file root/directory/name. Returns false if there is no such file.
static bool read_start(const char *root, const char *directory, const char *name, char *text, size_t size) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, directory, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t count = 0;
    while (count < size - 1) {
        ssize_t got = read(file, text + count, size - 1 - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        count += (size_t)got;
    }
    close(file);
    text[count] = '\0';
    return count > 0;
}

// The number after `name` at the start of a line; `fallback` where there is none.
static uint64_t number_after(const char *text, const char *name, uint64_t fallback) {
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        unsigned long long number;
        if (strncmp(line, name, length) == 0 && sscanf(line + length, " %llu", &number) == 1)
            return number;
        if (!*line)
            break;
    }
    return fallback;
}

// A file that holds one number; UINT64_MAX where it is absent or says "max".
static uint64_t read_number(const char *root, const char *directory, const char *name) {
    char text[64];
    return read_start(root, directory, name, text, sizeof text) ? number_after(text, "", UINT64_MAX) : UINT64_MAX;
}

// The names that the two versions of control groups give to the same figures.
struct cgroup_names {
    const char *mount, *limit, *soft_limit, *usage, *reclaimable;
};

static const struct cgroup_names cgroup_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .soft_limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .reclaimable = "total_inactive_file ",
};
static const struct cgroup_names cgroup_v2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .soft_limit = "memory.high",
    .usage = "memory.current",
    .reclaimable = "inactive_file ",
};

// What one group may have, or what it leaves of that. File pages that nobody used lately are given back before anything
// fails.
static uint64_t cgroup_room_here(const char *root, const char *directory, const struct cgroup_names *names,
                                 enum memory_room room) {
    uint64_t limit = read_number(root, directory, names->limit);
    uint64_t soft_limit = read_number(root, directory, names->soft_limit);
    limit = MIN(limit, soft_limit);
    if (room == MEMORY_WHOLE)
        return limit;
    uint64_t usage = read_number(root, directory, names->usage);
    if (limit == UINT64_MAX || usage == UINT64_MAX)
        return UINT64_MAX;
    char stat[8192];
    uint64_t reclaimable = 0;
    if (read_start(root, directory, "memory.stat", stat, sizeof stat))
        reclaimable = number_after(stat, names->reclaimable, 0);
    usage -= MIN(reclaimable, usage);
    return usage < limit ? limit - usage : 0;
}

// The least of `group` and those above it. In a container the path may not exist below the mount: those of its
// parents that do are asked all the same.
static uint64_t cgroup_room(const char *root, const char *group, const struct cgroup_names *names,
                            enum memory_room room) {
    char directory[PATH_MAX];
    size_t mount = strlen(names->mount);
    int length = snprintf(directory, sizeof directory, "%s%s", names->mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t here = cgroup_room_here(root, directory, names, room);
        least = MIN(least, here);
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= mount || (size_t)(slash - directory) < mount)
            return least;
        *slash = '\0';
    }
}

// The path in a line "ID:CONTROLLERS:PATH" of /proc/self/cgroup whose controllers hold `memory` (v1) or are empty (v2).
static bool cgroup_path(const char *line, size_t length, bool *is_v1, char *path, size_t size) {
    const char *end = line + length;
    const char *controllers = memchr(line, ':', length);
    if (!controllers)
        return false;
    controllers++;
    const char *group = memchr(controllers, ':', (size_t)(end - controllers));
    if (!group || (size_t)(end - group) > size)
        return false;
    *is_v1 = group != controllers;
    if (*is_v1) {
        bool has_memory = false;
        for (const char *word = controllers; word < group;) {
            const char *comma = memchr(word, ',', (size_t)(group - word));
            const char *stop = comma ? comma : group;
            has_memory |= stop - word == 6 && memcmp(word, "memory", 6) == 0;
            word = stop + 1;
        }
        if (!has_memory)
            return false;
    }
    size_t count = (size_t)(end - group - 1);
    memcpy(path, group + 1, count);
    path[count] = '\0';
    return true;
}

size_t memory_below(const char *root, enum memory_room room) {
    char text[16384], group[PATH_MAX / 2];
    const char *name = room == MEMORY_WHOLE ? "MemTotal:" : "MemAvailable:";
    uint64_t bytes = UINT64_MAX;
    if (read_start(root, "/proc", "meminfo", text, sizeof text)) {
        uint64_t kibibytes = number_after(text, name, UINT64_MAX);
        if (kibibytes <= UINT64_MAX / 1024)
            bytes = kibibytes * 1024;
    }
    if (read_start(root, "/proc/self", "cgroup", text, sizeof text)) {
        for (const char *line = text; *line;) {
            size_t length = strcspn(line, "\n");
            bool is_v1;
            if (cgroup_path(line, length, &is_v1, group, sizeof group)) {
                uint64_t here = cgroup_room(root, group, is_v1 ? &cgroup_v1 : &cgroup_v2, room);
                bytes = MIN(bytes, here);
            }
            line += length + (line[length] == '\n');
        }
    }
    return (size_t)MIN(bytes, (uint64_t)SIZE_MAX);
}

size_t memory_whole(void) {
    return memory_below("", MEMORY_WHOLE);
}

// Both columns of /proc/self/statm: all pages mapped, and those resident. In bytes.
static bool own_memory(uint64_t *mapped, uint64_t *resident) {
    char text[256];
    unsigned long long pages[2];
    if (!read_start("", "/proc/self", "statm", text, sizeof text) ||
        sscanf(text, "%llu %llu", &pages[0], &pages[1]) != 2)
        return false;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *mapped = pages[0] * page;
    *resident = pages[1] * page;
    return true;
}

size_t memory_available(void) {
    uint64_t available = memory_below("", MEMORY_LEFT);
    struct rlimit limit;
    uint64_t mapped, resident;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && own_memory(&mapped, &resident)) {
        uint64_t left = limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
        available = MIN(available, left);
    }
    return (size_t)available;
}

size_t memory_resident(void) {
    uint64_t mapped, resident;
    return own_memory(&mapped, &resident) ? (size_t)resident : 0;
}

void memory_give_back(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

// getrusage's ru_maxrss is also of the program that this process was until it called exec: where posix_spawn or vfork
// made it, as Python does, of all that its parent had then.
size_t memory_peak(void) {
    char status[1 << 14];
    return read_start("", "/proc/self", "status", status, sizeof status)
               ? (size_t)number_after(status, "VmHWM:", 0) * 1024
               : 0;
}

// ---- taking it

trireme_status region_create(struct region *region, size_t bytes, bool touch, const char *what, trireme_error *error) {
    size_t available = memory_available();
    if (bytes > available || bytes > SIZE_MAX - 2 * HUGE_PAGE)
        FAIL(TRIREME_ERROR_MEMORY, "%s needs %zu bytes of memory, %zu are available", what, bytes, available);
    size_t rounded = round_up(MAX(bytes, 1), HUGE_PAGE);
    // One huge page more than needed: what lies before the first boundary and after the end is given back.
    char *start =
        mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        FAIL(TRIREME_ERROR_MEMORY, "%s needs %zu bytes of memory, %zu are available: %m", what, bytes, available);
    size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(start, before);
    if (before < HUGE_PAGE)
        munmap(start + before + rounded, HUGE_PAGE - before);
    char *base = start + before;
    madvise(base, rounded, MADV_HUGEPAGE);
    if (touch) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        for (size_t at = 0; at < rounded; at += page)
            ((volatile char *)base)[at] = 0;
    }
    region->base = base;
    region->bytes = rounded;
    return TRIREME_OK;
}

void region_release(struct region *region) {
    if (region->base)
        munmap(region->base, region->bytes);
    *region = (struct region){0};
}
