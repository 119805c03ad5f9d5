// Proportions of a mixture: how they are written, and that they are exact at every moment.
#include "base/rng.h"
#include "data/mixture.h"
#include "data/sampler.h"
#include "test_data.h"

#include <math.h>

static void test_written(void **state) {
    (void)state;
    struct mixture m;
    assert_ok(mixture_parse(" 0.7 text/wiki,3e-1   a folder/code:1", &m, &error));
    assert_int_equal(m.count, 2);
    assert_true(m.weight[0] == 0.7 && m.weight[1] == 0.3);
    assert_string_equal(m.path[0], "text/wiki");
    assert_string_equal(m.path[1], "a folder/code:1");
    mixture_release(&m);
    static const char *const BAD[] = {"",         "text",     "0.7",          "0.7text",  "0 text", "-1 text",
                                      "nan text", "inf text", "1 a, , 1 b",   "1 a,",     ",1 a",   "1 a, b",
                                      "1 ",       "1,2",      "1 a, 1e999 b", "text 0.7", NULL};
    for (int i = 0; BAD[i]; i++)
        assert_refused(mixture_parse(BAD[i], &m, &error), TRIREME_ERROR_USAGE, "expected a positive weight");
    struct text many = {0};
    for (int i = 0; i <= MIXTURE_SOURCES; i++)
        text_add(&many, "%s1 s%d", i ? "," : "", i);
    assert_refused(mixture_parse(many.text, &m, &error), TRIREME_ERROR_USAGE, "more than 64 sources");
    text_release(&many);
}

// Every source has its share of every number of samples, to within one for it and one for each before it, and numbers
// its own without a gap.
static void check_shares(const double *weight, int count, uint64_t from, int samples) {
    const struct mixture_shares shares = mixture_shares(weight, count);
    double sum = 0, parts = 0;
    uint64_t next[MIXTURE_SOURCES];
    bool begun[MIXTURE_SOURCES] = {0};
    for (int i = 0; i < count; i++)
        sum += weight[i];
    for (int i = 0; i < count; i++) {
        parts += mixture_part(&shares, i);
        assert_true(fabs(mixture_part(&shares, i) - weight[i] / sum) < 1e-12);
        next[i] = 0;
    }
    assert_true(fabs(parts - 1) < 1e-12);
    for (uint64_t k = from; k < from + (uint64_t)samples; k++) {
        const struct mixture_sample s = mixture_sample(&shares, k);
        assert_in_range(s.source, 0, count - 1);
        if (begun[s.source] || from == 0)
            assert_int_equal(s.number, next[s.source]);
        begun[s.source] = true;
        next[s.source] = s.number + 1;
        assert_true(fabs((double)s.number - (double)k * (weight[s.source] / sum)) <= s.source + 1 + 1e-9 * (double)k);
        for (int i = 0; i < count && from == 0; i++)
            assert_true(fabs((double)next[i] - (double)(k + 1) * (weight[i] / sum)) <= i + 1);
    }
}

static void test_shares(void **state) {
    (void)state;
    check_shares((double[]){1}, 1, 0, 1000);
    check_shares((double[]){0.5, 0.5}, 2, 0, 1000);
    check_shares((double[]){7, 3}, 2, 0, 1000);
    check_shares((double[]){1e-6, 1}, 2, 0, 3000000);
    check_shares((double[]){1e300, 1e300, 1e300}, 3, 0, 1000);
    check_shares((double[]){1, 2, 3, 4}, 4, (uint64_t)1 << 62, 1000);
    for (int trial = 0; trial < 50; trial++) {
        double weight[MIXTURE_SOURCES];
        const int count = 1 + trial % MIXTURE_SOURCES;
        for (int i = 0; i < count; i++)
            weight[i] = 1e-3 + rng_uniform(1, (uint64_t)trial, (uint64_t)i);
        check_shares(weight, count, 0, 2000);
    }
}

// Tokens first, first + 1, ...
static const char *counting_source(void **state, const char *name, int32_t first, int count) {
    struct token_writer *w;
    assert_ok(token_writer_create(in(state, name), 100000, 0, &w, &error));
    for (int32_t i = 0; i < count; i++)
        assert_ok(token_writer_add(w, &(int32_t){first + i}, 1, &error));
    assert_ok(token_writer_end_document(w, &error));
    assert_ok(token_writer_finish(w, NULL, &error));
    return in(state, name);
}

enum { LENGTH = 10, ROWS = 10, FEW = 225, MANY = 1015, SECOND = 50000 };

// The tokens with which the rows of a batch begin.
static void first_tokens(const struct sampler *s, enum sampler_split split, int64_t step, int32_t out[ROWS]) {
    int32_t tokens[ROWS * LENGTH], targets[ROWS * LENGTH], starts[ROWS * LENGTH], positions[ROWS * LENGTH];
    const struct sampler_batch batch = {{PLACES_CONTIGUOUS, 1, LENGTH}, 0, tokens, targets, starts, positions};
    assert_ok(sampler_fill(s, split, step, 0, ROWS, &batch, NULL, &error));
    for (int r = 0; r < ROWS; r++) {
        out[r] = targets[r * LENGTH] < 0 ? -1 : tokens[r * LENGTH];
        for (int i = 1; i < LENGTH && targets[r * LENGTH] >= 0; i++)
            assert_true(tokens[r * LENGTH + i] == out[r] + i || targets[r * LENGTH + i - 1] < 0); // of one source
    }
}

static void test_steps(void **state) {
    const char *path[] = {counting_source(state, "few", 0, FEW), counting_source(state, "many", SECOND, MANY)};
    const double weight[] = {3, 7};
    struct token_set *set;
    struct sampler s;
    assert_ok(token_set_open_sources(path, 2, &set, &error));
    assert_int_equal(token_set_sources(set), 2);
    assert_int_equal(token_set_source(set, 1), FEW);
    assert_int_equal(token_set_source(set, 2), FEW + MANY);
    struct sampler_options o = {
        .seed = 1, .seq_len = LENGTH, .global_batch_size = ROWS, .vocab_size = 100000, .weight = weight};
    assert_ok(sampler_init(&s, set, &o, &error));
    assert_int_equal(sampler_train_tokens(&s), FEW + MANY);
    enum { PASS = 7 }; // steps
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].windows, 3 * PASS);
    int from_row[ROWS] = {0};
    bool seen[FEW] = {0};
    for (int64_t step = 0; step < 100; step++) {
        int32_t first[ROWS];
        int few = 0;
        first_tokens(&s, SAMPLER_TRAIN, step, first);
        if (step % PASS == 0)
            memset(seen, 0, sizeof seen);
        for (int r = 0; r < ROWS; r++)
            if (first[r] < SECOND) {
                few++;
                from_row[r]++;
                assert_in_range(first[r], 0, FEW - 1 - LENGTH);
                assert_false(seen[first[r]]);
                seen[first[r]] = true;
            }
        assert_int_equal(few, 3);
    }
    for (int r = 0; r < ROWS; r++)
        assert_in_range(from_row[r], 10, 50); // of 100; a row of one source alone would be 0 or 100

    // Validation: a tenth of each source, one after the other.
    o.validation_fraction = 0.1;
    assert_ok(sampler_init(&s, set, &o, &error));
    assert_int_equal(sampler_train_tokens(&s), 202 + 913);
    assert_int_equal(sampler_validation_batches(&s), 2); // 3 and 11 windows
    int32_t first[ROWS];
    static const int32_t BEGIN[] = {202, 212, 222, SECOND + 913, SECOND + 923};
    first_tokens(&s, SAMPLER_VALIDATION, 0, first);
    assert_memory_equal(first, BEGIN, sizeof BEGIN);
    first_tokens(&s, SAMPLER_VALIDATION, 1, first);
    assert_int_equal(first[3], SECOND + 1013);
    assert_int_equal(first[4], -1);

    // A message says which source is too short.
    o.seq_len = 300;
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE,
                   "source 1 of data.mixture: the data are too");
    token_set_close(set);
}

// Sources of one size are not gone through in one order.
static void test_orders(void **state) {
    const char *path[] = {counting_source(state, "a", 0, MANY), counting_source(state, "b", SECOND, MANY)};
    struct token_set *set;
    struct sampler s;
    assert_ok(token_set_open_sources(path, 2, &set, &error));
    const struct sampler_options o = {.seed = 1, .seq_len = LENGTH, .global_batch_size = ROWS, .vocab_size = 100000};
    assert_ok(sampler_init(&s, set, &o, &error));
    int alike = 0;
    for (int64_t step = 0; step < 5; step++) {
        int32_t first[ROWS];
        first_tokens(&s, SAMPLER_TRAIN, step, first);
        for (int r = 0; r < ROWS; r++)
            for (int q = 0; q < ROWS; q++)
                alike += first[r] + SECOND == first[q];
    }
    assert_in_range(alike, 0, 5); // of 25
    token_set_close(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_shares),
        cmocka_unit_test_setup_teardown(test_steps, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_orders, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
