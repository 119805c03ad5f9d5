// Attention of ranks that have parts of the same sequences, by what travels between them.
//
// Ring attention (Liu et al., "Ring Attention with Blockwise Transformers", arXiv 2310.01889): each rank keeps its
// queries; keys and values go round the ring of ranks. While queries see those at hand, these are already on their way
// to the next rank, and those of the rank before on theirs to this one. What has been seen is merged part after part,
// in f32. In backward keys and values go round once more; the gradients of each part follow it one step behind, and
// each rank adds what its queries contribute, so that the last one sends them home.
//
// BurstAttention (Sun et al., arXiv 2403.09347): backward the other way round. Keys and values stay, and their
// gradients are added up where they lie. Queries go round, with the gradient of what they have seen and two numbers for
// each of their heads; their own gradients follow one step behind. For as many heads of keys as of queries that is
// fewer bytes.
//
// TokenRing (Wang et al., arXiv 2412.20501): in forward, too, queries travel. What they see of a rank's keys, and their
// gradients from there, go straight home, to be merged and added one step behind: in the other direction of links that
// have two.
//
// Ring and burst may go over rings within rings (BurstAttention's double ring): while what travels goes round an inner
// ring, such as the ranks of a node, what its rank began the round with is on its way to the rank with the same place
// in the next such ring. So each block crosses between nodes once for each node, and has a whole round's time for it.
//
// Queries go to the previous rank, so that after as many steps they meet keys that are as far before them as those
// that come to them in a ring. All ranks run the same instructions: which keys a query sees follows from the layout
// (program/places.h) and from documents, and kernels skip the rest. Where a window is so short that parts far away see
// nothing of each other, all of this ends before it has gone all the way round.
#include "parallel/context.h"

#include "parallel/context_lightseq.h"

// What travels, and whether results go home at once rather than behind it.
struct way {
    bool queries_forward, queries_backward, home;
};

static struct way way_of(enum config_context_parallel_method method) {
    return (struct way){method == CONFIG_CONTEXT_PARALLEL_TOKENRING,
                        method == CONFIG_CONTEXT_PARALLEL_BURST || method == CONFIG_CONTEXT_PARALLEL_TOKENRING,
                        method == CONFIG_CONTEXT_PARALLEL_TOKENRING};
}

// The ring; AXES_NONE: there is none.
static axis_set ring_of(const struct parallel *parallel) {
    return parallel->context == CONFIG_CONTEXT_PARALLEL_GATHER ? AXES_NONE : parallel_parts(parallel);
}

// Whether the axis of the ring is cut: its first factor is then that of inner rings.
static bool has_inner_rings(const struct parallel *parallel) {
    const axis_set ring = ring_of(parallel);
    return (parallel->context == CONFIG_CONTEXT_PARALLEL_RING || parallel->context == CONFIG_CONTEXT_PARALLEL_BURST) &&
           ring & (ring - 1);
}

void context_streams(struct program *p, const struct parallel *parallel) {
    if (!ring_of(parallel))
        return;
    context_channel(p, CONTEXT_LOADS);
    context_channel(p, CONTEXT_RESULTS);
    if (has_inner_rings(parallel))
        context_channel(p, CONTEXT_LOADS_AHEAD);
}

// ---- what both passes do

// A step of a round: what is at hand, what comes next in the ring, and what the next round begins with.
struct turn {
    int round, step;
    struct load at_hand, next, first_of_next;
};

// How far loads go in a step, and in a round.
static int direction_of(bool queries) {
    return queries ? -1 : 1;
}

// How many parts before this rank's own those are that have come so far.
static int parts_before(const struct context *c, bool queries, const struct turn *t) {
    const int step = queries ? (c->ring - t->step) % c->ring : t->step,
              round = queries ? (c->rings - t->round) % c->rings : t->round;
    return step + c->ring * round;
}

// A number for the buffers of a step.
static int number_of(const struct context *c, const struct turn *t) {
    return t->round * (c->steps + 1) + t->step;
}

static struct load new_load(const struct context *c, bool queries, int number) {
    return queries ? load_of_queries(c, "queries", number) : load_of_keys(c, "keys", number);
}

static bool turn_is_first(const struct turn *t) {
    return t->round == 0 && t->step == 0;
}

// Whether anything travels at all.
static bool goes_round(const struct context *c) {
    return c->steps > 0 || c->rounds > 1;
}

static struct load first_load(struct context *c, bool queries) {
    if (goes_round(c))
        return queries ? context_pack_queries(c) : context_pack_keys(c);
    return queries ? context_own_queries(c) : context_own_keys(c);
}

// Begins a step: sends what is at hand on, if anything further is to be seen. That is the rank's own first. What stands
// at the beginning of a round goes on to the next ring, too.
static void turn_begin(struct context *c, bool queries, struct turn *t) {
    const bool ahead = t->step == 0 && t->round + 1 < c->rounds;
    if (turn_is_first(t))
        t->at_hand = first_load(c, queries);
    if (ahead) {
        t->first_of_next = new_load(c, queries, (t->round + 1) * (c->steps + 1));
        context_swap(c, CONTEXT_LOADS_AHEAD, c->outer, t->at_hand.buffers, t->at_hand.buffer, t->first_of_next.buffer,
                     direction_of(queries));
    }
    if (t->step == c->steps)
        return;
    t->next = new_load(c, queries, number_of(c, t) + 1);
    context_swap(c, CONTEXT_LOADS, c->group, t->at_hand.buffers, t->at_hand.buffer, t->next.buffer,
                 direction_of(queries));
}

// Lets the block that was just emitted wait until earlier loads are sent.
static void await_loads(struct context *c, const struct turn *t) {
    if (c->steps > 0)
        context_await(c, CONTEXT_LOADS, t->step < c->steps ? t->next.buffers : 0);
    if (c->rounds > 1 && t->step == 0)
        context_await(c, CONTEXT_LOADS_AHEAD, t->round + 1 < c->rounds ? t->first_of_next.buffers : 0);
}

// Goes on; false at the end.
static bool turn_end(const struct context *c, struct turn *t) {
    const bool round = t->step == c->steps;
    t->at_hand = round ? t->first_of_next : t->next;
    t->step = round ? 0 : t->step + 1;
    t->round += round;
    return t->round < c->rounds;
}

static void await_results(struct context *c, int lag) {
    if (goes_round(c))
        context_await(c, CONTEXT_RESULTS, lag);
}

static void send_results(struct context *c, axis_set group, const struct sums *out, const struct sums *in,
                         int distance) {
    context_swap(c, CONTEXT_RESULTS, group, 1, &out->buffer, &in->buffer, distance);
}

// ---- forward

static void forward_of_keys(struct context *c) {
    const struct load queries = context_own_queries(c);
    struct sums seen = {0}; // so far
    struct turn t = {0};
    do {
        const bool first = turn_is_first(&t);
        const struct sums made = sums_at_home(c, "seen", "seen_lse", number_of(c, &t));
        turn_begin(c, false, &t);
        context_block(c, &queries, 0, &t.at_hand, parts_before(c, false, &t), first, first ? NULL : &seen, &made);
        await_loads(c, &t);
        seen = made;
    } while (turn_end(c, &t));
    context_end(c, &seen);
}

static struct sums merge_seen(struct context *c, const struct sums *seen, const struct sums *other, int step) {
    const struct sums made = sums_at_home(c, "seen", "seen_lse", step);
    context_merge(c, seen, other, 0, &made);
    return made;
}

static void forward_of_queries(struct context *c) {
    const struct load keys = context_own_keys(c);
    struct sums seen = {0}, arriving = {0};
    struct turn t = {0};
    do {
        const struct sums made =
            t.step == 0 ? sums_at_home(c, "seen", "seen_lse", 0) : sums_of_queries(c, "seen_here", t.step);
        turn_begin(c, true, &t);
        context_block(c, &t.at_hand, parts_before(c, true, &t), &keys, 0, t.step == 0, NULL, &made);
        await_loads(c, &t);
        await_results(c, 1);
        if (t.step == 0) {
            seen = made;
            continue;
        }
        const struct sums coming = sums_of_queries(c, "seen_there", t.step);
        send_results(c, c->group, &made, &coming, t.step);
        if (t.step > 1)
            seen = merge_seen(c, &seen, &arriving, t.step - 1);
        arriving = coming;
    } while (turn_end(c, &t));
    if (c->steps > 0)
        seen = merge_seen(c, &seen, &arriving, c->steps);
    context_end(c, &seen);
    await_results(c, 0);
}

// ---- backward

// Of queries or of keys.
static struct sums new_sums(struct context *c, bool queries, const char *name, int number) {
    return queries ? sums_of_queries(c, name, number) : sums_of_keys(c, name, number);
}

static struct sums add_gradients(struct context *c, bool queries, const struct sums *before, const struct sums *other,
                                 const char *name, int number) {
    const struct sums made = new_sums(c, queries, name, number);
    context_add(c, before, other, 0, &made);
    return made;
}

// Gradients of what travels. They go round behind it: the sum so far has come meanwhile. The last step of a round sends
// them home, to where the round began for them; from there the sum of all rounds so far goes on to the next ring, and
// after the last round home.
struct followers {
    struct sums arriving, of_rounds; // on their way in the ring, and from ring to ring
};

static void follow_step(struct context *c, bool queries, struct followers *f, const struct sums *made,
                        const struct turn *t) {
    const int direction = direction_of(queries), number = number_of(c, t);
    const struct sums now =
        t->step == 0 ? *made : add_gradients(c, queries, &f->arriving, made, queries ? "dq_sums" : "key_sums", number);
    f->arriving = now;
    if (c->steps == 0)
        return;
    f->arriving = new_sums(c, queries, "arriving", number);
    send_results(c, c->group, &now, &f->arriving, t->step < c->steps ? direction : -direction * c->steps);
}

static void follow_round(struct context *c, bool queries, struct followers *f, const struct sums *of_round, int round) {
    const int direction = direction_of(queries);
    const struct sums now =
        round == 0 ? *of_round : add_gradients(c, queries, &f->of_rounds, of_round, "of_rounds", round);
    f->of_rounds = now;
    if (c->rounds == 1)
        return;
    f->of_rounds = new_sums(c, queries, "from_ring", round);
    send_results(c, c->outer, &now, &f->of_rounds, round + 1 < c->rounds ? direction : -direction * round);
}

// Keys travel, or queries do, and their gradients follow.
static void backward_behind(struct context *c, bool queries) {
    const struct load stays = queries ? context_own_keys(c) : context_own_queries(c);
    struct turn t = {0};
    struct sums home = {0}; // gradients of what stays, so far
    struct followers f = {0};
    do {
        const int number = number_of(c, &t), before = parts_before(c, queries, &t);
        const bool first = turn_is_first(&t);
        const struct sums of_keys = sums_of_keys(c, "key_gradients", number),
                          of_queries = sums_of_queries(c, "dq", number), of_round = f.arriving;
        turn_begin(c, queries, &t);
        context_block_backward(c, queries ? &t.at_hand : &stays, queries ? before : 0, queries ? &stays : &t.at_hand,
                               queries ? 0 : before, queries || first ? NULL : &home, &of_queries, &of_keys);
        await_loads(c, &t);
        await_results(c, 1);
        follow_step(c, queries, &f, queries ? &of_queries : &of_keys, &t);
        if (t.step == 0 && t.round > 0) // that of the round before has come meanwhile
            follow_round(c, queries, &f, &of_round, t.round - 1);
        if (!queries)
            home = of_queries; // with those before
        else
            home = first ? of_keys : add_gradients(c, false, &home, &of_keys, "key_sums", number);
    } while (turn_end(c, &t));
    const struct sums last = f.arriving;
    follow_round(c, queries, &f, &last, c->rounds - 1);
    context_end_backward(c, queries ? &f.of_rounds : &home, queries ? &home : &f.of_rounds);
    await_results(c, 0);
}

// Queries travel, and their gradients go straight home.
static void backward_home(struct context *c) {
    const struct load keys = context_own_keys(c);
    struct turn t = {0};
    struct sums of_keys = {0}, of_queries = {0}, arriving = {0};
    do {
        const struct sums own_keys = sums_of_keys(c, "key_gradients", t.step),
                          own_queries = sums_of_queries(c, "dq", t.step);
        turn_begin(c, true, &t);
        context_block_backward(c, &t.at_hand, parts_before(c, true, &t), &keys, 0, NULL, &own_queries, &own_keys);
        await_loads(c, &t);
        await_results(c, 1);
        if (t.step == 0) {
            of_keys = own_keys;
            of_queries = own_queries;
            continue;
        }
        of_keys = add_gradients(c, false, &of_keys, &own_keys, "key_sums", t.step);
        const struct sums coming = sums_of_queries(c, "arriving", t.step);
        send_results(c, c->group, &own_queries, &coming, t.step);
        if (t.step > 1)
            of_queries = add_gradients(c, true, &of_queries, &arriving, "dq_sums", t.step - 1);
        arriving = coming;
    } while (turn_end(c, &t));
    if (c->steps > 0)
        of_queries = add_gradients(c, true, &of_queries, &arriving, "dq_sums", c->steps);
    context_end_backward(c, &of_queries, &of_keys);
    await_results(c, 0);
}

// ---- templates

// Sets how far all goes on that no query sees a key that is more than `reach` parts before it, wrapping around. One
// that is i in the ring and j rings before it is i + j L parts before it where its ring has as many before it, of L,
// and L fewer where it has not. There is one step even where nobody sees others (a window of one token): ranks that
// have parts of the same sequences are known by what they exchange.
static void find_rounds(struct context *c, int reach) {
    c->ring = mesh_group_size(&c->program->mesh, c->group);
    c->rings = c->outer ? mesh_group_size(&c->program->mesh, c->outer) : 1;
    c->steps = MIN(MAX(reach, 1), c->ring - 1);
    c->rounds = c->outer && reach > 0 ? MIN(c->rings, (reach - 1) / c->ring + 2) : 1;
    if (c->rounds > 1)
        c->steps = c->ring - 1;
}

static void replace_row(void *user, const struct instruction *row) {
    struct context *c = user;
    const struct way way = way_of(c->method);
    struct program *p = c->program;
    const struct operand *q = &row->in[INPUT(ATTENTION_PARTS, q)], *k = &row->in[INPUT(ATTENTION_PARTS, k)];
    const bool forward = row->op == OP_ATTENTION_PARTS;
    const int of =
        forward ? row->out[OUTPUT(ATTENTION_PARTS, o)].buffer : row->in[INPUT(ATTENTION_PARTS_BWD, do)].buffer;
    char *name = mem_strdup(p->buffers.item[of].name);
    c->row = row;
    c->name = name;
    c->set = program_set(p);
    c->places = (struct places){row->attribute[ATTRIBUTE(ATTENTION_PARTS, layout)].i,
                                row->attribute[ATTRIBUTE(ATTENTION_PARTS, parts)].i, q->dim[1]};
    c->sequences = q->dim[0];
    c->heads = q->dim[2];
    c->kv_heads = k->dim[2];
    c->width = q->dim[3];
    find_rounds(c, (int)places_reach(&c->places, row->attribute[ATTRIBUTE(ATTENTION_PARTS, window)].i));
    if (c->method == CONFIG_CONTEXT_PARALLEL_LIGHTSEQ && forward)
        lightseq_forward(c);
    else if (c->method == CONFIG_CONTEXT_PARALLEL_LIGHTSEQ)
        lightseq_backward(c);
    else if (!forward && way.home)
        backward_home(c);
    else if (!forward)
        backward_behind(c, way.queries_backward);
    else if (way.queries_forward)
        forward_of_queries(c);
    else
        forward_of_keys(c);
    free(name);
}

void context_rewrite(struct program *p, const struct parallel *parallel) {
    const axis_set group = ring_of(parallel);
    struct context c = {.program = p, .method = parallel->context, .group = group};
    if (!group)
        return;
    if (has_inner_rings(parallel)) {
        c.group = AXES(axes_first(group));
        c.outer = group & ~c.group;
    }
    rewrite_rows(&c.rewrite, p, OP_ATTENTION_PARTS, OP_ATTENTION_PARTS_BWD, replace_row, &c);
}
