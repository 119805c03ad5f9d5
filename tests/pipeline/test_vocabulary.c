// Schedules whose vocabulary is spread over the ranks: what they must keep, and what they cost.
#include "base/text.h"
#include "pipeline/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static trireme_error error;

static struct schedule created(const char *name, int stages, int microbatches, struct schedule_times times) {
    struct schedule s;
    struct schedule_options o = {.times = times, .search_passes = 1000};
    assert_int_equal(schedule_create(&s, name, stages, microbatches, &o, &error), TRIREME_OK);
    return s;
}

static struct schedule spread(const struct schedule *plain, struct schedule_times times) {
    struct schedule s = schedule_copy(plain);
    schedule_spread_vocabulary(&s, &times);
    if (schedule_verify(&s, &error) != TRIREME_OK)
        fail_msg("%d stages, %d chunks, %d microbatches: %s", s.stages, s.chunks, s.microbatches, error.message);
    return s;
}

// The time of the rank that is busy or waits the longest.
static double idle_of(const struct schedule *s, struct schedule_times times) {
    struct schedule_cost cost;
    schedule_cost(s, &times, &cost);
    double idle = cost.bubble * cost.cost;
    schedule_cost_release(&cost);
    return idle;
}

static struct schedule_times times_with(double vocabulary) {
    return (struct schedule_times){.forward = 1,
                                   .backward_input = 1,
                                   .backward_weight = 1,
                                   .latency = .05,
                                   .embed = .02,
                                   .loss = 2 * vocabulary,
                                   .loss_weight = vocabulary,
                                   .embed_weight = .02};
}

// With any schedule and any numbers, sums are in the order of microbatches, and at most two more microbatches are held.
static void spreads_any_schedule(void **state) {
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",  "zb-h2",
                                        "zb-v",  "v-half", "v-min",       "hanayo", "auto"};
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 11; m += 5) {
                struct schedule_times times = times_with(.1 * p);
                struct schedule plain = created(names[n], p, m, times), s = spread(&plain, times);
                for (int r = 0; r < p; r++) {
                    int next[PASS_KINDS][8] = {0};
                    for (size_t i = 0; i < s.rank[r].count; i++) {
                        struct pass pass = s.rank[r].item[i];
                        enum pass_kind kind = pass.kind == PASS_BACKWARD_INPUT ? PASS_BACKWARD : pass.kind;
                        assert_int_equal(pass.microbatch, next[kind][pass.chunk]++);
                    }
                    assert_true(schedule_in_flight(&s, r, NULL) <= schedule_in_flight(&plain, r, NULL) + 2 * s.chunks);
                }
                schedule_release(&plain);
                schedule_release(&s);
            }
}

// A file may have the microbatches in any order: what they are called changes nothing.
static void spreads_microbatches_in_any_order(void **state) {
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h2", "zb-v", "hanayo"};
    const struct schedule_times times = times_with(.2);
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++)
        for (int p = 1; p <= 4; p++) {
            enum { MICROBATCHES = 7 };
            struct schedule plain = created(names[n], p, MICROBATCHES, times), renamed = schedule_copy(&plain);
            for (int r = 0; r < p; r++)
                for (size_t i = 0; i < renamed.rank[r].count; i++)
                    renamed.rank[r].item[i].microbatch = (3 * renamed.rank[r].item[i].microbatch + 5) % MICROBATCHES;
            struct schedule a = spread(&plain, times), b = spread(&renamed, times);
            for (int r = 0; r < p; r++) {
                assert_int_equal(a.rank[r].count, b.rank[r].count);
                for (size_t i = 0; i < a.rank[r].count; i++) {
                    struct pass x = a.rank[r].item[i], y = b.rank[r].item[i];
                    assert_int_equal((3 * x.microbatch + 5) % MICROBATCHES, y.microbatch);
                    assert_true(x.kind == y.kind && x.chunk == y.chunk);
                }
            }
            assert_true(!a.on_way == !b.on_way);
            if (a.on_way)
                assert_memory_equal(a.on_way, b.on_way, (size_t)(p * a.chunks) * sizeof *a.on_way);
            schedule_release(&plain);
            schedule_release(&renamed);
            schedule_release(&a);
            schedule_release(&b);
        }
}

// Passes that take no time still come after what they need.
static void spreads_passes_of_no_time(void **state) {
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "v-min", "hanayo", "interleaved"};
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++)
        for (int zero = 0; zero < 16; zero++)
            for (int p = 1; p <= 4; p++) {
                struct schedule_times times = {.forward = !(zero & 1),
                                               .backward_input = !(zero & 2),
                                               .backward_weight = !(zero & 4),
                                               .loss = zero & 8 ? 0 : .1};
                struct schedule plain = created(names[n], p, 3, times), s = spread(&plain, times);
                schedule_release(&plain);
                schedule_release(&s);
            }
}

// So they do beside a latency, or passes of a vocabulary, that take any number of times as long.
static void spreads_passes_of_hardly_any_time(void **state) {
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "zb-v", "hanayo", "interleaved", "auto"};
    static const struct schedule_times times[] = {
        {.forward = 1e-6, .backward_input = 1e-6, .backward_weight = 1e-6, .loss = 1e-6, .latency = 1e12},
        {.forward = 1e-6, .backward_weight = 1e-6, .latency = 1e12},
        {.forward = 1e-300, .backward_input = 1e-300, .backward_weight = 1e-300, .loss = 1e12},
    };
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++)
        for (size_t k = 0; k < ARRAY_LENGTH(times); k++)
            for (int p = 1; p <= 7; p += 3) {
                struct schedule plain = created(names[n], p, 8, times[k]), s = spread(&plain, times[k]);
                schedule_release(&plain);
                schedule_release(&s);
            }
}

// However much work the vocabulary is, ranks wait longer than without it by at most two microbatches' work in all, and
// hold one microbatch more.
static void costs_little(void **state) {
    (void)state;
    static const char *const names[] = {"1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "interleaved"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        for (int k = 1; k <= 4; k++) {
            struct schedule_times times = times_with(.15 * k);
            struct schedule plain = created(names[i], 8, 48, times), s = spread(&plain, times);
            double with = idle_of(&s, times), without = idle_of(&plain, times);
            double work = 3 * plain.chunks + 3 * .15 * k;
            if (with > without + 2 * work)
                fail_msg("%s, vocabulary %g: %.2f idle, without the vocabulary %.2f", names[i], .3 * k, with, without);
            for (int r = 0; r < s.stages; r++)
                assert_true(schedule_in_flight(&s, r, NULL) <= schedule_in_flight(&plain, r, NULL) + s.chunks);
            schedule_release(&plain);
            schedule_release(&s);
        }
}

// auto never holds more than its limit, whatever the vocabulary is.
static void keeps_the_limit(void **state) {
    (void)state;
    int limited = 0;
    for (int p = 2; p <= 8; p += 2)
        for (int limit = p / 2 + 1; limit <= 2 * p; limit += p / 2)
            for (int k = 0; k < 8; k++) {
                struct schedule_times times = times_with(.2 * (k + 1));
                times.latency = k & 1 ? .3 : 0;
                const struct schedule_options o = {.times = times,
                                                   .activation_limit = limit,
                                                   .chunks = k & 2 ? 2 : 1,
                                                   .weight_share = k & 4 ? .5 : 1,
                                                   .search_passes = 1000};
                struct schedule plain;
                if (schedule_create(&plain, "auto", p, 3 * p, &o, &error) != TRIREME_OK)
                    continue; // too little for so many stages
                struct schedule s = spread(&plain, times);
                limited++;
                for (int r = 0; r < p; r++)
                    if (schedule_activations(&s, r, o.weight_share) > limit)
                        fail_msg("p %d limit %d k %d rank %d: %g, plain %g, passes %zu", p, limit, k, r,
                                 schedule_activations(&s, r, o.weight_share),
                                 schedule_activations(&plain, r, o.weight_share), s.rank[r].count);
                schedule_release(&plain);
                schedule_release(&s);
            }
    assert_true(limited > 80);
}

// Of ten microbatches one or two are left for the way to the loss: the bubble is .067, else .094.
static void auto_leaves_room(void **state) {
    (void)state;
    const struct schedule_times times = times_with(.1);
    const struct schedule_options o = {.times = times, .activation_limit = 10, .search_passes = 1000000};
    struct schedule plain;
    struct schedule_cost cost;
    assert_int_equal(schedule_create(&plain, "auto", 8, 32, &o, &error), TRIREME_OK);
    struct schedule s = spread(&plain, times);
    schedule_cost(&s, &times, &cost);
    assert_true(cost.bubble < .075);
    schedule_cost_release(&cost);
    schedule_release(&plain);
    schedule_release(&s);
}

// What is embedded ahead has a slot until its backward is done.
static void embeds_ahead(void **state) {
    (void)state;
    struct schedule s;
    const char *text = "E0 E1 E2 F0 L0 B0 T0 G0 F1 L1 B1 T1 G1 F2 L2 B2 T2 G2\n"
                       "E0 E1 E2 F0 L0 B0 T0 G0 F1 L1 B1 T1 G1 F2 L2 B2 T2 G2\n";
    int slot[3];
    assert_int_equal(schedule_parse(&s, text, strlen(text), &error), TRIREME_OK);
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_INPUTS, false, slot), 3);
    assert_true(slot[0] != slot[1] && slot[1] != slot[2] && slot[0] != slot[2]);
    assert_int_equal(schedule_slots(&s, 1, 0, SLOTS_FOR_INPUTS, false, slot), 2);
    schedule_release(&s);
}

// Messages have room in whatever order a text has its passes, also when the vocabulary is spread later.
static void messages_of_texts_are_counted(void **state) {
    (void)state;
    struct schedule plain;
    const char *text = "F0 F1 B0 B1\nF0 B0 F1 B1\n";
    assert_int_equal(schedule_parse(&plain, text, strlen(text), &error), TRIREME_OK);
    struct schedule s = spread(&plain, times_with(.1));
    assert_non_null(plain.on_way);
    assert_non_null(s.on_way);
    schedule_release(&plain);
    schedule_release(&s);
}

// It takes time in proportion to the text, however many virtual stages a rank has.
static void long_texts_are_read_soon(void **state) {
    (void)state;
    enum { CHUNKS = 100000 };
    struct text text = {0};
    text_add(&text, "placement");
    for (int i = 0; i < CHUNKS; i++)
        text_add(&text, " 0");
    text_add(&text, "\n");
    for (int i = 0; i < CHUNKS; i++)
        text_add(&text, "F0.%d ", i);
    for (int i = CHUNKS - 1; i >= 0; i--)
        text_add(&text, "B0.%d ", i);
    struct schedule s;
    const clock_t begin = clock();
    assert_int_equal(schedule_parse(&s, text.text, text.length, &error), TRIREME_OK);
    assert_true(clock() - begin < 10 * CLOCKS_PER_SEC);
    schedule_release(&s);
    text_release(&text);
}

static void texts_are_read_back(void **state) {
    (void)state;
    struct schedule plain = created("zb-v", 3, 5, times_with(.2)), again, s = spread(&plain, times_with(.2));
    struct text text = {0}, twice = {0};
    schedule_print(&s, &text);
    assert_int_equal(schedule_parse(&again, text.text, text.length, &error), TRIREME_OK);
    assert_true(again.vocabulary);
    schedule_print(&again, &twice);
    assert_string_equal(text.text, twice.text);
    schedule_release(&plain);
    schedule_release(&again);
    schedule_release(&s);
    text_release(&text);
    text_release(&twice);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"E0 F0 L0 B0 T0\nE0 F0 L0 B0 T0 G0\n", "rank 0 (line 1) has no G0 (microbatches: 1)"},
        {"E0 F0 L0 B0 T0 G0\nF0 L0 B0 T0 G0\n", "rank 1 (line 2) has no E0 (microbatches: 1)"},
        {"E0 F0 L0 B0 T0 G0\nE0 F0 T0 L0 B0 G0\n", "rank 1 (line 2): T0 comes before L0"},
        {"E0 F0 L0 B0 G0 T0\nE0 F0 L0 B0 T0 G0\n", "rank 0 (line 1): G0 comes before T0"},
        {"E0 F0 B0 L0 T0 G0\nE0 F0 L0 B0 T0 G0\n",
         "the schedule cannot finish: rank 0 (line 1) waits at B0 for B0 of rank 1; rank 1 (line 2) waits at B0 for L0 "
         "of rank 0"},
        {"F0 E0 L0 B0 T0 G0\nE0 F0 L0 B0 T0 G0\n",
         "the schedule cannot finish: rank 0 (line 1) waits at F0 for E0 of its own"},
        {"E0 F0 L0 B0 T0 G0 E1 F1 L1 B1 T1 G1\nE1 F0 L0 B0 T0 E0 G0 F1 L1 B1 T1 G1\n",
         "rank 1 (line 2) has E1 where rank 0 (line 1) has E0: ranks need the same order of what all do together"},
        {"E0 F0 E1 F1 L0 L1 B0 T0 B1 T1 G0 G1\nE0 F0 E1 F1 L0 L1 B0 T0 B1 T1 G1 G0\n",
         "rank 1 (line 2) has G1 where rank 0 (line 1) has G0: ranks need"},
        // A rank that is ahead of the others in what all do together, or ahead of the rank that sends for it.
        {"E0 E1 E2 F0 F1 F2 L0 L1 L2 B0 B1 B2 T0 T1 T2 G0 G1 G2\nE0 F0 E1 F1 E2 F2 L0 L1 L2 B0 B1 B2 T0 T1 T2 G0 G1 "
         "G2\n",
         "the schedule cannot finish: rank 0 (line 1) waits at E2 for E1 of rank 1; rank 1 (line 2) waits at F0 for F0 "
         "of rank 0"},
        {"E0 E1 F0 L0 F1 L1 B0 B1 T0 T1 G0 G1\nE0 E1 F0 F1 L0 L1 B0 B1 T0 T1 G0 G1\n",
         "the schedule cannot finish: rank 0 (line 1) waits at L0 for L0 of rank 1; rank 1 (line 2) waits at F1 for F1 "
         "of rank 0"},
        {"E0 E1 F0 F1 L0 L1 B0 T0 T1 B1 G0 G1\nE0 E1 F0 F1 L0 L1 B0 T0 T1 G0 B1 G1\n",
         "the schedule cannot finish: rank 0 (line 1) waits at B1 for B1 of rank 1; rank 1 (line 2) waits at G0 for G0 "
         "of rank 0"},
        {"E0 F0 L0.1 B0 T0 G0\nE0 F0 L0 B0 T0 G0\n", "expected a pass of no chunk, such as E0, L0, T0 or G0"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct schedule s;
        assert_int_equal(schedule_parse(&s, rows[i].text, strlen(rows[i].text), &error), TRIREME_ERROR_CORRUPT);
        if (!strstr(error.message, rows[i].message))
            fail_msg("row %zu: \"%s\", expected \"%s\"", i, error.message, rows[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spreads_any_schedule),
        cmocka_unit_test(spreads_microbatches_in_any_order),
        cmocka_unit_test(spreads_passes_of_no_time),
        cmocka_unit_test(spreads_passes_of_hardly_any_time),
        cmocka_unit_test(costs_little),
        cmocka_unit_test(keeps_the_limit),
        cmocka_unit_test(auto_leaves_room),
        cmocka_unit_test(embeds_ahead),
        cmocka_unit_test(messages_of_texts_are_counted),
        cmocka_unit_test(long_texts_are_read_soon),
        cmocka_unit_test(texts_are_read_back),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
