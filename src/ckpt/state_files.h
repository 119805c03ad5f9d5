// Training state beside a model: state.safetensors. One tensor per parameter and group (a moment of the optimizer, the
// low halves of master weights), under our parameter's name and in its shape without padding, so that nothing in the
// file depends on the number of ranks or on how memory was laid out. Bits are kept exactly. How far the run has come
// (struct state_progress) is in the file's metadata.
#ifndef CKPT_STATE_FILES_H
#define CKPT_STATE_FILES_H

#include "ckpt/directory.h"
#include "ckpt/values.h"
#include "model/model.h"

#define STATE_NAME "state.safetensors"

// Tensors named "NAME.PARAMETER": "adamw.m.layers.0.attention.qkv.weight".
struct state_group {
    const char *name;
    struct parameter_values values;
    const bool *has; // [parameters]: which parameters have such values; NULL: all
};

struct state_progress {
    int64_t step;    // steps done, skipped ones included
    int64_t tokens;  // seen
    int64_t updates; // of the optimizer: its t
    int64_t skipped; // steps, for loss or gradients that were not finite
    int64_t skipped_in_a_row;
    int64_t data_step, data_sample; // struct sampler_origin (data/sampler.h); 0 in files that do not say
    char *config;                   // the run's configuration as YAML
    char *data;                     // which tokens it trains on, in words to compare; NULL in files that do not say
    char *islands;                  // how far each island has come, where there are several (run/island.h); else NULL
};

// Writes state.safetensors into a directory that is being made; padding is left out.
trireme_status state_files_save(struct directory *directory, const struct parameter_table *table,
                                const struct state_group *group, size_t groups, const struct state_progress *progress,
                                trireme_error *error);
// How far the run had come that saved the directory `path`. The caller releases *out.
trireme_status state_files_progress(const char *path, struct state_progress *out, trireme_error *error);
void state_progress_release(struct state_progress *progress);
// Fills the groups from the directory `path`; padding becomes zero. A tensor that is missing, unexpected, misshapen or
// of another dtype is named, before any memory is written.
trireme_status state_files_load(const char *path, const struct parameter_table *table, const struct state_group *group,
                                size_t groups, trireme_error *error);

#endif
