#include "reference/outer.h"

#include <math.h>

// ---- methods

struct plain_outer plain_outer_method(const char *name) {
    if (strcmp(name, "local_sgd") == 0) // Stich, "Local SGD Converges Fast and Communicates Little", arXiv 1805.09767
        return (struct plain_outer){.sync_steps = 16, .fragments = 1, .parameters = true, .keep_progress = true};
    // Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv 2311.08105.
    const struct plain_outer diloco = {.sync_steps = 500, .fragments = 1, .lr = 0.7, .momentum = 0.9, .nesterov = true};
    if (strcmp(name, "diloco") == 0)
        return diloco;
    // Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512. The order of what happens
    // when an exchange arrives is torchft's (local_sgd.py): own values are put aside, the outer step is applied to the
    // outer values with the delta of the launch, then the two are mixed. There the first fragment meets after H / P
    // steps; here, as in the paper's formula, its number says when.
    if (strcmp(name, "streaming_diloco") == 0)
        return (struct plain_outer){.sync_steps = 100,
                                    .fragments = 4,
                                    .delay_steps = 5,
                                    .codec = CODEC_FP4,
                                    .lr = 0.4,
                                    .momentum = 0.9,
                                    .nesterov = true,
                                    .mix = 0.5};
    // Kale et al., "Eager Updates For Overlapped Communication and Computation in DiLoCo", arXiv 2502.12996. What a
    // codec loses: an island takes away what it sent, as all others have it, and applies its new delta as it is. With
    // DiLoCo's 0.7 and 0.9 four islands diverge (the model below): the outer learning rate has to be lower.
    if (strcmp(name, "eager_diloco") == 0) {
        struct plain_outer eager = diloco;
        eager.eager = true;
        eager.lr = 0.4;
        eager.momentum = 0.8;
        eager.delay_steps = eager.sync_steps;
        return eager;
    }
    // Sun et al., "CO2: Efficient Distributed Training with Full Communication-Computation Overlap", arXiv 2401.16265.
    // In the authors' code (fairscale-CO2, co2.py) the penalty is a constant, 1, and the clipped momentum is thrown
    // away (torch.clamp, not clamp_): here both are as the paper has them. Defaults are those of the code. What becomes
    // of the round under way when the outer value arrives, neither settles. If the outer value replaces own values,
    // each round's progress is missing for a round: four islands that trained a byte model of 35,000 parameters, 30
    // steps a round, had a loss of 2.73 then, and diverged at a higher learning rate; with their own progress
    // kept, 2.60 (averaging at once: 2.68).
    if (strcmp(name, "co2") == 0)
        return (struct plain_outer){.sync_steps = 48,
                                    .fragments = 1,
                                    .delay_steps = 48,
                                    .lr = 1,
                                    .momentum = 0.5,
                                    .penalty = 1,
                                    .clip = 1,
                                    .keep_progress = true};
    // Gu et al., "A Quadratic Synchronization Rule for Distributed Deep Learning", arXiv 2310.14423, and the authors'
    // localopt.py (adjust_h): ViT-B with local AdamW.
    if (strcmp(name, "qsr") == 0)
        return (struct plain_outer){
            .sync_steps = 4, .fragments = 1, .interval_lr = 0.0175, .parameters = true, .keep_progress = true};
    // Chezhegov et al., "Local Methods with Adaptivity via Scaling", arXiv 2406.00846, with Adam's rule, whose b
    // corrects the bias: D^2 is a mean from the first meeting on. The paper takes the gradients of the meeting's step;
    // here all of the round count, which costs nothing more to send.
    if (strcmp(name, "local_scaled") == 0)
        return (struct plain_outer){.sync_steps = 16,
                                    .fragments = 1,
                                    .parameters = true,
                                    .scaled = true,
                                    .scale_beta = 0.95,
                                    .scale_floor = 1e-8};
    // Kolehmainen et al., "NoLoCo: No-all-reduce Low Communication Training Method for Large Models", arXiv 2506.10911,
    // as in the authors' sparse_optimizer_c.py: the pull to the peer's outer value has the outer learning rate, and the
    // momentum looks back only. There pairs are drawn at random; a ring that changes mixes at least as fast.
    if (strcmp(name, "gossip") == 0)
        return (struct plain_outer){
            .sync_steps = 50, .fragments = 1, .pairs = true, .pull = 1, .lr = 0.7, .momentum = 0.5};
    CHECK(!"a method");
    return diloco;
}

// ---- state

enum { MOST_ISLANDS = 64 };

// What was launched and has not arrived. Arrays are [islands][count of all parameters], of which it has its fragment's.
struct exchange {
    int64_t launched, round;
    int fragment;
    double *sent[MOST_ISLANDS];  // as decoded
    double *own[MOST_ISLANDS];   // values at the launch
    double *outer[MOST_ISLANDS]; // likewise
    double weight[MOST_ISLANDS];
};

struct simulation {
    const struct plain_outer *settings;
    const struct plain_problem *problem;
    int64_t steps;
    double **own, **outer;
    double *momentum[MOST_ISLANDS];
    double *base[MOST_ISLANDS];           // own values at the fragment's last launch, moved along by every merge since
    double *before[2][MOST_ISLANDS];      // outer values before the last two updates, latest first
    double (*targets)[MOST_ISLANDS];      // of each fragment, since its last launch
    VEC(struct exchange) under_way;       // in the order of launches
    int64_t next;                         // with interval_lr: the step after which the next launch is
    int64_t *rounds;                      // of each fragment: launches
    double *square[MOST_ISLANDS], *scale; // sums of g^2 since the last meeting; D
    int64_t squares;                      // steps in these
};

// Runs the statement that follows for each parameter i of a fragment.
#define FOR_FRAGMENT(i, s, which)                        \
    for (int r_ = 0; r_ < (s)->problem->ranges; r_++)    \
        if ((s)->problem->range[r_].fragment == (which)) \
            for (int64_t i = (s)->problem->range[r_].first, end_ = i + (s)->problem->range[r_].count; i < end_; i++)

static double *zeros(const struct simulation *s) {
    return mem_alloc((size_t)s->problem->count * sizeof(double));
}

// ---- when

static bool is_launched(const struct simulation *s, int64_t step, int fragment) {
    if (s->settings->interval_lr > 0)
        return step == s->next;
    const int64_t first = fragment * s->settings->sync_steps / s->settings->fragments;
    return step >= first && (step - first) % s->settings->sync_steps == 0;
}

// The steps of the round that begins after `step`.
static int64_t interval_after(const struct simulation *s, int64_t step) {
    const int64_t least = s->settings->sync_steps, left = s->steps - step;
    if (step == 0 || step < s->settings->warmup_steps)
        return MIN(least, left);
    const double ratio = s->settings->interval_lr / s->problem->lr(s->problem->context, step + 1);
    return MIN(MAX(least, (int64_t)fmin(floor(ratio * ratio), 1e15)), left);
}

// ---- what, encoded how

// Sends a range of x through the codec, in place.
static void through_codec(const struct simulation *s, const struct plain_range *range, double *x, uint8_t *code) {
    plain_encode(s->settings->codec, x + range->first, range->count, code);
    plain_decode(s->settings->codec, code, range->count, x + range->first);
}

static void launch(struct simulation *s, int64_t step, int fragment) {
    struct exchange e = {.launched = step, .fragment = fragment, .round = s->rounds[fragment]++};
    uint8_t *code = mem_alloc((size_t)codec_bytes(CODEC_NONE, s->problem->count, true));
    for (int m = 0; m < s->problem->islands; m++) {
        e.sent[m] = zeros(s);
        e.own[m] = zeros(s);
        e.outer[m] = zeros(s);
        FOR_FRAGMENT(i, s, fragment) {
            e.own[m][i] = s->own[m][i];
            e.outer[m][i] = s->outer[m][i];
            const double from = s->settings->keep_progress ? s->base[m][i] : s->outer[m][i];
            e.sent[m][i] = s->settings->parameters ? s->own[m][i] : from - s->own[m][i];
            s->base[m][i] = s->own[m][i];
        }
        for (int r = 0; r < s->problem->ranges; r++) {
            const struct plain_range *range = &s->problem->range[r];
            if (range->fragment != fragment)
                continue;
            through_codec(s, range, e.sent[m], code);
            if (s->problem->sent)
                s->problem->sent(s->problem->context, step, m, r, code,
                                 codec_bytes(s->settings->codec, range->count, true));
        }
        e.weight[m] = s->settings->equal ? 1 : s->targets[fragment][m];
        s->targets[fragment][m] = 0;
    }
    free(code);
    VEC_PUSH(&s->under_way, e);
}

// ---- reduced how

static int peer_of(const struct plain_outer *settings, int64_t round, int island, int islands) {
    if (settings->pairing == PAIRS_ALTERNATING) {
        const int shifted = (island + (int)(round % 2)) % islands, partner = shifted ^ 1;
        return (partner - (int)(round % 2) + islands) % islands;
    }
    int hops = 0;
    while (1 << hops < islands)
        hops++;
    const int distance = hops ? 1 << round % hops : 0;
    return (island - distance + islands) % islands;
}

// mean[count] of what travelled, as island m has it.
static void reduce(const struct simulation *s, const struct exchange *e, int m, double *mean) {
    const int islands = s->problem->islands, peer = peer_of(s->settings, e->round, m, islands);
    double total = 0;
    for (int k = 0; k < islands; k++)
        if (!s->settings->pairs || k == m || k == peer) {
            total += e->weight[k];
            FOR_FRAGMENT(i, s, e->fragment)
            mean[i] += e->weight[k] * e->sent[k][i];
        }
    FOR_FRAGMENT(i, s, e->fragment)
    mean[i] /= total;
    if (s->settings->encode_mean) {
        uint8_t *code = mem_alloc((size_t)codec_bytes(CODEC_NONE, s->problem->count, true));
        for (int r = 0; r < s->problem->ranges; r++)
            if (s->problem->range[r].fragment == e->fragment)
                through_codec(s, &s->problem->range[r], mean, code);
        free(code);
    }
}

// ---- applied how

static double distance(const struct simulation *s, int fragment, const double *x, const double *y) {
    double sum = 0;
    FOR_FRAGMENT(i, s, fragment)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

static double staleness_gap(const struct simulation *s, int fragment, int m) {
    const double last = distance(s, fragment, s->outer[m], s->before[0][m]);
    const double previous = distance(s, fragment, s->before[0][m], s->before[1][m]);
    return previous > 0 ? fmax(1, last / previous) : 1;
}

static void apply(struct simulation *s, int fragment, int m, const double *g) {
    const struct plain_outer *settings = s->settings;
    const double divisor = settings->penalty > 0 ? pow(staleness_gap(s, fragment, m), settings->penalty) : 1;
    FOR_FRAGMENT(i, s, fragment) {
        const double gradient = g[i] / divisor;
        double v = settings->momentum * s->momentum[m][i] + gradient;
        if (settings->clip > 0)
            v = fmin(fmax(v, -settings->clip), settings->clip);
        s->momentum[m][i] = v;
        s->before[1][m][i] = s->before[0][m][i];
        s->before[0][m][i] = s->outer[m][i];
        s->outer[m][i] -= settings->lr * (settings->nesterov ? gradient + settings->momentum * v : v);
    }
}

// ---- merged how

static void merge(struct simulation *s, const struct exchange *e, int m) {
    FOR_FRAGMENT(i, s, e->fragment) {
        const double own = s->own[m][i];
        s->own[m][i] = s->settings->keep_progress ? s->outer[m][i] + (own - e->own[m][i])
                                                  : s->settings->mix * own + (1 - s->settings->mix) * s->outer[m][i];
        // What an island learns is not what a merge moves it by.
        const double moved = s->own[m][i] - own;
        s->base[m][i] += moved;
        for (size_t k = 0; k < s->under_way.count; k++)
            if (&s->under_way.item[k] != e && s->under_way.item[k].fragment == e->fragment)
                s->under_way.item[k].own[m][i] += moved;
    }
}

// ---- meetings

static void arrive(struct simulation *s, const struct exchange *e) {
    const int islands = s->problem->islands;
    for (int m = 0; m < islands; m++) {
        double *g = zeros(s);
        reduce(s, e, m, g);
        if (s->settings->parameters) {
            FOR_FRAGMENT(i, s, e->fragment)
            s->outer[m][i] = g[i];
        } else {
            const int peer = peer_of(s->settings, e->round, m, islands);
            FOR_FRAGMENT(i, s, e->fragment)
            if (s->settings->pairs)
                g[i] += s->settings->pull * (e->outer[m][i] - (e->outer[m][i] + e->outer[peer][i]) / 2);
            apply(s, e->fragment, m, g);
        }
        merge(s, e, m);
        free(g);
    }
}

// `old` is the exchange of the round before; NULL: this is the first.
static void arrive_eagerly(struct simulation *s, const struct exchange *fresh, const struct exchange *old) {
    const int islands = s->problem->islands;
    double total = 0;
    for (int m = 0; old && m < islands; m++)
        total += old->weight[m];
    for (int m = 0; m < islands; m++) {
        double *g = zeros(s);
        if (old)
            reduce(s, old, m, g);
        const double share = old ? old->weight[m] / total : 1.0 / islands;
        FOR_FRAGMENT(i, s, fresh->fragment) {
            const double delta = fresh->outer[m][i] - fresh->own[m][i];
            g[i] += share * (delta - (old ? old->sent[m][i] : 0));
        }
        apply(s, fresh->fragment, m, g);
        merge(s, fresh, m);
        free(g);
    }
}

static void drop_first(struct simulation *s) {
    for (int m = 0; m < s->problem->islands; m++) {
        free(s->under_way.item[0].sent[m]);
        free(s->under_way.item[0].own[m]);
        free(s->under_way.item[0].outer[m]);
    }
    s->under_way.count--;
    memmove(s->under_way.item, s->under_way.item + 1, s->under_way.count * sizeof *s->under_way.item);
}

static void meet_scales(struct simulation *s, const struct exchange *e) {
    const double k = (double)e->round, beta = s->settings->scale_beta;
    const double b = (beta - pow(beta, k + 1)) / (1 - pow(beta, k + 1));
    for (int64_t i = 0; i < s->problem->count; i++) {
        double sum = 0, total = 0;
        for (int m = 0; m < s->problem->islands; m++) {
            sum += e->weight[m] * s->square[m][i] / (double)s->squares;
            total += e->weight[m];
            s->square[m][i] = 0;
        }
        s->scale[i] = sqrt(b * s->scale[i] * s->scale[i] + (1 - b) * sum / total);
    }
    s->squares = 0;
}

static void meet(struct simulation *s, int64_t step) {
    for (int fragment = 0; fragment < s->settings->fragments; fragment++)
        if (is_launched(s, step, fragment))
            launch(s, step, fragment);
    if (s->settings->interval_lr > 0 && step == s->next)
        s->next += interval_after(s, step);
    if (s->settings->eager) {
        const size_t n = s->under_way.count;
        if (n > 0 && s->under_way.item[n - 1].launched == step) {
            arrive_eagerly(s, &s->under_way.item[n - 1], n > 1 ? &s->under_way.item[0] : NULL);
            if (n > 1)
                drop_first(s);
        }
        return;
    }
    while (s->under_way.count > 0 && s->under_way.item[0].launched + s->settings->delay_steps == step) {
        if (s->settings->scaled)
            meet_scales(s, &s->under_way.item[0]);
        arrive(s, &s->under_way.item[0]);
        drop_first(s);
    }
    const bool whole_round = s->settings->delay_steps == s->settings->sync_steps;
    for (size_t i = 0; i < s->under_way.count && whole_round && !s->settings->keep_progress; i++)
        for (int m = 0; m < s->problem->islands && s->under_way.item[i].round == 0; m++)
            if (s->under_way.item[i].launched == step)
                merge(s, &s->under_way.item[i], m);
}

// ---- inner steps

static double scaled_step(struct simulation *s, int m, int64_t step) {
    double *g = zeros(s);
    const double targets = s->problem->gradient(s->problem->context, m, step, s->own[m], g);
    const double lr = s->problem->lr(s->problem->context, step);
    for (int64_t i = 0; i < s->problem->count; i++) {
        s->own[m][i] -= lr * g[i] / fmax(s->scale[i], s->settings->scale_floor);
        s->square[m][i] += g[i] * g[i];
    }
    free(g);
    return targets;
}

static void check_settings(const struct plain_outer *o, const struct plain_problem *problem) {
    CHECK(problem->islands >= 1 && problem->islands <= MOST_ISLANDS);
    CHECK(o->sync_steps >= 1 && o->delay_steps >= 0 && o->delay_steps <= o->sync_steps);
    CHECK(o->fragments >= 1 && o->sync_steps % o->fragments == 0);
    CHECK(o->fragments == 1 || o->interval_lr == 0);
    CHECK(!o->parameters || (!o->eager && !o->pairs && o->delay_steps < o->sync_steps));
    CHECK(!o->keep_progress || (!o->eager && !o->pairs && o->mix == 0));
    CHECK(!o->eager || (o->delay_steps == o->sync_steps && o->fragments == 1 && !o->pairs));
    CHECK(!o->scaled || (o->delay_steps == 0 && o->fragments == 1 && !o->pairs));
    CHECK(!o->pairs || o->pairing == PAIRS_EXPONENTIAL || problem->islands % 2 == 0);
}

void plain_outer_run(const struct plain_outer *settings, const struct plain_problem *problem, int64_t steps,
                     const double *start, double **own, double **outer) {
    check_settings(settings, problem);
    struct simulation s = {.settings = settings, .problem = problem, .steps = steps, .own = own, .outer = outer};
    s.rounds = mem_alloc((size_t)settings->fragments * sizeof *s.rounds);
    s.targets = mem_alloc((size_t)settings->fragments * sizeof *s.targets);
    s.next = settings->interval_lr > 0 ? interval_after(&s, 0) : 0;
    s.scale = zeros(&s);
    for (int64_t i = 0; i < problem->count; i++)
        s.scale[i] = 1;
    for (int m = 0; m < problem->islands; m++) {
        memcpy(own[m], start, (size_t)problem->count * sizeof *start);
        memcpy(outer[m], start, (size_t)problem->count * sizeof *start);
        s.momentum[m] = zeros(&s);
        s.base[m] = zeros(&s);
        memcpy(s.base[m], start, (size_t)problem->count * sizeof *start);
        for (int k = 0; k < 2; k++) {
            s.before[k][m] = zeros(&s);
            memcpy(s.before[k][m], start, (size_t)problem->count * sizeof *start);
        }
        s.square[m] = zeros(&s);
    }
    for (int64_t step = 1; step <= steps; step++) {
        for (int m = 0; m < problem->islands; m++) {
            const double targets =
                settings->scaled ? scaled_step(&s, m, step) : problem->step(problem->context, m, step, own[m]);
            for (int fragment = 0; fragment < settings->fragments; fragment++)
                s.targets[fragment][m] += targets;
        }
        s.squares++;
        meet(&s, step);
        if (problem->after)
            problem->after(problem->context, step, own, outer);
    }
    while (s.under_way.count > 0)
        drop_first(&s);
    VEC_RELEASE(&s.under_way);
    for (int m = 0; m < problem->islands; m++) {
        free(s.momentum[m]);
        free(s.base[m]);
        free(s.before[0][m]);
        free(s.before[1][m]);
        free(s.square[m]);
    }
    free(s.scale);
    free(s.targets);
    free(s.rounds);
}
