// Schedules as tables: making, copying, releasing them, and the activations that they hold.
#include "pipeline/schedule_make.h"

void schedule_begin(struct schedule *schedule, int stages, int microbatches, int chunks, const int *ranks) {
    CHECK(stages >= 1 && microbatches >= 1 && chunks >= 1);
    size_t count = (size_t)stages * (size_t)chunks;
    *schedule = (struct schedule){.stages = stages, .chunks = chunks, .microbatches = microbatches};
    schedule->place = mem_alloc(count * sizeof *schedule->place);
    schedule->virtual_stage = mem_alloc(count * sizeof *schedule->virtual_stage);
    schedule->rank = mem_alloc((size_t)stages * sizeof *schedule->rank);
    int *placed = mem_alloc((size_t)stages * sizeof *placed);
    for (size_t s = 0; s < count; s++) {
        int rank = ranks ? ranks[s] : (int)(s % (size_t)stages);
        CHECK(rank >= 0 && rank < stages && placed[rank] < chunks);
        int chunk = placed[rank]++;
        schedule->place[s] = (struct schedule_place){.rank = rank, .chunk = chunk};
        schedule->virtual_stage[rank * chunks + chunk] = (int)s;
    }
    free(placed);
}

void schedule_begin_there_and_back(struct schedule *s, int stages, int microbatches, int chunks) {
    int *ranks = mem_alloc((size_t)stages * (size_t)chunks * sizeof *ranks);
    for (int i = 0; i < stages * chunks; i++)
        ranks[i] = i / stages % 2 == 0 ? i % stages : stages - 1 - i % stages;
    schedule_begin(s, stages, microbatches, chunks, ranks);
    free(ranks);
}

void schedule_add(struct schedule *schedule, int rank, enum pass_kind kind, int chunk, int microbatch) {
    VEC_PUSH(&schedule->rank[rank], (struct pass){.kind = kind, .chunk = chunk, .microbatch = microbatch});
}

void schedule_release(struct schedule *schedule) {
    for (int r = 0; r < schedule->stages; r++)
        free(schedule->rank[r].item);
    free(schedule->rank);
    free(schedule->virtual_stage);
    free(schedule->place);
    free(schedule->on_way);
    *schedule = (struct schedule){0};
}

struct schedule schedule_empty_like(const struct schedule *s) {
    int count = s->stages * s->chunks, *ranks = mem_alloc((size_t)count * sizeof *ranks);
    for (int i = 0; i < count; i++)
        ranks[i] = s->place[i].rank;
    struct schedule empty;
    schedule_begin(&empty, s->stages, s->microbatches, s->chunks, ranks);
    for (int r = 0; r < s->stages; r++)
        empty.rank[r].line = s->rank[r].line;
    free(ranks);
    return empty;
}

struct schedule schedule_copy(const struct schedule *s) {
    struct schedule copy = schedule_empty_like(s);
    copy.vocabulary = s->vocabulary;
    copy.options = s->options;
    for (int r = 0; r < s->stages; r++) {
        struct schedule_rank *to = &copy.rank[r];
        const struct schedule_rank *from = &s->rank[r];
        VEC_RESERVE(to, from->count);
        to->count = from->count;
        if (from->count)
            memcpy(to->item, from->item, from->count * sizeof *to->item);
    }
    if (s->on_way) {
        size_t bytes = (size_t)(s->stages * s->chunks) * sizeof *s->on_way;
        copy.on_way = mem_alloc(bytes);
        memcpy(copy.on_way, s->on_way, bytes);
    }
    return copy;
}

void schedule_swap(struct schedule *a, struct schedule *b) {
    struct schedule_rank *rank = a->rank;
    a->rank = b->rank;
    b->rank = rank;
}

const char *pass_print(const struct schedule *schedule, struct pass pass, char text[PASS_TEXT]) {
    int length = snprintf(text, PASS_TEXT, "%c%d", PASS_LETTERS[pass.kind], pass.microbatch);
    if (schedule->chunks > 1 && pass.kind < PASS_EMBED)
        snprintf(text + length, (size_t)(PASS_TEXT - length), ".%d", pass.chunk);
    return text;
}

// ---- activations

int schedule_in_flight(const struct schedule *schedule, int rank, int *of_chunk) {
    const struct schedule_rank *list = &schedule->rank[rank];
    int *held = mem_alloc((size_t)schedule->chunks * sizeof *held),
        *most = mem_alloc((size_t)schedule->chunks * sizeof *most);
    int all = 0, most_of_all = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct pass *pass = &list->item[i];
        if (pass->kind == PASS_FORWARD) {
            held[pass->chunk]++;
            all++;
        } else if (pass->kind == PASS_BACKWARD || pass->kind == PASS_BACKWARD_WEIGHT) {
            held[pass->chunk]--;
            all--;
        }
        most[pass->chunk] = MAX(most[pass->chunk], held[pass->chunk]);
        most_of_all = MAX(most_of_all, all);
    }
    if (of_chunk)
        memcpy(of_chunk, most, (size_t)schedule->chunks * sizeof *most);
    free(held);
    free(most);
    return most_of_all;
}

double schedule_activations(const struct schedule *schedule, int rank, double weight_share) {
    const struct schedule_rank *list = &schedule->rank[rank];
    int whole = 0, parts = 0; // microbatches held in full, and for the weights' pass alone
    double most = 0;
    for (size_t i = 0; i < list->count; i++) {
        enum pass_kind kind = list->item[i].kind;
        if (kind >= PASS_EMBED)
            continue;
        whole += kind == PASS_FORWARD ? 1 : kind == PASS_BACKWARD_WEIGHT ? 0 : -1;
        parts += kind == PASS_BACKWARD_INPUT ? 1 : kind == PASS_BACKWARD_WEIGHT ? -1 : 0;
        most = MAX(most, whole + weight_share * parts);
    }
    return most / schedule->chunks;
}
