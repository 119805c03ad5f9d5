// Reading mapped files, which another program may cut short at any time, and whose pages count as memory of the process
// once they were read.
#ifndef BASE_MAPPED_H
#define BASE_MAPPED_H

#include "base/base.h"

// Copies from a mapping by a system call. Returns false if a page lies beyond the file's end or cannot be read from
// disk, where touching it would raise SIGBUS. Where the system does not allow the call, it copies directly.
bool mapped_copy(const void *from, size_t bytes, void *to);
// Gives back what was read of a file mapped from its beginning at `map`, `length` bytes: pages [from, from + bytes),
// and those that were mapped along with them. They stay in the system's cache of the file.
void mapped_forget(const void *map, size_t length, size_t from, size_t bytes);

#endif
