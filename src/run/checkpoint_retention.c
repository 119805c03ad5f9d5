#include "run/checkpoint_retention.h"

#include "ckpt/state_files.h"

#include <math.h>

double checkpoint_loss(struct checkpoint_losses *losses, const struct directory_numbered *checkpoint) {
    struct state_progress progress;
    trireme_error ignored;
    if (state_files_progress(checkpoint->path, &progress, &ignored) == TRIREME_OK) {
        const double loss = progress.val_loss;
        state_progress_release(&progress);
        if (!isnan(loss))
            return loss;
    }
    if (!losses->read && losses->run_directory)
        metrics_read_losses(losses->run_directory, &losses->lines);
    losses->read = true;
    return metrics_loss(&losses->lines, checkpoint->number);
}

void checkpoint_losses_release(struct checkpoint_losses *losses) {
    VEC_RELEASE(&losses->lines);
    losses->read = false;
}

struct retention_rules checkpoint_rules(const struct config *config) {
    const struct config_checkpoint *c = &config->checkpoint;
    return (struct retention_rules){
        .latest = (size_t)c->keep_latest_k, .every = c->keep_every, .best = (size_t)c->keep_best_k};
}

int64_t checkpoint_last_counted(const char *parent) {
    struct directory_list all;
    struct state_progress progress;
    trireme_error ignored;
    int64_t last = -1;
    if (directory_list(parent, &all, &ignored) != TRIREME_OK)
        return last;
    for (size_t i = 0; i < all.count && last < 0; i++)
        if (directory_verify(all.item[i].path, MANIFEST_SIZES, NULL, &ignored) == TRIREME_OK &&
            state_files_progress(all.item[i].path, &progress, &ignored) == TRIREME_OK) {
            last = all.item[i].number - progress.skipped_in_a_row;
            state_progress_release(&progress);
        }
    directory_list_release(&all);
    return last;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

// Whether a checkpoint before that of the last step is saved after a step that is validated.
static bool best_may_differ(const struct config *config, int64_t done) {
    const int64_t save = config->checkpoint.interval, validate = config->validation.freq;
    if (!save || !validate)
        return false;
    const int64_t both = save / common_divisor(save, validate) * validate;
    return (config->training.steps - 1) / both > done / both;
}

void checkpoint_explain_best(const struct config *config, bool has_validation, int64_t done, struct text *out) {
    if (!config->checkpoint.keep_best_k || !config->checkpoint.keep_latest_k)
        return;
    if (!has_validation)
        text_add(out, "checkpoint.keep_best_k keeps nothing: there are no tokens to validate on (data.split, "
                      "data.validation_path)");
    else if (!best_may_differ(config, done))
        text_add(out, "checkpoint.keep_best_k can only choose the last checkpoint: no other is saved after a step that "
                      "is validated: make checkpoint.interval a multiple of validation.freq");
}
