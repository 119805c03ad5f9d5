// What the lines of metrics.jsonl say about a run's time, and how long the rest of it will take.
#include "run/spent.h"

#include "base/clock.h"
#include "config/config.h"
#include "support/checkpoint.h"

#include <math.h>

static const int64_t SECOND = 1000000000;

static void load(struct config *config, const char *freq, const char *interval) {
    const char *const settings[] = {"training.steps=100", "data.split=[0.9, 0.1]", freq, interval};
    trireme_error error = {0};
    assert_ok(config_load(config, NULL, settings, ARRAY_LENGTH(settings), &error), &error);
}

static void a_line_accounts_for_all_time_since_the_one_before(void **state) {
    (void)state;
    struct config config;
    load(&config, "validation.freq=0", "checkpoint.interval=0");
    const int64_t now = clock_now();
    struct spent spent = {.since = now - 60 * SECOND};
    struct train_step step = {.step = 1, .step_tokens = 1200};
    spent_add(&spent, SPENT_STARTING, now - 60 * SECOND);
    spent_add(&spent, SPENT_VALIDATING, now - 30 * SECOND);
    spent_add(&spent, SPENT_WAITING, now - 10 * SECOND);
    spent_add(&spent, SPENT_SAVING, now - 8 * SECOND);
    spent_add(&spent, SPENT_SAVING, now - 2 * SECOND);
    spent_take(&spent, &config, false, &step);
    assert_float_equal(step.seconds, 60, 0.9);
    assert_float_equal(step.tokens_per_second, 20, 0.5);
    assert_float_equal(step.start_seconds, 60, 0.9);
    assert_float_equal(step.validation_seconds, 30, 0.9);
    assert_float_equal(step.wait_seconds, 10, 0.9);
    assert_float_equal(step.save_seconds, 10, 0.9);
    assert_true(fabs(step.time - 1e-9 * (double)clock_real()) < 5);
    spent_take(&spent, &config, false, &step);
    assert_true(step.seconds < 0.9 && step.save_seconds == 0 && step.start_seconds == 0);
    config_release(&config);
}

static double left_after(const char *freq, const char *interval, bool validates, int64_t step) {
    struct config config;
    load(&config, freq, interval);
    struct spent spent = {.since = clock_now()};
    struct train_step s = {.step = step, .step_tokens = 1};
    spent_add_step(&spent, 2);
    spent.last[SPENT_SAVING] = 1000;
    spent.last[SPENT_VALIDATING] = 100000;
    spent_take(&spent, &config, validates, &s);
    config_release(&config);
    return s.seconds_left;
}

// Steps take 2 s each, a save 1,000 s, a validation 100,000 s.
static void time_left_counts_what_is_still_to_come(void **state) {
    (void)state;
    assert_float_equal(left_after("validation.freq=10", "checkpoint.interval=30", true, 50), 100 + 3000 + 500000, 1);
    assert_float_equal(left_after("validation.freq=10", "checkpoint.interval=30", false, 50), 100 + 3000, 1);
    assert_float_equal(left_after("validation.freq=0", "checkpoint.interval=0", true, 50), 100 + 1000 + 100000, 1);
    assert_float_equal(left_after("validation.freq=40", "checkpoint.interval=50", true, 99), 2 + 1000 + 100000, 1);
    assert_float_equal(left_after("validation.freq=10", "checkpoint.interval=10", true, 100), 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_accounts_for_all_time_since_the_one_before),
        cmocka_unit_test(time_left_counts_what_is_still_to_come),
    };
    return cmocka_run_group_tests_name("spent", tests, NULL, NULL);
}
