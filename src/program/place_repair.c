// Where greedy orders leave holes: each range goes to the lowest place that is free, and where there is none, to where
// what stands in the way weighs least. That has to find another place, and weighs more from then on (repair by least
// conflicts, Minton et al. 1992, "Minimizing conflicts: a heuristic repair method for constraint satisfaction and
// scheduling problems", section 2; weights after Morris 1993, "The breakout method for escaping from local minima").
#include "base/rng.h"
#include "program/place.h"

#include <math.h>

// Ranges that may be looked at in all attempts, and since an attempt has come further: part of so many and three times
// the square of all.
static const int64_t WORK = 40000000, ATTEMPT = 1000000;
static const double STUCK = .6;
static const double HEAVIER = 3;    // times its bytes, what had to go
static const double LITTLE = 3e-4;  // of the whole, too, lest small ones be moved for ever
static const double DIFFERENT = .5; // of its bytes, at most: what an attempt makes a range weigh more

// What stands somewhere. Kept by where it begins and by where it ends.
enum { BY_BEGIN, BY_END, ORDERS };

struct standing {
    int64_t begin, end;
    int first, last, rank;
};

struct weighed {
    int64_t begin, end;
    double weight;
};

struct repair {
    const struct in_use *range;
    size_t count;
    int64_t bytes, work, most_work;
    int *by_rank;                     // ranges, in the order in which they are placed
    double *weight;                   // [rank]
    char *stands;                     // [rank]
    VEC(struct standing) all[ORDERS]; // that stand
    VEC(struct weighed) near[ORDERS]; // of those, what is in use at the same time as the one to be placed
};

static const struct in_use *range_of(const struct repair *r, int rank) {
    return &r->range[r->by_rank[rank]];
}

static void find_near(struct repair *r, int order, const struct in_use *range) {
    const int first = range->first, last = range->last;
    const struct standing *s = r->all[order].item, *end = s + r->all[order].count;
    r->near[order].count = 0;
    for (; s < end; s++)
        if (!((s->last < first) | (s->first > last)))
            VEC_PUSH(&r->near[order], (struct weighed){s->begin, s->end, r->weight[s->rank]});
    r->work += (int64_t)r->all[order].count;
}

static int64_t lowest_free(const struct repair *r, int64_t bytes) {
    const struct weighed *near = r->near[BY_BEGIN].item;
    int64_t at = 0;
    for (size_t i = 0; i < r->near[BY_BEGIN].count && at + bytes > near[i].begin; i++)
        at = MAX(at, near[i].end);
    return at;
}

struct offer {
    int64_t at;
    double weight;
};

// On what stands there, or `below` it: the lightest of all such places.
static void find_lightest(const struct repair *r, int64_t bytes, bool below, struct offer *best) {
    const struct weighed *near = r->near[BY_BEGIN].item, *by_end = r->near[BY_END].item;
    size_t count = r->near[BY_BEGIN].count, begun = 0, over = 0;
    double weight = 0;
    for (size_t i = 0; i <= count; i++) {
        int64_t at = below ? (i < count ? near[i].begin : r->bytes) - bytes : i ? by_end[i - 1].end : 0;
        if (at < 0 || at + bytes > r->bytes)
            continue;
        for (; begun < count && near[begun].begin < at + bytes; begun++)
            weight += near[begun].weight;
        for (; over < count && by_end[over].end <= at; over++)
            weight -= by_end[over].weight;
        if (weight < best->weight)
            *best = (struct offer){at, weight};
    }
}

static bool in_way(const struct standing *s, const struct in_use *range, int64_t at) {
    return s->begin < at + range->bytes && s->end > at && s->first <= range->last && s->last >= range->first;
}

// How many stand that begin, or end, at a place or below it.
static size_t up_to(const struct repair *r, int order, int64_t place) {
    const struct standing *all = r->all[order].item;
    return PARTITION_POINT(i, r->all[order].count, (order == BY_BEGIN ? all[i].begin : all[i].end) <= place);
}

// What is in the way has to go. Returns the lowest rank of that, or `lowest`.
static int clear(struct repair *r, const struct in_use *range, int64_t at, int lowest) {
    for (int order = 0; order < ORDERS; order++) {
        struct standing *all = r->all[order].item;
        size_t kept = order == BY_END ? up_to(r, BY_END, at) : 0, count = r->all[order].count;
        size_t end = order == BY_BEGIN ? up_to(r, BY_BEGIN, at + range->bytes - 1) : count;
        for (size_t i = kept; i < end; i++) {
            if (!in_way(&all[i], range, at)) {
                all[kept++] = all[i];
                continue;
            }
            int rank = all[i].rank;
            if (r->stands[rank])
                r->weight[rank] += HEAVIER * ((double)range_of(r, rank)->bytes + LITTLE * (double)r->bytes);
            r->stands[rank] = false;
            lowest = MIN(lowest, rank);
        }
        memmove(&all[kept], &all[end], (count - end) * sizeof *all);
        r->all[order].count -= end - kept;
    }
    return lowest;
}

static void stand(struct repair *r, int rank, const struct in_use *range, int64_t at) {
    const struct standing s = {at, at + range->bytes, range->first, range->last, rank};
    for (int order = 0; order < ORDERS; order++) {
        size_t place = up_to(r, order, order == BY_BEGIN ? s.begin : s.end);
        VEC_PUSH(&r->all[order], s);
        struct standing *all = r->all[order].item;
        memmove(&all[place + 1], &all[place], (r->all[order].count - 1 - place) * sizeof s);
        all[place] = s;
    }
    r->stands[rank] = true;
}

// Gives up when it has not come further for a while: another beginning more often helps.
static bool attempt(struct repair *r, uint64_t number) {
    const double patience = STUCK * ((double)ATTEMPT + 3 * (double)r->count * (double)r->count);
    r->all[BY_BEGIN].count = r->all[BY_END].count = 0;
    memset(r->stands, false, r->count);
    for (size_t i = 0; i < r->count; i++) {
        double more = DIFFERENT * (double)rng_philox(0, number, i).word[0] / UINT32_MAX;
        r->weight[i] = (1 + more) * (double)range_of(r, (int)i)->bytes;
    }
    int furthest = 0;
    int64_t since = r->work;
    for (int lowest = 0; r->work < r->most_work && (double)(r->work - since) < patience;) {
        while (lowest < (int)r->count && r->stands[lowest])
            lowest++;
        if (lowest == (int)r->count)
            return true;
        if (lowest > furthest) {
            furthest = lowest;
            since = r->work;
        }
        int rank = lowest;
        const struct in_use *range = range_of(r, rank);
        find_near(r, BY_BEGIN, range);
        struct offer best = {lowest_free(r, range->bytes), INFINITY};
        if (best.at + range->bytes > r->bytes) {
            find_near(r, BY_END, range);
            find_lightest(r, range->bytes, false, &best);
            find_lightest(r, range->bytes, true, &best);
            lowest = clear(r, range, best.at, lowest);
        }
        stand(r, rank, range, best.at);
    }
    return false;
}

struct sort_context {
    const struct in_use *range;
    int window;
};

static double score_of(const struct in_use *r) {
    return (double)r->bytes * sqrt((double)(r->last - r->first + 1));
}

// Of what begins in the same window of time the largest first, and what lives long.
static int compare(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b;
    const struct in_use *x = &c->range[i], *y = &c->range[k];
    int windows = x->first / c->window - y->first / c->window;
    if (windows)
        return windows;
    double score = score_of(x) - score_of(y);
    return score != 0 ? (score < 0) - (score > 0) : x->first != y->first ? x->first - y->first : i - k;
}

int64_t in_use_most(const struct in_use *range, size_t count) {
    int end = 0;
    for (size_t i = 0; i < count; i++)
        end = MAX(end, range[i].last);
    int64_t *more = mem_alloc(((size_t)end + 2) * sizeof *more), now = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        more[range[i].first] += range[i].bytes;
        more[range[i].last + 1] -= range[i].bytes;
    }
    for (int t = 0; t <= end; t++) {
        now += more[t];
        most = MAX(most, now);
    }
    free(more);
    return most;
}

bool place_repair(struct in_use *range, size_t count, int64_t bytes, int period, double share) {
    static const int HALVES[] = {3, 5, 2, 8, 4, 1, 6, 12}; // of the period: windows
    struct repair r = {.range = range,
                       .count = count,
                       .bytes = bytes / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT,
                       .most_work = (int64_t)(share * (double)WORK)};
    bool placed = false;
    r.by_rank = mem_alloc(count * sizeof *r.by_rank);
    r.stands = mem_alloc(count);
    r.weight = mem_alloc(count * sizeof *r.weight);
    bool worthwhile = (int64_t)(count * count) <= WORK && in_use_most(range, count) <= bytes;
    for (size_t i = 0; worthwhile && r.work < r.most_work && !placed; i++) {
        struct sort_context context = {range, MAX(1, HALVES[i % ARRAY_LENGTH(HALVES)] * period / 2)};
        for (size_t k = 0; k < count; k++)
            r.by_rank[k] = (int)k;
        qsort_r(r.by_rank, count, sizeof *r.by_rank, compare, &context);
        placed = attempt(&r, i);
    }
    for (size_t i = 0; i < count && placed; i++) {
        const struct standing *s = &r.all[BY_BEGIN].item[i];
        range[r.by_rank[s->rank]].offset = s->begin;
    }
    for (int order = 0; order < ORDERS; order++) {
        VEC_RELEASE(&r.all[order]);
        VEC_RELEASE(&r.near[order]);
    }
    free(r.by_rank);
    free(r.stands);
    free(r.weight);
    return placed;
}
