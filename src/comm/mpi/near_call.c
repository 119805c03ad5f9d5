// Collective calls of members that share memory, how they come to share it, and whether they may.
#include "comm/mpi/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

// ---- calls

static void near_call_post(struct process_communicator *c, const struct comm_call *call) {
    struct near_slot *own = near_slot(c, c->base.index);
    own->peer = call->peer;
    own->operation = (uint8_t)call->operation;
    own->dtype = (uint8_t)call->dtype;
    own->wire = (uint8_t)call->wire;
    own->reduction = (uint8_t)call->reduction;
    own->count = call->count;
    own->in = call->in;
    own->out = call->out;
    atomic_store_explicit(&own->number, c->near->calls, memory_order_release);
    near_ring_sleepers(c);
}

static struct comm_call call_posted(const struct process_communicator *c, int member) {
    const struct near_slot *slot = near_slot(c, member);
    return (struct comm_call){.operation = (enum operation)slot->operation,
                              .dtype = (enum dtype)slot->dtype,
                              .wire = (enum dtype)slot->wire,
                              .reduction = (enum reduction)slot->reduction,
                              .peer = slot->peer,
                              .count = slot->count};
}

static trireme_status compare_posts(struct process_communicator *c, trireme_error *error) {
    struct comm_call first = call_posted(c, 0);
    for (int m = 1; m < c->base.size; m++) {
        struct comm_call other = call_posted(c, m);
        if (comm_calls_agree(&first, &other))
            continue;
        char text[2][COMM_CALL_TEXT];
        c->error = error;
        round_refuse(c, "rank %d calls %s, but rank %d calls %s", c->rank[0], comm_call_print(&first, text[0]),
                     c->rank[m], comm_call_print(&other, text[1]));
        return c->status;
    }
    return TRIREME_OK;
}

trireme_status near_call(struct process_communicator *c, const struct comm_call *call, bool *done,
                         trireme_error *error) {
    *done = true;
    if (atomic_load(&c->world->broken))
        return process_lost(c, call, "", error);
    struct near *n = c->near;
    n->calls++;
    n->slept = false;
    struct near_way way = {0};
    if (!near_slots(c, call, &way) && !near_pieces(c, call, &way))
        near_direct(c, call, &way);
    if (way.before)
        way.before(c, call);
    near_call_post(c, call);
    TRY(near_await_posts(c, call, error));
    TRY(compare_posts(c, error));
    *done = way.after != NULL;
    return way.after ? way.after(c, call, error) : TRIREME_OK;
}

// ---- opening

static size_t shared_bytes(const struct process_communicator *c) {
    return (size_t)c->base.size * sizeof(struct near_member);
}

static bool near_call_map(struct process_communicator *c, int file) {
    void *p = mmap(NULL, shared_bytes(c), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED)
        return false;
    c->near = mem_alloc(sizeof *c->near);
    c->near->member = p;
    return true;
}

int near_create(struct process_communicator *c) {
    struct process_world *w = c->world;
    bool near = w->shares && c->base.size > 1;
    for (int m = 0; m < c->base.size; m++)
        near &= w->node[c->rank[m]] == w->node[c->rank[c->base.index]];
    if (!near || c->base.index > 0)
        return -1;
    int file = memfd_create("trireme group", MFD_CLOEXEC);
    if (file < 0)
        return -1;
    if (ftruncate(file, (off_t)shared_bytes(c)) == 0 && near_call_map(c, file))
        return file;
    close(file);
    return -1;
}

static int near_call_open_of(int64_t process, int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)process, file);
    return open(path, O_RDWR | O_CLOEXEC);
}

trireme_status near_join(struct process_communicator *c, int file, trireme_error *error) {
    struct process_world *w = c->world;
    if (c->base.index > 0) {
        int own = near_call_open_of(w->process_id[c->rank[0]], file);
        bool mapped = own >= 0 && near_call_map(c, own);
        int code = errno;
        if (own >= 0)
            close(own);
        if (!mapped) {
            c->error = error;
            round_refuse(c, "rank %d cannot map the memory of rank %d: %s", w->base.place.rank, c->rank[0],
                         strerror(code));
            return c->status;
        }
    }
    pthread_mutex_lock(&w->lock);
    c->near->next = w->near;
    w->near = c;
    pthread_mutex_unlock(&w->lock);
    // When the barrier is over, all have mapped the memory.
    bool done;
    return near_call(c, &(struct comm_call){.operation = OPERATION_BARRIER}, &done, error);
}

void near_release(struct process_communicator *c) {
    struct process_world *w = c->world;
    if (!c->near)
        return;
    pthread_mutex_lock(&w->lock);
    for (struct process_communicator **at = &w->near; *at; at = &(*at)->near->next)
        if (*at == c) {
            *at = c->near->next;
            break;
        }
    pthread_mutex_unlock(&w->lock);
    munmap(c->near->member, shared_bytes(c));
    free(c->near);
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
