// List scheduling along a plan: schedule_make.h says what for.
#include "pipeline/schedule_make.h"

#include <math.h>

// ---- plans

struct timed_pass {
    long time;
    struct pass pass;
};

// At equal times by microbatch, chunk and kind: the order must not depend on the library's qsort.
static int fill_compare_times(const void *a, const void *b) {
    const struct timed_pass *x = a, *y = b;
    return COMPARE(x->time, y->time)
               ?: COMPARE(x->pass.microbatch, y->pass.microbatch)
               ?: COMPARE(x->pass.chunk, y->pass.chunk) ?: COMPARE(x->pass.kind, y->pass.kind);
}

int plan_by_time(struct schedule *plan, const int (*when)[3], int interval) {
    size_t count = 0, most_count = 3 * (size_t)plan->chunks * (size_t)plan->microbatches;
    struct timed_pass *all = mem_alloc(most_count * sizeof *all);
    int most = 0;
    for (int r = 0; r < plan->stages; r++) {
        struct timed_pass *at = all;
        for (int m = 0; m < plan->microbatches; m++)
            for (int c = 0; c < plan->chunks; c++) {
                const int *times = when[plan->virtual_stage[r * plan->chunks + c]];
                long later = (long)interval * m;
                *at++ = (struct timed_pass){times[0] + later, {PASS_FORWARD, c, m}};
                *at++ = (struct timed_pass){times[1] + later, {PASS_BACKWARD_INPUT, c, m}};
                if (times[2] >= 0)
                    *at++ = (struct timed_pass){times[2] + later, {PASS_BACKWARD_WEIGHT, c, m}};
            }
        count = (size_t)(at - all);
        qsort(all, count, sizeof *all, fill_compare_times);
        int held = 0;
        for (size_t i = 0; i < count; i++) {
            struct pass pass = all[i].pass;
            schedule_add(plan, r, pass.kind, pass.chunk, pass.microbatch);
            held += pass.kind == PASS_FORWARD ? 1 : pass.kind == PASS_BACKWARD_INPUT ? -1 : 0;
            most = MAX(most, held);
        }
    }
    free(all);
    return most;
}

// ---- filling them

// Sums of times and of shares are not exact.
#define ROUNDING 1e-9

enum { FORWARD, BACKWARD, WEIGHT, LINES };

// The passes of one kind of one chunk of a rank: microbatches in order.
struct line {
    size_t *place; // of each microbatch in the rank's plan; SIZE_MAX: not planned
    double *ended; // of each microbatch, when its pass ends; negative: not begun
    int done;      // microbatches begun
};

// One rank.
struct lane {
    size_t next;                      // the first pass of the plan that is not done
    double clock;                     // when the rank decides next; INFINITY: once another has begun what it needs
    double first_start, last_end;     // of what it did; first_start negative: nothing yet
    double idle;                      // time since its first pass in which it did nothing
    int held;                         // forwards without backward for the input
    struct pass *weights;             // weights' passes that have become possible, in the order of their backwards
    size_t weights_count, weights_at; // how many there are; all before weights_at are done
    int weights_left;                 // how many are not done
};

struct filler {
    const struct schedule *plan;
    const struct fill *how;
    struct schedule *out;
    struct line *line; // [rank][chunk][FORWARD, BACKWARD, WEIGHT]
    struct lane *lane; // [rank]
    // A tree whose node i has the nodes 2 i and 2 i + 1 below it, and whose last nodes, [stages] on, are the ranks: the
    // rank below each that decides first. That of all ranks is first[1].
    int *first;
};

static struct line *fill_line_of(const struct filler *f, int rank, int chunk, int kind) {
    return &f->line[(rank * f->plan->chunks + chunk) * LINES + kind];
}

static int line_kind(enum pass_kind kind) {
    return kind == PASS_FORWARD ? FORWARD : kind == PASS_BACKWARD_INPUT ? BACKWARD : WEIGHT;
}

static bool is_done(const struct filler *f, int rank, struct pass pass) {
    return pass.microbatch < fill_line_of(f, rank, pass.chunk, line_kind(pass.kind))->done;
}

// When a pass can begin, by the passes of other ranks alone: INFINITY where the pass that it needs has not begun.
static double ready_at(const struct filler *f, int rank, struct pass pass) {
    const struct schedule *s = f->plan;
    int stage = s->virtual_stage[rank * s->chunks + pass.chunk], last = s->stages * s->chunks - 1;
    int kind = line_kind(pass.kind), needed = kind == FORWARD ? stage - 1 : stage + 1;
    if (kind == WEIGHT || needed < 0)
        return 0;
    if (needed > last) {
        needed = last;
        kind = FORWARD;
    }
    struct schedule_place place = s->place[needed];
    double at = fill_line_of(f, place.rank, place.chunk, kind)->ended[pass.microbatch];
    if (at < 0)
        return INFINITY;
    return at + (place.rank == rank ? 0 : f->how->times.latency);
}

static double fill_duration(const struct filler *f, enum pass_kind kind) {
    const struct schedule_times *t = &f->how->times;
    return kind == PASS_FORWARD ? t->forward : kind == PASS_BACKWARD_INPUT ? t->backward_input : t->backward_weight;
}

static bool has_weights(const struct lane *lane) {
    return lane->weights_left > 0;
}

static bool has_room(const struct filler *f, const struct lane *lane) {
    double held = lane->held + f->how->weight_share * lane->weights_left;
    return held + 1 <= f->how->limit + ROUNDING;
}

// Whether the forward that the plan has at `place` may be done now: what the plan has before it must still fit,
// provided that weights' passes are done when their memory is needed.
static bool fits_early(const struct filler *f, int rank, size_t place) {
    const struct schedule_rank *list = &f->plan->rank[rank];
    int held = f->lane[rank].held + 1;
    for (size_t i = f->lane[rank].next; i < place; i++) {
        if (is_done(f, rank, list->item[i]))
            continue;
        held += list->item[i].kind == PASS_FORWARD ? 1 : list->item[i].kind == PASS_BACKWARD_INPUT ? -1 : 0;
        if (held > f->how->limit + ROUNDING)
            return false;
    }
    return true;
}

// Of ranks that decide at the same time, the lowest is the first.
static int first_below(const struct filler *f, int node) {
    int a = f->first[2 * node], b = f->first[2 * node + 1];
    double clock_a = f->lane[a].clock, clock_b = f->lane[b].clock;
    return clock_a < clock_b || (clock_a == clock_b && a < b) ? a : b;
}

// After a change of the rank's clock.
static void note_clock(struct filler *f, int rank) {
    for (int node = (f->plan->stages + rank) / 2; node > 0; node /= 2) {
        int was = f->first[node];
        f->first[node] = first_below(f, node);
        if (f->first[node] == was && was != rank)
            break;
    }
}

static void fill_do_pass(struct filler *f, int rank, struct pass pass) {
    const struct schedule *s = f->plan;
    struct lane *lane = &f->lane[rank];
    double start = lane->clock, end = start + fill_duration(f, pass.kind);
    if (lane->first_start < 0)
        lane->first_start = start;
    else
        lane->idle += start - lane->last_end;
    schedule_add(f->out, rank, pass.kind, pass.chunk, pass.microbatch);
    lane->clock = lane->last_end = end;
    int kind = line_kind(pass.kind), stage = s->virtual_stage[rank * s->chunks + pass.chunk];
    struct line *line = fill_line_of(f, rank, pass.chunk, kind);
    line->done++;
    if (kind == WEIGHT) {
        lane->weights_left--;
        return;
    }
    line->ended[pass.microbatch] = end;
    lane->held += kind == FORWARD ? 1 : -1;
    if (kind == BACKWARD) {
        lane->weights[lane->weights_count++] = (struct pass){PASS_BACKWARD_WEIGHT, pass.chunk, pass.microbatch};
        lane->weights_left++;
    }
    int behind = kind == FORWARD ? stage + 1 : stage - 1;
    if (behind < 0 || behind >= s->stages * s->chunks || s->place[behind].rank == rank)
        return;
    struct lane *neighbour = &f->lane[s->place[behind].rank];
    neighbour->clock = MIN(neighbour->clock, MAX(end + f->how->times.latency, neighbour->last_end));
    note_clock(f, s->place[behind].rank);
}

// The weights' pass that has waited longest.
static struct pass oldest_weights(const struct filler *f, int rank) {
    struct lane *lane = &f->lane[rank];
    while (is_done(f, rank, lane->weights[lane->weights_at]))
        lane->weights_at++;
    return lane->weights[lane->weights_at];
}

// The place in the plan of the first pass of a kind, of any chunk, that is not done.
static size_t first_of_kind(const struct filler *f, int rank, int kind) {
    size_t first = SIZE_MAX;
    for (int c = 0; c < f->plan->chunks; c++) {
        const struct line *line = fill_line_of(f, rank, c, kind);
        if (line->done < f->plan->microbatches)
            first = MIN(first, line->place[line->done]);
    }
    return first;
}

// The place of a pass which the plan has later but which can be done now and before `until`, when the plan goes on: the
// first of them in the plan; SIZE_MAX if there is none. *next becomes the time when the first of those that are not
// ready yet will be.
static size_t find_early(const struct filler *f, int rank, double until, double *next) {
    const struct schedule *s = f->plan;
    const struct lane *lane = &f->lane[rank];
    size_t first = SIZE_MAX;
    *next = INFINITY;
    for (int k = 0; k < 2 * s->chunks; k++) {
        const struct line *line = fill_line_of(f, rank, k / 2, k % 2 ? BACKWARD : FORWARD);
        if (line->done == s->microbatches || line->place[line->done] >= first)
            continue;
        if (f->how->in_line && line->place[line->done] != first_of_kind(f, rank, k % 2 ? BACKWARD : FORWARD))
            continue;
        size_t place = line->place[line->done];
        struct pass pass = s->rank[rank].item[place];
        double length = fill_duration(f, pass.kind), at = ready_at(f, rank, pass);
        if (MAX(at, lane->clock) + length > until + f->how->rank[rank].overrun * length + ROUNDING)
            continue;
        if (at > lane->clock && at >= *next) // saves looking whether it fits, which takes longest
            continue;
        if (pass.kind == PASS_FORWARD && (!has_room(f, lane) || !fits_early(f, rank, place)))
            continue;
        if (at > lane->clock) {
            *next = MIN(*next, at);
            continue;
        }
        first = place;
    }
    return first;
}

// What a rank does while it waits for the next pass of its plan, which is ready at `at`.
static void fill_gap(struct filler *f, int rank, double at) {
    struct lane *lane = &f->lane[rank];
    const struct fill_rank *how = &f->how->rank[rank];
    double weight = f->how->times.backward_weight - ROUNDING, next;
    size_t early = find_early(f, rank, at, &next);
    double until = early < SIZE_MAX ? at : MIN(at, next), idle = lane->idle + until - lane->last_end;
    bool fits = until - lane->clock >= weight;
    if (has_weights(lane)) {
        struct pass oldest = oldest_weights(f, rank);
        size_t place = fill_line_of(f, rank, oldest.chunk, WEIGHT)->place[oldest.microbatch];
        bool is_first = place < early || (how->weights_first && !has_room(f, lane));
        if (early == SIZE_MAX ? fits || idle > how->patience + ROUNDING : fits && is_first) {
            fill_do_pass(f, rank, oldest);
            return;
        }
    }
    if (early < SIZE_MAX)
        fill_do_pass(f, rank, f->plan->rank[rank].item[early]);
    else
        lane->clock = until;
}

// A rank's decision at its clock; false if the plan does not fit.
static bool fill_decide(struct filler *f, int rank) {
    const struct schedule_rank *list = &f->plan->rank[rank];
    struct lane *lane = &f->lane[rank];
    while (lane->next < list->count && is_done(f, rank, list->item[lane->next]))
        lane->next++;
    if (lane->next == list->count) {
        fill_do_pass(f, rank, oldest_weights(f, rank));
        return true;
    }
    struct pass pass = list->item[lane->next];
    double at = ready_at(f, rank, pass);
    if (pass.kind == PASS_BACKWARD_WEIGHT && fill_line_of(f, rank, pass.chunk, BACKWARD)->done <= pass.microbatch)
        return false;
    if (at > lane->clock)
        fill_gap(f, rank, at);
    else if (pass.kind != PASS_FORWARD || has_room(f, lane))
        fill_do_pass(f, rank, pass);
    else if (has_weights(lane))
        fill_do_pass(f, rank, oldest_weights(f, rank));
    else
        return false;
    return true;
}

static void filler_begin(struct filler *f, const struct schedule *plan, const struct fill *how, struct schedule *out) {
    size_t ranks = (size_t)plan->stages, chunks = (size_t)plan->chunks, m = (size_t)plan->microbatches;
    *f = (struct filler){.plan = plan, .how = how, .out = out};
    f->line = mem_alloc(ranks * chunks * LINES * sizeof *f->line);
    f->lane = mem_alloc(ranks * sizeof *f->lane);
    f->first = mem_alloc(2 * ranks * sizeof *f->first);
    for (size_t i = 0; i < ranks * chunks * LINES; i++) {
        f->line[i].place = mem_alloc(m * sizeof *f->line[i].place);
        f->line[i].ended = mem_alloc(m * sizeof *f->line[i].ended);
        for (size_t k = 0; k < m; k++) {
            f->line[i].place[k] = SIZE_MAX;
            f->line[i].ended[k] = -1;
        }
    }
    for (int r = 0; r < plan->stages; r++) {
        const struct schedule_rank *list = &plan->rank[r];
        for (size_t i = 0; i < list->count; i++) {
            struct pass pass = list->item[i];
            fill_line_of(f, r, pass.chunk, line_kind(pass.kind))->place[pass.microbatch] = i;
        }
        f->lane[r].first_start = -1;
        f->lane[r].weights = mem_alloc(chunks * m * sizeof *f->lane[r].weights);
        f->first[plan->stages + r] = r;
    }
    for (int node = plan->stages - 1; node > 0; node--)
        f->first[node] = first_below(f, node);
}

static void filler_release(struct filler *f) {
    for (int i = 0; i < f->plan->stages * f->plan->chunks * LINES; i++) {
        free(f->line[i].place);
        free(f->line[i].ended);
    }
    for (int r = 0; r < f->plan->stages; r++)
        free(f->lane[r].weights);
    free(f->line);
    free(f->lane);
    free(f->first);
}

struct fill_cost schedule_fill(const struct schedule *plan, const struct fill *how, struct schedule *filled) {
    struct filler f;
    filler_begin(&f, plan, how, filled);
    struct fill_cost cost = {0};
    for (int left = plan->stages; left > 0;) {
        int rank = f.first[1];
        struct lane *lane = &f.lane[rank];
        if (lane->clock == INFINITY || !fill_decide(&f, rank)) {
            cost.most = INFINITY;
            break;
        }
        if (filled->rank[rank].count == 3 * (size_t)plan->chunks * (size_t)plan->microbatches) {
            cost.most = MAX(cost.most, lane->last_end - lane->first_start);
            cost.sum += lane->last_end - lane->first_start;
            lane->clock = INFINITY;
            left--;
        }
        note_clock(&f, rank);
    }
    filler_release(&f);
    return cost;
}
