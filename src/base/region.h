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
// Bytes that this process could still take without swapping: MemAvailable, or what the control group leaves.
size_t memory_available(void);
// Resident bytes of this process now.
size_t memory_resident(void);

#endif
