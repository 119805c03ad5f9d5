// Figures from the system's files below /proc and /sys, among them those of control groups (versions 1 and 2), which
// limit what a process may use. Nothing here allocates: the figures are also read while a step runs. `root` is the
// directory that holds these folders: "", except in tests.
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include "base/base.h"

// Reads up to size - 1 bytes from the start of the file root/directory/name. False if it is absent or empty.
bool system_read(const char *root, const char *directory, const char *name, char *text, size_t size);
// The number after `name` at the start of a line; `fallback` where there is none.
uint64_t system_number_after(const char *text, const char *name, uint64_t fallback);
// A file that holds one number; UINT64_MAX where it is absent or says "max".
uint64_t system_number(const char *root, const char *directory, const char *name);

// What the group whose files lie in root/directory may have, or has left; UINT64_MAX: it sets no limit.
typedef uint64_t cgroup_limit(const char *root, const char *directory, bool is_v1, const void *user);
// The least that `limit` gives for the groups of `controller` ("memory", "cpu") that this process is in, and for their
// ancestors.
uint64_t cgroup_least(const char *root, const char *controller, cgroup_limit *limit, const void *user);

#endif
