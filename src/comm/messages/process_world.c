// A world of processes: its functions in struct transport.
#include "base/parallel_for.h"
#include "comm/messages/messages.h"

static trireme_status process_call(struct communicator *base, const struct comm_call *call, trireme_error *error) {
    struct process_communicator *c = (struct process_communicator *)base;
    if (call->operation == OPERATION_SEND)
        return process_hand_over(c->sender, call, error);
    bool done = false;
    if (c->near.member && call->operation != OPERATION_RECEIVE)
        TRY(near_call(&c->near, call, &done, error));
    return done ? TRIREME_OK : process_hand_over(c, call, error);
}

// Seconds that the wire may take at least to start, and to end, however short the deadline is.
enum { START_LEAST = 20, END_LEAST = 5 };

static struct deadline deadline_with(const struct process_world *w, int64_t least) {
    const int64_t limit = w->base.deadline;
    return deadline_begin(limit ? MAX(limit, least * 1000000000) : 0, NULL);
}

static void process_world_release(struct process_world *w) {
    w->wire->functions->release(w->wire);
    world_fini(&w->base);
    free(w);
}

// A rank that is stopped in the wire's last call keeps the other ranks in it, perhaps for ever: then they leave the
// call unfinished, and nothing of the thread can be released.
static bool process_world_free(struct world *base) {
    struct process_world *w = (struct process_world *)base;
    atomic_store(&w->ending, true);
    process_wake(w);
    gate_wait(&w->left, 0, 0, 0);
    struct deadline deadline = deadline_with(w, END_LEAST);
    while (!gate_wait(&w->left, LEAVING, 0, deadline_sleep(&deadline)))
        if (deadline_ended(&deadline))
            return true;
    pthread_join(w->thread, NULL);
    const bool broken = atomic_load(&w->base.broken);
    process_world_release(w);
    return !broken;
}

static const struct transport PROCESSES = {
    .world_free = process_world_free,
    .broken = process_broken,
    .open = process_open,
    .close = process_close,
    .run = process_call,
};

trireme_status world_create_messages(struct world **out, struct wire *wire, double deadline, trireme_error *error) {
    CHECK(wire->most >= WIRE_LEAST && wire->far >= WIRE_LEAST);
    struct process_world *w = mem_alloc(sizeof *w);
    world_init(&w->base, &PROCESSES, 0, deadline);
    w->wire = wire;
    trireme_status status = thread_start(&w->thread, progress_run, w, "the thread of messages", error);
    if (status != TRIREME_OK) {
        process_world_release(w);
        return status;
    }
    struct deadline start = deadline_with(w, START_LEAST);
    while (!gate_wait(&w->started, 0, 0, deadline_sleep(&start)))
        if (deadline_ended(&start)) {
            char who[COMM_REASON];
            wire->functions->unstarted(wire, who, sizeof who);
            FAIL(TRIREME_ERROR_LOST, "%s has not started on all ranks within %.0f s: %s", wire->name,
                 1e-9 * (double)start.limit, who);
        }
    status = w->start_status;
    if (status == TRIREME_OK) {
        *out = &w->base;
        return TRIREME_OK;
    }
    pthread_join(w->thread, NULL);
    error_repeat(error, &w->start_error);
    process_world_release(w);
    return status;
}
