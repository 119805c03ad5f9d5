// Best fit for rectangles that are fixed in time, from the lowest place upwards (after Burke, Kendall and Whitwell
// 2004, "A new placement heuristic for the orthogonal stock-cutting problem", section 3; for memory Sekiyama et al.
// 2018, "Profile-guided memory optimization for deep neural networks", section 4.2). The skyline is how high everything
// stands at each time. Wherever it is lower than on both sides, the best of the ranges that are in use only within that
// stretch of time is put there next; if there is none, the stretch is given up and raised to its lower neighbour.
// Stretches that are lower than their neighbours do not depend on one another, so it does not matter which comes first.
#include "memory/place.h"

#include <math.h>

struct stretch {
    int first, last, before, after; // neighbours, NONE: none
    int64_t height;
};

// A range, in the order in which they begin.
struct begun {
    int first, last, rank; // rank: among all, 0 is the best
    int64_t bytes;
};

struct skyline {
    struct begun *begun;         // [count]
    int *by_rank;                // [count], of begun
    int *next_begun, *next_rank; // [count + 1]: itself, or where to look for the next one that is not placed
    int count;
    struct stretch *stretch; // [2 count + 1]
    int stretches;
};

static int skyline_next_free(int *next, int at) {
    int found = at;
    while (next[found] != found)
        found = next[found];
    while (next[at] != found) {
        int then = next[at];
        next[at] = found;
        at = then;
    }
    return found;
}

static int first_from(const struct skyline *s, int time) {
    return (int)PARTITION_POINT(i, (size_t)s->count, s->begun[i].first < time);
}

static bool skyline_is_within(const struct begun *range, const struct stretch *where) {
    return range->first >= where->first && range->last <= where->last;
}

// The best of what is in use only within the stretch; NONE where there is nothing. In a long stretch one of the best of
// all is soon found, in a short one all that begin within it are soon looked at: both searches go on side by side.
static int best_within(struct skyline *s, const struct stretch *where) {
    int best = NONE, i = skyline_next_free(s->next_begun, first_from(s, where->first)),
        r = skyline_next_free(s->next_rank, 0);
    while (i < s->count && s->begun[i].first <= where->last) {
        if (skyline_is_within(&s->begun[s->by_rank[r]], where))
            return s->by_rank[r];
        if (s->begun[i].last <= where->last && (best == NONE || s->begun[i].rank < s->begun[best].rank))
            best = i;
        i = skyline_next_free(s->next_begun, i + 1);
        r = skyline_next_free(s->next_rank, r + 1);
    }
    return best;
}

static int lower_neighbour(const struct skyline *s, int at) {
    const struct stretch *here = &s->stretch[at];
    if (here->before != NONE && s->stretch[here->before].height < here->height)
        return here->before;
    if (here->after != NONE && s->stretch[here->after].height < here->height)
        return here->after;
    return NONE;
}

// Makes two neighbours one stretch if they are equally high; returns that, else the right one.
static int skyline_merge(struct skyline *s, int left, int right) {
    if (left == NONE || right == NONE || s->stretch[left].height != s->stretch[right].height)
        return right;
    s->stretch[left].last = s->stretch[right].last;
    s->stretch[left].after = s->stretch[right].after;
    if (s->stretch[left].after != NONE)
        s->stretch[s->stretch[left].after].before = left;
    return left;
}

static int merge_both(struct skyline *s, int at) {
    at = skyline_merge(s, s->stretch[at].before, at);
    if (s->stretch[at].after != NONE)
        skyline_merge(s, at, s->stretch[at].after);
    return at;
}

// Makes a stretch's part before `time` a stretch of its own, and returns it.
static int skyline_cut(struct skyline *s, int at, int time) {
    int left = s->stretches++, before = s->stretch[at].before;
    s->stretch[left] = s->stretch[at];
    s->stretch[left].last = time - 1;
    s->stretch[left].after = at;
    if (before != NONE)
        s->stretch[before].after = left;
    s->stretch[at].before = left;
    s->stretch[at].first = time;
    return left;
}

// Puts a range onto the stretch; returns what remains of it, or what it became.
static int skyline_put(struct skyline *s, int at, const struct begun *range) {
    int rest = NONE, mine = at;
    if (range->first > s->stretch[at].first)
        rest = skyline_cut(s, at, range->first);
    if (range->last < s->stretch[at].last) {
        mine = skyline_cut(s, at, range->last + 1);
        rest = at;
    }
    s->stretch[mine].height += range->bytes;
    mine = merge_both(s, mine);
    return rest == NONE ? mine : rest;
}

// Places all, at offset[rank]; returns how high they stand.
static int64_t skyline_fill(struct skyline *s, int64_t *offset) {
    int64_t top = 0;
    int at = 0, placed = 0;
    while (placed < s->count) {
        for (int lower; (lower = lower_neighbour(s, at)) != NONE;)
            at = lower;
        struct stretch *here = &s->stretch[at];
        int best = best_within(s, here);
        if (best == NONE) {
            int64_t left = here->before == NONE ? INT64_MAX : s->stretch[here->before].height,
                    right = here->after == NONE ? INT64_MAX : s->stretch[here->after].height;
            here->height = MIN(left, right);
            at = merge_both(s, at);
            continue;
        }
        struct begun *range = &s->begun[best];
        offset[range->rank] = here->height;
        top = MAX(top, here->height + range->bytes);
        s->next_begun[best]++;
        s->next_rank[range->rank]++;
        placed++;
        at = skyline_put(s, at, range);
    }
    return top;
}

struct scored {
    double score;
    int range;
};

static int compare_scores(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    return COMPARE(y->score, x->score) ?: COMPARE(x->range, y->range);
}

// Ranges that live longest are best; of two that live about equally long, the larger.
static double skyline_score_of(const struct in_use *r, int weight_of_bytes) {
    double life = (double)r->last - r->first + 1, root = sqrt(sqrt((double)r->bytes));
    return weight_of_bytes == 0 ? life : weight_of_bytes == 1 ? life * root : life * root * root * root;
}

static int compare_begins(const void *a, const void *b, void *context) {
    const struct in_use *range = context;
    int i = *(const int *)a, k = *(const int *)b;
    return COMPARE(range[i].first, range[k].first) ?: COMPARE(i, k);
}

int64_t place_skyline(struct in_use *range, size_t count, int64_t enough) {
    int64_t best = INT64_MAX, *offset = mem_alloc(count * sizeof *offset);
    int *order = mem_alloc(count * sizeof *order), *rank = mem_alloc(count * sizeof *rank), end = 0;
    struct scored *scored = mem_alloc(count * sizeof *scored);
    struct skyline s = {.begun = mem_alloc(count * sizeof *s.begun),
                        .count = (int)count,
                        .by_rank = mem_alloc(count * sizeof(int)),
                        .next_begun = mem_alloc((count + 1) * sizeof(int)),
                        .next_rank = mem_alloc((count + 1) * sizeof(int)),
                        .stretch = mem_alloc((2 * count + 1) * sizeof *s.stretch)};
    for (size_t i = 0; i < count; i++) {
        order[i] = (int)i;
        end = MAX(end, range[i].last);
    }
    qsort_r(order, count, sizeof *order, compare_begins, range);
    for (int weight = 0; weight < 3 && best > enough; weight++) {
        for (size_t i = 0; i < count; i++)
            scored[i] = (struct scored){skyline_score_of(&range[i], weight), (int)i};
        qsort(scored, count, sizeof *scored, compare_scores);
        for (size_t i = 0; i < count; i++)
            rank[scored[i].range] = (int)i;
        for (size_t i = 0; i < count; i++) {
            const struct in_use *r = &range[order[i]];
            s.begun[i] = (struct begun){r->first, r->last, rank[order[i]], r->bytes};
            s.by_rank[rank[order[i]]] = (int)i;
        }
        for (size_t i = 0; i <= count; i++)
            s.next_begun[i] = s.next_rank[i] = (int)i;
        s.stretch[0] = (struct stretch){0, end, NONE, NONE, 0};
        s.stretches = 1;
        int64_t top = skyline_fill(&s, offset);
        if (top >= best)
            continue;
        best = top;
        for (size_t i = 0; i < count; i++)
            range[i].offset = offset[rank[i]];
    }
    free(order);
    free(rank);
    free(offset);
    free(scored);
    free(s.begun);
    free(s.by_rank);
    free(s.next_begun);
    free(s.next_rank);
    free(s.stretch);
    return best;
}
