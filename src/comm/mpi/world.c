// A world of processes, as others see it.
#include "comm/mpi/processes.h"

#include "base/clock.h"

static void wake(struct process_world *w) {
    atomic_fetch_add(&w->inbox.word, 1);
    gate_wake(&w->inbox);
}

// How long this process was stopped just now, where the others may have lost it for that; else 0. The thread may not
// know yet.
static int64_t stopped_just_now(struct process_world *w) {
    enum { SOON = 1000000000 }; // what others did meanwhile is known by then
    const int64_t now = clock_now(), looked = atomic_load(&w->looked), resumed = atomic_load(&w->resumed);
    if (looked && process_was_away(w, now - looked))
        return now - looked;
    return resumed && now - resumed < SOON ? atomic_load(&w->stopped) : 0;
}

// A process that was stopped finds the others gone, who could not wait for it: that is why, not what it sees first.
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
        near_wake_all(w);
    }
    pthread_mutex_unlock(&w->lock);
    wake(w);
}

static void process_world_reason(struct world *base, char *text, size_t limit) {
    struct process_world *world = (struct process_world *)base;
    pthread_mutex_lock(&world->lock);
    snprintf(text, limit, "%s", world->reason);
    pthread_mutex_unlock(&world->lock);
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
    wake(w);
    // No spinning: the thread may need this very core.
    gate_wait(&c->finished, seen, 0, 0);
    return c->status;
}

static trireme_status process_call(struct communicator *base, const struct comm_call *call, trireme_error *error) {
    struct process_communicator *c = (struct process_communicator *)base;
    if (call->operation == OPERATION_SEND)
        return process_hand_over(c->sender, call, error);
    bool done = false;
    if (c->near && call->operation != OPERATION_RECEIVE)
        TRY(near_call(c, call, &done, error));
    return done ? TRIREME_OK : process_hand_over(c, call, error);
}

// Seconds that MPI may take to start, and to end, at least, however short the deadline is.
enum { START_LEAST = 20, END_LEAST = 5 };

static struct patience patience_with(const struct process_world *w, int64_t least) {
    const int64_t deadline = w->base.deadline;
    return patience_begin(deadline ? MAX(deadline, least * 1000000000) : 0, NULL);
}

// A rank that is stopped in MPI's last call keeps the others there, for ever perhaps: then they leave it, too, and
// nothing of the thread can be released.
static void process_world_free(struct world *base) {
    struct process_world *w = (struct process_world *)base;
    atomic_store(&w->ending, true);
    wake(w);
    gate_wait(&w->left, 0, 0, 0);
    struct patience patience = patience_with(w, END_LEAST);
    while (!gate_wait(&w->left, LEAVING, 0, patience_sleep(&patience)))
        if (patience_ended(&patience))
            return;
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static const struct transport PROCESSES = {
    .world_free = process_world_free,
    .world_break = process_world_break,
    .world_reason = process_world_reason,
    .open = process_open,
    .close = process_close,
    .run = process_call,
};

trireme_status world_create_mpi(struct world **out, double deadline, trireme_error *error) {
    struct process_world *w = mem_alloc(sizeof *w);
    w->base.transport = &PROCESSES;
    world_deadline(&w->base, deadline);
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, progress_run, w)) {
        free(w);
        FAIL(TRIREME_ERROR_IO, "cannot start the thread of MPI");
    }
    // The thread is in MPI, for ever perhaps: nothing of it can be released.
    struct patience patience = patience_with(w, START_LEAST);
    while (!gate_wait(&w->started, 0, 0, patience_sleep(&patience)))
        if (patience_ended(&patience)) {
            char who[BREAK_TEXT];
            unstarted_print(who, sizeof who);
            FAIL(TRIREME_ERROR_LOST, "MPI has not started on all ranks within %.0f s: %s",
                 1e-9 * (double)patience.limit, who);
        }
    if (w->start_status != TRIREME_OK) {
        pthread_join(w->thread, NULL);
        *error = w->start_error;
        trireme_status status = w->start_status;
        free(w);
        return status;
    }
    *out = &w->base;
    return TRIREME_OK;
}

const char *world_mpi_version(void) {
#ifdef OPEN_MPI
    return "Open MPI";
#else
    return "MPICH";
#endif
}
