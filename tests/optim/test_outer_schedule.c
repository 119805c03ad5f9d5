// When islands meet: in constant intervals, fragment after fragment, and in intervals that follow the learning rate.
#include "optim/outer_schedule.h"
#include "program/program.h"
#include "support/test.h"

#include "base/text.h"

enum { STEPS = 24 };

static struct config config_of(const char *const *overrides, size_t count) {
    const char *all[12] = {"training.steps=24", "lr_scheduler.warmup_steps=0"};
    struct config config;
    trireme_error error = {0};
    for (size_t i = 0; i < count; i++)
        all[2 + i] = overrides[i];
    if (config_load(&config, NULL, all, 2 + count, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return config;
}

// "4 8 12 ...", "2.1" where the fragment is not the first; `first`: the step that is asked for first.
static void assert_meetings(const char *const *overrides, size_t count, int first, const char *expected) {
    struct config config = config_of(overrides, count);
    struct outer_schedule schedule = outer_schedule_create(&config);
    struct text text = {0};
    for (int step = first; step <= STEPS; step++) {
        const int fragment = outer_schedule_at(&schedule, step);
        if (fragment != NONE)
            text_add(&text, fragment ? "%s%d.%d" : "%s%d", text.length ? " " : "", step, fragment);
    }
    assert_string_equal(text.text ?: "", expected);
    text_release(&text);
    config_release(&config);
}

static void fragments_take_turns(void **state) {
    (void)state;
    static const char *const ONE[] = {"outer.method=diloco", "outer.sync_steps=7"}, *const THREE[] = {
                                                                                        "outer.method=streaming_diloco",
                                                                                        "outer.sync_steps=9",
                                                                                        "outer.fragments=3"};
    assert_meetings(NULL, 0, 1, "");
    assert_meetings(ONE, ARRAY_LENGTH(ONE), 1, "7 14 21");
    assert_meetings(THREE, ARRAY_LENGTH(THREE), 1, "3.1 6.2 9 12.1 15.2 18 21.1 24.2");
}

// The interval is the least first, and in the warm-up; then (interval_lr / learning rate)^2, to the last step.
static void intervals_follow_the_learning_rate(void **state) {
    (void)state;
    const char *keys[] = {"outer.method=qsr",
                          "outer.sync_steps=2",
                          "outer.interval_lr=0.021",
                          "optimizer.lr=0.01",
                          "lr_scheduler.decay_type=constant",
                          "lr_scheduler.warmup_steps=0"};
    assert_meetings(keys, ARRAY_LENGTH(keys), 1, "2 6 10 14 18 22 24");
    assert_meetings(keys, ARRAY_LENGTH(keys), 12, "14 18 22 24"); // as a run that is resumed asks
    keys[5] = "lr_scheduler.warmup_steps=5";
    assert_meetings(keys, ARRAY_LENGTH(keys), 1, "2 4 6 10 14 18 22 24");
    keys[2] = "outer.interval_lr=0.001"; // never more than the least
    assert_meetings(keys, ARRAY_LENGTH(keys), 1, "2 4 6 8 10 12 14 16 18 20 22 24");
    keys[2] = "outer.interval_lr=0.03";
    keys[4] = "lr_scheduler.decay_type=linear";
    keys[5] = "lr_scheduler.warmup_steps=0";
    assert_meetings(keys, ARRAY_LENGTH(keys), 1, "2 12 24"); // 10 steps behind the second; then all that are left
}

// A fragment is heard around the ring from 1, 2, 4, ... places away in turn, whichever step is asked for first.
static void pairs_change(void **state) {
    (void)state;
    const char *keys[] = {"outer.method=gossip",
                          "outer.sync_steps=4",
                          "outer.fragments=2",
                          "parallelism.island_degree=5",
                          "lr_scheduler.decay_type=constant",
                          "optimizer.lr=0.01",
                          "outer.interval_lr=0.021"};
    static const int CONSTANT[] = {1, 0, 3, 2, 5, 4, 1, 0, 3, 2, 5, 4}, QUADRATIC[] = {0, 1, 2, 0, 1, 2, 0};
    for (int quadratic = 0; quadratic < 2; quadratic++)
        for (int first = 1; first <= STEPS; first++) {
            if (quadratic) {
                keys[1] = "outer.interval=quadratic";
                keys[2] = "outer.sync_steps=2"; // 2 6 10 14 18 22 24
            }
            struct config config = config_of(keys, quadratic ? 7 : 6);
            struct outer_schedule schedule = outer_schedule_create(&config);
            assert_int_equal(outer_distances(&config), 3);
            for (int step = first; step <= STEPS; step++) {
                const int fragment = outer_schedule_at(&schedule, step);
                if (fragment != NONE)
                    assert_int_equal(outer_schedule_part(&schedule, step, fragment),
                                     quadratic ? QUADRATIC[step == STEPS ? 6 : step / 4] : CONSTANT[step / 2 - 1]);
            }
            config_release(&config);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fragments_take_turns),
        cmocka_unit_test(intervals_follow_the_learning_rate),
        cmocka_unit_test(pairs_change),
    };
    return cmocka_run_group_tests_name("outer schedule", tests, NULL, NULL);
}
