// trireme prepare INPUT...: text becomes token files.
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "data/prepare.h"
#include "data/token_set.h"

static void show_bar(void *user, int64_t done, int64_t total) {
    const int64_t *begin = user;
    double seconds = 1e-9 * (double)(clock_now() - *begin), share = (double)done / (double)MAX(total, 1);
    int filled = (int)(share * 30);
    char left[32];
    if (!total) {
        progress_line("%.1f MB  %.1f MB/s", 1e-6 * (double)done, 1e-6 * (double)done / (seconds + 1e-9));
        return;
    }
    duration_text(share > 0 ? seconds * (1 - share) / share : 0, left);
    progress_line("[%.*s%.*s] %3.0f%%  %.1f MB/s  %s left", filled, "##############################", 30 - filled,
                  "..............................", 100 * share, 1e-6 * (double)done / (seconds + 1e-9), left);
}

static trireme_status prepare_report(const struct arguments *a, const struct config *config,
                                     const struct prepare_result *r, trireme_error *error) {
    struct text out = {0};
    char *prefix = token_prefix(config->data.path);
    if (a->json) {
        json_begin_object(&out, NULL);
        json_add_path(&out, "path", prefix);
        json_add_integer(&out, "files", r->files);
        json_add_integer(&out, "documents", r->manifest.documents);
        json_add_integer(&out, "empty_documents", r->empty_documents);
        json_add_integer(&out, "bad_lines", r->bad_lines.count);
        json_add_string(&out, "passed_over", r->passed_over);
        json_add_integer(&out, "tokens", r->manifest.tokens);
        json_add_integer(&out, "text_bytes", r->manifest.text_bytes);
        json_add_integer(&out, "vocab_size", r->manifest.vocab_size);
        json_add_integer(&out, "resumed_tokens", r->resumed_tokens);
        json_add_integer(&out, "chats", r->chats);
        json_add_integer(&out, "answer_tokens", r->answer_tokens);
        json_end_object(&out);
        text_add(&out, "\n");
    } else {
        struct text shown = {0};
        text_add_line(&shown, prefix);
        text_add(&out, "%s of %s in %s are in %s.bin and %s.idx\n", counted(r->manifest.tokens, "token").text,
                 counted(r->manifest.documents, "document").text, counted(r->files, "file").text, shown.text,
                 shown.text);
        text_release(&shown);
        if (r->chats)
            text_add(&out, "%s: %s of answers will be predicted, the others only read\n",
                     counted(r->chats, "chat").text, counted(r->answer_tokens, "token").text);
        if (r->chats_without_answers)
            text_add(&out, "nothing will be predicted of %s without an answer\n",
                     counted(r->chats_without_answers, "chat").text);
        if (r->resumed_tokens)
            text_add(&out, "went on after %s that an interrupted run had saved\n",
                     counted(r->resumed_tokens, "token").text);
        if (r->empty_documents)
            text_add(&out, "left out: %s without text\n", counted(r->empty_documents, "document").text);
        if (r->bad_lines.count)
            text_add(&out, "left out: %s, the first: %s\n", counted(r->bad_lines.count, "bad line").text,
                     r->bad_lines.first.message);
        if (*r->passed_over)
            text_add(&out, "passed over, neither .txt nor .jsonl: %s\n", r->passed_over);
    }
    free(prefix);
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

trireme_status command_prepare(const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_config(a, NULL, &config, error));
    trireme_status status = arguments_expect(a, 1, SIZE_MAX, error);
    if (status == TRIREME_OK)
        status = config_expect(&config,
                               "data.path data.tokenizer data.text_field data.chat_template data.bad_lines"
                               " tokenizer.pattern",
                               "prepare", error);
    if (status == TRIREME_OK && !*config.data.path)
        status = error_set(error, TRIREME_ERROR_USAGE, "name the token files to write: --data.path=PREFIX");
    struct tokenizer *tokenizer = NULL;
    if (status == TRIREME_OK && *config.data.tokenizer)
        status = arguments_tokenizer(config.data.tokenizer, &config, &tokenizer, error);
    else if (status == TRIREME_OK && config_is_set(&config, "tokenizer.pattern"))
        status = config_refuse(&config, "tokenizer.pattern", error, "for tiktoken's ranks: data.tokenizer names none");
    else if (status == TRIREME_OK)
        tokenizer = tokenizer_create_bytes(TOKENIZER_BYTES_AND_ENDS);
    int64_t begin = clock_now();
    struct prepare_options options = {.inputs = (const char *const *)a->operands.item,
                                      .input_count = a->operands.count,
                                      .prefix = config.data.path,
                                      .tokenizer = tokenizer,
                                      .documents = {.field = config.data.text_field},
                                      .chat_template = config.data.chat_template,
                                      .skips_bad_lines = config.data.bad_lines == CONFIG_BAD_LINES_SKIP,
                                      .progress = show_bar,
                                      .user = &begin,
                                      .cancel = stop_on_signals()};
    struct prepare_result result;
    if (status == TRIREME_OK)
        status = prepare_tokens(&options, &result, error);
    progress_clear();
    if (status == TRIREME_OK)
        status = prepare_report(a, &config, &result, error);
    tokenizer_free(tokenizer);
    config_release(&config);
    return status;
}
