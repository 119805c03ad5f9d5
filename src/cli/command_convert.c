// trireme convert IN OUT: a model in other numbers, other files, or the format of another program.
#include "base/clock.h"
#include "base/json.h"
#include "ckpt/adapters.h"
#include "ckpt/directory.h"
#include "ckpt/model_files.h"
#include "cli/cli.h"
#include "convert/gguf_model.h"
#include "convert/hugging_face.h"
#include "convert/llmc_file.h"
#include "model/lora.h"
#include "model/model.h"
#include "run/checkpoint.h"

#include <sys/stat.h>

static void show_progress(void *user, uint64_t done, uint64_t total) {
    (void)user;
    progress_line("%s of %s", amount((int64_t)done).text, amount((int64_t)total).text);
}

static trireme_status options_read(const struct config *config, struct conversion_options *out, trireme_error *error) {
    static const enum stored STORED[] = {[CONFIG_STORED_F32] = STORED_F32,
                                         [CONFIG_STORED_F16] = STORED_F16,
                                         [CONFIG_STORED_BF16] = STORED_BF16,
                                         [CONFIG_STORED_Q8_0] = STORED_Q8_0};
    int64_t shard_bytes;
    if (!amount_read(config->convert.shard_size, &shard_bytes) || shard_bytes == 0)
        return config_refuse(config, "convert.shard_size", error, "which is no size such as 5GB or 500MiB");
    *out = (struct conversion_options){.keeps = config->convert.dtype == CONFIG_STORED_KEEP,
                                       .stored = STORED[config->convert.dtype],
                                       .shard_bytes = (uint64_t)shard_bytes};
    return TRIREME_OK;
}

// What is converted.
struct conversion_source {
    char *directory; // where config.json and what else is beside the weights lie; NULL: of llm.c's
    int hold;
    struct text config; // of llm.c's
    struct safetensors *files;
};

static void source_release(struct conversion_source *s) {
    safetensors_close(s->files);
    directory_let_go(s->hold);
    free(s->directory);
    text_release(&s->config);
}

static trireme_status source_open(struct conversion_source *s, const char *path, trireme_error *error) {
    struct stat info = {0};
    *s = (struct conversion_source){.hold = -1};
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
        TRY(model_refuse_weights(path, error));
    if (S_ISREG(info.st_mode) && llmc_file_is(path))
        return llmc_file_open(path, &s->files, &s->config, error);
    TRY(checkpoint_resolve(path, &s->directory, &s->hold, error));
    if (lora_is_directory(s->directory))
        FAIL(TRIREME_ERROR_USAGE, "%s holds adapters: convert the model that they are for, with --convert.merge=%s",
             s->directory, path);
    return hugging_face_open(s->directory, &s->files, error);
}

// What adapters add to each tensor: the caller releases each, and frees the array, also after an error.
static trireme_status sums_read(const struct conversion_source *s, struct adapters *adapters, struct adapter_sum *sums,
                                trireme_error *error) {
    size_t found = 0;
    TRY(model_files_check(s->directory, adapters_model(adapters), false, error));
    for (size_t i = 0; i < s->files->tensor.count; i++) {
        const struct safetensors_tensor *t = &s->files->tensor.item[i];
        TRY(adapter_sum_read(adapters, t->name, &sums[i], error));
        if (!sums[i].left)
            continue;
        found++;
        TRY(safetensors_expect(s->files, t, t->dtype, 2, (int64_t[]){sums[i].rows, sums[i].columns}, error));
    }
    if (found < adapters_count(adapters))
        FAIL(TRIREME_ERROR_USAGE, "%s has %zu of the %zu layers that the adapters are for", s->directory, found,
             adapters_count(adapters));
    return TRIREME_OK;
}

static trireme_status sums_open(const struct conversion_source *s, const char *merge, struct adapter_sum **sums,
                                trireme_error *error) {
    struct adapters *adapters;
    char *directory;
    int hold;
    *sums = NULL;
    if (!*merge)
        return TRIREME_OK;
    if (!s->directory)
        FAIL(TRIREME_ERROR_USAGE, "convert.merge: a model file of llm.c is converted to a directory first");
    TRY(checkpoint_resolve(merge, &directory, &hold, error));
    trireme_status status = adapters_open(directory, s->directory, &adapters, error);
    if (status == TRIREME_OK) {
        *sums = mem_alloc(s->files->tensor.count * sizeof **sums);
        status = sums_read(s, adapters, *sums, error);
        adapters_close(adapters);
    }
    directory_let_go(hold);
    free(directory);
    return status;
}

static trireme_status convert_report(const struct arguments *a, const struct safetensors *files, trireme_error *error) {
    const char *to = a->operands.item[1];
    struct text out = {0};
    if (a->json) {
        json_begin_object(&out, NULL);
        json_add_path(&out, "path", to);
        json_add_integer(&out, "tensors", (int64_t)files->tensor.count);
        json_end_object(&out);
    } else {
        text_add(&out, "%s are in ", counted((int64_t)files->tensor.count, "tensor").text);
        text_add_line(&out, to);
    }
    text_add(&out, "\n");
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

static trireme_status convert(const struct arguments *a, const struct config *config, trireme_error *error) {
    const char *to = a->operands.item[1];
    struct conversion_options options;
    struct conversion_source source;
    struct conversion_watch watch = {.progress = show_progress, .cancel = stop_on_signals()};
    TRY(options_read(config, &options, error));
    trireme_status status = source_open(&source, a->operands.item[0], error);
    struct adapter_sum *sums = NULL;
    if (status == TRIREME_OK)
        status = sums_open(&source, config->convert.merge, &sums, error);
    options.sums = sums;
    for (size_t i = 0; status == TRIREME_OK && i < source.files->tensor.count; i++)
        watch.total += source.files->tensor.item[i].bytes;
    const bool is_llmc = !source.directory, gguf = text_ends(to, ".gguf"), llmc = text_ends(to, ".bin");
    const struct hugging_face_beside beside = {.directory = source.directory,
                                               .config = is_llmc ? &source.config : NULL,
                                               .turns = is_llmc ? llmc_file_turns : NULL};
    if (status == TRIREME_OK && is_llmc && (gguf || llmc))
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s is a model file of llm.c: convert it to a directory, put its tokenizer there, and "
                           "convert that",
                           a->operands.item[0]);
    else if (status == TRIREME_OK && gguf)
        status = gguf_write(source.directory, source.files, to, &options, &watch, error);
    else if (status == TRIREME_OK && llmc)
        status = llmc_file_write(source.directory, source.files, to, &options, &watch, error);
    else if (status == TRIREME_OK)
        status = hugging_face_write(source.files, &beside, to, &options, &watch, error);
    progress_clear();
    if (status == TRIREME_OK)
        status = convert_report(a, source.files, error);
    for (size_t i = 0; sums && i < source.files->tensor.count; i++)
        adapter_sum_release(&sums[i]);
    free(sums);
    source_release(&source);
    return status;
}

trireme_status command_convert(const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_expect(a, 2, 2, error));
    TRY(arguments_config(a, NULL, &config, error));
    trireme_status status = config_expect(&config, "convert.*", "convert", error);
    if (status == TRIREME_OK)
        status = convert(a, &config, error);
    config_release(&config);
    return status;
}
