// The end of a search: moves single passes of a schedule to where they make it cost less. This finds what filling a
// plan never gives: a rank that waits although it could work, because what it waits for is more urgent.
#include "pipeline/schedule_make.h"

#include <math.h>

#define ROUNDING 1e-9
// A pass moves by at most so many places.
enum { REACH = 8 };

struct measure {
    double most, sum; // over the ranks' times; INFINITY where ranks wait for one another for ever
};

static struct measure polish_measure(const struct schedule *s, const struct schedule_times *times) {
    struct schedule_cost cost;
    struct measure m = {INFINITY, INFINITY};
    if (!schedule_finishes(s, times, &cost))
        return m;
    m = (struct measure){.most = cost.cost};
    for (int r = 0; r < s->stages; r++)
        m.sum += cost.rank[r].end - cost.rank[r].start;
    schedule_cost_release(&cost);
    return m;
}

static void move_pass(struct schedule_rank *list, size_t from, size_t to) {
    const struct pass pass = list->item[from];
    if (from < to)
        memmove(&list->item[from], &list->item[from + 1], (to - from) * sizeof pass);
    else
        memmove(&list->item[to + 1], &list->item[to], (from - to) * sizeof pass);
    list->item[to] = pass;
}

// Numbers the microbatches anew, so that each kind has them in order. False if a backward would come before its
// forward, or a weights' pass before the backward for the input.
static bool polish_number(struct schedule_rank *list) {
    int next[PASS_KINDS] = {0};
    for (size_t i = 0; i < list->count; i++) {
        struct pass *pass = &list->item[i];
        pass->microbatch = next[pass->kind]++;
        if (next[PASS_BACKWARD_INPUT] > next[PASS_FORWARD] || next[PASS_BACKWARD_WEIGHT] > next[PASS_BACKWARD_INPUT])
            return false;
    }
    return true;
}

struct polish {
    struct schedule *schedule;
    const struct schedule_options *options;
    struct measure now;
    double passes_left;
    struct schedule_rank before; // room for the list of the rank that is being changed
};

// Moves a pass; where that does not help, undoes it and returns false.
static bool try_move(struct polish *p, int rank, size_t from, size_t to) {
    struct schedule *s = p->schedule;
    struct schedule_rank *list = &s->rank[rank];
    const size_t bytes = list->count * sizeof *list->item;
    memcpy(p->before.item, list->item, bytes);
    move_pass(list, from, to);
    if (polish_number(list) &&
        schedule_activations(s, rank, p->options->weight_share) <= p->options->activation_limit + ROUNDING) {
        const struct measure m = polish_measure(s, &p->options->times);
        const double less = ROUNDING * p->now.most;
        p->passes_left -= 3. * s->stages * s->microbatches;
        if (m.most < p->now.most - less || (m.most <= p->now.most && m.sum < p->now.sum - less)) {
            p->now = m;
            return true;
        }
    }
    memcpy(list->item, p->before.item, bytes);
    return false;
}

static bool move_passes(struct polish *p, int rank) {
    const struct schedule_rank *list = &p->schedule->rank[rank];
    bool moved = false;
    for (size_t from = 0; from < list->count; from++)
        for (size_t to = from < REACH ? 0 : from - REACH; to < MIN(list->count, from + REACH + 1); to++)
            // Moving past a pass of its own kind is the same as moving next to it, since microbatches are numbered
            // anew.
            if (list->item[to].kind != list->item[from].kind && p->passes_left > 0)
                moved = try_move(p, rank, from, to) || moved;
    return moved;
}

double schedule_polish(struct schedule *s, const struct schedule_options *o, double passes) {
    struct polish p = {.schedule = s, .options = o, .passes_left = passes, .now = polish_measure(s, &o->times)};
    p.before.item = mem_alloc(s->rank[0].count * sizeof *p.before.item);
    for (bool moved = true; moved && p.passes_left > 0;) {
        moved = false;
        for (int r = 0; r < s->stages; r++)
            moved = move_passes(&p, r) || moved;
    }
    free(p.before.item);
    return p.passes_left;
}
