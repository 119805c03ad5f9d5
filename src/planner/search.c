#include "planner/search.h"

#include "base/clock.h"
#include "base/parallel_for.h"
#include "planner/evaluate.h"
#include "planner/listing.h"
#include "planner/mix.h"

#include <math.h>
#include <unistd.h>

// What would fit even if it took this many times its estimate need not be tried out first.
static const double SURELY = 1.5;
// What would not fit even if it took only 1 / HOPELESS of its estimate is not tried where the question is whether it
// fits.
static const double HOPELESS = 2;
// The parts of the time by which choices in the space have been tried, and then overlap and moved layers; the rest is
// for other ways to better the best.
static const double OF_SPACE = .9, OF_LAYOUTS = .95;
// Nanoseconds after the end of the time by which a job may be expected to end.
static const int64_t GRACE = 5000000000;

enum { BATCH = 16, ALIKE = 4, FEW_PROMISING = 64 };
// A choice that would take more than this part of the time alone is simulated with few microbatches.
static const double SHARES_OF_TIME = 64;
// What takes LONG_TIME nanoseconds to compile is not compiled twice. Compiling takes, for each pass of all ranks in a
// step, PASS_TIME at least; else LAYER_TIME for each layer where a rank has many, and half of that where it has
// FEW_LAYERS (two Zen 4 cores, 32 to 2,000 layers). It takes MIXED_TIMES as long where layers are mixed to fit.
enum { LONG_TIME = 1800000000, PASS_TIME = 110000, LAYER_TIME = 30000, FEW_LAYERS = 50, MIXED_TIMES = 2 };

// ---- evaluating several at once

struct batch {
    const struct plan_request *request;
    struct job *job;
    int64_t until; // no job is begun later, or if it is expected to end GRACE later; 0: no limit
};

static trireme_status job_evaluate(struct job *job, const struct plan_request *r, trireme_error *error) {
    if (job->mix.of)
        TRY(mix_fit(&job->mix, r, &job->choice, error));
    return plan_evaluate(&job->answer, r, &job->choice, job->memory, error);
}

// The same, where all microbatches would take too long: with twice as many as are few, and then with these.
static trireme_status job_extend(struct job *job, const struct plan_request *r, trireme_error *error) {
    struct plan_request of_few;
    struct config config;
    struct plan_answer few = {0};
    TRY(plan_fewer(&of_few, &config, r, &job->choice, 2 * job->few, error));
    trireme_status status = job_evaluate(job, &of_few, error);
    config_release(&config);
    TRY(status);
    TRY(plan_fewer(&of_few, &config, r, &job->choice, job->few, error));
    status = plan_evaluate(&few, &of_few, &job->choice, job->memory, error);
    config_release(&config);
    TRY(status);
    plan_answer_extend(&job->answer, &few, r);
    return TRIREME_OK;
}

static void evaluate_one(void *argument, int i) {
    const struct batch *b = argument;
    struct job *job = &b->job[i];
    int64_t begin = clock_now();
    if (b->until > 0 && (begin > b->until || begin + job->expected > b->until + GRACE))
        return;
    job->done = true;
    job->status = job->few ? job_extend(job, b->request, &job->error) : job_evaluate(job, b->request, &job->error);
}

void evaluate_all(const struct plan_request *request, struct job *job, int jobs, int64_t until) {
    struct batch batch = {.request = request, .job = job, .until = until};
    parallel_for(request->threads, jobs, evaluate_one, &batch);
}

// ---- orders

static int search_by_bytes(const void *x, const void *y) {
    const struct candidate *a = x, *b = y;
    return COMPARE(a->estimate.bytes, b->estimate.bytes) ?: COMPARE(a->estimate.seconds, b->estimate.seconds);
}

// ---- searching

bool is_same_plan(const struct plan_answer *a, const struct plan_answer *b) {
    const struct plan_choice *x = &a->choice, *y = &b->choice;
    return a->seconds == b->seconds && a->memory == b->memory && a->computing == b->computing &&
           x->stages == y->stages && x->tensor == y->tensor && x->shards == y->shards &&
           x->micro_batch_size == y->micro_batch_size;
}

// Keeps the best, in order.
static void search_keep(struct plan_result *out, const struct plan_answer *answer) {
    for (size_t i = 0; i < out->answers.count; i++)
        if (is_same_plan(&out->answers.item[i], answer))
            return;
    VEC_PUSH(&out->answers, *answer);
    // Insertion sort, which leaves equal ones in the order in which they came.
    for (size_t i = out->answers.count - 1; i > 0 && out->answers.item[i].seconds < out->answers.item[i - 1].seconds;
         i--) {
        struct plan_answer swapped = out->answers.item[i];
        out->answers.item[i] = out->answers.item[i - 1];
        out->answers.item[i - 1] = swapped;
    }
    out->answers.count = MIN(out->answers.count, (size_t)PLAN_ANSWERS);
}

void result_take(struct plan_result *out, const struct plan_answer *answer) {
    int64_t lacks = answer->memory - answer->room;
    if (lacks <= 0)
        search_keep(out, answer);
    else if (out->closest.memory == 0 || lacks < out->closest.memory - out->closest.room)
        out->closest = *answer;
}

static void own_lists(struct plan_result *out, const struct plan_choice *c) {
    const char *const list[] = {c->full_layers, c->selective_layers, c->layout};
    for (size_t i = 0; i < ARRAY_LENGTH(list); i++) {
        bool owned = !list[i];
        for (size_t k = 0; k < out->lists.count && !owned; k++)
            owned = out->lists.item[k] == list[i];
        if (!owned)
            VEC_PUSH(&out->lists, (char *)list[i]);
    }
}

void begin_mix(struct search *s, struct job *job) {
    const struct plan_choice *c = &job->choice;
    struct pipe_estimate pipe;
    trireme_error none;
    if (estimate_pipe(s->estimator, c, &pipe, &none) != TRIREME_OK ||
        mix_create(&job->mix, s->estimator, c, &none) != TRIREME_OK)
        return;
    if (s->balancing ? isfinite(mix_balance(&job->mix, c, &pipe)) : mix_choose(&job->mix, c, &pipe, false))
        job->expected *= MIXED_TIMES;
    else
        mix_release(&job->mix);
}

void end_mix(struct search *s, struct job *job) {
    mix_release(&job->mix);
    own_lists(s->out, &job->choice);
}

// Of all its microbatches.
static double nanoseconds_of_all(const struct search *s, const struct plan_choice *c) {
    double batch = (double)s->request->config->training.global_batch_size,
           virtual_stages = c->stages * MAX(1, c->chunks),
           passes = batch / (double)(c->replicas * c->shards * c->micro_batch_size) * virtual_stages,
           layers = (double)s->request->model->num_hidden_layers, of_rank = layers / c->stages;
    return passes * MAX(PASS_TIME, layers / virtual_stages * LAYER_TIME * of_rank / (of_rank + FEW_LAYERS));
}

// The microbatches of a rank of which, and of twice as many, a step is simulated in place of all; 0: of all. Each
// schedule has by then reached what it repeats for every stages-th microbatch.
static int64_t choice_few(const struct search *s, const struct plan_choice *c) {
    enum { ROUNDS = 2, WORTH = 2 }; // of as many microbatches as there are stages; times as many must be left out
    const int64_t few = (int64_t)ROUNDS * MAX(c->stages, 2), all = plan_microbatches(s->request, c);
    const bool hurried =
        s->request->seconds > 0 && nanoseconds_of_all(s, c) > 1e9 * s->request->seconds / SHARES_OF_TIME;
    return hurried && all > WORTH * 3 * few ? few : 0;
}

double choice_nanoseconds(const struct search *s, const struct plan_choice *c) {
    const double all = nanoseconds_of_all(s, c), few = (double)choice_few(s, c);
    return few > 0 ? all * 3 * few / (double)plan_microbatches(s->request, c) : all;
}

bool takes_long(const struct search *s, const struct plan_choice *c) {
    return choice_nanoseconds(s, c) > LONG_TIME;
}

struct job create_job(const struct search *s, const struct plan_choice *c) {
    bool takes = takes_long(s, c);
    return (struct job){.choice = *c,
                        .few = choice_few(s, c),
                        .memory = takes ? PLAN_LEAST_MEMORY : PLAN_WITHIN_ROOM,
                        .expected = takes ? (int64_t)MIN(choice_nanoseconds(s, c), 1e18) : 0};
}

bool job_betters(struct search *s, struct job *job, const struct plan_answer *answer) {
    s->out->ways += job->done;
    s->out->complete &= job->done;
    if (!job->done || job->status != TRIREME_OK)
        return false;
    job->answer.estimate = answer->estimate;
    listing_note(s, &job->answer);
    return job->answer.memory <= job->answer.room && job->answer.seconds < answer->seconds;
}

void run_batch(struct search *s, struct candidate **batch, int jobs) {
    struct job *job = mem_alloc((size_t)jobs * sizeof *job);
    for (int i = 0; i < jobs; i++) {
        const struct plan_choice *c = &batch[i]->choice;
        job[i] = create_job(s, c);
        if (c->mixed && !c->full_layers && !c->selective_layers && !c->layout)
            begin_mix(s, &job[i]);
    }
    evaluate_all(s->request, job, jobs, s->until);
    for (int i = 0; i < jobs; i++) {
        end_mix(s, &job[i]);
        batch[i]->done = true;
        s->out->complete &= job[i].done;
        if (!job[i].done)
            continue;
        *(batch[i]->outside ? &s->out->ways : &s->out->evaluated) += 1;
        if (job[i].status != TRIREME_OK) {
            if (!s->why.message[0])
                s->why = job[i].error;
            continue;
        }
        if (!batch[i]->outside)
            learnt_add(&s->learnt, batch[i], &job[i].answer);
        job[i].answer.estimate = batch[i]->estimate.seconds;
        listing_note(s, &job[i].answer);
        result_take(s->out, &job[i].answer);
        if (s->out->answers.count == 0)
            VEC_PUSH(&s->lacking, job[i].answer);
    }
    free(job);
}

// Takes the most promising candidates that may fit, but only a few of each kin at once, so that the next ones are
// chosen by what these have taught.
static int search_choose(struct search *s, const struct candidates *all, struct candidate **batch) {
    int count = 0;
    while (count < BATCH) {
        struct candidate *best = NULL;
        double least = INFINITY;
        for (size_t i = 0; i < all->count; i++) {
            struct candidate *c = &all->item[i];
            if (c->done || c->estimate.seconds * .5 > least || !learnt_may_fit(&s->learnt, c))
                continue;
            double seconds = learnt_seconds(&s->learnt, c);
            if (seconds >= least)
                continue;
            int alike = 0;
            bool taken = false;
            for (int k = 0; k < count; k++) {
                alike += batch[k]->kin == c->kin;
                taken |= batch[k] == c;
            }
            if (!taken && alike < ALIKE) {
                least = seconds;
                best = c;
            }
        }
        if (!best)
            break;
        batch[count++] = best;
    }
    return count;
}

// Whether none of the rest can be among the best; `next` is the most promising of them.
static bool search_enough(struct search *s, const struct candidate *next) {
    size_t count = s->out->answers.count;
    return count == PLAN_ANSWERS &&
           learnt_seconds(&s->learnt, next) * learnt_slack(&s->learnt, next) > s->out->answers.item[count - 1].seconds;
}

static void search_promising(struct search *s, const struct candidates *all) {
    const struct plan_request *r = s->request;
    struct candidate *batch[BATCH];
    int count;
    while ((count = search_choose(s, all, batch)) > 0 && !search_enough(s, batch[0])) {
        if (s->until > 0 && clock_now() > s->until) {
            s->out->complete = false;
            break;
        }
        if (r->progress)
            r->progress(r->user, s->out->evaluated, s->out->promising,
                        s->out->answers.count ? s->out->answers.item[0].seconds : 0);
        run_batch(s, batch, count);
    }
}

static bool none_may_fit(const struct search *s, const struct candidates *all) {
    for (size_t i = 0; i < all->count; i++)
        if (!all->item[i].done && learnt_may_fit(&s->learnt, &all->item[i]))
            return false;
    return true;
}

// Where the candidate that seems smallest does not fit, another may, most likely another small one. Whether one did.
static bool search_few(struct search *s, const struct candidates *all) {
    struct candidates few = *all;
    few.count = MIN(few.count, FEW_PROMISING);
    search_promising(s, &few);
    s->out->complete &= s->out->answers.count > 0 || none_may_fit(s, all);
    return s->out->answers.count > 0;
}

static bool is_sibling(const struct plan_choice *a, const struct plan_choice *b) {
    return a->stages == b->stages && a->tensor == b->tensor && a->replicas == b->replicas && a->shards == b->shards &&
           a->zero_stage == b->zero_stage && a->micro_batch_size == b->micro_batch_size && a->recompute == b->recompute;
}

static int search_by_seconds(const void *x, const void *y) {
    const struct candidate *a = *(struct candidate *const *)x, *b = *(struct candidate *const *)y;
    return COMPARE(a->estimate.seconds, b->estimate.seconds);
}

// Tries those other schedules and layouts on the meshes of the best that were not simulated: what was learnt about a
// schedule on other meshes may have ruled it out where it is better.
static void search_siblings(struct search *s, const struct candidates *all) {
    enum { BEST = 2 };
    struct candidate **siblings = mem_alloc(all->count * sizeof *siblings);
    struct plan_choice best[BEST];
    size_t meshes = MIN(s->out->answers.count, (size_t)BEST);
    for (size_t i = 0; i < meshes; i++)
        best[i] = s->out->answers.item[i].choice;
    for (size_t i = 0; i < meshes; i++) {
        int count = 0;
        for (size_t k = 0; k < all->count; k++)
            if (!all->item[k].done && is_sibling(&all->item[k].choice, &best[i]) &&
                learnt_may_fit(&s->learnt, &all->item[k]))
                siblings[count++] = &all->item[k];
        qsort(siblings, (size_t)count, sizeof *siblings, search_by_seconds);
        if (count)
            run_batch(s, siblings, MIN(count, (int)BATCH));
    }
    free(siblings);
}

// ---- ways to better the best

bool search_may_have_whole_rows(const struct search *s, const struct plan_choice *c) {
    return c->sequence && !config_is_set(s->request->config, "parallelism.sequence_parallel");
}

bool search_may_overlap(const struct search *s, const struct plan_choice *c) {
    return c->tensor > 1 && !c->overlap && !config_is_set(s->request->config, "parallelism.tensor_parallel_overlap");
}

static void search_whole_rows(struct search *s) {
    struct candidate other[PLAN_ANSWERS], *batch[PLAN_ANSWERS];
    int count = 0;
    for (size_t i = 0; i < s->out->answers.count; i++) {
        const struct plan_answer *a = &s->out->answers.item[i];
        if (!search_may_have_whole_rows(s, &a->choice))
            continue;
        other[count] = (struct candidate){.choice = a->choice, .estimate.seconds = a->estimate, .outside = true};
        other[count].choice.sequence = false;
        batch[count] = &other[count];
        count++;
    }
    if (count)
        run_batch(s, batch, count);
}

// Overlap takes memory. Where it is faster it replaces the plan.
static void search_overlap(struct search *s) {
    struct job job[PLAN_ANSWERS];
    struct plan_answer best[PLAN_ANSWERS];
    int count = (int)s->out->answers.count, which[PLAN_ANSWERS], jobs = 0;
    for (int i = 0; i < count; i++) {
        best[i] = s->out->answers.item[i];
        if (!search_may_overlap(s, &best[i].choice))
            continue;
        job[jobs] = create_job(s, &best[i].choice);
        job[jobs].choice.overlap = true;
        which[jobs++] = i;
    }
    if (jobs)
        evaluate_all(s->request, job, jobs, s->until);
    for (int i = 0; i < jobs; i++) {
        if (job_betters(s, &job[i], &best[which[i]]))
            best[which[i]] = job[i].answer;
    }
    s->out->answers.count = 0;
    for (int i = 0; i < count; i++)
        result_take(s->out, &best[i]);
}

// A way to better a plan: other units, fewer or more of them gathered ahead, or all logits at once.
struct way {
    int unit_layers, prefetch;
    bool all_logits;
};

// Whether a way can be tried on a plan; all logits at once only on the two best.
static bool is_open(const struct search *s, const struct way *way, const struct plan_answer *a, bool best) {
    const struct config *config = s->request->config;
    if (way->all_logits)
        return best && estimator_chooses_logits(s->request) && logits_pieces(s->estimator, &a->choice) > 1;
    const bool set = config_is_set(config, way->prefetch ? "parallelism.data_parallel_prefetch"
                                                         : "parallelism.data_parallel_unit_layers");
    return !set && a->choice.replicas * a->choice.shards > 1 && (!way->prefetch || a->choice.zero_stage == 3);
}

// Tries ways to better the two best, and those other plans that would be the best if their data parallel ranks did not
// wait for one another: other units can save no more than that.
static void search_units(struct search *s) {
    static const struct way WAYS[] = {
        {.unit_layers = HALF_LAYERS}, {.unit_layers = 2}, {.unit_layers = 4}, {.prefetch = 1}, {.prefetch = 2},
        {.all_logits = true}};
    enum { BEST = 2, JOBS = PLAN_ANSWERS * ARRAY_LENGTH(WAYS) };
    struct job *job = mem_alloc(JOBS * sizeof *job);
    struct plan_answer *from = mem_alloc(JOBS * sizeof *from);
    int jobs = 0;
    for (size_t i = 0; i < s->out->answers.count; i++) {
        const struct plan_answer *a = &s->out->answers.item[i];
        const double waiting = plan_answer_waiting(a);
        if (i >= BEST && a->seconds - waiting >= s->out->answers.item[0].seconds)
            continue;
        for (size_t w = 0; w < ARRAY_LENGTH(WAYS); w++) {
            if (!is_open(s, &WAYS[w], a, i < BEST))
                continue;
            job[jobs] = create_job(s, &a->choice);
            job[jobs].choice.unit_layers = WAYS[w].unit_layers;
            job[jobs].choice.prefetch = WAYS[w].prefetch;
            if (WAYS[w].all_logits)
                job[jobs].choice.logits_rows =
                    a->choice.micro_batch_size * parallel_given_rows(s->request->config, s->request->model);
            from[jobs++] = *a;
        }
    }
    if (jobs)
        evaluate_all(s->request, job, jobs, s->until);
    for (int i = 0; i < jobs; i++) {
        if (job_betters(s, &job[i], &from[i]))
            result_take(s->out, &job[i].answer);
    }
    free(job);
    free(from);
}

// For answers whose memory was planned only to fit.
void answers_measure_memory(struct search *s, struct plan_answer *const *answer, int count) {
    struct job *job = mem_alloc((size_t)count * sizeof *job);
    for (int i = 0; i < count; i++) {
        job[i] = create_job(s, &answer[i]->choice);
        job[i].memory = PLAN_LEAST_MEMORY;
    }
    evaluate_all(s->request, job, count, 0);
    for (int i = 0; i < count; i++) {
        CHECK(job[i].status == TRIREME_OK);
        job[i].answer.estimate = answer[i]->estimate;
        *answer[i] = job[i].answer;
    }
    free(job);
}

static int64_t search_lacks(const struct plan_answer *a) {
    return a->memory - a->room;
}

// The bytes that a plan lacks even with the best plan of its programs' memory.
static int64_t lacks_at_least(const struct plan_answer *a) {
    return search_lacks(a) - a->of_tightest.part[MEMORY_UNUSED];
}

// Finds the plan that lacks least with memory as `train` plans it, which was not done where it could not have fitted.
static void find_closest(struct search *s) {
    for (;;) {
        struct plan_answer *closest = NULL, *next = NULL;
        for (size_t i = 0; i < s->lacking.count; i++) {
            struct plan_answer *a = &s->lacking.item[i];
            if (a->least_memory && (!closest || search_lacks(a) < search_lacks(closest)))
                closest = a;
            if (!a->least_memory && (!next || lacks_at_least(a) < lacks_at_least(next)))
                next = a;
        }
        if (closest)
            s->out->closest = *closest;
        if (!next || (closest && lacks_at_least(next) > search_lacks(closest)))
            return;
        answers_measure_memory(s, &next, 1);
    }
}

// For when everything that surely fits takes longer to compile than there is time: evaluates what is compiled soonest,
// however long that takes; of equally quick ones, the best by estimate.
static void search_quickest(struct search *s, struct candidates *all) {
    struct candidate *quickest = &all->item[0];
    int64_t until = s->until;
    for (size_t i = 0; i < all->count && all->item[i].estimate.bytes * SURELY <= s->estimator->room; i++) {
        struct candidate *c = &all->item[i];
        // All that do not take long count as equally quick.
        double time = fmax(choice_nanoseconds(s, &c->choice), LONG_TIME),
               least = fmax(choice_nanoseconds(s, &quickest->choice), LONG_TIME);
        if (time < least || (time == least && c->estimate.seconds < quickest->estimate.seconds))
            quickest = c;
    }
    s->until = 0;
    run_batch(s, &quickest, 1);
    s->until = until;
}

// Searches the space, whose choices are sorted by bytes, until `space_until`, then for other layouts, and until `end`
// for other ways (0: no limit). Leaves those of `all` that may fit.
static void search_all(struct search *s, struct candidates *all, int64_t space_until, int64_t layouts_until,
                       int64_t end) {
    struct plan_result *result = s->out;
    const bool only_fit = s->request->only_fit;
    const double least = all->item[0].estimate.bytes, room = s->estimator->room;
    const bool surely = !only_fit && least * SURELY <= room;
    struct candidates every = *all;
    s->until = space_until;
    if (!surely && !(only_fit && least > HOPELESS * room))
        search_smallest(s, all);
    while (result->promising < result->choices && all->item[result->promising].estimate.bytes <= room * MEMORY_SLACK)
        result->promising++;
    all->count = (size_t)result->promising;
    if (!only_fit && (surely || result->fits || search_few(s, all))) {
        search_promising(s, all);
        search_siblings(s, all);
        s->until = layouts_until;
        search_overlap(s);
        search_layouts(s);
        s->until = end;
        search_whole_rows(s);
        search_units(s);
    }
    if (surely && result->answers.count == 0 && result->evaluated == 0)
        search_quickest(s, &every);
    if (surely && result->answers.count == 0)
        search_smallest(s, &every);
    result->fits |= result->answers.count > 0;
    if (!only_fit && result->answers.count)
        listing_fill(s, all);
    if (!only_fit && !result->fits)
        find_closest(s);
}

trireme_status plan_search(struct plan_result *out, const struct plan_request *request, trireme_error *error) {
    struct estimator estimator;
    struct candidates all = {0};
    struct plan_result result = {.complete = true};
    struct search search = {
        .request = request, .out = &result, .estimator = &estimator, .learnt.estimator = &estimator};
    const int64_t begin = search.begin = clock_now(),
                  end = request->seconds > 0 ? begin + (int64_t)(1e9 * request->seconds) : 0;
    const int64_t space_until = end ? begin + (int64_t)(OF_SPACE * (double)(end - begin)) : 0,
                  layouts_until = end ? begin + (int64_t)(OF_LAYOUTS * (double)(end - begin)) : 0;
    estimator_create(&estimator, request, !request->only_fit);
    trireme_status status = space_list(&all, &estimator, error);
    VEC_SORT(&all, search_by_bytes);
    result.choices = (int)all.count;
    for (size_t i = 0; i < all.count; i++) {
        learnt_place(&search.learnt, &all.item[i]);
        result.pipelines += all.item[i].choice.stages > 1;
    }
    if (all.count)
        search_all(&search, &all, space_until, layouts_until, end);
    if (status == TRIREME_OK && result.choices == 0)
        status = space_refuse(&estimator, NULL, error);
    else if (status == TRIREME_OK && !result.fits && result.closest.memory == 0)
        status = space_refuse(&estimator, &search.why, error);
    learnt_release(&search.learnt);
    VEC_RELEASE(&search.found);
    VEC_RELEASE(&search.lacking);
    VEC_RELEASE(&all);
    estimator_release(&estimator);
    if (status == TRIREME_OK)
        *out = result;
    else
        plan_result_release(&result);
    return status;
}

void plan_result_release(struct plan_result *result) {
    VEC_RELEASE(&result->answers);
    for (size_t i = 0; i < result->lists.count; i++)
        free(result->lists.item[i]);
    VEC_RELEASE(&result->lists);
}
