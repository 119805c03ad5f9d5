// A model as a Hugging Face directory: config.json and model.safetensors (or shards and their index) with the names and
// shapes of `transformers`. Our fused, padded and transposed parameters are taken apart when they are saved (image.h)
// and put together when they are loaded (tensor_reader.h).
#ifndef CKPT_MODEL_FILES_H
#define CKPT_MODEL_FILES_H

#include "ckpt/directory.h"
#include "ckpt/image.h"
#include "ckpt/safetensors.h"
#include "ckpt/values.h"
#include "model/model.h"

// What the files of such tensors are called: "model", or, of adapters, "adapter_model".
const char *model_files_stem(const struct model_config *config);
// Declares the tensors of a model in files, or, where it has adapters, of these alone: parameters of dtype `dtype`,
// which are values of `group`, those that are not trained of `frozen`, without their padding. A GPT-2 without biases
// gets biases of zero, since transformers expects some.
trireme_status model_files_declare(struct image_set *set, const struct model_config *config,
                                   const struct parameter_table *table, enum dtype dtype, int group, int frozen,
                                   trireme_error *error);

// Writes config.json, and adapter_config.json where the model has adapters, into a directory that is being made.
trireme_status model_files_write_config(struct directory *directory, const struct model_config *config,
                                        enum dtype dtype, trireme_error *error);
// Whether the config.json of the directory `path` fits (model_config_compare; `exact` as there).
trireme_status model_files_check(const char *path, const struct model_config *config, bool exact, trireme_error *error);
// Fills what this rank has of the parameters from the directory `path`, whose files may hold F64, F32, F16 or BF16;
// padding becomes zero. Of the files no more is read. `remainders` (for bf16 parameters; NULL: none) take the low
// halves of f32 master weights, so that an f32 in a file is kept exactly. `watch` (may be NULL) is told while it reads.
// A vocabulary that is larger than in the files begins with theirs, and its new rows are the mean of those; of a
// smaller one the last rows of the files fall away. Neither is so where the model is to be `exact`ly that of the files.
// Does model_files_check first; then names a tensor that is missing, unexpected, misshapen or of another dtype, before
// any memory is written. Accepted are names without GPT-2's "transformer." prefix, buffers of masks and frequencies, an
// output head that equals the tied embedding, and zero biases for a GPT-2 without biases. Of a directory with adapters,
// all else comes from the model that they adapt; of one without, adapters stay as they are.
trireme_status model_files_load(const char *path, const struct model_config *config,
                                const struct parameter_table *table, const struct parameter_values *values,
                                const struct parameter_values *remainders, bool exact,
                                const struct checksum_watch *watch, trireme_error *error);

// The tensors of a model in files that are open, each under the name that `transformers` gives it.
struct model_tensor {
    char *name;
    const struct safetensors_tensor *tensor; // NULL: zeros, which a GPT-2 without biases has in place of them
    int64_t rows, columns;                   // of the tensor; a vector has one column
    int ndim;
    bool transposed; // it lies as [in, out]
    int64_t heads;   // not 0: as in struct parameter_piece
};
struct model_tensors {
    VEC(struct model_tensor);
};
// Finds and checks them as model_files_load does. `path` is for messages. Nothing to release after an error.
trireme_status model_files_find(const char *path, struct safetensors *files, const struct model_config *config,
                                struct model_tensors *out, trireme_error *error);
void model_tensors_release(struct model_tensors *tensors);

// Opens the file of the adapters in the directory `path`, which must have those of the model and nothing else, named
// and shaped as there; the caller closes *out.
trireme_status model_files_open_adapters(const char *path, const struct model_config *config, struct safetensors **out,
                                         trireme_error *error);
// Refuses (TRIREME_ERROR_USAGE) to go on with the adapters in the directory `path` on other weights than those that
// they were trained on, where the file says that.
trireme_status model_files_check_base(const char *path, const struct model_config *config, trireme_error *error);
// Tells apart models of the same shape: one checksum over the name, type and first 4 KiB of each tensor in the
// directory. Empty where the files cannot be read; loading them says why.
void model_files_identify(const char *path, char hex[CHECKSUM_HEX]);

#endif
