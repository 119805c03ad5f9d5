// A run that is stopped and goes on leaves the same bytes and reports the same numbers as one that never stopped.
#include "support/checkpoint.h"

#include "base/json.h"
#include "train/train.h"

#include <math.h>
#include <unistd.h>

enum { STEPS = 10, STOP_AT = 4 };

static void prepare(const char *folder) {
    struct text text = {0};
    for (int i = 0; i < 400; i++)
        text_add(&text, "%d ships with %d oars rowed %d miles in %d hours.\n", i, 3 * i + 7, i * i % 91, i % 13);
    prepare_text(folder, text.text);
    text_release(&text);
}

struct watch {
    int64_t stop_at;
    volatile sig_atomic_t stop;
    int64_t first_step;
};

static void started(void *user, const struct train_start *start) {
    ((struct watch *)user)->first_step = start->first_step;
}

static void stepped(void *user, const struct train_step *step) {
    struct watch *w = user;
    w->stop = step->step == w->stop_at;
}

// Trains in folder/run until `stop_at` (0: to the end); the first step that ran.
static int64_t run(const char *folder, const char *const *extra, int64_t stop_at) {
    trireme_error error = {0};
    char *path = mem_printf("data.path=%s/tokens", folder), *directory = mem_printf("run.directory=%s/run", folder);
    const char *overrides[32] = {path,
                                 directory,
                                 "training.steps=10",
                                 "training.seq_len=32",
                                 "training.global_batch_size=4",
                                 "training.micro_batch_size=2",
                                 "model.family=llama",
                                 "model.num_hidden_layers=2",
                                 "model.hidden_size=32",
                                 "model.num_attention_heads=4",
                                 "model.num_key_value_heads=2",
                                 "optimizer.lr=1e-2",
                                 "lr_scheduler.warmup_steps=3",
                                 "data.split=[0.9, 0.1]",
                                 "validation.freq=2",
                                 "validation.steps=2"};
    size_t count = 0;
    while (overrides[count])
        count++;
    for (; *extra; extra++)
        overrides[count++] = *extra;
    struct config config;
    assert_ok(config_load(&config, NULL, overrides, count, &error), &error);
    struct watch watch = {.stop_at = stop_at};
    struct train_callbacks callbacks = {.user = &watch, .started = started, .stepped = stepped, .stop = &watch.stop};
    struct train_result result;
    trireme_status status = train_run(&config, &callbacks, &result, &error);
    if (stop_at)
        assert_refused(status, TRIREME_ERROR_INTERRUPTED, &error, "goes on");
    else
        assert_ok(status, &error);
    assert_int_equal(result.step, stop_at ? stop_at : STEPS);
    config_release(&config);
    free(path);
    free(directory);
    return watch.first_step;
}

static void assert_same_file(const char *a, const char *b, const char *name) {
    trireme_error error = {0};
    char *x, *y;
    size_t length, other;
    assert_ok(file_read(path_in(a, name), 100000000, &x, &length, &error), &error);
    assert_ok(file_read(path_in(b, name), 100000000, &y, &other, &error), &error);
    if (length != other || memcmp(x, y, length) != 0)
        fail_msg("%s differs between a run that stopped and one that did not", name);
    free(x);
    free(y);
}

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
    prepare(folder);
    // Both in the same place, which the training state names.
    assert_int_equal(run(folder, extra, 0), 1);
    assert_int_equal(rename(path_in(folder, "run"), path_in(folder, "straight")), 0);
    assert_int_equal(run(folder, extra, STOP_AT), 1);
    assert_int_equal(run(folder, extra, 0), STOP_AT + 1);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(path_in(folder, "straight/checkpoint/step-10"), path_in(folder, "run/checkpoint/step-10"),
                         FILES[i]);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_f32, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(test_bf16, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(test_f64, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(test_lion, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(test_sgd, folder_create, folder_remove),
    };
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
