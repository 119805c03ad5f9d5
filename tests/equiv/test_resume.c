// A run that is stopped and goes on leaves the same bytes and reports the same numbers as one that never stopped.
#include "support/runs.h"

#include "base/json.h"

#include <math.h>

enum { STEPS = 10, STOP_AT = 4 };

static const char *const OVERRIDES[] = {RUNS_LLAMA,          "training.steps=10",  "data.split=[0.9, 0.1]",
                                        "validation.freq=2", "validation.steps=2", NULL};

// All that does not depend on the clock.
static void assert_same_metrics(const char *a, const char *b) {
    static const char *const KEYS[] = {"step", "loss", "val_loss", "grad_norm", "lr", "tokens"};
    FILE *first = fopen(path_in(a, "metrics.jsonl"), "r"), *second = fopen(path_in(b, "metrics.jsonl"), "r");
    char x[2000], y[2000];
    int lines = 0, validated = 0;
    assert_true(first && second);
    for (; fgets(x, sizeof x, first); lines++) {
        trireme_error error = {0};
        json_t *p, *q;
        assert_non_null(fgets(y, sizeof y, second));
        assert_ok(json_parse(x, strlen(x), "metrics", &p, &error), &error);
        assert_ok(json_parse(y, strlen(y), "metrics", &q, &error), &error);
        for (size_t i = 0; i < ARRAY_LENGTH(KEYS); i++) {
            const json_t *v = json_object_get(p, KEYS[i]), *w = json_object_get(q, KEYS[i]);
            if ((v || w) && !json_equal(v, w))
                fail_msg("line %d: %s differs: %s%s", lines + 1, KEYS[i], x, y);
            assert_true(v || strcmp(KEYS[i], "val_loss") == 0);
            validated += v && strcmp(KEYS[i], "val_loss") == 0 && json_is_number(v);
        }
        json_decref(p);
        json_decref(q);
    }
    assert_null(fgets(y, sizeof y, second));
    assert_int_equal(lines, STEPS);
    assert_int_equal(validated, STEPS / 2);
    fclose(first);
    fclose(second);
}

static void check(const char *folder, const char *const *extra) {
    static const char *const FILES[] = {"model.safetensors", "state.safetensors", "config.json", "tokenizer.json"};
    runs_prepare(folder);
    // Both in the same place, which the training state names.
    assert_int_equal(runs_train_until(folder, OVERRIDES, extra, 0), 1);
    assert_int_equal(rename(path_in(folder, "run"), path_in(folder, "straight")), 0);
    assert_int_equal(runs_train_until(folder, OVERRIDES, extra, STOP_AT), 1);
    assert_int_equal(runs_train_until(folder, OVERRIDES, extra, 0), STOP_AT + 1);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(folder, "straight/checkpoint/step-10", "run/checkpoint/step-10", FILES[i]);
    assert_same_metrics(path_in(folder, "straight"), path_in(folder, "run"));
}

static void test_f32(void **state) {
    check(*state, (const char *const[]){"training.dtype=f32", "training.threads=2", NULL});
}

static void test_bf16(void **state) {
    check(*state, (const char *const[]){"training.dtype=bf16", "training.threads=1", NULL});
}

static void test_f64(void **state) {
    check(*state,
          (const char *const[]){"training.dtype=f64", "activation_checkpoint.mode=full", "training.threads=1", NULL});
}

static void test_lion(void **state) {
    check(*state, (const char *const[]){"training.dtype=bf16", "optimizer.name=lion", "training.threads=1", NULL});
}

static void test_sgd(void **state) {
    check(*state, (const char *const[]){"optimizer.name=sgd", "checkpoint.interval=3", "training.threads=1", NULL});
}

static void stop_in_last_step(void *user, int rank, int64_t step) {
    struct runs_watch *watch = user;
    (void)rank;
    watch->stop = step == watch->stop_at;
}

// What an earlier step's validation found is not the end's.
static void test_stopped_at_the_end(void **state) {
    trireme_error error = {0};
    struct train_result result;
    struct runs_watch watch = {.stop_at = STEPS, .rank_step = stop_in_last_step};
    runs_prepare(*state);
    assert_ok(runs_train(*state, OVERRIDES, NULL, &watch, &result, &error), &error);
    assert_int_equal(result.step, STEPS);
    assert_true(isnan(result.val_loss));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_f32),  IN_FOLDER(test_bf16), IN_FOLDER(test_f64),
        IN_FOLDER(test_lion), IN_FOLDER(test_sgd),  IN_FOLDER(test_stopped_at_the_end),
    };
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
