// The public functions of include/trireme.h.
#include "base/reserve.h"
#include "generate/continuation.h"
#include "run/train.h"

const char *trireme_version(void) {
    return TRIREME_VERSION;
}

// Clears the error: functions that are called next may read it, and a caller's may hold anything.
static trireme_error *api_begin(trireme_error *error, trireme_error *own) {
    error = error ? error : own;
    *error = (trireme_error){0};
    return error;
}

static trireme_status api_load(struct config *config, const trireme_settings *s, trireme_error *error) {
    if (s && s->count && !s->setting)
        FAIL(TRIREME_ERROR_USAGE, "settings: count is %zu, but setting is NULL", s->count);
    for (size_t i = 0; s && i < s->count; i++)
        if (!s->setting[i])
            FAIL(TRIREME_ERROR_USAGE, "settings: setting[%zu] is NULL, expected \"section.key=value\"", i);
    return config_load(config, s ? s->path : NULL, s ? s->setting : NULL, s ? s->count : 0, error);
}

struct watcher {
    bool (*stepped)(void *user, const trireme_progress *progress);
    void *user;
    atomic_bool stop;
};

static void pass_on(void *user, const struct train_step *s) {
    struct watcher *watcher = user;
    trireme_progress progress = {s->step, s->steps, s->loss, s->val_loss, s->tokens_per_second};
    if (watcher->stepped && !watcher->stepped(watcher->user, &progress))
        watcher->stop = true;
}

static trireme_status api_train(const trireme_settings *settings,
                                bool (*stepped)(void *user, const trireme_progress *progress), void *user,
                                trireme_trained *trained, trireme_error *error) {
    struct config config;
    TRY(api_load(&config, settings, error));
    struct watcher watcher = {.stepped = stepped, .user = user};
    struct train_callbacks callbacks = {.user = &watcher, .stepped = pass_on, .stop = &watcher.stop};
    struct train_result result;
    trireme_status status = train_run(&config, &callbacks, &result, error);
    if (trained && (status == TRIREME_OK || status == TRIREME_ERROR_INTERRUPTED)) {
        *trained = (trireme_trained){.step = result.step, .loss = result.loss, .val_loss = result.val_loss};
        memcpy(trained->checkpoint, result.checkpoint, sizeof trained->checkpoint);
    }
    config_release(&config);
    return status;
}

trireme_status trireme_train(const trireme_settings *settings,
                             bool (*stepped)(void *user, const trireme_progress *progress), void *user,
                             trireme_trained *trained, trireme_error *error) {
    trireme_error own;
    error = api_begin(error, &own);
    TRY(reserve_take(error));
    trireme_status status = api_train(settings, stepped, user, trained, error);
    reserve_give();
    return status;
}

// The callback of trireme_generate, and what it needs.
struct reader {
    bool (*text)(void *user, const char *bytes, size_t count);
    void *user;
    atomic_bool stop;
};

static trireme_status pass_on_text(void *user, size_t text, const char *bytes, size_t count, trireme_error *error) {
    (void)text, (void)error;
    struct reader *reader = user;
    if (!reader->stop && !reader->text(reader->user, bytes, count))
        reader->stop = true;
    return TRIREME_OK;
}

static trireme_status api_continue(const struct config *config, const char *directory, const char *prompt,
                                   size_t length, struct reader *reader, trireme_error *error) {
    struct continuation c = {0};
    struct continued_text text = {0};
    const struct continuation_sink sink = {reader, pass_on_text, &reader->stop};
    trireme_status status = continuation_open(&c, config, directory, error);
    if (status == TRIREME_OK)
        status = continuation_encode(&c, prompt ? prompt : "", length, &text.prompt, error);
    if (status == TRIREME_OK)
        status = continuation_load(&c, 1, text.prompt.count, error);
    if (status == TRIREME_OK)
        status = continuation_run(&c, &text, 1, &sink, error);
    continued_text_release(&text);
    continuation_release(&c);
    return status;
}

static trireme_status api_generate(const char *directory, const trireme_settings *settings, const char *prompt,
                                   size_t length, bool (*text)(void *user, const char *bytes, size_t count), void *user,
                                   trireme_error *error) {
    if (!directory)
        FAIL(TRIREME_ERROR_USAGE, "directory is NULL, expected the path of a model's directory or a run's");
    if (!prompt && length)
        FAIL(TRIREME_ERROR_USAGE, "prompt is NULL, but its length is %zu", length);
    if (!text)
        FAIL(TRIREME_ERROR_USAGE, "text is NULL, expected the function that takes what is generated");
    struct config config;
    TRY(api_load(&config, settings, error));
    struct reader reader = {.text = text, .user = user};
    trireme_status status = api_continue(&config, directory, prompt, length, &reader, error);
    config_release(&config);
    return status;
}

trireme_status trireme_generate(const char *directory, const trireme_settings *settings, const char *prompt,
                                size_t length, bool (*text)(void *user, const char *bytes, size_t count), void *user,
                                trireme_error *error) {
    trireme_error own;
    error = api_begin(error, &own);
    TRY(reserve_take(error));
    trireme_status status = api_generate(directory, settings, prompt, length, text, user, error);
    reserve_give();
    return status;
}
