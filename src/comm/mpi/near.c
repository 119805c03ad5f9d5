#include "comm/mpi/near.h"

#include <errno.h>
#include <sys/uio.h>
#include <time.h>

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

// Prints the ranks that have not come, " rank 1" or " ranks 1, 3"; returns how many.
static int near_missing(const struct process_communicator *c, enum what what, uint32_t value, char text[MISSING_TEXT]) {
    struct missing list = {0};
    for (int m = 0; m < c->base.size; m++)
        if (m != c->base.index && !has_come(c, m, what, value))
            missing_add(&list, c->rank[m]);
    missing_text(&list, text);
    return list.count;
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
    char missing[MISSING_TEXT], text[COMM_CALL_TEXT];
    trireme_status status = TRIREME_OK;
    struct patience *patience = &c->near->patience;
    if (!c->near->slept)
        *patience = patience_begin(w->base.deadline, call->wanted);
    c->near->slept = true;
    // Others change the word and then look whether this member sleeps; this member says that it sleeps and then looks
    // at the word: so one of the two sees the other.
    for (;;) {
        uint32_t seen = atomic_load(&own->bell);
        atomic_store(&own->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (has_come(c, member, what, value))
            break;
        if (atomic_load(&w->broken)) {
            near_missing(c, what, value, missing);
            status = process_lost(c, call, missing, error);
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

static trireme_status near_wait_for(struct process_communicator *c, const struct comm_call *call, enum what what,
                                    uint32_t value, trireme_error *error) {
    for (int k = 1; k < c->base.size; k++) {
        int member = (c->base.index + k) % c->base.size;
        if (!has_come(c, member, what, value) && !comes_soon(c, member, what, value))
            TRY(sleep_until(c, call, member, what, value, error));
    }
    return TRIREME_OK;
}

trireme_status near_await_posts(struct process_communicator *c, const struct comm_call *call, trireme_error *error) {
    return near_wait_for(c, call, POSTS, c->near->calls, error);
}

trireme_status near_await(struct process_communicator *c, const struct comm_call *call, uint32_t steps,
                          trireme_error *error) {
    return near_wait_for(c, call, STEPS, steps, error);
}

void near_ring_sleepers(const struct process_communicator *c) {
    atomic_thread_fence(memory_order_seq_cst);
    for (int m = 0; m < c->base.size; m++)
        if (m != c->base.index && atomic_load_explicit(&c->near->member[m].asleep, memory_order_relaxed))
            near_ring(&c->near->member[m]);
}

void near_step(struct process_communicator *c) {
    atomic_store_explicit(&c->near->member[c->base.index].steps, ++c->near->steps, memory_order_release);
    near_ring_sleepers(c);
}

trireme_status near_meet(struct process_communicator *c, const struct comm_call *call, trireme_error *error) {
    near_step(c);
    return near_await(c, call, c->near->steps, error);
}

// ---- reading

// A member whose memory is gone may have left a broken world, and this process has not heard of that yet.
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
