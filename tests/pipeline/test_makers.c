// Makers of pipeline schedules: what is true of all, how much each claims to hold and to cost, and published figures.
#include "base/rng.h"
#include "pipeline/schedule_make.h"
#include "support/sanitized.h"
#include "test_schedule.h"

#include <math.h>
#include <time.h>

// ---- help

enum { SELDOM = SANITIZED ? 4 : 1 }; // one case of so many

static const char *const NAMES[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",  "zb-h2",
                                    "zb-v",  "v-half", "v-min",       "hanayo", "auto"};

static void assert_at_most(double a, double b, const char *what) {
    if (!(a <= b))
        fail_msg("%s: %.17g is above %.17g", what, a, b);
}

static struct schedule_times times(double f, double b, double w, double latency) {
    return (struct schedule_times){.forward = f, .backward_input = b, .backward_weight = w, .latency = latency};
}

static struct schedule_cost cost_of(const struct schedule *s, struct schedule_times t) {
    struct schedule_cost cost, result;
    schedule_cost(s, &t, &cost);
    result = cost;
    schedule_cost_release(&cost);
    return (struct schedule_cost){.cost = result.cost, .bubble = result.bubble};
}

// What ranks hold at most, `share` of a (chunk, microbatch) counting between its two backward passes.
static double held(const struct schedule *s, double share) {
    double most = 0;
    for (int r = 0; r < s->stages; r++) {
        double now = 0;
        for (size_t i = 0; i < s->rank[r].count; i++) {
            static const double CHANGES[PASS_KINDS] = {1, -1, -1, 0};
            enum pass_kind kind = s->rank[r].item[i].kind;
            now += CHANGES[kind] + (kind == PASS_BACKWARD_INPUT ? share : kind == PASS_BACKWARD_WEIGHT ? -share : 0);
            most = MAX(most, now);
        }
    }
    return most;
}

// Passes of a chunk come in the order of microbatches, in each direction: so messages between two ranks match in order
// if both have the same order.
static void assert_in_order(const struct schedule *s) {
    for (int r = 0; r < s->stages; r++) {
        int next[16][PASS_KINDS] = {0};
        assert_true(s->chunks <= 16);
        for (size_t i = 0; i < s->rank[r].count; i++) {
            struct pass pass = s->rank[r].item[i];
            assert_int_equal(pass.microbatch, next[pass.chunk][pass.kind]++);
        }
    }
}

// The next pass of a rank from *at on that sends to, or takes from, another rank: activations, or gradients. Its
// message is told by the virtual stage that makes it.
static bool next_message(const struct schedule *s, int rank, int other, bool takes, bool gradient, size_t *at,
                         int *maker, int *microbatch) {
    for (; *at < s->rank[rank].count; ++*at) {
        const struct pass pass = s->rank[rank].item[*at];
        if (pass.kind == PASS_BACKWARD_WEIGHT || gradient != (pass.kind != PASS_FORWARD))
            continue;
        const int stage = s->virtual_stage[rank * s->chunks + pass.chunk];
        const int behind = stage + (gradient == takes ? 1 : -1);
        if (behind < 0 || behind >= s->stages * s->chunks || s->place[behind].rank != other)
            continue;
        *maker = takes ? behind : stage;
        *microbatch = pass.microbatch;
        ++*at;
        return true;
    }
    return false;
}

// Messages between two ranks are told apart by their order: all are taken in the order in which they are sent.
static void assert_messages_match(const struct schedule *s, const char *name) {
    for (int from = 0; from < s->stages; from++)
        for (int to = 0; to < s->stages; to++)
            for (int gradient = 0; gradient < 2 && from != to; gradient++) {
                size_t at[2] = {0};
                int maker[2] = {0}, microbatch[2] = {0};
                while (next_message(s, from, to, false, gradient, &at[0], &maker[0], &microbatch[0])) {
                    assert_true(next_message(s, to, from, true, gradient, &at[1], &maker[1], &microbatch[1]));
                    if (maker[0] != maker[1] || microbatch[0] != microbatch[1])
                        fail_msg(
                            "%s of %d ranks, %d chunks, %d microbatches: rank %d sends %d of virtual stage %d when "
                            "rank %d takes %d of %d",
                            name, s->stages, s->chunks, s->microbatches, from, microbatch[0], maker[0], to,
                            microbatch[1], maker[1]);
                }
            }
}

static void assert_prints_and_reads(const struct schedule *s) {
    struct text text = {0}, again = {0};
    schedule_print(s, &text);
    struct schedule back = parsed(text.text);
    schedule_print(&back, &again);
    assert_string_equal(text.text, again.text);
    assert_int_equal(back.chunks, s->chunks);
    schedule_release(&back);
    text_release(&text);
    text_release(&again);
}

// Microbatches of a whole rank that a schedule claims to hold at most.
static int claimed(const char *name, int p, int m, int v, int limit) {
    if (strcmp(name, "gpipe") == 0)
        return m;
    if (strcmp(name, "zb-h2") == 0)
        return 2 * p - 1;
    if (strcmp(name, "v-half") == 0)
        return (p + 2) / 2;
    if (strcmp(name, "v-min") == 0)
        return (p + 4) / 3;
    if (strcmp(name, "auto") == 0)
        return limit;
    if (strcmp(name, "interleaved") == 0) { // groups of up to 2p - 1
        int group = m < p ? m : m / (m / p) + (m % (m / p) > 0);
        return ((v - 1) * group + 2 * p - 1 + v - 1) / v;
    }
    return p;
}

static void assert_sound(const char *name, int p, int m, struct schedule_options o) {
    struct schedule s = created_with(name, p, m, o);
    trireme_error error = {0};
    assert_ok(schedule_verify(&s, &error), &error);
    assert_int_equal(s.stages, p);
    assert_int_equal(s.microbatches, m);
    assert_in_order(&s);
    bool is_auto = strcmp(name, "auto") == 0;
    assert_messages_match(&s, name);
    int limit = claimed(name, p, m, s.chunks, o.activation_limit ? o.activation_limit : 2 * p);
    double share = !is_auto ? 1 : o.weight_share > 0 ? o.weight_share : .5;
    if (held(&s, share) > limit * s.chunks + 1e-9)
        fail_msg("%s of %d ranks, %d microbatches holds %g of %d chunks, more than %d microbatches", name, p, m,
                 held(&s, share), s.chunks, limit);
    struct schedule_cost cost = cost_of(&s, times(1, 1, 1, 0));
    assert_at_most(3. * m * s.chunks, cost.cost + 1e-9, name);
    schedule_release(&s);
}

// The C standard leaves open in which order qsort puts equal elements: this one uses one order or its reverse.
static bool reverses_equals;

static int compare_items(const void *a, const void *b, void *compare) {
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    const int order = (*(int (**)(const void *, const void *))compare)(x, y);
    return order ? order : reverses_equals ? COMPARE(y, x) : COMPARE(x, y);
}

void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *)) {
    char *items = mem_alloc(count * size), **at = mem_alloc(count * sizeof *at);
    memcpy(items, base, count * size);
    for (size_t i = 0; i < count; i++)
        at[i] = items + i * size;
    qsort_r(at, count, sizeof *at, compare_items, &compare);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)base + i * size, at[i], size);
    free(items);
    free(at);
}

// ---- what holds of all

static void all_sizes_are_sound(void **state) {
    (void)state;
    static const int STAGES[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17, 24, 31, 32, 48, 63, 64};
    for (size_t i = 0; i < ARRAY_LENGTH(STAGES); i++)
        for (size_t n = 0; n < ARRAY_LENGTH(NAMES); n++) {
            int p = STAGES[i];
            const int microbatches[] = {1, 2, 3, p - 1, p, p + 1, 2 * p - 1, 3 * p + 2};
            for (size_t k = 0; k < ARRAY_LENGTH(microbatches); k++)
                if (microbatches[k] > 0 && (p <= 5 || k % 8 == (n + i) % 8))
                    assert_sound(NAMES[n], p, microbatches[k], (struct schedule_options){.search_passes = 1000});
        }
}

static void random_settings_are_sound(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 300; k += SELDOM) {
        const char *name = NAMES[k % ARRAY_LENGTH(NAMES)];
        int p = 1 + (int)(rng_uniform(k, 3, 0) * 10), m = 1 + (int)(rng_uniform(k, 3, 1) * 30);
        struct schedule_options o = {
            .search_passes = 50000,
            .times = times(rng_uniform(k, 3, 2), rng_uniform(k, 3, 3), rng_uniform(k, 3, 4), rng_uniform(k, 3, 5) / 2),
        };
        if (k % 7 == 0) // a time may be nothing
            *(double *[]){&o.times.forward, &o.times.backward_input, &o.times.backward_weight}[k / 7 % 3] = 0;
        if (strcmp(name, "interleaved") == 0)
            o.chunks = 1 + (int)(rng_uniform(k, 3, 6) * 5);
        if (strcmp(name, "hanayo") == 0)
            o.waves = 1 + (int)(rng_uniform(k, 3, 6) * 3);
        if (strcmp(name, "auto") == 0) {
            o.activation_limit = 1 + (int)(rng_uniform(k, 3, 6) * 3 * p);
            o.weight_share = 1 - rng_uniform(k, 3, 7);
            o.chunks = 1 + (int)(rng_uniform(k, 3, 8) * 4);
        }
        assert_sound(name, p, m, o);
    }
}

static void all_print_and_are_the_same_again(void **state) {
    (void)state;
    for (size_t n = 0; n < ARRAY_LENGTH(NAMES); n++) {
        struct schedule_options o = {.times = times(.7, .9, .4, .02), .search_passes = 100000};
        struct schedule s = created_with(NAMES[n], 4, 7, o), again = created_with(NAMES[n], 4, 7, o);
        assert_prints_and_reads(&s);
        struct text text = {0}, other = {0};
        schedule_print(&s, &text);
        schedule_print(&again, &other);
        assert_string_equal(text.text, other.text);
        text_release(&text);
        text_release(&other);
        schedule_release(&again);
        // Times in any unit are the same times.
        o.times = times(700, 900, 400, 20);
        again = created_with(NAMES[n], 4, 7, o);
        assert_true(fabs(cost_of(&s, o.times).cost - cost_of(&again, o.times).cost) < 1e-6);
        schedule_release(&again);
        schedule_release(&s);
    }
}

// Each rank makes the schedule by itself: all must get the same.
static void all_are_the_same_with_another_library(void **state) {
    (void)state;
    for (size_t n = 0; n < ARRAY_LENGTH(NAMES); n++) {
        const struct schedule_options o = {.times = times(1, 1, 1, .1), .search_passes = 100000};
        struct text text[2] = {0};
        for (int k = 0; k < 2; k++) {
            reverses_equals = k;
            struct schedule s = created_with(NAMES[n], 6, 8, o);
            schedule_print(&s, &text[k]);
            schedule_release(&s);
        }
        reverses_equals = false;
        if (strcmp(text[0].text, text[1].text) != 0)
            fail_msg("%s is %s, else %s", NAMES[n], text[0].text, text[1].text);
        text_release(&text[0]);
        text_release(&text[1]);
    }
}

// With whole backwards, where a chunk takes 1 / chunks of a rank's time.
static void none_is_worse_than_1f1b_where_it_claims_to_be_better(void **state) {
    (void)state;
    for (int p = 1; p <= 8; p += SELDOM)
        for (int m = 1; m <= 3 * p + 1; m += 1 + m / 5)
            for (int k = 0; k < 3; k++) {
                struct schedule_times t = k == 0   ? times(1, 1, 1, 0)
                                          : k == 1 ? times(1, 1.2, .8, 0)
                                                   : times(1, .9, .5, .05);
                struct schedule_options whole = {.search_passes = 100000, .times = t}, half = whole;
                half.times = times(t.forward / 2, t.backward_input / 2, t.backward_weight / 2, t.latency);
                struct schedule s = created("1f1b", p, m);
                double least = cost_of(&s, t).cost + 1e-9;
                schedule_release(&s);
                static const char *const one[] = {"zb-h1", "zb-h2", "auto"};
                for (size_t i = 0; i < ARRAY_LENGTH(one); i++) {
                    s = created_with(one[i], p, m, whole);
                    assert_at_most(cost_of(&s, t).cost, least, one[i]);
                    schedule_release(&s);
                }
                static const char *const two[] = {"interleaved", "zb-v"};
                for (size_t i = 0; i < ARRAY_LENGTH(two) && t.latency == 0; i++) {
                    s = created_with(two[i], p, m, half);
                    assert_at_most(cost_of(&s, half.times).cost, least, two[i]);
                    schedule_release(&s);
                }
            }
}

// ---- closed forms

static void interleaved_costs_its_closed_form(void **state) {
    (void)state;
    for (int p = 1; p <= 9; p++)
        for (int m = 1; m <= 4 * p; m++)
            for (int v = 1; v <= 4; v++) {
                struct schedule s = interleaved(p, m, v);
                // Where there are fewer than p, the first goes through all virtual stages before any comes back.
                double passes = m < p ? v * p + m - 1 : v * m + p - 1;
                assert_true(fabs(cost_of(&s, times(1, 1.5, .5, 0)).cost - 3 * passes) < 1e-9 * passes);
                schedule_release(&s);
            }
}

static void few_microbatches_cost_the_closed_form(void **state) {
    (void)state;
    for (int p = 1; p <= 7; p++)
        for (int m = 1; m <= p; m++) {
            struct schedule_times t = times(1, 1.1, .9, 0);
            static const char *const names[] = {"zb-h1", "zb-h2", "auto"};
            for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
                struct schedule s = created_with(names[i], p, m, (struct schedule_options){.times = t});
                assert_true(fabs(cost_of(&s, t).cost - ((m + p - 1) * 2.1 + .9)) < 1e-9);
                schedule_release(&s);
            }
        }
}

// "Zero Bubble Pipeline Parallelism", section 6; "Pipeline Parallelism with Controllable Memory", table 1: the bubble
// of V-Half is about half of 1F1B's, that of V-Min two thirds and a little.
static void v_schedules_are_as_published_where_passes_are_even(void **state) {
    (void)state;
    for (int p = 2; p <= 12; p += SELDOM + p / 8)
        for (int times_p = 2; times_p <= 3; times_p++) {
            int m = times_p * p;
            struct schedule_options o = {.search_passes = 400000};
            struct schedule s = created_with("zb-v", p, m, o);
            assert_true(fabs(cost_of(&s, times(1, 1, 1, 0)).bubble) < 1e-12);
            assert_true(held(&s, 1) <= 2 * p);
            schedule_release(&s);
            double plain = (p - 1.) / (m + p - 1);
            s = created_with("v-half", p, m, o);
            assert_at_most(cost_of(&s, times(1, 1, 1, 0)).bubble, .6 * plain, "v-half");
            assert_true(held(&s, 1) <= 2 * ((p + 2) / 2));
            schedule_release(&s);
            s = created_with("v-min", p, m, o);
            assert_at_most(cost_of(&s, times(1, 1, 1, 0)).bubble, .8 * plain, "v-min");
            assert_true(held(&s, 1) <= 2 * ((p + 4) / 3));
            schedule_release(&s);
        }
    struct schedule s = created("zb-v", 5, 9); // 2p - 1
    assert_true(fabs(cost_of(&s, times(1, 1, 1, 0)).bubble) < 1e-12);
    schedule_release(&s);
}

static double seconds_to_make(int stages, int microbatches) {
    struct schedule_options o = {.chunks = 4, .search_passes = 1};
    double least = INFINITY;
    for (int i = 0; i < 3; i++) {
        clock_t begin = clock();
        struct schedule s = created_with("hanayo", stages, microbatches, o);
        least = MIN(least, (double)(clock() - begin) / CLOCKS_PER_SEC);
        schedule_release(&s);
    }
    return least;
}

// Orders of messages count of the passes that may be tried: with none left, twice as many microbatches, whose lists are
// not one order, take about four times as long.
static void orders_of_messages_are_counted(void **state) {
    (void)state;
    assert_true(seconds_to_make(64, 128) < 9 * seconds_to_make(64, 64));
}

// With several waves lists that a search finds are not one order of messages, and making them one may lose much: no
// more than longer messages would cost.
static void hanayo_loses_little_by_one_order(void **state) {
    (void)state;
    static const struct {
        int p, m;
        struct schedule_times times;
    } cases[] = {{5, 6, {.forward = 1.233, .backward_input = 2.127, .backward_weight = 2.355}},
                 {6, 7, {.forward = 1.2, .backward_input = 1.3, .backward_weight = 2.3}}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule_options o = {.waves = 2, .search_passes = 2000000, .times = cases[i].times};
        struct schedule s = created_with("hanayo", cases[i].p, cases[i].m, o);
        const double short_ones = cost_of(&s, o.times).cost;
        schedule_release(&s);
        o.times.latency = .05;
        s = created_with("hanayo", cases[i].p, cases[i].m, o);
        assert_at_most(short_ones, cost_of(&s, o.times).cost, "hanayo");
        schedule_release(&s);
    }
}

// About (2p - 2) / (3pw + p - 1) where backward takes twice as long as forward.
static void hanayo_is_about_as_published(void **state) {
    (void)state;
    static const struct {
        int p, waves;
        double most;
    } cases[] = {{4, 1, .3334}, {8, 2, .2382}, {8, 1, .42}, {4, 2, .25}, {2, 1, .26}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int p = cases[i].p, waves = cases[i].waves;
        struct schedule_options o = {.waves = waves, .search_passes = 1000000};
        struct schedule s = created_with("hanayo", p, p, o);
        double bubble = cost_of(&s, times(1, 1, 1, 0)).bubble;
        assert_at_most(bubble, cases[i].most, "hanayo");
        assert_at_most(.75 * (2 * p - 2) / (3 * p * waves + p - 1), bubble, "hanayo");
        schedule_release(&s);
    }
}

// ---- published figures

// Qi et al., "Zero Bubble Pipeline Parallelism", tables 5 and 6: ZB-2p at most, the limit in their accounts: a
// microbatch whose backward for the input is done counts for less (for their models .37 and .43).
static const struct {
    int m;
    struct schedule_times times;
    double interleaved;
    int chunks;
    double zb_2p;
} PUBLISHED[] = {
    {24, {18.522, 18.086, 9.337, .601, 0, 0, 0, 0, 0}, .1055, 3, .0433},
    {32, {18.513, 18.086, 9.331, .626, 0, 0, 0, 0, 0}, .0818, 3, .0039},
    {64, {18.546, 18.097, 9.321, .762, 0, 0, 0, 0, 0}, .0443, 3, .0026},
    {24, {29.718, 29.444, 19.927, .527, 0, 0, 0, 0, 0}, .0808, 4, .0029},
};

static void auto_reaches_what_is_published(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(PUBLISHED); i += SELDOM) {
        int p = 8, m = PUBLISHED[i].m;
        struct schedule_times t = PUBLISHED[i].times;
        struct schedule_options o = {.activation_limit = 2 * p, .times = t};
        struct schedule s = created_with("auto", p, m, o);
        assert_at_most(cost_of(&s, t).bubble, PUBLISHED[i].zb_2p + .00005, "auto");
        assert_true(held(&s, .5) <= 2 * p && held(&s, 0) <= 2 * p);
        schedule_release(&s);
        // Within p, H1 is reached (ZB-1p of the same tables).
        s = created("zb-h1", p, m);
        double h1 = cost_of(&s, t).bubble;
        schedule_release(&s);
        o.activation_limit = p;
        o.search_passes = 1000000;
        s = created_with("auto", p, m, o);
        assert_at_most(cost_of(&s, t).bubble, h1 + 1e-9, "auto within p");
        schedule_release(&s);
        // With what is held until the weights' pass in full, the last rank can leave 2p weights' passes to the end.
        o.activation_limit = 2 * p;
        o.weight_share = 1;
        s = created_with("auto", p, m, o);
        double way = (p - 1) * (t.forward + t.backward_input + 2 * t.latency) - (2 * p - 1) * t.backward_weight;
        double work = m * (t.forward + t.backward_input + t.backward_weight);
        assert_true(fabs(cost_of(&s, t).cost / (work + way) - 1) < 1e-6);
        assert_true(held(&s, 1) <= 2 * p);
        schedule_release(&s);
    }
}

// A chunk takes 1 / chunks of the time. The paper does not say fully how this schedule was measured.
static void interleaved_is_near_what_is_published(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(PUBLISHED); i++) {
        int v = PUBLISHED[i].chunks;
        struct schedule_times t = PUBLISHED[i].times;
        struct schedule s = interleaved(8, PUBLISHED[i].m, v);
        double bubble =
            cost_of(&s, times(t.forward / v, t.backward_input / v, t.backward_weight / v, t.latency)).bubble;
        assert_true(fabs(bubble - PUBLISHED[i].interleaved) < .004);
        schedule_release(&s);
    }
}

// Within what each of them holds. Some of these times ask for an order that no filling of a plan gives.
static void auto_is_no_worse_than_what_is_published(void **state) {
    (void)state;
    static const struct {
        int p, m;
        struct schedule_times times;
    } cases[] = {{3, 12, {.forward = 2, .backward_input = 1, .backward_weight = 1}},
                 {12, 24, {.forward = 18.41, .backward_weight = 4.48}},
                 {12, 22, {.forward = 12.81, .backward_weight = 5.92}},
                 {4, 12, {.forward = 17.88, .backward_input = 9.66, .backward_weight = 38.08, .latency = .74}},
                 {3, 12, {.forward = 11.31, .backward_input = 7.82}},
                 {5, 3, {.forward = 9.04, .backward_input = 6.12, .latency = .52}}};
    static const char *const names[] = {"1f1b", "zb-h1", "zb-h2"};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        for (size_t k = 0; k < ARRAY_LENGTH(names); k++) {
            struct schedule s = created_with(names[k], cases[i].p, cases[i].m, (struct schedule_options){0});
            double cost = cost_of(&s, cases[i].times).cost;
            struct schedule_options o = {
                .times = cases[i].times, .search_passes = 100000, .activation_limit = (int)held(&s, 1)};
            schedule_release(&s);
            s = created_with("auto", cases[i].p, cases[i].m, o);
            assert_at_most(cost_of(&s, cases[i].times).cost, cost * (1 + 1e-9), names[k]);
            assert_true(held(&s, .5) <= o.activation_limit);
            schedule_release(&s);
        }
}

// Within what each of them holds, and no worse with more room.
static void auto_of_several_chunks_is_no_worse_than_what_is_published(void **state) {
    (void)state;
    static const char *const names[] = {"v-min", "v-half", "zb-v", "interleaved"};
    for (int k = 0; k < 8; k++) {
        int p = 2 + k % 4 * 2, m = k < 4 ? 3 * p : p + 1;
        struct schedule_times t = k % 2 ? times(1, 1.1, .7, .05) : times(1, 1, 1, 0);
        double least = INFINITY;
        for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
            struct schedule_options o = {.times = t, .search_passes = 200000};
            struct schedule s = created_with(names[i], p, m, o);
            double cost = cost_of(&s, t).cost;
            o.activation_limit = (int)ceil(held(&s, 1) / 2);
            o.chunks = 2;
            schedule_release(&s);
            s = created_with("auto", p, m, o);
            assert_at_most(cost_of(&s, t).cost, MIN(cost, least) + 1e-9, names[i]);
            assert_true(held(&s, .5) <= 2 * o.activation_limit);
            least = cost_of(&s, t).cost;
            schedule_release(&s);
        }
        for (int v = 3; v <= 4; v++) {
            struct schedule_options o = {.times = t, .search_passes = 100000, .chunks = v};
            struct schedule s = interleaved(p, m, v);
            double cost = cost_of(&s, t).cost;
            o.activation_limit = (int)ceil(held(&s, 1) / v);
            schedule_release(&s);
            s = created_with("auto", p, m, o);
            assert_at_most(cost_of(&s, t).cost, cost + 1e-9, "interleaved");
            schedule_release(&s);
        }
    }
}

static void more_room_costs_no_more(void **state) {
    (void)state;
    struct schedule_times t = PUBLISHED[0].times;
    double least = INFINITY;
    for (int limit = 4; limit <= 24; limit += 4) {
        struct schedule_options o = {.times = t, .search_passes = 400000, .activation_limit = limit};
        struct schedule s = created_with("auto", 8, 24, o);
        assert_at_most(cost_of(&s, t).cost, least + 1e-9, "auto");
        least = cost_of(&s, t).cost;
        schedule_release(&s);
    }
}

static void a_limit_that_suffices_is_kept_in_full(void **state) {
    (void)state;
    struct schedule s = created("auto", 8, 24); // H2 shows that it can be
    assert_true(fabs(cost_of(&s, times(1, 1, 1, 0)).bubble) < 1e-9);
    assert_true(held(&s, 1) <= 16);
    schedule_release(&s);
    s = created_with("auto", 4, 9, (struct schedule_options){.activation_limit = 1});
    assert_int_equal(held(&s, 0), 1);
    schedule_release(&s);
}

static void large_pipelines_are_searched(void **state) {
    (void)state;
    struct schedule_times t = times(10.402, 10.248, 7.698, .460);
    struct schedule s = created_with("auto", 32, 256, (struct schedule_options){.times = t, .search_passes = 2000000});
    assert_at_most(cost_of(&s, t).bubble, .004, "auto");
    assert_true(held(&s, .5) <= 64);
    schedule_release(&s);
}

// Trials are counted: for a plan that is looked at, two ways to fill it.
static void a_way_is_tried_once(void **state) {
    (void)state;
    enum { STAGES = 4, MICROBATCHES = 8, TRIED = 1000 };
    const struct schedule_options o = {.times = times(1, 1, 1, 0), .weight_share = 1, .search_passes = TRIED};
    struct schedule like, plan;
    struct schedule_search search;
    schedule_begin(&like, STAGES, MICROBATCHES, 1, NULL);
    schedule_begin(&plan, STAGES, MICROBATCHES, 1, NULL);
    for (int r = 0; r < STAGES; r++) {
        for (int m = 0; m < MICROBATCHES; m++)
            schedule_add(&plan, r, PASS_FORWARD, 0, m);
        for (int m = 0; m < MICROBATCHES; m++)
            schedule_add(&plan, r, PASS_BACKWARD_INPUT, 0, m);
    }
    search_begin(&search, &like, &o, MICROBATCHES);
    search_plans(&search, &plan, 1, 0);
    assert_true(search.passes_left == TRIED - 2 * 3 * STAGES * MICROBATCHES);
    assert_true(search_end(&search, &like));
    schedule_release(&like);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_are_sound),
        cmocka_unit_test(random_settings_are_sound),
        cmocka_unit_test(all_print_and_are_the_same_again),
        cmocka_unit_test(all_are_the_same_with_another_library),
        cmocka_unit_test(none_is_worse_than_1f1b_where_it_claims_to_be_better),
        cmocka_unit_test(interleaved_costs_its_closed_form),
        cmocka_unit_test(few_microbatches_cost_the_closed_form),
        cmocka_unit_test(v_schedules_are_as_published_where_passes_are_even),
        cmocka_unit_test(hanayo_loses_little_by_one_order),
        cmocka_unit_test(hanayo_is_about_as_published),
        cmocka_unit_test(orders_of_messages_are_counted),
        cmocka_unit_test(auto_reaches_what_is_published),
        cmocka_unit_test(interleaved_is_near_what_is_published),
        cmocka_unit_test(auto_is_no_worse_than_what_is_published),
        cmocka_unit_test(auto_of_several_chunks_is_no_worse_than_what_is_published),
        cmocka_unit_test(more_room_costs_no_more),
        cmocka_unit_test(a_limit_that_suffices_is_kept_in_full),
        cmocka_unit_test(large_pipelines_are_searched),
        cmocka_unit_test(a_way_is_tried_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
