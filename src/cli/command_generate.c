// trireme generate DIR --prompt TEXT: continues a text.
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "generate/generator.h"
#include "tokenizer/token_stream.h"

#include <unistd.h>

// Everything of one call of the command.
struct view {
    bool json, terminal; // terminal: where control characters would act
    struct continuation continuation;
    struct token_stream stream;
    struct token_list tokens; // prompt, then what was chosen
    struct text untold;       // of them
};

// A pipe gets the bytes that the model chose.
static trireme_status generate_tell(struct view *v, bool ends, trireme_error *error) {
    struct text *untold = &v->untold, shown = {0};
    size_t taken = untold->length;
    if (v->terminal)
        taken = text_add_shown(&shown, untold->text, untold->length, ends);
    trireme_status status = print_bytes(v->terminal ? &shown : untold, error);
    fflush(stdout);
    untold->length -= taken;
    if (untold->length)
        memmove(untold->text, untold->text + taken, untold->length);
    text_release(&shown);
    return status;
}

static trireme_status print_tokens(void *user, const int32_t *tokens, size_t count, trireme_error *error) {
    struct view *v = user;
    for (size_t i = 0; i < count; i++)
        VEC_PUSH(&v->tokens, tokens[i]);
    v->stream.tokenizer = v->continuation.tokenizer;
    TRY(token_stream_add(&v->stream, tokens, count, &v->untold, error));
    if (v->json && v->tokens.count == v->continuation.prompt.count)
        v->untold.length = 0; // the prompt is told by itself
    return v->json ? TRIREME_OK : generate_tell(v, false, error);
}

static trireme_status generate(struct view *v, struct config *config, const char *path, const atomic_bool *stop,
                               trireme_error *error) {
    const char *prompt = config->generate.prompt;
    const struct continuation_sink sink = {v, print_tokens, stop};
    TRY(continuation_open(&v->continuation, config, path, prompt, strlen(prompt), error));
    int64_t begin = clock_now();
    TRY(continuation_run(&v->continuation, &sink, error));
    double seconds = 1e-9 * (double)(clock_now() - begin);
    const size_t given = v->continuation.prompt.count, made = v->tokens.count - given;
    struct text out = {0};
    trireme_status status = v->json ? TRIREME_OK : generate_tell(v, true, error);
    if (v->json) {
        json_begin_object(&out, NULL);
        json_add_string(&out, "prompt", config->generate.prompt);
        json_add_text(&out, "text", &v->untold);
        json_begin_array(&out, "tokens");
        for (size_t i = given; i < v->tokens.count; i++)
            json_add_integer(&out, NULL, v->tokens.item[i]);
        json_end_array(&out);
        json_add_number(&out, "tokens_per_second", (double)made / seconds);
        json_end_object(&out);
    }
    text_add(&out, "\n");
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    if (status == TRIREME_OK && v->continuation.lowered && made == (size_t)config->generate.max_new_tokens)
        fprintf(stderr, "trireme generate: the text ends with the model's last position, after %zu new tokens\n", made);
    return status;
}

static const char KEYS[] = "generate.* training.dtype training.kernels training.threads";

trireme_status command_generate(const struct arguments *a, trireme_error *error) {
    struct view view = {.json = a->json, .terminal = isatty(STDOUT_FILENO)};
    const atomic_bool *stop = stop_on_signals();
    struct config config;
    TRY(arguments_config(a, NULL, &config, error));
    trireme_status status = arguments_expect(a, 1, 1, error);
    if (status == TRIREME_OK)
        status = config_expect(&config, KEYS, "generate", error);
    if (status == TRIREME_OK)
        status = generate(&view, &config, a->operands.item[0], stop, error);
    continuation_release(&view.continuation);
    token_stream_release(&view.stream);
    VEC_RELEASE(&view.tokens);
    text_release(&view.untold);
    config_release(&config);
    return status;
}
