// What other threads pass to the thread of MPI: calls, and that the world is broken.
#include "comm/mpi/near.h"

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
// of MPI may not have noticed yet.
static int64_t stopped_just_now(struct process_world *w) {
    enum { SOON = 1000000000 }; // by then it is known what the others did meanwhile
    const int64_t now = clock_now(), looked = atomic_load(&w->looked), resumed = atomic_load(&w->resumed);
    if (looked && process_was_away(w, now - looked))
        return now - looked;
    return resumed && now - resumed < SOON ? atomic_load(&w->stopped) : 0;
}

// Wakes callers of this process that sleep in memory that members share.
static void wake_near(struct process_world *w) {
    for (struct process_communicator *c = w->near; c; c = c->near->next)
        near_ring(&c->near->member[c->base.index]);
}

// A process that was stopped finds that the others, which could not wait for it, are gone. Then the stop is the reason,
// not the failure that it sees first.
void process_world_break(struct world *base, const char *reason) {
    struct process_world *w = (struct process_world *)base;
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->broken)) {
        const int64_t stopped = stopped_just_now(w);
        if (stopped)
            snprintf(w->reason, sizeof w->reason,
                     "rank %d was stopped for %.3g s, and the others wait for it no longer than %.3g s: %.480s",
                     w->base.place.rank, (double)stopped * 1e-9, (double)w->base.deadline * 1e-9, reason);
        else
            snprintf(w->reason, sizeof w->reason, "%s", reason);
        atomic_store(&w->broken, true);
        wake_near(w);
    }
    pthread_mutex_unlock(&w->lock);
    process_wake(w);
}
