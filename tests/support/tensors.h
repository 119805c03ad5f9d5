// Safetensors files for tests: of any tensors, of a model in memory, of its training state.
#ifndef SUPPORT_TENSORS_H
#define SUPPORT_TENSORS_H

#include "ckpt/model_files.h"
#include "ckpt/state_files.h"

struct sample_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    int ndim;
    int64_t shape[3];
    const void *data;
};

// A layout of these tensors, to be given metadata, placed and written.
void tensors_declare(struct safetensors_layout *layout, const char *stem, uint64_t shard_bytes,
                     const struct sample_tensor *tensor, size_t count);
// Places and releases the layout, and writes its files into `folder`, with an index where there are several. `record`
// (NULL: nobody): is told of the files, which have sums of blocks of `block_bytes`.
trireme_status tensors_write(struct safetensors_layout *layout, const char *folder, const struct sample_tensor *tensor,
                             struct directory *record, uint64_t block_bytes, trireme_error *error);

// Writes into a directory that is being made what one rank would save, whole parameters of `dtype` at data[number]:
// config.json and the model.
void model_write(struct directory *directory, const struct model_config *config, const struct parameter_table *table,
                 enum dtype dtype, void *const *data, uint64_t shard_bytes);
// The training state: one group of tensors for each of the groups, of parameters that it has.
struct sample_group {
    const char *name;
    enum dtype dtype;
    void *const *data;
    const bool *has;
};
void state_write(struct directory *directory, const struct parameter_table *table, const struct sample_group *group,
                 size_t groups, const struct state_progress *progress);

#endif
