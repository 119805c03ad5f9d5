// What the system's files say, below /proc and /sys, and of control groups (versions 1 and 2), which limit what a
// process may have. Nothing here allocates: the figures are also read while a step runs. `root`: where those folders
// lie, "" but for tests.
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include "base/base.h"

// Reads the start of the file root/directory/name. False if there is no such file, or nothing in it.
bool system_read(const char *root, const char *directory, const char *name, char *text, size_t size);
// The number after `name` at the start of a line; `fallback` where there is none.
uint64_t system_number_after(const char *text, const char *name, uint64_t fallback);
// A file that holds one number; UINT64_MAX where it is absent or says "max".
uint64_t system_number(const char *root, const char *directory, const char *name);

// What the group whose files lie in root/directory has; UINT64_MAX: as much as there is.
typedef uint64_t cgroup_limit(const char *root, const char *directory, bool is_v1, const void *user);
// The least that `limit` tells of the groups of `controller` ("memory") that this process is in, and of those above.
uint64_t cgroup_least(const char *root, const char *controller, cgroup_limit *limit, const void *user);

#endif
