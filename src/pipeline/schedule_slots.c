// Which slot each microbatch has while a rank goes through its passes, and how many slots there are.
#include "pipeline/schedule.h"

// The chunk of the same rank that a chunk has its inputs from; -1 where they come from another rank.
static int chunk_before(const struct schedule *s, int rank, int chunk) {
    int stage = s->virtual_stage[rank * s->chunks + chunk];
    return stage > 0 && s->place[stage - 1].rank == rank ? s->place[stage - 1].chunk : -1;
}

// Whether a chunk's inputs are what the ranks have embedded together.
static bool is_embedded(const struct schedule *s, int rank, int chunk) {
    return s->vocabulary && s->virtual_stage[rank * s->chunks + chunk] == 0;
}

static bool is_backward(const struct pass *pass, bool for_input) {
    return pass->kind == PASS_BACKWARD || pass->kind == (for_input ? PASS_BACKWARD_INPUT : PASS_BACKWARD_WEIGHT);
}

static bool slots_begins(const struct schedule *s, int rank, const struct pass *pass, enum slots_for what, int taker) {
    switch (what) {
    case SLOTS_FOR_LOSS:
    case SLOTS_FOR_LOSS_INPUTS:
        return pass->kind == PASS_LOSS;
    case SLOTS_FOR_GRADIENTS:
        return is_backward(pass, true) && pass->chunk == taker;
    case SLOTS_FOR_EMBED_GRADIENT:
        return s->place[0].rank == rank ? is_backward(pass, true) && pass->chunk == s->place[0].chunk
                                        : pass->kind == PASS_EMBED_WEIGHT;
    default:
        return pass->kind == PASS_FORWARD && pass->chunk == taker;
    }
}

// Without backwards a chunk is done with a microbatch when it has handed its output on: the last chunk's goes to L.
static bool ends_forward(const struct schedule *s, int rank, const struct pass *pass, int chunk) {
    struct schedule_place last = s->place[s->stages * s->chunks - 1];
    if (s->vocabulary && last.rank == rank && last.chunk == chunk)
        return pass->kind == PASS_LOSS;
    return pass->kind == PASS_FORWARD && pass->chunk == chunk;
}

static bool slots_ends(const struct schedule *s, int rank, const struct pass *pass, enum slots_for what, int chunk,
                       bool forward_only) {
    switch (what) {
    case SLOTS_FOR_LOSS:
        return pass->kind == PASS_LOSS_WEIGHT; // the total's turn, too
    case SLOTS_FOR_LOSS_INPUTS:
        return pass->kind == (forward_only ? PASS_LOSS : PASS_LOSS_WEIGHT);
    case SLOTS_FOR_EMBED_GRADIENT:
        return pass->kind == PASS_EMBED_WEIGHT;
    default:
        return forward_only ? ends_forward(s, rank, pass, chunk) : is_backward(pass, false) && pass->chunk == chunk;
    }
}

bool schedule_splits_backward(const struct schedule *s) {
    for (int r = 0; r < s->stages; r++)
        for (size_t i = 0; i < s->rank[r].count; i++)
            if (s->rank[r].item[i].kind == PASS_BACKWARD_INPUT)
                return true;
    return false;
}

// Start and end of the passes of each virtual stage and microbatch: forward, and backward for the input.
struct passes_at {
    double start[2], end[2];
};

static void find_passes(const struct schedule *s, struct passes_at *at) {
    static const struct schedule_times EVEN = {
        .forward = 1, .backward_input = 1, .backward_weight = 1, .loss = 1, .loss_weight = 1};
    struct schedule_cost cost;
    schedule_cost(s, &EVEN, &cost);
    for (int r = 0; r < s->stages; r++)
        for (size_t i = 0; i < s->rank[r].count; i++) {
            const struct pass *pass = &s->rank[r].item[i];
            const bool gradient = is_backward(pass, true);
            if (!gradient && pass->kind != PASS_FORWARD)
                continue;
            const size_t stage = (size_t)s->virtual_stage[r * s->chunks + pass->chunk];
            struct passes_at *of = &at[stage * (size_t)s->microbatches + (size_t)pass->microbatch];
            of->start[gradient] = cost.pass[r][i].start;
            of->end[gradient] = cost.pass[r][i].end;
        }
    schedule_cost_release(&cost);
}

// The most messages that are sent and not yet taken. Microbatches may come in any order: the times are sorted.
static int most_on_way(double *sent, double *taken, int microbatches) {
    int most = 0;
    sort_doubles(sent, (size_t)microbatches);
    sort_doubles(taken, (size_t)microbatches);
    for (int m = 0, on_way = 0; m < microbatches; m++) {
        while (on_way < microbatches && sent[on_way] <= taken[m])
            on_way++;
        most = MAX(most, on_way - m);
    }
    return most;
}

// How many virtual stages are on the rank of the virtual stage before.
static int slots_turns(const struct schedule *s) {
    int count = 0;
    for (int stage = 1; stage < s->stages * s->chunks; stage++)
        count += s->place[stage].rank == s->place[stage - 1].rank;
    return count;
}

// Whether no rank waits for ever if each has room for one message more than it holds. That is so with one chunk, for V
// schedules and for rounds of as many microbatches as stages, as the makers here make them. Ranks of other schedules
// may be further apart.
static bool one_is_enough(const struct schedule *s) {
    if (s->rank[0].line > 0) // read from a file
        return false;
    if (s->chunks == 1)
        return true;
    const int back = slots_turns(s);
    const bool rounds = back == 0 && s->microbatches % s->stages == 0, splits = schedule_splits_backward(s);
    return !s->vocabulary && (splits ? s->chunks == 2 && back < 2 : rounds);
}

void schedule_count_on_way(struct schedule *s) {
    const int stages = s->stages * s->chunks;
    const size_t microbatches = (size_t)s->microbatches;
    free(s->on_way);
    s->on_way = NULL;
    if (one_is_enough(s))
        return;
    s->on_way = mem_alloc((size_t)stages * sizeof *s->on_way);
    struct passes_at *at = mem_alloc((size_t)stages * microbatches * sizeof *at);
    find_passes(s, at);
    double *sent = mem_alloc(microbatches * sizeof *sent);
    double *taken = mem_alloc(microbatches * sizeof *taken);
    for (int stage = 0; stage < stages; stage++)
        for (int gradient = 0; gradient < 2; gradient++) {
            int sender = stage + (gradient ? 1 : -1);
            if (sender < 0 || sender >= stages)
                continue;
            for (size_t m = 0; m < microbatches; m++) {
                sent[m] = at[(size_t)sender * microbatches + m].end[gradient];
                taken[m] = at[(size_t)stage * microbatches + m].start[gradient];
            }
            s->on_way[stage][gradient] = most_on_way(sent, taken, s->microbatches);
        }
    free(sent);
    free(taken);
    free(at);
}

int schedule_slots(const struct schedule *s, int rank, int chunk, enum slots_for what, bool forward_only, int *slot) {
    const struct schedule_rank *list = &s->rank[rank];
    bool inputs = what == SLOTS_FOR_INPUTS || what == SLOTS_FOR_LOSS_INPUTS || what == SLOTS_FOR_GRADIENTS;
    int before = what == SLOTS_FOR_INPUTS ? chunk_before(s, rank, chunk) : -1, taker = before >= 0 ? before : chunk;
    bool embedded = what == SLOTS_FOR_INPUTS && is_embedded(s, rank, chunk);
    int more = inputs && before < 0 && !embedded; // than are held
    if (more && s->on_way && what != SLOTS_FOR_LOSS_INPUTS)
        more = MAX(more, s->on_way[s->virtual_stage[rank * s->chunks + chunk]][what == SLOTS_FOR_GRADIENTS]);
    int count = more ? MIN(1 + more, s->microbatches) : 0, vacant = 0, held = 0;
    // When each slot was given back; -1: it is held.
    long *left = mem_alloc((size_t)s->microbatches * sizeof *left);
    for (size_t i = 0; i < list->count; i++) {
        const struct pass *pass = &list->item[i];
        if (embedded ? pass->kind == PASS_EMBED : slots_begins(s, rank, pass, what, taker)) {
            vacant = -1;
            for (int k = 0; k < count; k++)
                if (left[k] >= 0 && (vacant < 0 || (inputs && left[k] < left[vacant])))
                    vacant = k;
            if (vacant < 0)
                vacant = count++;
            slot[pass->microbatch] = vacant;
            left[vacant] = -1;
            held++;
            while (held + more > count && count < s->microbatches)
                left[count++] = 0;
        }
        if (slots_ends(s, rank, pass, what, chunk, forward_only)) {
            left[slot[pass->microbatch]] = (long)i + 1;
            held--;
        }
    }
    free(left);
    return count;
}
