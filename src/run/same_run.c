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
        bool of_data; // what data.on_change is about
        int64_t then, now;
    } SAME[] = {{"training.seed", false, saved.training.seed, now->training.seed},
                {"training.seq_len", true, saved.training.seq_len, now->training.seq_len},
                {"training.global_batch_size", true, saved.training.global_batch_size, now->training.global_batch_size},
                {"data.packing", true, saved.data.packing, now->data.packing},
                {"training.dtype", false, saved.training.dtype, now->training.dtype},
                {"training.kernels", false, saved.training.kernels, now->training.kernels},
                {"training.freeze", false, 0, strcmp(saved.training.freeze, now->training.freeze) != 0},
                {"optimizer.name", false, saved.optimizer.name, now->optimizer.name},
                {"outer.method", false, saved.outer.method, now->outer.method},
                {"outer.fragments", false, saved.outer.fragments, now->outer.fragments},
                {"outer.delay_steps", false, saved.outer.delay_steps, now->outer.delay_steps},
                {"outer.reduce", false, saved.outer.reduce, now->outer.reduce},
                {"outer.eager", false, saved.outer.eager, now->outer.eager},
                {"outer.keep_progress", false, saved.outer.keep_progress, now->outer.keep_progress},
                {"outer.optimizer", false, saved.outer.optimizer, now->outer.optimizer},
                {"outer.momentum", false, saved.outer.momentum > 0, now->outer.momentum > 0}};
    trireme_status status = TRIREME_OK;
    if (*now->model.init_from && strcmp(now->model.init_from, saved.model.init_from) != 0)
        status = config_refuse(now, "model.init_from", error,
                               "but the run in %s goes on with weights of its own: leave it out, or name another "
                               "run.directory",
                               now->run.directory);
    for (size_t i = 0; i < ARRAY_LENGTH(SAME) && status == TRIREME_OK; i++)
        if (SAME[i].then != SAME[i].now && !(SAME[i].of_data && now->data.on_change == CONFIG_ON_CHANGE_CONTINUE)) {
            struct text then = {0};
            config_print_value(&then, &saved, SAME[i].key);
            status =
                config_refuse(now, SAME[i].key, error,
                              "but the run in %s was started with %s: set it back, or name another run.directory%s",
                              now->run.directory, then.text,
                              SAME[i].of_data ? ", or let it go on so, with data.on_change=continue" : "");
            text_release(&then);
        }
    config_release(&saved);
    return status;
}

trireme_status same_run_data(const struct corpus *corpus, const char *like, struct text *out, trireme_error *error) {
    const struct mixture_shares *shares = &corpus->train.shares;
    for (int i = 0; i < shares->count; i++) {
        const struct sampler_range *part = &corpus->train.source[i].range[SAMPLER_TRAIN];
        if (shares->count > 1)
            text_add(out, "%s%.9g from ", i ? ", " : "", mixture_part(shares, i));
        text_add(out, "tokens %lld to %lld", (long long)part->begin, (long long)part->end);
    }
    text_add(out, " of ");
    return corpus_identify(corpus->set, like, out, error);
}

// Whether the checkpoint is of a run on one source of tokens, cut into windows: *windows = the samples of its epochs. A
// checkpoint that does not say is of these tokens.
static bool saved_windows(const struct config *saved, const struct state_progress *progress,
                          const struct sampler *sampler, int64_t *windows) {
    const struct sampler_range *now = &sampler->source[0].range[SAMPLER_TRAIN];
    long long begin = now->begin, end = now->end; // as same_run_data writes them
    if (progress->data && sscanf(progress->data, "tokens %lld to %lld of ", &begin, &end) != 2)
        return false;
    *windows = MAX(1, sampler_windows(end - begin, saved->training.seq_len));
    return true;
}

struct sampler_origin same_run_origin(const struct config *now, const struct state_progress *progress,
                                      const struct corpus *corpus, bool others, struct text *words) {
    struct sampler_origin origin = {progress->data_step, progress->data_sample};
    struct config saved;
    trireme_error checked; // same_run_check has read it already
    if (same_run_load(&saved, progress, &checked) != TRIREME_OK)
        return origin;
    const struct config_training *t = &saved.training;
    const int64_t sample = origin.sample + (progress->step - origin.step) * t->global_batch_size;
    const bool anew = others || t->seq_len != now->training.seq_len || saved.data.packing != now->data.packing;
    int64_t windows;
    const bool packs = corpus->train.options.whole || saved.data.packing != now->data.packing;
    if (anew && !packs && corpus->train.shares.count == 1 &&
        saved_windows(&saved, progress, &corpus->train, &windows)) {
        const int64_t epoch = divide_up(sample, windows);
        origin = (struct sampler_origin){progress->step, epoch * corpus->train.source[0].range[SAMPLER_TRAIN].windows};
        text_add(words, "the data are read from their beginning, as pass %lld", (long long)epoch + 1);
    } else if (anew || t->global_batch_size != now->training.global_batch_size) {
        origin = (struct sampler_origin){progress->step, sample};
        text_add(words, "the data go on %s", anew ? "in their order, after as many sequences" : "where they were");
    }
    config_release(&saved);
    return origin;
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
