// Large, page-aligned memory that lives as long as a run: arenas of a device's memory space.
#ifndef BASE_REGION_H
#define BASE_REGION_H

#include "base/base.h"

struct region {
    void *base;
    size_t bytes;
};

// Maps `bytes` (rounded up to 2 MiB), zeroed, huge pages asked for. Pages are touched on first use unless `touch`.
// TRIREME_ERROR_MEMORY names `what` and both figures when the machine has less available.
trireme_status region_create(struct region *region, size_t bytes, bool touch, const char *what, trireme_error *error);
void region_release(struct region *region);
// Bytes of memory that the machine has, or where that is less that its control groups (v1 and v2) may have.
size_t memory_whole(void);
// Bytes that this process could still take without swapping: the least of MemAvailable, of what its control groups
// (v1 and v2) leave, and of its address space limit.
size_t memory_available(void);
// Either without the address space's limit, with /proc and /sys read below `root`: for tests.
enum memory_room { MEMORY_WHOLE, MEMORY_LEFT };
size_t memory_below(const char *root, enum memory_room room);
// Gives back to the system what has been freed. For after work that takes much memory for a while.
void memory_give_back(void);
// Resident bytes of this process now.
size_t memory_resident(void);
// The most that this program ever had resident.
size_t memory_peak(void);

#endif
