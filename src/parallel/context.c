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

void context_streams(struct program *p, const struct parallel *parallel) {
    if (!ring_of(parallel))
        return;
    context_channel(p, CONTEXT_LOADS);
    context_channel(p, CONTEXT_RESULTS);
}

// ---- what both passes do

// How far loads go in a step.
static int direction_of(bool queries) {
    return queries ? -1 : 1;
}

// How many parts before this rank's own the queries are that have gone so many steps.
static int queries_before(const struct context *c, int step) {
    return step ? (int)c->places.parts - step : 0;
}

// Begins a step: sends what is at hand on, if anything further is to be seen, and returns what comes. The rank's own is
// packed first.
static struct load pass_load(struct context *c, bool queries, struct load *at_hand, int step) {
    if (step == c->steps)
        return *at_hand;
    if (step == 0)
        *at_hand = queries ? context_pack_queries(c) : context_pack_keys(c);
    const struct load next = queries ? load_of_queries(c, "queries", step + 1) : load_of_keys(c, "keys", step + 1);
    context_swap(c, CONTEXT_LOADS, next.buffers, at_hand->buffer, next.buffer, direction_of(queries));
    return next;
}

// Lets the block that was just emitted wait until earlier loads are sent.
static void await_loads(struct context *c, const struct load *next, int step) {
    if (c->steps > 0)
        context_await(c, CONTEXT_LOADS, step < c->steps ? next->buffers : 0);
}

static void await_results(struct context *c, int lag) {
    if (c->steps > 0)
        context_await(c, CONTEXT_RESULTS, lag);
}

static void send_results(struct context *c, const struct sums *out, const struct sums *in, int distance) {
    context_swap(c, CONTEXT_RESULTS, 1, &out->buffer, &in->buffer, distance);
}

// ---- forward

static void forward_of_keys(struct context *c) {
    const struct load queries = context_own_queries(c);
    struct load at_hand = context_own_keys(c);
    struct sums seen = {0}; // so far
    for (int step = 0; step <= c->steps; step++) {
        const struct sums made = sums_at_home(c, "seen", "seen_lse", step);
        const struct load next = pass_load(c, false, &at_hand, step);
        context_block(c, &queries, 0, &at_hand, step, step == 0, step ? &seen : NULL, &made);
        await_loads(c, &next, step);
        seen = made;
        at_hand = next;
    }
    context_end(c, &seen);
}

static struct sums merge_seen(struct context *c, const struct sums *seen, const struct sums *other, int step) {
    const struct sums made = sums_at_home(c, "seen", "seen_lse", step);
    context_merge(c, seen, other, 0, &made);
    return made;
}

static void forward_of_queries(struct context *c) {
    const struct load keys = context_own_keys(c);
    struct load at_hand = context_own_queries(c);
    struct sums seen = {0}, arriving = {0};
    for (int step = 0; step <= c->steps; step++) {
        const struct sums made =
            step == 0 ? sums_at_home(c, "seen", "seen_lse", step) : sums_of_queries(c, "seen_here", step);
        const struct load next = pass_load(c, true, &at_hand, step);
        context_block(c, &at_hand, queries_before(c, step), &keys, 0, step == 0, NULL, &made);
        await_loads(c, &next, step);
        await_results(c, 1);
        if (step == 0) {
            seen = made;
        } else {
            const struct sums coming = sums_of_queries(c, "seen_there", step);
            send_results(c, &made, &coming, step);
            if (step > 1)
                seen = merge_seen(c, &seen, &arriving, step - 1);
            arriving = coming;
        }
        at_hand = next;
    }
    if (c->steps > 0)
        seen = merge_seen(c, &seen, &arriving, c->steps);
    context_end(c, &seen);
    await_results(c, 0);
}

// ---- backward

static struct sums new_sums(struct context *c, bool queries, const char *of_queries, const char *of_keys, int step) {
    return queries ? sums_of_queries(c, of_queries, step) : sums_of_keys(c, of_keys, step);
}

// The sum of gradients of what stands first and of what comes next, of queries or of keys.
static struct sums add_gradients(struct context *c, bool queries, const struct sums *before, const struct sums *other,
                                 int step) {
    const struct sums made = new_sums(c, queries, "dq_sums", "key_sums", step);
    context_add(c, before, other, 0, &made);
    return made;
}

// Gradients of what travels go round behind it: the sum so far has come meanwhile. The last step sends them home.
static struct sums follow(struct context *c, bool queries, const struct sums *sum, const struct sums *made, int step) {
    const struct sums now = step == 0 ? *made : add_gradients(c, queries, sum, made, step);
    if (c->steps == 0)
        return now;
    const struct sums arriving = new_sums(c, queries, "arriving", "arriving", step);
    const int direction = direction_of(queries);
    send_results(c, &now, &arriving, step < c->steps ? direction : -direction * c->steps);
    return arriving;
}

static void backward_pass(struct context *c, struct way way) {
    const bool travel = way.queries_backward; // queries do; else keys
    struct load keys = context_own_keys(c), queries = {0};
    if (!travel || c->steps == 0)
        queries = context_own_queries(c);
    struct load *at_hand = travel ? &queries : &keys;
    struct sums of_keys = {0}, of_queries = {0}, arriving = {0}; // so far; at home
    for (int step = 0; step <= c->steps; step++) {
        const struct sums own_keys = sums_of_keys(c, "key_gradients", step),
                          own_queries = sums_of_queries(c, "dq", step);
        const struct load next = pass_load(c, travel, at_hand, step);
        context_block_backward(c, &queries, travel ? queries_before(c, step) : 0, &keys, travel ? 0 : step,
                               !travel && step ? &of_queries : NULL, &own_queries, &own_keys);
        await_loads(c, &next, step);
        await_results(c, 1);
        if (!travel) {
            of_queries = own_queries; // with those before
            of_keys = follow(c, travel, &of_keys, &own_keys, step);
        } else {
            of_keys = step == 0 ? own_keys : add_gradients(c, false, &of_keys, &own_keys, step);
        }
        if (travel && !way.home) {
            of_queries = follow(c, travel, &of_queries, &own_queries, step);
        } else if (travel && step == 0) {
            of_queries = own_queries;
        } else if (travel) {
            const struct sums coming = sums_of_queries(c, "arriving", step);
            send_results(c, &own_queries, &coming, step);
            if (step > 1)
                of_queries = add_gradients(c, true, &of_queries, &arriving, step - 1);
            arriving = coming;
        }
        *at_hand = next;
    }
    if (travel && way.home && c->steps > 0)
        of_queries = add_gradients(c, true, &of_queries, &arriving, c->steps);
    context_end_backward(c, &of_queries, &of_keys);
    await_results(c, 0);
}

// ---- templates

static void replace_row(struct context *c, enum config_context_parallel_method method, const struct instruction *row) {
    const struct way way = way_of(method);
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
    c->steps = (int)places_reach(&c->places, row->attribute[ATTRIBUTE(ATTENTION_PARTS, window)].i);
    if (method == CONFIG_CONTEXT_PARALLEL_LIGHTSEQ && forward)
        lightseq_forward(c);
    else if (method == CONFIG_CONTEXT_PARALLEL_LIGHTSEQ)
        lightseq_backward(c);
    else if (!forward)
        backward_pass(c, way);
    else if (way.queries_forward)
        forward_of_queries(c);
    else
        forward_of_keys(c);
    free(name);
}

void context_rewrite(struct program *p, const struct parallel *parallel) {
    const axis_set group = ring_of(parallel);
    if (!group)
        return;
    for (size_t t = 0; t < p->templates.count; t++) {
        struct context c = {.program = p, .group = group};
        rewrite_begin(&c.rewrite, p, (int)t);
        VEC(struct instruction) old = {0};
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            VEC_PUSH(&old, p->templates.item[t].instructions.item[i]);
        for (size_t i = 0; i < old.count; i++)
            if (old.item[i].op == OP_ATTENTION_PARTS || old.item[i].op == OP_ATTENTION_PARTS_BWD)
                replace_row(&c, parallel->context, &old.item[i]);
            else
                VEC_PUSH(&c.rewrite.out, old.item[i]);
        VEC_RELEASE(&old);
        rewrite_finish(&c.rewrite);
    }
}
