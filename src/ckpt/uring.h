// Reads and writes of files that are under way several at a time: Linux's io_uring. A build without liburing has none,
// and a system may lack it or forbid it.
#ifndef CKPT_URING_H
#define CKPT_URING_H

#include "base/base.h"

struct uring; // for one thread at a time

// NULL where there is none. At most `entries` transfers are under way at a time.
struct uring *uring_create(int entries);
// Nothing may be under way. NULL is allowed.
void uring_free(struct uring *u);
// Begins to read or write `bytes` at `at` of a file; `data` stays in place until the transfer has ended. False where
// the system does not take it, whose errno says why; then nothing was begun.
bool uring_begin(struct uring *u, bool writes, int file, void *data, size_t bytes, uint64_t at, int number);
// Waits for one that is under way to end, any; returns its number. *result: bytes moved, or -errno.
int uring_end(struct uring *u, int64_t *result);

#endif
