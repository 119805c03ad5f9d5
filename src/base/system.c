#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

bool system_read(const char *root, const char *directory, const char *name, char *text, size_t size) {
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

uint64_t system_number_after(const char *text, const char *name, uint64_t fallback) {
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

uint64_t system_number(const char *root, const char *directory, const char *name) {
    char text[64];
    return system_read(root, directory, name, text, sizeof text) ? system_number_after(text, "", UINT64_MAX)
                                                                 : UINT64_MAX;
}

#define CGROUPS "/sys/fs/cgroup"

// The least of `group` and those above it. In a container the path may not exist below the mount: those of its parents
// that do exist count all the same.
static uint64_t least_above(const char *root, const char *controller, const char *group, bool is_v1,
                            cgroup_limit *limit, const void *user) {
    char directory[PATH_MAX];
    const size_t mount = strlen(CGROUPS) + (is_v1 ? 1 + strlen(controller) : 0);
    int length =
        snprintf(directory, sizeof directory, CGROUPS "%s%s%s", is_v1 ? "/" : "", is_v1 ? controller : "", group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t here = limit(root, directory, is_v1, user);
        least = MIN(least, here);
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= mount || (size_t)(slash - directory) < mount)
            return least;
        *slash = '\0';
    }
}

// The path in a line "ID:CONTROLLERS:PATH" of /proc/self/cgroup, if its controllers include `controller` (v1) or are
// empty (v2).
static bool cgroup_path(const char *line, size_t length, const char *controller, bool *is_v1, char *path, size_t size) {
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
        bool has = false;
        const size_t letters = strlen(controller);
        for (const char *word = controllers; word < group;) {
            const char *comma = memchr(word, ',', (size_t)(group - word));
            const char *stop = comma ? comma : group;
            has |= (size_t)(stop - word) == letters && memcmp(word, controller, letters) == 0;
            word = stop + 1;
        }
        if (!has)
            return false;
    }
    size_t count = (size_t)(end - group - 1);
    memcpy(path, group + 1, count);
    path[count] = '\0';
    return true;
}

uint64_t cgroup_least(const char *root, const char *controller, cgroup_limit *limit, const void *user) {
    char text[16384], group[PATH_MAX / 2];
    uint64_t least = UINT64_MAX;
    if (!system_read(root, "/proc/self", "cgroup", text, sizeof text))
        return least;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        bool is_v1;
        if (cgroup_path(line, length, controller, &is_v1, group, sizeof group)) {
            uint64_t here = least_above(root, controller, group, is_v1, limit, user);
            least = MIN(least, here);
        }
        line += length + (line[length] == '\n');
    }
    return least;
}
