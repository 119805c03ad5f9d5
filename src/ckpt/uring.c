#include "ckpt/uring.h"

#include <errno.h>
#include <liburing.h>

enum { NO_TRANSFER = -1 };

struct uring {
    struct io_uring ring;
};

struct uring *uring_create(int entries) {
    struct uring *u = mem_alloc(sizeof *u);
    // What was not taken stays in the queue as an entry that does nothing, for which there is room as well.
    if (io_uring_queue_init(2 * (unsigned)entries, &u->ring, 0) == 0)
        return u;
    free(u);
    return NULL;
}

void uring_free(struct uring *u) {
    if (!u)
        return;
    io_uring_queue_exit(&u->ring);
    free(u);
}

static void entry_number(struct io_uring_sqe *entry, int number) {
    io_uring_sqe_set_data(entry, (void *)(intptr_t)number);
}

bool uring_begin(struct uring *u, bool writes, int file, void *data, size_t bytes, uint64_t at, int number) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&u->ring);
    int taken;
    if (!entry) {
        errno = EBUSY;
        return false;
    }
    const unsigned most = (unsigned)MIN(bytes, (size_t)1 << 30);
    if (writes)
        io_uring_prep_write(entry, file, data, most, at);
    else
        io_uring_prep_read(entry, file, data, most, at);
    entry_number(entry, number);
    do // what was not taken before goes first
        taken = io_uring_submit(&u->ring);
    while (taken == -EINTR || (taken > 0 && io_uring_sq_ready(&u->ring) > 0));
    if (taken > 0)
        return true;
    io_uring_prep_nop(entry);
    entry_number(entry, NO_TRANSFER);
    errno = taken < 0 ? -taken : EBUSY;
    return false;
}

int uring_end(struct uring *u, int64_t *result) {
    for (;;) {
        struct io_uring_cqe *ended;
        const int failed = io_uring_wait_cqe(&u->ring, &ended);
        CHECK(failed == 0 || failed == -EINTR || failed == -EAGAIN);
        if (failed)
            continue;
        const int number = (int)(intptr_t)io_uring_cqe_get_data(ended);
        *result = ended->res;
        io_uring_cqe_seen(&u->ring, ended);
        if (number != NO_TRANSFER)
            return number;
    }
}
