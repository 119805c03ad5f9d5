// Large, page-aligned memory that lives as long as a run (arenas), and how much memory there is.
#ifndef BASE_REGION_H
#define BASE_REGION_H

#include "base/base.h"

struct region {
    void *base;
    size_t bytes;
};

// Maps `bytes`, zeroed; 2 MiB or more are rounded up to huge pages, which are asked for. With `touch` all pages are
// touched now, else on first use. Where less is available, TRIREME_ERROR_MEMORY names `what` and both figures.
trireme_status region_create(struct region *region, size_t bytes, bool touch, const char *what, trireme_error *error);
void region_release(struct region *region);
// Bytes of memory that the machine has, or, where that is less, that this process's control groups (v1, v2) may have.
size_t memory_whole(void);
// Bytes that this process could still take without swapping: the least of MemAvailable, of what its control groups
// (v1 and v2) leave, and of memory_mappable.
size_t memory_available(void);
// Bytes that this process may still map: what the limits of its address space (ulimit -v) and of its data (ulimit -d)
// leave, whether or not they are ever touched; SIZE_MAX where there are none.
size_t memory_mappable(void);
// What the machine has or leaves, without the limits of memory_mappable. `root`: /proc and /sys are read below it, ""
// except in tests.
enum memory_room { MEMORY_WHOLE, MEMORY_LEFT };
size_t memory_below(const char *root, enum memory_room room);
// Returns freed memory to the system. To be called after work that needed much memory for a while.
void memory_give_back(void);
// For a program whose address space is limited: threads that are made from here on share one heap, since glibc would
// reserve 64 MiB for each of theirs. Of no use to speed: no thread allocates in a step.
void memory_share_heap(void);
// Resident bytes of this process now.
size_t memory_resident(void);
// The most bytes that this program has had resident; 0 where the system does not tell.
size_t memory_peak(void);

#endif
