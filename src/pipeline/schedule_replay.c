// Goes through a schedule as its ranks would, to prove that it comes to its end and to tell what it costs.
#include "pipeline/schedule.h"

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

// Bits: which passes of a (chunk, microbatch) are done, and which passes of a microbatch on the vocabulary.
enum { DONE_FORWARD = 1, DONE_INPUT = 2, DONE_WEIGHT = 4, DONE_ALL = 7 };
enum { DONE_EMBED = 1, DONE_LOSS = 2, DONE_LOSS_WEIGHT = 4, DONE_EMBED_WEIGHT = 8 };

// The bits that must be set before a pass of the kind, and those that it sets.
static const struct {
    unsigned before, adds;
    enum pass_kind after; // the pass that is missing if `before` is not done
} RULES[PASS_KINDS] = {
    [PASS_FORWARD] = {0, DONE_FORWARD, PASS_FORWARD},
    [PASS_BACKWARD] = {DONE_FORWARD, DONE_INPUT | DONE_WEIGHT, PASS_FORWARD},
    [PASS_BACKWARD_INPUT] = {DONE_FORWARD, DONE_INPUT, PASS_FORWARD},
    [PASS_BACKWARD_WEIGHT] = {DONE_INPUT, DONE_WEIGHT, PASS_BACKWARD_INPUT},
    [PASS_EMBED] = {0, DONE_EMBED, PASS_EMBED},
    [PASS_LOSS] = {0, DONE_LOSS, PASS_LOSS},
    [PASS_LOSS_WEIGHT] = {DONE_LOSS, DONE_LOSS_WEIGHT, PASS_LOSS},
    [PASS_EMBED_WEIGHT] = {DONE_LOSS_WEIGHT, DONE_EMBED_WEIGHT, PASS_LOSS_WEIGHT},
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

// What a rank has done.
struct marks {
    unsigned char *done; // [chunks + 1][microbatches]: of each chunk, then of the vocabulary
    size_t chunks, microbatches;
};

static trireme_status replay_mark(const struct schedule *s, int rank, struct pass pass, struct marks *marks,
                                  trireme_error *error) {
    char name[PASS_TEXT], other[PASS_TEXT];
    struct rank_words words = rank_words(s, rank);
    pass_print(s, pass, name);
    if (pass.chunk < 0 || pass.chunk >= s->chunks)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s is of chunk %d; a rank has chunks 0 to %d", words.text, name, pass.chunk,
             s->chunks - 1);
    if (pass.microbatch < 0 || pass.microbatch >= s->microbatches)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s is of microbatch %d; there are 0 to %d", words.text, name, pass.microbatch,
             s->microbatches - 1);
    if (pass.kind >= PASS_EMBED && !s->vocabulary)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s is of a vocabulary that is spread over the ranks, which it is not here",
             words.text, name);
    if ((size_t)pass.microbatch >= marks->microbatches)
        return TRIREME_OK;
    size_t row = pass.kind >= PASS_EMBED ? marks->chunks : (size_t)pass.chunk;
    unsigned char *now = &marks->done[row * marks->microbatches + (size_t)pass.microbatch];
    if (*now & RULES[pass.kind].adds)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s does what was done before it", words.text, name);
    if ((*now & RULES[pass.kind].before) != RULES[pass.kind].before)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s comes before %s", words.text, name,
             pass_print(s, pass_like(pass, RULES[pass.kind].after), other));
    *now |= (unsigned char)RULES[pass.kind].adds;
    return TRIREME_OK;
}

static trireme_status check_vocabulary(const struct schedule *s, int rank, const struct marks *marks,
                                       trireme_error *error) {
    char name[PASS_TEXT];
    for (size_t m = 0; m < marks->microbatches && s->vocabulary; m++)
        for (enum pass_kind kind = PASS_EMBED; kind < PASS_KINDS; kind++)
            if (!(marks->done[marks->chunks * marks->microbatches + m] & RULES[kind].adds))
                FAIL(TRIREME_ERROR_CORRUPT, "%s has no %s (microbatches: %d)", rank_words(s, rank).text,
                     pass_print(s, (struct pass){.kind = kind, .microbatch = (int)m}, name), s->microbatches);
    return TRIREME_OK;
}

static trireme_status check_rank(const struct schedule *s, int rank, trireme_error *error) {
    const struct schedule_rank *list = &s->rank[rank];
    // Each (chunk, microbatch) needs two passes. If the list is too short for all of them, a pass is missing already
    // among this many microbatches: so memory stays in proportion to the list, whatever number a text claims.
    size_t chunks = (size_t)s->chunks, tracked = MIN((size_t)s->microbatches, list->count / 2 / chunks + 1);
    struct marks marks = {mem_alloc((chunks + 1) * tracked), chunks, tracked};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < list->count && status == TRIREME_OK; i++)
        status = replay_mark(s, rank, list->item[i], &marks, error);
    for (size_t i = 0; i < chunks * tracked && status == TRIREME_OK; i++)
        if (marks.done[i] != DONE_ALL)
            status =
                refuse_missing(s, rank, (struct pass){.chunk = (int)(i / tracked), .microbatch = (int)(i % tracked)},
                               marks.done[i], error);
    if (status == TRIREME_OK)
        status = check_vocabulary(s, rank, &marks, error);
    free(marks.done);
    return status;
}

// Passes that all ranks do together must come in the order of rank 0. Each rank is known to have all passes.
static trireme_status replay_check_order(const struct schedule *s, int rank, enum pass_kind kind,
                                         trireme_error *error) {
    const struct schedule_rank *first = &s->rank[0], *list = &s->rank[rank];
    char here[PASS_TEXT], there[PASS_TEXT];
    for (size_t i = 0, k = 0; i < list->count; i++) {
        if (list->item[i].kind != kind)
            continue;
        while (first->item[k].kind != kind)
            k++;
        if (list->item[i].microbatch != first->item[k].microbatch)
            FAIL(TRIREME_ERROR_CORRUPT, "%s has %s where %s has %s: ranks need the same order of what all do together",
                 rank_words(s, rank).text, pass_print(s, list->item[i], here), rank_words(s, 0).text,
                 pass_print(s, first->item[k], there));
        k++;
    }
    return TRIREME_OK;
}

// Whether all ranks do a pass together.
static bool is_meeting(enum pass_kind kind) {
    return kind == PASS_EMBED || kind == PASS_LOSS || kind == PASS_EMBED_WEIGHT;
}

static trireme_status check_orders(const struct schedule *s, trireme_error *error) {
    for (int rank = 1; rank < s->stages && s->vocabulary; rank++)
        for (enum pass_kind kind = 0; kind < PASS_KINDS; kind++)
            if (is_meeting(kind))
                TRY(replay_check_order(s, rank, kind, error));
    return TRIREME_OK;
}

// ---- all ranks together

struct replay {
    const struct schedule *s;
    struct schedule_times times;
    size_t *next;               // of each rank: the pass to do next
    double *forward, *backward; // [virtual stage][microbatch]: when its result was there; negative: not yet
    double *embed, *loss;       // [microbatch]: when the last of the ranks that have done E or L had done it
    int *embedded, *lost;       // [microbatch]: how many ranks have done E, and L
    // For each kind of pass that all ranks do together: how many each rank has done, [rank], NULL where meetings do not
    // count; how many all ranks have done; and how many ranks have done no more than that.
    int (*met)[PASS_KINDS], all_met[PASS_KINDS], behind[PASS_KINDS];
    double *free_at;   // [rank]
    double (*link)[4]; // [rank]: when the link to the previous or next rank, for gradients or activations, is free
    struct schedule_span **pass; // may be NULL
    VEC(int) waiting;            // ranks to look at
    bool *is_waiting;            // [rank]
};

static size_t replay_cell(const struct replay *r, int stage, int microbatch) {
    return (size_t)stage * (size_t)r->s->microbatches + (size_t)microbatch;
}

static void replay_begin(struct replay *r, const struct schedule *s, const struct schedule_times *times) {
    size_t ranks = (size_t)s->stages, microbatches = (size_t)s->microbatches;
    size_t cells = ranks * (size_t)s->chunks * microbatches;
    *r = (struct replay){.s = s, .times = *times};
    r->next = mem_alloc(ranks * sizeof *r->next);
    r->free_at = mem_alloc(ranks * sizeof *r->free_at);
    r->link = mem_alloc(ranks * sizeof *r->link);
    r->is_waiting = mem_alloc(ranks * sizeof *r->is_waiting);
    r->forward = mem_alloc(cells * sizeof *r->forward);
    r->backward = mem_alloc(cells * sizeof *r->backward);
    r->embed = mem_alloc(microbatches * sizeof *r->embed);
    r->loss = mem_alloc(microbatches * sizeof *r->loss);
    r->embedded = mem_alloc(microbatches * sizeof *r->embedded);
    r->lost = mem_alloc(microbatches * sizeof *r->lost);
    for (size_t i = 0; i < cells; i++)
        r->forward[i] = r->backward[i] = -1;
}

static void replay_count_meetings(struct replay *r) {
    r->met = mem_alloc((size_t)r->s->stages * sizeof *r->met);
    for (int kind = 0; kind < PASS_KINDS; kind++)
        r->behind[kind] = r->s->stages;
}

static void replay_release(struct replay *r) {
    free(r->next);
    free(r->free_at);
    free(r->link);
    free(r->is_waiting);
    free(r->forward);
    free(r->backward);
    free(r->embed);
    free(r->loss);
    free(r->embedded);
    free(r->lost);
    free(r->met);
    VEC_RELEASE(&r->waiting);
}

static double pass_seconds(const struct schedule_times *t, enum pass_kind kind) {
    const double seconds[PASS_KINDS] = {
        [PASS_FORWARD] = t->forward,
        [PASS_BACKWARD] = t->backward_input + t->backward_weight,
        [PASS_BACKWARD_INPUT] = t->backward_input,
        [PASS_BACKWARD_WEIGHT] = t->backward_weight,
        [PASS_EMBED] = t->embed,
        [PASS_LOSS] = t->loss,
        [PASS_LOSS_WEIGHT] = t->loss_weight,
        [PASS_EMBED_WEIGHT] = t->embed_weight,
    };
    return seconds[kind];
}

// What a pass needs besides the passes of its own rank: a pass of one virtual stage, or with `all` one of every rank.
struct need {
    bool any, all;
    enum pass_kind kind; // PASS_FORWARD, PASS_BACKWARD; or PASS_EMBED, PASS_LOSS
    int stage;
};

static struct need need_of(const struct schedule *s, int rank, struct pass pass) {
    int stage = pass.kind < PASS_EMBED ? s->virtual_stage[rank * s->chunks + pass.chunk] : 0;
    int last = s->stages * s->chunks - 1;
    switch (pass.kind) {
    case PASS_FORWARD:
        return stage > 0 ? (struct need){true, false, PASS_FORWARD, stage - 1}
                         : (struct need){s->vocabulary, true, PASS_EMBED, 0};
    case PASS_BACKWARD:
    case PASS_BACKWARD_INPUT:
        return stage < last ? (struct need){true, false, PASS_BACKWARD, stage + 1}
                            : (struct need){s->vocabulary, true, PASS_LOSS, 0};
    case PASS_LOSS:
        return (struct need){true, false, PASS_FORWARD, last};
    case PASS_LOSS_WEIGHT:
        return (struct need){true, true, PASS_LOSS, 0};
    case PASS_EMBED_WEIGHT:
        return (struct need){true, false, PASS_BACKWARD, 0};
    default:
        return (struct need){0};
    }
}

// Whether what a rank's pass needs is there, and since when.
static bool is_there(const struct replay *r, int rank, struct pass pass, double *since) {
    const struct schedule *s = r->s;
    struct need need = need_of(s, rank, pass);
    *since = 0;
    if (!need.any)
        return true;
    if (need.all) {
        bool embed = need.kind == PASS_EMBED;
        *since = (embed ? r->embed : r->loss)[pass.microbatch] + (s->stages > 1 ? r->times.latency : 0);
        return (embed ? r->embedded : r->lost)[pass.microbatch] == s->stages;
    }
    double there = (need.kind == PASS_FORWARD ? r->forward : r->backward)[replay_cell(r, need.stage, pass.microbatch)];
    *since = there + (s->place[need.stage].rank == rank ? 0 : r->times.latency);
    return there >= 0;
}

static void replay_look_at(struct replay *r, int rank) {
    if (r->is_waiting[rank])
        return;
    r->is_waiting[rank] = true;
    VEC_PUSH(&r->waiting, rank);
}

static void look_at_all_but(struct replay *r, int rank) {
    for (int other = 0; other < r->s->stages; other++)
        if (other != rank)
            replay_look_at(r, other);
}

// ---- where ranks meet

// The rank that sends what L and G begin with: that of the last and of the first virtual stage.
static int replay_sender(const struct schedule *s, enum pass_kind kind) {
    return s->place[kind == PASS_LOSS ? s->stages * s->chunks - 1 : 0].rank;
}

// Whether with its next pass the rank sends what the same pass of other ranks begins with.
static bool replay_sends(const struct schedule *s, int rank, size_t next) {
    const struct schedule_rank *list = &s->rank[rank];
    enum pass_kind kind = next < list->count ? list->item[next].kind : PASS_EMBED;
    return is_meeting(kind) && kind != PASS_EMBED && replay_sender(s, kind) == rank;
}

// Whether the other ranks have come far enough for a rank to do a pass that all do together. There is room for one
// microbatch of each kind, so all must have done the one before; and the sender must have come to that pass.
static bool replay_meets(const struct replay *r, int rank, struct pass pass) {
    if (!r->met || !is_meeting(pass.kind))
        return true;
    int before = r->met[rank][pass.kind], from = replay_sender(r->s, pass.kind);
    if (r->all_met[pass.kind] < before)
        return false;
    return pass.kind == PASS_EMBED || from == rank || r->met[from][pass.kind] > before ||
           (replay_sends(r->s, from, r->next[from]) && r->s->rank[from].item[r->next[from]].kind == pass.kind);
}

// The rank for which a pass waits that meets() refuses: it waits for the next pass of that kind in that rank's list.
static int waits_to_meet(const struct replay *r, int rank, enum pass_kind kind) {
    for (int other = 0; other < r->s->stages; other++)
        if (r->met[other][kind] < r->met[rank][kind])
            return other;
    return replay_sender(r->s, kind);
}

static void note_met(struct replay *r, int rank, enum pass_kind kind) {
    if (!r->met || !is_meeting(kind))
        return;
    r->met[rank][kind]++;
    if (--r->behind[kind] > 0)
        return;
    r->all_met[kind]++; // no rank has done more
    r->behind[kind] = r->s->stages;
    look_at_all_but(r, rank);
}

// ---- passes

// Notes when a pass has ended, and which ranks may have waited for it.
static void note_end(struct replay *r, int rank, struct pass pass, double end) {
    const struct schedule *s = r->s;
    const int last = s->stages * s->chunks - 1, m = pass.microbatch;
    if (pass.kind >= PASS_EMBED) {
        if (pass.kind == PASS_EMBED && (r->embed[m] = MAX(r->embed[m], end), ++r->embedded[m] == s->stages))
            look_at_all_but(r, rank);
        if (pass.kind == PASS_LOSS && (r->loss[m] = MAX(r->loss[m], end), ++r->lost[m] == s->stages))
            look_at_all_but(r, rank);
        return;
    }
    int stage = s->virtual_stage[rank * s->chunks + pass.chunk];
    if (pass.kind == PASS_BACKWARD_WEIGHT)
        return;
    bool forward = pass.kind == PASS_FORWARD;
    double *done = &(forward ? r->forward : r->backward)[replay_cell(r, stage, m)];
    int taker = stage + (forward ? 1 : -1);
    *done = end;
    if (taker >= 0 && taker <= last && s->place[taker].rank != rank) {
        double *link = &r->link[rank][2 * forward + (s->place[taker].rank > rank)];
        *done = MAX(end, *link);
        *link = *done + r->times.link;
        replay_look_at(r, s->place[taker].rank);
    } else if (s->vocabulary && (taker < 0 || taker > last)) {
        look_at_all_but(r, rank);
    }
}

// Does the rank's next pass if what it needs is there.
static bool replay_pass(struct replay *r, int rank) {
    const struct schedule_rank *list = &r->s->rank[rank];
    double since;
    if (r->next[rank] == list->count)
        return false;
    struct pass pass = list->item[r->next[rank]];
    if (!is_there(r, rank, pass, &since) || !replay_meets(r, rank, pass))
        return false;
    double start = MAX(r->free_at[rank], since), end = start + pass_seconds(&r->times, pass.kind);
    if (r->pass)
        r->pass[rank][r->next[rank]] = (struct schedule_span){start, end};
    r->free_at[rank] = end;
    r->next[rank]++;
    note_end(r, rank, pass, end);
    note_met(r, rank, pass.kind);
    if (r->met && replay_sends(r->s, rank, r->next[rank]))
        look_at_all_but(r, rank);
    return true;
}

// Goes on until no rank can go on. A rank that waits for another is looked at again when that one has done a pass for
// it.
static void replay_run(struct replay *r) {
    for (int rank = r->s->stages; rank-- > 0;)
        replay_look_at(r, rank);
    while (r->waiting.count > 0) {
        int rank = r->waiting.item[--r->waiting.count];
        r->is_waiting[rank] = false;
        while (replay_pass(r, rank))
            ;
    }
}

// The pass for which a rank's next pass waits, as it is in the list of rank *of.
static struct pass awaited_pass(const struct replay *r, int rank, int *of) {
    const struct schedule *s = r->s;
    struct pass pass = s->rank[rank].item[r->next[rank]];
    double since;
    if (is_there(r, rank, pass, &since)) {
        *of = waits_to_meet(r, rank, pass.kind);
        size_t i = r->next[*of];
        while (s->rank[*of].item[i].kind != pass.kind)
            i++;
        return s->rank[*of].item[i];
    }
    struct need need = need_of(s, rank, pass);
    struct schedule_place place = s->place[need.stage];
    for (int other = 0; other < s->stages; other++) {
        const struct schedule_rank *list = &s->rank[other];
        if (!need.all && other != place.rank)
            continue;
        for (size_t i = r->next[other]; i < list->count; i++) {
            struct pass p = list->item[i];
            bool same = need.all ? p.kind == need.kind
                        : need.kind == PASS_FORWARD
                            ? p.kind == PASS_FORWARD && p.chunk == place.chunk
                            : (p.kind == PASS_BACKWARD || p.kind == PASS_BACKWARD_INPUT) && p.chunk == place.chunk;
            if (same && p.microbatch == pass.microbatch) {
                *of = other;
                return p;
            }
        }
    }
    CHECK(!"each rank was checked to have all passes");
    return pass;
}

static int waits_for(const struct replay *r, int rank) {
    int of;
    awaited_pass(r, rank, &of);
    return of;
}

enum { WAITS_SHOWN = 6 };

// For when some ranks are stuck. Each waits for one that is stuck too, so there is a cycle: describes it from its
// lowest rank on.
static trireme_status refuse_stuck(const struct replay *r, trireme_error *error) {
    const struct schedule *s = r->s;
    int rank = 0;
    while (r->next[rank] == s->rank[rank].count)
        rank++;
    for (int i = 0; i < s->stages; i++) // by then it is on the cycle
        rank = waits_for(r, rank);
    int first = rank, length = 1;
    for (int at = waits_for(r, rank); at != rank; at = waits_for(r, at), length++)
        first = MIN(first, at);
    struct text text = {0};
    char mine[PASS_TEXT], theirs[PASS_TEXT];
    int at = first;
    for (int i = 0; i < MIN(length, WAITS_SHOWN); i++) {
        int other;
        struct pass awaited = awaited_pass(r, at, &other);
        text_add(&text, "%s%s waits at %s for %s of ", i ? "; " : "", rank_words(s, at).text,
                 pass_print(s, s->rank[at].item[r->next[at]], mine), pass_print(s, awaited, theirs));
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
    TRY(check_orders(schedule, error));
    struct replay replay;
    replay_begin(&replay, schedule, &(struct schedule_times){0});
    if (schedule->vocabulary)
        replay_count_meetings(&replay);
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

double schedule_work(const struct schedule *schedule, const struct schedule_times *times) {
    double chunks = schedule->chunks * schedule_chunk_time(times);
    return schedule->microbatches * (chunks + (schedule->vocabulary ? schedule_vocabulary_time(times) : 0));
}

bool schedule_finishes(const struct schedule *schedule, const struct schedule_times *times,
                       struct schedule_cost *cost) {
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
    bool finishes = true;
    for (size_t r = 0; r < ranks; r++) {
        finishes = finishes && replay.next[r] == schedule->rank[r].count;
        cost->rank[r] = (struct schedule_span){pass[r][0].start, replay.free_at[r]};
        cost->cost = MAX(cost->cost, cost->rank[r].end - cost->rank[r].start);
    }
    cost->bubble = MAX(0, 1 - schedule_work(schedule, times) / cost->cost);
    replay_release(&replay);
    if (!finishes)
        schedule_cost_release(cost);
    return finishes;
}

void schedule_cost(const struct schedule *schedule, const struct schedule_times *times, struct schedule_cost *cost) {
    CHECK(schedule_finishes(schedule, times, cost));
}

void schedule_cost_release(struct schedule_cost *cost) {
    for (int r = 0; r < cost->ranks; r++)
        free(cost->pass[r]);
    free(cost->pass);
    free(cost->rank);
    *cost = (struct schedule_cost){0};
}
