// Reading files that are mapped, which another program may cut short at any time.
#ifndef BASE_MAPPED_H
#define BASE_MAPPED_H

#include "base/base.h"

// Copies from a mapping by way of the kernel, which answers for a page beyond the file's end, and for one that the disk
// does not give, where touching it would be SIGBUS. False: there is one. Where the kernel may not, it is touched.
bool mapped_copy(const void *from, size_t bytes, void *to);

#endif
