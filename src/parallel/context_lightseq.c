// LightSeq (Li et al., "DistFlashAttn: Distributed Memory-efficient Attention for Long-context LLMs Training", arXiv
// 2310.03294, section 3.2). Of contiguous parts under a causal mask, the queries of rank r see the keys of the ranks up
// to r: early ranks would be idle where late ones are at work. So in step t of P/2 a rank from t on fetches the keys of
// the rank t before it, and each of the first t ranks helps: it takes the queries of the rank P - t behind it, lets
// them see its own keys, and sends back what they saw.
//
// All of it goes straight from its owner, and does not wrap around (open messages): a rank that fetches nothing, or
// helps nobody, runs the same instructions, in which no query sees a key, and does not look at what has not come. In
// backward it is the same: gradients of fetched keys, and of queries that others took, go back to their owners. What
// comes is on its way during the step before, and results are merged and added one step later. In no step does a rank
// send both keys and queries, or get both, so that they share a channel, as do what both become.
#include "parallel/context_lightseq.h"

struct lightseq {
    struct context *context;
    int fetches, helps; // steps in which keys are fetched: the first ones; and the first in which helpers work
    int helps_end;      // behind the last
    int last;           // step
};

// Keys are fetched from up to half of the ranks away, queries see the others by help; neither beyond what is seen.
static struct lightseq lightseq_of(struct context *c) {
    const int parts = (int)c->places.parts;
    struct lightseq l = {.context = c, .fetches = MIN(c->steps, parts / 2), .helps_end = (parts + 1) / 2};
    l.helps = MIN(MAX(parts - c->steps, 1), l.helps_end);
    l.last = l.helps < l.helps_end ? MAX(l.fetches, l.helps_end - 1) : l.fetches;
    return l;
}

static bool fetches_in(const struct lightseq *l, int step) {
    return step >= 1 && step <= l->fetches;
}

static bool helps_in(const struct lightseq *l, int step) {
    return step >= l->helps && step < l->helps_end;
}

// How far behind the rank those are whom it helps in a step.
static int distance_of_help(const struct lightseq *l, int step) {
    return (int)l->context->places.parts - step;
}

// What a rank has of its own, and what it has been sent.
struct loads {
    struct load own_keys, own_queries, keys, queries;
};

static struct loads own_loads(const struct lightseq *l) {
    struct context *c = l->context;
    struct loads loads = {.own_keys = l->fetches > 0 ? context_pack_keys(c) : context_own_keys(c)};
    loads.own_queries = l->helps < l->helps_end ? context_pack_queries(c) : context_own_queries(c);
    return loads;
}

// Sends for a step what it needs.
static void send_ahead(const struct lightseq *l, struct loads *loads, int step) {
    struct context *c = l->context;
    if (fetches_in(l, step)) {
        loads->keys = load_of_keys(c, "keys", step);
        context_swap_open(c, CONTEXT_LOADS, 1, loads->own_keys.buffer, loads->keys.buffer, step);
    }
    if (helps_in(l, step)) {
        loads->queries = load_of_queries(c, "queries", step);
        context_swap_open(c, CONTEXT_LOADS, loads->queries.buffers, loads->own_queries.buffer, loads->queries.buffer,
                          -distance_of_help(l, step));
    }
}

// Sends results to those that were helped; returns what helpers send.
static struct sums send_back(const struct lightseq *l, const struct sums *made, const char *what, int step) {
    struct context *c = l->context;
    const struct sums arriving = sums_of_queries(c, what, step);
    context_swap_open(c, CONTEXT_RESULTS, 1, &made->buffer, &arriving.buffer, distance_of_help(l, step));
    return arriving;
}

// Lets the block of a step that was just emitted wait until all results have left but those of the step before and the
// `own` that have been sent in this one.
static void await_results(const struct lightseq *l, int step, int own) {
    const bool backward = context_is_backward(l->context);
    context_await(l->context, CONTEXT_RESULTS, own + helps_in(l, step - 1) + (backward && fetches_in(l, step - 1)));
}

// The last instruction: nothing is on its way any more.
static void await_all(const struct lightseq *l) {
    if (l->last > 0) {
        context_await(l->context, CONTEXT_LOADS, 0);
        context_await(l->context, CONTEXT_RESULTS, 0);
    }
}

void lightseq_forward(struct context *c) {
    const struct lightseq l = lightseq_of(c);
    struct loads loads = own_loads(&l), coming = loads;
    struct sums seen = {0}, arriving = {0};
    int names = 0; // of sums so far
    for (int step = 0; step <= l.last; step++) {
        send_ahead(&l, &coming, step + 1);
        if (step == 0 || fetches_in(&l, step)) {
            const struct sums made = sums_at_home(c, "seen", "seen_lse", names++);
            context_block(c, &loads.own_queries, 0, step ? &loads.keys : &loads.own_keys, step, step == 0,
                          step ? &seen : NULL, &made);
            seen = made;
        }
        struct sums helped = {0};
        if (helps_in(&l, step)) {
            const struct sums made = sums_of_queries(c, "seen_here", step);
            context_block(c, &loads.queries, step, &loads.own_keys, 0, false, NULL, &made);
            await_results(&l, step, 0);
            helped = send_back(&l, &made, "seen_there", step);
        }
        if (helps_in(&l, step - 1)) {
            const struct sums made = sums_at_home(c, "seen", "seen_lse", names++);
            context_merge(c, &seen, &arriving, -distance_of_help(&l, step - 1), &made);
            seen = made;
        }
        arriving = helped;
        loads = coming;
    }
    if (helps_in(&l, l.last)) {
        const struct sums made = sums_at_home(c, "seen", "seen_lse", names++);
        context_merge(c, &seen, &arriving, -distance_of_help(&l, l.last), &made);
        seen = made;
    }
    context_end(c, &seen);
    await_all(&l);
}

// ---- backward

// Gradients of the rank's own, so far, and those that are on their way to it.
struct gradients_so_far {
    struct sums queries, keys, queries_arriving, keys_arriving;
    int names;
};

// Adds what was sent during the step before.
static void add_arrived(const struct lightseq *l, struct gradients_so_far *g, int step) {
    struct context *c = l->context;
    if (fetches_in(l, step)) {
        const struct sums made = sums_of_keys(c, "key_sums", g->names++);
        context_add(c, &g->keys, &g->keys_arriving, step, &made);
        g->keys = made;
    }
    if (helps_in(l, step)) {
        const struct sums made = sums_of_queries(c, "dq_sums", g->names++);
        context_add(c, &g->queries, &g->queries_arriving, -distance_of_help(l, step), &made);
        g->queries = made;
    }
}

// Own queries and the keys of a step, whose gradients go back to their owner.
static struct sums own_block(const struct lightseq *l, const struct loads *loads, struct gradients_so_far *g,
                             int step) {
    struct context *c = l->context;
    const struct sums keys = sums_of_keys(c, "key_gradients", step), queries = sums_of_queries(c, "dq", step);
    context_block_backward(c, &loads->own_queries, 0, step ? &loads->keys : &loads->own_keys, step,
                           step ? &g->queries : NULL, &queries, &keys);
    g->queries = queries;
    if (step == 0) {
        g->keys = keys;
        return (struct sums){0};
    }
    await_results(l, step, 0);
    const struct sums arriving = sums_of_keys(c, "key_arriving", step);
    context_swap_open(c, CONTEXT_RESULTS, 1, &keys.buffer, &arriving.buffer, -step);
    return arriving;
}

// The queries of another rank and own keys.
static struct sums helping_block(const struct lightseq *l, const struct loads *loads, struct gradients_so_far *g,
                                 int step) {
    struct context *c = l->context;
    const struct sums keys = sums_of_keys(c, "key_gradients_here", step), queries = sums_of_queries(c, "dq_here", step);
    context_block_backward(c, &loads->queries, step, &loads->own_keys, 0, NULL, &queries, &keys);
    await_results(l, step, fetches_in(l, step));
    const struct sums arriving = send_back(l, &queries, "dq_arriving", step);
    const struct sums made = sums_of_keys(c, "key_sums", g->names++);
    context_add(c, &g->keys, &keys, 0, &made);
    g->keys = made;
    return arriving;
}

void lightseq_backward(struct context *c) {
    const struct lightseq l = lightseq_of(c);
    struct loads loads = own_loads(&l), coming = loads;
    struct gradients_so_far g = {.names = 0};
    for (int step = 0; step <= l.last; step++) {
        struct sums keys_arriving = {0}, queries_arriving = {0};
        send_ahead(&l, &coming, step + 1);
        if (step == 0 || fetches_in(&l, step))
            keys_arriving = own_block(&l, &loads, &g, step);
        if (helps_in(&l, step))
            queries_arriving = helping_block(&l, &loads, &g, step);
        add_arrived(&l, &g, step - 1);
        g.keys_arriving = keys_arriving;
        g.queries_arriving = queries_arriving;
        loads = coming;
    }
    add_arrived(&l, &g, l.last);
    context_end_backward(c, &g.queries, &g.keys);
    await_all(&l);
}
