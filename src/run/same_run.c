#include "run/same_run.h"

static trireme_status same_run_load(struct config *saved, const struct state_progress *progress, trireme_error *error) {
    const char *yaml = progress->config;
    return config_load_text(saved, "the checkpoint's configuration", yaml, strlen(yaml), NULL, 0, error);
}

trireme_status same_run_check(const struct config *now, const struct state_progress *progress, const char *directory,
                              trireme_error *error) {
    struct config saved;
    trireme_error why;
    if (same_run_load(&saved, progress, &why) != TRIREME_OK)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s", directory, why.message);
    const struct {
        const char *key;
        int64_t then, now;
    } SAME[] = {{"training.seed", saved.training.seed, now->training.seed},
                {"training.seq_len", saved.training.seq_len, now->training.seq_len},
                {"training.global_batch_size", saved.training.global_batch_size, now->training.global_batch_size},
                {"training.dtype", saved.training.dtype, now->training.dtype},
                {"training.kernels", saved.training.kernels, now->training.kernels},
                {"optimizer.name", saved.optimizer.name, now->optimizer.name},
                {"outer.method", saved.outer.method, now->outer.method},
                {"outer.delay_steps", saved.outer.delay_steps, now->outer.delay_steps}};
    trireme_status status = TRIREME_OK;
    if (*now->model.init_from && strcmp(now->model.init_from, saved.model.init_from) != 0)
        status = config_refuse(now, "model.init_from", error,
                               "but the run in %s goes on with weights of its own: leave it out, or name another "
                               "run.directory",
                               now->run.directory);
    for (size_t i = 0; i < ARRAY_LENGTH(SAME) && status == TRIREME_OK; i++)
        if (SAME[i].then != SAME[i].now) {
            struct text then = {0};
            config_print_value(&then, &saved, SAME[i].key);
            status = config_refuse(now, SAME[i].key, error,
                                   "but the run in %s was started with %s: set it back, or name another run.directory",
                                   now->run.directory, then.text);
            text_release(&then);
        }
    config_release(&saved);
    return status;
}

trireme_status same_run_data(const struct corpus *corpus, const char *like, struct text *out, trireme_error *error) {
    const struct sampler_range *part = &corpus->train.range[SAMPLER_TRAIN];
    text_add(out, "tokens %lld to %lld of ", (long long)part->begin, (long long)part->end);
    return corpus_identify(corpus->set, like, out, error);
}

void same_run_differences(const struct config *now, const struct state_progress *progress, struct text *out) {
    struct config saved;
    trireme_error checked; // same_run_check has read it already
    if (same_run_load(&saved, progress, &checked) != TRIREME_OK)
        return;
    static const char SECTIONS[] = "optimizer lr_scheduler training data validation activation_checkpoint checkpoint "
                                   "parallelism outer";
    config_differences(now, &saved, SECTIONS, out);
    config_release(&saved);
}
