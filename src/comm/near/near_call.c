// Collective calls of members that share memory, how they come to share it, and whether they may.
#include "comm/near/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

// ---- calls

static void near_call_post(struct near *n, const struct comm_call *call) {
    struct near_slot *own = near_slot(n, n->base->index);
    own->peer = call->peer;
    own->operation = (uint8_t)call->operation;
    own->dtype = (uint8_t)call->dtype;
    own->wire = (uint8_t)call->wire;
    own->reduction = (uint8_t)call->reduction;
    own->count = call->count;
    own->in = call->in;
    own->out = call->out;
    atomic_store_explicit(&own->number, n->calls, memory_order_release);
    near_ring_sleepers(n);
}

static struct comm_call call_posted(const struct near *n, int member) {
    const struct near_slot *slot = near_slot(n, member);
    return (struct comm_call){.operation = (enum operation)slot->operation,
                              .dtype = (enum dtype)slot->dtype,
                              .wire = (enum dtype)slot->wire,
                              .reduction = (enum reduction)slot->reduction,
                              .peer = slot->peer,
                              .count = slot->count};
}

static trireme_status compare_posts(struct near *n, trireme_error *error) {
    struct comm_call first = call_posted(n, 0);
    for (int m = 1; m < n->base->size; m++) {
        struct comm_call other = call_posted(n, m);
        if (comm_calls_agree(&first, &other))
            continue;
        char text[2][COMM_CALL_TEXT];
        return communicator_refuse(n->base, error, COMM_DIFFERS, near_rank(n, m),
                                   "rank %d calls %s, but rank %d calls %s", near_rank(n, 0),
                                   comm_call_print(&first, text[0]), near_rank(n, m), comm_call_print(&other, text[1]));
    }
    return TRIREME_OK;
}

trireme_status near_call(struct near *n, const struct comm_call *call, bool *done, trireme_error *error) {
    *done = true;
    if (near_world_is_broken(n))
        return communicator_lost(n->base, call, NULL, error);
    n->calls++;
    n->slept = false;
    struct near_way way = {0};
    if (!near_slots(n, call, &way) && !near_pieces(n, call, &way))
        near_direct(n, call, &way);
    if (way.before)
        way.before(n, call);
    near_call_post(n, call);
    TRY(near_await_posts(n, call, error));
    TRY(compare_posts(n, error));
    *done = way.after != NULL;
    return way.after ? way.after(n, call, error) : TRIREME_OK;
}

void near_wake(struct near *n) {
    near_ring(&n->member[n->base->index]);
}

// ---- opening

static size_t shared_bytes(const struct near *n) {
    return (size_t)n->base->size * sizeof(struct near_member);
}

static bool near_call_map(struct near *n, int file) {
    void *p = mmap(NULL, shared_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED)
        return false;
    n->member = p;
    return true;
}

int near_create(struct near *n) {
    const int *node = n->neighbours->node;
    bool near = n->neighbours->shares && n->base->size > 1;
    for (int m = 0; m < n->base->size; m++)
        near &= node[near_rank(n, m)] == node[near_rank(n, n->base->index)];
    if (!near || n->base->index > 0)
        return -1;
    int file = memfd_create("trireme group", MFD_CLOEXEC);
    if (file < 0)
        return -1;
    if (ftruncate(file, (off_t)shared_bytes(n)) == 0 && near_call_map(n, file))
        return file;
    close(file);
    return -1;
}

static int near_call_open_of(int64_t process, int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)process, file);
    return open(path, O_RDWR | O_CLOEXEC);
}

trireme_status near_join(struct near *n, int file, trireme_error *error) {
    int own = near_call_open_of(n->neighbours->process_id[near_rank(n, 0)], file);
    bool mapped = own >= 0 && near_call_map(n, own);
    int code = errno;
    if (own >= 0)
        close(own);
    if (mapped)
        return TRIREME_OK;
    return communicator_refuse(n->base, error, COMM_BROKEN, near_rank(n, 0),
                               "rank %d cannot map the memory of rank %d: %s", near_rank(n, n->base->index),
                               near_rank(n, 0), strerror(code));
}

void near_release(struct near *n) {
    if (n->member)
        munmap(n->member, shared_bytes(n));
}

// ---- what this system lets processes do

void near_offer(struct near_probe *probe) {
    probe->word = (uint64_t)clock_now() ^ (uint64_t)getpid() << 40;
    probe->address = (uint64_t)(uintptr_t)&probe->word;
    probe->file = memfd_create("trireme probe", MFD_CLOEXEC);
    // Where only a debugger may read a process (Yama), this lets other processes of the same user read this one.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

void near_try(const struct near_probe *theirs, int64_t process, bool *shares, bool *reads) {
    int file = theirs->file < 0 ? -1 : near_call_open_of(process, theirs->file);
    *shares &= file >= 0;
    if (file >= 0)
        close(file);
    uint64_t word = 0;
    struct iovec here = {&word, sizeof word}, there = {(void *)(uintptr_t)theirs->address, sizeof word};
    *reads &= process_vm_readv((pid_t)process, &here, 1, &there, 1, 0) == sizeof word && word == theirs->word;
}
