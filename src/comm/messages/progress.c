// The thread that calls the wire.
#include "comm/messages/messages.h"

#include <sys/prctl.h>

#include "base/clock.h"

// Nanoseconds.
enum {
    SPIN = 20000,
    SLEEP_LEAST = 5000,
    SLEEP_MOST = 500000,
    SLEEP_IDLE = 10000000,  // without calls: sent messages may still need a push, and others may have broken the world
    WATCH = 20000000,       // between looks whether neighbours are alive
    LAST_WORDS = 200000000, // from the end of a world to the last call of the wire
    END_GRACE = 2000000000, // beyond the deadline: others, whose calls have it too, first tell what they miss
};

// ---- the end of a world

static void give_up(struct process_communicator *c) {
    if (c->lost)
        return;
    const struct missing missing = round_missing(c);
    c->status = communicator_lost(&c->base, c->call, &missing, c->error);
    c->lost = true;
}

// Takes note of a rank that knows the world to be broken. The one at fault does not count: it may have been stopped,
// and miss the others.
static void note_speaker(struct process_world *w, int rank) {
    struct comm_failure failure;
    world_failure(&w->base, &failure);
    if (rank != failure.rank || failure.cause != COMM_LOST)
        atomic_store(&w->base.speaker, MIN(rank, atomic_load(&w->base.speaker)));
}

// Tells all other ranks that the world is broken, and cancels what is under way.
static void progress_spread(struct process_world *w) {
    struct wire *wire = w->wire;
    struct comm_failure failure;
    w->is_told = true;
    w->silence = clock_now() + LAST_WORDS;
    world_failure(&w->base, &failure);
    note_speaker(w, wire->rank);
    w->told = (struct break_header){.cause = (int32_t)failure.cause, .rank = failure.rank, .from = wire->rank};
    memcpy(w->told.reason, failure.reason, sizeof w->told.reason);
    for (int r = 0; r < wire->ranks; r++)
        if (r != wire->rank && !wire->functions->send(wire, r, TAG_BREAK, &w->told, sizeof w->told, &w->tells[r]))
            w->tells[r] = (struct wire_request){0};
    for (struct process_communicator *c = w->active; c; c = c->next) {
        give_up(c);
        for (size_t i = 0; i < c->pending.count; i++)
            if (c->way.item[i].receives && c->pending.item[i].bits)
                wire->functions->cancel(wire, &c->pending.item[i]);
    }
}

static void progress_hear(struct process_world *w) {
    if (!w->wire->functions->receive(w->wire, WIRE_ANY, TAG_BREAK, &w->heard, sizeof w->heard, &w->hears))
        w->hears = (struct wire_request){0};
}

static bool progress_listen(struct process_world *w) {
    int done;
    char reason[WIRE_REASON];
    if (!w->hears.bits || w->wire->functions->test(w->wire, &w->hears, 1, &done, reason) <= 0)
        return false;
    w->heard.reason[COMM_REASON - 1] = 0;
    world_break(&w->base, (enum comm_cause)w->heard.cause, w->heard.rank, w->heard.reason);
    note_speaker(w, w->heard.from);
    progress_hear(w);
    return true;
}

static void progress_speak(struct process_world *w) {
    char reason[WIRE_REASON];
    w->wire->functions->test(w->wire, w->tells, w->wire->ranks, w->tells_done, reason);
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
        c->deadline = comm_call_deadline(&w->base, c->call);
        round_begin(c, NULL);
        if (atomic_load(&w->base.broken)) {
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
        if (!c->deadline.limit || looked < deadline_due(&c->deadline) || c->lost)
            continue;
        char list[MISSING_TEXT], text[COMM_CALL_TEXT];
        const struct missing missing = round_missing(c);
        missing_text(&missing, list);
        round_refuse(c, COMM_LOST, missing.first, "rank %d waited %.3g s in %s for%s", w->base.place.rank,
                     (double)c->deadline.limit * 1e-9, comm_call_print(c->call, text), list);
    }
}

static void check_neighbours(struct process_world *w, int64_t now) {
    const int dead = neighbours_dead(&w->neighbours);
    if (dead < 0)
        return;
    if (!w->missed)
        w->missed = now;
    if (now - w->missed < NEIGHBOUR_GRACE)
        return;
    char reason[COMM_REASON];
    snprintf(reason, sizeof reason, NEIGHBOUR_HAS_DIED, dead, w->base.place.host);
    world_break(&w->base, COMM_LOST, dead, reason);
}

// Looks at the clock. Time in which this process was stopped does not count: all others may have been stopped with it.
static void progress_look(struct process_world *w) {
    int64_t looked = atomic_load(&w->looked), now = clock_now(), away = now - looked;
    int64_t lost = deadline_look(&looked, now);
    for (struct process_communicator *c = w->active; c && lost; c = c->next)
        deadline_excuse(&c->deadline, now, lost);
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
    if (w->is_told)
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
    while (!atomic_load(&w->ending) || w->active || (atomic_load(&w->base.broken) && !w->silent)) {
        uint32_t seen = atomic_load(&w->inbox.word);
        progress_look(w);
        bool moved = take_posted(w);
        if (!w->silent)
            moved |= progress_listen(w);
        if (atomic_load(&w->base.broken) && !w->is_told)
            progress_spread(w);
        moved |= progress_advance(w);
        if (w->is_told && !w->silent)
            progress_speak(w);
        int64_t now = clock_now();
        if (moved) {
            quiet_since = now;
            continue;
        }
        if (now - quiet_since < w->spin && w->active)
            continue;
        check_deadlines(w);
        if (now - watched > WATCH && !w->is_told) {
            check_neighbours(w, now);
            watched = now;
        }
        gate_wait(&w->inbox, seen, 0, now + pause_of(w, now, now - quiet_since));
    }
}

// ---- start and end

// Finds out which ranks share this node, and what they can do there: all ranks must come to the same answer.
static trireme_status find_neighbours(struct process_world *w, trireme_error *error) {
    struct wire *wire = w->wire;
    struct presence *own = presence_create(wire->node);
    void *all = mem_alloc((size_t)wire->ranks * presence_bytes());
    unsigned char *can = mem_alloc((size_t)wire->ranks);
    trireme_status status = meeting_exchange(wire, own, all, (int64_t)presence_bytes(), error);
    if (status == TRIREME_OK) {
        neighbours_find(&w->neighbours, &w->base.place, all);
        const unsigned char mine = (unsigned char)(w->neighbours.shares | w->neighbours.reads << 1);
        status = meeting_exchange(wire, &mine, can, 1, error);
    }
    for (int r = 0; r < wire->ranks && status == TRIREME_OK; r++) {
        w->neighbours.shares &= can[r] & 1;
        w->neighbours.reads &= can[r] >> 1;
    }
    presence_free(own);
    free(all);
    free(can);
    return status;
}

static trireme_status progress_begin(struct process_world *w, trireme_error *error) {
    struct wire *wire = w->wire;
    TRY(wire->functions->start(wire, error));
    w->base.ranks = wire->ranks;
    w->base.place.ranks = wire->ranks;
    w->base.place.rank = wire->rank;
    w->last_number = wire->last_tag / MESSAGES - 1;
    w->numbers = NUMBERS;
    TRY(find_neighbours(w, error));
    const struct world_place *place = &w->base.place;
    w->spin = place->node_ranks > place->cores * place->node_ranks / place->core_ranks ? 0 : SPIN;
    w->tells = mem_alloc((size_t)wire->ranks * sizeof *w->tells);
    w->tells_done = mem_alloc((size_t)wire->ranks * sizeof *w->tells_done);
    progress_hear(w);
    return TRIREME_OK;
}

// The wire's last call waits for all ranks, perhaps for ever: so ranks meet before it, with a deadline.
static bool meet_last(struct process_world *w) {
    struct meeting meeting;
    const int64_t limit = w->base.deadline;
    struct deadline deadline = deadline_begin(limit ? limit + END_GRACE : 0, NULL);
    int met = meeting_begin(&meeting, w->wire) ? 0 : -1;
    while (met == 0 && (met = meeting_test(&meeting)) == 0) {
        progress_look(w);
        progress_listen(w);
        if (atomic_load(&w->base.broken) || deadline_ended(&deadline))
            break;
        const int64_t now = clock_now();
        check_neighbours(w, now);
        gate_wait(&w->inbox, atomic_load(&w->inbox.word), 0, now + SLEEP_MOST);
    }
    if (met > 0)
        meeting_release(&meeting);
    return met > 0;
}

static void tell_left(struct process_world *w, uint32_t what) {
    atomic_store(&w->left.word, what);
    gate_wake(&w->left);
}

static void progress_end(struct process_world *w) {
    struct wire *wire = w->wire;
    if (!atomic_load(&w->base.broken) && meet_last(w)) {
        int done;
        char reason[WIRE_REASON];
        if (w->hears.bits)
            wire->functions->cancel(wire, &w->hears);
        while (w->hears.bits && wire->functions->test(wire, &w->hears, 1, &done, reason) == 0)
            ;
        tell_left(w, LEAVING);
        wire->functions->end(wire);
    }
    neighbours_release(&w->neighbours);
    free((char *)w->base.place.host);
    free(w->tells);
    free(w->tells_done);
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
