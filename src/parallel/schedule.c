#include "parallel/schedule.h"

// ---- the table

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

void schedule_add(struct schedule *schedule, int rank, enum pass_kind kind, int chunk, int microbatch) {
    VEC_PUSH(&schedule->rank[rank], (struct pass){.kind = kind, .chunk = chunk, .microbatch = microbatch});
}

void schedule_release(struct schedule *schedule) {
    for (int r = 0; r < schedule->stages; r++)
        free(schedule->rank[r].item);
    free(schedule->rank);
    free(schedule->virtual_stage);
    free(schedule->place);
    *schedule = (struct schedule){0};
}

// ---- the schedules

// Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".
static void make_gpipe(struct schedule *s) {
    for (int r = 0; r < s->stages; r++) {
        for (int m = 0; m < s->microbatches; m++)
            schedule_add(s, r, PASS_FORWARD, 0, m);
        for (int m = 0; m < s->microbatches; m++)
            schedule_add(s, r, PASS_BACKWARD, 0, m);
    }
}

// Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-Flush).
static void make_1f1b(struct schedule *s) {
    for (int r = 0; r < s->stages; r++) {
        int ahead = MIN(s->stages - 1 - r, s->microbatches);
        for (int m = 0; m < ahead; m++)
            schedule_add(s, r, PASS_FORWARD, 0, m);
        for (int m = ahead; m < s->microbatches; m++) {
            schedule_add(s, r, PASS_FORWARD, 0, m);
            schedule_add(s, r, PASS_BACKWARD, 0, m - ahead);
        }
        for (int m = s->microbatches - ahead; m < s->microbatches; m++)
            schedule_add(s, r, PASS_BACKWARD, 0, m);
    }
}

static const struct maker {
    const char *name;
    void (*make)(struct schedule *s); // fills the lists of an empty table
    int chunks;
} MAKERS[] = {{"gpipe", make_gpipe, 1}, {"1f1b", make_1f1b, 1}};

static const char NAMES[] = "gpipe, 1f1b";

const char *schedule_names(void) {
    return NAMES;
}

static const struct maker *maker_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(MAKERS); i++)
        if (strcmp(MAKERS[i].name, name) == 0)
            return &MAKERS[i];
    return NULL;
}

trireme_status schedule_create(struct schedule *schedule, const char *name, int stages, int microbatches, int chunks,
                               trireme_error *error) {
    const struct maker *maker = maker_find(name);
    size_t passes;
    if (!maker)
        FAIL(TRIREME_ERROR_USAGE, "no pipeline schedule is called \"%s\"; there are: %s", name, NAMES);
    chunks = chunks ? chunks : maker->chunks;
    if (stages < 1 || microbatches < 1 || chunks < 1)
        FAIL(TRIREME_ERROR_USAGE,
             "pipeline schedule %s: stages (%d), microbatches (%d) and chunks (%d) must be at least 1", name, stages,
             microbatches, chunks);
    if (chunks != maker->chunks)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has %d chunk%s to a rank, not %d", name, maker->chunks,
             maker->chunks == 1 ? "" : "s", chunks);
    if (__builtin_mul_overflow((size_t)stages * (size_t)chunks, (size_t)microbatches, &passes) ||
        passes > SCHEDULE_PASSES_MAX / 3)
        FAIL(TRIREME_ERROR_USAGE,
             "pipeline schedule %s: %d stages of %d chunks with %d microbatches are more than the %zu passes that fit",
             name, stages, chunks, microbatches, SCHEDULE_PASSES_MAX);
    struct schedule made;
    schedule_begin(&made, stages, microbatches, chunks, NULL);
    maker->make(&made);
    trireme_status status = schedule_verify(&made, error);
    if (status != TRIREME_OK) {
        schedule_release(&made);
        return error_prefix(error, "pipeline schedule %s", name);
    }
    *schedule = made;
    return TRIREME_OK;
}

static trireme_status check_fits(const struct schedule *s, int stages, int microbatches, int chunks,
                                 trireme_error *error) {
    static const char *const what[] = {"stages", "microbatches", "chunks to a rank"};
    const int has[] = {s->stages, s->microbatches, s->chunks}, wanted[] = {stages, microbatches, chunks};
    for (size_t i = 0; i < ARRAY_LENGTH(what); i++)
        if (has[i] != wanted[i] && wanted[i])
            FAIL(TRIREME_ERROR_USAGE, "this pipeline schedule is for %d %s, the run has %d", has[i], what[i],
                 wanted[i]);
    return TRIREME_OK;
}

trireme_status schedule_load(struct schedule *schedule, const char *name, int stages, int microbatches, int chunks,
                             trireme_error *error) {
    if (maker_find(name))
        return schedule_create(schedule, name, stages, microbatches, chunks, error);
    char *text;
    size_t length;
    trireme_status status = file_read(name, SCHEDULE_BYTES_MAX, &text, &length, error);
    if (status != TRIREME_OK) {
        error_prefix(error, "no pipeline schedule is called \"%s\" (there are: %s), and as a file", name, NAMES);
        return status;
    }
    struct schedule read;
    status = schedule_parse(&read, text, length, error);
    free(text);
    if (status == TRIREME_OK) {
        status = check_fits(&read, stages, microbatches, chunks, error);
        if (status == TRIREME_OK)
            *schedule = read;
        else
            schedule_release(&read);
    }
    if (status != TRIREME_OK)
        error_prefix(error, "%s", name);
    return status;
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
        } else if (pass->kind != PASS_BACKWARD_INPUT) {
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
