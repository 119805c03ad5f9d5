// In a build without liburing: no queue is ever made.
#include "ckpt/uring.h"

struct uring *uring_create(int entries) {
    (void)entries;
    return NULL;
}

void uring_free(struct uring *u) {
    CHECK(!u);
}

bool uring_begin(struct uring *u, bool writes, int file, void *data, size_t bytes, uint64_t at, int number) {
    (void)u, (void)writes, (void)file, (void)data, (void)bytes, (void)at, (void)number;
    CHECK(!"there is no queue");
    return false;
}

int uring_end(struct uring *u, int64_t *result) {
    (void)u, (void)result;
    CHECK(!"there is no queue");
    return 0;
}
