#include "parallel/schedule.h"
#include "parallel/schedule_make.h"

#include <math.h>

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

// ---- the schedules by name

enum placement { LOOP, THERE_AND_BACK };
enum { CHUNKS_SEARCHED = 512 };

#define SCHEDULE(maker, name, chunks, step, placement, properties, torch, about) \
    {name, chunks, step, (placement) == THERE_AND_BACK, properties, torch, about},
static const struct schedule_kind KINDS[] = {
#include "parallel/schedules.def"
};
#undef SCHEDULE

#define SCHEDULE(maker, ...) schedule_make_##maker,
static void (*const MAKERS[])(struct schedule *s, const struct schedule_options *o) = {
#include "parallel/schedules.def"
};
#undef SCHEDULE

#define SCHEDULE(maker, name, ...) ", " name
static const char NAMES[] =
#include "parallel/schedules.def"
    ;
#undef SCHEDULE

const char *schedule_names(void) {
    return NAMES + strlen(", ");
}

const struct schedule_kind *schedule_kind(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    return NULL;
}

const struct schedule_kind *schedule_kinds(size_t *count) {
    *count = ARRAY_LENGTH(KINDS);
    return KINDS;
}

void schedules_help(struct text *out) {
    text_add(
        out,
        "%-12s  of p stages, m microbatches, v chunks to each rank; i: a rank from 0; F, B, W: forward, backward for "
        "the input, for the weights; (2): where no other number is asked for\n",
        "schedule");
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        text_add(out, "%-12s  %s\n", KINDS[i].name, KINDS[i].about);
}

// "; did you mean zb-h1?", or nothing where no name is near and PyTorch calls none so.
static const char *nearest_name(const char *name, char text[PASS_TEXT]) {
    const char *nearest = text_nearest(name, &KINDS[0].name, ARRAY_LENGTH(KINDS), sizeof KINDS[0]);
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        if (strcasecmp(KINDS[i].torch, name) == 0)
            nearest = KINDS[i].name;
    text[0] = '\0';
    if (nearest)
        snprintf(text, PASS_TEXT, "; did you mean %s?", nearest);
    return text;
}

trireme_status schedule_complete_chunks(const struct schedule_kind *kind, struct schedule_options *o,
                                        trireme_error *error) {
    int given = o->chunks;
    if (given < 0 || o->waves < 0)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s: chunks (%d) and waves (%d) cannot be negative", kind->name,
             given, o->waves);
    if (o->waves && !(kind->properties & SCHEDULE_WAVES))
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has no waves, which hanayo has", kind->name);
    bool is_searched = kind->properties & (SCHEDULE_LIMIT | SCHEDULE_WAVES);
    if (is_searched && (given > CHUNKS_SEARCHED || o->waves > CHUNKS_SEARCHED / 2))
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s is searched for, which takes too long for more than %d chunks",
             kind->name, CHUNKS_SEARCHED);
    if (kind->properties & SCHEDULE_WAVES) {
        if (!o->waves && given % 2)
            FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has an even number of chunks to a rank, not %d", kind->name,
                 given);
        if (!o->waves)
            o->waves = given ? given / 2 : 1;
        if (__builtin_mul_overflow(o->waves, 2, &o->chunks) || (given && given != o->chunks))
            FAIL(TRIREME_ERROR_USAGE,
                 "pipeline schedule %s has two chunks to a rank and wave, so that they are even: %d waves, %d chunks",
                 kind->name, o->waves, given);
        return TRIREME_OK;
    }
    o->chunks = given ? given : kind->chunks;
    if (kind->step == 0 && o->chunks != kind->chunks)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has %d chunk%s to a rank, not %d", kind->name, kind->chunks,
             kind->chunks == 1 ? "" : "s", given);
    return TRIREME_OK;
}

// Times become parts of a whole microbatch's, so that rounding is the same for any unit.
static trireme_status complete_times(const struct schedule_kind *kind, struct schedule_times *t, trireme_error *error) {
    double *const all[] = {&t->forward, &t->backward_input, &t->backward_weight, &t->latency};
    double whole = t->forward + t->backward_input + t->backward_weight;
    if (whole == 0 && t->latency == 0) {
        *t = (struct schedule_times){.forward = 1, .backward_input = 1, .backward_weight = 1};
        whole = 3;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
        if (!(*all[i] >= 0) || !isfinite(*all[i]) || !(whole > 0))
            FAIL(TRIREME_ERROR_USAGE,
                 "pipeline schedule %s: times %g (forward), %g (backward for the input), %g (for the weights) and %g "
                 "(latency) must be at least 0, one of the first three above",
                 kind->name, t->forward, t->backward_input, t->backward_weight, t->latency);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
        *all[i] /= whole;
    if (!isfinite(t->latency))
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s: the latency is too many times what a microbatch takes",
             kind->name);
    return TRIREME_OK;
}

static trireme_status complete_limit(const struct schedule_kind *kind, int stages, struct schedule_options *o,
                                     trireme_error *error) {
    if (!(kind->properties & SCHEDULE_LIMIT) && (o->activation_limit || o->weight_share != 0))
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has no activation limit to be set, which auto has", kind->name);
    if (o->activation_limit < 0 || !(o->weight_share >= 0 && o->weight_share <= 1))
        FAIL(TRIREME_ERROR_USAGE,
             "pipeline schedule %s: activation limit %d, weight share %g: at least 1 microbatch and up to 1 are needed",
             kind->name, o->activation_limit, o->weight_share);
    if (o->search_passes < 0)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s: %lld passes to try are fewer than 0", kind->name,
             (long long)o->search_passes);
    if (!o->search_passes)
        o->search_passes = SCHEDULE_SEARCH_PASSES;
    if (!o->activation_limit)
        o->activation_limit = 2 * stages;
    if (o->weight_share == 0)
        o->weight_share = kind->properties & SCHEDULE_LIMIT ? SCHEDULE_WEIGHT_SHARE : 1;
    return TRIREME_OK;
}

void schedule_begin_there_and_back(struct schedule *s, int stages, int microbatches, int chunks) {
    int *ranks = mem_alloc((size_t)stages * (size_t)chunks * sizeof *ranks);
    for (int i = 0; i < stages * chunks; i++)
        ranks[i] = i / stages % 2 == 0 ? i % stages : stages - 1 - i % stages;
    schedule_begin(s, stages, microbatches, chunks, ranks);
    free(ranks);
}

trireme_status schedule_create(struct schedule *schedule, const char *name, int stages, int microbatches,
                               const struct schedule_options *options, trireme_error *error) {
    const struct schedule_kind *kind = schedule_kind(name);
    struct schedule_options o = options ? *options : (struct schedule_options){0};
    char near[PASS_TEXT];
    size_t passes;
    if (!kind)
        FAIL(TRIREME_ERROR_USAGE, "no pipeline schedule is called \"%s\"; there are: %s%s", name, schedule_names(),
             nearest_name(name, near));
    if (stages < 1 || microbatches < 1)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s: stages (%d) and microbatches (%d) must be at least 1", name,
             stages, microbatches);
    TRY(schedule_complete_chunks(kind, &o, error));
    if (__builtin_mul_overflow((size_t)stages * (size_t)o.chunks, (size_t)microbatches, &passes) ||
        passes > SCHEDULE_PASSES_MAX / 3)
        FAIL(TRIREME_ERROR_USAGE,
             "pipeline schedule %s: %d stages of %d chunks with %d microbatches are more than the %zu passes that fit",
             name, stages, o.chunks, microbatches, SCHEDULE_PASSES_MAX);
    TRY(complete_times(kind, &o.times, error));
    TRY(complete_limit(kind, stages, &o, error));
    struct schedule made;
    if (kind->there_and_back)
        schedule_begin_there_and_back(&made, stages, microbatches, o.chunks);
    else
        schedule_begin(&made, stages, microbatches, o.chunks, NULL);
    MAKERS[kind - KINDS](&made, &o);
    if (kind->properties & SCHEDULE_LIMIT)
        made.options = o;
    trireme_status status = schedule_verify(&made, error);
    if (status != TRIREME_OK) {
        schedule_release(&made);
        return error_prefix(error, status, "pipeline schedule %s", name);
    }
    schedule_count_on_way(&made);
    *schedule = made;
    return TRIREME_OK;
}

static trireme_status check_fits(const struct schedule *s, int stages, int microbatches, int chunks,
                                 trireme_error *error) {
    static const char *const NOUNS[][2] = {
        {"stage", "stages"}, {"microbatch", "microbatches"}, {"chunk to a rank", "chunks to a rank"}};
    const int has[] = {s->stages, s->microbatches, s->chunks}, wanted[] = {stages, microbatches, chunks};
    for (size_t i = 0; i < ARRAY_LENGTH(NOUNS); i++)
        if (wanted[i] && has[i] != wanted[i])
            FAIL(TRIREME_ERROR_USAGE, "this pipeline schedule is for %d %s, the run has %d", has[i],
                 NOUNS[i][has[i] != 1], wanted[i]);
    return TRIREME_OK;
}

trireme_status schedule_load(struct schedule *schedule, const char *name, int stages, int microbatches,
                             const struct schedule_options *options, trireme_error *error) {
    if (schedule_kind(name))
        return schedule_create(schedule, name, stages, microbatches, options, error);
    char *text, near[PASS_TEXT];
    size_t length;
    trireme_status status = file_read(name, SCHEDULE_BYTES_MAX, &text, &length, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "no pipeline schedule is called \"%s\" (there are: %s%s), and as a file",
                            name, schedule_names(), nearest_name(name, near));
    struct schedule read;
    status = schedule_parse(&read, text, length, error);
    free(text);
    if (status == TRIREME_OK) {
        status = check_fits(&read, stages, microbatches, options ? options->chunks : 0, error);
        if (status == TRIREME_OK)
            *schedule = read;
        else
            schedule_release(&read);
    }
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
    int whole = 0, parts = 0; // held in full, and for the weights' pass alone
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
