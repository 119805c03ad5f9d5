// Proves that the programs of all ranks meet: runs their communication alone, every rank's streams side by side, as
// executors would. In each group all make the same calls in the same order, sends find their receives, and all ranks
// come to their end. What a rank does by itself has been proved by program_verify, once for each program.
//
// Along axes where all ranks have the same program and none sends or is a root, one rank stands for all: they come to
// the same call at the same time, and whether all meet does not depend on who goes first.
#include "base/parallel_for.h"
#include "verify/calls.h"
#include "verify/verify.h"

struct communicator {
    int size;
    int *member; // ranks
    int arrived; // members whose next call is here
    int first;   // the rank that came first
};

struct rank {
    int number; // among all ranks
    const struct calls *calls;
    int *communicator; // of each channel of its program
    int32_t done[STREAMS_MAX];
    bool posted[STREAMS_MAX]; // its next call waits for others
    bool queued;
};

struct world {
    const struct op_table *table;
    struct mesh mesh; // of those that stand for all
    struct rank *rank;
    int ranks;
    VEC(struct communicator) communicators;
    VEC(int) queue; // ranks that may have come further
    trireme_error *error;
};

static const struct rank_call *next_call(const struct rank *r, int stream) {
    return r->done[stream] < (int32_t)r->calls->of[stream].count ? &r->calls->of[stream].item[r->done[stream]] : NULL;
}

static bool is_message(const struct rank_call *call) {
    return op_is_message(call->instruction->op);
}

// ---- words

struct call_name {
    char text[320];
};

// "backward[12] all_reduce of layers.0.gradients over dp"
static struct call_name groups_name_of(const struct world *w, int rank, const struct rank_call *call) {
    struct call_name name;
    const struct instruction *i = call->instruction;
    const struct program *p = w->rank[rank].calls->program;
    char axes[AXES_TEXT];
    snprintf(name.text, sizeof name.text, "%s of %.100s over %s",
             program_site(p, w->table, call->template, call->index, call->microbatch).text,
             program_buffer_name(p, i->inputs && i->in[0].buffer != NONE ? i->in[0].buffer : i->out[0].buffer),
             axes_print(i->group, axes));
    return name;
}

// What keeps `rank` from a call on `stream`.
static struct call_name stand_of(const struct world *w, int rank, int stream) {
    struct call_name name;
    const struct rank *r = &w->rank[rank];
    const struct rank_call *next = next_call(r, stream);
    if (!next) {
        snprintf(name.text, sizeof name.text, "which has ended");
        return name;
    }
    if (r->posted[stream]) {
        snprintf(name.text, sizeof name.text, "which waits at %.250s", groups_name_of(w, rank, next).text);
        return name;
    }
    for (int s = 0; s < STREAMS_MAX; s++) {
        const struct rank_call *before = next_call(r, s);
        if (before && r->done[s] < next->after[s]) {
            snprintf(name.text, sizeof name.text, "which must first do %.250s", groups_name_of(w, rank, before).text);
            return name;
        }
    }
    snprintf(name.text, sizeof name.text, "which never gets there");
    return name;
}

// ---- groups

// What tells the communicators of all ranks apart.
struct key {
    axis_set group;
    int stream, low, high; // stream_channel; high: of a pair, else -1
    int rank, channel;     // whose this is
};

static int compare_groups(const struct key *a, const struct key *b) {
    return COMPARE(a->group, b->group)
               ?: COMPARE(a->stream, b->stream) ?: COMPARE(a->low, b->low) ?: COMPARE(a->high, b->high);
}

static int compare_keys(const void *a, const void *b) {
    const struct key *x = a, *y = b;
    return compare_groups(x, y) ?: COMPARE(x->rank, y->rank) ?: COMPARE(x->channel, y->channel);
}

static void open_communicator(struct world *w, const struct key *key) {
    int size = key->high < 0 ? mesh_group_size(&w->mesh, key->group) : 2;
    struct communicator c = {.size = size, .member = mem_alloc((size_t)size * sizeof(int))};
    for (int i = 0; i < size; i++)
        c.member[i] = key->high < 0 ? mesh_member(&w->mesh, key->low, key->group, i) : i ? key->high : key->low;
    VEC_PUSH(&w->communicators, c);
}

static void find_groups(struct world *w) {
    VEC(struct key) keys = {0};
    for (int r = 0; r < w->ranks; r++) {
        const struct calls *calls = w->rank[r].calls;
        w->rank[r].communicator = mem_alloc(calls->channels.list.count * sizeof(int));
        for (size_t k = 0; k < calls->channels.list.count; k++) {
            struct channel channel = calls->channels.list.item[k];
            int other = channel.peer ? mesh_peer(&w->mesh, r, channel.group, channel.peer) : -1;
            int low = channel.peer ? MIN(r, other) : mesh_member(&w->mesh, r, channel.group, 0);
            VEC_PUSH(&keys,
                     (struct key){channel.group, channel.number, low, channel.peer ? MAX(r, other) : -1, r, (int)k});
        }
    }
    VEC_SORT(&keys, compare_keys);
    for (size_t i = 0; i < keys.count; i++) {
        if (i == 0 || compare_groups(&keys.item[i], &keys.item[i - 1]) != 0)
            open_communicator(w, &keys.item[i]);
        w->rank[keys.item[i].rank].communicator[keys.item[i].channel] = (int)w->communicators.count - 1;
    }
    VEC_RELEASE(&keys);
}

static void groups_enqueue(struct world *w, int rank) {
    if (w->rank[rank].queued)
        return;
    w->rank[rank].queued = true;
    VEC_PUSH(&w->queue, rank);
}

// Opens all ranks' communicators: opening one blocks until all its members do.
static trireme_status open_all(struct world *w) {
    trireme_error *error = w->error;
    int *opened = mem_alloc((size_t)w->ranks * sizeof *opened);
    bool *waits = mem_alloc((size_t)w->ranks * sizeof *waits);
    for (int r = 0; r < w->ranks; r++)
        groups_enqueue(w, r);
    while (w->queue.count) {
        int r = w->queue.item[--w->queue.count];
        struct rank *rank = &w->rank[r];
        rank->queued = false;
        if (waits[r] || opened[r] == (int)rank->calls->channels.list.count)
            continue;
        struct communicator *c = &w->communicators.item[rank->communicator[opened[r]]];
        waits[r] = true;
        if (++c->arrived < c->size)
            continue;
        c->arrived = 0;
        for (int i = 0; i < c->size; i++) {
            waits[c->member[i]] = false;
            opened[c->member[i]]++;
            groups_enqueue(w, c->member[i]);
        }
    }
    int stuck = 0;
    while (stuck < w->ranks && !waits[stuck])
        stuck++;
    trireme_status status = TRIREME_OK;
    if (stuck < w->ranks) {
        const struct rank *rank = &w->rank[stuck];
        struct communicator *c = &w->communicators.item[rank->communicator[opened[stuck]]];
        int missing = 0;
        for (int i = 0; i < c->size; i++) {
            int m = c->member[i];
            bool here = waits[m] && &w->communicators.item[w->rank[m].communicator[opened[m]]] == c;
            if (!here)
                missing = m;
        }
        char text[AXES_TEXT];
        status =
            error_set(error, TRIREME_ERROR_PROGRAM,
                      "rank %d opens its group over %s, but rank %d, a member of it, does not: it would wait forever",
                      rank->number, axes_print(rank->calls->channels.list.item[opened[stuck]].group, text),
                      w->rank[missing].number);
    }
    free(opened);
    free(waits);
    return status;
}

// ---- calls

static trireme_status refuse_meeting(const struct world *w, int rank, const struct rank_call *call, int other,
                                     const struct rank_call *theirs) {
    trireme_error *error = w->error;
    const struct instruction *a = call->instruction, *b = theirs->instruction;
    struct call_name here = groups_name_of(w, rank, call), there = groups_name_of(w, other, theirs);
    const int number = w->rank[rank].number, others = w->rank[other].number;
    if (call->count != theirs->count || call->dtype != theirs->dtype)
        REFUSE("rank %d: %s meets rank %d's %s: %lld elements of %s and %lld of %s", number, here.text, others,
               there.text, (long long)call->count, dtype_name(call->dtype), (long long)theirs->count,
               dtype_name(theirs->dtype));
    if (a->op == b->op && memcmp(a->attribute, b->attribute, sizeof a->attribute) != 0)
        REFUSE("rank %d: %s meets rank %d's %s with another reduction or another type on the wire", number, here.text,
               others, there.text);
    REFUSE("rank %d: %s meets rank %d's %s", number, here.text, others, there.text);
}

// Whether two ranks put the same thing into a collective: the same elements of buffers of the same name, of the same
// microbatch. In ranks of one program it is the same instruction.
static bool same_operands(const struct world *w, int rank, const struct rank_call *call, int other,
                          const struct rank_call *theirs) {
    const struct program *p = w->rank[rank].calls->program, *q = w->rank[other].calls->program;
    const struct instruction *a = call->instruction, *b = theirs->instruction;
    if (call->microbatch != theirs->microbatch)
        return false;
    if (a == b)
        return true;
    // What only the root has cannot be compared.
    bool rooted = op_is_rooted(a->op);
    if (rooted && mesh_peer(&w->mesh, rank, a->group, a->peer) != mesh_peer(&w->mesh, other, b->group, b->peer))
        return false;
    for (int k = 0; k < a->inputs + a->outputs; k++) {
        struct operand x = *instruction_operand_at(a, k);
        const struct operand *y = instruction_operand_at(b, k);
        if (rooted && (k < a->inputs) == op_takes_in(a->op))
            continue;
        if (strcmp(program_buffer_name(p, x.buffer), program_buffer_name(q, y->buffer)) != 0)
            return false;
        x.buffer = y->buffer;
        if (!operand_equal(&x, y))
            return false;
    }
    return true;
}

// Whether both are skipped by the same predicate, or never.
static bool same_predicate(const struct world *w, int rank, const struct instruction *a, int other,
                           const struct instruction *b) {
    return strcmp(program_buffer_name(w->rank[rank].calls->program, a->predicate),
                  program_buffer_name(w->rank[other].calls->program, b->predicate)) == 0;
}

static trireme_status check_placed_alike(const struct world *w, int rank, const struct rank_call *call, int other,
                                         const struct rank_call *theirs) {
    trireme_error *error = w->error;
    for (int a = 0; a < AXIS_COUNT; a++) {
        const struct seen *s = &call->message->seen[a], *r = &theirs->message->seen[a];
        bool zero =
            op_traffic[call->instruction->op].takes == HOLDING_SUM && (s->as == SEEN_ZERO || r->as == SEEN_ZERO);
        if (!zero && (s->as != r->as || s->dim != r->dim || s->joint != r->joint))
            REFUSE("rank %d: %s meets rank %d's %s, which is placed differently along %s", w->rank[rank].number,
                   groups_name_of(w, rank, call).text, w->rank[other].number, groups_name_of(w, other, theirs).text,
                   axis_name((enum axis)a));
    }
    return TRIREME_OK;
}

static void groups_advance(struct world *w, int rank, int stream) {
    w->rank[rank].done[stream]++;
    w->rank[rank].posted[stream] = false;
    groups_enqueue(w, rank);
}

static trireme_status post_collective(struct world *w, int rank, int stream, const struct rank_call *call) {
    struct communicator *c = &w->communicators.item[w->rank[rank].communicator[call->channel]];
    if (c->arrived == 0) {
        c->first = rank;
    } else {
        const struct rank_call *first = next_call(&w->rank[c->first], stream);
        const struct instruction *a = call->instruction, *b = first->instruction;
        if (a->op != b->op || call->count != first->count || call->dtype != first->dtype ||
            memcmp(a->attribute, b->attribute, sizeof a->attribute) != 0 ||
            !same_operands(w, rank, call, c->first, first) || !same_predicate(w, rank, a, c->first, b))
            return refuse_meeting(w, rank, call, c->first, first);
        if (call->message)
            TRY(check_placed_alike(w, rank, call, c->first, first));
    }
    if (++c->arrived < c->size)
        return TRIREME_OK;
    c->arrived = 0;
    for (int i = 0; i < c->size; i++)
        groups_advance(w, c->member[i], stream);
    return TRIREME_OK;
}

// Within one program it must be what the receive is proved to get (message_other_end).
static trireme_status check_ring(const struct world *w, int from, const struct rank_call *send, int to,
                                 const struct rank_call *receive) {
    trireme_error *error = w->error;
    const struct program *p = w->rank[to].calls->program;
    if (w->rank[from].calls->program != p || send->template != receive->template ||
        send->index != message_other_end(p, receive->template, receive->index))
        REFUSE("rank %d: %s meets rank %d's %s, which receives something else", w->rank[from].number,
               groups_name_of(w, from, send).text, w->rank[to].number, groups_name_of(w, to, receive).text);
    return TRIREME_OK;
}

// What arrives must be what was sent: equally much, of the same microbatch and pass, placed alike.
static trireme_status check_message(const struct world *w, int from, const struct rank_call *send, int to,
                                    const struct rank_call *receive) {
    trireme_error *error = w->error;
    if (send->count != receive->count || send->dtype != receive->dtype ||
        send->instruction->in[0].along != receive->instruction->out[0].along)
        return refuse_meeting(w, from, send, to, receive);
    if (send->microbatch != receive->microbatch)
        REFUSE("rank %d: %s meets rank %d's %s, of another microbatch", w->rank[from].number,
               groups_name_of(w, from, send).text, w->rank[to].number, groups_name_of(w, to, receive).text);
    bool forward = send->instruction->phase == PHASE_FORWARD;
    if (forward != (receive->instruction->phase == PHASE_FORWARD))
        REFUSE("rank %d: %s meets rank %d's %s, of the other pass", w->rank[from].number,
               groups_name_of(w, from, send).text, w->rank[to].number, groups_name_of(w, to, receive).text);
    if (!same_predicate(w, from, send->instruction, to, receive->instruction))
        REFUSE("rank %d: %s meets rank %d's %s, which another predicate skips", w->rank[from].number,
               groups_name_of(w, from, send).text, w->rank[to].number, groups_name_of(w, to, receive).text);
    if (!(send->instruction->group & AXES_STAGE))
        return check_ring(w, from, send, to, receive);
    const char *sent = program_buffer_name(w->rank[from].calls->program, send->instruction->in[0].buffer),
               *received = program_buffer_name(w->rank[to].calls->program, receive->instruction->out[0].buffer);
    if (strcmp(sent, received) != 0)
        REFUSE("rank %d: %s meets rank %d's %s, which receives another buffer", w->rank[from].number,
               groups_name_of(w, from, send).text, w->rank[to].number, groups_name_of(w, to, receive).text);
    return check_placed_alike(w, from, send, to, receive);
}

static trireme_status post_message(struct world *w, int rank, int stream, const struct rank_call *call) {
    int other = mesh_peer(&w->mesh, rank, call->instruction->group, call->instruction->peer);
    int end = stream_other_end(w->rank[rank].calls->program, stream);
    const struct rank_call *theirs = next_call(&w->rank[other], end);
    if (!w->rank[other].posted[end] || !is_message(theirs) || theirs->instruction->op == call->instruction->op ||
        theirs->instruction->group != call->instruction->group ||
        mesh_peer(&w->mesh, other, theirs->instruction->group, theirs->instruction->peer) != rank)
        return TRIREME_OK;
    bool sends = op_gives_away(call->instruction->op);
    TRY(sends ? check_message(w, rank, call, other, theirs) : check_message(w, other, theirs, rank, call));
    groups_advance(w, rank, stream);
    groups_advance(w, other, end);
    return TRIREME_OK;
}

static bool is_ready(const struct rank *r, const struct rank_call *call) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (r->done[s] < call->after[s])
            return false;
    return true;
}

static trireme_status groups_run_rank(struct world *w, int rank) {
    struct rank *r = &w->rank[rank];
    for (int s = 0; s < STREAMS_MAX; s++) {
        const struct rank_call *call = next_call(r, s);
        if (!call || r->posted[s] || !is_ready(r, call))
            continue;
        if (!message_is_of(&w->mesh, call->instruction, rank)) {
            groups_advance(w, rank, s);
            continue;
        }
        r->posted[s] = true;
        TRY(is_message(call) ? post_message(w, rank, s, call) : post_collective(w, rank, s, call));
    }
    return TRIREME_OK;
}

// The member for whose call `rank` waits on `stream`; that will come on stream_other_end.
static int missing_member(const struct world *w, int rank, int stream) {
    const struct rank_call *call = next_call(&w->rank[rank], stream);
    if (is_message(call))
        return mesh_peer(&w->mesh, rank, call->instruction->group, call->instruction->peer);
    int communicator = w->rank[rank].communicator[call->channel];
    const struct communicator *c = &w->communicators.item[communicator];
    for (int i = 0; i < c->size; i++) {
        const struct rank *m = &w->rank[c->member[i]];
        const struct rank_call *theirs = next_call(m, stream);
        if (!m->posted[stream] || is_message(theirs) || m->communicator[theirs->channel] != communicator)
            return c->member[i];
    }
    return rank;
}

// Names a call that is never answered: if possible one whose peer has ended, from which the others follow.
static trireme_status groups_check_ended(const struct world *w) {
    trireme_error *error = w->error;
    int rank = NONE, stream = 0;
    for (int pass = 0; pass < 2 && rank == NONE; pass++)
        for (int r = 0; r < w->ranks && rank == NONE; r++)
            for (int s = 0; s < STREAMS_MAX && rank == NONE; s++)
                if (w->rank[r].posted[s] && (pass || !next_call(&w->rank[missing_member(w, r, s)],
                                                                stream_other_end(w->rank[r].calls->program, s))))
                    rank = r, stream = s;
    if (rank == NONE)
        return TRIREME_OK;
    int missing = missing_member(w, rank, stream);
    REFUSE("rank %d: %s would wait forever for rank %d, %s", w->rank[rank].number,
           groups_name_of(w, rank, next_call(&w->rank[rank], stream)).text, w->rank[missing].number,
           stand_of(w, missing, stream_other_end(w->rank[rank].calls->program, stream)).text);
}

static trireme_status run_world(struct world *w) {
    for (int r = 0; r < w->ranks; r++)
        groups_enqueue(w, r);
    while (w->queue.count) {
        int r = w->queue.item[--w->queue.count];
        w->rank[r].queued = false;
        TRY(groups_run_rank(w, r));
    }
    return groups_check_ended(w);
}

// ---- all of it

// Axes along which some instruction singles out ranks.
static axis_set directed_axes(const struct program *p) {
    axis_set axes = AXES_NONE;
    FOR_INSTRUCTIONS(i, p)
        if (op_is_message(i->op) || op_is_rooted(i->op) || instruction_is_pair(i))
            axes |= i->group;
    return axes;
}

// Axes along which one rank stands for all.
static axis_set axes_alike(const struct mesh *mesh, const struct program *const *program_of_rank) {
    axis_set alike = mesh_present(mesh, AXES_ALL);
    for (int r = 0; r < mesh_ranks(mesh); r++) {
        if (r == 0 || program_of_rank[r] != program_of_rank[r - 1])
            alike &= ~directed_axes(program_of_rank[r]);
        for (int a = 0; a < AXIS_COUNT; a++)
            if (program_of_rank[r] != program_of_rank[mesh_member(mesh, r, AXES(a), 0)])
                alike &= ~AXES(a);
    }
    return alike;
}

static trireme_status check_mesh(const struct mesh *mesh, const struct program *const *program_of_rank, int ranks,
                                 trireme_error *error) {
    for (int r = 0; r < ranks; r++) {
        const struct program *p = program_of_rank[r];
        if (memcmp(&p->mesh, mesh, sizeof p->mesh) == 0 && mesh_ranks(&p->mesh) == ranks)
            continue;
        char *text = mesh_print(&p->mesh);
        error_set(error, TRIREME_ERROR_PROGRAM, "rank %d: its program is for a mesh of %s, not of these %d ranks", r,
                  text, ranks);
        free(text);
        return TRIREME_ERROR_PROGRAM;
    }
    for (int r = 1; r < ranks; r++)
        if (!program_streams_equal(program_of_rank[r], program_of_rank[0]))
            REFUSE("rank %d: its program has other streams than that of rank 0", r);
    return TRIREME_OK;
}

struct listing {
    const struct op_table *table;
    struct calls *calls;
};

static trireme_status list_one(void *argument, int k, trireme_error *error) {
    const struct listing *l = argument;
    return calls_create(&l->calls[k], l->calls[k].program, l->table, error);
}

// The calls of distinct programs.
static trireme_status list_calls(const struct world *w, struct calls *calls, int count) {
    struct listing l = {w->table, calls};
    return parallel_try(usable_cores(), count, list_one, &l, w->error);
}

// Makes the world of the ranks at the beginning of all axes of `alike`, and calls[*distinct], one for each program.
static trireme_status groups_create(struct world *w, struct calls *calls, int *distinct, const struct mesh *mesh,
                                    axis_set alike, const struct program *const *program_of_rank) {
    w->mesh = *mesh;
    for (int a = 0; a < AXIS_COUNT; a++)
        w->mesh.degree[a] = alike & AXES(a) ? 1 : mesh->degree[a];
    w->rank = mem_alloc((size_t)mesh_ranks(&w->mesh) * sizeof *w->rank);
    for (int r = 0; r < mesh_ranks(mesh); r++) {
        if (mesh_index(mesh, r, alike) > 0)
            continue;
        int k = 0;
        while (k < *distinct && calls[k].program != program_of_rank[r])
            k++;
        if (k == *distinct)
            calls[(*distinct)++].program = program_of_rank[r];
        w->rank[w->ranks++] = (struct rank){.number = r, .calls = &calls[k]};
    }
    return list_calls(w, calls, *distinct);
}

static trireme_status groups_meet(const struct program *const *program_of_rank, int ranks, const struct op_table *table,
                                  trireme_error *error) {
    const struct mesh *mesh = &program_of_rank[0]->mesh;
    TRY(check_mesh(mesh, program_of_rank, ranks, error));
    struct world w = {.table = table, .error = error};
    struct calls *calls = mem_alloc((size_t)ranks * sizeof *calls);
    int distinct = 0;
    trireme_status status =
        groups_create(&w, calls, &distinct, mesh, axes_alike(mesh, program_of_rank), program_of_rank);
    if (status == TRIREME_OK && mesh->degree[AXIS_PP] > 1)
        status = verify_stages(program_of_rank, table, error);
    if (status == TRIREME_OK) {
        find_groups(&w);
        status = run_world(&w);
    }
    if (status == TRIREME_OK)
        status = open_all(&w);
    for (int r = 0; r < w.ranks; r++)
        free(w.rank[r].communicator);
    for (size_t i = 0; i < w.communicators.count; i++)
        free(w.communicators.item[i].member);
    for (int k = 0; k < distinct; k++)
        calls_release(&calls[k]);
    VEC_RELEASE(&w.communicators);
    VEC_RELEASE(&w.queue);
    free(w.rank);
    free(calls);
    return status;
}

trireme_status stage_programs_meet(const struct program *const *program_of_stage, const struct op_table *table,
                                   trireme_error *error) {
    const struct mesh *mesh = &program_of_stage[0]->mesh;
    int ranks = mesh_ranks(mesh);
    const struct program **of_rank = mem_alloc((size_t)ranks * sizeof *of_rank);
    for (int rank = 0; rank < ranks; rank++)
        of_rank[rank] = program_of_stage[mesh_coordinate(mesh, rank, AXIS_PP)];
    trireme_status status = groups_meet(of_rank, ranks, table, error);
    free(of_rank);
    return status;
}

trireme_status programs_verify(const struct program *const *program_of_rank, int ranks, const struct op_table *table,
                               trireme_error *error) {
    TRY(check_mesh(&program_of_rank[0]->mesh, program_of_rank, ranks, error));
    for (int r = 0; r < ranks; r++) {
        bool proved = false;
        for (int k = r; k-- > 0 && !proved;)
            proved = program_of_rank[k] == program_of_rank[r];
        trireme_status status = proved ? TRIREME_OK : program_verify(program_of_rank[r], table, error);
        if (status != TRIREME_OK)
            return error_prefix(error, status, "rank %d", r);
    }
    return groups_meet(program_of_rank, ranks, table, error);
}
