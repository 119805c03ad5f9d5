// Goes through a schedule as its ranks would: to prove that it comes to an end, and to tell what it costs.
#include "parallel/schedule.h"

// ---- each rank by itself

// "rank 2", and where the schedule was read from a text "rank 2 (line 3)".
struct rank_words {
    char text[48];
};

static struct rank_words rank_words(const struct schedule *s, int rank) {
    struct rank_words words;
    int length = snprintf(words.text, sizeof words.text, "rank %d", rank);
    if (s->rank[rank].line)
        snprintf(words.text + length, sizeof words.text - (size_t)length, " (line %d)", s->rank[rank].line);
    return words;
}

static struct pass pass_like(struct pass pass, enum pass_kind kind) {
    pass.kind = kind;
    return pass;
}

// What of a (chunk, microbatch) is done: bits.
enum { DONE_FORWARD = 1, DONE_INPUT = 2, DONE_WEIGHT = 4, DONE_ALL = 7 };

// Which must be done before a pass of the kind, and which it does.
static const struct {
    unsigned before, adds;
    enum pass_kind after; // the pass that is missing if `before` is not done
} RULES[PASS_KINDS] = {
    [PASS_FORWARD] = {0, DONE_FORWARD, PASS_FORWARD},
    [PASS_BACKWARD] = {DONE_FORWARD, DONE_INPUT | DONE_WEIGHT, PASS_FORWARD},
    [PASS_BACKWARD_INPUT] = {DONE_FORWARD, DONE_INPUT, PASS_FORWARD},
    [PASS_BACKWARD_WEIGHT] = {DONE_INPUT, DONE_WEIGHT, PASS_BACKWARD_INPUT},
};

static trireme_status refuse_missing(const struct schedule *s, int rank, struct pass pass, unsigned done,
                                     trireme_error *error) {
    char name[PASS_TEXT], half[PASS_TEXT];
    struct rank_words words = rank_words(s, rank);
    if (done == (DONE_FORWARD | DONE_INPUT))
        FAIL(TRIREME_ERROR_CORRUPT, "%s has %s, but no %s after it", words.text,
             pass_print(s, pass_like(pass, PASS_BACKWARD_INPUT), half),
             pass_print(s, pass_like(pass, PASS_BACKWARD_WEIGHT), name));
    FAIL(TRIREME_ERROR_CORRUPT, "%s has no %s (microbatches: %d)", words.text,
         pass_print(s, pass_like(pass, done ? PASS_BACKWARD : PASS_FORWARD), name), s->microbatches);
}

static trireme_status check_rank(const struct schedule *s, int rank, trireme_error *error) {
    const struct schedule_rank *list = &s->rank[rank];
    char name[PASS_TEXT], other[PASS_TEXT];
    struct rank_words words = rank_words(s, rank);
    // Each (chunk, microbatch) needs two passes. If the list is too short for all, then among this many one is missing:
    // memory stays in proportion to the list, whatever number of microbatches a text claims.
    size_t chunks = (size_t)s->chunks, tracked = MIN((size_t)s->microbatches, list->count / 2 / chunks + 1);
    unsigned char *done = mem_alloc(chunks * tracked);
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < list->count && status == TRIREME_OK; i++) {
        struct pass pass = list->item[i];
        pass_print(s, pass, name);
        if (pass.chunk < 0 || pass.chunk >= s->chunks)
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: %s is of chunk %d; a rank has chunks 0 to %d",
                               words.text, name, pass.chunk, s->chunks - 1);
        else if (pass.microbatch < 0 || pass.microbatch >= s->microbatches)
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: %s is of microbatch %d; there are 0 to %d",
                               words.text, name, pass.microbatch, s->microbatches - 1);
        if (status != TRIREME_OK || (size_t)pass.microbatch >= tracked)
            continue;
        unsigned char *now = &done[(size_t)pass.chunk * tracked + (size_t)pass.microbatch];
        unsigned before = RULES[pass.kind].before, adds = RULES[pass.kind].adds;
        if (*now & adds)
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: %s does what was done before it", words.text, name);
        else if ((*now & before) != before)
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: %s comes before %s", words.text, name,
                               pass_print(s, pass_like(pass, RULES[pass.kind].after), other));
        *now |= (unsigned char)adds;
    }
    for (size_t i = 0; i < chunks * tracked && status == TRIREME_OK; i++)
        if (done[i] != DONE_ALL)
            status = refuse_missing(
                s, rank, (struct pass){.chunk = (int)(i / tracked), .microbatch = (int)(i % tracked)}, done[i], error);
    free(done);
    return status;
}

// ---- all ranks together

// What a pass needs of another virtual stage: its forward or backward of the same microbatch. NONE: nothing.
enum { NONE = -1 };

static int needed_stage(const struct schedule *s, int rank, struct pass pass) {
    int stage = s->virtual_stage[rank * s->chunks + pass.chunk];
    switch (pass.kind) {
    case PASS_FORWARD:
        return stage - 1; // NONE for the first
    case PASS_BACKWARD:
    case PASS_BACKWARD_INPUT:
        return stage + 1 < s->stages * s->chunks ? stage + 1 : NONE;
    default:
        return NONE;
    }
}

struct replay {
    const struct schedule *s;
    struct schedule_times times;
    size_t *next;                // of each rank: the pass to do next
    double *forward, *backward;  // [virtual stage][microbatch]: when its result was there; negative: not yet
    double *free_at;             // [rank]
    struct schedule_span **pass; // may be NULL
};

static size_t cell(const struct replay *r, int stage, int microbatch) {
    return (size_t)stage * (size_t)r->s->microbatches + (size_t)microbatch;
}

static void replay_begin(struct replay *r, const struct schedule *s, const struct schedule_times *times) {
    size_t ranks = (size_t)s->stages, cells = ranks * (size_t)s->chunks * (size_t)s->microbatches;
    *r = (struct replay){.s = s, .times = *times};
    r->next = mem_alloc(ranks * sizeof *r->next);
    r->free_at = mem_alloc(ranks * sizeof *r->free_at);
    r->forward = mem_alloc(cells * sizeof *r->forward);
    r->backward = mem_alloc(cells * sizeof *r->backward);
    for (size_t i = 0; i < cells; i++)
        r->forward[i] = r->backward[i] = -1;
}

static void replay_release(struct replay *r) {
    free(r->next);
    free(r->free_at);
    free(r->forward);
    free(r->backward);
}

static double duration(const struct schedule_times *t, enum pass_kind kind) {
    switch (kind) {
    case PASS_FORWARD:
        return t->forward;
    case PASS_BACKWARD:
        return t->backward_input + t->backward_weight;
    case PASS_BACKWARD_INPUT:
        return t->backward_input;
    default:
        return t->backward_weight;
    }
}

// Does the rank's next pass if what it needs is there.
static bool replay_pass(struct replay *r, int rank) {
    const struct schedule *s = r->s;
    const struct schedule_rank *list = &s->rank[rank];
    if (r->next[rank] == list->count)
        return false;
    struct pass pass = list->item[r->next[rank]];
    double start = r->free_at[rank];
    int needed = needed_stage(s, rank, pass);
    if (needed != NONE) {
        double there = (pass.kind == PASS_FORWARD ? r->forward : r->backward)[cell(r, needed, pass.microbatch)];
        if (there < 0)
            return false;
        start = MAX(start, there + (s->place[needed].rank == rank ? 0 : r->times.latency));
    }
    double end = start + duration(&r->times, pass.kind);
    int stage = s->virtual_stage[rank * s->chunks + pass.chunk];
    if (pass.kind == PASS_FORWARD)
        r->forward[cell(r, stage, pass.microbatch)] = end;
    else if (pass.kind != PASS_BACKWARD_WEIGHT)
        r->backward[cell(r, stage, pass.microbatch)] = end;
    if (r->pass)
        r->pass[rank][r->next[rank]] = (struct schedule_span){start, end};
    r->free_at[rank] = end;
    r->next[rank]++;
    return true;
}

// Goes on until no rank can. A rank that waits for another is looked at again when one with a neighbouring virtual
// stage has done a pass for it.
static void replay_run(struct replay *r) {
    const struct schedule *s = r->s;
    int *waiting = mem_alloc((size_t)s->stages * sizeof *waiting), count = 0;
    bool *is_waiting = mem_alloc((size_t)s->stages * sizeof *is_waiting);
    for (int rank = s->stages; rank-- > 0;) {
        waiting[count++] = rank;
        is_waiting[rank] = true;
    }
    while (count > 0) {
        int rank = waiting[--count];
        is_waiting[rank] = false;
        for (;;) {
            size_t i = r->next[rank];
            if (!replay_pass(r, rank))
                break;
            struct pass pass = s->rank[rank].item[i];
            if (pass.kind == PASS_BACKWARD_WEIGHT)
                continue;
            int stage = s->virtual_stage[rank * s->chunks + pass.chunk] + (pass.kind == PASS_FORWARD ? 1 : -1);
            if (stage < 0 || stage == s->stages * s->chunks)
                continue;
            int neighbour = s->place[stage].rank;
            if (neighbour != rank && !is_waiting[neighbour]) {
                waiting[count++] = neighbour;
                is_waiting[neighbour] = true;
            }
        }
    }
    free(waiting);
    free(is_waiting);
}

// The pass of a rank that a waiting pass needs, as its list has it.
static struct pass needed_pass(const struct schedule *s, struct pass pass, int stage) {
    struct schedule_place place = s->place[stage];
    const struct schedule_rank *list = &s->rank[place.rank];
    for (size_t i = 0; i < list->count; i++) {
        struct pass p = list->item[i];
        if (p.chunk == place.chunk && p.microbatch == pass.microbatch && p.kind != PASS_BACKWARD_WEIGHT &&
            (p.kind == PASS_FORWARD) == (pass.kind == PASS_FORWARD))
            return p;
    }
    CHECK(!"each rank was checked to have all passes");
    return pass;
}

static int waits_for(const struct replay *r, int rank) {
    const struct schedule *s = r->s;
    return s->place[needed_stage(s, rank, s->rank[rank].item[r->next[rank]])].rank;
}

enum { WAITS_SHOWN = 6 };

// Some ranks are stuck. Each waits for one that is stuck too, so there is a circle; tells it from its lowest rank on.
static trireme_status refuse_stuck(const struct replay *r, trireme_error *error) {
    const struct schedule *s = r->s;
    int rank = 0;
    while (r->next[rank] == s->rank[rank].count)
        rank++;
    for (int i = 0; i < s->stages; i++) // by then it is on the circle
        rank = waits_for(r, rank);
    int first = rank, length = 1;
    for (int at = waits_for(r, rank); at != rank; at = waits_for(r, at), length++)
        first = MIN(first, at);
    struct text text = {0};
    char mine[PASS_TEXT], theirs[PASS_TEXT];
    int at = first;
    for (int i = 0; i < MIN(length, WAITS_SHOWN); i++) {
        struct pass pass = s->rank[at].item[r->next[at]];
        int stage = needed_stage(s, at, pass), other = s->place[stage].rank;
        text_add(&text, "%s%s waits at %s for %s of ", i ? "; " : "", rank_words(s, at).text, pass_print(s, pass, mine),
                 pass_print(s, needed_pass(s, pass, stage), theirs));
        text_add(&text, other == at ? "its own" : "rank %d", other);
        at = other;
    }
    if (length > WAITS_SHOWN)
        text_add(&text, "; and so on through %d ranks", length);
    error_set(error, TRIREME_ERROR_CORRUPT, "the schedule cannot finish: %s", text.text);
    text_release(&text);
    return TRIREME_ERROR_CORRUPT;
}

trireme_status schedule_verify(const struct schedule *schedule, trireme_error *error) {
    for (int rank = 0; rank < schedule->stages; rank++)
        TRY(check_rank(schedule, rank, error));
    struct replay replay;
    replay_begin(&replay, schedule, &(struct schedule_times){0});
    replay_run(&replay);
    trireme_status status = TRIREME_OK;
    for (int rank = 0; rank < schedule->stages; rank++)
        if (replay.next[rank] < schedule->rank[rank].count) {
            status = refuse_stuck(&replay, error);
            break;
        }
    replay_release(&replay);
    return status;
}

// ---- cost

void schedule_cost(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost) {
    size_t ranks = (size_t)schedule->stages;
    struct schedule_span **pass = mem_alloc(ranks * sizeof *pass);
    for (size_t r = 0; r < ranks; r++)
        pass[r] = mem_alloc(schedule->rank[r].count * sizeof *pass[r]);
    struct replay replay;
    replay_begin(&replay, schedule, times);
    replay.pass = pass;
    replay_run(&replay);
    *cost = (struct schedule_cost){.pass = pass, .ranks = schedule->stages};
    cost->rank = mem_alloc(ranks * sizeof *cost->rank);
    for (size_t r = 0; r < ranks; r++) {
        CHECK(replay.next[r] == schedule->rank[r].count);
        cost->rank[r] = (struct schedule_span){pass[r][0].start, replay.free_at[r]};
        cost->cost = MAX(cost->cost, cost->rank[r].end - cost->rank[r].start);
    }
    double work = times->forward + times->backward_input + times->backward_weight;
    cost->bubble = MAX(0, 1 - (double)schedule->microbatches * schedule->chunks * work / cost->cost);
    replay_release(&replay);
}

void schedule_cost_release(struct schedule_cost *cost) {
    for (int r = 0; r < cost->ranks; r++)
        free(cost->pass[r]);
    free(cost->pass);
    free(cost->rank);
    *cost = (struct schedule_cost){0};
}
