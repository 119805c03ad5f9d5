// A run that is stopped and goes on leaves the same bytes and reports the same numbers as one that never stopped.
#include "support/runs.h"

#include "base/json.h"
#include "ckpt/safetensors.h"

#include <math.h>

enum { STEPS = 10, STOP_AT = 4 };

static const char *const OVERRIDES[] = {RUNS_LLAMA,          "training.steps=10",  "data.split=[0.9, 0.1]",
                                        "validation.freq=2", "validation.steps=2", NULL};

// All keys that do not depend on the clock.
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
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors", "config.json",
                                        "tokenizer.json"};
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

// Of the optimizer's moments only the mean of squares has no sign.
static void assert_moments_by_name(const char *path) {
    struct safetensors *s;
    trireme_error error = {0};
    int negative[2] = {0};
    assert_ok(safetensors_open(path, &s, &error), &error);
    for (size_t i = 0; i < s->tensor.count; i++) {
        const struct safetensors_tensor *t = &s->tensor.item[i];
        assert_true(t->dtype == SAFETENSORS_F32 && strncmp(t->name, "adamw.", 6) == 0);
        for (uint64_t k = 0; k < t->bytes / sizeof(float); k++)
            negative[t->name[6] == 'v'] += ((const float *)t->data)[k] < 0;
    }
    assert_true(negative[0] > 0 && negative[1] == 0);
    safetensors_close(s);
}

static void test_f32(void **state) {
    check(*state, (const char *const[]){"training.dtype=f32", "training.threads=2", NULL});
    assert_moments_by_name(path_in(*state, "run/checkpoint/step-10/training/state.safetensors"));
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

static void test_muon(void **state) {
    check(*state, (const char *const[]){"training.dtype=bf16", "optimizer.name=muon", "training.threads=2", NULL});
}

static const char *watched;

// Called when the next step begins, which may be the last thing that the process does.
static void count_lines(void *user, int rank, int64_t step) {
    (void)user, (void)rank;
    FILE *file = fopen(watched, "r");
    char line[2000];
    int64_t lines = 0;
    for (; file && fgets(line, sizeof line, file); lines++)
        assert_true(line[strlen(line) - 1] == '\n');
    if (file)
        fclose(file);
    assert_int_equal(lines, step - 1);
}

static void test_lines_are_written_at_once(void **state) {
    trireme_error error = {0};
    struct train_result result;
    struct runs_watch watch = {.rank_step = count_lines};
    watched = path_in(*state, "run/metrics.jsonl");
    runs_prepare(*state);
    assert_ok(runs_train(*state, OVERRIDES, NULL, &watch, &result, &error), &error);
    assert_int_equal(result.step, STEPS);
}

// The validation loss of an earlier step is not reported at the end.
static void test_stopped_at_the_end(void **state) {
    trireme_error error = {0};
    struct train_result result;
    struct runs_watch watch = {.stop_at = STEPS};
    runs_prepare(*state);
    assert_ok(runs_train(*state, OVERRIDES, NULL, &watch, &result, &error), &error);
    assert_int_equal(result.step, STEPS);
    assert_true(isnan(result.val_loss));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_f32),
        IN_FOLDER(test_bf16),
        IN_FOLDER(test_f64),
        IN_FOLDER(test_lion),
        IN_FOLDER(test_sgd),
        IN_FOLDER(test_muon),
        IN_FOLDER(test_stopped_at_the_end),
        IN_FOLDER(test_lines_are_written_at_once),
    };
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
