// The reference of outer steps, on a problem that is small enough to follow: equalities between methods, values that
// are written out again step by step, and its codecs, which give the bytes of codec/.
#include "reference/outer.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "support/test.h"

enum { ISLANDS = 4, COUNT = 600, STEPS = 60 };

// Each island draws every parameter to a place of its own, with noise, by SGD with momentum: an island has a state
// that is not exchanged, as Adam's.
struct pull {
    double rate, momentum, last; // `last`: the rate falls to this part of itself until the last step
    double *velocity[ISLANDS];
    bool uneven; // islands have different numbers of targets
};

static double pull_targets(const struct pull *p, int island) {
    return p->uneven ? 1 + island : 8;
}

static double pull_lr(void *context, int64_t step) {
    const struct pull *p = context;
    return p->rate * (1 - (1 - p->last) * (double)(step - 1) / STEPS);
}

static double pull_gradient(void *context, int island, int64_t step, const double *x, double *g) {
    for (int64_t i = 0; i < COUNT; i++) {
        const double noise = rng_uniform((uint64_t)step, (uint64_t)island, (uint64_t)i) - 0.5;
        const double place = rng_uniform(1234, (uint64_t)island, (uint64_t)i);
        g[i] = (1 + (double)(i % 7)) * (x[i] - place) + noise;
    }
    return pull_targets(context, island);
}

static double pull_step(void *context, int island, int64_t step, double *x) {
    struct pull *p = context;
    double g[COUNT];
    const double targets = pull_gradient(context, island, step, x, g);
    for (int64_t i = 0; i < COUNT; i++) {
        p->velocity[island][i] = p->momentum * p->velocity[island][i] + g[i];
        x[i] -= pull_lr(context, step) * p->velocity[island][i];
    }
    return targets;
}

// ---- runs

struct result {
    double *own[ISLANDS], *outer[ISLANDS];
};

static const struct plain_range one_range[] = {{0, COUNT, 0}};
static const struct plain_range three_fragments[] = {{0, 300, 1}, {300, 10, 0}, {310, 200, 2}, {510, 90, 0}};

static void run_on(const struct plain_outer *settings, struct pull pull, int islands, const struct plain_range *range,
                   int ranges, struct result *out) {
    const struct plain_problem problem = {.islands = islands,
                                          .count = COUNT,
                                          .range = range,
                                          .ranges = ranges,
                                          .context = &pull,
                                          .step = pull_step,
                                          .gradient = pull_gradient,
                                          .lr = pull_lr};
    double start[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        start[i] = rng_uniform(7, 7, (uint64_t)i);
    for (int m = 0; m < ISLANDS; m++) {
        out->own[m] = mem_alloc(COUNT * sizeof(double));
        out->outer[m] = mem_alloc(COUNT * sizeof(double));
        pull.velocity[m] = mem_alloc(COUNT * sizeof(double));
    }
    plain_outer_run(settings, &problem, STEPS, start, out->own, out->outer);
    for (int m = 0; m < ISLANDS; m++)
        free(pull.velocity[m]);
}

static void release(struct result *r) {
    for (int m = 0; m < ISLANDS; m++) {
        free(r->own[m]);
        free(r->outer[m]);
    }
}

static double difference(const struct result *a, const struct result *b, int islands) {
    double most = 0;
    for (int m = 0; m < islands; m++)
        for (int64_t i = 0; i < COUNT; i++) {
            most = farther(most, fabs(a->own[m][i] - b->own[m][i]));
            most = farther(most, fabs(a->outer[m][i] - b->outer[m][i]));
        }
    return most;
}

static const struct pull usual = {.rate = 0.02, .momentum = 0.8, .last = 1, .uneven = true};

// The two settings lead to the same parameters on `islands`, and to others than a third (NULL: none).
static void assert_equal_runs(struct plain_outer a, struct plain_outer b, const struct plain_outer *other,
                              struct pull pull, int islands) {
    struct result x, y, z;
    run_on(&a, pull, islands, one_range, 1, &x);
    run_on(&b, pull, islands, one_range, 1, &y);
    const double same = difference(&x, &y, islands);
    if (!(same <= 1e-12))
        fail_msg("they differ by %g", same);
    if (other) {
        run_on(other, pull, islands, one_range, 1, &z);
        assert_true(difference(&x, &z, islands) > 1e-3);
        release(&z);
    }
    release(&x);
    release(&y);
}

static struct plain_outer method(const char *name, int64_t sync_steps) {
    struct plain_outer settings = plain_outer_method(name);
    settings.sync_steps = sync_steps;
    return settings;
}

// ---- equalities

// Averaging at every step, with SGD: one model, trained with the mean of the islands' gradients.
static void averaging_at_every_step_is_data_parallel(void **state) {
    (void)state;
    struct pull pull = usual;
    pull.momentum = 0;
    const struct plain_outer settings = method("local_sgd", 1);
    struct result result;
    run_on(&settings, pull, ISLANDS, one_range, 1, &result);
    double x[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = rng_uniform(7, 7, (uint64_t)i);
    for (int64_t step = 1; step <= STEPS; step++) {
        double sum[COUNT] = {0}, total = 0;
        for (int m = 0; m < ISLANDS; m++) {
            double g[COUNT];
            const double targets = pull_gradient(&pull, m, step, x, g);
            total += targets;
            for (int64_t i = 0; i < COUNT; i++)
                sum[i] += targets * g[i];
        }
        for (int64_t i = 0; i < COUNT; i++)
            x[i] -= pull.rate * sum[i] / total;
    }
    for (int64_t i = 0; i < COUNT; i++)
        assert_true(fabs(x[i] - result.own[2][i]) < 1e-12);
    release(&result);
}

static void diloco_without_momentum_is_averaging(void **state) {
    (void)state;
    const struct plain_outer diloco = method("diloco", 10), averaging = method("local_sgd", 10);
    struct plain_outer plain = diloco;
    plain.lr = 1;
    plain.momentum = 0;
    assert_equal_runs(plain, averaging, &diloco, usual, ISLANDS);
    struct plain_outer later = averaging;
    plain.delay_steps = later.delay_steps = 3;
    plain.keep_progress = true;
    assert_equal_runs(plain, later, &averaging, usual, ISLANDS);
}

static void one_fragment_at_once_is_diloco(void **state) {
    (void)state;
    struct plain_outer streaming = method("streaming_diloco", 10), diloco = method("diloco", 10);
    streaming.fragments = 1;
    streaming.delay_steps = 0;
    streaming.mix = 0;
    streaming.codec = CODEC_NONE;
    diloco.lr = streaming.lr;
    struct plain_outer mixed = streaming;
    mixed.mix = 0.5;
    assert_equal_runs(streaming, diloco, &mixed, usual, ISLANDS);
    streaming.codec = CODEC_FP4;
    struct result x, y;
    run_on(&streaming, usual, ISLANDS, one_range, 1, &x);
    run_on(&diloco, usual, ISLANDS, one_range, 1, &y);
    assert_true(difference(&x, &y, ISLANDS) > 1e-3);
    release(&x);
    release(&y);
}

static void constant_rate_is_constant_interval(void **state) {
    (void)state;
    struct plain_outer qsr = method("qsr", 2), averaging = method("local_sgd", 6);
    qsr.interval_lr = 0.02 * sqrt(6.5);
    struct pull falling = usual;
    falling.last = 0.5;
    // The first round has the least interval, so the least is the same here.
    qsr.sync_steps = 6;
    struct plain_outer least = qsr;
    least.interval_lr = 0.01;
    assert_equal_runs(qsr, averaging, NULL, usual, ISLANDS);
    assert_equal_runs(least, averaging, NULL, falling, ISLANDS);
}

static void one_island(void **state) {
    (void)state;
    struct plain_outer eager = method("eager_diloco", 10), diloco = method("diloco", 10);
    eager.delay_steps = 10;
    diloco.lr = eager.lr;
    diloco.momentum = eager.momentum;
    assert_equal_runs(eager, diloco, NULL, usual, 1);
    struct result x, y;
    run_on(&eager, usual, ISLANDS, one_range, 1, &x);
    run_on(&diloco, usual, ISLANDS, one_range, 1, &y);
    assert_true(difference(&x, &y, ISLANDS) > 1e-3);
    release(&x);
    release(&y);
    // Alone, gossip is averaging with momentum, too.
    struct plain_outer gossip = method("gossip", 10);
    diloco.nesterov = false;
    diloco.lr = 0.7;
    diloco.momentum = 0.5;
    assert_equal_runs(gossip, diloco, NULL, usual, 1);
}

static void co2_at_once_is_averaging_with_momentum(void **state) {
    (void)state;
    const struct plain_outer co2 = method("co2", 10);
    struct plain_outer plain = co2, averaging = method("diloco", 10);
    plain.delay_steps = 0;
    plain.penalty = plain.clip = 0;
    averaging.lr = 1;
    averaging.momentum = 0.5;
    averaging.nesterov = false;
    struct plain_outer late = co2;
    late.delay_steps = 10;
    assert_equal_runs(plain, averaging, &late, usual, ISLANDS);
}

// ---- by hand: in step t island m moves down by slope[m] * t^power

struct drift {
    double slope[ISLANDS], targets[ISLANDS];
    double later; // times as many targets from step 3 on, for island 1
    int power;
    int64_t met[STEPS]; // steps in which island 0 sent
    int meetings;
};

static double drift_step(void *context, int island, int64_t step, double *x) {
    const struct drift *d = context;
    for (int i = 0; i < 2; i++)
        x[i] -= d->slope[island] * pow((double)step, d->power);
    return d->targets[island] * (island == 1 && step > 2 ? d->later : 1);
}

static double drift_gradient(void *context, int island, int64_t step, const double *x, double *g) {
    (void)x;
    const struct drift *d = context;
    g[0] = g[1] = d->slope[island] * (step > 2 ? 2 : 1);
    return d->targets[island];
}

static double drift_lr(void *context, int64_t step) {
    const struct drift *d = context;
    return d->power == 0 ? 0.1 : step <= 6 ? 0.5 : 0.25;
}

static void drift_sent(void *context, int64_t step, int island, int range, const uint8_t *code, int64_t bytes) {
    struct drift *d = context;
    (void)range;
    (void)code;
    (void)bytes;
    if (island == 0)
        d->met[d->meetings++] = step;
}

// Own and outer values of each island after `steps` steps from 0.
struct place {
    double own[ISLANDS][2], outer[ISLANDS][2];
};

static struct place drift_run(struct plain_outer settings, struct drift *drift, int islands, int64_t steps) {
    static const struct plain_range whole[] = {{0, 2, 0}}, two[] = {{0, 1, 0}, {1, 1, 1}};
    const struct plain_problem problem = {.islands = islands,
                                          .count = 2,
                                          .range = settings.fragments > 1 ? two : whole,
                                          .ranges = settings.fragments > 1 ? 2 : 1,
                                          .context = drift,
                                          .step = drift_step,
                                          .gradient = drift_gradient,
                                          .lr = drift_lr,
                                          .sent = drift_sent};
    struct place place;
    double *own[ISLANDS], *outer[ISLANDS];
    for (int m = 0; m < ISLANDS; m++) {
        own[m] = place.own[m];
        outer[m] = place.outer[m];
    }
    drift->meetings = 0;
    plain_outer_run(&settings, &problem, steps, (const double[2]){0, 0}, own, outer);
    return place;
}

static void assert_near(double x, double expected) {
    if (!(fabs(x - expected) < 1e-12))
        fail_msg("%.17g, not %.17g", x, expected);
}

static struct drift two_islands(int power) {
    return (struct drift){.slope = {1, 3}, .targets = {1, 1}, .later = 1, .power = power};
}

static void published_settings_run(void **state) {
    (void)state;
    static const char *const METHODS[] = {"local_sgd", "diloco", "streaming_diloco", "eager_diloco",
                                          "co2",       "qsr",    "local_scaled",     "gossip"};
    for (size_t i = 0; i < ARRAY_LENGTH(METHODS); i++) {
        const struct plain_outer settings = plain_outer_method(METHODS[i]);
        struct drift drift = two_islands(0);
        const struct place place = drift_run(settings, &drift, 2, 2 * settings.sync_steps + 1);
        assert_true(drift.meetings >= 2 && place.outer[1][0] < 0 && place.own[1][0] <= place.own[0][0]);
    }
}

static void progress_is_kept(void **state) {
    (void)state;
    struct plain_outer settings = method("local_sgd", 3);
    settings.delay_steps = 1;
    struct drift drift = two_islands(0);
    const struct place place = drift_run(settings, &drift, 2, 4);
    assert_near(place.own[0][0], -7);
    assert_near(place.own[1][0], -9);
    assert_near(place.outer[1][0], -6);
}

static void weights_are_of_the_round(void **state) {
    (void)state;
    struct drift drift = two_islands(0);
    drift.later = 3;
    const struct place place = drift_run(method("local_sgd", 2), &drift, 2, 4);
    assert_near(place.own[0][0], -4 - (2 * 1 + 6 * 3) / 4.0);
}

static void streaming_by_hand(void **state) {
    (void)state;
    const struct plain_outer settings = {.sync_steps = 4, .fragments = 2, .delay_steps = 1, .lr = 0.5, .mix = 0.25};
    struct drift drift = two_islands(0);
    struct place place = drift_run(settings, &drift, 2, 3);
    assert_near(place.outer[0][1], -2);
    assert_near(place.own[0][1], -2.25);
    assert_near(place.own[1][1], -3.75);
    assert_near(place.own[1][0], -9);
    place = drift_run(settings, &drift, 2, 7);
    assert_near(place.outer[1][1], -5.5);
    assert_near(place.own[0][1], -5.6875);
    assert_near(place.own[1][1], -8.0625);
    assert_near(place.outer[1][0], -4);
    assert_near(place.own[0][0], -6.25);
    assert_near(place.own[1][0], -12.75);
    assert_int_equal(drift.meetings, 3);
    assert_true(drift.met[0] == 2 && drift.met[1] == 4 && drift.met[2] == 6);
}

static void nesterov_by_hand(void **state) {
    (void)state;
    struct drift drift = two_islands(0);
    const struct plain_outer settings = method("diloco", 2); // lr 0.7, momentum 0.9
    const struct place place = drift_run(settings, &drift, 2, 4);
    // Both means are 4: v = 4, then 7.6.
    assert_near(place.own[1][1], -0.7 * (4 + 0.9 * 4) - 0.7 * (4 + 0.9 * 7.6));
}

static void co2_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = {.sync_steps = 2, .fragments = 1, .delay_steps = 2, .lr = 1, .momentum = 0.5};
    struct drift drift = two_islands(0);
    struct place place = drift_run(settings, &drift, 2, 2);
    assert_near(place.own[0][0], 0);
    place = drift_run(settings, &drift, 2, 8);
    assert_near(place.own[0][0], -17);
    settings.penalty = 1;
    place = drift_run(settings, &drift, 2, 8);
    assert_near(place.own[1][1], -10 - (3 + 4 / 1.5));
    settings.clip = 5;
    place = drift_run(settings, &drift, 2, 8);
    assert_near(place.outer[1][1], -14);
    settings.penalty = 2;
    settings.clip = 0;
    place = drift_run(settings, &drift, 2, 8);
    assert_near(place.own[1][1], -10 - (3 + 4 / 2.25));
    // With progress kept, own values are ahead by the round under way.
    settings.penalty = 0;
    settings.keep_progress = true;
    place = drift_run(settings, &drift, 2, 2);
    assert_near(place.own[1][0], -6);
    place = drift_run(settings, &drift, 2, 6);
    assert_near(place.outer[0][0], -10);
    assert_near(place.own[0][0], -12);
    assert_near(place.own[1][1], -16);
    settings.penalty = 2;
    settings.keep_progress = false;
    // Steps that become smaller are no gap; what is cut off is not in the momentum either. Means are 2 (1 + 1 / 2),
    // 2 (1 / 3 + 1 / 4), 2 (1 / 5 + 1 / 6).
    drift = two_islands(-1);
    place = drift_run(settings, &drift, 2, 8);
    const double second = 0.5 * 3 + 7.0 / 6;
    assert_near(place.own[0][0], -3 - second - (0.5 * second + 22.0 / 30));
    settings.clip = 2;
    place = drift_run(settings, &drift, 2, 8);
    assert_near(place.own[0][0], -2 - 2 - (0.5 * 2 + 22.0 / 30));
}

static void eager_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = {.sync_steps = 2, .fragments = 1, .delay_steps = 2, .lr = 1, .eager = true};
    struct drift drift = two_islands(1);
    struct place place = drift_run(settings, &drift, 2, 2);
    assert_near(place.own[0][0], -1.5);
    assert_near(place.own[1][0], -4.5);
    place = drift_run(settings, &drift, 2, 6);
    assert_near(place.own[0][0], -25.5);
    assert_near(place.own[1][0], -36.5);
    drift.targets[1] = 3;
    place = drift_run(settings, &drift, 2, 4);
    assert_near(place.own[0][0], -10);
    assert_near(place.own[1][0], -21);
    settings.equal = true;
    place = drift_run(settings, &drift, 2, 6);
    assert_near(place.own[1][0], -36.5);
}

static void gossip_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = {.sync_steps = 1, .fragments = 1, .pairs = true, .pull = 1, .lr = 1, .momentum = 0.5};
    struct drift drift = {.slope = {0, 1, 2, 3}, .targets = {5, 5, 5, 5}, .later = 1};
    struct place place = drift_run(settings, &drift, 4, 1);
    const double first[] = {-1.5, -0.5, -1.5, -2.5}, second[] = {-3.25, -3.75, -3.25, -4.75};
    for (int m = 0; m < 4; m++)
        assert_near(place.own[m][1], first[m]);
    place = drift_run(settings, &drift, 4, 2);
    for (int m = 0; m < 4; m++)
        assert_near(place.own[m][1], second[m]);
    settings.pairing = PAIRS_ALTERNATING; // 0-1, 2-3; then 1-2, 3-0
    settings.momentum = 0;
    place = drift_run(settings, &drift, 4, 2);
    const double alternating[] = {-3, -3, -3, -3};
    for (int m = 0; m < 4; m++)
        assert_near(place.own[m][0], alternating[m]);
}

static void assert_meetings(const struct drift *drift, const int64_t *expected, int count) {
    assert_int_equal(drift->meetings, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(drift->met[i], expected[i]);
}

static void interval_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = method("qsr", 2);
    settings.interval_lr = 1;
    struct drift drift = two_islands(1);
    drift_run(settings, &drift, 2, 30);
    assert_meetings(&drift, (const int64_t[]){2, 6, 22, 30}, 4);
    settings.warmup_steps = 7;
    drift_run(settings, &drift, 2, 30);
    assert_meetings(&drift, (const int64_t[]){2, 4, 6, 8, 24, 30}, 6);
}

static void scaled_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = method("local_scaled", 2);
    settings.scale_beta = 0.5;
    struct drift drift = two_islands(0);
    const struct place place = drift_run(settings, &drift, 2, 6);
    assert_near(place.own[1][1], -0.4 - 0.8 / sqrt(5) - 0.8 / sqrt(15));
}

// ---- codecs

static void encoders_agree(void **state) {
    (void)state;
    double x[1100], y[1100], z[1100];
    uint8_t ours[8 * 1100], theirs[8 * 1100];
    for (int kind = 0; kind < 60; kind++) {
        const int64_t n = 1 + (int64_t)(1099 * rng_uniform(5, 5, (uint64_t)kind));
        for (int64_t i = 0; i < n; i++) {
            const double u = rng_uniform(6, (uint64_t)kind, (uint64_t)(2 * i)) - 0.5;
            const double v = rng_uniform(6, (uint64_t)kind, (uint64_t)(2 * i + 1));
            x[i] = u * exp2(kind % 3 == 0 ? -1 : kind % 3 == 1 ? -20 * v : 2 * kind + 4 * v - 140);
            if (kind % 5 == 0 && i % 3 == 0)
                x[i] = copysign(exp2(floor(8 * v)) * (i % 2 ? 1 : 1.5), u); // ties
            if (kind % 5 == 1 && i % 2)
                x[i] = copysign(1 + (2 * (double)(i % 128) + 1) / 256, u); // ties of bf16
            if (kind == 7 && i == 0)
                x[i] = (double)FLT_MAX;
            if (kind % 10 == 4 && i == 300)
                x[i] = kind % 20 == 4 ? (double)INFINITY : (double)NAN;
        }
        for (enum codec codec = 0; codec < CODEC_COUNT; codec++) {
            plain_encode(codec, x, n, theirs);
            codec_encode_f64(codec, x, n, ours);
            assert_memory_equal(theirs, ours, (size_t)codec_bytes(codec, n, true));
            plain_decode(codec, ours, n, y);
            codec_decode_f64(codec, ours, n, z);
            for (int64_t i = 0; i < n; i++)
                assert_true(y[i] == z[i] || (isnan(y[i]) && isnan(z[i])));
        }
    }
}

// In fp4, where both values of a range are alike: 2 and 4 are kept, 3 becomes 4, 6 and 9 become 8, 5 becomes 4.
static void codecs_by_hand(void **state) {
    (void)state;
    struct plain_outer settings = {.sync_steps = 2, .fragments = 1, .codec = CODEC_FP4, .lr = 1};
    struct drift drift = two_islands(0);
    assert_near(drift_run(settings, &drift, 2, 2).own[0][0], -(2 + 8) / 2.0);
    settings.encode_mean = true;
    assert_near(drift_run(settings, &drift, 2, 2).own[1][1], -4);
    settings.encode_mean = false;
    settings.eager = true;
    settings.delay_steps = 2;
    drift = two_islands(1);
    const struct place place = drift_run(settings, &drift, 2, 4);
    assert_near(place.own[0][0], -1.5 - ((4 + 8) / 2.0 + (7 - 4) / 2.0));
    assert_near(place.own[1][0], -4.5 - ((4 + 8) / 2.0 + (21 - 8) / 2.0));
}

// What an island sends, and how many bytes, in ranges and fragments.
struct traffic {
    int64_t bytes[STEPS + 1];
};

static double still_step(void *context, int island, int64_t step, double *x) {
    (void)context;
    for (int64_t i = 0; i < COUNT; i++)
        x[i] -= 1e-3 * rng_uniform((uint64_t)step, (uint64_t)island, (uint64_t)i);
    return 1;
}

static void count_sent(void *context, int64_t step, int island, int range, const uint8_t *code, int64_t bytes) {
    struct traffic *t = context;
    if (island == 1)
        t->bytes[step] += bytes;
    assert_true(code[0] != 255); // all values are finite
    assert_true(range >= 0 && range < 4);
}

static void ranges_are_encoded_by_themselves(void **state) {
    (void)state;
    struct traffic traffic = {0};
    struct plain_outer settings = method("streaming_diloco", 30);
    settings.fragments = 3;
    const struct plain_problem problem = {.islands = 2,
                                          .count = COUNT,
                                          .range = three_fragments,
                                          .ranges = 4,
                                          .context = &traffic,
                                          .step = still_step,
                                          .sent = count_sent};
    double start[COUNT] = {0}, values[4][COUNT];
    double *own[] = {values[0], values[1]}, *outer[] = {values[2], values[3]};
    plain_outer_run(&settings, &problem, STEPS, start, own, outer);
    for (int64_t step = 1; step <= STEPS; step++) {
        // Fragment 0 has 10 and 90 values, fragment 1 has 300, fragment 2 has 200.
        const int64_t expected = step % 30 == 0    ? 1 + 5 + 1 + 45
                                 : step % 30 == 10 ? 2 + 150
                                 : step % 30 == 20 ? 1 + 100
                                                   : 0;
        assert_int_equal(traffic.bytes[step], expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averaging_at_every_step_is_data_parallel),
        cmocka_unit_test(diloco_without_momentum_is_averaging),
        cmocka_unit_test(one_fragment_at_once_is_diloco),
        cmocka_unit_test(constant_rate_is_constant_interval),
        cmocka_unit_test(one_island),
        cmocka_unit_test(co2_at_once_is_averaging_with_momentum),
        cmocka_unit_test(published_settings_run),
        cmocka_unit_test(progress_is_kept),
        cmocka_unit_test(weights_are_of_the_round),
        cmocka_unit_test(streaming_by_hand),
        cmocka_unit_test(nesterov_by_hand),
        cmocka_unit_test(co2_by_hand),
        cmocka_unit_test(eager_by_hand),
        cmocka_unit_test(gossip_by_hand),
        cmocka_unit_test(interval_by_hand),
        cmocka_unit_test(scaled_by_hand),
        cmocka_unit_test(encoders_agree),
        cmocka_unit_test(codecs_by_hand),
        cmocka_unit_test(ranges_are_encoded_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
