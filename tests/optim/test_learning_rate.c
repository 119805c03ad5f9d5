// Learning-rate schedules, at the steps where their pieces meet.
#include "optim/optimizer.h"
#include "support/test.h"

#include <math.h>

static struct config schedule(const char *decay, const char *more) {
    struct config config;
    trireme_error error;
    char *type = mem_printf("lr_scheduler.decay_type=%s", decay);
    const char *const settings[] = {"training.steps=100", "optimizer.lr=2", type, more};
    assert_int_equal(config_load(&config, NULL, settings, *more ? 4 : 3, &error), TRIREME_OK);
    free(type);
    return config;
}

static void expect(const char *decay, const char *more, int64_t warmup, int64_t step, double factor) {
    struct config config = schedule(decay, more);
    config.lr_scheduler.warmup_steps = warmup;
    double rate = learning_rate(&config, step);
    if (!(fabs(rate - 2 * factor) <= 1e-12))
        fail_msg("%s %s, warm-up %d: step %d has %.17g, expected %.17g", decay, more, (int)warmup, (int)step, rate,
                 2 * factor);
    config_release(&config);
}

static void every_schedule_warms_up(void **state) {
    (void)state;
    static const char *const DECAYS[] = {"cosine", "linear", "constant", "wsd"};
    for (size_t i = 0; i < ARRAY_LENGTH(DECAYS); i++) {
        expect(DECAYS[i], "", 10, 1, 0.1);
        expect(DECAYS[i], "", 10, 5, 0.5);
        expect(DECAYS[i], "", 10, 10, 1);
        expect(DECAYS[i], "", 200, 100, 0.5); // a warm-up that outlasts the run
    }
}

static void decays_end_one_step_after_their_last(void **state) {
    (void)state;
    expect("constant", "", 10, 100, 1);
    expect("linear", "", 0, 1, 1);
    expect("linear", "", 0, 51, 0.55);
    expect("linear", "", 0, 100, 0.1 + 0.9 / 100);
    expect("linear", "", 20, 21, 1);
    expect("linear", "", 20, 61, 0.55);
    expect("linear", "", 20, 100, 0.1 + 0.9 / 80);
    expect("cosine", "", 20, 61, 0.55);
    expect("cosine", "lr_scheduler.min_lr_factor=0", 0, 26, 0.5 + sqrt(0.125));
    expect("linear", "lr_scheduler.decay_steps=50", 0, 26, 0.55);
    expect("linear", "lr_scheduler.decay_steps=50", 0, 50, 0.1 + 0.9 / 50);
    expect("linear", "lr_scheduler.decay_steps=50", 0, 51, 0.1);
    expect("linear", "lr_scheduler.decay_steps=50", 0, 52, 0.1);
    expect("linear", "lr_scheduler.decay_steps=200", 0, 101, 0.55);
    expect("linear", "lr_scheduler.decay_steps=10", 10, 10, 1);
    expect("linear", "lr_scheduler.decay_steps=10", 10, 11, 0.1);
}

static void wsd_falls_at_the_end(void **state) {
    (void)state;
    expect("wsd", "", 10, 81, 1);
    expect("wsd", "", 10, 82, 0.1 + 0.9 * 19 / 20);
    expect("wsd", "", 10, 91, 0.55);
    expect("wsd", "", 10, 100, 0.1 + 0.9 / 20);
    expect("wsd", "lr_scheduler.decay_ratio=1", 0, 51, 0.55);
    expect("wsd", "lr_scheduler.decay_ratio=1", 40, 71, 0.55);
    // No fall at all.
    expect("wsd", "lr_scheduler.decay_ratio=0", 0, 1, 1);
    expect("wsd", "lr_scheduler.decay_ratio=0", 10, 100, 1);
}

// A last step of rate 0 would leave a checkpoint equal to the one before it.
static void no_step_of_a_run_has_the_rate_0(void **state) {
    (void)state;
    static const char *const DECAYS[] = {"cosine", "linear", "constant", "wsd"};
    for (size_t i = 0; i < ARRAY_LENGTH(DECAYS); i++) {
        struct config config = schedule(DECAYS[i], "lr_scheduler.min_lr_factor=0");
        static const int64_t STEPS[] = {1, 2, 5, 100}, WARM_UPS[] = {0, 1, 4};
        for (size_t s = 0; s < ARRAY_LENGTH(STEPS); s++)
            for (size_t w = 0; w < ARRAY_LENGTH(WARM_UPS); w++) {
                config.training.steps = STEPS[s];
                config.lr_scheduler.warmup_steps = WARM_UPS[w];
                for (int64_t step = 1; step <= STEPS[s]; step++)
                    if (!(learning_rate(&config, step) > 0))
                        fail_msg("%s, %d steps, warm-up %d: step %d has no rate", DECAYS[i], (int)STEPS[s],
                                 (int)WARM_UPS[w], (int)step);
            }
        config.training.steps = 1;
        config.lr_scheduler.warmup_steps = 0;
        assert_true(learning_rate(&config, 1) == config.optimizer.lr);
        config_release(&config);
    }
}

static void a_decay_within_the_warm_up_is_refused(void **state) {
    (void)state;
    struct config config;
    trireme_error error;
    const char *const settings[] = {"lr_scheduler.warmup_steps=10", "lr_scheduler.decay_steps=9"};
    assert_int_equal(config_load(&config, NULL, settings, 2, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, "lr_scheduler.decay_steps"));
    assert_non_null(strstr(error.message, "warmup_steps"));
}

static void the_rate_follows_the_batch(void **state) {
    (void)state;
    struct config config = schedule("linear", "lr_scheduler.base_batch_size=8");
    config.training.global_batch_size = 32;
    assert_true(learning_rate_peak(&config) == 8); // 2 * 32 / 8
    assert_true(learning_rate(&config, 1) == 8);
    assert_true(fabs(learning_rate(&config, 51) - 8 * 0.55) < 1e-12);
    config.lr_scheduler.batch_scaling = CONFIG_BATCH_SCALING_SQRT;
    assert_true(learning_rate_peak(&config) == 4);
    config.training.global_batch_size = 2;
    assert_true(learning_rate_peak(&config) == 1);
    config.lr_scheduler.base_batch_size = 0;
    assert_true(learning_rate_peak(&config) == 2);
    config_release(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_warms_up),    cmocka_unit_test(decays_end_one_step_after_their_last),
        cmocka_unit_test(wsd_falls_at_the_end),       cmocka_unit_test(no_step_of_a_run_has_the_rate_0),
        cmocka_unit_test(the_rate_follows_the_batch), cmocka_unit_test(a_decay_within_the_warm_up_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
