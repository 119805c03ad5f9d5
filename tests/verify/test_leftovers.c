// What the verifier records about memory that nobody holds any more, compared with a table that has each unit of memory
// by itself; and the set of numbers on which it is built.
#include "base/rng.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/leftovers.h"

static void finds_the_next_lower(void **unused) {
    (void)unused;
    enum { BOUND = 3 * 64 * 64 + 70, ROUNDS = 20000 };
    bool *has = mem_alloc(BOUND * sizeof *has);
    struct number_set set;
    number_set_create(&set, BOUND);
    assert_int_equal(number_set_below(&set, 0), NONE);
    assert_int_equal(number_set_below(&set, BOUND), NONE);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct rng_block random = rng_philox(1, 0, round);
        // At first the set grows, then it becomes empty.
        int number = (int)(random.word[0] % BOUND), end = (int)(random.word[1] % (BOUND + 1)), expected = end - 1;
        has[number] = random.word[2] % 100 < (round < ROUNDS / 2 ? 60 : 2);
        if (has[number])
            number_set_add(&set, number);
        else
            number_set_remove(&set, number);
        while (expected >= 0 && !has[expected])
            expected--;
        assert_int_equal(number_set_below(&set, end), expected); // NONE is -1
    }
    number_set_release(&set);
    free(has);
}

// Who touched a unit of memory that is left over, and when: 0 is a unit that is not.
struct unit {
    int root;
    int32_t touched;
};

enum { UNITS = 300, UNIT = 64 };

static int lowest_late(const struct unit *unit, int begin, int end, int32_t known) {
    for (int u = begin; u < end; u++)
        if (unit[u].touched > known)
            return unit[u].root;
    return NONE;
}

static void is_as_unit_by_unit(void **unused) {
    (void)unused;
    struct unit unit[UNITS] = {0};
    int64_t edge[2 * UNITS];
    for (int i = 0; i < 2 * UNITS; i++) // each twice, the last first
        edge[i] = (int64_t)UNIT * (UNITS - i / 2);
    struct leftovers left;
    leftovers_create(&left, edge, 2 * UNITS);
    int late = 0;
    for (uint64_t round = 1; round < 20000; round++) {
        struct rng_block random = rng_philox(2, 0, round);
        int a = 1 + (int)(random.word[0] % UNITS), b = 1 + (int)(random.word[1] % (UNITS / 8)), begin = a,
            end = MIN(a + b, UNITS);
        int32_t clock[STREAMS_MAX] = {0}, known = (int32_t)(round - round % (1 + random.word[2] % 8));
        clock[STREAM_REDUCE] = known;
        int expected = lowest_late(unit, begin, end, known);
        late += expected != NONE;
        assert_int_equal(leftovers_take(&left, (int64_t)begin * UNIT, (int64_t)end * UNIT, clock), expected);
        memset(&unit[begin], 0, (size_t)(end - begin) * sizeof *unit);
        if (random.word[3] % 3 == 0) // held
            continue;
        clock[STREAM_REDUCE] = (int32_t)round;
        leftovers_add(&left, (int)round, (int64_t)begin * UNIT, (int64_t)end * UNIT, clock);
        for (int u = begin; u < end; u++)
            unit[u] = (struct unit){(int)round, (int32_t)round};
    }
    assert_in_range(late, 1000, 19000); // both happen
    leftovers_release(&left);
}

static void of_no_memory(void **unused) {
    (void)unused;
    const int32_t clock[STREAMS_MAX] = {0};
    struct leftovers left;
    leftovers_create(&left, NULL, 0);
    leftovers_add(&left, 0, 0, 0, clock);
    leftovers_release(&left);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_next_lower),
        cmocka_unit_test(is_as_unit_by_unit),
        cmocka_unit_test(of_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
