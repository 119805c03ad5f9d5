// How members of a group meet, what they post, and how a call ends in a broken world. threads.h has the protocol.
#include <time.h>

#include "comm/deadline.h"
#include "comm/threads/threads.h"

static struct thread_member *meet_own(const struct thread_communicator *c) {
    return &c->group->member[c->base.index];
}

static int own_rank(const struct thread_communicator *c) {
    return c->group->rank[c->base.index];
}

// ---- groups that have failed

trireme_status call_lost(struct thread_communicator *c, const struct comm_call *call, const struct missing *missing,
                         trireme_error *error) {
    for (int i = 0; i < c->base.size; i++)
        while (atomic_load(&c->group->member[i].inside))
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return communicator_lost(&c->base, call, missing, error);
}

trireme_status call_fail(struct thread_communicator *c, const struct comm_call *call, trireme_error *error,
                         enum comm_cause cause, int rank, const char *format, ...) {
    char reason[COMM_REASON];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    communicator_fail(&c->base, cause, rank, "%s", reason);
    call_lost(c, call, NULL, error);
    // The failure holds the reason of another rank where that was first; this rank's own says more here.
    return error_set(error, TRIREME_ERROR_LOST, "group %.40s: %s", c->base.name, reason);
}

// ---- meeting

// The ranks that have not come to this meeting.
static struct missing meeting_missing(const struct thread_communicator *c) {
    struct missing missing = {0};
    for (int i = 0; i < c->base.size; i++)
        if (atomic_load_explicit(&c->group->member[i].meetings, memory_order_acquire) != c->meetings)
            missing_add(&missing, c->group->rank[i]);
    return missing;
}

static trireme_status meeting_broken(struct thread_communicator *c, const struct comm_call *call,
                                     trireme_error *error) {
    const struct missing missing = meeting_missing(c);
    return call_lost(c, call, &missing, error);
}

static trireme_status meeting_late(struct thread_communicator *c, const struct comm_call *call, int64_t limit,
                                   const struct missing *missing, trireme_error *error) {
    char list[MISSING_TEXT], text[COMM_CALL_TEXT];
    missing_text(missing, list);
    return call_fail(c, call, error, COMM_LOST, missing->first, "rank %d waited %.3g s in %s for%s", own_rank(c),
                     (double)limit * 1e-9, comm_call_print(call, text), list);
}

trireme_status group_meet(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    struct group *group = c->group;
    uint32_t seen = c->meetings, next = (seen + 1) & ~BROKEN;
    c->meetings = next;
    atomic_store_explicit(&meet_own(c)->meetings, next, memory_order_release);
    if (atomic_fetch_add(&group->arrivals, 1) == (uint32_t)group->size - 1) {
        atomic_store_explicit(&group->arrivals, 0, memory_order_relaxed);
        if (!atomic_compare_exchange_strong(&group->meeting.word, &seen, next))
            return meeting_broken(c, call, error);
        gate_wake(&group->meeting);
        return TRIREME_OK;
    }
    struct deadline deadline = comm_call_deadline(&c->world->base, call);
    while (!gate_wait(&group->meeting, seen, c->world->spin, deadline_sleep(&deadline))) {
        if (!deadline_ended(&deadline))
            continue;
        // Where nobody is missing, the last to come is just opening the gate.
        const struct missing missing = meeting_missing(c);
        if (missing.count > 0)
            return meeting_late(c, call, deadline.limit, &missing, error);
    }
    // A meeting that all have come to counts for all, even if the group has failed since.
    if (atomic_load_explicit(&group->meeting.word, memory_order_acquire) == (seen | BROKEN))
        return meeting_broken(c, call, error);
    return TRIREME_OK;
}

// ---- calls

struct posted *posted_by(const struct thread_communicator *c, int index) {
    return &c->group->member[index].posted[c->calls & 1];
}

const void *const *posted_copies(const struct thread_communicator *c) {
    return c->group->copies[c->calls & 1];
}

trireme_status call_post(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    posted_by(c, c->base.index)->call = *call;
    TRY(group_meet(c, call, error));
    const struct comm_call *first = &posted_by(c, 0)->call;
    for (int i = 1; i < c->base.size; i++) {
        const struct comm_call *other = &posted_by(c, i)->call;
        char text[COMM_CALL_TEXT], other_text[COMM_CALL_TEXT];
        if (!comm_calls_agree(first, other))
            return call_fail(c, call, error, COMM_DIFFERS, c->group->rank[i], "rank %d calls %s, but rank %d calls %s",
                             c->group->rank[0], comm_call_print(first, text), c->group->rank[i],
                             comm_call_print(other, other_text));
    }
    return TRIREME_OK;
}

trireme_status call_enter(struct thread_communicator *c, const struct comm_call *call, struct gate *word,
                          trireme_error *error) {
    atomic_store(&meet_own(c)->inside, 1);
    if (!(atomic_load(&word->word) & BROKEN))
        return TRIREME_OK;
    call_abandon(c);
    return call_lost(c, call, NULL, error);
}

void call_abandon(struct thread_communicator *c) {
    atomic_store_explicit(&meet_own(c)->inside, 0, memory_order_release);
}

trireme_status call_leave(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    call_abandon(c);
    return group_meet(c, call, error);
}

trireme_status call_share(struct thread_communicator *c, const struct comm_call *call, const void *const **in,
                          void *const **out, trireme_error *error) {
    const struct group *group = c->group;
    const int turn = c->calls & 1;
    group->in[turn][c->base.index] = call->in;
    group->out[turn][c->base.index] = call->out;
    TRY(call_post(c, call, error));
    TRY(call_enter(c, call, &c->group->meeting, error));
    *in = group->in[turn];
    if (out)
        *out = group->out[turn];
    return TRIREME_OK;
}
