// Training state beside a model, in the folder training/, so that who loads the model's *.safetensors does not meet it:
// state.safetensors, or shards of it, with an index. One tensor per parameter and group (a moment of the optimizer, the
// low halves of master weights), under our parameter's name and in its shape without padding, so that nothing in the
// files depends on the number of ranks or on how memory was laid out. Bits are kept exactly. How far the run has come
// (struct state_progress) is in training/progress.json. Checkpoints of before that have one state.safetensors beside
// the model, with the progress in its metadata.
#ifndef CKPT_STATE_FILES_H
#define CKPT_STATE_FILES_H

#include "ckpt/directory.h"
#include "ckpt/image.h"
#include "ckpt/values.h"
#include "model/model.h"

#define STATE_FOLDER "training"
#define STATE_STEM STATE_FOLDER "/state"
#define STATE_NAME "state.safetensors" // of before

// Tensors named "NAME.PARAMETER": "adamw.m.layers.0.attention.qkv.weight".
struct state_group {
    const char *name;
    struct parameter_values values;
    const bool *has; // [parameters]: which parameters have such values; NULL: all
    double share;    // 1: they replace what is there; else what is there keeps the rest (struct tensor_reader)
};

struct state_progress {
    int64_t step;    // steps done, skipped ones included
    int64_t tokens;  // seen
    int64_t updates; // of the optimizer: its t
    int64_t skipped; // steps, for loss or gradients that were not finite
    int64_t skipped_in_a_row;
    int64_t data_step, data_sample; // struct sampler_origin (data/sampler.h); 0 in files that do not say
    double val_loss;                // of the model after `step`; NaN where it was not measured before it was saved
    double best_val_loss;           // of those that early stopping compares; NaN: none
    int64_t validations_in_vain;    // since then
    char *config;                   // the run's configuration as YAML
    char *data;                     // which tokens it trains on, in words to compare; NULL in files that do not say
    char run[CHECKSUM_HEX];         // of a save in checkpoint.emergency_directory: a hash of its run's path; else empty
    char *islands;                  // how far each island has come, where there are several (run/island.h); else NULL
};

// Declares one tensor per parameter, "NAME.PARAMETER", of dtype `dtype`: values of `group`. `has` as in state_group.
trireme_status state_files_declare(struct image_set *set, const struct parameter_table *table, const char *name,
                                   enum dtype dtype, const bool *has, int group, trireme_error *error);
// Whether a file of a checkpoint is part of the training state: the model can be used without.
bool state_files_own(const char *name);
// The path of the state in the directory `path`, as safetensors_open takes it; whether it is there is not asked. The
// caller frees it.
char *state_files_path(const char *path);
// Writes training/progress.json into the directory `path`, which has that folder, and syncs it.
trireme_status state_files_write_progress(const char *path, const struct state_progress *progress,
                                          trireme_error *error);
// How far the run had come that saved the directory `path`. The caller releases *out.
trireme_status state_files_progress(const char *path, struct state_progress *out, trireme_error *error);
void state_progress_release(struct state_progress *progress);
// Fills what this rank has of the groups from the directory `path`; padding becomes zero. Of the files no more is read.
// `watch` (may be NULL) is told while it reads. A tensor that is missing, unexpected, misshapen or of another dtype is
// named, before any memory is written.
trireme_status state_files_load(const char *path, const struct parameter_table *table, const struct state_group *group,
                                size_t groups, const struct checksum_watch *watch, trireme_error *error);

#endif
