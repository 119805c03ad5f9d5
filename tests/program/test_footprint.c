// The record of which parts of a buffer are written, compared with a mark for each element.
#include "base/rng.h"
#include "program/footprint.h"
#include "support/test.h"

#include <time.h>

enum { ELEMENTS = 60, STRIDE = 6 };

struct marks {
    bool written[ELEMENTS], unread[ELEMENTS];
};

static struct footprint range(int64_t begin, int64_t end) {
    return (struct footprint){0, 0, 1, begin, end};
}

static struct footprint random_range(uint64_t number) {
    int64_t a = (int64_t)(rng_uniform(1, 1, number) * ELEMENTS), b = (int64_t)(rng_uniform(1, 2, number) * ELEMENTS);
    return range(MIN(a, b), MAX(a, b) + 1);
}

static void check(const struct written *w, const struct marks *m, struct footprint where) {
    bool covered = true, unread = false;
    for (int64_t i = where.begin; i < where.end; i++) {
        covered &= m->written[i];
        unread |= m->unread[i];
    }
    assert_int_equal(written_covers(w, &where), covered);
    if (written_unread(w, &where))
        assert_true(unread);
}

static void test_ranges(void **state) {
    (void)state;
    uint64_t number = 0;
    for (int round = 0; round < 300; round++) {
        struct written w = {0};
        struct marks m = {0};
        for (int i = 0; i < 40; i++) {
            struct footprint where = random_range(number++);
            bool reads = number % 3 == 0;
            if (reads)
                written_mark_read(&w, &where);
            else
                written_add(&w, where);
            for (int64_t k = where.begin; k < where.end; k++) {
                m.unread[k] = !reads;
                m.written[k] |= !reads;
            }
            if (!reads)
                assert_true(written_unread(&w, &where));
            if (reads)
                assert_false(written_unread(&w, &where));
            for (int64_t k = 0; k < ELEMENTS; k++)
                check(&w, &m, range(k, k + 1));
            check(&w, &m, random_range(number++));
        }
        written_clear(&w);
        struct footprint all = range(0, ELEMENTS);
        assert_false(written_unread(&w, &all));
        written_release(&w);
    }
}

static void test_bands(void **state) {
    (void)state;
    struct written w = {0};
    struct footprint left = {STRIDE, 2, 7, 0, 2}, right = {STRIDE, 2, 7, 2, STRIDE}, rows = {STRIDE, 3, 5, 0, 4};
    struct footprint all = range(2 * STRIDE, 7 * STRIDE);
    written_add(&w, left);
    assert_true(written_covers(&w, &left) && !written_covers(&w, &rows) && !written_covers(&w, &all));
    written_add(&w, right);
    assert_true(written_covers(&w, &left) && written_covers(&w, &rows) && written_covers(&w, &all));
    assert_true(written_unread(&w, &rows));
    written_mark_read(&w, &rows);
    assert_false(written_unread(&w, &all));
    written_release(&w);
}

// A head may have thousands of pieces: each looks at its neighbours, not at all.
static void test_many_pieces(void **state) {
    (void)state;
    enum { PIECES = 100000 };
    struct written w = {0};
    clock_t begin = clock();
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < PIECES; i++) {
            struct footprint piece = range(64 * i, 64 * i + 64);
            assert_false(written_unread(&w, &piece));
            written_add(&w, piece);
            assert_true(written_covers(&w, &piece));
            written_mark_read(&w, &piece);
        }
    struct footprint all = range(0, 64 * (int64_t)PIECES);
    assert_true(written_covers(&w, &all) && !written_unread(&w, &all));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
    written_release(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bands),
        cmocka_unit_test(test_many_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
