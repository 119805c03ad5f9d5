// trireme generate DIR --prompt TEXT: continues a text, or those of a file.
#include "cli/command_generate.h"
#include "base/clock.h"
#include "base/json.h"
#include "generate/continuation.h"
#include "generate/prompts.h"

#include <unistd.h>

// Everything of one call of the command.
struct view {
    const struct config *config;
    bool json, terminal; // terminal: where control characters would act
    struct prompts prompts;
    struct continuation continuation;
    struct continued_text *texts; // [side_by_side]: those that are under way
    struct text untold;           // of a single one
    size_t side_by_side;
    int64_t forgotten; // the most tokens that a text no longer saw at its end
};

trireme_status generate_tell(bool terminal, bool ends, struct text *untold, trireme_error *error) {
    struct text shown = {0};
    size_t taken = untold->length;
    if (terminal)
        taken = text_add_shown(&shown, untold->text, untold->length, ends);
    trireme_status status = print_bytes(terminal ? &shown : untold, error);
    fflush(stdout);
    untold->length -= taken;
    if (untold->length)
        memmove(untold->text, untold->text + taken, untold->length);
    text_release(&shown);
    return status;
}

// How many texts there are in all.
static size_t generate_count(const struct view *v) {
    return v->prompts.count * (size_t)v->config->generate.samples;
}

static const struct text *prompt_of(const struct view *v, size_t text) {
    return &v->prompts.item[text / (size_t)v->config->generate.samples];
}

// A single text is told as it comes.
static trireme_status generate_add(void *user, size_t text, const char *bytes, size_t count, trireme_error *error) {
    struct view *v = user;
    (void)text;
    if (v->json || generate_count(v) > 1)
        return TRIREME_OK;
    text_add_bytes(&v->untold, bytes, count);
    return generate_tell(v->terminal, false, &v->untold, error);
}

static void generate_describe(const struct view *v, size_t first, size_t number, double seconds, struct text *out) {
    const struct continued_text *t = &v->texts[number];
    const size_t samples = (size_t)v->config->generate.samples;
    json_begin_object(out, NULL);
    if (generate_count(v) > 1) {
        json_add_integer(out, "index", (int64_t)((first + number) / samples));
        json_add_integer(out, "sample", t->sample);
    }
    json_add_text(out, "prompt", prompt_of(v, first + number));
    json_add_text(out, "text", &t->said);
    json_begin_array(out, "tokens");
    for (size_t i = 0; i < t->tokens.count; i++)
        json_add_integer(out, NULL, t->tokens.item[i]);
    json_end_array(out);
    json_add_string(out, "finish_reason", text_end_word(t->end));
    json_add_number(out, "tokens_per_second", (double)t->tokens.count / seconds);
    json_end_object(out);
    text_add(out, "\n");
}

// Several texts are told when they have ended, each with its prompt, and a line between them.
static trireme_status generate_report(struct view *v, size_t first, size_t count, double seconds,
                                      trireme_error *error) {
    struct text out = {0};
    trireme_status status = TRIREME_OK;
    const bool several = generate_count(v) > 1;
    for (size_t i = 0; i < count && status == TRIREME_OK; i++) {
        if (v->json) {
            generate_describe(v, first, i, seconds, &out);
            continue;
        }
        if (several) {
            const struct text *prompt = prompt_of(v, first + i);
            text_add(&out, first + i > 0 ? "---\n" : "");
            text_add_bytes(&out, prompt->text, prompt->length);
            text_add_bytes(&out, v->texts[i].said.text, v->texts[i].said.length);
        } else {
            text_add_bytes(&out, v->untold.text, v->untold.length);
        }
        text_add(&out, "\n");
        status = generate_tell(v->terminal, true, &out, error);
    }
    if (v->json)
        status = print_text(&out, error);
    text_release(&out);
    return status;
}

static void generate_say_forgotten(const struct view *v) {
    if (v->forgotten > 0)
        fprintf(stderr,
                "trireme generate: the model sees %lld tokens at once: of %s the first %lld were out of sight at its "
                "end\n",
                (long long)generator_context(v->continuation.generator),
                generate_count(v) > 1 ? "the longest text" : "the text", (long long)v->forgotten);
}

// Continues texts [first, first + count).
static trireme_status generate_some(struct view *v, size_t first, size_t count, const atomic_bool *stop,
                                    trireme_error *error) {
    const struct continuation_sink sink = {v, generate_add, stop};
    for (size_t i = 0; i < count; i++) {
        continued_text_release(&v->texts[i]);
        v->texts[i] = (struct continued_text){.sample = (int64_t)(first + i) % v->config->generate.samples};
        const struct text *prompt = prompt_of(v, first + i);
        TRY(continuation_encode(&v->continuation, prompt->text, prompt->length, &v->texts[i].prompt, error));
    }
    if (!v->json && generate_count(v) == 1) {
        text_add_bytes(&v->untold, prompt_of(v, 0)->text, prompt_of(v, 0)->length);
        TRY(generate_tell(v->terminal, false, &v->untold, error));
    }
    const int64_t begin = clock_now();
    TRY(continuation_run(&v->continuation, v->texts, count, &sink, error));
    TRY(generate_report(v, first, count, 1e-9 * (double)(clock_now() - begin), error));
    for (size_t i = 0; i < count; i++)
        v->forgotten = MAX(v->forgotten, v->texts[i].forgotten);
    return TRIREME_OK;
}

// The tokens of the longest prompt. A prompt that cannot be encoded is found here, before anything is told.
static trireme_status generate_measure(struct view *v, size_t *longest, trireme_error *error) {
    struct token_list tokens = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < v->prompts.count && status == TRIREME_OK; i++) {
        tokens.count = 0;
        status =
            continuation_encode(&v->continuation, v->prompts.item[i].text, v->prompts.item[i].length, &tokens, error);
        *longest = MAX(*longest, tokens.count);
    }
    VEC_RELEASE(&tokens);
    return status;
}

static trireme_status generate(struct view *v, const char *path, const atomic_bool *stop, trireme_error *error) {
    size_t longest = 0;
    TRY(prompts_read(&v->prompts, v->config, error));
    TRY(continuation_open(&v->continuation, v->config, path, error));
    TRY(generate_measure(v, &longest, error));
    const size_t count = generate_count(v), together = (size_t)v->config->generate.batch_size;
    v->side_by_side = MIN(count, together);
    TRY(continuation_load(&v->continuation, v->side_by_side, longest, error));
    v->texts = mem_alloc(v->side_by_side * sizeof *v->texts);
    for (size_t i = 0; i < count && !*stop; i += together)
        TRY(generate_some(v, i, MIN(together, count - i), stop, error));
    generate_say_forgotten(v);
    return TRIREME_OK;
}

static void view_release(struct view *v) {
    for (size_t i = 0; i < v->side_by_side && v->texts; i++)
        continued_text_release(&v->texts[i]);
    free(v->texts);
    text_release(&v->untold);
    continuation_release(&v->continuation);
    prompts_release(&v->prompts);
}

// What only a conversation has would have no effect.
static trireme_status generate_without_chat(struct view *v, const char *path, const atomic_bool *stop,
                                            trireme_error *error) {
    static const char *const ONLY[] = {"generate.system", "generate.chat_template"};
    for (size_t i = 0; i < ARRAY_LENGTH(ONLY); i++)
        if (config_is_set(v->config, ONLY[i]))
            return config_refuse(v->config, ONLY[i], error, "but there is no --chat");
    return generate(v, path, stop, error);
}

static const char KEYS[] = "generate.* training.dtype training.kernels training.threads lora.base_model";

trireme_status command_generate(const struct arguments *a, trireme_error *error) {
    const atomic_bool *stop = stop_on_signals();
    struct config config;
    TRY(arguments_config(a, NULL, &config, error));
    struct view view = {.config = &config, .json = a->json, .terminal = isatty(STDOUT_FILENO)};
    trireme_status status = arguments_expect(a, 1, 1, error);
    if (status == TRIREME_OK)
        status = config_expect(&config, KEYS, "generate", error);
    if (status == TRIREME_OK)
        status = a->chat ? generate_chat(a, &config, stop, error)
                         : generate_without_chat(&view, a->operands.item[0], stop, error);
    view_release(&view);
    config_release(&config);
    return status;
}
