// Schedules by their names, and from files.
#include "base/amount.h"
#include "pipeline/schedule_make.h"

#include <math.h>

enum placement { LOOP, THERE_AND_BACK };
enum { CHUNKS_SEARCHED = 512 };

#define SCHEDULE(maker, name, chunks, step, placement, properties, torch, about) \
    {name, chunks, step, (placement) == THERE_AND_BACK, properties, torch, about},
static const struct schedule_kind KINDS[] = {
#include "pipeline/schedules.def"
};
#undef SCHEDULE

#define SCHEDULE(maker, ...) schedule_make_##maker,
static void (*const MAKERS[])(struct schedule *s, const struct schedule_options *o) = {
#include "pipeline/schedules.def"
};
#undef SCHEDULE

#define SCHEDULE(maker, name, ...) ", " name
static const char NAMES[] =
#include "pipeline/schedules.def"
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
        "%-12s  p: stages, m: microbatches, v: chunks of a rank, i: a rank from 0; F, B, W: forward, backward for the "
        "input, for the weights; holds: microbatches of which a rank keeps activations; (2): the default\n",
        "schedule");
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        text_add(out, "%-12s  %s\n", KINDS[i].name, KINDS[i].about);
}

// "; did you mean zb-h1?"; empty where no name is near, nor the one that PyTorch has for a schedule.
static const char *nearest_name(const char *name, char text[PASS_TEXT]) {
    const char *nearest = text_nearest(name, &KINDS[0].name, ARRAY_LENGTH(KINDS), sizeof KINDS[0]);
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        if (*name && strcasecmp(KINDS[i].torch, name) == 0)
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
                 "pipeline schedule %s has two chunks to a rank and wave, so that they are even: %s, %s", kind->name,
                 counted(o->waves, "wave").text, counted(given, "chunk").text);
        return TRIREME_OK;
    }
    o->chunks = given ? given : kind->chunks;
    if (kind->step == 0 && o->chunks != kind->chunks)
        FAIL(TRIREME_ERROR_USAGE, "pipeline schedule %s has %s to a rank, not %d", kind->name,
             counted(kind->chunks, "chunk").text, given);
    return TRIREME_OK;
}

// Scales times so that those of a microbatch add up to 1: then rounding is the same for any unit.
static trireme_status complete_times(const struct schedule_kind *kind, struct schedule_times *t, trireme_error *error) {
    double *const all[] = {&t->forward, &t->backward_input, &t->backward_weight, &t->latency};
    double whole = schedule_chunk_time(t);
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
    trireme_status status = file_read_named(name, SCHEDULE_BYTES_MAX, &text, &length, error);
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
