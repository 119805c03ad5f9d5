// For where greedy orders leave holes. Each range goes to the lowest place that is free or, if there is none, to where
// what stands in the way weighs least. The latter has to find another place, and weighs more from then on (repair by
// least conflicts, Minton et al. 1992, "Minimizing conflicts: a heuristic repair method for constraint satisfaction and
// scheduling problems", section 2; weights after Morris 1993, "The breakout method for escaping from local minima").
#include "base/rng.h"
#include "memory/place.h"

#include <math.h>

// How many ranges may be looked at. In all attempts: WORK plus SQUARES times the square of their number, but no more
// than MOST_WORK. In an attempt since it last came further: STUCK times (ATTEMPT plus three times that square).
static const int64_t WORK = 120000000, MOST_WORK = 600000000, ATTEMPT = 1000000;
enum { SQUARES = 10, MANY = 20000 }; // more ranges than that are too many
static const double STUCK = .6;
static const double TIGHT = 1.002;  // times what is in use at one time: none of 13 programs was repaired into less
enum { SMALL = 1000 };              // the part of the whole up to which ranges come last in every other attempt
static const double HEAVIER = 3;    // what a range that had to go weighs more: so many times its bytes,
static const double LITTLE = 3e-4;  // and this part of the whole, lest small ones be moved for ever
static const double DIFFERENT = .5; // the part of its bytes, at most, that a range weighs more from an attempt's start

// When something that stands is in use.
struct span_of_time {
    int first, last;
};

// Where it stands, and what it weighs, which changes only when it has to go.
struct weighed {
    int64_t begin, end;
    double weight;
    int rank;
};

enum { BY_BEGIN, BY_END, ORDERS };

// What stands, in the order of where it begins or ends.
struct standing {
    VEC(struct span_of_time) times;
    VEC(struct weighed) places;
};

struct repair {
    const struct in_use *range;
    size_t count;
    int64_t bytes, work, most_work;
    int *by_rank;                // ranges, in the order in which they are placed
    double *weight;              // [rank]
    int64_t *at;                 // [rank]: where it stands, -1: nowhere
    struct standing all[ORDERS]; // that stand
    // Of those, what is in use at the same time as the one to be placed.
    struct {
        struct weighed *item; // [count]
        size_t count;
    } near[ORDERS];
};

static const struct in_use *range_of(const struct repair *r, int rank) {
    return &r->range[r->by_rank[rank]];
}

// Copies each, but goes on to the next place only after one that is near: a CPU could not foresee a branch here.
static void find_near(struct repair *r, int order, const struct in_use *range) {
    const int first = range->first, last = range->last;
    const struct span_of_time *time = r->all[order].times.item;
    const struct weighed *place = r->all[order].places.item;
    const size_t count = r->all[order].times.count;
    struct weighed *to = r->near[order].item;
    for (size_t i = 0; i < count; i++) {
        *to = place[i];
        to += (time[i].last >= first) & (time[i].first <= last);
    }
    *to = (struct weighed){.begin = INT64_MAX, .end = INT64_MAX};
    r->near[order].count = (size_t)(to - r->near[order].item);
    r->work += (int64_t)count;
}

static int64_t lowest_free(const struct repair *r, int64_t bytes) {
    const struct weighed *near = r->near[BY_BEGIN].item;
    int64_t at = 0;
    for (size_t i = 0; at + bytes > near[i].begin; i++)
        at = MAX(at, near[i].end);
    return at;
}

struct offer {
    int64_t at;
    double weight;
};

// Looks at the places right above what stands near, or right `below` it; *best becomes the lightest if it is lighter.
static void find_lightest(const struct repair *r, int64_t bytes, bool below, struct offer *best) {
    const struct weighed *near = r->near[BY_BEGIN].item, *by_end = r->near[BY_END].item;
    size_t count = r->near[BY_BEGIN].count, begun = 0, over = 0;
    double weight = 0;
    for (size_t i = 0; i <= count; i++) {
        int64_t at = below ? (i < count ? near[i].begin : r->bytes) - bytes : i ? by_end[i - 1].end : 0;
        if (at < 0 || at + bytes > r->bytes)
            continue;
        for (; near[begun].begin < at + bytes; begun++)
            weight += near[begun].weight;
        for (; by_end[over].end <= at; over++)
            weight -= by_end[over].weight;
        if (weight < best->weight)
            *best = (struct offer){at, weight};
    }
}

// How many stand that begin, or end, below a place.
static size_t repair_below(const struct repair *r, int order, int64_t place) {
    const struct weighed *item = r->all[order].places.item;
    return PARTITION_POINT(i, r->all[order].places.count, (order == BY_BEGIN ? item[i].begin : item[i].end) < place);
}

static void repair_stand(struct repair *r, int rank, int64_t at) {
    const struct in_use *range = range_of(r, rank);
    r->at[rank] = at;
    for (int order = 0; order < ORDERS; order++) {
        struct standing *all = &r->all[order];
        const size_t i = repair_below(r, order, order == BY_BEGIN ? at : at + range->bytes),
                     behind = all->places.count - i;
        VEC_PUSH(&all->times, (struct span_of_time){0});
        VEC_PUSH(&all->places, (struct weighed){0});
        memmove(&all->times.item[i + 1], &all->times.item[i], behind * sizeof *all->times.item);
        memmove(&all->places.item[i + 1], &all->places.item[i], behind * sizeof *all->places.item);
        all->times.item[i] = (struct span_of_time){range->first, range->last};
        all->places.item[i] = (struct weighed){at, at + range->bytes, r->weight[rank], rank};
    }
}

static void repair_leave(struct repair *r, int rank) {
    const int64_t begin = r->at[rank], end = begin + range_of(r, rank)->bytes;
    for (int order = 0; order < ORDERS; order++) {
        struct standing *all = &r->all[order];
        size_t i = repair_below(r, order, order == BY_BEGIN ? begin : end);
        while (all->places.item[i].rank != rank)
            i++;
        const size_t behind = --all->places.count - i;
        all->times.count--;
        memmove(&all->times.item[i], &all->times.item[i + 1], behind * sizeof *all->times.item);
        memmove(&all->places.item[i], &all->places.item[i + 1], behind * sizeof *all->places.item);
    }
    r->at[rank] = -1;
}

// Removes what is in the way. Returns the lowest of the ranks removed and `lowest`.
static int repair_clear(struct repair *r, int64_t begin, int64_t end, int lowest) {
    for (size_t i = 0; r->near[BY_BEGIN].item[i].begin < end; i++) {
        const struct weighed *near = &r->near[BY_BEGIN].item[i];
        if (near->end <= begin)
            continue;
        r->weight[near->rank] += HEAVIER * ((double)(near->end - near->begin) + LITTLE * (double)r->bytes);
        lowest = MIN(lowest, near->rank);
        repair_leave(r, near->rank);
    }
    return lowest;
}

// Attempt `number`. Gives up when it has not come further for a while: to begin in another way helps more often.
static bool repair_attempt(struct repair *r, uint64_t number) {
    const double patience = STUCK * ((double)ATTEMPT + 3 * (double)r->count * (double)r->count);
    for (int order = 0; order < ORDERS; order++)
        r->all[order].places.count = r->all[order].times.count = 0;
    for (size_t i = 0; i < r->count; i++) {
        double more = DIFFERENT * (double)rng_philox(0, number, i).word[0] / UINT32_MAX;
        r->weight[i] = (1 + more) * (double)range_of(r, (int)i)->bytes;
        r->at[i] = -1;
    }
    int furthest = 0;
    int64_t since = r->work;
    for (int lowest = 0; r->work < r->most_work && (double)(r->work - since) < patience;) {
        while (lowest < (int)r->count && r->at[lowest] >= 0)
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
            lowest = repair_clear(r, best.at, best.at + range->bytes, lowest);
        }
        repair_stand(r, rank, best.at);
    }
    return false;
}

struct sort_context {
    const struct in_use *range;
    int window;
    int64_t small; // bytes: up to these, ranges come last, whenever they begin
};

static double repair_score_of(const struct in_use *r) {
    return (double)r->bytes * sqrt((double)(r->last - r->first + 1));
}

// Of what begins in the same window of time, the largest and what lives long come first.
static int repair_compare(const void *a, const void *b, void *context) {
    const struct sort_context *c = context;
    int i = *(const int *)a, k = *(const int *)b;
    const struct in_use *x = &c->range[i], *y = &c->range[k];
    int order =
        COMPARE(x->bytes <= c->small, y->bytes <= c->small) ?: COMPARE(x->first / c->window, y->first / c->window);
    if (order)
        return order;
    double p = repair_score_of(x), q = repair_score_of(y);
    return COMPARE(q, p) ?: COMPARE(x->first, y->first) ?: COMPARE(i, k);
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
                       .most_work = MIN(MOST_WORK, WORK + SQUARES * (int64_t)(count * count))};
    r.most_work = (int64_t)(share * (double)r.most_work);
    bool placed = false;
    r.by_rank = mem_alloc(count * sizeof *r.by_rank);
    r.at = mem_alloc(count * sizeof *r.at);
    r.weight = mem_alloc(count * sizeof *r.weight);
    for (int order = 0; order < ORDERS; order++)
        r.near[order].item = mem_alloc((count + 1) * sizeof *r.near[order].item);
    bool worthwhile = count <= MANY && TIGHT * (double)in_use_most(range, count) <= (double)bytes;
    for (size_t i = 0; worthwhile && r.work < r.most_work && !placed; i++) {
        struct sort_context context = {range, MAX(1, HALVES[i % ARRAY_LENGTH(HALVES)] * period / 2),
                                       i % 2 ? 0 : r.bytes / SMALL};
        for (size_t k = 0; k < count; k++)
            r.by_rank[k] = (int)k;
        qsort_r(r.by_rank, count, sizeof *r.by_rank, repair_compare, &context);
        placed = repair_attempt(&r, i);
    }
    for (size_t i = 0; i < count && placed; i++) {
        range[r.by_rank[i]].offset = r.at[i];
    }
    for (int order = 0; order < ORDERS; order++) {
        VEC_RELEASE(&r.all[order].times);
        VEC_RELEASE(&r.all[order].places);
        free(r.near[order].item);
    }
    free(r.by_rank);
    free(r.at);
    free(r.weight);
    return placed;
}
