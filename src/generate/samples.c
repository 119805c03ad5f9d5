#include "generate/samples.h"

#include "generate/continuation.h"
#include "generate/prompts.h"

// The settings of `trireme generate` that stand for those of the run.
static trireme_status samples_config(const struct config *run, struct config *out, trireme_error *error) {
    char *settings[] = {mem_printf("generate.batch=%s", run->validation.prompts),
                        mem_printf("generate.max_new_tokens=%lld", (long long)run->validation.sample_tokens),
                        mem_printf("generate.seed=%lld", (long long)run->training.seed),
                        mem_printf("training.threads=%lld", (long long)run->training.threads),
                        mem_printf("training.kernels=%s", config_kernels_word(run->training.kernels))};
    const trireme_status status = config_load(out, NULL, (const char *const *)settings, ARRAY_LENGTH(settings), error);
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
        free(settings[i]);
    return status;
}

trireme_status samples_check(const struct config *run, trireme_error *error) {
    struct config config;
    struct prompts prompts = {0};
    if (!*run->validation.prompts)
        return TRIREME_OK;
    TRY(samples_config(run, &config, error));
    trireme_status status = prompts_read(&prompts, &config, error);
    if (status != TRIREME_OK)
        error_prefix(error, status, "%s: validation.prompts", config_origin(run, "validation.prompts"));
    prompts_release(&prompts);
    config_release(&config);
    return status;
}

// Some texts side by side.
struct sampling {
    const struct train_samples *asked;
    struct continued_text *texts; // [batch_size]
    struct text *said;            // the same
};

static trireme_status sampling_add(void *user, size_t text, const char *bytes, size_t count, trireme_error *error) {
    const struct sampling *s = user;
    (void)error;
    s->asked->more(s->asked->user);
    text_add_bytes(&s->said[text], bytes, count);
    return TRIREME_OK;
}

static trireme_status sampling_run(struct sampling *s, const struct continuation *c, const struct text *prompts,
                                   size_t count, trireme_error *error) {
    static const atomic_bool never;
    const struct continuation_sink sink = {s, sampling_add, s->asked->stop ? s->asked->stop : &never};
    for (size_t i = 0; i < count; i++) {
        continued_text_release(&s->texts[i]);
        s->texts[i] = (struct continued_text){0};
        s->said[i].length = 0;
        TRY(continuation_encode(c, prompts[i].text, prompts[i].length, &s->texts[i].prompt, error));
    }
    TRY(continuation_run(c, s->texts, count, &sink, error));
    for (size_t i = 0; i < count; i++)
        s->asked->take(s->asked->user, &prompts[i], &s->said[i]);
    return TRIREME_OK;
}

static trireme_status sampling_all(struct sampling *s, const struct config *config, struct continuation *c,
                                   const struct prompts *prompts, trireme_error *error) {
    const size_t most = MIN((size_t)config->generate.batch_size, prompts->count);
    size_t longest = 0;
    TRY(continuation_open(c, config, s->asked->directory, error));
    for (size_t i = 0; i < prompts->count; i++) {
        struct token_list tokens = {0};
        const trireme_status status =
            continuation_encode(c, prompts->item[i].text, prompts->item[i].length, &tokens, error);
        longest = MAX(longest, tokens.count);
        VEC_RELEASE(&tokens);
        TRY(status);
    }
    TRY(continuation_load(c, most, longest, error));
    for (size_t i = 0; i < prompts->count; i += most)
        TRY(sampling_run(s, c, &prompts->item[i], MIN(most, prompts->count - i), error));
    return TRIREME_OK;
}

trireme_status samples_make(const struct train_samples *asked, trireme_error *error) {
    struct config config;
    struct prompts prompts = {0};
    struct continuation continuation = {.hold = -1};
    TRY(samples_config(asked->config, &config, error));
    const size_t most = (size_t)config.generate.batch_size;
    struct sampling sampling = {asked, mem_alloc(most * sizeof *sampling.texts),
                                mem_alloc(most * sizeof *sampling.said)};
    trireme_status status = prompts_read(&prompts, &config, error);
    if (status == TRIREME_OK)
        status = sampling_all(&sampling, &config, &continuation, &prompts, error);
    for (size_t i = 0; i < most; i++) {
        continued_text_release(&sampling.texts[i]);
        text_release(&sampling.said[i]);
    }
    free(sampling.texts);
    free(sampling.said);
    continuation_release(&continuation);
    prompts_release(&prompts);
    config_release(&config);
    return status;
}
