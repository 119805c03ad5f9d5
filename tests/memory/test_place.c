// Placing memory, by the skyline and in a step: nothing that is in use at the same time overlaps, little is wasted, and
// results that can be worked out by hand are as expected.
#include "base/rng.h"
#include "memory/place.h"
#include "memory/segment_tree.h"
#include "memory/span_list.h"
#include "support/test.h"

static int64_t most_in_use(const struct in_use *range, size_t count) {
    int64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t now = 0;
        for (size_t k = 0; k < count; k++)
            now += range[k].first <= range[i].first && range[i].first <= range[k].last ? range[k].bytes : 0;
        most = MAX(most, now);
    }
    return most;
}

static void assert_apart(const struct in_use *range, size_t count, int64_t top) {
    int64_t highest = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(range[i].offset >= 0);
        highest = MAX(highest, range[i].offset + range[i].bytes);
        for (size_t k = 0; k < i; k++) {
            bool meet = range[i].first <= range[k].last && range[k].first <= range[i].last;
            bool overlap = range[i].offset < range[k].offset + range[k].bytes &&
                           range[k].offset < range[i].offset + range[i].bytes;
            if (meet && overlap)
                fail_msg("%zu and %zu of %zu overlap", i, k, count);
        }
    }
    assert_int_equal(highest, top);
}

static void nothing_overlaps(void **unused) {
    (void)unused;
    enum { MOST = 300 };
    struct in_use range[MOST];
    for (uint64_t round = 0; round < 200; round++) {
        size_t count = 1 + rng_philox(1, 0, round).word[0] % MOST;
        int length = 1 + (int)(rng_philox(1, 0, round).word[1] % 200);
        for (size_t i = 0; i < count; i++) {
            struct rng_block random = rng_philox(2, round, i);
            int first = (int)(random.word[0] % (uint32_t)length), last = (int)(random.word[1] % (uint32_t)length);
            range[i] = (struct in_use){MIN(first, last), MAX(first, last), 1 + random.word[2] % 1000, -1};
        }
        int64_t top = place_skyline(range, count, 0);
        assert_apart(range, count, top);
        assert_true(top >= most_in_use(range, count));
    }
    assert_int_equal(place_skyline(range, 0, 0), 0);
}

// What lives long goes below; what comes and goes lies above it, in the memory of what was there before.
static void known(void **unused) {
    (void)unused;
    struct in_use range[] = {{4, 5, 30, -1}, {0, 9, 10, -1}, {0, 3, 20, -1}, {6, 9, 5, -1}, {2, 3, 10, -1}};
    assert_int_equal(place_skyline(range, ARRAY_LENGTH(range), 0), 40);
    const int64_t offsets[] = {10, 0, 10, 10, 30};
    for (size_t i = 0; i < ARRAY_LENGTH(range); i++)
        assert_int_equal(range[i].offset, offsets[i]);
}

// Microbatches of a pipeline that each hold layers until their backward: as in a step, there is hardly a hole.
static void microbatches(void **unused) {
    (void)unused;
    enum { MICROBATCHES = 64, LAYERS = 12, HELD = 4, COUNT = MICROBATCHES * LAYERS * 2 };
    struct in_use *range = mem_alloc(COUNT * sizeof *range);
    size_t count = 0;
    for (int m = 0; m < MICROBATCHES; m++)
        for (int i = 0; i < LAYERS; i++) {
            int forward = 2 * LAYERS * m + i, backward = 2 * LAYERS * (m + HELD) + 2 * LAYERS - 1 - i;
            range[count++] = (struct in_use){forward, backward, 1000 + 100 * (i % 3), -1};
            range[count++] = (struct in_use){backward, backward, 700, -1};
        }
    int64_t least = most_in_use(range, count), top = place_skyline(range, count, 0);
    assert_apart(range, count, top);
    assert_true(top <= least + least / 50);
    free(range);
}

// Allocations of microbatches in a pipeline: of each HELD or fewer are in flight, and a large block comes and goes
// between their forward and backward, or lingers until the next one has come.
enum { STEP_MICROBATCHES = 24, STEP_LAYERS = 6, STEP_COUNT = STEP_MICROBATCHES * (STEP_LAYERS + 1) };

struct step {
    struct lifetimes lifetimes;
    struct live_ranges ranges;
};

static void step_create(struct step *s, int held, int64_t large, bool lingers) {
    *s = (struct step){0};
    for (int i = 0; i <= STEP_LAYERS; i++)
        VEC_PUSH(&s->lifetimes.allocations, (struct allocation){.bytes = i ? 64 * (7 + i % 3) : large});
    const int period = 2 * STEP_LAYERS + 2;
    for (int i = 0; i <= STEP_LAYERS; i++)
        for (int m = 0; m < STEP_MICROBATCHES; m++) {
            int forward = period * m + i, backward = period * (m + held) + period - 1 - i;
            struct live_range r = {.allocation = i, .microbatch = m, .first = forward, .last = backward, .offset = -1};
            if (i == 0) {
                r.first = period * m + STEP_LAYERS + 1;
                r.last = r.first + lingers * period;
            }
            r.to = r.first < r.last;
            VEC_PUSH(&s->ranges.items, r);
        }
}

static void step_release(struct step *s) {
    VEC_RELEASE(&s->lifetimes.allocations);
    VEC_RELEASE(&s->ranges.items);
}

// Returns the most in use and the bytes that they span.
static int64_t placed(struct step *s, int64_t enough, int64_t fair, int64_t *top) {
    struct in_use range[STEP_COUNT];
    *top = place_step(&s->ranges, &s->lifetimes, enough, fair, &(struct room){0}, STEP_MICROBATCHES);
    for (size_t i = 0; i < STEP_COUNT; i++) {
        const struct live_range *r = &s->ranges.items.item[i];
        range[i] = (struct in_use){r->first, r->last, s->lifetimes.allocations.item[r->allocation].bytes, r->offset};
    }
    assert_apart(range, STEP_COUNT, *top);
    return most_in_use(range, STEP_COUNT);
}

static void steps(void **unused) {
    (void)unused;
    static const int64_t LARGE[] = {0, 64, 1024, 4096, 20480};
    for (int held = 0; held < 8; held++)
        for (size_t i = 0; i < ARRAY_LENGTH(LARGE); i++) {
            struct step s;
            int64_t top, again;
            step_create(&s, held / 2, LARGE[i] ? LARGE[i] : 32, held % 2);
            int64_t most = placed(&s, 0, INT64_MAX, &top);
            assert_true(top >= most && top <= most + most / 20);
            // Other memory in use may leave less than the largest range needs, or nothing.
            placed(&s, LARGE[i] / 2, LARGE[i] / 2, &again);
            placed(&s, -1000, -1000, &again);
            placed(&s, most - 64, most - 64, &again); // which all is tried for
            assert_true(again <= most + most / 20);
            step_release(&s);
        }
    struct step none = {0};
    assert_int_equal(place_step(&none.ranges, &none.lifetimes, -1, -1, &(struct room){0}, 1), 0);
}

// Of random ranges that fill a rectangle without a hole, cut as often as not across time.
static size_t cut_rectangle(struct in_use *range, size_t count, struct in_use whole, uint64_t seed) {
    size_t made = 1;
    range[0] = whole;
    for (uint64_t i = 0; made < count; i++) {
        struct rng_block random = rng_philox(seed, 0, i);
        struct in_use *r = &range[random.word[0] % made], other = *r;
        bool across = random.word[1] % 2;
        int64_t length = across ? r->last - r->first + 1 : r->bytes / BUFFER_ALIGNMENT;
        if (length < 2)
            continue;
        int64_t cut = 1 + random.word[2] % (length - 1);
        if (across) {
            r->last = r->first + (int)cut - 1;
            other.first = r->last + 1;
        } else {
            r->bytes = cut * BUFFER_ALIGNMENT;
            other.bytes -= r->bytes;
        }
        range[made++] = other;
    }
    return made;
}

// Placements in which greedy orders leave holes are mostly repaired; nothing is found where there is no room.
static void repaired(void **unused) {
    (void)unused;
    enum { COUNT = 150, RECTANGLES = 40 };
    const int64_t bytes = 2000 * BUFFER_ALIGNMENT, most = bytes + bytes / 50;
    int holes = 0, mended = 0;
    for (uint64_t seed = 0; seed < RECTANGLES; seed++) {
        struct in_use range[COUNT];
        size_t count = cut_rectangle(range, COUNT, (struct in_use){0, 399, bytes, -1}, seed);
        assert_int_equal(most_in_use(range, count), bytes);
        assert_false(place_repair(range, count, bytes - 1, 400, 1));
        if (place_skyline(range, count, most) <= most)
            continue;
        holes++;
        if (!place_repair(range, count, most, 400, 1))
            continue;
        mended++;
        int64_t top = 0;
        for (size_t i = 0; i < count; i++)
            top = MAX(top, range[i].offset + range[i].bytes);
        assert_true(top <= most);
        assert_apart(range, count, top);
    }
    print_message("%d of %d\n", mended, holes);
    assert_true(holes >= RECTANGLES / 2 && 5 * mended >= 4 * holes);
}

// Placing many ranges at once puts each where it would go by itself: equal offsets in any order.
static void merged(void **unused) {
    (void)unused;
    enum { MOST = 40 };
    for (uint64_t round = 0; round < 500; round++) {
        spans one = {0}, many = {0}, more = {0};
        for (uint64_t part = 0; part < 3; part++) {
            size_t count = rng_philox(3, round, part).word[0] % MOST;
            for (size_t i = 0; i < count; i++) {
                struct rng_block random = rng_philox(4 + part, round, i);
                int64_t offset = random.word[0] % 100;
                struct span span = {offset, offset + 1 + random.word[1] % 10, (int)i, (int)i + 1};
                spans_insert(&one, span);
                VEC_PUSH(&more, span);
            }
            spans_merge(&many, &more);
            assert_int_equal(more.count, 0);
            assert_int_equal(many.count, one.count);
            int64_t sum = 0;
            for (size_t i = 0; i < many.count; i++) {
                assert_int_equal(many.item[i].offset, one.item[i].offset);
                sum += many.item[i].end - one.item[i].end + many.item[i].first - one.item[i].first;
            }
            assert_int_equal(sum, 0);
        }
        VEC_RELEASE(&one);
        VEC_RELEASE(&many);
        VEC_RELEASE(&more);
    }
}

// Each way of looking it up finds the same lowest place.
static void lowest(void **unused) {
    (void)unused;
    enum { MOST = 300, TIMES = 60 };
    for (uint64_t round = 0; round < 200; round++) {
        const size_t count = 1 + rng_philox(7, round, 0).word[0] % MOST;
        struct in_use range[MOST];
        int *times = mem_alloc(count * sizeof *times);
        for (size_t i = 0; i < count; i++) {
            struct rng_block random = rng_philox(8, round, i);
            int first = (int)(random.word[0] % TIMES) * 3, life = (int)(random.word[1] % (1 + random.word[2] % TIMES));
            range[i] = (struct in_use){first, first + life, 1 + random.word[3] % 9, 0};
            times[i] = first;
        }
        spans all = {0};
        struct taken taken;
        taken_create(&taken, times, count);
        for (size_t i = 0; i < count; i++) {
            struct in_use *r = &range[i];
            r->offset = spans_lowest(&all, r->first, r->last, r->bytes);
            assert_int_equal(taken_lowest(&taken, r->first, r->last, r->bytes), r->offset);
            spans_insert(&all, (struct span){r->offset, r->offset + r->bytes, r->first, r->last});
            taken_add(&taken, r->first, r->last, r->offset, r->bytes);
        }
        taken_release(&taken);
        VEC_RELEASE(&all);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_overlaps), cmocka_unit_test(known),
        cmocka_unit_test(microbatches),     cmocka_unit_test(steps),
        cmocka_unit_test(repaired),         cmocka_unit_test(merged),
        cmocka_unit_test(lowest),
    };
    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
