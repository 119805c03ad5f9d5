// A model as a Hugging Face directory: config.json and model.safetensors (or shards and their index) with the names and
// shapes of `transformers`. Our fused, padded and transposed parameters are taken apart on the way out and put together
// on the way in, piece by piece (parameter_table): memory beside the model's own stays within a few MiB and one row.
#ifndef CKPT_MODEL_FILES_H
#define CKPT_MODEL_FILES_H

#include "ckpt/directory.h"
#include "ckpt/values.h"
#include "model/model.h"

// Writes config.json and the parameters, in their dtype, into a directory that is being made. Padding is left out.
// GPT-2 without biases gets biases of zero, which transformers expects. shard_bytes 0: SAFETENSORS_SHARD_BYTES.
trireme_status model_files_save(struct directory *directory, const struct model_config *config,
                                const struct parameter_table *table, const struct parameter_values *values,
                                uint64_t shard_bytes, trireme_error *error);

// Whether the config.json of the directory `path` fits (model_config_compare; `exact` as there).
trireme_status model_files_check(const char *path, const struct model_config *config, bool exact, trireme_error *error);
// Fills the parameters from the directory `path`, whose files may hold F64, F32, F16 or BF16; padding becomes zero.
// With `remainders` (of bf16; NULL: none), the low halves of f32 master weights, a file's f32 is kept exactly. First
// model_files_check; then a tensor that is missing, unexpected, misshapen or of another kind is named, before any
// memory is written. Let pass are: names without GPT-2's "transformer." prefix, buffers of masks and frequencies, an
// output head that equals the tied embedding, and zero biases of a GPT-2 without biases.
trireme_status model_files_load(const char *path, const struct model_config *config,
                                const struct parameter_table *table, const struct parameter_values *values,
                                const struct parameter_values *remainders, bool exact, trireme_error *error);

// Tells apart models of one shape: of each tensor in the directory its name, type and first 4 KiB, in one checksum.
// Empty where the files cannot be read, which loading them tells.
void model_files_identify(const char *path, char hex[CHECKSUM_HEX]);

#endif
