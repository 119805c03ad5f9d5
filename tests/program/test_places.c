// Layouts of sequences over ranks, by enumeration; and how even they make the work of ranks.
#include "program/places.h"
#include "support/test.h"

static const int64_t LAYOUT[] = {PLACES_CONTIGUOUS, PLACES_ZIGZAG, 1, 2, 3, 7}, WINDOW[] = {0, 1, 2, 5, 40};
enum { MOST_PARTS = 6, MOST_TOKENS = 40 };

static int64_t total(const struct places *p) {
    return p->parts * p->rows;
}

// Calls `check` for places of all layouts.
static void for_all_places(void (*check)(const struct places *p)) {
    for (size_t l = 0; l < ARRAY_LENGTH(LAYOUT); l++)
        for (int64_t parts = 1; parts <= MOST_PARTS; parts++)
            for (int64_t tokens = 1; tokens <= MOST_TOKENS; tokens += 3) {
                const struct places p = {LAYOUT[l], parts, places_rows(LAYOUT[l], parts, tokens)};
                assert_int_equal(p.rows % places_step(p.layout), 0);
                assert_true(total(&p) >= tokens && parts * (p.rows - places_step(p.layout)) < tokens);
                check(&p);
            }
}

static void check_places(const struct places *p) {
    bool *seen = mem_alloc((size_t)total(p));
    for (int64_t part = 0; part < p->parts; part++) {
        for (int64_t row = 0; row < p->rows; row++) {
            const int64_t place = place_of(p, part, row);
            assert_true(0 <= place && place < total(p) && !seen[place]);
            assert_true(row == 0 || place > place_of(p, part, row - 1));
            seen[place] = true;
        }
        for (int64_t place = -3; place <= total(p) + 3; place++) {
            int64_t below = 0;
            for (int64_t row = 0; row < p->rows; row++)
                below += place_of(p, part, row) < place;
            assert_int_equal(places_below(p, part, place), below);
        }
    }
    free(seen);
}

static void each_place_is_in_one_part(void **unused) {
    (void)unused;
    for_all_places(check_places);
}

static void layouts_are_as_published(void **unused) {
    (void)unused;
    static const struct {
        int64_t layout, place[2][6];
    } KNOWN[] = {{PLACES_CONTIGUOUS, {{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}},
                 {PLACES_ZIGZAG, {{0, 1, 2, 9, 10, 11}, {3, 4, 5, 6, 7, 8}}},
                 {1, {{0, 2, 4, 6, 8, 10}, {1, 3, 5, 7, 9, 11}}},
                 {3, {{0, 1, 2, 6, 7, 8}, {3, 4, 5, 9, 10, 11}}}};
    for (size_t k = 0; k < ARRAY_LENGTH(KNOWN); k++)
        for (int64_t part = 0; part < 2; part++)
            for (int64_t row = 0; row < 6; row++)
                assert_int_equal(place_of(&(struct places){KNOWN[k].layout, 2, 6}, part, row),
                                 KNOWN[k].place[part][row]);
}

static bool is_seen(int64_t query, int64_t key, int64_t window) {
    return key <= query && (window == 0 || query - key < window);
}

static int64_t count_pairs(const struct places *p, int64_t queries, int64_t keys, int64_t window) {
    int64_t pairs = 0;
    for (int64_t q = 0; q < p->rows; q++)
        for (int64_t k = 0; k < p->rows; k++)
            pairs += is_seen(place_of(p, queries, q), place_of(p, keys, k), window);
    return pairs;
}

static void check_pairs(const struct places *p) {
    for (size_t w = 0; w < ARRAY_LENGTH(WINDOW); w++) {
        int64_t reach = 0, all = 0;
        for (int64_t part = 0; part < p->parts; part++) {
            int64_t own = 0;
            for (int64_t distance = 0; distance < p->parts; distance++) {
                const int64_t keys = (part - distance + p->parts) % p->parts;
                const int64_t pairs = places_pairs(p, part, keys, WINDOW[w]);
                assert_int_equal(pairs, count_pairs(p, part, keys, WINDOW[w]));
                own += pairs;
                if (pairs > 0)
                    reach = MAX(reach, distance);
            }
            assert_int_equal(places_seen(p, part, WINDOW[w]), own);
            all += own;
        }
        assert_int_equal(places_reach(p, WINDOW[w]), reach);
        assert_true(WINDOW[w] > 0 || 2 * all == total(p) * (total(p) + 1));
    }
}

static void pairs_are_those_that_a_mask_allows(void **unused) {
    (void)unused;
    for_all_places(check_pairs);
}

// Of contiguous blocks the last has (2 P - 1) / P times the mean, for many rows; in zigzag all have the same, at each
// distance; stripes of one token differ by a query's own key.
static void rings_wrap_around_by_themselves(void **unused) {
    (void)unused;
    const struct places p = {PLACES_CONTIGUOUS, 6, 1};
    static const int64_t BEFORE[][6] = {{0, 5, 4, 3, 2, 1}, {4, 3, 2, 1, 0, 5}}; // of parts 0 and 4, in one ring
    static const int64_t THREES[][6] = {{0, 2, 1, 3, 5, 4}, {4, 3, 5, 1, 0, 2}}; // in two rings of 3
    static const int64_t TWOS[][6] = {{0, 1, 4, 5, 2, 3}, {4, 5, 2, 3, 0, 1}};   // in three of 2
    for (int own = 0; own < 2; own++)
        for (int distance = 0; distance < 6; distance++) {
            assert_int_equal(places_before(&p, 4 * own, distance, 0), BEFORE[own][distance]);
            assert_int_equal(places_before(&p, 4 * own, distance, 6), BEFORE[own][distance]);
            assert_int_equal(places_before(&p, 4 * own, distance, 3), THREES[own][distance]);
            assert_int_equal(places_before(&p, 4 * own, distance, 2), TWOS[own][distance]);
        }
}

static void zigzag_is_even(void **unused) {
    (void)unused;
    const int64_t rows = 8;
    for (int64_t parts = 2; parts <= MOST_PARTS; parts++) {
        const struct places contiguous = {PLACES_CONTIGUOUS, parts, rows}, zigzag = {PLACES_ZIGZAG, parts, rows},
                            striped = {1, parts, rows};
        const int64_t twice = parts * rows * (parts * rows + 1);
        for (int64_t part = 0; part < parts; part++) {
            assert_int_equal(2 * places_seen(&contiguous, part, 0), rows * ((2 * part + 1) * rows + 1));
            assert_int_equal(2 * parts * places_seen(&zigzag, part, 0), twice);
            assert_int_equal(2 * places_seen(&striped, part, 0), parts * rows * (rows - 1) + 2 * rows * (part + 1));
            for (int64_t keys = 0; keys < parts; keys++)
                if (keys != part)
                    assert_int_equal(2 * places_pairs(&zigzag, part, keys, 0), rows * rows);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_is_in_one_part), cmocka_unit_test(layouts_are_as_published),
        cmocka_unit_test(pairs_are_those_that_a_mask_allows), cmocka_unit_test(rings_wrap_around_by_themselves),
        cmocka_unit_test(zigzag_is_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
