// Which plans are listed, and how they read.
#include "planner/listing.h"
#include "support/checkpoint.h"

static struct plan_answer answer_of(int tensor, int stages, const char *schedule, double seconds, int64_t memory) {
    return (struct plan_answer){.choice = {.replicas = 1,
                                           .parts = 1,
                                           .shards = 8 / tensor / stages,
                                           .zero_stage = 1,
                                           .tensor = tensor,
                                           .stages = stages,
                                           .schedule = schedule,
                                           .micro_batch_size = 2},
                                .seconds = seconds,
                                .computing = seconds,
                                .memory = memory,
                                .room = 100,
                                .least_memory = true};
}

static void families_are_listed(void **unused) {
    (void)unused;
    // Nothing is left to try.
    static const char *const SET[] = {"parallelism.sequence_parallel=true",
                                      "parallelism.tensor_parallel_overlap=false"};
    struct config config;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, SET, ARRAY_LENGTH(SET), &error), &error);
    struct plan_request request = {.config = &config};
    struct plan_result result = {.complete = true};
    struct search search = {.request = &request, .out = &result};
    const struct plan_answer found[] = {
        answer_of(1, 4, "zb-v", 1.2, 60),    // 3: another schedule
        answer_of(1, 4, "1f1b", 1.0001, 90), // as the first, .01% slower
        answer_of(1, 4, "1f1b", 1, 90),      // 0
        answer_of(1, 4, "1f1b", 1.1, 80),    // 2: a tenth of the memory for a tenth of the time
        answer_of(1, 4, "1f1b", 1.11, 71),   // less than a tenth of the memory more, near it
        answer_of(1, 4, "1f1b", 1.5, 70),    // 5: a tenth again
        answer_of(1, 4, "1f1b", 1.4, 71),    // neither near nor a tenth
        answer_of(2, 1, "1f1b", 1.05, 95),   // 1: another mesh
        answer_of(1, 4, "zb-v", 1.3, 60),    // slower by too much to be near
        answer_of(8, 1, "zb-v", 1.25, 99),   // 4
        answer_of(8, 1, "1f1b", 1.2501, 99), // without a pipeline a schedule is but a word
        answer_of(1, 4, "1f1b", 1.001, 101), // does not fit
    };
    static const int LISTED[] = {2, 7, 3, 0, 9, 5}, VARIANTS[] = {1, 0, 1, 0, 1, 0},
                     TRADED[] = {NONE, NONE, 0, NONE, NONE, 2};
    for (size_t i = 0; i < ARRAY_LENGTH(found); i++)
        listing_note(&search, &found[i]);
    listing_note(&search, &found[0]); // once is enough
    assert_int_equal(search.found.count, ARRAY_LENGTH(found) - 1);
    const struct candidates none = {0};
    listing_fill(&search, &none);
    assert_int_equal(result.answers.count, ARRAY_LENGTH(LISTED));
    for (size_t i = 0; i < ARRAY_LENGTH(LISTED); i++) {
        const struct plan_answer *a = &result.answers.item[i];
        assert_true(a->seconds == found[LISTED[i]].seconds);
        assert_int_equal(a->variants, VARIANTS[i]);
        assert_int_equal(a->traded, TRADED[i]);
    }
    assert_true(result.answers.item[0].within > .00009 && result.answers.item[0].within < .00011);
    assert_true(result.complete);
    VEC_RELEASE(&search.found);
    VEC_RELEASE(&result.answers);
    config_release(&config);
}

// Plans that differ only in their lists read differently, and a difference that nobody would notice is not one.
static void answers_read_apart(void **unused) {
    (void)unused;
    struct config config;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, NULL, 0, &error), &error);
    const struct plan_answer first = answer_of(1, 2, "1f1b", 1, 50);
    const struct model_config model = {0};
    const struct plan_request request = {.config = &config, .model = &model};
    struct plan_result result = {.answers = {0}};
    for (int i = 0; i < 3; i++) {
        VEC_PUSH(&result.answers, first);
        result.answers.item[i].choice.full_layers = i < 2 ? "1,0" : "0,1";
        result.answers.item[i].choice.layout = i ? "4,2" : NULL;
    }
    static const char *const ENDS[] = {"full recompute of 1 layer", ", layout 4,2, full_layers 1,0",
                                       ", layout 4,2, full_layers 0,1"};
    for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++) {
        char *plan = plan_answer_print(&request, &result, i);
        assert_string_equal(plan + strlen(plan) - strlen(ENDS[i]), ENDS[i]);
        free(plan);
    }
    struct plan_answer slower = first;
    slower.computing += 1e-8;
    char *why = plan_difference_print(&first, &slower);
    assert_string_equal(why, "as fast");
    free(why);
    VEC_RELEASE(&result.answers);
    config_release(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_are_listed), cmocka_unit_test(answers_read_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
