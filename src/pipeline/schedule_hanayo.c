// Liu et al. 2023, "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency".
#include "pipeline/schedule_make.h"

#include <math.h>

// ---- one order of messages
//
// Messages are told apart by their order: activations, or gradients, from one rank to another have to be taken in the
// order in which they were sent. With several waves a rank may have several messages that it could take next.

struct message {
    int chunk; // that takes it, of the receiving rank
    double at; // when it arrives
};

struct channel {
    VEC(struct message);
    size_t taken;
};

// All that a rank sends. Neighbours of its virtual stages are on the same rank, the previous one or the next.
struct channels {
    struct channel to[2][2]; // [previous, next][activations, gradients]
};

// Which of several passes that can begin at the same time a rank does. AS_LISTED: what its list has next, and nothing
// else.
enum choice { AS_LISTED, FIRST_LISTED, DEEPEST, CHOICES };

// Ranks that go by the clock: each does the pass that can begin first. If no more microbatches are on their way than a
// rank may hold, all ranks come to the end, since there is always room for the next message.
struct by_clock {
    const struct schedule *lists;
    struct schedule_times times;
    enum choice choice;
    int limit;                 // (chunk, microbatch) that a rank may hold
    int most_begun;            // the most microbatches that are begun and not through
    int *place;                // [virtual stage][microbatch][gradient]: in its rank's list
    int *done;                 // [virtual stage][gradient]: how many microbatches are done
    double *free_at;           // [rank]
    int *held;                 // [rank]
    struct channels *channels; // [rank]
    struct schedule *out;
};

static struct channel *channel_of(const struct by_clock *b, int from, int to, bool gradient) {
    return &b->channels[from].to[to > from][gradient];
}

struct next_pass {
    double start; // INFINITY: none
    int stage;
    bool gradient;
    int turn; // of the passes that can begin at the same time, the lowest comes first
};

// Whether the next pass of a virtual stage, forward or backward, can be done, and when.
static bool can_begin(const struct by_clock *b, int rank, int stage, bool gradient, struct next_pass *next) {
    const struct schedule *s = b->lists;
    const int last = s->stages * s->chunks - 1, before = stage + (gradient ? 1 : -1);
    const int microbatch = b->done[2 * stage + gradient];
    if (microbatch == s->microbatches || (!gradient && b->held[rank] >= b->limit) ||
        (gradient && microbatch >= b->done[2 * stage]) ||
        (!gradient && stage == 0 && microbatch - b->done[1] >= b->most_begun))
        return false;
    double there = 0;
    if (before >= 0 && before <= last && s->place[before].rank == rank) {
        if (b->done[2 * before + gradient] <= microbatch)
            return false;
    } else if (before >= 0 && before <= last) {
        const struct channel *c = channel_of(b, s->place[before].rank, rank, gradient);
        if (c->taken == c->count || c->item[c->taken].chunk != s->place[stage].chunk)
            return false;
        there = c->item[c->taken].at;
    }
    const int place = b->place[(stage * s->microbatches + microbatch) * 2 + gradient];
    *next = (struct next_pass){MAX(b->free_at[rank], there), stage, gradient, place};
    if (b->choice == DEEPEST)
        next->turn = gradient ? stage - last : last - stage;
    return b->choice != AS_LISTED || place == (int)b->out->rank[rank].count;
}

static struct next_pass first_of_rank(const struct by_clock *b, int rank) {
    struct next_pass first = {.start = INFINITY}, next;
    for (int c = 0; c < b->lists->chunks; c++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (can_begin(b, rank, b->lists->virtual_stage[rank * b->lists->chunks + c], gradient, &next) &&
                (next.start < first.start || (next.start == first.start && next.turn < first.turn)))
                first = next;
    return first;
}

static void hanayo_do_pass(struct by_clock *b, int rank, struct next_pass pass) {
    const struct schedule *s = b->lists;
    const int behind = pass.stage + (pass.gradient ? -1 : 1), before = pass.stage + (pass.gradient ? 1 : -1);
    const int last = s->stages * s->chunks - 1, microbatch = b->done[2 * pass.stage + pass.gradient]++;
    const double end = pass.start + (pass.gradient ? b->times.backward_input : b->times.forward);
    if (before >= 0 && before <= last && s->place[before].rank != rank)
        channel_of(b, s->place[before].rank, rank, pass.gradient)->taken++;
    if (behind >= 0 && behind <= last && s->place[behind].rank != rank) {
        struct channel *c = channel_of(b, rank, s->place[behind].rank, pass.gradient);
        VEC_PUSH(c, (struct message){s->place[behind].chunk, end + b->times.latency});
    }
    b->free_at[rank] = end;
    b->held[rank] += pass.gradient ? -1 : 1;
    schedule_add(b->out, rank, pass.gradient ? PASS_BACKWARD : PASS_FORWARD, s->place[pass.stage].chunk, microbatch);
}

static void by_clock_begin(struct by_clock *b, const struct schedule *lists, const struct schedule_times *times,
                           enum choice choice, int limit, int most_begun, struct schedule *out) {
    const size_t ranks = (size_t)lists->stages, count = ranks * (size_t)lists->chunks;
    *b = (struct by_clock){
        .lists = lists, .times = *times, .choice = choice, .limit = limit, .most_begun = most_begun, .out = out};
    b->place = mem_alloc(2 * count * (size_t)lists->microbatches * sizeof *b->place);
    b->done = mem_alloc(2 * count * sizeof *b->done);
    b->free_at = mem_alloc(ranks * sizeof *b->free_at);
    b->held = mem_alloc(ranks * sizeof *b->held);
    b->channels = mem_alloc(ranks * sizeof *b->channels);
    for (int r = 0; r < lists->stages; r++)
        for (size_t i = 0; i < lists->rank[r].count; i++) {
            const struct pass pass = lists->rank[r].item[i];
            const int stage = lists->virtual_stage[r * lists->chunks + pass.chunk];
            b->place[(stage * lists->microbatches + pass.microbatch) * 2 + (pass.kind != PASS_FORWARD)] = (int)i;
        }
}

static void by_clock_end(struct by_clock *b) {
    for (int r = 0; r < b->lists->stages; r++)
        for (int i = 0; i < 4; i++)
            VEC_RELEASE(&b->channels[r].to[i / 2][i % 2]);
    free(b->channels);
    free(b->held);
    free(b->free_at);
    free(b->done);
    free(b->place);
}

// Adds the lists' passes to the empty table `out`, in an order in which messages are taken as they were sent; whether
// that comes to an end.
static bool go_by_clock(const struct schedule *lists, const struct schedule_times *times, enum choice choice, int limit,
                        int most_begun, struct schedule *out) {
    struct by_clock b;
    by_clock_begin(&b, lists, times, choice, limit, most_begun, out);
    struct next_pass *first = mem_alloc((size_t)lists->stages * sizeof *first);
    for (int r = 0; r < lists->stages; r++)
        first[r] = first_of_rank(&b, r);
    int64_t left = 2 * (int64_t)lists->stages * lists->chunks * lists->microbatches;
    for (; left > 0; left--) {
        int rank = 0;
        for (int r = 1; r < lists->stages; r++)
            if (first[r].start < first[rank].start)
                rank = r;
        if (first[rank].start == INFINITY)
            break;
        const int behind = first[rank].stage + (first[rank].gradient ? -1 : 1);
        hanayo_do_pass(&b, rank, first[rank]);
        first[rank] = first_of_rank(&b, rank);
        if (behind >= 0 && behind < lists->stages * lists->chunks)
            first[lists->place[behind].rank] = first_of_rank(&b, lists->place[behind].rank);
    }
    free(first);
    by_clock_end(&b);
    return left == 0;
}

// How many of the passes that may be tried one order counts for: a forward and its backward here take as long as one
// pass in a search.
static double passes_of(const struct schedule *lists) {
    return 1. * lists->stages * lists->chunks * lists->microbatches;
}

// Clocks by which orders are made; the first one goes by the true times. What is best at each moment is not best in the
// end, and an order made by a clock that is a little wrong may turn out better.
static const struct {
    double later;    // messages take longer by this part of a forward
    double backward; // backwards take longer by this factor
} CLOCK[] = {{0, 1}, {.001, 1}, {.25, 1}, {.5, 1}, {1, 1}, {0, .5}, {0, 1.5}, {.25, .5}};
enum { CLOCKS = sizeof CLOCK / sizeof *CLOCK };

// What take_in_order tries, and the best of it.
struct trials {
    const struct schedule *lists;
    const struct schedule_times *times;
    struct schedule_times clock;
    int limit;
    double passes_left, least;
    enum choice best;
    int best_begun;
};

// Tries one order; whether it comes to an end. Of two that are equally good by one clock, the earlier choice is kept,
// and then the one with fewer microbatches on their way.
static bool hanayo_try_order(struct trials *t, enum choice choice, int most_begun, struct schedule *out) {
    struct schedule tried = schedule_empty_like(t->lists);
    struct schedule_cost cost = {.cost = INFINITY};
    bool ends = go_by_clock(t->lists, &t->clock, choice, t->limit, most_begun, &tried);
    if (ends)
        schedule_cost(&tried, t->times, &cost);
    t->passes_left -= passes_of(t->lists);
    bool before = choice < t->best || (choice == t->best && most_begun < t->best_begun);
    if (cost.cost < t->least || (ends && cost.cost == t->least && before)) {
        t->least = cost.cost;
        t->best = choice;
        t->best_begun = most_begun;
        schedule_swap(&tried, out);
    }
    schedule_cost_release(&cost);
    schedule_release(&tried);
    return ends;
}

// Most orders are near their best with a quarter more microbatches on their way than a rank may hold; with a few more
// they do not come to an end, and with still more neither.
static void try_clock(struct trials *t, struct schedule *out) {
    const int held = t->limit / t->lists->chunks, most = MIN(held, t->lists->microbatches), first = MIN(held / 4, most);
    int too_many[CHOICES] = {[FIRST_LISTED] = most + 1, [DEEPEST] = most + 1};
    for (int i = 0; i <= most; i++) {
        int more = first + i <= most ? first + i : most - i; // up from the first, then down
        for (enum choice c = FIRST_LISTED; c < CHOICES && (t->passes_left > 0 || t->least == INFINITY); c++)
            if (more < too_many[c] && !hanayo_try_order(t, c, held + more, out))
                too_many[c] = more;
    }
}

// Tries the lists as they are, if their messages match in order (then returns true); else makes orders by the clocks,
// as many as `passes` allow, but at least one if there is none yet.
static bool take_in_order(struct trials *t, const struct schedule *lists, double passes, struct schedule *out) {
    const int held = t->limit / lists->chunks;
    t->lists = lists;
    t->passes_left = passes;
    t->clock = *t->times;
    t->best = AS_LISTED; // no choice comes before it
    // If the lists' order comes to an end with some number of microbatches on their way, it does so with the most.
    if (hanayo_try_order(t, AS_LISTED, held + MIN(held, lists->microbatches), out))
        return true;
    for (int k = 0; k < CLOCKS && (k == 0 || t->passes_left > 0); k++) {
        t->clock.latency = t->times->latency + CLOCK[k].later * t->times->forward;
        t->clock.backward_input = t->times->backward_input * CLOCK[k].backward;
        t->best = AS_LISTED;
        try_clock(t, out);
    }
    CHECK(t->least < INFINITY);
    return false;
}

// ---- the schedule

enum { FORWARD = 1, BACKWARD = 2 };

// Searches lists of passes, in which messages need not match in order. The plans: each microbatch goes through all
// virtual stages without a stop, one microbatch after the other.
static struct schedule search_lists(const struct schedule *like, const struct schedule_options *o,
                                    double *passes_left) {
    enum { TIGHTER = 4, KEPT = 4 };
    int count = like->stages * like->chunks, whole = (FORWARD + BACKWARD) * like->chunks;
    int(*when)[3] = mem_alloc((size_t)count * sizeof *when);
    for (int v = 0; v < count; v++) {
        when[v][0] = FORWARD * v;
        when[v][1] = FORWARD * count + BACKWARD * (count - 1 - v);
        when[v][2] = -1;
    }
    struct schedule plan[TIGHTER], found = schedule_empty_like(like);
    for (int k = 0; k < TIGHTER; k++) {
        plan[k] = schedule_empty_like(like);
        plan_by_time(&plan[k], (const int(*)[3])when, MAX(1, whole - k));
    }
    free(when);
    struct schedule_search search;
    search_begin(&search, like, o, count);
    search_plans(&search, plan, TIGHTER, KEPT);
    *passes_left = MAX(0, search.passes_left);
    CHECK(search_end(&search, &found));
    for (int r = 0; r < like->stages; r++) {
        size_t n = 0;
        for (size_t i = 0; i < found.rank[r].count; i++)
            if (found.rank[r].item[i].kind != PASS_BACKWARD_WEIGHT)
                found.rank[r].item[n++] = found.rank[r].item[i];
        found.rank[r].count = n;
    }
    return found;
}

// Each rank does what is ready as soon as it can, as the paper's list scheduler does. In lists that a search finds,
// messages need not match in order, and how much is lost by putting them in order differs from list to list: so some
// lists are searched for with messages that take a little longer.
void schedule_make_hanayo(struct schedule *s, const struct schedule_options *o) {
    static const double LATER[] = {0, .03, .2}; // messages take longer by this part of a forward
    struct schedule_options whole = *o;
    whole.times.backward_input += o->times.backward_weight;
    whole.times.backward_weight = 0;
    const struct schedule_times times = whole.times;
    // The reserve is for putting messages in order: about what that needs, at most half of all.
    const int searches = ARRAY_LENGTH(LATER);
    const int64_t share = o->search_passes / searches,
                  reserve = MIN(share / 2, CLOCKS * (MIN(s->stages, s->microbatches) + 3) * (int64_t)passes_of(s));
    whole.search_passes = share - reserve;
    struct trials trials = {.times = &times, .limit = s->stages * s->chunks, .least = INFINITY};
    bool is_one = false;
    for (int k = 0; k < searches && !is_one && (k == 0 || reserve > 0); k++) {
        double left;
        whole.times.latency = times.latency + LATER[k] * times.forward;
        struct schedule lists = search_lists(s, &whole, &left);
        is_one = take_in_order(&trials, &lists, left + (double)reserve, s) && k == 0;
        schedule_release(&lists);
    }
}
