#include "run/sampling.h"

#include "base/json.h"
#include "ckpt/directory.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/run.h"

#include <math.h>
#include <unistd.h>

#define SAMPLES_PATH "%s/samples"

static void sampling_more(void *user) {
    ranks_tell_more(((struct run *)user)->control);
}

static void sampling_take(void *user, const struct text *prompt, const struct text *text) {
    struct run *r = user;
    struct text shown = {0};
    trireme_error why;
    json_begin_array(&shown, NULL);
    json_add_text(&shown, NULL, prompt);
    json_add_text(&shown, NULL, text);
    json_end_array(&shown);
    run_tell(r, "sample of step %lld: %s", (long long)r->progress.step, shown.text);
    text_release(&shown);
    text_add_bytes(&shown, prompt->text, prompt->length);
    text_add_bytes(&shown, text->text ? text->text : "", text->length);
    if (run_directory_add_sample(&r->directory, r->progress.step, r->samples++, &shown, &why) != TRIREME_OK)
        run_tell(r, "a sample is not kept for TensorBoard: %s", why.message);
    text_release(&shown);
}

// What a run that was killed has left, too.
static void sampling_remove(const char *path) {
    trireme_error ignored;
    bool held;
    struct directory_list all = {0};
    char *parent = mem_printf(CHECKPOINTS_PATH, path);
    directory_sweep(parent);
    if (directory_list(parent, &all, &ignored) == TRIREME_OK)
        for (size_t i = 0; i < all.count; i++)
            directory_remove(all.item[i].path, &held, &ignored);
    directory_list_release(&all);
    rmdir(parent);
    rmdir(path);
    free(parent);
}

// Saves the model of all ranks below `path`.
static trireme_status sampling_save(struct run *r, const char *path, trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, path);
    if (r->leads)
        sampling_remove(path);
    int32_t failed = r->leads && directory_create(parent, error) != TRIREME_OK;
    free(parent);
    TRY(ranks_max(r->control, &failed, error));
    if (failed)
        return r->leads ? error->status : error_set(error, TRIREME_ERROR_IO, "rank 0 has no directory for it");
    TRY(island_save(r, error));
    checkpoint_saver_begin(r->saving.saver, path, &r->progress, NULL);
    checkpoint_saver_await_end(r->saving.saver, INFINITY);
    return checkpoint_saver_end(r->saving.saver, error);
}

static void sampling_make(struct run *r, const char *path) {
    trireme_error why;
    const struct train_samples asked = {
        r->config, path, r->callbacks->stop, r, sampling_more, sampling_take,
    };
    r->samples = 0;
    if (r->callbacks->sample(&asked, &why) != TRIREME_OK)
        run_tell(r, "no samples of step %lld: %s", (long long)r->progress.step, why.message);
}

trireme_status sampling_run_all(struct run *r, trireme_error *error) {
    trireme_error why;
    if (!*r->config->validation.prompts || !r->callbacks->sample)
        return TRIREME_OK;
    TRY(saving_settle(r, error));
    char *path = mem_printf(SAMPLES_PATH, r->config->run.directory);
    trireme_status status = sampling_save(r, path, &why);
    if (status == TRIREME_OK && r->leads)
        sampling_make(r, path);
    else if (status != TRIREME_OK && status != TRIREME_ERROR_LOST)
        run_tell(r, "no samples of step %lld: %s", (long long)r->progress.step, why.message);
    if (r->leads)
        sampling_remove(path);
    free(path);
    if (status == TRIREME_ERROR_LOST)
        return error_repeat(error, &why);
    return r->leads ? ranks_tell_end(r->control, error) : ranks_await_end(r->control, NULL, error);
}
