// The thread that calls MPI.
#include "comm/mpi/mpi_world.h"

#include <sys/prctl.h>

#include "base/clock.h"

// Nanoseconds.
enum {
    SPIN = 20000,
    SLEEP_LEAST = 5000,
    SLEEP_MOST = 500000,
    SLEEP_IDLE = 10000000,  // without calls: sent messages may still need a push, and others may have broken the world
    WATCH = 20000000,       // between looks whether neighbours are alive
    LAST_WORDS = 200000000, // from the end of a world to the last call of MPI
    END_GRACE = 2000000000, // beyond the deadline: others, whose calls have it too, first tell what they miss
};
enum { TAG_BREAK = 0 };

// ---- the end of a world

static void give_up(struct process_communicator *c) {
    char missing[MISSING_TEXT];
    if (c->lost)
        return;
    c->status = process_lost(c, c->call, missing_print(c, missing) ? missing : "", c->error);
    c->lost = true;
}

// Tells all other ranks that the world is broken, and cancels what is under way.
static void progress_spread(struct process_world *w) {
    w->told = true;
    w->silence = clock_now() + LAST_WORDS;
    pthread_mutex_lock(&w->lock);
    memcpy(w->told_text, w->reason, sizeof w->told_text);
    pthread_mutex_unlock(&w->lock);
    for (int r = 0; r < w->base.place.ranks; r++)
        if (r != w->base.place.rank &&
            MPI_Isend(w->told_text, BREAK_TEXT, MPI_BYTE, r, TAG_BREAK, w->comm, &w->tell[r]) != MPI_SUCCESS)
            w->tell[r] = MPI_REQUEST_NULL;
    for (struct process_communicator *c = w->active; c; c = c->next) {
        give_up(c);
        for (size_t i = 0; i < c->pending.count; i++)
            if (c->way.item[i].receives && c->pending.item[i] != MPI_REQUEST_NULL)
                MPI_Cancel(&c->pending.item[i]);
    }
}

static bool progress_listen(struct process_world *w) {
    int done = 0;
    if (MPI_Test(&w->break_receive, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
        return false;
    w->break_text[BREAK_TEXT - 1] = 0;
    process_world_break(&w->base, w->break_text);
    MPI_Irecv(w->break_text, BREAK_TEXT, MPI_BYTE, MPI_ANY_SOURCE, TAG_BREAK, w->comm, &w->break_receive);
    return true;
}

static void progress_speak(struct process_world *w) {
    int flag;
    MPI_Testall(w->base.place.ranks, w->tell, &flag, MPI_STATUSES_IGNORE);
    if (clock_now() > w->silence)
        w->silent = true;
}

// ---- calls

// Once the word has changed the caller may go on and free it: waking uses only its address.
static void progress_finish(struct process_communicator *c) {
    atomic_fetch_add(&c->finished.word, 1);
    futex_wake(&c->finished.word, false);
}

static bool take_posted(struct process_world *w) {
    struct process_communicator *c = atomic_exchange(&w->posted, NULL);
    bool any = c != NULL;
    while (c) {
        struct process_communicator *next = c->next;
        c->patience = patience_begin(w->base.deadline, c->call->wanted);
        round_begin(c, NULL);
        if (atomic_load(&w->broken)) {
            give_up(c);
            progress_finish(c);
        } else {
            c->next = w->active;
            w->active = c;
            call_begin(c);
        }
        c = next;
    }
    return any;
}

static bool progress_advance(struct process_world *w) {
    bool moved = false;
    for (struct process_communicator **at = &w->active; *at;) {
        struct process_communicator *c = *at;
        if (!w->silent)
            moved |= round_advance(c);
        if ((c->left > 0 || (c->after && !c->lost)) && !w->silent) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        progress_finish(c);
        moved = true;
    }
    return moved;
}

// Compares with the last look at the clock, not with now: everything that had arrived by then has been taken since,
// however long this thread was kept from running.
static void check_deadlines(struct process_world *w) {
    const int64_t looked = atomic_load(&w->looked);
    for (struct process_communicator *c = w->active; c; c = c->next) {
        if (!c->patience.limit || looked < patience_due(&c->patience) || c->lost)
            continue;
        char missing[MISSING_TEXT], text[COMM_CALL_TEXT];
        missing_print(c, missing);
        round_refuse(c, "rank %d waited %.3g s in %s for%s", w->base.place.rank, (double)c->patience.limit * 1e-9,
                     comm_call_print(c->call, text), missing);
    }
}

static void check_neighbours(struct process_world *w, int64_t now) {
    const int dead = neighbours_dead(w);
    if (dead < 0)
        return;
    if (!w->missed)
        w->missed = now;
    if (now - w->missed < GRACE)
        return;
    char reason[BREAK_TEXT];
    snprintf(reason, sizeof reason, PROCESS_HAS_DIED, dead, w->base.place.host);
    process_world_break(&w->base, reason);
}

// Looks at the clock. Time in which this process was stopped does not count: all others may have been stopped with it.
static void progress_look(struct process_world *w) {
    int64_t looked = atomic_load(&w->looked), now = clock_now(), away = now - looked;
    int64_t lost = patience_look(&looked, now);
    for (struct process_communicator *c = w->active; c && lost; c = c->next)
        patience_excuse(&c->patience, now, lost);
    if (process_was_away(w, away)) {
        atomic_store(&w->stopped, away);
        atomic_store(&w->resumed, now);
    }
    atomic_store(&w->looked, now);
}

// How long to sleep. Each call is looked at again after an eighth of the time that its round has taken, or is expected
// to take: often enough to be on time, and seldom enough to leave the core to computing.
static int64_t pause_of(const struct process_world *w, int64_t now, int64_t quiet) {
    if (w->silent)
        return SLEEP_IDLE;
    if (w->told)
        return SLEEP_MOST;
    if (!w->active)
        return quiet < 100 * SLEEP_MOST ? 2 * SLEEP_MOST : SLEEP_IDLE;
    int64_t pause = SLEEP_MOST;
    for (const struct process_communicator *c = w->active; c; c = c->next)
        pause = MIN(pause, MAX(now - c->since, c->pace) / 8);
    return MAX(pause, (int64_t)SLEEP_LEAST);
}

static void progress_drive(struct process_world *w) {
    int64_t quiet_since = clock_now(), watched = quiet_since;
    atomic_store(&w->looked, quiet_since);
    while (!atomic_load(&w->ending) || w->active || (atomic_load(&w->broken) && !w->silent)) {
        uint32_t seen = atomic_load(&w->inbox.word);
        progress_look(w);
        bool moved = take_posted(w);
        if (!w->silent)
            moved |= progress_listen(w);
        if (atomic_load(&w->broken) && !w->told)
            progress_spread(w);
        moved |= progress_advance(w);
        if (w->told && !w->silent)
            progress_speak(w);
        int64_t now = clock_now();
        if (moved) {
            quiet_since = now;
            continue;
        }
        if (now - quiet_since < w->spin && w->active)
            continue;
        check_deadlines(w);
        if (now - watched > WATCH && !w->told) {
            check_neighbours(w, now);
            watched = now;
        }
        gate_wait(&w->inbox, seen, 0, now + pause_of(w, now, now - quiet_since));
    }
}

// ---- start and end

static trireme_status progress_begin(struct process_world *w, trireme_error *error) {
    int done = 0, provided = 0;
    MPI_Initialized(&done);
    if (done)
        FAIL(TRIREME_ERROR_USAGE, "MPI has been started in this process before: it can be only once");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED)
        FAIL(TRIREME_ERROR_IO, "MPI cannot be started with a thread of its own");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &w->comm) != MPI_SUCCESS)
        FAIL(TRIREME_ERROR_IO, "MPI cannot duplicate its communicator");
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    int *largest_tag, known;
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &largest_tag, &known);
    w->last_number = (known ? *largest_tag : 32767) / MESSAGES - 1;
    w->numbers = 2;
    MPI_Comm_rank(w->comm, &w->base.place.rank);
    MPI_Comm_size(w->comm, &w->base.place.ranks);
    TRY(neighbours_find(w, error));
    w->spin =
        w->base.place.node_ranks > w->base.place.cores * w->base.place.node_ranks / w->base.place.core_ranks ? 0 : SPIN;
    w->tell = mem_alloc((size_t)w->base.place.ranks * sizeof *w->tell);
    for (int r = 0; r < w->base.place.ranks; r++)
        w->tell[r] = MPI_REQUEST_NULL;
    MPI_Irecv(w->break_text, BREAK_TEXT, MPI_BYTE, MPI_ANY_SOURCE, TAG_BREAK, w->comm, &w->break_receive);
    return TRIREME_OK;
}

// MPI_Finalize waits for all ranks for ever: so ranks meet before it, with a deadline.
static bool meet_last(struct process_world *w) {
    MPI_Request request;
    const int64_t deadline = w->base.deadline;
    struct patience patience = patience_begin(deadline ? deadline + END_GRACE : 0, NULL);
    if (MPI_Ibarrier(w->comm, &request) != MPI_SUCCESS)
        return false;
    for (int done = 0;;) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        if (done)
            return true;
        progress_look(w);
        progress_listen(w);
        if (atomic_load(&w->broken) || patience_ended(&patience))
            return false;
        const int64_t now = clock_now();
        check_neighbours(w, now);
        gate_wait(&w->inbox, atomic_load(&w->inbox.word), 0, now + SLEEP_MOST);
    }
}

static void tell_left(struct process_world *w, uint32_t what) {
    atomic_store(&w->left.word, what);
    gate_wake(&w->left);
}

static void progress_end(struct process_world *w) {
    if (!atomic_load(&w->broken) && meet_last(w)) {
        MPI_Cancel(&w->break_receive);
        MPI_Wait(&w->break_receive, MPI_STATUS_IGNORE);
        MPI_Comm_free(&w->comm);
        tell_left(w, LEAVING);
        MPI_Finalize();
    }
    neighbours_release(w);
    free(w->tell);
    tell_left(w, LEFT);
}

void *progress_run(void *world) {
    struct process_world *w = world;
    prctl(PR_SET_TIMERSLACK, 1000);
    w->start_status = progress_begin(w, &w->start_error);
    atomic_store(&w->started.word, 1);
    gate_wake(&w->started);
    if (w->start_status != TRIREME_OK)
        return NULL;
    progress_drive(w);
    progress_end(w);
    return NULL;
}
