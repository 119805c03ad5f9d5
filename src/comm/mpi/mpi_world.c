// A world of processes: its functions in struct transport.
#include "comm/mpi/mpi_world.h"
#include "base/crew.h"

static void process_world_reason(struct world *base, char *text, size_t limit) {
    struct process_world *world = (struct process_world *)base;
    pthread_mutex_lock(&world->lock);
    snprintf(text, limit, "%s", world->reason);
    pthread_mutex_unlock(&world->lock);
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

// Seconds that MPI may take at least to start, and to end, however short the deadline is.
enum { START_LEAST = 20, END_LEAST = 5 };

static struct patience patience_with(const struct process_world *w, int64_t least) {
    const int64_t deadline = w->base.deadline;
    return patience_begin(deadline ? MAX(deadline, least * 1000000000) : 0, NULL);
}

// A rank that is stopped in MPI's last call keeps the other ranks in it, perhaps for ever: then they leave the call
// unfinished, and nothing of the thread can be released.
static bool process_world_free(struct world *base) {
    struct process_world *w = (struct process_world *)base;
    atomic_store(&w->ending, true);
    process_wake(w);
    gate_wait(&w->left, 0, 0, 0);
    struct patience patience = patience_with(w, END_LEAST);
    while (!gate_wait(&w->left, LEAVING, 0, patience_sleep(&patience)))
        if (patience_ended(&patience))
            return true;
    pthread_join(w->thread, NULL);
    const bool broken = atomic_load(&w->broken);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return !broken;
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
    trireme_status started = thread_start(&w->thread, progress_run, w, "the thread of MPI", error);
    if (started != TRIREME_OK) {
        free(w);
        return started;
    }
    // If this gives up, the thread is still in MPI, perhaps for ever: nothing of it can be released.
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
