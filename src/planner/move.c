// Moves layers from stage to stage, one at a time. A layout that balances the work does not balance stages that wait
// for unlike links, or whose embedding or head leaves data parallel ranks more to send; and where layers cannot be
// divided evenly, it matters which stages have one more.
#include "base/clock.h"
#include "base/text.h"
#include "planner/search.h"

#include <math.h>

// With more stages than this, a layer only moves to a neighbouring stage.
enum { FEW_STAGES = 8 };
// A plan that is this many times as slow as the best may still become the best with its layers moved.
static const double FAR = 1.5;
// The part of a step: if waiting for data parallel ranks takes more, it matters how many parameters each stage has.
static const double WAITING = .1;
// Nanoseconds for all plans that are not among the best, by what each is expected to take.
static const double QUICK = 1e9;
// Nanoseconds that each trial takes at least.
static const double QUICKEST = 1e6;

// The layers of virtual stages that were best for a plan.
struct moved {
    int ranks, stages;
    int *layers;
};

struct layouts {
    struct search *search;
    VEC(struct plan_choice) climbed;
    VEC(struct moved) moved;
    double spent; // nanoseconds
};

static bool may_move(const int *layers, int stages, int from, int to) {
    return from != to && layers[from] > 1 && (stages <= FEW_STAGES || abs(from - to) == 1);
}

static int count_moves(int stages) {
    return stages <= FEW_STAGES ? stages * (stages - 1) : 2 * (stages - 1);
}

// Whether which layers are recomputed is chosen anew for each layout, so that it fits.
static bool chooses_modes(const struct search *s, const struct plan_choice *c) {
    return c->recompute == CONFIG_RECOMPUTE_NONE && !config_is_set(s->request->config, "activation_checkpoint.mode") &&
           space_mixes(s->request->config);
}

static struct job job_of(struct search *s, const struct plan_choice *c, const int *layers, int stages) {
    struct job job = create_job(s, c);
    struct text t = {0};
    text_add_numbers(&t, layers, stages);
    job.choice.layout = t.text;
    if (chooses_modes(s, c)) {
        job.choice.mixed = true;
        job.choice.full_layers = job.choice.selective_layers = NULL;
        begin_mix(s, &job);
    }
    return job;
}

// The number of the job that betters the answer most, or NONE; *best becomes that job's answer.
static int best_of(struct search *s, struct job *job, int jobs, struct plan_answer *best) {
    int found = NONE;
    evaluate_all(s->request, job, jobs, s->until);
    for (int i = 0; i < jobs; i++)
        end_mix(s, &job[i]);
    for (int i = 0; i < jobs; i++)
        if (job_betters(s, &job[i], best)) {
            *best = job[i].answer;
            found = i;
        }
    if (found != NONE)
        result_take(s->out, best);
    return found;
}

// Moves one layer at a time, each time the move that helps most, as long as one does.
static void move_climb(struct search *s, struct plan_answer *best, int stages, int *layers) {
    struct job *job = mem_alloc((size_t)count_moves(stages) * sizeof *job);
    int(*move)[2] = mem_alloc((size_t)count_moves(stages) * sizeof *move);
    for (int found = 0; found != NONE;) {
        int jobs = 0;
        for (int from = 0; from < stages; from++)
            for (int to = 0; to < stages; to++) {
                if (!may_move(layers, stages, from, to))
                    continue;
                layers[from]--, layers[to]++;
                job[jobs] = job_of(s, &best->choice, layers, stages);
                layers[from]++, layers[to]--;
                move[jobs][0] = from, move[jobs++][1] = to;
            }
        found = best_of(s, job, jobs, best);
        if (found != NONE)
            layers[move[found][0]]--, layers[move[found][1]]++;
    }
    free(job);
    free(move);
}

// Begins with layers that were best for other plans, if they are better for this one.
static void move_begin(struct layouts *l, struct plan_answer *best, int stages, int *layers) {
    struct job *job = mem_alloc((l->moved.count + 1) * sizeof *job);
    const int **of = mem_alloc((l->moved.count + 1) * sizeof *of);
    int jobs = 0;
    for (size_t i = 0; i < l->moved.count; i++) {
        const struct moved *m = &l->moved.item[i];
        if (m->ranks != best->choice.stages || m->stages != stages ||
            memcmp(m->layers, layers, (size_t)stages * sizeof *layers) == 0)
            continue;
        of[jobs] = m->layers;
        job[jobs++] = job_of(l->search, &best->choice, m->layers, stages);
    }
    const int found = jobs ? best_of(l->search, job, jobs, best) : NONE;
    if (found != NONE)
        memcpy(layers, of[found], (size_t)stages * sizeof *layers);
    free(job);
    free(of);
}

// Takes ownership of the layers, and keeps them unless they are known.
static void move_note(struct layouts *l, int ranks, int stages, int *layers) {
    bool known = false;
    for (size_t i = 0; i < l->moved.count; i++) {
        const struct moved *m = &l->moved.item[i];
        known |=
            m->ranks == ranks && m->stages == stages && memcmp(m->layers, layers, (size_t)stages * sizeof *layers) == 0;
    }
    if (known)
        free(layers);
    else
        VEC_PUSH(&l->moved, (struct moved){ranks, stages, layers});
}

static bool are_uneven(const int *layers, int stages) {
    bool uneven = false;
    for (int i = 1; i < stages; i++)
        uneven |= layers[i] != layers[0];
    return uneven;
}

// Whether layers were moved in a plan that differs only in what hardly matters to where layers are best.
static bool is_climbed(const struct layouts *l, const struct plan_choice *a) {
    bool alike = false;
    for (size_t i = 0; i < l->climbed.count; i++) {
        const struct plan_choice *b = &l->climbed.item[i];
        alike |= a->stages == b->stages && a->tensor == b->tensor && a->micro_batch_size == b->micro_batch_size &&
                 strcmp(a->schedule, b->schedule) == 0;
    }
    return alike;
}

static bool waits_for_data(const struct plan_answer *of) {
    return plan_answer_waiting(of) > WAITING * of->seconds;
}

// Whether so many plans can be tried in the time that is left, if they take as long as those before them.
static bool has_time(const struct search *s, int plans) {
    const int64_t now = clock_now();
    const double each = (double)(now - s->begin) / MAX(1, s->out->evaluated + s->out->ways);
    return s->until == 0 || plans * each <= (double)(s->until - now);
}

// Moves the layers of a plan, if there is something to move, and time for it; whether it did.
static bool move_layers(struct layouts *l, const struct plan_answer *of, double time) {
    struct search *s = l->search;
    const struct plan_choice *c = &of->choice;
    int stages, *layers = NULL;
    if (c->stages == 1 ||
        (plan_choice_mixes(c) && !(chooses_modes(s, c) && has_time(s, count_moves(c->stages * c->chunks)))))
        return false;
    // With several chunks, even an even layout may get better: layers of different chunks run at different times.
    const bool apart = isfinite(time) && c->chunks > 1, differ = stages_differ(s->estimator, c, &stages, &layers),
               moves =
                   layers && (differ || apart || waits_for_data(of) || (!c->balanced && are_uneven(layers, stages)));
    const int before = s->out->ways;
    const double each = fmax(choice_nanoseconds(s, c), QUICKEST);
    if (!moves || each * count_moves(stages) > time) {
        free(layers);
        return false;
    }
    struct plan_answer best = *of;
    VEC_PUSH(&l->climbed, *c);
    move_begin(l, &best, stages, layers);
    move_climb(s, &best, stages, layers);
    move_note(l, c->stages, stages, layers);
    l->spent += each * (s->out->ways - before);
    return true;
}

static int move_by_seconds(const void *x, const void *y) {
    const struct plan_answer *a = x, *b = y;
    return COMPARE(a->seconds, b->seconds);
}

// Moves layers in the three best plans, and in the best of three kinds, however long that takes; then, in all that were
// found, in the best of each kind for which that is quick.
void search_layouts(struct search *s) {
    enum { BEST = 3 };
    struct layouts l = {.search = s};
    const size_t answers = s->out->answers.count, count = s->found.count;
    if (config_is_set(s->request->config, "parallelism.pipeline_parallel_layout") || answers == 0)
        return;
    struct plan_answer best[PLAN_ANSWERS], *found = mem_alloc((count + 1) * sizeof *found);
    memcpy(best, s->out->answers.item, answers * sizeof *best);
    memcpy(found, s->found.item, count * sizeof *found);
    qsort(found, count, sizeof *found, move_by_seconds);
    int kinds = 0;
    for (size_t i = 0; i < answers && kinds < BEST; i++) {
        const bool alike = is_climbed(&l, &best[i].choice);
        if (!alike || i < BEST)
            kinds += move_layers(&l, &best[i], INFINITY) && !alike;
    }
    l.spent = 0;
    for (size_t i = 0; i < count && found[i].seconds < FAR * best[0].seconds; i++)
        if (!is_climbed(&l, &found[i].choice))
            move_layers(&l, &found[i], QUICK - l.spent);
    for (size_t i = 0; i < l.moved.count; i++)
        free(l.moved.item[i].layers);
    VEC_RELEASE(&l.moved);
    VEC_RELEASE(&l.climbed);
    free(found);
}
