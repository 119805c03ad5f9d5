#include "comm/mpi/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

struct near_slot *near_slot(const struct process_communicator *c, int member) {
    return &c->near->member[member].slot[c->near->calls & 1];
}

// ---- waiting

enum what { POSTS, STEPS };

static bool has_come(const struct process_communicator *c, int member, enum what what, uint32_t value) {
    const _Atomic uint32_t *word = what == POSTS ? &near_slot(c, member)->number : &c->near->member[member].steps;
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

// " rank 1" or " ranks 1, 3" that have not come; how many.
static int near_missing(const struct process_communicator *c, enum what what, uint32_t value, char text[MISSING_TEXT]) {
    struct missing list = {0};
    for (int m = 0; m < c->base.size; m++)
        if (m != c->base.index && !has_come(c, m, what, value))
            missing_add(&list, c->rank[m]);
    missing_text(&list, text);
    return list.count;
}

static trireme_status near_lost(const struct process_communicator *c, const struct comm_call *call, const char *waiting,
                                trireme_error *error) {
    char text[COMM_CALL_TEXT];
    struct process_world *w = c->world;
    pthread_mutex_lock(&w->lock);
    trireme_status status = error_set(error, TRIREME_ERROR_LOST, "group %s: rank %d cannot go on with %s%s: %s",
                                      c->name, w->base.place.rank, comm_call_print(call, text), waiting, w->reason);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static bool comes_soon(struct process_communicator *c, int member, enum what what, uint32_t value) {
    for (int64_t end = 0; c->world->spin;) {
        for (int i = 0; i < 64; i++) {
            if (has_come(c, member, what, value))
                return true;
            cpu_pause();
        }
        int64_t now = clock_now();
        if (!end)
            end = now + c->world->spin;
        if (now >= end)
            break;
    }
    return false;
}

static trireme_status sleep_until(struct process_communicator *c, const struct comm_call *call, int member,
                                  enum what what, uint32_t value, trireme_error *error) {
    struct process_world *w = c->world;
    struct near_member *own = &c->near->member[c->base.index];
    char missing[MISSING_TEXT], text[COMM_CALL_TEXT], waiting[MISSING_TEXT + 32] = "";
    trireme_status status = TRIREME_OK;
    struct patience *patience = &c->near->patience;
    if (!c->near->slept)
        *patience = patience_begin(w->base.deadline, call->wanted);
    c->near->slept = true;
    // Others change the word, then look whether this member sleeps; it says so, then looks at the word.
    for (;;) {
        uint32_t seen = atomic_load(&own->bell);
        atomic_store(&own->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (has_come(c, member, what, value))
            break;
        if (atomic_load(&w->broken)) {
            near_missing(c, what, value, missing);
            snprintf(waiting, sizeof waiting, ", waiting for%s", missing);
            status = near_lost(c, call, waiting, error);
            break;
        }
        bool woken = futex_sleep(&own->bell, seen, patience_sleep(patience), true);
        if (!woken && patience_ended(patience) && near_missing(c, what, value, missing)) {
            c->error = error;
            round_refuse(c, "rank %d waited %.3g s in %s for%s", w->base.place.rank, (double)patience->limit * 1e-9,
                         comm_call_print(call, text), missing);
            status = c->status;
            break;
        }
    }
    atomic_store(&own->asleep, 0);
    return status;
}

static trireme_status await(struct process_communicator *c, const struct comm_call *call, enum what what,
                            uint32_t value, trireme_error *error) {
    for (int k = 1; k < c->base.size; k++) {
        int member = (c->base.index + k) % c->base.size;
        if (!has_come(c, member, what, value) && !comes_soon(c, member, what, value))
            TRY(sleep_until(c, call, member, what, value, error));
    }
    return TRIREME_OK;
}

trireme_status near_await(struct process_communicator *c, const struct comm_call *call, uint32_t steps,
                          trireme_error *error) {
    return await(c, call, STEPS, steps, error);
}

static void ring(struct near_member *member) {
    atomic_fetch_add(&member->bell, 1);
    futex_wake(&member->bell, true);
}

static void ring_sleepers(const struct process_communicator *c) {
    atomic_thread_fence(memory_order_seq_cst);
    for (int m = 0; m < c->base.size; m++)
        if (m != c->base.index && atomic_load_explicit(&c->near->member[m].asleep, memory_order_relaxed))
            ring(&c->near->member[m]);
}

void near_step(struct process_communicator *c) {
    atomic_store_explicit(&c->near->member[c->base.index].steps, ++c->near->steps, memory_order_release);
    ring_sleepers(c);
}

trireme_status near_meet(struct process_communicator *c, const struct comm_call *call, trireme_error *error) {
    near_step(c);
    return near_await(c, call, c->near->steps, error);
}

void near_wake_all(struct process_world *w) {
    for (struct process_communicator *c = w->near; c; c = c->near->next)
        ring(&c->near->member[c->base.index]);
}

// ---- reading

// A member whose memory is gone may have left a broken world, of which this process has not heard yet.
static void await_reason(const struct process_world *w) {
    const int64_t until = clock_now() + GRACE;
    while (!atomic_load(&w->broken) && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

trireme_status near_read(struct process_communicator *c, int member, void *to, const void *from, int64_t bytes,
                         trireme_error *error) {
    struct process_world *w = c->world;
    for (int64_t at = 0; at < bytes;) {
        size_t n = (size_t)MIN(bytes - at, MESSAGE_BYTES);
        struct iovec here = {(char *)to + at, n}, there = {(char *)(uintptr_t)from + at, n};
        ssize_t done = process_vm_readv((pid_t)w->process_id[c->rank[member]], &here, 1, &there, 1, 0);
        if (done > 0) {
            at += done;
            continue;
        }
        int code = done < 0 ? errno : EIO;
        if (code == EINTR)
            continue;
        c->error = error;
        await_reason(w);
        if (code == ESRCH)
            round_refuse(c, PROCESS_HAS_DIED, c->rank[member], w->base.place.host);
        else
            round_refuse(c, "rank %d cannot read the memory of rank %d: %s", w->base.place.rank, c->rank[member],
                         strerror(code));
        return c->status;
    }
    return TRIREME_OK;
}

// ---- calls

static void post(struct process_communicator *c, const struct comm_call *call) {
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
    ring_sleepers(c);
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
        return near_lost(c, call, "", error);
    struct near *n = c->near;
    n->calls++;
    n->slept = false;
    struct near_way way = {0};
    if (!near_slots(c, call, &way) && !near_pieces(c, call, &way))
        near_direct(c, call, &way);
    if (way.before)
        way.before(c, call);
    post(c, call);
    TRY(await(c, call, POSTS, n->calls, error));
    TRY(compare_posts(c, error));
    *done = way.after != NULL;
    return way.after ? way.after(c, call, error) : TRIREME_OK;
}

// ---- opening

static size_t shared_bytes(const struct process_communicator *c) {
    return (size_t)c->base.size * sizeof(struct near_member);
}

static bool map(struct process_communicator *c, int file) {
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
    if (ftruncate(file, (off_t)shared_bytes(c)) == 0 && map(c, file))
        return file;
    close(file);
    return -1;
}

static int open_of(int64_t process, int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)process, file);
    return open(path, O_RDWR | O_CLOEXEC);
}

trireme_status near_join(struct process_communicator *c, int file, trireme_error *error) {
    struct process_world *w = c->world;
    if (c->base.index > 0) {
        int own = open_of(w->process_id[c->rank[0]], file);
        bool mapped = own >= 0 && map(c, own);
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
    // All have mapped it when this is over.
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
    // Where only a debugger may read a process, this one lets itself be read: by those of the same user.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

void near_try(const struct near_probe *theirs, int64_t process, bool *shares, bool *reads) {
    int file = theirs->file < 0 ? -1 : open_of(process, theirs->file);
    *shares &= file >= 0;
    if (file >= 0)
        close(file);
    uint64_t word = 0;
    struct iovec here = {&word, sizeof word}, there = {(void *)(uintptr_t)theirs->address, sizeof word};
    *reads &= process_vm_readv((pid_t)process, &here, 1, &there, 1, 0) == sizeof word && word == theirs->word;
}
