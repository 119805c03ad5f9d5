#include "support/runs.h"

#include "base/text.h"

void runs_prepare(const char *folder) {
    struct text text = {0};
    for (int i = 0; i < 400; i++)
        text_add(&text, "%d ships with %d oars rowed %d miles in %d hours.\n", i, 3 * i + 7, i * i % 91, i % 13);
    prepare_text(folder, text.text);
    text_release(&text);
}

static void started(void *user, const struct train_start *start) {
    ((struct runs_watch *)user)->first_step = start->first_step;
}

// Asks in the step itself, since many ranks agree during a step whether to do the next one.
static void step_begins(void *user, int rank, int64_t step) {
    struct runs_watch *w = user;
    if (w->rank_step)
        w->rank_step(user, rank, step);
    if (rank == 0 && step == w->stop_at)
        w->stop = true;
}

trireme_status runs_train(const char *folder, const char *const *overrides, const char *const *extra,
                          struct runs_watch *watch, struct train_result *result, trireme_error *error) {
    char *path = mem_printf("data.path=%s/tokens", folder), *directory = mem_printf("run.directory=%s/run", folder);
    const char *all[64] = {path, directory};
    size_t count = 2;
    for (; *overrides && count < ARRAY_LENGTH(all); overrides++)
        all[count++] = *overrides;
    for (; extra && *extra && count < ARRAY_LENGTH(all); extra++)
        all[count++] = *extra;
    assert_true(!*overrides && !(extra && *extra));
    struct config config;
    assert_ok(config_load(&config, NULL, all, count, error), error);
    struct train_callbacks callbacks = {.user = watch,
                                        .started = started,
                                        .stepped = watch->stepped,
                                        .message = watch->message,
                                        .stop = &watch->stop,
                                        .rank_step = step_begins};
    trireme_status status = train_run(&config, &callbacks, result, error);
    config_release(&config);
    free(path);
    free(directory);
    return status;
}

int64_t runs_train_until(const char *folder, const char *const *overrides, const char *const *extra, int64_t stop_at) {
    trireme_error error = {0};
    struct runs_watch watch = {.stop_at = stop_at};
    struct train_result result;
    trireme_status status = runs_train(folder, overrides, extra, &watch, &result, &error);
    if (stop_at)
        assert_refused(status, TRIREME_ERROR_INTERRUPTED, &error, "goes on");
    else
        assert_ok(status, &error);
    if (stop_at)
        assert_int_equal(result.step, stop_at);
    return watch.first_step;
}

void assert_same_file(const char *folder, const char *a, const char *b, const char *name) {
    trireme_error error = {0};
    char *x, *y, *first = mem_printf("%s/%s", a, name), *second = mem_printf("%s/%s", b, name);
    size_t length, other;
    assert_ok(file_read(path_in(folder, first), 100000000, &x, &length, &error), &error);
    assert_ok(file_read(path_in(folder, second), 100000000, &y, &other, &error), &error);
    if (length != other || memcmp(x, y, length) != 0)
        fail_msg("%s and %s differ", first, second);
    free(x);
    free(y);
    free(first);
    free(second);
}
