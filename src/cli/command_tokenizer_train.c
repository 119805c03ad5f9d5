// trireme tokenizer train INPUT... --output=DIR: byte-level BPE is learnt from text.
#include "base/parallel_for.h"
#include "cli/cli.h"
#include "data/documents.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/tokenizer.h"

struct training {
    const struct config *config;
    const atomic_bool *stop;
    struct bpe_trainer *trainer;
    int64_t bytes; // of text
};

static trireme_status training_add(void *user, const char *bytes, size_t length, trireme_error *error) {
    struct training *t = user;
    t->bytes += (int64_t)length;
    return bpe_trainer_add(t->trainer, bytes, length, error);
}

static trireme_status training_end_text(void *user, trireme_error *error) {
    struct training *t = user;
    return bpe_trainer_end_text(t->trainer, error);
}

static trireme_status training_interrupted(const struct training *t, trireme_error *error) {
    FAIL(TRIREME_ERROR_INTERRUPTED, "%s: interrupted, nothing was written", t->config->tokenizer.output);
}

static trireme_status training_advance(void *user, size_t bytes, trireme_error *error) {
    struct training *t = user;
    (void)bytes;
    if (*t->stop)
        return training_interrupted(t, error);
    progress_line("%.1f MB read", 1e-6 * (double)t->bytes);
    return TRIREME_OK;
}

static bool training_show(void *user, int32_t tokens) {
    const struct training *t = user;
    progress_line("%d of %lld tokens", tokens, (long long)t->config->tokenizer.vocab_size);
    return !*t->stop;
}

static trireme_status training_read(struct training *t, const struct arguments *a, trireme_error *error) {
    const struct document_sink sink = {
        .user = t, .add = training_add, .end = training_end_text, .advance = training_advance};
    const struct document_options options = {.field = t->config->data.text_field};
    struct document_files files = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 1; i < a->operands.count && status == TRIREME_OK; i++)
        status = document_files_add(&files, a->operands.item[i], error);
    for (size_t i = 0; i < files.count && status == TRIREME_OK; i++)
        status = document_file_read(&files.item[i], &options, &sink, error);
    document_files_release(&files);
    if (status == TRIREME_OK && t->bytes == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: the input holds no text", a->operands.item[1]);
    return status;
}

// The tokenizer that the trainer has learnt; the caller frees.
static trireme_status training_finish(struct training *t, struct tokenizer **out, trireme_error *error) {
    const struct config_tokenizer *c = &t->config->tokenizer;
    struct tokenizer_parts parts;
    trireme_status status = bpe_trainer_finish(t->trainer, training_show, t, &parts, error);
    if (status == TRIREME_ERROR_INTERRUPTED)
        return training_interrupted(t, error);
    TRY(status);
    parts.bos = *c->bos ? mem_strdup(c->bos) : NULL;
    parts.eos = *c->eos ? mem_strdup(c->eos) : NULL;
    return tokenizer_create(out, &parts, NULL, c->output, error);
}

static trireme_status training_write(const struct training *t, const struct tokenizer *made, trireme_error *error) {
    const char *output = t->config->tokenizer.output;
    struct tokenizer_files files = tokenizer_files(made);
    trireme_status status = directory_create(output, error);
    if (status == TRIREME_OK)
        status = tokenizer_files_write(&files, output, error);
    tokenizer_files_release(&files);
    return status;
}

static trireme_status training_report(const struct training *t, const struct arguments *a, const struct tokenizer *made,
                                      trireme_error *error) {
    const size_t merges = tokenizer_parts_of(made)->merges.count;
    struct text out = {0};
    if (a->json) {
        json_begin_object(&out, NULL);
        json_add_path(&out, "path", t->config->tokenizer.output);
        json_add_integer(&out, "vocab_size", tokenizer_vocab_size(made));
        json_add_integer(&out, "merges", (int64_t)merges);
        json_add_integer(&out, "text_bytes", t->bytes);
        json_end_object(&out);
        text_add(&out, "\n");
    } else {
        text_add(&out, "a tokenizer of %s is in ", counted(tokenizer_vocab_size(made), "token").text);
        text_add_line(&out, t->config->tokenizer.output);
        text_add(&out, "\n");
    }
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

static trireme_status training_run(struct training *t, const struct arguments *a, trireme_error *error) {
    const struct config_tokenizer *c = &t->config->tokenizer;
    const char *special[2];
    struct bpe_trainer_options options = {.vocab_size = (int32_t)c->vocab_size,
                                          .min_frequency = c->min_frequency,
                                          .special = special,
                                          .threads = usable_cores()};
    if (*c->bos)
        special[options.special_count++] = c->bos;
    if (*c->eos && strcmp(c->bos, c->eos) != 0)
        special[options.special_count++] = c->eos;
    TRY(split_pattern_read(c->pattern, "tokenizer.pattern", &options.pattern, error));
    TRY(bpe_trainer_create(&t->trainer, &options, error));
    struct tokenizer *made = NULL;
    trireme_status status = training_read(t, a, error);
    if (status == TRIREME_OK)
        status = training_finish(t, &made, error);
    progress_clear();
    if (status == TRIREME_OK)
        status = training_write(t, made, error);
    if (status == TRIREME_OK)
        status = training_report(t, a, made, error);
    tokenizer_free(made);
    bpe_trainer_free(t->trainer);
    return status;
}

// An older tokenizer is not replaced: models and token files may be its.
static trireme_status training_check_output(const struct config *config, trireme_error *error) {
    static const char *const NAMES[] = {"tokenizer.json", "tokenizer_config.json"};
    const char *output = config->tokenizer.output;
    if (!*output)
        FAIL(TRIREME_ERROR_USAGE, "name the directory to write: --output=DIR");
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        char *path = mem_printf("%s/%s", output, NAMES[i]);
        const bool missing = file_missing(path);
        free(path);
        if (!missing)
            return config_refuse(config, "tokenizer.output", error, "where a %s is: name another directory", NAMES[i]);
    }
    return TRIREME_OK;
}

trireme_status command_tokenizer_train(const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_expect(a, 2, SIZE_MAX, error));
    TRY(arguments_config(a, NULL, &config, error));
    struct training t = {.config = &config, .stop = stop_on_signals()};
    trireme_status status = config_expect(&config, "tokenizer.* data.text_field", "tokenizer train", error);
    if (status == TRIREME_OK)
        status = training_check_output(&config, error);
    if (status == TRIREME_OK)
        status = training_run(&t, a, error);
    config_release(&config);
    return status;
}
