// What other threads pass to the thread of messages: calls, and that the world is broken.
#include "comm/messages/messages.h"

#include "base/clock.h"

void process_wake(struct process_world *w) {
    atomic_fetch_add(&w->inbox.word, 1);
    gate_wake(&w->inbox);
}

trireme_status process_hand_over(struct process_communicator *c, const struct comm_call *call, trireme_error *error) {
    struct process_world *w = c->world;
    uint32_t seen = atomic_load(&c->finished.word);
    c->call = call;
    c->error = error;
    c->status = TRIREME_OK;
    c->lost = false;
    c->next = atomic_load(&w->posted);
    while (!atomic_compare_exchange_weak(&w->posted, &c->next, c))
        continue;
    process_wake(w);
    // No spinning: the thread may need this very core.
    gate_wait(&c->finished, seen, 0, 0);
    return c->status;
}

// How long this process was stopped just now, if the other ranks may have called it late for that; else 0. The thread
// of messages may not have noticed yet.
static int64_t stopped_just_now(struct process_world *w) {
    enum { SOON = 1000000000 }; // by then it is known what the others did meanwhile
    const int64_t now = clock_now(), looked = atomic_load(&w->looked), resumed = atomic_load(&w->resumed);
    if (looked && process_was_away(w, now - looked))
        return now - looked;
    return resumed && now - resumed < SOON ? atomic_load(&w->stopped) : 0;
}

// A process that was stopped finds that the others, which could not wait for it, are gone. Then the stop is the reason,
// not the failure that it sees first.
static void blame_stop(struct process_world *w) {
    const int64_t stopped = stopped_just_now(w);
    if (!stopped)
        return;
    struct comm_failure *failure = &w->base.failure;
    const struct comm_failure seen = *failure;
    failure->cause = COMM_LOST;
    failure->rank = w->base.place.rank;
    snprintf(failure->reason, sizeof failure->reason,
             "rank %d was stopped for %.3g s, and the others wait for it no longer than %.3g s: %.480s", failure->rank,
             (double)stopped * 1e-9, (double)w->base.deadline * 1e-9, seen.reason);
}

void process_broken(struct world *base) {
    struct process_world *w = (struct process_world *)base;
    blame_stop(w);
    for (struct near *n = w->near; n; n = n->next)
        near_wake(n);
    process_wake(w);
}
