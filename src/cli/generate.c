#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "train/checkpoint.h"
#include "train/generator.h"

// Everything of one call of the command.
struct continuation {
    const struct arguments *arguments;
    struct config config;
    char *directory;
    struct tokenizer *tokenizer;
    struct token_list tokens; // prompt, then what was chosen
    size_t prompt_tokens;
    struct generator *generator;
    const volatile sig_atomic_t *stop;
};

static trireme_status print_tokens(struct continuation *s, size_t from, trireme_error *error) {
    struct text out = {0};
    trireme_status status = tokenizer_decode(s->tokenizer, s->tokens.item + from, s->tokens.count - from, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    fflush(stdout);
    text_release(&out);
    return status;
}

static trireme_status prepare(struct continuation *s, trireme_error *error) {
    TRY(checkpoint_resolve(s->arguments->operands.item[0], &s->directory, error));
    TRY(tokenizer_load(s->directory, &s->tokenizer, error));
    const char *prompt = s->config.generate.prompt;
    tokenizer_encode(s->tokenizer, prompt, strlen(prompt), &s->tokens);
    // A model continues something: without a prompt, the end of a line.
    if (s->tokens.count == 0)
        tokenizer_encode(s->tokenizer, "\n", 1, &s->tokens);
    s->prompt_tokens = s->tokens.count;
    TRY(generator_fit(&s->config, s->directory, s->prompt_tokens, error));
    return generator_create(&s->generator, &s->config, s->directory, s->tokenizer, s->prompt_tokens, error);
}

static trireme_status generate(struct continuation *s, trireme_error *error) {
    TRY(prepare(s, error));
    int64_t begin = clock_now();
    TRY(generator_feed(s->generator, s->tokens.item, s->tokens.count, error));
    if (!s->arguments->json)
        TRY(print_tokens(s, 0, error));
    for (int64_t i = 0; i < s->config.generate.max_new_tokens && !*s->stop; i++) {
        bool end;
        int32_t token = generator_choose(s->generator, &end);
        if (end)
            break;
        VEC_PUSH(&s->tokens, token);
        if (!s->arguments->json)
            TRY(print_tokens(s, s->tokens.count - 1, error));
        if (i + 1 < s->config.generate.max_new_tokens)
            TRY(generator_feed(s->generator, &token, 1, error));
    }
    double seconds = 1e-9 * (double)(clock_now() - begin);
    struct text out = {0};
    trireme_status status = TRIREME_OK;
    if (s->arguments->json) {
        struct text text = {0};
        size_t made = s->tokens.count - s->prompt_tokens;
        status = tokenizer_decode(s->tokenizer, s->tokens.item + s->prompt_tokens, made, &text, error);
        json_begin_object(&out, NULL);
        json_add_string(&out, "prompt", s->config.generate.prompt);
        json_add_text(&out, "text", &text);
        json_begin_array(&out, "tokens");
        for (size_t i = s->prompt_tokens; i < s->tokens.count; i++)
            json_add_integer(&out, NULL, s->tokens.item[i]);
        json_end_array(&out);
        json_add_number(&out, "tokens_per_second", (double)made / seconds);
        json_end_object(&out);
        text_release(&text);
    }
    text_add(&out, "\n");
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    return status;
}

trireme_status command_generate(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 1, 1, error));
    struct continuation s = {.arguments = a, .stop = stop_on_signals()};
    TRY(arguments_config(a, NULL, "generate", &s.config, error));
    trireme_status status = config_expect(&s.config, "generate training", "generate", error);
    if (status == TRIREME_OK)
        status = generate(&s, error);
    generator_free(s.generator);
    tokenizer_free(s.tokenizer);
    VEC_RELEASE(&s.tokens);
    free(s.directory);
    config_release(&s.config);
    return status;
}
