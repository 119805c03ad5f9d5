#include "comm/near/near.h"

#include <errno.h>
#include <sys/uio.h>
#include <time.h>

#include "base/clock.h"

struct near_slot *near_slot(const struct near *n, int member) {
    return &n->member[member].slot[n->calls & 1];
}

// ---- waiting

enum what { POSTS, STEPS };

static bool has_come(const struct near *n, int member, enum what what, uint32_t value) {
    const _Atomic uint32_t *word = what == POSTS ? &near_slot(n, member)->number : &n->member[member].steps;
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

// The ranks that have not come.
static struct missing near_missing(const struct near *n, enum what what, uint32_t value) {
    struct missing list = {0};
    for (int m = 0; m < n->base->size; m++)
        if (m != n->base->index && !has_come(n, m, what, value))
            missing_add(&list, near_rank(n, m));
    return list;
}

static bool comes_soon(struct near *n, int member, enum what what, uint32_t value) {
    for (int64_t end = 0; n->spin;) {
        for (int i = 0; i < 64; i++) {
            if (has_come(n, member, what, value))
                return true;
            cpu_pause();
        }
        int64_t now = clock_now();
        if (!end)
            end = now + n->spin;
        if (now >= end)
            break;
    }
    return false;
}

static trireme_status near_late(struct near *n, const struct comm_call *call, const struct missing *missing,
                                trireme_error *error) {
    char list[MISSING_TEXT], text[COMM_CALL_TEXT];
    missing_text(missing, list);
    return communicator_refuse(n->base, error, COMM_LOST, missing->first, "rank %d waited %.3g s in %s for%s",
                               near_rank(n, n->base->index), (double)n->deadline.limit * 1e-9,
                               comm_call_print(call, text), list);
}

static trireme_status sleep_until(struct near *n, const struct comm_call *call, int member, enum what what,
                                  uint32_t value, trireme_error *error) {
    struct near_member *own = &n->member[n->base->index];
    trireme_status status = TRIREME_OK;
    if (!n->slept)
        n->deadline = comm_call_deadline(n->base->world, call);
    n->slept = true;
    // Others change the word and then look whether this member sleeps; this member says that it sleeps and then looks
    // at the word: so one of the two sees the other.
    for (;;) {
        uint32_t seen = atomic_load(&own->bell);
        atomic_store(&own->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (has_come(n, member, what, value))
            break;
        if (near_world_is_broken(n)) {
            const struct missing missing = near_missing(n, what, value);
            status = communicator_lost(n->base, call, &missing, error);
            break;
        }
        if (futex_sleep(&own->bell, seen, deadline_sleep(&n->deadline), true) || !deadline_ended(&n->deadline))
            continue;
        const struct missing missing = near_missing(n, what, value);
        if (missing.count > 0) {
            status = near_late(n, call, &missing, error);
            break;
        }
    }
    atomic_store(&own->asleep, 0);
    return status;
}

static trireme_status near_wait_for(struct near *n, const struct comm_call *call, enum what what, uint32_t value,
                                    trireme_error *error) {
    for (int k = 1; k < n->base->size; k++) {
        int member = (n->base->index + k) % n->base->size;
        if (!has_come(n, member, what, value) && !comes_soon(n, member, what, value))
            TRY(sleep_until(n, call, member, what, value, error));
    }
    return TRIREME_OK;
}

trireme_status near_await_posts(struct near *n, const struct comm_call *call, trireme_error *error) {
    return near_wait_for(n, call, POSTS, n->calls, error);
}

trireme_status near_await(struct near *n, const struct comm_call *call, uint32_t steps, trireme_error *error) {
    return near_wait_for(n, call, STEPS, steps, error);
}

void near_ring_sleepers(const struct near *n) {
    atomic_thread_fence(memory_order_seq_cst);
    for (int m = 0; m < n->base->size; m++)
        if (m != n->base->index && atomic_load_explicit(&n->member[m].asleep, memory_order_relaxed))
            near_ring(&n->member[m]);
}

void near_step(struct near *n) {
    atomic_store_explicit(&n->member[n->base->index].steps, ++n->steps, memory_order_release);
    near_ring_sleepers(n);
}

trireme_status near_meet(struct near *n, const struct comm_call *call, trireme_error *error) {
    near_step(n);
    return near_await(n, call, n->steps, error);
}

// ---- reading

// A member whose memory is gone may have left a broken world, and this process has not heard of that yet.
static void await_reason(const struct near *n) {
    const int64_t until = clock_now() + NEIGHBOUR_GRACE;
    while (!near_world_is_broken(n) && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

trireme_status near_read(struct near *n, int member, void *to, const void *from, int64_t bytes, trireme_error *error) {
    const int rank = near_rank(n, member);
    for (int64_t at = 0; at < bytes;) {
        size_t most = (size_t)MIN(bytes - at, NEAR_MESSAGE);
        struct iovec here = {(char *)to + at, most}, there = {(char *)(uintptr_t)from + at, most};
        ssize_t done = process_vm_readv((pid_t)n->neighbours->process_id[rank], &here, 1, &there, 1, 0);
        if (done > 0) {
            at += done;
            continue;
        }
        int code = done < 0 ? errno : EIO;
        if (code == EINTR)
            continue;
        await_reason(n);
        if (code == ESRCH)
            return communicator_refuse(n->base, error, COMM_LOST, rank, NEIGHBOUR_HAS_DIED, rank,
                                       n->base->world->place.host);
        return communicator_refuse(n->base, error, COMM_BROKEN, rank, "rank %d cannot read the memory of rank %d: %s",
                                   near_rank(n, n->base->index), rank, strerror(code));
    }
    return TRIREME_OK;
}
