// Reading mapped files, which another program may cut short at any time.
#ifndef BASE_MAPPED_H
#define BASE_MAPPED_H

#include "base/base.h"

// Copies from a mapping by a system call. Returns false if a page lies beyond the file's end or cannot be read from
// disk, where touching it would raise SIGBUS. Where the system does not allow the call, it copies directly.
bool mapped_copy(const void *from, size_t bytes, void *to);

#endif
