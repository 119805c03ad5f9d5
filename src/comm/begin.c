// Calls that begin now and end later, over any transport: a thread of the communicator, which starts with the first of
// them, makes them one after the other, as a caller that blocks would.
#include "base/clock.h"
#include "base/parallel_for.h"
#include "comm/gate.h"
#include "comm/transport.h"

struct begun {
    struct comm_call call;
    bool is_open;           // begun, and not ended
    _Atomic int64_t wanted; // since when somebody waits for it; 0: nobody does
    trireme_status status;
    trireme_error error;
};

enum { ROOM = COMM_UNDER_WAY + 1 }; // with one for a call that blocks behind the others; a power of two

struct under_way {
    struct communicator *communicator;
    pthread_t thread;
    bool runs;             // the thread
    struct gate posted;    // changes when there is something for the thread to see
    _Atomic uint32_t last; // number of the last call begun, from 1
    struct gate done;      // number of the last call done
    atomic_bool closing;
    struct begun begun[ROOM]; // by number
};

static struct begun *begun_at(struct under_way *u, uint32_t number) {
    return &u->begun[number % ROOM];
}

static void under_way_post(struct under_way *u) {
    atomic_fetch_add(&u->posted.word, 1);
    gate_wake(&u->posted);
}

static void under_way_finish(struct under_way *u, uint32_t number) {
    atomic_store(&u->done.word, number);
    gate_wake(&u->done);
}

static void *under_way_run(void *argument) {
    struct under_way *u = argument;
    struct communicator *c = u->communicator;
    for (;;) {
        const uint32_t seen = atomic_load(&u->posted.word), done = atomic_load(&u->done.word);
        if (done != atomic_load(&u->last)) {
            struct begun *b = begun_at(u, done + 1);
            b->status = c->world->transport->run(c, &b->call, &b->error);
            under_way_finish(u, done + 1);
        } else if (atomic_load(&u->closing)) {
            return NULL;
        } else {
            gate_wait(&u->posted, seen, 0, 0);
        }
    }
}

bool under_way_any(const struct communicator *c) {
    const struct under_way *u = c->under_way;
    return u && atomic_load(&u->last) != atomic_load(&u->done.word);
}

struct comm_handle under_way_begin(struct communicator *c, const struct comm_call *call) {
    struct under_way *u = c->under_way;
    if (!u) {
        u = c->under_way = mem_alloc(sizeof *u);
        u->communicator = c;
    }
    const uint32_t number = atomic_load(&u->last) + 1;
    struct begun *b = begun_at(u, number);
    CHECK(!b->is_open);
    b->call = *call;
    b->call.wanted = &b->wanted;
    b->is_open = true;
    atomic_store(&b->wanted, 0);
    if (!u->runs) {
        b->status = thread_start(&u->thread, under_way_run, u, "the thread of calls that end later", &b->error);
        u->runs = b->status == TRIREME_OK;
    }
    atomic_store(&u->last, number);
    if (u->runs)
        under_way_post(u);
    else // this rank takes no part in the call, and says so at its end
        under_way_finish(u, number);
    return (struct comm_handle){c, number};
}

trireme_status comm_end(struct comm_handle handle, trireme_error *error) {
    struct under_way *u = handle.communicator->under_way;
    struct begun *b = begun_at(u, handle.number);
    CHECK(b->is_open && atomic_load(&u->last) - handle.number < ROOM);
    atomic_store(&b->wanted, clock_now());
    for (uint32_t done; (int32_t)((done = atomic_load(&u->done.word)) - handle.number) < 0;)
        gate_wait(&u->done, done, 0, 0);
    b->is_open = false;
    return b->status == TRIREME_OK ? TRIREME_OK : error_repeat(error, &b->error);
}

void under_way_release(struct communicator *c) {
    struct under_way *u = c->under_way;
    if (!u)
        return;
    trireme_error ignored;
    const uint32_t last = atomic_load(&u->last);
    // Who leaves calls behind has failed otherwise, and must not wait for ranks that wait for it elsewhere.
    if (under_way_any(c))
        communicator_fail(c, COMM_FAILED, c->rank[c->index], "rank %d has left it with calls under way",
                          c->rank[c->index]);
    for (uint32_t number = last - COMM_UNDER_WAY + 1; number != last + 1; number++)
        if (begun_at(u, number)->is_open)
            comm_end((struct comm_handle){c, number}, &ignored);
    atomic_store(&u->closing, true);
    under_way_post(u);
    if (u->runs)
        pthread_join(u->thread, NULL);
    free(u);
}
