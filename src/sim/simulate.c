#include "sim/sim_prepare.h"
#include "sim/transfers.h"

#include <math.h>

// A communicator between classes, as executors open them between ranks.
struct meeting {
    int members, arrived;
    int *member;          // classes
    double time, seconds; // over members that have arrived: the latest arrival, and the longest duration
};

// When each instruction of a stream ran.
struct ran {
    double begin, end;
};

// What an instruction of another stream than compute waited for last in its own class: the first `count` instructions
// of `stream`, which were over at `ready`. From then until it began it waited for other ranks.
struct cause {
    double ready;
    int32_t count;
    int8_t stream;
};

struct stream_state {    // a stream of a class
    int64_t done;        // instructions
    double end;          // of its last instruction
    size_t invocation;   // of the next instruction
    int position;        // of the next instruction in its lane
    struct ran *span;    // of each done instruction
    uint8_t *axis;       // of each done instruction; not on compute
    struct cause *cause; // of each done instruction and of the next one; not on compute
    double *computed;    // on compute: the seconds that the rank has computed when it has done each instruction
    int64_t paid;        // transfers, of those done, for which computing has paid (`pay`)
    int64_t beside;      // the first instruction of compute that may overlap the next transfer
    unsigned waiters;    // streams of the same class that wait for this one
    bool posted, queued, ended;
    double ready; // when it was posted
};

struct actor { // a class of ranks
    const struct prepared_program *program;
    double *seconds;
    int **meeting;        // [uses][stream_channel]: NONE: not open
    int *peer;            // [uses]: the class at the other end of messages
    double computed;      // what it had computed when it last met others within a layer
    VEC(struct ran) paid; // by time: when there were transfers for which computing has paid
    struct sim_class *out;
    struct stream_state stream[STREAMS_MAX];
};

struct ready {
    int who, stream;
};

struct event_loop {
    const struct prepared *prepared;
    struct topology topology;
    struct simulation *out;
    struct actor *actor;
    VEC(struct meeting) meetings;
    VEC(struct ready) stack;
    struct transfers transfers;
};

// ---- who meets whom

static int peer_class(const struct topology *p, int who, const struct link_use *use) {
    return topology_class(p, mesh_peer(&p->mesh, topology_rank(p, who), use->group, use->peer));
}

// The classes that a class's group consists of, each once, ascending.
static int classes_of_group(const struct topology *p, int who, const struct link_use *use, int *out) {
    int count = 0;
    if (use->peer) {
        int other = peer_class(p, who, use);
        out[count++] = MIN(who, other);
        if (other != who)
            out[count++] = MAX(who, other);
        return count;
    }
    // A class's coordinates along the axes are kinds.
    int base = who, stride = 1, size = 1, strides[AXIS_COUNT];
    for (int a = 0, rest = who; a < AXIS_COUNT; a++) {
        strides[a] = stride;
        if (use->group & AXES(a)) {
            base -= rest % p->kinds[a] * stride;
            size *= p->kinds[a];
        }
        rest /= p->kinds[a];
        stride *= p->kinds[a];
    }
    for (int i = 0; i < size; i++) {
        int member = base;
        for (int a = 0, rest = i; a < AXIS_COUNT; a++)
            if (use->group & AXES(a)) {
                member += rest % p->kinds[a] * strides[a];
                rest /= p->kinds[a];
            }
        out[count++] = member;
    }
    return count;
}

// Where the number of a class's meeting is kept.
static int *meeting_of(struct actor *a, int use, int channel) {
    if (!a->meeting[use]) {
        a->meeting[use] = mem_alloc(STREAMS_MAX * sizeof **a->meeting);
        for (int s = 0; s < STREAMS_MAX; s++)
            a->meeting[use][s] = NONE;
    }
    return &a->meeting[use][channel];
}

// The use by which a member knows the class's meeting: in a pair, the other end has the opposite distance.
static int use_of_member(const struct event_loop *l, int who, int use, int member) {
    const struct link_use *u = &l->prepared->uses.item[use];
    int theirs = use;
    if (u->peer && member != who)
        for (size_t k = 0; k < l->prepared->uses.count; k++) {
            const struct link_use *v = &l->prepared->uses.item[k];
            if (!v->message && v->group == u->group && v->peer == -u->peer &&
                peer_class(&l->topology, member, v) == who)
                theirs = (int)k;
        }
    return theirs;
}

static int open_meeting(struct event_loop *l, int who, int use, int channel) {
    int number = *meeting_of(&l->actor[who], use, channel);
    if (number != NONE)
        return number;
    struct meeting m = {.member = mem_alloc((size_t)l->topology.classes * sizeof(int))};
    m.members = classes_of_group(&l->topology, who, &l->prepared->uses.item[use], m.member);
    number = (int)l->meetings.count;
    VEC_PUSH(&l->meetings, m);
    for (int i = 0; i < m.members; i++)
        *meeting_of(&l->actor[m.member[i]], use_of_member(l, who, use, m.member[i]), channel) = number;
    return number;
}

// ---- accounts

// The axis of an instruction of another stream than compute that is arithmetic.
enum { NO_AXIS = AXIS_COUNT };

static void account_other(struct sim_class *out, uint8_t axis, double seconds) {
    if (axis != NO_AXIS) {
        out->exposed[axis] += seconds;
        return;
    }
    out->computing += seconds;
    out->part[SIM_REST] += seconds;
}

// Accounts for the time from `begin` to `end`, in which compute stood still until the first `count` instructions of
// `stream` were done: the time in which the last of these ran, before that the time of the instruction that it had
// waited for, and so on back. In the rest of the time compute waited for other ranks.
static void account_gap(struct sim_class *out, const struct actor *a, double begin, double end, int stream,
                        int64_t count) {
    double waited = end - begin;
    while (stream != STREAM_COMPUTE && count > 0 && end > begin) {
        const struct stream_state *state = &a->stream[stream];
        const struct ran *span = &state->span[count - 1];
        const struct cause *cause = &state->cause[count - 1];
        double seconds = MIN(end, span->end) - MAX(begin, span->begin);
        if (seconds > 0) {
            account_other(out, state->axis[count - 1], seconds);
            waited -= seconds;
        }
        end = MIN(end, MIN(span->begin, cause->ready));
        stream = cause->stream;
        count = cause->count;
    }
    out->bubble += MAX(0, waited);
}

// ---- events

static void simulate_enqueue(struct event_loop *l, int who, int stream) {
    struct stream_state *state = &l->actor[who].stream[stream];
    if (state->queued || state->ended)
        return;
    state->queued = true;
    VEC_PUSH(&l->stack, (struct ready){who, stream});
}

static void simulate_finish(struct actor *a, int stream, uint8_t axis, double begin, double end) {
    struct stream_state *state = &a->stream[stream];
    state->span[state->done] = (struct ran){begin, end};
    if (state->axis)
        state->axis[state->done] = axis;
    if (state->computed)
        state->computed[state->done] = a->out->computing;
    state->done++;
    state->position++;
    state->end = end;
    state->posted = false;
}

static void simulate_wake(struct event_loop *l, int who, int stream) {
    struct stream_state *state = &l->actor[who].stream[stream];
    unsigned waiters = state->waiters;
    state->waiters = 0;
    for (int s = 0; waiters; s++, waiters >>= 1)
        if (waiters & 1)
            simulate_enqueue(l, who, s);
}

static void account_communication(struct event_loop *l, int who, int stream, uint8_t axis, double seconds) {
    struct sim_class *out = &l->out->of_class[who];
    out->moving[axis] += seconds;
    if (stream == STREAM_COMPUTE)
        out->exposed[axis] += seconds;
}

// How long a rank waits for others in the middle of a layer, since no two compute equally fast at all times. It depends
// on the `before` instructions of compute before the meeting, however far compute has been simulated.
static double wait_within_layer(struct actor *a, int64_t before) {
    const struct device *device = a->out->station.device;
    double computed = before > 0 ? a->stream[STREAM_COMPUTE].computed[before - 1] : 0,
           since = fmax(0, computed - a->computed);
    a->computed += since;
    return device->meeting + device->jitter * since;
}

// Comes to a collective; false where other members have not come yet.
static bool simulate_meet(struct event_loop *l, int who, int stream, const struct lane_item *item, double ready,
                          const int64_t *awaited) {
    struct actor *a = &l->actor[who];
    int number = open_meeting(l, who, item->use, stream_channel(a->program->program, stream));
    struct meeting *m = &l->meetings.item[number];
    ready += stream_is(a->program->program, stream, STREAM_PROMPT) ? wait_within_layer(a, awaited[STREAM_COMPUTE]) : 0;
    m->time = m->arrived ? MAX(m->time, ready) : ready;
    m->seconds = m->arrived ? MAX(m->seconds, a->seconds[2 * item->number]) : a->seconds[2 * item->number];
    a->stream[stream].posted = true;
    if (++m->arrived < m->members)
        return false;
    m->arrived = 0;
    double end = m->time + m->seconds;
    for (int i = 0; i < m->members; i++) {
        account_communication(l, m->member[i], stream, item->axis, m->seconds);
        simulate_finish(&l->actor[m->member[i]], stream, item->axis, m->time, end);
        if (m->member[i] != who)
            simulate_enqueue(l, m->member[i], stream);
    }
    return true;
}

// Whether messages of one use are those of the other, seen from their other end.
static bool is_other_end(const struct event_loop *l, int32_t use, int32_t other) {
    const struct link_use *a = &l->prepared->uses.item[use], *b = &l->prepared->uses.item[other];
    return a->group == b->group && a->message == b->message &&
           (a->peer + b->peer) % mesh_group_size(&l->topology.mesh, a->group) == 0;
}

// What a stream that is posted waits with.
static const struct lane_item *posted_item(const struct actor *a, int stream) {
    const struct stream_state *state = &a->stream[stream];
    const struct invocation *v = &a->program->program->schedule.item[state->invocation];
    return &a->program->lane[v->template * STREAMS_MAX + stream].item[state->position];
}

static void finish_message_end(struct event_loop *l, int who, int stream, double begin, double end) {
    struct actor *a = &l->actor[who];
    const struct lane_item *item = posted_item(a, stream);
    account_communication(l, who, stream, item->axis, end - begin);
    simulate_finish(a, stream, item->axis, begin, end);
}

// Comes to an end of a message; false where that is not over yet: the other end has not come, or its links are shared.
static bool simulate_exchange(struct event_loop *l, int who, int stream, const struct lane_item *item, double ready) {
    int other = l->actor[who].peer[item->use], end_stream = stream_other_end(l->actor[who].program->program, stream);
    struct actor *a = &l->actor[who], *b = &l->actor[other];
    struct stream_state *mine = &a->stream[stream], *theirs = &b->stream[end_stream];
    mine->posted = true;
    mine->ready = ready;
    if (!theirs->posted)
        return false;
    const struct lane_item *there = posted_item(b, end_stream);
    if (!is_other_end(l, item->use, there->use) || b->peer[there->use] != who)
        return false; // it waits for another rank, and comes to this message later
    const bool sends = item->kind == LANE_SEND;
    const int use = sends ? item->use : there->use, sender = sends ? who : other;
    const double begin = MAX(ready, theirs->ready),
                 seconds = sends ? a->seconds[2 * item->number] : b->seconds[2 * there->number];
    if (transfers_share(&l->transfers, use, sender)) {
        const struct route *route = &l->topology.route[use][topology_rank(&l->topology, sender)];
        const double latency = MIN(seconds, cost_latency(l->topology.cluster, route));
        transfers_add(&l->transfers, &(struct transfer){.use = use,
                                                        .sender = sender,
                                                        .sender_stream = sends ? stream : end_stream,
                                                        .receiver = sends ? other : who,
                                                        .receiver_stream = sends ? end_stream : stream,
                                                        .begin = begin,
                                                        .latency = latency,
                                                        .left = seconds - latency});
        return false;
    }
    finish_message_end(l, who, stream, begin, begin + seconds);
    finish_message_end(l, other, end_stream, begin, begin + seconds);
    simulate_enqueue(l, other, end_stream);
    return true;
}

// Ends the next message of those that share links; false where there is none.
static bool end_transfer(struct event_loop *l) {
    struct transfer t;
    if (!transfers_next(&l->transfers, &t))
        return false;
    finish_message_end(l, t.sender, t.sender_stream, t.begin, l->transfers.now);
    finish_message_end(l, t.receiver, t.receiver_stream, t.begin, l->transfers.now);
    simulate_enqueue(l, t.sender, t.sender_stream);
    simulate_enqueue(l, t.receiver, t.receiver_stream);
    return true;
}

static void simulate_compute(struct sim_class *out, struct actor *a, const struct lane_item *item, bool accumulates,
                             double ready, double owed) {
    double seconds = a->seconds[2 * item->number + accumulates];
    out->computing += seconds;
    out->part[item->part] += seconds;
    simulate_finish(a, STREAM_COMPUTE, 0, ready, ready + owed + seconds);
}

// How long compute was at work between two times, looking from its instruction `first` on.
static double worked_between(const struct stream_state *compute, int64_t first, double begin, double end) {
    double seconds = 0;
    for (int64_t i = first; i < compute->done && compute->span[i].begin < end; i++)
        seconds += fmax(0, fmin(end, compute->span[i].end) - fmax(begin, compute->span[i].begin));
    return seconds;
}

// Puts a time in place of the paid ones from `first` to `end`, or where there are none before the one at `first`.
static void note_paid(struct actor *a, size_t first, size_t end, struct ran paid) {
    const size_t behind = a->paid.count - end;
    VEC_PUSH(&a->paid, paid); // room for one more
    memmove(&a->paid.item[first + 1], &a->paid.item[end], behind * sizeof paid);
    a->paid.item[first] = paid;
    a->paid.count = first + 1 + behind;
}

// How long compute was at work during a transfer, but for the time of transfers for which it has paid, among which this
// one then is.
static double worked_beside(struct actor *a, const struct ran *transfer, int64_t first_beside) {
    const struct stream_state *compute = &a->stream[STREAM_COMPUTE];
    struct ran all = *transfer; // with those that it touches
    size_t first = a->paid.count, end;
    while (first > 0 && a->paid.item[first - 1].end >= transfer->begin)
        first--;
    double seconds = 0, from = transfer->begin;
    for (end = first; end < a->paid.count && a->paid.item[end].begin <= transfer->end; end++) {
        const struct ran *paid = &a->paid.item[end];
        seconds += worked_between(compute, first_beside, from, paid->begin);
        from = fmax(from, paid->end);
        all = (struct ran){fmin(all.begin, paid->begin), fmax(all.end, paid->end)};
    }
    seconds += worked_between(compute, first_beside, from, transfer->end);
    note_paid(a, first, end, all);
    return seconds;
}

// Computing loses a part of the time in which it overlaps transfers. It pays when it waits for a transfer: that place
// in the program does not depend on the order in which streams are simulated. For what it overlaps several of it pays
// once.
static double simulate_pay(struct actor *a, const int64_t *awaited) {
    const struct stream_state *compute = &a->stream[STREAM_COMPUTE];
    const double part = a->out->station.device->communication;
    double sum = 0;
    for (int s = 0; s < STREAMS_MAX && part > 0; s++) {
        struct stream_state *state = &a->stream[s];
        for (; s != STREAM_COMPUTE && state->paid < awaited[s]; state->paid++) {
            const struct ran *transfer = &state->span[state->paid];
            while (state->beside < compute->done && compute->span[state->beside].end <= transfer->begin)
                state->beside++;
            if (state->axis[state->paid] != NO_AXIS && transfer->end > transfer->begin) {
                const double lost = part * worked_beside(a, transfer, state->beside);
                a->out->exposed[state->axis[state->paid]] += lost;
                sum += lost;
            }
        }
    }
    return sum;
}

static bool share_links(const struct topology *t, int who, int32_t use, int32_t other) {
    const int rank = topology_rank(t, who);
    const struct route *a = &t->route[use][rank], *b = &t->route[other][rank];
    for (int level = 0; level < CLUSTER_LEVELS_MAX; level++)
        if (a->parts[level] > 1 && b->parts[level] > 1)
            return true;
    return false;
}

// When all waits of the next instruction are over, and which of them last; how many instructions of each stream it
// waits for. False where some of these have not been simulated yet: then their stream will wake this one.
static bool simulate_find_waits(struct event_loop *l, int who, int stream, const struct lane_item *item,
                                struct cause *last, int64_t awaited[STREAMS_MAX]) {
    struct actor *a = &l->actor[who];
    struct stream_state *state = &a->stream[stream];
    const struct prepared_program *pp = a->program;
    *last = (struct cause){state->end, (int32_t)state->done, (int8_t)stream};
    for (int w = 0; w < item->waits; w++) {
        const struct lane_wait *wait = &pp->waits.item[item->first_wait + w];
        int64_t count;
        if (wait->use != NONE && !share_links(&l->topology, who, item->use, wait->use))
            continue;
        if (wait->slot) {
            const struct invocation *v = &pp->program->schedule.item[state->invocation];
            count = slot_waits_count(&pp->slot_waits, pp->program, state->invocation,
                                     &pp->program->templates.item[v->template].instructions.item[item->index],
                                     wait->stream, 0);
        } else {
            count = slot_waits_before(&pp->slot_waits, (size_t)state->invocation, wait->stream) + wait->target;
        }
        if (count <= 0)
            continue;
        struct stream_state *on = &a->stream[wait->stream];
        if (on->done < count) {
            on->waiters |= 1u << stream;
            return false;
        }
        awaited[wait->stream] = MAX(awaited[wait->stream], count);
        double end = on->span[count - 1].end;
        if (end > last->ready)
            *last = (struct cause){end, (int32_t)count, (int8_t)wait->stream};
    }
    return true;
}

static void account_wait(struct event_loop *l, int who, int stream, const struct cause *last) {
    struct actor *a = &l->actor[who];
    struct stream_state *state = &a->stream[stream];
    if (stream != STREAM_COMPUTE)
        state->cause[state->done] = *last;
    else if (last->stream != STREAM_COMPUTE)
        account_gap(&l->out->of_class[who], a, state->end, last->ready, last->stream, last->count);
}

// Whether it is a message for which the class has no peer.
static bool leaves_out(const struct actor *a, const struct lane_item *item) {
    return (item->kind == LANE_SEND || item->kind == LANE_RECEIVE) && a->peer[item->use] == NONE;
}

// The next instruction of a stream, NULL at its end.
static const struct lane_item *next_item(struct actor *a, int stream) {
    struct stream_state *state = &a->stream[stream];
    const struct program *p = a->program->program;
    for (; state->invocation < p->schedule.count; state->invocation++, state->position = 0) {
        const struct lane *lane =
            &a->program->lane[p->schedule.item[state->invocation].template * STREAMS_MAX + stream];
        if (state->position < lane->count)
            return &lane->item[state->position];
    }
    state->ended = true;
    return NULL;
}

// Runs a stream as far as possible.
static void run_stream(struct event_loop *l, int who, int stream) {
    struct actor *a = &l->actor[who];
    struct stream_state *state = &a->stream[stream];
    struct sim_class *out = &l->out->of_class[who];
    const struct lane_item *item;
    while (!state->posted && (item = next_item(a, stream))) {
        struct cause last;
        int64_t awaited[STREAMS_MAX] = {0};
        if (!simulate_find_waits(l, who, stream, item, &last, awaited))
            break;
        account_wait(l, who, stream, &last);
        const double ready = last.ready;
        const struct invocation *v = &a->program->program->schedule.item[state->invocation];
        if (when_skips(item->when, v))
            simulate_finish(a, stream, item->axis, ready, ready);
        else if (item->kind == LANE_COMPUTE && stream == STREAM_COMPUTE)
            simulate_compute(out, a, item, item->after_first && !v->first, ready, simulate_pay(a, awaited));
        else if (item->kind == LANE_COMPUTE)
            simulate_finish(a, stream, NO_AXIS, ready, ready + a->seconds[2 * item->number]);
        else if (leaves_out(a, item))
            simulate_finish(a, stream, item->axis, ready, ready);
        else if (item->kind == LANE_COLLECTIVE ? !simulate_meet(l, who, stream, item, ready, awaited)
                                               : !simulate_exchange(l, who, stream, item, ready))
            break;
    }
    simulate_wake(l, who, stream);
}

// ---- beginning and end

static void create_actor(struct event_loop *l, int who, const struct simulation_options *options) {
    struct actor *a = &l->actor[who];
    struct sim_class *out = &l->out->of_class[who];
    size_t uses = l->prepared->uses.count;
    int rank = topology_rank(&l->topology, who);
    a->out = out;
    a->program = &l->prepared->program[mesh_coordinate(&l->topology.mesh, rank, AXIS_PP)];
    a->seconds = prepare_seconds(l->prepared, &l->topology, who, options);
    a->meeting = mem_alloc(uses * sizeof *a->meeting);
    a->peer = mem_alloc(uses * sizeof *a->peer);
    for (size_t u = 0; u < uses; u++) {
        const struct link_use *use = &l->prepared->uses.item[u];
        a->peer[u] =
            use->message && link_use_is_of(&l->topology.mesh, use, rank) ? peer_class(&l->topology, who, use) : NONE;
    }
    for (int s = 0; s < STREAMS_MAX; s++) {
        int64_t total = slot_waits_before(&a->program->slot_waits, a->program->program->schedule.count, s);
        a->stream[s].span = mem_alloc((size_t)total * sizeof *a->stream[s].span);
        if (s == STREAM_COMPUTE) {
            a->stream[s].computed = mem_alloc((size_t)total * sizeof *a->stream[s].computed);
            continue;
        }
        a->stream[s].axis = mem_alloc((size_t)total);
        a->stream[s].cause = mem_alloc((size_t)total * sizeof *a->stream[s].cause);
    }
    *out = (struct sim_class){.rank = rank,
                              .members = topology_members(&l->topology, who),
                              .program = a->program->program,
                              .station = topology_station(&l->topology, rank)};
}

static void release_actor(struct event_loop *l, int who) {
    struct actor *a = &l->actor[who];
    for (size_t u = 0; u < l->prepared->uses.count; u++)
        free(a->meeting[u]);
    for (int s = 0; s < STREAMS_MAX; s++) {
        free(a->stream[s].span);
        free(a->stream[s].axis);
        free(a->stream[s].cause);
        free(a->stream[s].computed);
    }
    VEC_RELEASE(&a->paid);
    free(a->meeting);
    free(a->peer);
    free(a->seconds);
}

// Names an instruction that does not come to its end, preferably one that waits for other ranks.
static trireme_status simulate_check_ended(const struct event_loop *l, trireme_error *error) {
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < l->topology.classes * STREAMS_MAX; k++) {
            const struct actor *a = &l->actor[k / STREAMS_MAX];
            const struct stream_state *state = &a->stream[k % STREAMS_MAX];
            const struct program *p = a->program->program;
            if (state->ended || (pass == 0 && !state->posted))
                continue;
            const struct invocation *v = &p->schedule.item[state->invocation];
            const struct template *t = &p->templates.item[v->template];
            int index = a->program->lane[v->template * STREAMS_MAX + k % STREAMS_MAX].item[state->position].index;
            FAIL(TRIREME_ERROR_PROGRAM, "rank %d: stream %s, %s[%d] %s would wait forever",
                 l->out->of_class[k / STREAMS_MAX].rank, p->streams.item[k % STREAMS_MAX].name, t->name, index,
                 l->prepared->table->op[t->instructions.item[index].op].name);
        }
    return TRIREME_OK;
}

// Accounts for the rest of a rank's step after its last computing.
static void account_end(struct event_loop *l, int who) {
    struct sim_class *out = &l->out->of_class[who];
    struct actor *a = &l->actor[who];
    int last = STREAM_COMPUTE;
    int64_t all[STREAMS_MAX];
    for (int s = 0; s < STREAMS_MAX; s++) {
        all[s] = a->stream[s].done;
        if (a->stream[s].end > a->stream[last].end)
            last = s;
    }
    out->end = a->stream[last].end;
    if (last != STREAM_COMPUTE)
        account_gap(out, a, a->stream[STREAM_COMPUTE].end, out->end, last, a->stream[last].done);
    out->end += simulate_pay(a, all);
    if (a->stream[last].done > 0) // so that a trace ends when the step does
        a->stream[last].span[a->stream[last].done - 1].end = out->end;
    l->out->seconds = MAX(l->out->seconds, out->end);
}

static void keep_events(struct event_loop *l, int who) {
    struct actor *a = &l->actor[who];
    const struct program *p = a->program->program;
    struct sim_class *out = &l->out->of_class[who];
    for (int s = 0; s < STREAMS_MAX; s++) {
        int64_t done = 0;
        for (size_t k = 0; k < p->schedule.count; k++) {
            const struct invocation *v = &p->schedule.item[k];
            const struct lane *lane = &a->program->lane[v->template * STREAMS_MAX + s];
            for (int i = 0; i < lane->count; i++, done++)
                if (!when_skips(lane->item[i].when, v) && !leaves_out(a, &lane->item[i]))
                    VEC_PUSH(&out->events,
                             (struct sim_event){(int)k, lane->item[i].index, a->stream[s].span[done].begin,
                                                a->stream[s].span[done].end});
        }
    }
}

static void sum_up(struct event_loop *l, bool events) {
    struct simulation *out = l->out;
    for (int c = 0; c < out->classes; c++)
        account_end(l, c);
    for (int c = 0; c < out->classes; c++) {
        struct sim_class *who = &out->of_class[c];
        double weight = who->members / (out->ranks * MAX(out->seconds, 1e-300));
        who->bubble += out->seconds - who->end;
        out->bubble += weight * who->bubble;
        for (int a = 0; a < AXIS_COUNT; a++)
            out->exposed[a] += weight * who->exposed[a];
        if (events)
            keep_events(l, c);
    }
}

static trireme_status simulate_run(struct event_loop *l, const struct simulation_options *options,
                                   trireme_error *error) {
    int classes = l->topology.classes;
    l->actor = mem_alloc((size_t)classes * sizeof *l->actor);
    l->out->of_class = mem_alloc((size_t)classes * sizeof *l->out->of_class);
    l->out->classes = classes;
    l->out->ranks = l->topology.ranks;
    l->out->class_of = mem_alloc((size_t)l->topology.ranks * sizeof *l->out->class_of);
    for (int r = 0; r < l->topology.ranks; r++)
        l->out->class_of[r] = topology_class(&l->topology, r);
    for (int c = 0; c < classes; c++)
        create_actor(l, c, options);
    transfers_create(&l->transfers, &l->topology);
    for (int c = classes; c-- > 0;)
        for (int s = STREAMS_MAX; s-- > 0;)
            simulate_enqueue(l, c, s);
    do {
        while (l->stack.count) {
            struct ready next = l->stack.item[--l->stack.count];
            l->actor[next.who].stream[next.stream].queued = false;
            run_stream(l, next.who, next.stream);
        }
    } while (end_transfer(l));
    trireme_status status = simulate_check_ended(l, error);
    if (status == TRIREME_OK)
        sum_up(l, options->events);
    for (int c = 0; c < classes; c++)
        release_actor(l, c);
    for (size_t i = 0; i < l->meetings.count; i++)
        free(l->meetings.item[i].member);
    VEC_RELEASE(&l->meetings);
    VEC_RELEASE(&l->stack);
    transfers_release(&l->transfers);
    free(l->actor);
    return status;
}

trireme_status simulate(struct simulation *out, const struct program *const *program_of_stage,
                        const struct op_table *table, const struct cluster *cluster,
                        const struct simulation_options *options, trireme_error *error) {
    static const struct simulation_options none;
    struct prepared prepared;
    struct simulation simulation = {0};
    struct event_loop loop = {.prepared = &prepared, .out = &simulation};
    options = options ? options : &none;
    prepare(&prepared, program_of_stage, table);
    trireme_status status = topology_create(&loop.topology, cluster, &program_of_stage[0]->mesh, prepared.uses.item,
                                            prepared.uses.count, error);
    if (status == TRIREME_OK) {
        topology_classify(&loop.topology, options->every_rank ? AXES_ALL : AXES_STAGE | prepared.unequal);
        status = simulate_run(&loop, options, error);
        topology_release(&loop.topology);
    }
    prepared_release(&prepared);
    if (status == TRIREME_OK)
        *out = simulation;
    else
        simulation_release(&simulation);
    return status;
}

void simulation_release(struct simulation *s) {
    for (int c = 0; c < s->classes; c++)
        VEC_RELEASE(&s->of_class[c].events);
    free(s->of_class);
    free(s->class_of);
    *s = (struct simulation){0};
}

double simulation_peak(const struct simulation *s, enum dtype dtype) {
    double peak = 0;
    for (int c = 0; c < s->classes; c++) {
        const struct station *station = &s->of_class[c].station;
        peak += s->of_class[c].members * station->device->peak[dtype] * station->part;
    }
    return peak;
}

const char *sim_part_name(enum sim_part part) {
    static const char *const NAMES[] = {"matmul", "attention", "rest", "optimizer"};
    return NAMES[part];
}
