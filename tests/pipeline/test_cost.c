// Pipeline schedules: activations held, slots, and costs against closed forms and published figures.
#include "base/rng.h"
#include "test_schedule.h"

#include <math.h>

// ---- help

static void assert_near(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.17g is not within %g of %.17g", a, tolerance, b);
}

static struct schedule_times times(double f, double b, double w, double latency) {
    return (struct schedule_times){.forward = f, .backward_input = b, .backward_weight = w, .latency = latency};
}

static double cost_of(const struct schedule *s, struct schedule_times t) {
    struct schedule_cost cost;
    schedule_cost(s, &t, &cost);
    double result = cost.cost;
    schedule_cost_release(&cost);
    return result;
}

static double bubble_of(const struct schedule *s, struct schedule_times t) {
    struct schedule_cost cost;
    schedule_cost(s, &t, &cost);
    double result = cost.bubble;
    schedule_cost_release(&cost);
    return result;
}

// ---- activations

// Until a microbatch is done with, it keeps its slot and nobody else takes it. `early`: inputs of a chunk that come
// from another rank must find a slot that nobody has when the forward before theirs begins.
static void assert_held(const struct schedule *s, int rank, int chunk, const int *slot, int slots, bool early) {
    const struct schedule_rank *list = &s->rank[rank];
    int *holder = mem_alloc((size_t)slots * sizeof *holder), held = 0;
    for (int k = 0; k < slots; k++)
        holder[k] = -1;
    for (size_t i = 0; i < list->count; i++) {
        struct pass p = list->item[i];
        if (p.chunk != chunk)
            continue;
        int *of = &holder[slot[p.microbatch]];
        if (p.kind == PASS_FORWARD) {
            assert_int_equal(*of, -1);
            *of = p.microbatch;
            held++;
            assert_true(!early || held < slots || slots == s->microbatches);
        }
        assert_int_equal(*of, p.microbatch);
        if (p.kind == PASS_BACKWARD || p.kind == PASS_BACKWARD_WEIGHT) {
            *of = -1;
            held--;
        }
    }
    free(holder);
}

static void assert_slots(const struct schedule *s, int rank, const int *of_chunk) {
    int *slot = mem_alloc((size_t)s->microbatches * sizeof *slot);
    for (int c = 0; c < s->chunks; c++) {
        int slots = schedule_slots(s, rank, c, SLOTS_FOR_ACTIVATIONS, false, slot);
        assert_int_equal(slots, of_chunk[c]);
        assert_held(s, rank, c, slot, slots, false);
        int v = s->virtual_stage[rank * s->chunks + c];
        bool own = v > 0 && s->place[v - 1].rank == rank;
        slots = schedule_slots(s, rank, c, SLOTS_FOR_INPUTS, false, slot);
        assert_in_range(slots, of_chunk[c], s->microbatches);
        assert_held(s, rank, c, slot, slots, !own);
    }
    free(slot);
}

static void activations_in_flight_are_the_closed_forms(void **state) {
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 14; m++) {
            struct schedule all[] = {created("gpipe", p, m), created("1f1b", p, m), created("zb-h1", p, m),
                                     created("zb-h2", p, m)};
            for (size_t k = 0; k < ARRAY_LENGTH(all); k++) {
                for (int i = 0; i < p; i++) {
                    int of_chunk, count = schedule_in_flight(&all[k], i, &of_chunk);
                    const int expected[] = {m, MIN(p - i, m), MIN(p, m), MIN(2 * p - 1, m)};
                    assert_int_equal(count, expected[k]);
                    assert_int_equal(of_chunk, count);
                    assert_slots(&all[k], i, &of_chunk);
                }
                schedule_release(&all[k]);
            }
        }
}

static void chunks_are_counted_apart_and_together(void **state) {
    (void)state;
    struct schedule s = parsed(V_TEXT);
    int of_chunk[2];
    assert_int_equal(schedule_in_flight(&s, 0, of_chunk), 3);
    assert_int_equal(of_chunk[0], 2);
    assert_int_equal(of_chunk[1], 1);
    assert_int_equal(schedule_in_flight(&s, 1, NULL), 4);
    assert_int_equal(schedule_in_flight(&s, 1, of_chunk), 4);
    assert_int_equal(of_chunk[0], 2);
    assert_int_equal(of_chunk[1], 2);
    schedule_release(&s);
    // Korthikanti et al.: 1 + (p - 1) / (pv) times the activations of 1F1B's first rank.
    for (int p = 2; p <= 4; p++)
        for (int v = 2; v <= 3; v++) {
            s = interleaved(p, 4 * p, v);
            assert_int_equal(schedule_in_flight(&s, 0, NULL), p * v + p - 1);
            for (int i = 0; i < p; i++) {
                int held[3];
                schedule_in_flight(&s, i, held);
                assert_slots(&s, i, held);
            }
            schedule_release(&s);
        }
}

static void slots_are_taken_in_order(void **state) {
    (void)state;
    struct schedule s = parsed("F0 F1 F2 B1 F3 I0 W0 F4 F5 B2 B3 B4 B5\n");
    static const int lowest[] = {0, 1, 2, 1, 0, 3}, longest_free[] = {0, 1, 2, 3, 1, 0},
                     gradients[] = {1, 0, 0, 1, 0, 1};
    int slot[ARRAY_LENGTH(lowest)];
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_ACTIVATIONS, false, slot), 4);
    assert_memory_equal(slot, lowest, sizeof lowest);
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_INPUTS, false, slot), 5);
    assert_memory_equal(slot, longest_free, sizeof longest_free);
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_ACTIVATIONS, true, slot), 1);
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_GRADIENTS, false, slot), 2);
    assert_memory_equal(slot, gradients, sizeof gradients);
    schedule_release(&s);
    s = parsed("F0 F1 F2 F3 I0 I1 W0 I2 W1 I3 W2 W3\n"); // two between I and W, and one may come
    static const int in_turn[] = {0, 1, 2, 0};
    assert_int_equal(schedule_slots(&s, 0, 0, SLOTS_FOR_GRADIENTS, false, slot), 3);
    assert_memory_equal(slot, in_turn, sizeof in_turn);
    assert_true(schedule_splits_backward(&s));
    schedule_release(&s);
    s = created("1f1b", 2, 3);
    assert_false(schedule_splits_backward(&s));
    schedule_release(&s);
}

// ---- cost

static void passes_start_when_they_can(void **state) {
    (void)state;
    struct schedule s = created("1f1b", 2, 2);
    struct schedule_times t = times(2, 3, 1, .5);
    struct schedule_cost cost;
    schedule_cost(&s, &t, &cost);
    static const struct schedule_span expected[2][4] = {
        {{0, 2}, {2, 4}, {9, 13}, {15, 19}},                 // F0 F1 B0 B1
        {{2.5, 4.5}, {4.5, 8.5}, {8.5, 10.5}, {10.5, 14.5}}, // F0 B0 F1 B1
    };
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 4; i++) {
            assert_near(cost.pass[r][i].start, expected[r][i].start, 0);
            assert_near(cost.pass[r][i].end, expected[r][i].end, 0);
        }
    assert_near(cost.rank[0].start, 0, 0);
    assert_near(cost.rank[0].end, 19, 0);
    assert_near(cost.rank[1].start, 2.5, 0);
    assert_near(cost.rank[1].end, 14.5, 0);
    assert_near(cost.cost, 19, 0);
    assert_near(cost.bubble, 1 - 12. / 19, 1e-15);
    schedule_cost_release(&cost);
    schedule_release(&s);

    // One microbatch through a folded pipeline: four changes of rank, none at the turn.
    s = parsed("placement 0 1 1 0\nF0.0 F0.1 B0.1 B0.0\nF0.0 F0.1 I0.1 I0.0 W0.0 W0.1\n");
    schedule_cost(&s, &t, &cost);
    assert_near(cost.cost, 4 * 2 + 2 * 4 + 2 * 3 + 4 * .5, 1e-12);
    assert_near(cost.rank[1].start, 2.5, 0);
    assert_near(cost.pass[1][5].end, 2.5 + 4 + .5 + 2 + 4 + .5 + 6 + 2, 1e-12);
    schedule_cost_release(&cost);
    schedule_release(&s);
}

static void costs_are_the_closed_forms(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 400; k++) {
        int p = 1 + (int)(rng_uniform(k, 2, 0) * 8), m = 1 + (int)(rng_uniform(k, 2, 1) * 30);
        // With W below 2C, ZB-H1 can no longer hide the way there and back behind W, and costs more than its closed
        // form.
        double f = 1 + rng_uniform(k, 2, 2), b = 1 + rng_uniform(k, 2, 3), w = .1 + .9 * rng_uniform(k, 2, 4);
        double c = rng_uniform(k, 2, 5) / 20, whole = f + b + w, tolerance = 1e-11 * (m + p);
        double free_of_latency = (m + p - 1) * whole;

        struct schedule s = created("gpipe", p, m);
        assert_near(cost_of(&s, times(f, b, w, 0)), free_of_latency, tolerance);
        assert_near(bubble_of(&s, times(f, b, w, 0)), (p - 1.) / (m + p - 1), 1e-12);
        schedule_release(&s);

        s = created("1f1b", p, m);
        assert_near(cost_of(&s, times(f, b, w, 0)), free_of_latency, tolerance);
        assert_near(bubble_of(&s, times(f, b, w, 0)), (p - 1.) / (m + p - 1), 1e-12);
        schedule_release(&s);

        m *= p;
        if (p > 1) {
            s = created("1f1b", p, m);
            assert_near(cost_of(&s, times(f, b, w, c)), (m + p - 1) * whole + (2. * (p - 1) * m / p + 2 * (p - 2)) * c,
                        tolerance * p);
            schedule_release(&s);
        }
        if (p > 1 && m > p && w <= f) {
            s = created("zb-h1", p, m);
            assert_near(cost_of(&s, times(f, b, w, c)), m * whole + (p - 1) * (f + b - w) + 4 * (p - 1) * c,
                        tolerance * p);
            schedule_release(&s);
        }
        if (p > 1 && m >= 2 * p - 1 && w <= MIN(f, b)) {
            s = created("zb-h2", p, m);
            assert_near(cost_of(&s, times(f, b, w, c)), m * whole + (p - 1) * (f + b - 2 * w) + 2 * (p - 1) * c,
                        tolerance * p);
            schedule_release(&s);
        }
        int v = 2 + (int)(rng_uniform(k, 2, 6) * 3);
        s = interleaved(p, m, v);
        assert_near(bubble_of(&s, times(f, b, w, 0)), (p - 1.) / ((double)v * m + p - 1), 1e-12);
        schedule_release(&s);
    }
}

// Messages of a link that carries one at a time follow one another: two ways of m messages, and what nothing hides.
static void links_carry_one_message_at_a_time(void **state) {
    (void)state;
    for (int m = 1; m < 9; m++) {
        struct schedule s = created("gpipe", 2, m);
        struct schedule_times slow = times(1, 1, 1, 5);
        const double fast = cost_of(&s, slow);
        slow.link = 5;
        // First and last pass of each rank, and between them the forwards' messages, then the backwards'.
        assert_near(cost_of(&s, slow), 1 + 5. * m + 1 + 2 + 5. * m + 2, 1e-12);
        assert_near(fast, (m + 1) * 3 + 2 * 5, 1e-12);
        schedule_release(&s);
    }
}

// Qi et al., "Zero Bubble Pipeline Parallelism", tables 5 and 6.
static void bubbles_are_the_published_ones(void **state) {
    (void)state;
    static const struct {
        int m;
        struct schedule_times times;
        double of_1f1b, of_h1, of_h2;
    } rows[] = {
        {24, {18.522, 18.086, 9.337, .601, 0, 0, 0, 0, 0}, .2431, .1585, .1083},
        {32, {18.513, 18.086, 9.331, .626, 0, 0, 0, 0, 0}, .1985, .1242, .0837},
        {64, {18.546, 18.097, 9.321, .762, 0, 0, 0, 0, 0}, .1240, .0674, .0444},
        {24, {29.718, 29.444, 19.927, .527, 0, 0, 0, 0, 0}, .2347, .1323, .0698},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct schedule s[] = {created("1f1b", 8, rows[i].m), created("zb-h1", 8, rows[i].m),
                               created("zb-h2", 8, rows[i].m)};
        const double expected[] = {rows[i].of_1f1b, rows[i].of_h1, rows[i].of_h2};
        for (size_t k = 0; k < ARRAY_LENGTH(s); k++) {
            assert_near(bubble_of(&s[k], rows[i].times), expected[k], .5001e-4);
            schedule_release(&s[k]);
        }
    }
}

// The cheapest of all orders within the limit, tried one by one. What a rank holds counts whole, except in the last
// row.
static void auto_costs_the_least_where_orders_are_few(void **state) {
    (void)state;
    static const struct {
        int p, m, limit;
        struct schedule_times times;
        double least, weight_share;
    } cases[] = {{4, 4, 2, {2, 3, 11, 1, 0, 0, 0, 0, 0}, 90, 1},    {4, 6, 3, {16, 7, 2, 0, 0, 0, 0, 0, 0}, 238, 1},
                 {4, 5, 5, {19, 5, 15, 0, 0, 0, 0, 0, 0}, 207, 1},  {4, 6, 3, {18, 2, 11, 1, 0, 0, 0, 0, 0}, 256, 1},
                 {3, 5, 4, {12, 11, 12, 0, 0, 0, 0, 0, 0}, 186, 1}, {4, 4, 3, {9, 10, 10, 0, 0, 0, 0, 0, 0}, 172, 1},
                 {4, 5, 3, {18, 3, 13, 0, 0, 0, 0, 0, 0}, 223, .5}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule s =
            created_with("auto", cases[i].p, cases[i].m,
                         (struct schedule_options){.times = cases[i].times, .activation_limit = cases[i].limit});
        trireme_error error = {0};
        assert_ok(schedule_verify(&s, &error), &error);
        assert_near(cost_of(&s, cases[i].times), cases[i].least, 1e-9);
        for (int r = 0; r < s.stages; r++)
            assert_true(schedule_activations(&s, r, cases[i].weight_share) <= cases[i].limit);
        schedule_release(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_in_flight_are_the_closed_forms),
        cmocka_unit_test(chunks_are_counted_apart_and_together),
        cmocka_unit_test(slots_are_taken_in_order),
        cmocka_unit_test(passes_start_when_they_can),
        cmocka_unit_test(costs_are_the_closed_forms),
        cmocka_unit_test(links_carry_one_message_at_a_time),
        cmocka_unit_test(bubbles_are_the_published_ones),
        cmocka_unit_test(auto_costs_the_least_where_orders_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
