// The public functions of include/trireme.h.
#include "train/checkpoint.h"
#include "train/generator.h"
#include "train/train.h"

const char *trireme_version(void) {
    return TRIREME_VERSION;
}

static trireme_status load(struct config *config, const trireme_settings *s, trireme_error *error) {
    return config_load(config, s ? s->path : NULL, s ? s->setting : NULL, s ? s->count : 0, error);
}

struct watcher {
    bool (*stepped)(void *user, const trireme_progress *progress);
    void *user;
    volatile sig_atomic_t stop;
};

static void pass_on(void *user, const struct train_step *s) {
    struct watcher *watcher = user;
    trireme_progress progress = {s->step, s->steps, s->loss, s->val_loss, s->tokens_per_second};
    if (watcher->stepped && !watcher->stepped(watcher->user, &progress))
        watcher->stop = 1;
}

trireme_status trireme_train(const trireme_settings *settings,
                             bool (*stepped)(void *user, const trireme_progress *progress), void *user,
                             trireme_trained *trained, trireme_error *error) {
    trireme_error own = {0};
    error = error ? error : &own; // what is called below may read it
    struct config config;
    TRY(load(&config, settings, error));
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

// Everything of one call of trireme_generate.
struct continuation {
    struct config config;
    char *directory;
    struct tokenizer *tokenizer;
    struct token_list prompt;
    struct generator *generator;
};

static trireme_status continue_text(struct continuation *c, const char *path, const char *prompt, size_t length,
                                    bool (*text)(void *user, const char *bytes, size_t count), void *user,
                                    trireme_error *error) {
    TRY(checkpoint_resolve(path, &c->directory, error));
    TRY(tokenizer_load(c->directory, &c->tokenizer, error));
    tokenizer_encode(c->tokenizer, prompt, length, &c->prompt);
    if (c->prompt.count == 0)
        FAIL(TRIREME_ERROR_USAGE, "the prompt is empty");
    TRY(generator_fit(&c->config, c->directory, c->prompt.count, error));
    TRY(generator_create(&c->generator, &c->config, c->directory, c->tokenizer, c->prompt.count, error));
    TRY(generator_feed(c->generator, c->prompt.item, c->prompt.count, error));
    for (int64_t i = 0; i < c->config.generate.max_new_tokens; i++) {
        bool end;
        int32_t token = generator_choose(c->generator, &end);
        if (end)
            break;
        struct text piece = {0};
        TRY(tokenizer_decode(c->tokenizer, &token, 1, &piece, error));
        bool more = text(user, piece.text ? piece.text : "", piece.length);
        text_release(&piece);
        if (!more)
            break;
        if (i + 1 < c->config.generate.max_new_tokens)
            TRY(generator_feed(c->generator, &token, 1, error));
    }
    return TRIREME_OK;
}

trireme_status trireme_generate(const char *directory, const trireme_settings *settings, const char *prompt,
                                size_t length, bool (*text)(void *user, const char *bytes, size_t count), void *user,
                                trireme_error *error) {
    struct continuation c = {0};
    TRY(load(&c.config, settings, error));
    trireme_status status = continue_text(&c, directory, prompt, length, text, user, error);
    generator_free(c.generator);
    tokenizer_free(c.tokenizer);
    VEC_RELEASE(&c.prompt);
    free(c.directory);
    config_release(&c.config);
    return status;
}
